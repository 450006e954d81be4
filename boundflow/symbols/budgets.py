"""Support functions: how far a sum of symbols can reach, over the set an attacker can choose them from.

What an attacker can do to sample i is a few *parts* (its features, its label, its presence), each with its own rows:

    box        each symbol in [-1, 1]                   h(g) = sum |g_k|          l-inf, tolerances, missing values
    ball       Euclidean norm at most 1                 h(g) = |g|_2              l2
    cross      sum of the moduli at most 1              h(g) = max |g_k|          l1
    simplex    symbols >= 0 with sum at most 1          h(g) = max(0, g_k)        labels, categories, removal

A *clause* joins parts that share one budget. The term of a sample is the sum over the parts of the clause; the support
is the sum of all terms, or, where at most k samples can be touched, the sum of the k largest. Proof: with the set S of
touched samples fixed, the symbols of different samples and parts are chosen independently, so the supremum is the sum
over S of the terms; the terms are not negative, so the worst S holds the k largest. Upward and downward reach, h(g) and
h(-g), have their own worst S. Free error rows have no owner and are summed in full.
"""

from __future__ import annotations

import copy
import enum
import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..arithmetic import rounding
from ..arithmetic.thread_context import thread
from ..arithmetic.tuned_numbers import GROUP, MANY, MODULI_WRITTEN_OUT
from ..fast.support import largest_terms
from ..fast.support.device_tables import on_device, piece, run_of

FREE = -1  # the part of an error row


class Kind(enum.Enum):
    """The set that the symbols of one sample and part are chosen from."""

    BOX = "box"
    BALL = "ball"
    CROSS = "cross"
    SIMPLEX = "simplex"


# Kinds whose largest terms a kernel of a GPU adds up.
DEVICE_KINDS = {Kind.BOX: largest_terms.BOX, Kind.CROSS: largest_terms.CROSS, Kind.SIMPLEX: largest_terms.SIMPLEX}


class Part(NamedTuple):
    """One thing an attacker can change about a sample, and the clause whose budget it counts against."""

    kind: Kind
    clause: int


def sum_of_moduli(x: Tensor, dim: int, spent: bool = False) -> Tensor:
    """``sum_k |x_k|``, not rounded up; of numbers that are ``spent``, which may be overwritten.

    The norm of PyTorch is one kernel on a GPU, but on a CPU it is four times as slow as moduli that are written out and
    added up, a piece at a time that stays in a cache. A compiler writes nothing out, and it is known how it rounds a
    sum.
    """
    traced = thread.arithmetic.deferred is not None
    if x.is_cuda and not traced:
        norm: Tensor = torch.linalg.vector_norm(x, ord=1, dim=dim)
        return norm
    if spent or traced or x.numel() <= MODULI_WRITTEN_OUT:
        return (x.abs_() if spent else x.abs()).sum(dim)
    parts = torch.split(x, max(1, MODULI_WRITTEN_OUT * len(x) // x.numel()))
    written = torch.empty_like(parts[0])  # fresh memory costs more than what is computed in it
    sums = (torch.abs(part, out=written[: len(part)]).sum(dim) for part in parts)
    return torch.cat(list(sums)) if dim % x.dim() else functools.reduce(Tensor.add_, sums)


def box(generators: Tensor, dim: int = 0, spent: bool = False) -> Tensor:
    """``sum_k |G_k|``, rounded up."""
    total = sum_of_moduli(generators, dim, spent)
    return total * (1 + rounding.gamma(generators.shape[dim], total.dtype))


def term(kind: Kind, coefficients: Tensor) -> tuple[Tensor, Tensor]:
    """h(-g) and h(g) over the last axis, rounded up: how far down and up the symbols of one part reach."""
    if kind is Kind.BOX:  # few symbols a sample: a plain sum is faster than a norm
        both = coefficients.abs().sum(-1) * (1 + rounding.gamma(coefficients.shape[-1], coefficients.dtype))
    elif kind is Kind.BALL:
        width, dtype = coefficients.shape[-1], coefficients.dtype
        lost = math.sqrt(rounding.tiny(width, dtype))  # squares may underflow
        both = torch.linalg.vector_norm(coefficients, dim=-1) * (1 + rounding.gamma(width + 2, dtype))
        both = torch.where(both > 0, both + lost, (coefficients != 0).any(-1).to(dtype) * lost)  # bool * float: float32
    elif kind is Kind.CROSS:
        both = coefficients.abs().amax(-1)
    elif coefficients.shape[-1] == 1:  # one symbol: nothing to compare it with
        return (-coefficients[..., 0]).clamp_min(0.0), coefficients[..., 0].clamp_min(0.0)
    else:
        return (-_extreme(coefficients, torch.amin)).clamp_min(0.0), _extreme(coefficients, torch.amax).clamp_min(0.0)
    return both, both


def _extreme(coefficients: Tensor, which: Callable[..., Tensor]) -> Tensor:
    """The smallest or the largest along the last axis; of two or three, one after the other, which is faster."""
    if coefficients.shape[-1] > 3 or coefficients.is_cuda:
        return which(coefficients, -1)
    pair = torch.minimum if which is torch.amin else torch.maximum
    return functools.reduce(pair, coefficients.unbind(-1))


def few_largest(terms: Tensor, count: int, dim: int = -1) -> Tensor:
    """The ``count`` largest along an axis, in any order.

    Of many, all stand in the ``count`` groups that have the largest maxima: a term outside of those has as many terms
    above it. Groups take every so many-th term, so that their maxima are found without moving anything.
    """
    groups = terms.shape[dim] // GROUP
    if terms.is_cuda or dim not in (-1, terms.dim() - 1) or terms.shape[-1] < MANY or groups < 8 * count:
        return torch.topk(terms, count, dim=dim, sorted=False).values
    apart = torch.unflatten(terms[..., : groups * GROUP], -1, (GROUP, groups))
    best = torch.topk(apart.amax(-2), count, sorted=False).indices
    inside = torch.take_along_dim(apart, best.unsqueeze(-2), -1).flatten(-2)
    rest = terms[..., groups * GROUP :]
    return torch.topk(torch.cat((inside, rest), -1), count, sorted=False).values


def largest(terms: Tensor, budget: int | None, dim: int = 1) -> Tensor:
    """The sum of all terms, or of the ``budget`` largest, rounded up."""
    count = terms.shape[dim]
    if budget is not None and budget < count:
        if terms.is_cuda and thread.arithmetic.deferred is None:
            total = _largest_on_device(terms, budget, dim)
            if total is not None:
                return total
        terms, count = few_largest(terms, budget, dim), budget
    total = terms.sum(dim)
    return total * (1 + rounding.gamma(count, total.dtype))


def _largest_on_device(terms: Tensor, budget: int, dim: int) -> Tensor | None:
    """The same by a kernel; None where there is none. Negative terms count as 0: their sum is no less."""
    rows = terms.movedim(dim, -1).clamp_min(0.0).contiguous()
    shape, count = rows.shape[:-1], rows.shape[-1]
    rows = rows.view(-1, count)
    if not largest_terms.holds(rows, count, budget):
        return None
    total = largest_terms.sums_of_largest(rows, largest_terms.BOX, 0, count, 1, budget)[0].view(shape)
    return total * (1 + rounding.gamma(budget + 2, total.dtype))


def _on_device(rows: Tensor, terms: int, k: int) -> bool:
    """Whether a kernel of a GPU finds the largest; a step that is traced has none."""
    return thread.arithmetic.deferred is None and largest_terms.holds(rows, terms, k)


class _PartColumns(NamedTuple):
    kind: Kind
    columns: Tensor  # (owners, width); -1, a column of zeros, where a sample has fewer
    begin: int | None  # where they stand, if in one piece


class _ClauseColumns(NamedTuple):
    clause: int
    budget: int | None
    owners: np.ndarray
    parts: list[_PartColumns]


class Columns:
    """The columns of a matrix of coefficients (elements, symbols), sorted by who owns them."""

    def __init__(
        self,
        owners: np.ndarray,
        parts: np.ndarray,
        table: Sequence[Part],
        budgets: Sequence[int | None],
        device: torch.device,
    ):
        summed = [number for number, part in enumerate(table) if part.kind is Kind.BOX and budgets[part.clause] is None]
        self.count, self.parts, self.budgets, self.device = len(owners), len(table), budgets, device
        self.summed = piece(np.flatnonzero((parts < 0) | _one_of(summed, parts)), device)
        self.clauses: list[_ClauseColumns] = []
        for clause, budget in enumerate(budgets):
            members = [n for n, part in enumerate(table) if part.clause == clause and n not in summed]
            # without a budget all terms are added up, so every part has lines for its own owners alone
            for together in [members] if budget is not None else [[n] for n in members]:
                held = np.flatnonzero(_one_of(together, parts))
                if not len(held):
                    continue
                whose = distinct(owners[held])
                columns = [
                    _part_columns(table[n].kind, np.flatnonzero(parts == n), owners, whose, device) for n in together
                ]
                self.clauses.append(_ClauseColumns(clause, budget, whose, [c for c in columns if c is not None]))

    def and_free(self, count: int) -> Columns:
        """The same columns, and after them so many of error rows."""
        made, end = copy.copy(self), self.count + count
        made.count = end
        if isinstance(self.summed, slice) and self.summed.stop == self.count:
            made.summed = slice(self.summed.start, end)
        else:
            index = torch.arange(end, device=self.device)
            made.summed = torch.cat((index[self.summed], index[self.count :]))
        return made

    def reach(self, coefficients: Tensor, own: Sequence[OwnTerms] = (), spent: bool = False) -> Tensor:
        """How far down and up the symbols reach, (2, elements), rounded up.

        ``own`` are terms of samples whose symbols are not among the columns, by clause. Coefficients that are ``spent``
        are not needed any more, and may be overwritten.
        """
        total = [box(coefficients[:, self.summed], 1, spent and not self.clauses)] * 2
        unplaced = {terms.clause: terms for terms in own}
        for clause in self.clauses:
            own_terms = unplaced.pop(clause.clause, None)
            sides = self._without_sorting(coefficients, clause) if own_terms is None else None
            if sides is None:
                terms_by_owner = self._by_owner(coefficients, clause, own_terms)
                sides = [largest(by_owner, clause.budget) for by_owner in terms_by_owner]
            total = [side + sides[-1 if end else 0] for end, side in enumerate(total)]
        for terms in unplaced.values():  # clauses without columns: one sample for each element, within any budget
            total = [side + terms.values[end] for end, side in enumerate(total)]
        summands = len(self.clauses) + len(own) + self.parts  # of clauses, and of parts of one, there are any number
        return torch.stack(total) * (1 + rounding.gamma(summands, coefficients.dtype))

    def shares(self, coefficients: Tensor, own: Sequence[OwnTerms] = ()) -> tuple[Tensor, dict[int, Tensor]]:
        """What `reach` adds up, of the owners among these columns: what no budget limits, (2, elements), and for each
        clause within one the terms by owner, (2, elements, owners). All of it still to be added, and rounded up.
        """
        total = box(coefficients[:, self.summed], 1).expand(2, -1)
        unplaced, limited = {terms.clause: terms for terms in own}, {}
        for clause in self.clauses:
            ends = torch.stack(self._by_owner(coefficients, clause, unplaced.pop(clause.clause, None)))
            if clause.budget is None:
                total = total + largest(ends, None, 2)
            else:
                limited[clause.clause] = ends.expand(2, -1, -1)
        for terms in unplaced.values():  # clauses without columns: one sample for each element
            if self.budgets[terms.clause] is None:
                total = total + terms.values
            else:
                limited[terms.clause] = terms.values.unsqueeze(2)
        return total, limited

    def _by_owner(self, coefficients: Tensor, clause: _ClauseColumns, own: OwnTerms | None) -> list[Tensor]:
        """The terms of all owners of a clause, (elements, owners), down and up; once where both are the same."""
        ends = [term(part.kind, self._taken(coefficients, part)) for part in clause.parts]
        symmetric = all(down is up for down, up in ends) and own is None
        sides = []
        for end in range(1 if symmetric else 2):
            by_owner = torch.stack([side[end] for side in ends]).sum(0) if len(ends) > 1 else ends[0][end]
            sides.append(by_owner if own is None else own.beside(by_owner, clause.owners, end))
        return sides

    def _without_sorting(self, coefficients: Tensor, clause: _ClauseColumns) -> list[Tensor] | None:
        """The sum of the largest terms of a clause, rounded up, by one kernel of a GPU: down and up, or once for both.

        A term takes as many roundings as it has symbols, and their sum two more than there are terms.
        """
        part, budget, dtype = clause.parts[0], clause.budget, coefficients.dtype
        if budget is None or len(clause.parts) > 1 or part.begin is None or part.kind not in DEVICE_KINDS:
            return None
        owners, width = part.columns.shape
        if budget >= owners or not _on_device(coefficients, owners, budget):
            return None
        numbers = part.begin, owners, width, budget
        sums = largest_terms.sums_of_largest(coefficients, DEVICE_KINDS[part.kind], *numbers)
        sums = sums * ((1 + rounding.gamma(width, dtype)) * (1 + rounding.gamma(budget + 2, dtype)))
        return list(sums.unbind(0))

    def _taken(self, coefficients: Tensor, part: _PartColumns) -> Tensor:
        owners, width = part.columns.shape
        if part.begin is not None:
            return torch.unflatten(coefficients[:, part.begin : part.begin + owners * width], 1, (owners, width))
        padded = torch.nn.functional.pad(coefficients, (0, 1))
        return torch.unflatten(padded[:, part.columns.flatten()], 1, (owners, width))


class OwnTerms(NamedTuple):
    """For each element, the term of its own sample in one clause: (2, elements), and the samples."""

    clause: int
    values: Tensor
    samples: Tensor

    def beside(self, terms: Tensor, owners: np.ndarray, end: int) -> Tensor:
        """The terms of all owners, with the own one added to its owner, or as one more."""
        known = on_device(owners, self.samples.device)
        place = torch.searchsorted(known, self.samples).clamp_max(len(known) - 1)
        place = torch.where(known[place] == self.samples, place, len(known))
        wider = torch.nn.functional.pad(terms, (0, 1))
        added = wider.scatter_add(1, place.unsqueeze(1), self.values[end].unsqueeze(1))
        return rounding.up(added)


def _one_of(wanted: Sequence[int], parts: np.ndarray) -> np.ndarray:
    """Which parts are among the wanted ones, of which there are few: NumPy's own sorts all of them."""
    found = np.zeros(len(parts), dtype=bool)
    for number in wanted:
        found |= parts == number
    return found


def distinct(numbers: np.ndarray) -> np.ndarray:
    """The different numbers in ascending order. NumPy's own hashes them, and is many times slower on sorted ones."""
    if len(numbers) < 2:
        return numbers.copy()
    steps = np.diff(numbers)
    if bool((steps < 0).any()):
        numbers = np.sort(numbers)
        steps = np.diff(numbers)
    return numbers[np.concatenate(([True], steps > 0))]


def by_owner(held: np.ndarray, owners: np.ndarray, whose: np.ndarray) -> np.ndarray:
    """The symbols ``held``, a line for each of these owners; the number of all symbols where one has fewer."""
    width = len(held) // len(whose)
    if len(held) == len(whose) * width and bool((owners[held].reshape(-1, width) == whose[:, None]).all()):
        return held.reshape(-1, width)  # all have as many, and stand in order
    if bool((np.diff(owners[held]) < 0).any()):
        held = held[np.argsort(owners[held], kind="stable")]
    changes = np.concatenate(([True], np.diff(owners[held]) > 0))
    place = np.searchsorted(whose, owners[held[changes]])[np.cumsum(changes) - 1]
    counts = np.bincount(place, minlength=len(whose))
    index = np.full((len(whose), counts.max()), len(owners), dtype=np.int64)
    index[place, np.arange(len(held)) - np.repeat(np.cumsum(counts) - counts, counts)] = held
    return index


def _part_columns(
    kind: Kind, held: np.ndarray, owners: np.ndarray, whose: np.ndarray, device: torch.device
) -> _PartColumns | None:
    if not len(held):
        return None
    index = by_owner(held, owners, whose)
    run = run_of(index.flatten())
    index = np.where(index < len(owners), index, -1)  # other columns may follow these
    return _PartColumns(kind, on_device(index, device), None if run is None else run.start)
