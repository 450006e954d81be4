"""The sample axis of a tensor: whose samples stand along which of its axes.

    position i along the axis  belongs to  sample number ``samples.numbers[i]``,      axes counted from the right

Two things are known of a tensor as long as its positions belong to one sample each: own rows (`rows.py`), row f at
position i being the symbol of sample i, feature f, and, under a budget, what it is where its own sample was left alone
(`clean_state.py`). Both speak of one axis and of the same samples, so there is one object for them, which operators
move together with the elements. Operands agree on their samples if they have the same `Samples` at the same position:
the very same object, since sample 3 of another dataset, or under another budget, is somebody else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from ..arithmetic import rounding
from ..arithmetic.thread_context import bookkeeping, thread
from ..symbols.budgets import largest
from ..symbols.rows import Batch


class Samples:
    """Whose positions a sample axis holds: their numbers, and, each where there are any, symbols and a budget.

    At most ``budget`` of all samples can be touched. ``zero_when_clean`` are the parts of the threat whose symbols are
    0 where a sample was left alone, and ``batch`` holds the symbols that own rows stand for.
    """

    def __init__(
        self,
        numbers: np.ndarray,
        budget: int | None = None,
        zero_when_clean: frozenset[int] = frozenset(),
        batch: Batch | None = None,
    ):
        self.numbers, self.budget, self.count = numbers, budget, len(numbers)
        self.zero_when_clean, self.batch = zero_when_clean, batch

    @classmethod
    def of(cls, batch: Batch, budget: int | None = None, zero_when_clean: frozenset[int] = frozenset()) -> Samples:
        """The samples of a batch, which are the same object each time the batch is lifted."""
        held = batch.whose()
        if held is None or (held.budget, held.zero_when_clean) != (budget, zero_when_clean):
            held = cls(batch.samples, budget, zero_when_clean, batch)
            batch.whose = ref(held)
        return held

    @cached_property
    def _grouped(self) -> tuple[int, Tensor]:
        """How many different samples there are, and which of them each position holds."""
        if bool((self.numbers[1:] > self.numbers[:-1]).all()):  # as in training on all samples
            return self.count, torch.arange(self.count)
        distinct, places = np.unique(self.numbers, return_inverse=True)
        return len(distinct), torch.from_numpy(places)

    def worst(self, excess: Tensor, dim: int = 0) -> Tensor:
        """The k largest excesses of samples along ``dim``, added up and rounded up; 0 where none are kept."""
        if not excess.shape[dim]:
            return excess.sum(dim)
        assert self.budget is not None
        return self._largest(excess.clamp_min(0.0), self.budget, dim)

    def _largest(self, excess: Tensor, budget: int, dim: int) -> Tensor:
        distinct, places = self._grouped
        if distinct < self.count:  # a sample that occurs twice counts once
            shape = [*excess.shape]
            shape[dim] = distinct
            excess = excess.new_zeros(shape).index_add_(dim, places.to(excess.device), excess)
            excess = excess * (1 + rounding.gamma(self.count, excess.dtype))
        return largest(excess, budget, dim)

    def total(self, touched: Tensor, clean: Tensor, dim: int) -> Tensor:
        """What errors add up to over the samples of a batch.

        A piece of a batch holds its share of the budget: this is a guess, for choices of which any is sound.
        """
        assert self.budget is not None
        share = max(1, round(self.budget / max(1, thread.arithmetic.pieces)))
        return clean.sum(dim) + self._largest(touched - clean, share, dim)


@dataclass(frozen=True)
class SampleAxis:
    """Samples along an axis, counted from the right."""

    position: int
    samples: Samples

    def at(self, position: int) -> SampleAxis:
        """The same samples along another axis."""
        return self if position == self.position else SampleAxis(position, self.samples)

    def cheaper_line(self, first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> Tensor:
        """Where the first of two pairs of errors (touched, clean) adds up to less over the samples, by unit."""
        costs = [self.samples.total(*errors, self.position).unsqueeze(self.position) for errors in (first, second)]
        return (costs[0] <= costs[1]).expand(first[0].shape)

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether a tensor of this shape has these samples along the axis: a sample may not be spread along it."""
        return len(shape) >= -self.position and shape[self.position] == self.samples.count

    def moved(self, tensor: Tensor, f: Callable[[Tensor, int], Tensor]) -> SampleAxis | None:
        """Where a function that picks and places elements puts the samples, if it keeps them in order.

        It is asked about positions. ``tensor`` has the shape of what f is applied to.
        """
        size, device = tensor.shape[self.position], tensor.device
        if size < 2:
            return None
        with bookkeeping():
            positions = torch.arange(1, size + 1, device=device)  # from one: a zero is something else put there
            moved = f(positions.view(self._line(tensor.dim(), self.position, size)).expand(tensor.shape), 0)
            for axis in range(-moved.dim(), 0):
                if _looks_along(positions, moved, axis):
                    return self.at(axis)
            positions = positions.to(moved.device)
            for axis in range(-moved.dim(), 0):
                if moved.shape[axis] == size:
                    if bool((moved == positions.view(self._line(moved.dim(), axis, size))).all()):
                        return self.at(axis)
        return None

    @staticmethod
    def _line(dims: int, axis: int, size: int) -> list[int]:
        shape = [1] * dims
        shape[axis] = size
        return shape


def _looks_along(line: Tensor, view: Tensor, axis: int) -> bool:
    """Whether a tensor is a view of this line along an axis, and constant along all others: no number is looked at.

    A view of the whole line has no room to move along another axis.
    """
    return view.data_ptr() == line.data_ptr() and view.shape[axis] == len(line) and view.stride(axis) == 1
