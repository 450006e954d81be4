"""Sets that are as narrow as a few units in the last place, so that roundings decide whether a result is inside.

Unlike in `sampling.py` no number is on a grid: centers, generators and members have all their digits. Members are
drawn first; the radius is the largest distance of one from its affine form, rounded up, and bounds are those of all.
"""

from __future__ import annotations

import numpy as np
import torch
from sampling import Case
from torch import Tensor

import boundflow as bf
from boundflow.sets.forms import Form
from boundflow.sets.set import Set
from boundflow.symbols.rows import Rows

WIDTHS = (0.0, 2.0**-22, 2.0**-16, 2.0**-5)  # of what a set can be wide


TINY = 2.0**-72  # products of two such numbers underflow in float32


class TightCase(Case):
    """Operands of one call, with all their digits."""

    def __call__(self, *shape: int, low: float = -1.0, high: float = 1.0) -> Tensor:
        room = (high - low) / 2
        number = self.dtype is torch.float32 and np.float32 or np.float64
        width = room * float(self.random.choice(WIDTHS))
        center = number(self.random.uniform(low + room / 8, high - room / 8, size=shape))
        generators = number(self.random.uniform(-1, 1, size=(self.rows, *shape)) * width / (self.rows + 2))
        drawn, off = [], np.zeros(shape, dtype=np.longdouble)
        for xi in self.xi:
            zeta = self.random.choice([-1.0, 0.0, 1.0], size=shape)
            linear = center.astype(np.longdouble) + np.tensordot(xi, generators.astype(np.longdouble), 1)
            member = number(linear + zeta * width / (self.rows + 2))
            off = np.maximum(off, np.abs(member.astype(np.longdouble) - linear))
            drawn.append(member)
        radius = np.where(off > 0, np.nextafter(number(off), number(np.inf)), number(0))
        members = [torch.tensor(member, dtype=self.dtype) for member in drawn]
        made = self._tight_set(center, generators, radius, torch.stack(members))
        self.members[id(made)] = members
        self.keep.append(made)
        return made

    def _tight_set(self, center: np.ndarray, generators: np.ndarray, radius: np.ndarray, members: Tensor) -> Tensor:
        bounds = torch.stack((members.amin(0), members.amax(0)))
        if not self.rows:
            return bf.Bounded(Set(bounds, None, self.symbols))
        rows = Rows(self.all_rows.numbers[: self.rows])
        parts = (torch.tensor(part, dtype=self.dtype) for part in (center, generators, radius))
        return bf.Bounded(Set(bounds, Form(*parts, rows), self.symbols))


class TinyCase(TightCase):
    """Operands whose products are subnormal numbers, or nothing."""

    size = TINY

    def __call__(self, *shape: int, low: float = -1.0, high: float = 1.0) -> Tensor:
        return super().__call__(*shape, low=low * self.size, high=high * self.size)


class SubnormalCase(TinyCase):
    """Operands that are a few of the smallest numbers: shares of them are rounded to whole ones."""

    size = 2.0**-144
