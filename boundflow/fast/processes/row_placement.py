"""Rows on several processes: which of them this process holds, and what is added up over all.

Every symbol has one home, the rank that counts it:

    home = (number of its sample) modulo R,      or (its own number) modulo R for an error that belongs to nobody

Centers, radii, intervals, clean states and derived rows are the same on every rank. Rows of samples are written down at
home alone, and so are all deep rows of an expansion (`expansion.py`), which is where the memory goes. Linear rules work
row by row, so they need nobody else. What adds up rows is the sum over ranks of what each of them adds up:

    reach:      sum_k |G_k|   over all rows     =  rows that everybody has, once  +  total over ranks of those at home
    support:    sum over ranks of what no budget limits  +  for each clause the k largest terms by owner of all ranks,
                which are among the k largest of each rank, since all symbols of an owner have one home
    reduction:  scores of free rows are compared over all ranks, and what is dropped is added up over all

Each is gathered and added up in the order of ranks (`ranks.py`), so every rank goes on with the same bits. Rows that
everybody has may differ between ranks in their last digit, since other rows stand beside them: each version is within
the roundings that are charged, and the larger sum of moduli is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
from torch import Tensor

from ...arithmetic import rounding
from ...errors import SpreadRows
from ...sets.forms import Form
from ...symbols.budgets import Columns, OwnTerms, box, largest
from ...symbols.expansion import Expansion
from ...symbols.rows import Batch, Rows
from .ranks import Ranks

if TYPE_CHECKING:
    from ...symbols.space import Symbols


class Spread(NamedTuple):
    """Places of the rows of samples, which stand at home alone, and of those that every rank has, by number."""

    at_home: Tensor
    everywhere: Tensor


class Shares:
    """The rows of one space that this process holds. ``samples`` is how many there are in the dataset."""

    def __init__(self, ranks: Ranks, space: Symbols, samples: int):
        self.ranks, self.space = ranks, space
        self.most_owners = -(-samples // ranks.count) + 1
        self._spread: WeakKeyDictionary[Rows, Spread | None] = WeakKeyDictionary()
        self._written: WeakKeyDictionary[Batch, tuple[Rows, Tensor, Tensor]] = WeakKeyDictionary()
        self._local: WeakKeyDictionary[Rows, tuple[ref[Expansion], Rows, Tensor | None]] = WeakKeyDictionary()

    def here(self, numbers: np.ndarray) -> np.ndarray:
        """Which symbols have their home on this rank."""
        owners = self.space.owners_and_parts(numbers)[0]
        found: np.ndarray = np.where(owners >= 0, owners, numbers) % self.ranks.count == self.ranks.rank
        return found

    # --- rows of forms ----------------------------------------------------------------------------------------------

    def written(self, batch: Batch) -> tuple[Rows, Tensor, Tensor]:
        """The symbols that this rank writes out of the own rows of a batch, the positions, and where each goes.

        At least one, so that every rank sees rows where one does: of somebody else's sample, and then a row of zeros.
        """
        found = self._written.get(batch)
        if found is None:
            mine = np.flatnonzero(batch.samples % self.ranks.count == self.ranks.rank)
            distinct, places = np.unique(batch.numbers[mine], return_inverse=True)
            rows = Rows(distinct if len(mine) else batch.distinct.numbers[:1])
            found = rows, torch.from_numpy(mine), torch.from_numpy(places.flatten())
            self._written[batch] = found
        return found

    def spread(self, rows: Rows) -> Spread | None:
        """How rows are spread over ranks; None where every rank has all of them. All ranks answer alike."""
        if rows not in self._spread:
            numbers = rows.numbers
            of_samples = np.zeros(len(numbers), dtype=bool)
            real = numbers >= 0  # own rows, which are not written out, are everywhere
            of_samples[real] = self.space.owners_and_parts(numbers[real])[0] >= 0
            others = np.flatnonzero(~of_samples)
            others = others[np.argsort(numbers[others], kind="stable")]
            found = Spread(torch.from_numpy(np.flatnonzero(of_samples)), torch.from_numpy(others))
            self._spread[rows] = found if of_samples.any() else None
        return self._spread[rows]

    def moduli(self, generators: Tensor, rows: Rows) -> Tensor:
        """``sum_k |G_k|`` over the rows of all ranks, rounded up."""
        spread = self.spread(rows)
        assert spread is not None
        parts = [box(generators[places.to(generators.device)]) for places in (spread.everywhere, spread.at_home)]
        found = self.ranks.gathered("moduli of rows", torch.stack(parts))
        return rounding.up(found[:, 0].amax(0) + self.ranks.added(found[:, 1]))

    # --- supports ---------------------------------------------------------------------------------------------------

    def at_home(self, form: Form, expansion: Expansion) -> Form:
        """The part of a form that this rank counts: derived rows, symbols at home, and own rows of its samples."""
        if self.space.looked_at:
            raise SpreadRows(
                "rows of the samples are spread over several processes while they train: a callback can look at loss, "
                "width and the plain model; ask the certificate for bounds when it is there"
            )
        found = self._local.get(form.rows)
        if found is None or found[0]() is not expansion:
            found = ref(expansion), *self._counted(form.rows, expansion)
            self._local[form.rows] = found
        generators, rows = form.generators, found[1]
        if found[2] is not None:
            generators = generators[found[2].to(generators.device)]
        batch = rows.batch
        if batch is not None:
            assert form.axis is not None
            here = torch.from_numpy(batch.samples % self.ranks.count == self.ranks.rank).to(generators.device)
            own = rows.split()[2].to(generators.device)
            mask = here.view([-1, *(1,) * (-1 - form.axis)])
            generators = generators.index_copy(0, own, generators[own] * mask)
        return Form(form.center, generators, form.radius, rows, form.along)

    def _counted(self, rows: Rows, expansion: Expansion) -> tuple[Rows, Tensor | None]:
        """The rows that this rank counts, and where they stand among these; None where it is all of them."""
        counted = rows.numbers < 0
        counted[expansion.view(rows).derived.cpu().numpy()] = True
        rest = np.flatnonzero(~counted)
        counted[rest] = self.here(rows.numbers[rest])
        if counted.all():
            return rows, None
        places = np.flatnonzero(counted)
        return Rows(rows.numbers[places], rows.batch), torch.from_numpy(places)

    def columns(self, expansion: Expansion) -> int:
        """About how many deep rows a rank holds: the same number on all of them."""
        return 1 + expansion.everywhere // self.ranks.count

    def reach(self, columns: Columns, coefficients: Tensor, error: Tensor, own: Sequence[OwnTerms] = ()) -> Tensor:
        """How far the symbols of all ranks reach, (2, elements), rounded up, from what those at home reach."""
        total, limited = columns.shares(coefficients, own)
        parts, clauses = [(total + error).unsqueeze(2)], []
        for clause, budget in enumerate(self.space.budgets):
            if budget is not None:
                clauses.append((budget, min(budget, self.most_owners)))
                terms = limited.get(clause, total.new_zeros(*total.shape, 0))
                parts.append(largest_ones(terms, *clauses[-1]))
        found = self.ranks.gathered("support", torch.cat(parts, 2))  # (ranks, 2, elements, ...)
        reach, begin = self.ranks.added(found[..., 0]), 1
        for budget, width in clauses:
            terms = found[..., begin : begin + width].movedim(0, 2).flatten(2)
            reach, begin = reach + largest(terms, budget, 2), begin + width
        added = 1 + rounding.of_ours(len(self.space.budgets) + len(self.space.table) + 2, reach.dtype)
        return reach * added

    def streamed(self, local: Tensor | None) -> Tensor | None:
        """The same of a stream without budgets, whose sums are those of this rank; None unless all ranks have one."""
        if not self.ranks.everyone("streams", local is not None) or local is None:
            return None
        return self.ranks.total("streamed support", local)

    # --- reductions -------------------------------------------------------------------------------------------------

    def counted(self, generators: Tensor, rows: Rows) -> tuple[Tensor, Rows]:
        """Rows (K, M) that have their home here."""
        here = np.flatnonzero(self.here(rows.numbers))
        return generators[torch.from_numpy(here).to(generators.device)], Rows(rows.numbers[here])

    def best(self, scores: Tensor, budget: int) -> Tensor:
        """Which of the free rows here are among the so many with the highest scores of all ranks."""
        found = self.ranks.uneven("scores of rows", scores)
        order = torch.argsort(torch.cat(found), descending=True, stable=True)[:budget]
        begin = sum(len(part) for part in found[: self.ranks.rank])
        kept = torch.zeros(sum(map(len, found)), dtype=torch.bool, device=scores.device)
        kept[order] = True
        return kept[begin : begin + len(scores)]

    def part_of(self, expansion: Expansion) -> Expansion:
        """Of an expansion with all deep rows, those that have their home here."""
        weights, deep = self.counted(expansion.weights.T, expansion.deep)
        return Expansion(expansion.derived, deep, weights.T.contiguous(), len(expansion.deep))

    def known(self, derived: Rows, deep: Rows, weights: Tensor) -> Expansion:
        """An expansion of which this rank has some deep rows."""
        count = self.ranks.gathered("deep rows", torch.tensor(len(deep)))
        return Expansion(derived, deep, weights, int(count.sum()))

    def whole(self, expansion: Expansion) -> Expansion:
        """An expansion with the deep rows of all ranks, on every rank."""
        numbers = self.ranks.uneven("numbers of rows", torch.from_numpy(expansion.deep.numbers))
        weights = self.ranks.uneven("rows", expansion.weights.T.contiguous())
        return Expansion(expansion.derived, Rows(torch.cat(numbers).numpy()), torch.cat(weights).T.contiguous())

    def whole_on_first(self, expansion: Expansion) -> Expansion | None:
        """The same on the CPU of the first rank alone: for a file."""
        numbers = self.ranks.collected("numbers of rows", torch.from_numpy(expansion.deep.numbers))
        weights = self.ranks.collected("rows", expansion.weights.T.contiguous())
        if numbers is None or weights is None:
            return None
        return Expansion(expansion.derived, Rows(torch.cat(numbers).numpy()), torch.cat(weights).T.contiguous())


def largest_ones(terms: Tensor, budget: int, width: int) -> Tensor:
    """The largest terms (2, elements, owners), ``width`` of them: enough for a sum of the ``budget`` largest of all.

    Where that is more than ``width``, the last of them is a sum: it then counts as one owner, which gives no less.
    """
    count = terms.shape[2]
    if count <= width:
        return torch.nn.functional.pad(terms, (0, width - count))
    if budget <= width:
        return torch.topk(terms, width, dim=2, sorted=False).values
    found = torch.topk(terms, min(budget, count), dim=2).values
    rest = largest(found[..., width - 1 :], None, 2).unsqueeze(2)
    return torch.cat((found[..., : width - 1], rest), 2)
