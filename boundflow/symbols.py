"""What generator rows stand for.

A zonotope tensor is ``c + sum_k G_k xi_k + rho zeta``; every row k belongs to one symbol ``xi_k`` in [-1, 1]. A
symbol is either *owned* by a training sample (one of its raw features, its label, its presence) or *free* (an error
that was given a row of its own so that it can cancel later). Rows are matched by symbol, never by position: each has a
number that is handed out once and never reused, so a tensor made before a reduction still means what it meant. The
threat says from which set the symbols of a sample are chosen, and how many samples can be touched (`support.py`).

Order reduction (Girard 2005, jointly for everything the optimizer holds): stack all state tensors into one vector
of M scalars; keep the free rows with the largest ``|row|_1 - |row|_inf``; the dropped rows D and the radii become
M new rows ``diag(b)``, ``b_j = rho_j + sum over D of |G_kj|``, each with a fresh symbol. Sound because
``|sum_D G_kj xi_k + rho_j zeta_j| <= b_j``: for every execution there is a value of each fresh symbol that gives
the same tensor. Two scalars never share a fresh symbol: (1, 0) and (0, 1) must not become (1, 1).

After a reduction each state scalar gets one derived symbol (`rows.py`), so that the next step carries M rows, not K.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from . import rounding
from .clean import OwnRows, Samples
from .errors import MixedSymbols
from .rows import NO_ROWS, Batch, Expansion, Factors, Rows
from .support import FREE, Columns, Kind, OwnTerms, Part, box, term

if TYPE_CHECKING:
    from .bounded import Bounded, Form
    from .threats import Threat

NOBODY = -1  # the owner of an error row or a derived symbol
DERIVED = -2  # the part of a derived symbol
GUESTS = 2**40  # owners from here on are test inputs
CHUNK, CHUNK_FACTORS, CHUNK_CUDA = 2**18, 2**20, 2**27  # numbers at a time when a support looks through an expansion
FEWEST = 64  # elements at a time: fewer would read the expansion too often


class Symbols:
    """One space of symbols: the threat they come from, their owners, and the budget of error rows.

    ``order`` is the number of free rows kept per scalar of optimizer state. Without ``tracks``, samples get no rows:
    what the attacker did to them is an error like any other. That is looser, and takes far less memory.
    """

    def __init__(self, threat: Threat | None = None, order: int = 20, tracks: bool = True):
        if order < 1:
            raise ValueError(f"order must be at least 1 row per state scalar, got {order}")
        self.threat = threat
        self.order = order
        self.tracks = tracks
        self.steps = 0
        self._owners = np.empty(1024, dtype=np.int64)
        self._parts = np.empty(1024, dtype=np.int64)
        self._count = 0
        self.table: list[Part] = []
        self.budgets: list[int | None] = []
        self._declared: dict[str, int] = {}
        if threat is not None:
            self.declare(threat)
        self._first_row: dict[int, int] = {}
        self._raw: dict[int, bytes] = {}
        self._batches: dict[bytes, Batch] = {}
        self._own = -1  # the next number of an own row
        self._expansion: Expansion | None = None

    def declare(self, threat: Threat) -> int:
        """Take the parts of a threat into the table; gives the number of the first."""
        if threat is self.threat and self.table:
            return 0  # the threat of the space stands first, and every batch asks for it
        kinds = [[change.kind.value for change in clause.changes] for clause in threat.clauses]
        name = f"{threat!r} {kinds}"
        if name not in self._declared:
            self._declared[name] = len(self.table)
            for clause in threat.clauses:
                self.table += [Part(change.kind, len(self.budgets)) for change in clause.changes]
                self.budgets.append(clause.budget)
        return self._declared[name]

    def owners_and_parts(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """To whom symbols belong and to which part of the threat: what a file must hold beside the rows."""
        return self._owners[numbers], self._parts[numbers]

    def restore(
        self,
        numbers: np.ndarray,
        owners: np.ndarray,
        parts: np.ndarray,
        table: list[Part],
        budgets: list[int | None],
    ) -> None:
        """Symbols of another space under the same numbers, as a file holds them."""
        self._new(np.full(numbers.max(initial=-1) + 1, NOBODY), np.full(numbers.max(initial=-1) + 1, FREE))
        self._owners[numbers], self._parts[numbers] = owners, parts
        self.table, self.budgets = table, budgets

    def __deepcopy__(self, memo: dict[int, Any]) -> Symbols:
        return self  # a copied tensor still speaks of the same attacker

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is computed inside leaves no trace in this space: looking at a model must not change its training."""
        before = {
            name: copy.copy(value) if isinstance(value, dict | list) else value for name, value in vars(self).items()
        }
        try:
            yield
        finally:
            vars(self).update(before)

    def __repr__(self) -> str:
        return f"Symbols({self.threat!r}, order={self.order}, symbols={self._count}, steps={self.steps})"

    # --- rows -------------------------------------------------------------------------------------------------

    def _new(self, owners: np.ndarray, parts: np.ndarray) -> np.ndarray:
        numbers = np.arange(self._count, self._count + len(owners))
        while self._count + len(owners) > len(self._owners):
            self._owners = np.concatenate((self._owners, np.empty_like(self._owners)))
            self._parts = np.concatenate((self._parts, np.empty_like(self._parts)))
        self._owners[numbers], self._parts[numbers] = owners, parts
        self._count += len(owners)
        return numbers

    def fresh(self, count: int) -> Rows:
        """New free rows."""
        return Rows(self._new(np.full(count, NOBODY), np.full(count, FREE)))

    def of_samples(self, samples: np.ndarray, raw: np.ndarray, parts: np.ndarray) -> Rows:
        """Own rows of a batch of samples; a sample's symbols are the same at every call.

        A symbol may only reappear for the same raw value: ``raw`` holds the values, one line per sample. ``parts``
        holds the part of the threat that each own row belongs to.
        """
        rows = len(parts)
        for sample, line in zip(samples.tolist(), raw, strict=True):
            content = f"{line.dtype}{line.shape}".encode() + line.tobytes() + parts.tobytes()
            fingerprint = hashlib.blake2b(content, digest_size=16).digest()
            if self._raw.setdefault(sample, fingerprint) != fingerprint:
                raise MixedSymbols(
                    f"sample {sample} was lifted before with other values, and one symbol cannot mean both. Lift the "
                    "raw data, then augment or normalise the bounded batch."
                )
        unseen = list(dict.fromkeys(sample for sample in samples.tolist() if sample not in self._first_row))
        if unseen:
            numbers = self._new(np.repeat(unseen, rows), np.tile(parts, len(unseen)))
            self._first_row.update(zip(unseen, numbers[::rows].tolist(), strict=True))
        first = np.array([self._first_row[sample] for sample in samples.tolist()], dtype=np.int64)
        key = first.tobytes()
        if key not in self._batches:
            self._batches = dict(list(self._batches.items())[-7:])  # the same batches come back in full-batch training
            self._batches[key] = self._batch(first, samples, parts)
        return self._batches[key].own

    def of_guests(self, count: int, parts: np.ndarray) -> Rows:
        """Own rows of samples that come once and never again: test inputs."""
        samples = GUESTS + self._count + np.arange(count)
        numbers = self._new(np.repeat(samples, len(parts)), np.tile(parts, count))
        return self._batch(numbers[:: len(parts)], samples, parts, guests=True).own

    def own_rows(self, batch: Batch, rows: Tensor, samples: Samples | None) -> OwnRows:
        """Own rows of a batch, and which of them are 0 where a sample was left alone."""
        still = [part for part in dict.fromkeys(batch.parts.tolist()) if samples is not None and part in samples.still]
        return OwnRows(rows, [(self.table[part].kind, np.flatnonzero(batch.parts == part).tolist()) for part in still])

    def _batch(self, first: np.ndarray, samples: np.ndarray, parts: np.ndarray, guests: bool = False) -> Batch:
        made = Batch(first[:, None] + np.arange(len(parts)), self._own, samples, parts, guests)
        self._own -= len(parts)
        return made

    # --- how far symbols reach --------------------------------------------------------------------------------

    def support(self, form: Form, clean: bool = False, factors: Factors | None = None) -> Tensor:
        """How far ``sum_k G_k xi_k`` reaches down and up over the symbol set, (2, *shape), rounded up.

        With ``clean``, also (2, 2, *shape) how far where the own sample of each element was left alone: the first half
        for the whole set, the second for the clean one. ``factors`` are those of a product, where that is faster.
        """
        generators, rows = form.generators, form.rows
        if self._expansion is None:
            self._expansion = Expansion(NO_ROWS, NO_ROWS, generators.new_zeros(0, 0))
        expansion = self._expansion
        view = expansion.view(rows)
        if not clean and not len(view.derived) and self._only_boxes():
            return box(generators).unsqueeze(0)
        if factors is not None and len(view.derived) and factors.pay(expansion):
            factors.start(expansion)
        else:
            factors = None
        # hidden units last to first: an element then shares its few symbols with its neighbours
        axes = (0, *(range(1, generators.dim()) if factors is not None else reversed(range(1, generators.dim()))))
        elements = generators.permute(axes).reshape(len(rows), -1).T
        elements = elements if factors is not None else elements.contiguous()
        own = _Own(self, expansion, form, axes) if rows.batch is not None else None
        other = view.other if own is None else own.others(view)
        columns = self._columns(rows, expansion, other)
        numbers = CHUNK_CUDA if generators.is_cuda else CHUNK if factors is None else CHUNK_FACTORS
        size = numbers // max(1, columns.count)
        line = form.center.shape[-1] if factors is not None else 1
        size = max(line, size // line * line) if factors is not None else max(FEWEST, size, len(view.derived) // 4)
        reaches = []
        for begin in range(0, len(elements), size):
            part = elements[begin : begin + size]
            if factors is not None:
                coefficients, error = factors.part(begin // line, (begin + len(part)) // line)
            else:
                coefficients, error = expansion.expanded(part, rows)
            if len(other):
                coefficients = torch.cat((coefficients, part[:, other]), 1)
            both = []
            if own is not None:
                coefficients = own.placed(coefficients, part, begin, budgeted=False)
            if own is None or clean:
                unplaced = own.unplaced(part, begin, clean=True) if own is not None else ()
                both.append(columns.reach(coefficients, unplaced))
            if own is not None:
                coefficients = own.placed(coefficients, part, begin, budgeted=True)
                both.append(columns.reach(coefficients, own.unplaced(part, begin, clean=False)))
            reaches.append(torch.stack(both[::-1]) + error)
        reach = rounding.up(torch.cat(reaches, 2))
        shape = form.center.shape if factors is not None else tuple(reversed(form.center.shape))
        reach = reach.view(reach.shape[0], 2, *shape)
        if factors is None:
            reach = reach.permute(0, 1, *reversed(range(2, reach.dim())))
        return reach if clean else reach[0]

    def _only_boxes(self) -> bool:
        boxes = all(part.kind is Kind.BOX for part in self.table)
        return boxes and all(budget is None for budget in self.budgets)

    def _columns(self, rows: Rows, expansion: Expansion, other: Tensor) -> Columns:
        key = (expansion, len(self.table))
        if key not in rows._columns:
            numbers = np.concatenate((expansion.deep.numbers, rows.numbers[other.cpu().numpy()]))
            parts, device = self._parts[numbers], other.device
            rows._columns = {key: Columns(self._owners[numbers], parts, self.table, self.budgets, device)}
        return rows._columns[key]

    @staticmethod
    def common(first: Symbols | None, second: Symbols | None) -> Symbols | None:
        """The space two tensors share. Sets without a threat (plain intervals) fit every space."""
        if first is None or first is second:
            return second
        if second is None or second._unused():
            return first
        if first._unused():
            return second
        raise MixedSymbols(
            "tensors of two different symbol spaces met: their generator rows do not mean the same thing. "
            "Lift the model and the data with one Symbols object."
        )

    def _unused(self) -> bool:
        """A space without a threat that has given out no row yet: what `lift` makes for plain intervals."""
        return self.threat is None and self._count == 0

    # --- what users call --------------------------------------------------------------------------------------

    def lift(self, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """A batch as the threat could have left it; ``index`` holds the number of each sample in the dataset."""
        if self.threat is None:
            raise MixedSymbols("these symbols have no threat: build them as bf.Symbols(bf.threats.Linf(epsilon))")
        inputs, targets, weights = self.threat.lift(self, x, y, index)
        if weights is not None:
            raise MixedSymbols("samples can be removed: use symbols.threat.lift(symbols, x, y, index) and its weights")
        if self.threat.touches("gradients"):
            raise MixedSymbols("samples can be replaced: use certify(..., clip_gradients=C), which clips each gradient")
        return inputs, targets

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        """Promote gradient errors to rows before each step, and reduce the rows after it."""
        optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: self.promote(optimizer))
        optimizer.register_step_post_hook(lambda optimizer, args, kwargs: self.reduce(optimizer))

    # --- promotion and reduction ------------------------------------------------------------------------------

    def promote(self, optimizer: torch.optim.Optimizer) -> None:
        """Give the radius of every gradient rows of its own, so that momentum and parameter stay correlated.

        ``{c + G xi + rho zeta} = {c + G xi + diag(rho) xi'}`` with fresh xi': the same set, nothing is lost.
        """
        with torch.no_grad():
            for parameter in _parameters(optimizer):
                gradient = parameter.grad
                if gradient is not None and _is_bounded(gradient):
                    self._require_own(gradient)
                    form, count = gradient.form.dense, gradient.numel()
                    new = form.radius.flatten().diag().view(count, *gradient.shape)
                    rows = Rows(np.concatenate((form.rows.numbers, self.fresh(count).numbers)))
                    gradient.replace_form(self, rows, torch.cat((form.generators, new)))

    def reduce(self, optimizer: torch.optim.Optimizer) -> None:
        """Bring all state of the optimizer under the row budget, and its radii into rows."""
        with torch.no_grad():
            state = self._state(optimizer)
            if not state:
                return
            for tensor in state:
                self._require_own(tensor)
            forms = [tensor.form.dense for tensor in state]
            rows = NO_ROWS
            for form in forms:
                rows = rows.union(form.rows)
            scalars = sum(tensor.numel() for tensor in state)
            stacked = torch.cat(
                [rows.place(form.generators, form.rows).reshape(len(rows), -1) for form in forms], dim=1
            )
            radius = torch.cat([form.radius.flatten() for form in forms])
            stacked, rows, error = self.expand(stacked, rows)
            kept, dropped = self._split(stacked, rows, (self.order - 1) * scalars)
            boxed = rounding.up(rounding.up(radius + error) + box(stacked[dropped]))
            numbers = np.concatenate((rows.numbers[kept.cpu().numpy()], self.fresh(scalars).numbers))
            generators = torch.cat((stacked[kept], boxed.diag()))
            derived, scale = self._derive(Rows(numbers), generators)
            begin = 0
            for tensor in state:
                size = tensor.numel()
                part = Rows(derived.numbers[begin : begin + size])
                diagonal = scale[begin : begin + size].diag().view(size, *tensor.shape)
                tensor.replace_form(self, part, diagonal)
                begin += size

    def expand(self, generators: Tensor, rows: Rows) -> tuple[Tensor, Rows, Tensor]:
        """Generators (rows, n) written over symbols that are not derived, and what this may be off by."""
        expansion = self._expansion
        if expansion is None:
            return generators, rows, generators.new_zeros(generators.shape[1:])
        deep, error = expansion.expanded(generators.T, rows)
        other = expansion.view(rows).other
        numbers = np.concatenate((expansion.deep.numbers, rows.numbers[other.cpu().numpy()]))
        return torch.cat((deep.T, generators[other])), Rows(numbers), error

    def _derive(self, deep: Rows, generators: Tensor) -> tuple[Rows, Tensor]:
        """One derived symbol per column of ``generators`` (K, M): its rows, and the scales ``s_j``."""
        scale = box(generators)
        weights = (generators / torch.where(scale > 0, scale, 1.0)).T.contiguous()
        derived = Rows(self._new(np.full(len(scale), NOBODY), np.full(len(scale), DERIVED)))
        self._expansion = Expansion(derived, deep, weights)
        return derived, scale

    def _require_own(self, tensor: Bounded) -> None:
        if Symbols.common(self, tensor.symbols) is not self:
            raise MixedSymbols("the optimizer is attached to other symbols than its model was lifted with")

    def _split(self, stacked: Tensor, rows: Rows, budget: int) -> tuple[Tensor, Tensor]:
        """Which rows to keep: all owned ones, and the free ones that would lose most by being boxed."""
        free = torch.from_numpy(self._parts[rows.numbers] == FREE).to(stacked.device)
        score = torch.linalg.vector_norm(stacked, ord=1, dim=1) - torch.linalg.vector_norm(
            stacked, ord=torch.inf, dim=1
        )
        score = torch.where(free, score, torch.inf)
        order = torch.argsort(score, descending=True, stable=True)
        keep = int((~free).sum()) + budget
        return order[:keep].sort().values, order[keep:].sort().values

    def _state(self, optimizer: torch.optim.Optimizer) -> list[Bounded]:
        held = [*_parameters(optimizer)]
        for values in optimizer.state.values():
            held += [value for value in values.values() if isinstance(value, Tensor)]
        return list({id(tensor): tensor for tensor in held if _is_bounded(tensor)}.values())


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _is_bounded(tensor: Tensor) -> TypeGuard[Bounded]:
    return hasattr(tensor, "replace_form")


class _Own:
    """Own rows inside a support function: each element adds its own sample's rows to the columns they stand for."""

    def __init__(self, symbols: Symbols, expansion: Expansion, form: Form, axes: tuple[int, ...]):
        rows, batch = form.rows, form.rows.batch
        assert batch is not None and form.axis is not None
        self.symbols, self.batch, device = symbols, batch, form.center.device
        self.rows = rows.split()[2].to(device)
        shape = [1] * form.center.dim()
        shape[form.axis] = len(batch)
        positions = torch.arange(len(batch), device=device).view(shape).expand(form.center.shape)
        self.positions = positions.permute([axis - 1 for axis in axes[1:]]).flatten()
        self.places, self.deep = batch.deep(expansion), len(expansion.deep)
        self.samples = torch.from_numpy(batch.samples).to(device)
        self.all_known = bool((self.places < self.deep).all())
        budgeted = [symbols.budgets[symbols.table[part].clause] is not None for part in batch.parts.tolist()]
        self.by_budget = [torch.tensor([b is which for b in budgeted], device=device) for which in (False, True)]
        self.any = [any(not b for b in budgeted), any(budgeted)]

    def others(self, view: Any) -> Tensor:
        return view.other[~torch.isin(view.other, self.rows)]

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
        for clause, budget in enumerate(self.symbols.budgets):
            values = []
            for number, part in enumerate(self.symbols.table):
                held = np.flatnonzero(self.batch.parts == number)
                if part.clause == clause and len(held) and not (clean and budget is not None):
                    values.append(torch.stack(term(part.kind, own[:, torch.from_numpy(held).to(own.device)])))
            if values:
                terms.append(OwnTerms(clause, rounding.up(torch.stack(values).sum(0)), samples))
        return terms
