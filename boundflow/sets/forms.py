"""Affine forms: ``center + sum_k generators_k xi_k + radius zeta``, with zeta in [-1, 1] for each element.

Own rows (`rows.py`) stand among the generators where the form has a sample axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ..arithmetic import rounding
from ..arithmetic.thread_context import OUTWARD, thread, using
from ..symbols.budgets import sum_of_moduli
from ..symbols.rows import NO_ROWS, Rows
from .sample_axis import SampleAxis

PartMap = Callable[[Tensor, int], Tensor]  # one function for every part of a set: a tensor and how many axes lead it


@dataclass(eq=False)
class Form:
    """The affine form ``center + generators . xi + radius zeta`` of a tensor."""

    center: Tensor
    generators: Tensor
    radius: Tensor
    rows: Rows
    along: SampleAxis | None = None  # the samples whose own rows are among the generators
    taken: tuple[Form, PartMap] | None = None  # a form with the same rows in memory, of whose elements these are some
    moduli: Tensor | None = None  # at least the sum of the moduli of the rows, where that is known without them

    def __post_init__(self) -> None:
        batch = self.along.samples.batch if self.along is not None else None
        assert self.rows.batch is batch, "own rows and their sample axis belong together"

    @property
    def axis(self) -> int | None:
        """Of the samples whose own rows are among the generators, counted from the right."""
        return self.along.position if self.along is not None else None

    def with_radius(self, radius: Tensor) -> Form:
        """The same center and rows."""
        moduli = self.__dict__.get("row_moduli", self.moduli)
        return Form(self.center, self.generators, radius, self.rows, self.along, moduli=moduli)

    def same_memory(self, other: Form) -> bool:
        """Whether both are the same numbers in the same place, which nobody writes to while one of them is held."""
        mine, others = ((form.center, form.generators, form.radius) for form in (self, other))
        same = all(x.data_ptr() == y.data_ptr() and x.shape == y.shape for x, y in zip(mine, others, strict=True))
        same = same and all(x.stride() == y.stride() and x.dtype is y.dtype for x, y in zip(mine, others, strict=True))
        return same and np.array_equal(self.rows.numbers, other.rows.numbers)

    @property
    def without_own(self) -> Form:
        """The same form without its own rows."""
        if self.rows.batch is None:
            return self
        rest, where, _ = self.rows.split(self.center.device)
        return Form(self.center, self.generators[where], self.radius, rest)

    @property
    def dense(self) -> Form:
        """The same form with every own row written out, one row per symbol."""
        return self if self.rows.batch is None else self._written_out  # one that held itself would not be freed

    @cached_property
    def _written_out(self) -> Form:
        batch = self.rows.batch
        assert batch is not None and self.axis is not None
        device = self.center.device
        rest, where, own = self.rows.split(device)
        values = self.generators[own].movedim(self.axis, 1)
        apart = values.new_zeros(*values.shape[:2], len(batch), *values.shape[2:])
        every = torch.arange(len(batch), device=device)
        apart[:, every, every] = values
        apart = batch.written_out(apart).movedim(1, self.axis)
        rows = rest.union(batch.written)
        generators = rows.place(self.generators[where], rest) + rows.place(apart, batch.written)
        radius = self.radius
        if rest.meets(batch):  # the same symbol twice: adding its rows rounds
            shares = thread.arithmetic.shares
            total = generators.abs().sum(0) if shares is None else shares.moduli(generators, rows)
            radius = rounding.up(radius + rounding.gamma(1, radius.dtype) * total)
        return Form(self.center, generators, radius, rows)

    @cached_property
    def reach(self) -> Tensor:
        """sigma: the largest modulus of the deviation before any intersection; what roundings are charged on."""
        return rounding.up(self.row_moduli + self.radius) if len(self.rows) else self.radius

    @cached_property
    def row_moduli(self) -> Tensor:
        """``sum_k |G_k|``, rounded up, which is a pass over all rows.

        Of elements that were taken from a form, or are multiples of some, it is known.
        """
        if self.moduli is not None:
            return self.moduli
        if self.taken is not None:
            return self.taken[1](self.taken[0].row_moduli, 0)
        shares = thread.arithmetic.shares
        if shares is not None and shares.spread(self.rows) is not None:  # some rows are those of other processes
            return shares.moduli(self.generators, self.rows)
        total = sum_of_moduli(self.generators, 0)
        return total * (1 + rounding.gamma(len(self.rows), total.dtype))

    def moduli_times(self, factor: Tensor, shape: torch.Size) -> Tensor | None:
        """``sum_k |factor G_k|`` of this shape, rounded up, if that of the rows is known; products may underflow."""
        known = self.__dict__.get("row_moduli", self.moduli)
        if known is None:
            return None
        moduli = rounding.up(factor.abs() * known) + rounding.tiny(1, known.dtype)
        return moduli if moduli.shape == shape else None

    @cached_property
    def one_row_each(self) -> bool:
        """Whether no element has more than one row, as those of a parameter after a reduction."""
        if self.taken is not None:
            return self.taken[0].one_row_each
        return not len(self.rows) or bool((self.generators != 0).sum(0).amax() <= 1)

    @property
    def knows_reach(self) -> bool:
        known = self.moduli is not None or "row_moduli" in self.__dict__
        return known or (self.taken is not None and self.taken[0].knows_reach)

    @cached_property
    def modulus(self) -> Tensor:
        """``|c| + sigma``."""
        moduli = self.center.abs() + self.reach  # which is that of this run, on however many processes
        with using(OUTWARD):  # it is kept, and may be asked for later where roundings are charged
            return rounding.up(moduli)


def ball_form(center: Tensor, radius: Tensor) -> Form:
    """The form of a ball: no rows."""
    return Form(center, center.new_empty(0, *center.shape), radius, NO_ROWS)
