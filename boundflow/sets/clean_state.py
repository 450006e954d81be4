"""What a tensor is where its own sample was left alone.

Where at most k samples can be touched, the errors that a sample's own perturbation causes are live for at most k
positions of the sample axis. So a tensor with a sample axis carries a second interval and a second radius,

    |T_i - c_i - G_i xi| <= clean radius_i + [sample i is touched] (radius_i - clean radius_i),

with one and the same center and rows, and a sum over the samples is off by at most

    sum_i clean radius_i  +  the k largest of sum over the positions of a sample (radius_i - clean radius_i).

Proof: at most k samples are touched, and the bracket is 0 for all others. A rule that does not know of this drops it,
which is sound: the first interval and radius hold whether the sample was touched or not.

A sample that moves far is bounded better by its interval than by its own rows and the errors beside them. In a sum over
samples its rows are then cleared, and what it adds is all of its move: with the touched interval [l, u] and the clean
one [cl, cu], a touched sample is off the form without its own rows by

    l - cu - clean radius  ..  u - cl + clean radius.

Proof: in every run there is a value T' of the tensor, computed from the sample as it was observed and from everything
else as it is in that run (so T' need not come from any run: the parameters may have seen the sample as it is now). It
lies in the clean interval, and within the clean radius of the form without own rows, since each rule bounds it from the
T' of its operands. T lies in [l, u]. So the clean interval is not cut by the touched one, where a sample's move and
what it did to the parameters may cancel. Down and up have their own k largest, and the center moves to their middle.

A batch may come in pieces (`batch_pieces.py`). Then the differences are kept by sample, as *excess*, until all are
there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..arithmetic import rounding
from ..arithmetic.thread_context import keeps_by_sample
from ..arithmetic.tuned_numbers import WORTH_AN_INTERVAL
from ..fast.support.device_tables import piece
from ..symbols.budgets import Kind, Part, distinct, term
from .forms import Form
from .sample_axis import Samples

_NOBODY = itertools.count()


class Remainder(NamedTuple):
    """What is known of a state besides the linear part: its interval, and how far values are off the form."""

    bounds: Tensor
    radius: Tensor | None  # None for an interval without rows


@dataclass(eq=False)
class Excess:
    """A sum over samples without what touched ones add, and what each of them would add, by sample.

    The sum lies in ``interval`` widened by the k largest of ``beyond`` (2, samples, *shape), and, apart from that,
    within ``radius`` and the k largest of ``more`` (2, samples, *shape) of its affine form, down and up.
    """

    samples: Samples
    interval: Tensor
    beyond: Tensor
    radius: Tensor | None = None
    more: Tensor | None = None
    middle: Tensor | None = None  # of the errors that were settled before

    def bounds(self) -> Tensor:
        """The interval of the whole sum."""
        return rounding.widened(self.interval, torch.stack([self.samples.worst(side) for side in self.beyond]))

    def errors(self) -> tuple[Tensor, Tensor]:
        """What the whole sum is off its form by: ``(middle, radius)``.

        `up` is eight roundings of the radius, which is at least half the sum of both sides. Of these the radius takes
        four and the middle one, and two pay for one more sum of both, or of the center and the middle.
        """
        assert self.radius is not None and self.more is not None
        if self.middle is not None:  # nothing is left by sample
            return self.middle, self.radius
        down, up = (self.samples.worst(side) for side in self.more)
        return 0.5 * (up - down), rounding.up(self.radius + 0.5 * (down + up)) + rounding.tiny(4, up.dtype)

    def settled(self) -> Excess:
        """The k worst already added: nothing is left by sample."""
        none = self.beyond[:, :0]
        if self.radius is None:
            return Excess(self.samples, self.bounds(), none)
        middle, radius = self.errors()
        return Excess(self.samples, self.bounds(), none, radius, none, middle)

    def of_worst(self) -> Excess:
        """The k largest of every element and end alone, where none of the samples comes again in a later piece.

        No other can be among the k largest of all pieces. Which samples they are differs from element to element.
        """
        count = self.samples.budget
        if count is None or count >= self.beyond.shape[1] or len(distinct(self.samples.numbers)) < self.samples.count:
            return self
        # of nobody, and of none of those in another piece: numbers of samples are not negative
        none = Samples(-1 - (next(_NOBODY) << 32) - np.arange(count), count)

        def worst(sides: Tensor | None) -> Tensor | None:
            return None if sides is None else torch.topk(sides, count, dim=1, sorted=False).values

        beyond = worst(self.beyond)
        assert beyond is not None
        return Excess(none, self.interval, beyond, self.radius, worst(self.more), self.middle)

    def total_radius(self) -> Tensor:
        """The radius of the whole sum around its center as it stands."""
        middle, radius = self.errors()
        return radius + middle.abs()

    def around(self, form: Form) -> Form:
        """A sum over samples with the errors of its touched ones: around their middle, if no piece is still to come."""
        if keeps_by_sample():
            return Form(form.center, form.generators, self.total_radius(), form.rows)
        middle, radius = self.errors()
        center = form.center + middle
        radius = radius + rounding.gamma(1, center.dtype) * (form.center.abs() + middle.abs())
        return Form(center, form.generators, radius, form.rows)

    def mapped(self, f: Callable[[Tensor, int], Tensor]) -> Excess:
        """The same of elements picked and placed by ``f``."""
        count = self.samples.count

        def by_sample(sides: Tensor) -> Tensor:
            return torch.unflatten(f(sides.flatten(0, 1), 1), 0, (2, count))

        made = Excess(self.samples, f(self.interval, 1), by_sample(self.beyond))
        if self.radius is not None and self.more is not None:
            made.radius, made.more = f(self.radius, 0), by_sample(self.more)
        return made

    @staticmethod
    def beside(parts: Sequence[Excess]) -> Excess:
        """Of sums over the same samples, one part of the first axis of the result after the other."""

        def together(name: str, axis: int) -> Any:
            held = [getattr(part, name) for part in parts]
            return None if held[0] is None else torch.cat(held, axis)

        axes = {"interval": 1, "beyond": 2, "radius": 0, "more": 2, "middle": 0}
        return Excess(parts[0].samples, **{name: together(name, axis) for name, axis in axes.items()})

    @staticmethod
    def joined(parts: Sequence[Excess], charge: Tensor | float) -> Excess:
        """Of sums over several pieces of a batch, added up; ``charge`` pays for the additions to the radius."""
        assert all(part.middle is None for part in parts), "what was settled is not added up any more"
        samples = Samples(np.concatenate([part.samples.numbers for part in parts]), parts[0].samples.budget)
        intervals = torch.stack([part.interval for part in parts])
        interval = rounding.outward_sum(intervals.sum(0), intervals.abs().sum(0), len(parts))
        beyond = torch.cat([part.beyond for part in parts], 1)
        radii, more = [part.radius for part in parts], [part.more for part in parts]
        if any(part is None for part in (*radii, *more)):
            return Excess(samples, interval, beyond)
        radius = torch.stack([part for part in radii if part is not None]).sum(0)
        radius = rounding.up(radius * (1 + rounding.gamma(len(parts), radius.dtype)) + charge)
        return Excess(samples, interval, beyond, radius, torch.cat([part for part in more if part is not None], 1))


@dataclass(eq=False)
class OwnRows:
    """The own rows of the terms of a sum over samples, (rows, samples, *shape)."""

    rows: Tensor
    # those whose symbols are 0 where the sample was left alone, by kind
    zero_when_clean: Sequence[tuple[Kind, slice | Tensor]]

    @classmethod
    def of(cls, samples: Samples, rows: Tensor, table: Sequence[Part], clean: bool) -> OwnRows:
        """Own rows of samples, and, where the clean state is known, which of them are 0 in it."""
        assert samples.batch is not None
        of_row = samples.batch.parts
        zero = [part for part in dict.fromkeys(of_row.tolist()) if clean and part in samples.zero_when_clean]
        return cls(rows, [(table[part].kind, piece(np.flatnonzero(of_row == part), rows.device)) for part in zero])

    def half_width(self) -> Tensor:
        """Half of how far those reach, down and up together."""
        total = torch.zeros_like(self.rows[0])
        for kind, numbers in self.zero_when_clean:
            down, up = term(kind, self.rows[numbers].movedim(0, -1))
            total = total + 0.5 * (down + up)
        return total

    def clear(self, where: Tensor) -> None:
        for _, numbers in self.zero_when_clean:
            self.rows[numbers] *= ~where


def without_own(
    touched: Tensor, clean: Tensor, more: Tensor, own: OwnRows | None, moduli: Tensor, terms: float
) -> Tensor:
    """What touching each sample adds to a sum, (2, samples, *shape): the error of its form, or all of its move.

    Own rows are cleared where the move is taken. Every term was rounded, here and in the plain run, and they are added
    up: ``moduli`` are what those of each sample add up to. The charge holds 8 t + 48 roundings of them, for t terms, of
    which the plain run and these sums take 2 t + 5.
    """
    if own is None:
        return torch.stack((more, more))
    charge = 2 * rounding.gamma(2 * terms + 4, more.dtype) * moduli + rounding.tiny(terms, more.dtype)
    moved = torch.stack((clean[1] - touched[0], touched[1] - clean[0])).clamp_min(0.0) + charge
    shorter = 0.5 * (moved[0] + moved[1]) < WORTH_AN_INTERVAL * (more + own.half_width())
    own.clear(shorter)
    return torch.where(shorter, moved, more)
