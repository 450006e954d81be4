"""The support function of a space: how far the rows of an affine form reach, down and up.

    h(G) = sum over clauses of the k largest terms by owner  +  sum over free rows |g|          (`budgets.py`)

taken over the *deep* symbols: those of samples, and *free* ones, which are errors and belong to no sample. *Derived*
symbols are sums of deep ones and are looked through (`expansion.py`); rows of symbols that are neither are *others*.
Elements come in chunks, so that (elements x deep rows) fits into a cache. Own rows add, at each element, the symbols
of its own sample to the columns they stand for; where the sample of an element was left alone, its own budgeted symbols
are 0, so both reaches come from one set of coefficients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
from torch import Tensor

from ..arithmetic.thread_context import bookkeeping
from ..arithmetic.tuned_numbers import (
    CHEAP_SUPPORT,
    FEW_ELEMENTS,
    FEWEST_ELEMENTS,
    KEPT_NUMBERS,
    SECOND_FACTORS,
    STREAM_FROM,
    SUPPORT_CHUNK,
    SUPPORT_CHUNK_CUDA,
    SUPPORT_CHUNK_FACTORS,
)
from ..fast.support import gpu_kernels
from ..fast.support.device_tables import on_device
from ..fast.support.factored_support import Group, groups, reach
from ..fast.support.reused_coefficients import KeptLines
from ..refinements.products_of_deviations import Together, together
from ..sets.factors import Factors
from ..sets.forms import Form
from .budgets import FREE, Columns, Kind, OwnTerms, box, term
from .expansion import Expansion, View
from .rows import NO_ROWS, Rows

if TYPE_CHECKING:
    from .space import Symbols

Known = tuple[int | None, ...]  # the number of parts, and the budgets


class Support:
    """How far symbols of one space reach. It keeps how columns are sorted by owner, for rows that come again.

    A space for one answer is dropped with it, so what is sorted there is kept with its ``parent``, if both speak of the
    same parts and budgets.
    """

    def __init__(self, space: Symbols, parent: Support | None = None):
        self._space, self.parent = ref(space), parent  # who holds it: rows of a run go with the run, and not later
        # an expansion holds its deep rows, so it is not held itself: else none would ever be forgotten
        self._columns: WeakKeyDictionary[Rows, tuple[ref[Expansion], Known, Columns]] = WeakKeyDictionary()
        self._groups: WeakKeyDictionary[Expansion, tuple[Known, list[Group] | None]] = WeakKeyDictionary()
        self._owned: tuple[Any, np.ndarray, np.ndarray, Columns] | None = None  # columns of symbols with an owner

    @property
    def space(self) -> Symbols:
        space = self._space()
        assert space is not None, "a support is asked by its space, or by one that holds it"
        return space

    def __call__(
        self, form: Form, clean: bool = False, factors: Factors | None = None, comes_again: bool = False
    ) -> Tensor:
        """How far ``sum_k G_k xi_k`` reaches down and up over the symbol set, (2, *shape), rounded up.

        (1, *shape) where both are the same. With ``clean``, also (2, 2, *shape) how far where the own sample of each
        element was left alone: the first half for the whole set, the second for the clean one. ``factors`` are those of
        a product, where that is faster. Where multiples of a form come again, its deep coefficients may be kept
        (`reused_coefficients.py`).
        """
        if not form.center.numel():
            return form.center.new_zeros(*((2, 2) if clean else (2,)), *form.center.shape)
        expansion = self.space.expansion
        if expansion is None:
            expansion = Expansion(NO_ROWS, NO_ROWS, form.generators.new_zeros(0, 0))
        shares = self.space.arithmetic.shares
        if shares is not None:  # of several processes: each looks at its symbols, and all of that is added up
            form = shares.at_home(form, expansion)
        view = expansion.view(form.rows)
        if shares is None and not clean and self._only_boxes() and (not len(view.derived) or self._apart(expansion)):
            return box(form.generators).unsqueeze(0)
        if factors is not None and not (len(view.derived) and factors.pay(expansion)):
            factors = None
        elements = _Elements(form, expansion, factors)
        own = _Own(self.space, expansion, form, elements.axes) if form.rows.batch is not None else None
        other, others = (view.other, view.others) if own is None else own.others(view)
        columns = self._sorted(form.rows, expansion, others)
        if factors is not None and factors.streams and (shares is not None or not len(other)):
            streamed = self._streamed(form, expansion, factors, columns, clean, not len(other))
            if streamed is not None:
                return streamed if clean else streamed[0]
        # written in place: small results between large temporaries would keep their memory from being used again
        total = form.center.new_empty(2 if clean else 1, 2, form.center.numel())
        kept = self._kept(form, expansion, view) if comes_again and factors is None and not len(other) else None
        same = clean and self._clean_lines_reach_their_moduli()
        for begin, part, coefficients, error in elements.chunks(self._width(columns, expansion), other, view):
            if kept is not None:
                kept.hold(begin, coefficients, error)
                if not same:
                    kept.moduli[begin : begin + len(part)] = columns.reach(coefficients.abs())[1]
            here = total[:, :, begin : begin + len(part)]
            here.copy_(self._reach(columns, coefficients, error, own, part, begin, clean))
        if kept is not None and same:
            kept.moduli.copy_(total[1].amax(0))
        reach = elements.shaped(total)
        return reach if clean else reach[0]

    def _kept(self, form: Form, expansion: Expansion, view: View) -> KeptLines | None:
        """Room for the deep coefficients of lines, on a GPU and where they are as many as a stream is worth."""
        numbers, arithmetic = form.center.numel() * len(expansion.deep), self.space.arithmetic
        if form.center.dim() != 2 or form.center.shape[1] != 1 or not gpu_kernels.usable(form.center.device):
            return None
        if arithmetic.shares is not None or arithmetic.deferred is not None:
            return None
        if not STREAM_FROM <= numbers <= KEPT_NUMBERS or not len(view.derived):
            return None
        found = self._by_owner(expansion, form.center.device)
        if found is None:
            return None
        derived = expansion.derived.found(form.rows)[0]
        elements = form.generators[view.picked[0]].squeeze(2).T
        expansion.kept = KeptLines(elements, form.rows.numbers[derived], [group.columns for group in found])
        return expansion.kept

    def _clean_lines_reach_their_moduli(self) -> bool:
        """Whether own symbols are 0 in the clean state, and no set of symbols is one-sided."""
        symmetric = all(part.kind is not Kind.SIMPLEX for part in self.space.table)
        return symmetric and None not in self.space.budgets

    def together(self, form: Form) -> Together | None:
        """What the deviations of a matrix share (`products_of_deviations.py`), kept for other pieces of a batch.

        None where its rows are not looked through an expansion, in runs whose steps are compiled, where all is computed
        as it is traced, and within a budget: a root of all samples is more than the k largest of them.
        """
        expansion, told, arithmetic = self.space.expansion, self._told(), self.space.arithmetic
        if expansion is None or arithmetic.shares is not None or not arithmetic.together or form.rows.batch is not None:
            return None
        if any(budget is not None for budget in self.space.budgets):
            return None
        view = expansion.view(form.rows)
        if not len(view.derived) or len(view.other):
            return None
        kept: list[tuple[Form, Known, Together]] = expansion.together
        for held, known, found in kept:
            if known == told and form.same_memory(held):
                return found
        made = together(form, expansion, self._sorted(form.rows, expansion, view.others))
        kept[:] = [(form, told, made), *kept[: SECOND_FACTORS - 1]]
        return made

    def cheap(self, form: Form, times: int = 1) -> bool:
        """Whether so many supports of such forms, whose elements depend on all derived symbols, take little work."""
        expansion = self.space.expansion
        inner = 1 if expansion is None else 1 + len(expansion.derived) * expansion.everywhere
        return form.center.numel() * inner * times * self.space.arithmetic.trial_of <= CHEAP_SUPPORT

    def _width(self, columns: Columns, expansion: Expansion) -> int:
        """How many symbols the columns hold; of several processes about as many as each, which is the same for all."""
        shares = self.space.arithmetic.shares
        return columns.count if shares is None else shares.columns(expansion)

    def _streamed(
        self, form: Form, expansion: Expansion, factors: Factors, columns: Columns, clean: bool, only_deep: bool
    ) -> Tensor | None:
        """The same for a large product, without writing its coefficients out; None where that does not apply."""
        shares = self.space.arithmetic.shares
        size = form.center.numel() * self._width(columns, expansion) * self.space.arithmetic.trial_of
        if size < STREAM_FROM or form.axis not in (None, -2):
            return None
        if shares is None:
            return self._stream(form, expansion, factors, columns, clean)
        if any(budget is not None for budget in self.space.budgets):
            return None  # thresholds would have to be those of all processes
        return shares.streamed(self._stream(form, expansion, factors, columns, clean) if only_deep else None)

    def _stream(
        self, form: Form, expansion: Expansion, factors: Factors, columns: Columns, clean: bool
    ) -> Tensor | None:
        """The stream over the symbols that are here."""
        if not columns.count:
            return None
        found = self._by_owner(expansion, form.center.device)
        return None if found is None else reach(self.space, form, factors, columns, found, clean)

    def _by_owner(self, expansion: Expansion, device: torch.device) -> list[Group] | None:
        """The deep rows by part and owner, as they were sorted before."""
        known, told = self._keeper()._groups, self._told()
        found = known.get(expansion)
        if found is None or found[0] != told:
            found = told, groups(self.space, expansion.deep.numbers, device)
            known[expansion] = found
        return found[1]

    def _reach(
        self,
        columns: Columns,
        coefficients: Tensor,
        error: Tensor,
        own: _Own | None,
        part: Tensor,
        begin: int,
        clean: bool,
    ) -> Tensor:
        """The reach of some elements: (1, 2, elements), or (2, 2, elements) where the clean one is asked for too.

        Adding the error is one more rounding, of which both summands have some to spare.
        """
        shares = self.space.arithmetic.shares

        def reach(coefficients: Tensor, own: Sequence[OwnTerms] = (), spent: bool = True) -> Tensor:
            if shares is not None:
                return shares.reach(columns, coefficients, error, own)
            return columns.reach(coefficients, own, spent) + error

        if own is None:
            return reach(coefficients).unsqueeze(0)
        both = []
        coefficients = own.placed(coefficients, part, begin, budgeted=False)
        if clean:
            both.append(reach(coefficients, own.unplaced(part, begin, clean=True), spent=False))
        coefficients = own.placed(coefficients, part, begin, budgeted=True)
        both.append(reach(coefficients, own.unplaced(part, begin, clean=False)))
        return torch.stack(both[::-1])

    def _apart(self, expansion: Expansion) -> bool:
        """Whether derived symbols are as free of each other as deep ones; not asked where steps are being traced."""
        return self.space.arithmetic.deferred is None and expansion.diagonal

    def _only_boxes(self) -> bool:
        boxes = all(part.kind is Kind.BOX for part in self.space.table)
        return boxes and all(budget is None for budget in self.space.budgets)

    def _sorted(self, rows: Rows, expansion: Expansion, other: np.ndarray) -> Columns:
        """The deep rows and then the other ones, by owner: kept with the rows, or, without others, for all alike."""
        told = self._told()
        key: Rows = rows if len(other) else expansion.deep
        known = (self if len(other) else self._keeper())._columns
        found = known.get(key)
        if found is not None and found[0]() is expansion and found[1] == told:
            return found[2]
        others = rows.numbers[other]
        with bookkeeping():
            owners, parts = self.space.owners_and_parts(others)
            if len(others) and bool((parts == FREE).all()):
                columns = self._sorted(rows, expansion, other[:0]).and_free(len(others))
            else:
                known_owners, known_parts = self.space.owners_and_parts(expansion.deep.numbers)
                of = np.concatenate((known_owners, owners)), np.concatenate((known_parts, parts))
                columns = self._columns_of(*of, expansion.weights.device)
        known[key] = ref(expansion), told, columns
        return columns

    def _columns_of(self, owners: np.ndarray, parts: np.ndarray, device: torch.device) -> Columns:
        """Columns of these owners and parts. Those with an owner are sorted once: steps make other error rows."""
        of_somebody = np.flatnonzero(parts != FREE)
        count = int(of_somebody[-1]) + 1 if len(of_somebody) else 0
        told, known, first = (*self._told(), device), self._owned, (owners[:count], parts[:count])
        if known is None or known[0] != told or not all(map(np.array_equal, known[1:3], first)):
            known = told, *first, Columns(*first, self.space.table, self.space.budgets, device)
            self._owned = known  # at once: another thread may be reading
        return known[3].and_free(len(parts) - count)

    def _told(self) -> Known:
        """What sorted columns depend on besides their rows: budgets may be made smaller for an answer."""
        return len(self.space.table), *self.space.budgets

    def _keeper(self) -> Support:
        """Who keeps what is sorted of deep rows, which all spaces of a run share."""
        if self.parent is None or self.parent._told() != self._told():
            return self
        return self.parent._keeper()


class _Elements:
    """The elements of a form, a chunk at a time, and their coefficients over the deep rows."""

    def __init__(self, form: Form, expansion: Expansion, factors: Factors | None):
        self.form, self.expansion, self.factors = form, expansion, factors
        if factors is not None:
            factors.start(expansion)
        dims = range(1, form.generators.dim())
        # hidden units last to first: an element then shares its few symbols with its neighbours
        self.axes = (0, *(dims if factors is not None else reversed(dims)))

    def chunks(self, columns: int, other: Tensor, view: View) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
        """Where each chunk begins, its rows, its coefficients, and what those may be off by, summed."""
        generators, factors = self.form.generators, self.factors
        elements = generators.permute(self.axes).reshape(len(self.form.rows), self.form.center.numel()).T
        numbers = SUPPORT_CHUNK if factors is None else SUPPORT_CHUNK_FACTORS
        size = (SUPPORT_CHUNK_CUDA if generators.is_cuda else numbers) // max(1, columns)
        line = self.form.center.shape[-1] if factors is not None else 1
        line_of_one = self.form.center.dim() == 2 and self.form.center.shape[1] == 1
        if factors is None:
            size = max(FEWEST_ELEMENTS, size, len(view.derived) // 4)
        else:
            size = max(line, size // line * line)
        for begin in range(0, len(elements), size):
            part = elements[begin : begin + size].contiguous()
            if factors is not None:
                coefficients, error = factors.part(begin // line, (begin + len(part)) // line)
            else:
                # gradients, updates and differences depend on all that is trained; others may have few symbols
                full = generators.is_cuda and (line_of_one or len(elements) <= FEW_ELEMENTS)
                coefficients, error = self.expansion.expanded(part, self.form.rows, full)
            if len(other):
                coefficients = torch.cat((coefficients, part[:, other]), 1)
            yield begin, part, coefficients, error

    def shaped(self, reach: Tensor) -> Tensor:
        """Reaches (states, 2, elements) in the shape of the form."""
        shape = self.form.center.shape
        if self.factors is not None:
            return reach.view(reach.shape[0], 2, *shape)
        reach = reach.view(reach.shape[0], 2, *reversed(shape))
        return reach.permute(0, 1, *reversed(range(2, reach.dim())))


class _Own:
    """Own rows inside a support function: each element adds its own sample's rows to the columns they stand for."""

    def __init__(self, space: Symbols, expansion: Expansion, form: Form, axes: tuple[int, ...]):
        rows, batch = form.rows, form.rows.batch
        assert batch is not None and form.axis is not None
        space.require_known(batch.numbers, batch.parts)
        self.table, self.budgets, self.batch, device = space.table, space.budgets, batch, form.center.device
        self.rows, self.own = rows.split(device)[2], np.flatnonzero(rows.numbers < 0)
        shape = [1] * form.center.dim()
        shape[form.axis] = len(batch)
        budgeted = [self.budgets[self.table[part].clause] is not None for part in batch.parts.tolist()]
        self.any = [any(not b for b in budgeted), any(budgeted)]
        with bookkeeping():
            positions = torch.arange(len(batch), device=device).view(shape).expand(form.center.shape)
            self.positions = positions.permute([axis - 1 for axis in axes[1:]]).flatten()
            self.places, self.deep = batch.deep(expansion), len(expansion.deep)
            self.samples = on_device(batch.samples, device)
            self.all_known = not len(expansion.view(batch.distinct).others)
            self.by_budget = [on_device(np.array([b is which for b in budgeted]), device) for which in (False, True)]

    def others(self, view: View) -> tuple[Tensor, np.ndarray]:
        """The other rows that are not own, on their device and as a table."""
        if len(view.others) == len(self.own):  # as a rule there are no more: own rows are never looked through
            return view.other[:0], view.others[:0]
        others = np.setdiff1d(view.others, self.own)
        with bookkeeping():
            return on_device(others, self.rows.device), others

    def placed(self, coefficients: Tensor, elements: Tensor, begin: int, budgeted: bool) -> Tensor:
        """The coefficients with own ones, within a budget or outside any, added to the deep symbols they stand for.

        One more rounding per own row: the count of terms is generous enough for it.
        """
        if not self.deep or not self.any[budgeted]:
            return coefficients
        places = self.places[self.positions[begin : begin + len(elements)]]
        known = (places < self.deep) & self.by_budget[budgeted]
        own = torch.where(known, elements[:, self.rows], 0.0)
        return coefficients.scatter_add_(1, torch.where(known, places, 0), own)

    def unplaced(self, elements: Tensor, begin: int, clean: bool) -> list[OwnTerms]:
        """The terms of own symbols that stand nowhere among the columns; clean: only those outside every budget."""
        if self.all_known:
            return []
        positions = self.positions[begin : begin + len(elements)]
        own = torch.where(self.places[positions] < self.deep, 0.0, elements[:, self.rows])
        samples, terms = self.samples[positions], []
        for clause, budget in enumerate(self.budgets):
            values = []
            for number, part in enumerate(self.table):
                held = np.flatnonzero(self.batch.parts == number)
                if part.clause == clause and len(held) and not (clean and budget is not None):
                    values.append(torch.stack(term(part.kind, own[:, on_device(held, own.device)])))
            if values:
                terms.append(OwnTerms(clause, torch.stack(values).sum(0), samples))  # `Columns.reach` counts parts
        return terms
