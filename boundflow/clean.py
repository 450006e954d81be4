"""What a tensor is where its own sample was left alone.

Where at most k samples can be touched, the errors that a sample's own perturbation causes are live for at most k
positions of the sample axis. So a tensor with a sample axis carries a second interval and a second radius,

    |T_i - c_i - G_i xi| <= clean radius_i + [sample i is touched] (radius_i - clean radius_i),

with one and the same center and rows, and a sum over the samples is off by at most

    sum_i clean radius_i  +  the k largest of sum over the positions of a sample (radius_i - clean radius_i).

Proof: at most k samples are touched, and the bracket is 0 for all others. A rule that does not know of this drops it,
which is sound: the first interval and radius hold whether the sample was touched or not.

A batch may come in pieces (`chunks.py`). Then the differences are kept by sample, as *excess*, until all are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from . import rounding
from .support import largest


class Samples:
    """Whose positions a sample axis holds, and how many of all samples can be touched."""

    def __init__(self, numbers: np.ndarray, budget: int):
        distinct, places = np.unique(numbers, return_inverse=True)
        self.numbers, self.budget, self.count, self.distinct = numbers, budget, len(numbers), len(distinct)
        self.places = torch.from_numpy(places)

    def worst(self, excess: Tensor, dim: int = 0) -> Tensor:
        """The k largest excesses of samples along ``dim``, added up and rounded up; 0 where none are kept."""
        if not excess.shape[dim]:
            return excess.sum(dim)
        return self._largest(excess.clamp_min(0.0), self.budget, dim)

    def _largest(self, excess: Tensor, budget: int, dim: int) -> Tensor:
        if self.distinct < self.count:  # a sample that occurs twice counts once
            shape = [*excess.shape]
            shape[dim] = self.distinct
            excess = rounding.up(excess.new_zeros(shape).index_add_(dim, self.places.to(excess.device), excess))
            excess = excess * (1 + rounding.gamma(self.count, excess.dtype))
        return largest(excess, budget, dim)

    def better(self, first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], axis: int) -> Tensor:
        """Where the first of two pairs of errors (touched, clean) adds up to less over the samples, by unit.

        A piece of a batch holds its share of the budget: this is a guess, and any answer is sound.
        """
        share = max(1, round(self.budget / max(1, _pieces)))
        costs = []
        for touched, clean in (first, second):
            costs.append((clean.sum(axis) + self._largest(touched - clean, share, axis)).unsqueeze(axis))
        return (costs[0] <= costs[1]).expand(first[0].shape)


@dataclass(eq=False)
class Clean:
    """The interval, and the radius of the affine form, where the own sample was left alone."""

    bounds: Tensor
    radius: Tensor | None  # None for an interval without rows
    axis: int  # of the samples, counted from the right
    samples: Samples


@dataclass(eq=False)
class Excess:
    """A sum over samples without what touched ones add, and what each of them would add, by sample.

    The sum lies in ``interval`` widened by the k largest of ``beyond`` (2, samples, *shape), and, apart from that,
    within ``radius`` and the k largest of ``more`` (samples, *shape) of its affine form.
    """

    samples: Samples
    interval: Tensor
    beyond: Tensor
    radius: Tensor | None = None
    more: Tensor | None = None

    def bounds(self) -> Tensor:
        """The interval of the whole sum."""
        return rounding.widened(self.interval, torch.stack([self.samples.worst(side) for side in self.beyond]))

    def total_radius(self) -> Tensor:
        """The radius of the whole sum."""
        assert self.radius is not None and self.more is not None
        return rounding.up(self.radius + self.samples.worst(self.more))

    def mapped(self, f: Callable[[Tensor, int], Tensor]) -> Excess:
        """The same of elements picked and placed by ``f``."""
        count = self.samples.count
        beyond = f(self.beyond.flatten(0, 1), 1).unflatten(0, (2, count))
        if self.radius is None or self.more is None:
            return Excess(self.samples, f(self.interval, 1), beyond)
        return Excess(self.samples, f(self.interval, 1), beyond, f(self.radius, 0), f(self.more, 1))

    @staticmethod
    def joined(parts: Sequence[Excess], charge: Tensor | float) -> Excess:
        """Of sums over several pieces of a batch, added up; ``charge`` pays for the additions to the radius."""
        samples = Samples(np.concatenate([part.samples.numbers for part in parts]), parts[0].samples.budget)
        intervals = torch.stack([part.interval for part in parts])
        interval = rounding.outward_sum(intervals.sum(0), intervals.abs().sum(0), len(parts))
        beyond = torch.cat([part.beyond for part in parts], 1)
        radii, more = [part.radius for part in parts], [part.more for part in parts]
        if any(part is None for part in (*radii, *more)):
            return Excess(samples, interval, beyond)
        radius = torch.stack([part for part in radii if part is not None]).sum(0)
        radius = rounding.up(radius * (1 + rounding.gamma(len(parts), radius.dtype)) + charge)
        return Excess(samples, interval, beyond, radius, torch.cat([part for part in more if part is not None]))


_pieces = 0  # of the batch that is being summed; 0 where it comes whole


def keeps_by_sample() -> bool:
    """Whether sums over samples keep what touched ones add, for the pieces that are still to come."""
    return _pieces > 0


@contextmanager
def by_sample(pieces: int) -> Iterator[None]:
    """Sums over samples inside keep their excess by sample, for a batch of so many pieces."""
    global _pieces
    before, _pieces = _pieces, pieces
    try:
        yield
    finally:
        _pieces = before
