"""Generator rows: which symbols they stand for, and what a support function sees through them.

Rows are matched by symbol, never by position: each symbol has a number that is handed out once and never reused.

Derived symbols. Between two reductions, what a step computes depends on the past only through the M state scalars. So
after a reduction each scalar j gets one *derived* symbol z_j in [-1, 1], ``state_j = c_j + s_j z_j``, whose expansion
``z_j = sum_k E_jk xi_k`` (with ``sum_k |E_jk| <= 1``) the space remembers. Tensors of the next step then carry M rows
instead of all K; the support function sees through the expansion, so nothing is lost:

    h(a) = h(sum_j a_j E_j)        (and sum_j |a_j|, the box, for derived symbols of an older expansion)

Own rows. In a batch of B samples with F features each, sample i's symbols reach only position i of the sample axis
until positions are summed. So F *own* rows stand for all B F symbols: row f at position i is the symbol (sample i,
feature f). They carry negative numbers, one per (batch, feature), and work as ordinary rows as long as positions stay
apart; whatever mixes positions writes them out first.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from . import rounding
from .support import box


class Batch:
    """The samples along a sample axis: ``numbers`` (B, F) are the symbols that its own rows stand for.

    ``parts`` (F) says which part of the threat each own row belongs to (`support.py`), and ``guests`` that they are
    test inputs, which come once.
    """

    def __init__(self, numbers: np.ndarray, first: int, samples: np.ndarray, parts: np.ndarray, guests: bool = False):
        self.numbers, self.first, self.samples, self.parts, self.guests = numbers, first, samples, parts, guests
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
    """The symbols of the generator rows of a tensor, in order. Compared by identity, matched by number.

    What was worked out about other rows is forgotten with them: test inputs come and go, parameters stay.
    """

    __slots__ = ("__weakref__", "_columns", "_meets", "_positions", "_unions", "_views", "batch", "numbers")

    def __init__(self, numbers: np.ndarray, batch: Batch | None = None):
        self.numbers = numbers
        self.batch = batch  # whose own rows are among these
        self._views: WeakKeyDictionary[Expansion, View] = WeakKeyDictionary()
        self._columns: dict[Any, Any] = {}
        self._meets: WeakKeyDictionary[Batch, bool] = WeakKeyDictionary()
        self._unions: WeakKeyDictionary[Rows, Rows] = WeakKeyDictionary()
        self._positions: WeakKeyDictionary[Rows, slice | Tensor] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[type[Rows], tuple[np.ndarray, Batch | None]]:
        return Rows, (self.numbers, self.batch)

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
    which: Tensor  # for each derived row, its place among the derived symbols of the expansion
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
            device, count = self.weights.device, len(self.derived)
            among = rows.numbers - (self.derived.numbers[0] if count else 0)
            derived = (among >= 0) & (among < count)
            order = np.argsort(self.deep.numbers)
            place = np.searchsorted(self.deep.numbers, rows.numbers, sorter=order)
            found = order[np.minimum(place, len(order) - 1)] if len(order) else np.zeros(len(rows), dtype=np.int64)
            known = (self.deep.numbers[found] == rows.numbers) if len(order) else np.zeros(len(rows), dtype=bool)
            other = ~derived & ~known
            indices = (derived, known, other, among[derived], found[known])
            where = [torch.from_numpy(np.flatnonzero(x) if x.dtype == bool else x).to(device) for x in indices]
            rows._views[self] = View(where[0], where[3], where[1], where[4], where[2])
        return rows._views[self]

    def expanded(self, elements: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Coefficients of elements (n, rows) over the deep rows (n, K), and what the product may be off by, summed."""
        view = self.view(rows)
        coefficients, which = elements[:, view.derived], view.which
        used = (coefficients != 0).any(0)
        if 2 * int(used.sum()) < len(used):  # a hidden unit depends on its own weights only
            coefficients, which = coefficients[:, used], which[used]
        all_in_order = len(which) == len(self.derived) and bool((which[1:] > which[:-1]).all())
        weights = self.weights if all_in_order else self.weights[which]
        total = coefficients @ weights.to(coefficients.dtype)  # of a tensor in another dtype: one more rounding each
        if len(view.known):
            total.index_add_(1, view.deep, elements[:, view.known])
        error = coefficients.abs().sum(1) * rounding.gamma(len(self.derived) + 4, total.dtype)
        return total, rounding.up(error)


LINES = 256  # elements of a first factor expanded at a time: a few by a few would read the expansion too often


class Factors:
    """A matrix product ``a b + bias`` by its factors: its coefficients over the deep rows, made from theirs.

    With A and B the deep coefficients of a and b, those of the product are ``A cb + ca B``. That takes a few numbers
    for each element and deep row, where expanding the rows of the product takes one for each derived symbol.
    """

    def __init__(self, a: Any, b: Any, bias: Any):
        self.a, self.b, self.bias = a, b, bias  # affine forms; a plain tensor has no rows

    def pay(self, expansion: Expansion) -> bool:
        """Whether this takes less than expanding the product."""
        derived, (count, inner), width = len(expansion.derived), self.a.center.shape, self.b.center.shape[1]
        factors = (self.a.center.numel() + self.b.center.numel()) * derived + 2 * inner * count * width
        return 4 * factors < count * width * derived

    def start(self, expansion: Expansion) -> None:
        """Expand the second factor and the bias, which every part needs."""
        self.expansion = expansion
        inner, width = self.b.center.shape
        deep, error = self._deep(self.b.generators, self.b.rows, inner * width)
        self.deep_b, self.error_b = deep.view(inner, width, -1), error.view(inner, width)
        self.norm_b = box(self.deep_b, 2)
        if self.bias is not None:
            self.deep_bias, self.error_bias = self._deep(self.bias.generators, self.bias.rows, width)
            self.norm_bias = box(self.deep_bias, 1)
        self.ready = range(0)  # the lines of the first factor that are expanded

    def _deep(self, generators: Tensor, rows: Rows, count: int) -> tuple[Tensor, Tensor]:
        """Coefficients of ``count`` elements over the deep rows; all zero where there are no rows."""
        if not len(rows):
            return generators.new_zeros(count, len(self.expansion.deep)), generators.new_zeros(count)
        return self.expansion.expanded(generators.reshape(len(rows), count).T, rows)

    def _lines(self, begin: int, end: int) -> tuple[Tensor, Tensor]:
        """Deep coefficients of some lines of the first factor; many are expanded at a time, and kept."""
        if begin not in self.ready or end - 1 not in self.ready:
            count, inner = self.a.center.shape
            self.ready = range(begin, min(count, max(end, begin + -(-LINES // inner))))
            lines = self.a.generators[:, begin : self.ready.stop]
            deep, error = self._deep(lines, self.a.rows, len(self.ready) * inner)
            self.deep_a, self.error_a = deep.view(len(self.ready), inner, -1), error.view(len(self.ready), inner)
        first, last = begin - self.ready.start, end - self.ready.start
        return self.deep_a[first:last], self.error_a[first:last]

    def part(self, begin: int, end: int) -> tuple[Tensor, Tensor]:
        """Coefficients (elements, deep rows) of the lines from begin to end, and what they may be off by, summed."""
        center, inner = self.a.center[begin:end], self.b.center.shape[0]
        deep_a, error_a = self._lines(begin, end)
        total = torch.einsum("imk,mj->ijk", deep_a, self.b.center) + torch.einsum("im,mjk->ijk", center, self.deep_b)
        unit = rounding.gamma(inner + 4, total.dtype)
        off = (error_a + unit * box(deep_a, 2)) @ self.b.center.abs()
        off = off + center.abs() @ (self.error_b + unit * self.norm_b)
        if self.bias is not None:
            total = total + self.deep_bias
            off = off + self.error_bias + unit * self.norm_bias
        return total.flatten(0, 1), rounding.up(off * (1 + unit)).flatten()
