"""What generator rows stand for.

A zonotope tensor is ``c + sum_k G_k xi_k + rho zeta``; every row k belongs to one symbol ``xi_k`` in [-1, 1]. A
symbol is either *owned* by a training sample (one of its raw features) or *free* (an error that was given a row of
its own so that it can cancel later). Rows are matched by symbol, never by position: each has a number that is
handed out once and never reused, so a tensor made before a reduction still means what it meant.

Order reduction (Girard 2005, jointly for everything the optimizer holds): stack all state tensors into one vector
of M scalars; keep the free rows with the largest ``|row|_1 - |row|_inf``; the dropped rows D and the radii become
M new rows ``diag(b)``, ``b_j = rho_j + sum over D of |G_kj|``, each with a fresh symbol. Sound because
``|sum_D G_kj xi_k + rho_j zeta_j| <= b_j``: for every execution there is a value of each fresh symbol that gives
the same tensor. Two scalars never share a fresh symbol: (1, 0) and (0, 1) must not become (1, 1).

Derived symbols. Between two reductions, what a step computes depends on the past only through the M state scalars. So
after a reduction each scalar j gets one *derived* symbol z_j in [-1, 1], ``state_j = c_j + s_j z_j``, whose expansion
``z_j = sum_k E_jk xi_k`` (with ``sum_k |E_jk| <= 1``) the space remembers. Tensors of the next step then carry M rows
instead of all K; the support function sees through the expansion, so nothing is lost:

    h(a) = sum_k |sum_j a_j E_jk|        (and sum_j |a_j|, the box, for derived symbols of an older expansion)

Own rows. In a batch of B samples with F features each, sample i's symbols reach only position i of the sample axis
until positions are summed. So F *own* rows stand for all B F symbols: row f at position i is the symbol (sample i,
feature f). They carry negative numbers, one per (batch, feature), and work as ordinary rows as long as positions stay
apart; whatever mixes positions writes them out first.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np
import torch
from torch import Tensor

from . import rounding
from .errors import MixedSymbols

if TYPE_CHECKING:
    from .bounded import Bounded, Form
    from .threats import Threat

FREE = -1  # the owner of an error row
DERIVED = -2  # the owner of a derived symbol
CHUNK, CHUNK_CUDA = 2**18, 2**27  # numbers at a time when a support function looks through an expansion


class Batch:
    """The samples along a sample axis: ``numbers`` (B, F) are the symbols that its own rows stand for."""

    def __init__(self, numbers: np.ndarray, first: int):
        self.numbers, self.first = numbers, first
        distinct, places = np.unique(numbers, return_inverse=True)
        self.distinct, self.places = Rows(distinct), torch.from_numpy(places.reshape(numbers.shape))
        self._deep: dict[Expansion, Tensor] = {}

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def own(self) -> Rows:
        """The own rows, one per feature."""
        return Rows(self.first - np.arange(self.numbers.shape[1]), self)

    def written_out(self, values: Tensor) -> Tensor:
        """Own values (F, B, *shape), one per symbol, as rows of the distinct symbols; a sample may occur twice."""
        out = values.new_zeros(len(self.distinct), *values.shape[2:])
        flat = values.transpose(0, 1).reshape(-1, *values.shape[2:])
        return out.index_add_(0, self.places.flatten().to(values.device), flat)

    def deep(self, expansion: Expansion) -> Tensor:
        """Where each symbol stands among the deep rows of an expansion, (B, F); the number of rows if nowhere."""
        if expansion not in self._deep:
            view = expansion.view(self.distinct)
            place = torch.full((len(self.distinct),), len(expansion.deep), device=view.known.device)
            place[view.known] = view.deep
            self._deep = {expansion: place[self.places.to(place.device)]}
        return self._deep[expansion]


class Rows:
    """The symbols of the generator rows of a tensor, in order. Compared by identity, matched by number."""

    __slots__ = ("_meets", "_positions", "_unions", "_views", "batch", "numbers")

    def __init__(self, numbers: np.ndarray, batch: Batch | None = None):
        self.numbers = numbers
        self.batch = batch  # whose own rows are among these
        self._views: dict[Expansion, View] = {}
        self._meets: dict[Batch, bool] = {}
        self._unions: dict[Rows, Rows] = {}
        self._positions: dict[Rows, slice | Tensor] = {}

    def __len__(self) -> int:
        return len(self.numbers)

    def union(self, other: Rows) -> Rows:
        """These rows, then those of ``other`` that are new: the longer operand keeps its order."""
        if other is self or not len(other):
            return self
        if len(other) > len(self):
            return other.union(self)
        if other not in self._unions:
            assert self.batch is None or other.batch is None or self.batch is other.batch
            new = other.numbers[~np.isin(other.numbers, self.numbers)]
            numbers = np.concatenate((self.numbers, new))
            self._unions[other] = Rows(numbers, self.batch or other.batch) if len(new) else self
        return self._unions[other]

    def meets(self, batch: Batch) -> bool:
        """Whether symbols of the batch stand among these rows already, written out."""
        if batch not in self._meets:
            self._meets[batch] = bool(np.isin(batch.distinct.numbers, self.numbers).any())
        return self._meets[batch]

    def split(self) -> tuple[Rows, Tensor, Tensor]:
        """The rows that are not own, where they stand, and where the own rows stand by feature."""
        assert self.batch is not None
        own = self.numbers < 0
        by_feature = np.flatnonzero(own)[np.argsort(self.batch.first - self.numbers[own])]
        return Rows(self.numbers[~own]), torch.from_numpy(np.flatnonzero(~own)), torch.from_numpy(by_feature)

    def positions(self, part: Rows) -> slice | Tensor:
        """Where the rows of ``part``, all of them among these, stand."""
        if part not in self._positions:
            if np.array_equal(self.numbers[: len(part)], part.numbers):
                self._positions[part] = slice(0, len(part))
            else:
                order = np.argsort(self.numbers)
                found = order[np.searchsorted(self.numbers, part.numbers, sorter=order)]
                assert np.array_equal(self.numbers[found], part.numbers)
                self._positions[part] = torch.from_numpy(found)
        return self._positions[part]

    def place(self, generators: Tensor, part: Rows) -> Tensor:
        """``generators`` of the rows ``part``, padded with zero rows to these rows."""
        if part is self:
            return generators
        out = generators.new_zeros(len(self), *generators.shape[1:])
        where = self.positions(part)
        out[where if isinstance(where, slice) else where.to(out.device)] = generators
        return out


NO_ROWS = Rows(np.empty(0, dtype=np.int64))


class View(NamedTuple):
    """How rows look through an expansion: which are derived, which stand among its deep rows, which are neither."""

    derived: Tensor
    weights: Tensor  # for each derived row, its expansion
    known: Tensor
    deep: Tensor  # for each known row, its place among the deep rows
    other: Tensor


class Expansion:
    """``z = weights . xi``: what the derived symbols of one reduction stand for. ``weights`` is (M, K)."""

    def __init__(self, derived: Rows, deep: Rows, weights: Tensor):
        self.derived, self.deep, self.weights = derived, deep, weights

    def view(self, rows: Rows) -> View:
        """Cached with the rows, and dropped with them."""
        if self not in rows._views:
            device, first = self.weights.device, self.derived.numbers[0]
            among = rows.numbers - first
            derived = (among >= 0) & (among < len(self.derived))
            order = np.argsort(self.deep.numbers)
            place = np.searchsorted(self.deep.numbers, rows.numbers, sorter=order)
            found = order[np.minimum(place, len(order) - 1)] if len(order) else np.zeros(len(rows), dtype=np.int64)
            known = (self.deep.numbers[found] == rows.numbers) if len(order) else np.zeros(len(rows), dtype=bool)
            other = ~derived & ~known
            indices = (derived, known, other, among[derived], found[known])
            where = [torch.from_numpy(np.flatnonzero(x) if x.dtype == bool else x).to(device) for x in indices]
            rows._views[self] = View(where[0], self.weights[where[3]], where[1], where[4], where[2])
        return rows._views[self]

    def expanded(self, elements: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Coefficients of elements (n, rows) over the deep rows (n, K), and what the product may be off by, summed."""
        view = self.view(rows)
        coefficients = elements[:, view.derived]
        total = coefficients @ view.weights
        if len(view.known):
            total.index_add_(1, view.deep, elements[:, view.known])
        error = coefficients.abs().sum(1) * rounding.gamma(len(self.derived) + 4, total.dtype)
        return total, rounding.up(error)


class _OwnColumns:
    """Own rows inside a support function: each element adds its own sample's rows to the deep rows they stand for."""

    def __init__(self, expansion: Expansion, form: Form):
        rows, batch = form.rows, form.rows.batch
        assert batch is not None and form.axis is not None
        device = form.center.device
        _, _, own = rows.split()
        self.own = own.to(device)
        other = expansion.view(rows).other
        self.other = other[~torch.isin(other, self.own)]
        shape = [1] * form.center.dim()
        shape[form.axis] = len(batch)
        self.positions = torch.arange(len(batch), device=device).view(shape).expand(form.center.shape).flatten()
        self.places = batch.deep(expansion)

    def added(self, deep: Tensor, elements: Tensor, begin: int) -> Tensor:
        """``sum_k |.|`` of the deep rows with the own rows added; own symbols that are not deep count by themselves."""
        places = self.places[self.positions[begin : begin + len(elements)]]
        own = elements[:, self.own]
        known = places < deep.shape[1]
        deep.scatter_add_(1, torch.where(known, places, 0), torch.where(known, own, 0.0))
        # one more rounding per own row: the count of terms is generous enough for it
        return _box(deep, 1) + _box(torch.where(known, 0.0, own), 1) + _box(elements[:, self.other], 1)


class Symbols:
    """One space of symbols: the threat they come from, their owners, and the budget of error rows.

    ``order`` is the number of free rows kept per scalar of optimizer state.
    """

    def __init__(self, threat: Threat | None = None, order: int = 20):
        if order < 1:
            raise ValueError(f"order must be at least 1 row per state scalar, got {order}")
        self.threat = threat
        self.order = order
        self.steps = 0
        self._owners = np.empty(1024, dtype=np.int64)
        self._count = 0
        self._first_row: dict[int, int] = {}
        self._raw: dict[int, bytes] = {}
        self._batches: dict[bytes, Batch] = {}
        self._own = -1  # the next number of an own row
        self._expansion: Expansion | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Symbols:
        return self  # a copied tensor still speaks of the same attacker

    def __repr__(self) -> str:
        return f"Symbols({self.threat!r}, order={self.order}, symbols={self._count}, steps={self.steps})"

    # --- rows -------------------------------------------------------------------------------------------------

    def _new(self, owners: np.ndarray) -> np.ndarray:
        numbers = np.arange(self._count, self._count + len(owners))
        while self._count + len(owners) > len(self._owners):
            self._owners = np.concatenate((self._owners, np.empty_like(self._owners)))
        self._owners[numbers] = owners
        self._count += len(owners)
        return numbers

    def fresh(self, count: int) -> Rows:
        """New free rows."""
        return Rows(self._new(np.full(count, FREE)))

    def of_samples(self, samples: np.ndarray, raw: np.ndarray) -> Rows:
        """Own rows of a batch of samples; a sample's symbols are the same at every call.

        A symbol may only reappear for the same raw value: ``raw`` holds the values, one line per sample.
        """
        features = raw.shape[1]
        for sample, line in zip(samples.tolist(), raw, strict=True):
            content = f"{line.dtype}{line.shape}".encode() + line.tobytes()
            fingerprint = hashlib.blake2b(content, digest_size=16).digest()
            if self._raw.setdefault(sample, fingerprint) != fingerprint:
                raise MixedSymbols(
                    f"sample {sample} was lifted before with other values, and one symbol cannot mean both. Lift the "
                    "raw data, then augment or normalise the bounded batch."
                )
        unseen = list(dict.fromkeys(sample for sample in samples.tolist() if sample not in self._first_row))
        if unseen:
            numbers = self._new(np.repeat(unseen, features))
            self._first_row.update(zip(unseen, numbers[::features].tolist(), strict=True))
        first = np.array([self._first_row[sample] for sample in samples.tolist()], dtype=np.int64)
        key = first.tobytes()
        if key not in self._batches:
            self._batches = dict(list(self._batches.items())[-7:])  # the same batches come back in full-batch training
            self._batches[key] = Batch(first[:, None] + np.arange(features), self._own)
            self._own -= features
        return self._batches[key].own

    def owners(self, rows: Rows) -> np.ndarray:
        """The owning sample of each row, ``FREE`` for error rows."""
        return self._owners[rows.numbers]

    def support(self, form: Form) -> Tensor:
        """The largest ``sum_k G_k xi_k`` over the symbol set, per element, rounded up."""
        expansion, generators, rows = self._expansion, form.generators, form.rows
        if expansion is None or not len(expansion.view(rows).derived):
            return _box(generators)
        view, elements = expansion.view(rows), generators.reshape(len(rows), -1).T.contiguous()
        own = _OwnColumns(expansion, form) if rows.batch is not None else None
        size = max(1, (CHUNK_CUDA if generators.is_cuda else CHUNK) // max(1, len(expansion.deep)))
        totals = []
        for begin in range(0, len(elements), size):
            part = elements[begin : begin + size]
            deep, error = expansion.expanded(part, rows)
            if own is None:
                totals.append(_box(deep, 1) + _box(part[:, view.other], 1) + error)
            else:
                totals.append(own.added(deep, part, begin) + error)
        return rounding.up(torch.cat(totals)).view(generators.shape[1:])

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
        return self.threat.lift(self, x, y, index)

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
            boxed = rounding.up(rounding.up(radius + error) + _box(stacked[dropped]))
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
        scale = _box(generators)
        weights = (generators / torch.where(scale > 0, scale, 1.0)).T.contiguous()
        derived = Rows(self._new(np.full(len(scale), DERIVED)))
        self._expansion = Expansion(derived, deep, weights)
        return derived, scale

    def _require_own(self, tensor: Bounded) -> None:
        if Symbols.common(self, tensor.symbols) is not self:
            raise MixedSymbols("the optimizer is attached to other symbols than its model was lifted with")

    def _split(self, stacked: Tensor, rows: Rows, budget: int) -> tuple[Tensor, Tensor]:
        """Which rows to keep: all owned ones, and the free ones that would lose most by being boxed."""
        free = torch.from_numpy(self.owners(rows) == FREE).to(stacked.device)
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


def _box(generators: Tensor, dim: int = 0) -> Tensor:
    """``sum_k |G_k|``, rounded up."""
    total = torch.linalg.vector_norm(generators, ord=1, dim=dim)
    return total * (1 + rounding.gamma(generators.shape[dim], total.dtype))


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _is_bounded(tensor: Tensor) -> TypeGuard[Bounded]:
    return hasattr(tensor, "replace_form")
