"""Derived symbols: what a support function sees through.

Between two reductions, what a step computes depends on the past only through the M state scalars. So after a reduction
each scalar j gets one *derived* symbol z_j in [-1, 1], ``state_j = c_j + s_j z_j``, whose expansion
``z_j = sum_k E_jk xi_k`` (with ``sum_k |E_jk| <= 1``) the space remembers. Tensors of the next step then carry M rows
instead of all K; the support function sees through the expansion, so nothing is lost:

    h(a) = h(sum_j a_j E_j)        (and sum_j |a_j|, the box, for derived symbols of an older expansion)

A reduction puts the box of each scalar last, so the last M columns of E are a diagonal (`reduction.py`): there a
product is a scaling. Where E is nothing but that diagonal, as after a first step, derived symbols are as free of each
other as deep ones, and the box is the support.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..arithmetic import rounding
from ..arithmetic.thread_context import bookkeeping, thread
from ..arithmetic.tuned_numbers import LOOK_FOR_ZEROS
from ..fast.support.device_tables import on_device, run_of
from .budgets import sum_of_moduli
from .rows import NO_ROWS, Rows

if TYPE_CHECKING:
    from ..fast.support.reused_coefficients import KeptLines

NEARLY_ONE = 1 - 1e-3  # a box may be this much longer than the support


class View(NamedTuple):
    """How rows look through an expansion: which are derived, which stand among its deep rows, which are neither."""

    derived: Tensor
    which: Tensor  # for each derived row, its place among the derived symbols of the expansion
    known: Tensor
    deep: Tensor  # for each known row, its place among the deep rows
    other: Tensor
    others: np.ndarray  # the same: a GPU need not be asked for them
    run: slice | None  # which derived symbols they are, if those follow each other
    picked: tuple[slice | Tensor, slice | Tensor, slice | Tensor]  # derived, known and deep as slices, where they are


class Expansion:
    """``z = weights . xi``: what the derived symbols of one reduction stand for. ``weights`` is (M, K).

    Of several processes each holds some of the deep rows; ``everywhere`` counts those of all of them.
    """

    def __init__(self, derived: Rows, deep: Rows, weights: Tensor, everywhere: int | None = None):
        self.derived, self.deep, self.weights = derived, deep, weights
        self.everywhere = len(deep) if everywhere is None else everywhere
        self.prepared: list[tuple[Any, Any]] = []  # of second factors that come again (`factored_support.py`)
        self.kept: KeptLines | None = None  # lines whose multiples come again
        self.together: list[tuple[Any, ...]] = []  # and what their deviations share (`products_of_deviations.py`)

    def __reduce__(self) -> tuple[type[Expansion], tuple[Rows, Rows, Tensor]]:
        return Expansion, (self.derived, self.deep, self.weights)

    def view(self, rows: Rows) -> View:
        """Cached with the rows, and dropped with them."""
        if self not in rows._views:
            device = self.weights.device
            (derived, which), (known, deep) = self.derived.found(rows), self.deep.found(rows)
            others = np.flatnonzero(~derived & ~known)
            tables = np.flatnonzero(derived), which[derived], np.flatnonzero(known), deep[known], others
            slices = [run_of(table) for table in tables]
            with bookkeeping():
                where = [_index(table, run, device) for table, run in zip(tables, slices, strict=True)]
            picked = slices[0] or where[0], slices[2] or where[2], slices[3] or where[3]
            rows._views[self] = View(where[0], where[1], where[2], where[3], where[4], others, slices[1], picked)
        return rows._views[self]

    def expanded(self, elements: Tensor, rows: Rows, full: bool = False) -> tuple[Tensor, Tensor]:
        """Coefficients of elements (n, rows) over the deep rows (n, K), and what those may be off by, summed.

        Elements that are ``full`` are not looked at for symbols that they do not have: a GPU would be waited for.

        The product takes M + 2 roundings, for M derived symbols, and the error holds 2 M + 16: the rest pays for its
        own sum, and for sums that it becomes part of.
        """
        view = self.view(rows)
        derived, known, deep = view.picked
        coefficients, which = elements[:, derived], view.which
        large = coefficients.numel() * len(self.deep) > LOOK_FOR_ZEROS and thread.arithmetic.deferred is None
        alone = _one_each(coefficients) if large and not full else None
        if alone is not None:
            total = self.weights[which[alone]].to(coefficients.dtype) * coefficients.gather(1, alone.unsqueeze(1))
        else:
            total = self._product(coefficients, view, large, full)
        error = coefficients.abs().sum(1) * rounding.gamma(len(self.derived) + 4, total.dtype)
        if len(view.known):  # adding t and e rounds by u (|t| + |e|): the first is among the terms above
            added = elements[:, known]
            if isinstance(deep, slice):
                total[:, deep] += added
            else:
                total.index_add_(1, deep, added)
            error = error + sum_of_moduli(added, 1) * rounding.gamma(1, total.dtype)
        return total, error

    def _product(self, coefficients: Tensor, view: View, large: bool, full: bool) -> Tensor:
        """Coefficients of derived symbols times what those stand for; of many, only of symbols that any element has."""
        which: Tensor | slice = view.which if view.run is None else view.run  # of a slice nothing is copied
        used = (coefficients != 0).any(0) if large and not full else None
        if used is not None and 2 * int(used.sum()) < len(used):  # a hidden unit depends on its own weights only
            coefficients, which = coefficients[:, used], view.which[used]
        if isinstance(which, Tensor) and 2 * len(which) >= len(self.derived):
            shape = len(coefficients), len(self.derived)
            coefficients, which = coefficients.new_zeros(shape).index_copy_(1, which, coefficients), slice(None)
        return self._times_weights(coefficients, which, self.boxes if large else None)

    def _times_weights(self, coefficients: Tensor, which: Tensor | slice, boxes: Tensor | None) -> Tensor:
        """Coefficients over ``which`` of the derived symbols times the weights, (n, K).

        One of ``boxes`` is multiplied once. Weights in another dtype than the elements are rounded once more.
        """
        weights = self.weights if boxes is None else self.weights[:, : -len(boxes)]
        weights = weights[which].to(coefficients.dtype)
        if boxes is None:
            return coefficients @ weights
        total = coefficients.new_empty(len(coefficients), len(self.deep))
        torch.mm(coefficients, weights, out=total[:, : weights.shape[1]])
        last = total[:, weights.shape[1] :]
        last.zero_()
        last[:, which] = coefficients * boxes[which].to(coefficients.dtype)
        return total

    @cached_property
    def boxes(self) -> Tensor | None:
        """The weights of the last deep rows, one for each derived symbol, where those rows reach no other one; (M).

        It follows from the weights alone, so that a run that is resumed makes the same products.
        """
        scalars = len(self.derived)
        last = self.weights[:, len(self.deep) - scalars :] if 0 < scalars <= len(self.deep) else None
        if last is None or bool(torch.count_nonzero(last) > torch.count_nonzero(last.diagonal())):
            return None
        return last.diagonal().clone()

    @cached_property
    def diagonal(self) -> bool:
        """Whether every derived symbol is a deep one of its own, up to rounding; one that stands for nothing is 0."""
        if len(self.derived) != len(self.deep) or self.boxes is None:
            return False
        return bool(((self.boxes > NEARLY_ONE) | (self.boxes == 0)).all())

    @staticmethod
    def joined(parts: Sequence[Expansion]) -> Expansion:
        """Several expansions as one: their derived symbols one after the other, over the union of their deep rows."""
        if len(parts) == 1:
            return parts[0]
        deep = NO_ROWS
        for part in parts:
            deep = deep.union(part.deep)
        weights = [deep.place(part.weights.T, part.deep).T for part in parts]
        numbers = np.concatenate([part.derived.numbers for part in parts])
        return Expansion(Rows(numbers), deep, torch.cat(weights).contiguous())


def _index(table: np.ndarray, run: slice | None, device: torch.device) -> Tensor:
    """A table on its device, where a run is counted instead of copied."""
    return on_device(table, device) if run is None else torch.arange(run.start, run.stop, device=device)


def _one_each(coefficients: Tensor) -> Tensor | None:
    """For elements that have one symbol at most, as parameters after a reduction do, which; None if some have more."""
    if not coefficients.shape[1]:
        return None
    apart = coefficients != 0
    return apart.to(torch.uint8).argmax(1) if bool((apart.sum(1) <= 1).all()) else None
