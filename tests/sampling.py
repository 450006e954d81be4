"""Sets whose members can be drawn exactly: every number is a small multiple of a power of two.

Centers, generators and radii are multiples of 1/64 and symbols multiples of 1/4, so ``c + G xi + rho zeta`` is exact
in float32 already, and a drawn tensor really is a member for the drawn symbols. Nothing here uses a rule.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

import boundflow as bf
from boundflow.sets.forms import Form
from boundflow.sets.sample_axis import SampleAxis, Samples
from boundflow.sets.set import Set
from boundflow.symbols.rows import NO_ROWS, Rows

SYMBOLS = 3  # generator rows per operand family
OWN = 2  # own rows per sample, where there is a sample axis


class Case:
    """Operands of one operator call, and draws of all of them under common symbols."""

    def __init__(self, seed: int, dtype: torch.dtype, rows: int, draws: int = 12, own: bool = False):
        self.random = np.random.default_rng(seed)
        self.dtype, self.rows, self.draws = dtype, rows, draws
        self.symbols = bf.Symbols(bf.threats.Linf(1.0))
        numbers = self.symbols.fresh(rows).numbers if rows else NO_ROWS.numbers
        self.all_rows = Rows(numbers)
        corners = self.random.choice([-1.0, 1.0], size=(draws // 2, rows))
        inner = self.random.integers(-4, 5, size=(draws - draws // 2, rows)) / 4
        self.xi = np.concatenate((corners, inner))
        self.samples = int(self.random.integers(2, 6)) if own else 0  # length of a sample axis, if there is one
        if own:
            order = self.random.permutation(self.samples) // self.random.integers(1, 3)  # a sample may occur twice
            raw = np.tile(order[:, None], (1, OWN)).astype(np.float64)
            self.own_rows = self.symbols.of_samples(order, raw, np.zeros(OWN, dtype=np.int64))
            numbers = self.own_rows.batch.distinct.numbers
            self.whose = Samples.of(self.own_rows.batch)
            self.own_places = self.own_rows.batch.places.numpy()  # (samples, OWN)
            self.own_xi = self.random.integers(-4, 5, size=(draws, len(numbers))) / 4
            self.all_rows = Rows(np.concatenate((self.all_rows.numbers, numbers)))
            self.xi = np.concatenate((self.xi, self.own_xi), 1)
        self.members: dict[int, list[Tensor]] = {}
        self.keep: list[Tensor] = []

    def _grid(self, low: float, high: float, shape: tuple[int, ...]) -> np.ndarray:
        return self.random.integers(int(np.ceil(low * 64)), int(np.floor(high * 64)) + 1, size=shape) / 64

    def __call__(self, *shape: int, low: float = -1.0, high: float = 1.0) -> Tensor:
        """A bounded operand with members in [low, high]; one in eight is a plain tensor."""
        room = (high - low) / 2
        center = self._grid(low + room / 2, high - room / 2, shape)
        share = room / 2 / (self.rows + 2)
        generators = self._grid(-share, share, (self.rows, *shape)) if self.rows else np.zeros((0, *shape))
        if self.rows and self.random.random() < 0.5:  # some elements do not depend on some symbols
            generators *= self.random.integers(0, 2, size=(self.rows, *(1,) * len(shape)))
        radius = self._grid(0, share, shape) * self.random.integers(0, 2, size=shape)
        axes = [axis for axis in range(-len(shape), 0) if shape[axis] == self.samples]
        axis = int(self.random.choice(axes)) if axes else None
        own = self._grid(-share / OWN, share / OWN, (OWN, *shape)) if axis is not None else None
        drawn = []
        for draw, xi in enumerate(self.xi):
            zeta = self.random.choice([-1.0, -0.5, 0.0, 1.0], size=shape)
            member = center + np.tensordot(xi[: self.rows], generators, 1) + radius * zeta
            if own is not None:
                along = [1] * len(shape)
                along[axis] = self.samples
                for feature in range(OWN):
                    symbols = self.own_xi[draw, self.own_places[:, feature]]
                    member = member + own[feature] * symbols.reshape(along)
            drawn.append(member)
        members = [torch.tensor(member, dtype=self.dtype) for member in drawn]
        made = self._set(center, generators, radius, members, own, axis)
        self.members[id(made)] = members
        self.keep.append(made)
        return made

    def _set(
        self,
        center: np.ndarray,
        generators: np.ndarray,
        radius: np.ndarray,
        members: list[Tensor],
        own: np.ndarray | None,
        axis: int | None,
    ) -> Tensor:
        def tensor(values: np.ndarray) -> Tensor:
            return torch.tensor(values, dtype=self.dtype)

        rows = Rows(self.all_rows.numbers[: self.rows])
        if own is not None:
            generators = np.concatenate((generators, own))
            rows = rows.union(self.own_rows) if self.rows >= OWN else self.own_rows.union(rows)
        reach = np.abs(generators).sum(0) + radius
        lower, upper = tensor(center - reach), tensor(center + reach)
        if self.rows and self.random.random() < 0.5:  # an interval part that is tighter than the affine form
            stacked = torch.stack(members)
            lower, upper = stacked.amin(0), stacked.amax(0)
        form = Form(
            tensor(center),
            tensor(generators),
            tensor(radius),
            rows,
            SampleAxis(axis, self.whose) if axis is not None else None,
        )
        return bf.Bounded(Set(torch.stack((lower, upper)), form if self.rows else None, self.symbols))

    def member(self, operand: object, draw: int) -> object:
        """The ``draw``-th member of an operand; other arguments are what they are."""
        if isinstance(operand, list | tuple):
            return type(operand)(self.member(part, draw) for part in operand)
        return self.members[id(operand)][draw] if id(operand) in self.members else operand


def outside(result: bf.Bounded, value: Tensor) -> str | None:
    """Why a plain value is not in the bounds of a set, with no tolerance; None if it is."""
    low, high = result.set.bounds.unbind(0)
    if result.dtype is torch.bool:
        wrong = (low & ~value) | (value & ~high)
    else:
        wide = value.to(torch.float64)
        wrong = ~((low.to(torch.float64) <= wide) & (wide <= high.to(torch.float64)))
    if not bool(wrong.any()):
        return None
    at = tuple(int(index) for index in wrong.nonzero()[0])
    return f"{value[at].item()!r} not in [{low[at].item()!r}, {high[at].item()!r}] at {at}"


def off_the_form(result: bf.Bounded, value: Tensor, xi: np.ndarray, rows: Rows) -> str | None:
    """Why ``value`` is not ``c + G xi + rho zeta`` for these symbols, in extended precision; None if it is."""
    if result.set._form is None or not len(result.set._form.rows):
        return None
    form = result.set._form.dense
    by_number = dict(zip(rows.numbers.tolist(), xi.tolist(), strict=True))
    weights = np.array([by_number[number] for number in form.rows.numbers.tolist()], dtype=np.longdouble)
    center = form.center.numpy().astype(np.longdouble)
    generators = form.generators.numpy().astype(np.longdouble)
    distance = np.abs(value.numpy().astype(np.longdouble) - center - np.tensordot(weights, generators, 1))
    radius = form.radius.numpy().astype(np.longdouble)
    if np.all(distance <= radius):
        return None
    worst = np.unravel_index(np.argmax(distance - radius), distance.shape)
    return f"distance {distance[worst]!r} exceeds radius {radius[worst]!r} at {worst}"
