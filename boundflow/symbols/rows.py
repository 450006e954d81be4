"""Generator rows: which symbols they stand for.

Rows are matched by symbol, never by position: each symbol has a number that is handed out once (`symbol_numbers.py`).

Own rows. In a batch of B samples with F features each, sample i's symbols reach only position i of the sample axis
until positions are summed. So F *own* rows stand for all B F symbols: row f at position i is the symbol (sample i,
feature f). They carry negative numbers, one per (batch, feature), and work as ordinary rows as long as positions stay
apart; whatever mixes positions writes them out first.

Runs. Numbers are handed out one after the other, so those of a tensor are a few runs of consecutive ones, however many
symbols there are: two tensors are matched run by run. Only error rows that a reduction has chosen are more of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from ..arithmetic.thread_context import bookkeeping, thread
from ..arithmetic.tuned_numbers import FEW_RUNS
from ..fast.support.device_tables import on_device, piece

if TYPE_CHECKING:
    from ..sets.sample_axis import Samples
    from .expansion import Expansion, View

CPU = torch.device("cpu")


class Run(NamedTuple):
    """Consecutive numbers ``first``, ``first + 1``, ..., which stand at consecutive places."""

    first: int
    place: int
    length: int


class Shared(NamedTuple):
    """A run of rows that two tensors share: it stands from ``at`` on in one, and from ``place`` on in the other."""

    at: int
    place: int
    length: int


class Batch:
    """The samples along a sample axis: ``numbers`` (B, F) are the symbols that its own rows stand for.

    ``parts`` (F) says which part of the threat each own row belongs to (`budgets.py`), and ``guests`` that they are
    test inputs, which come once.
    """

    def __init__(self, numbers: np.ndarray, first: int, samples: np.ndarray, parts: np.ndarray, guests: bool = False):
        self.numbers, self.first, self.samples, self.parts, self.guests = numbers, first, samples, parts, guests
        distinct, places = numbers.flatten(), np.arange(numbers.size)
        if bool((np.diff(distinct) <= 0).any()):  # a sample comes twice, or later than one that is older
            distinct, places = np.unique(numbers, return_inverse=True)
        self.distinct, self.places = Rows(distinct), torch.from_numpy(places.reshape(numbers.shape))
        self._places_on: dict[torch.device, Tensor] = {CPU: self.places}
        self._deep: WeakKeyDictionary[Expansion, Tensor] = WeakKeyDictionary()
        self.whose: Callable[[], Samples | None] = lambda: None  # as sets know them, while any does: `Samples.of`

    def __reduce__(self) -> tuple[type[Batch], tuple[Any, ...]]:
        return Batch, (self.numbers, self.first, self.samples, self.parts, self.guests)

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def own(self) -> Rows:
        """The own rows, one per feature."""
        return Rows(self.first - np.arange(self.numbers.shape[1]), self)

    def written_out(self, values: Tensor) -> Tensor:
        """Own values (F, B, *shape), one per symbol, as rows of `written`; a sample may occur twice.

        Of several processes, each may have those of its own samples alone.
        """
        shares, places = thread.arithmetic.shares, self.places
        if shares is not None:
            mine, places = shares.written(self)[1:]
            values = values[:, mine.to(values.device)] if values.shape[1] == len(self) else values
        out = values.new_zeros(len(self.written), *values.shape[2:])
        flat = values.transpose(0, 1).flatten(0, 1)
        places = self.places_on(values.device) if shares is None else places.to(values.device)
        return out.index_add_(0, places.flatten(), flat)

    @property
    def written(self) -> Rows:
        """The symbols that own rows become where they are written out: all, or those of this process's samples."""
        shares = thread.arithmetic.shares
        return self.distinct if shares is None else shares.written(self)[0]

    def written_into(self, generators: Tensor, rows: Rows, values: Tensor) -> Tensor:
        """The same, added to ``generators`` over ``rows``, which hold all that is written and are overwritten.

        Feature by feature: own values can be the largest tensor of a step, and no copy of them is made.
        """
        device = generators.device
        where = rows.positions(self.written, device)
        if thread.arithmetic.shares is not None:
            generators[where] += self.written_out(values)
            return generators
        places = self.places_on(device)
        places = places + where.start if isinstance(where, slice) else where[places]
        for feature, part in enumerate(values):
            generators.index_add_(0, places[:, feature], part)
        return generators

    def places_on(self, device: torch.device) -> Tensor:
        """Where each symbol stands among the distinct ones."""
        if device not in self._places_on:
            with bookkeeping():
                self._places_on[device] = self.places.to(device)
        return self._places_on[device]

    def deep(self, expansion: Expansion) -> Tensor:
        """Where each symbol stands among the deep rows of an expansion, (B, F); the number of rows if nowhere."""
        found = self._deep.get(expansion)
        if found is None:
            view = expansion.view(self.distinct)
            with bookkeeping():
                place = torch.full((len(self.distinct),), len(expansion.deep), device=view.known.device)
                place[view.known] = view.deep
                found = place[self.places_on(place.device)]
            self._deep = WeakKeyDictionary({expansion: found})  # at once: another thread may be reading
        return found


class Rows:
    """The symbols of the generator rows of a tensor, in order. Compared by identity, matched by number.

    What was worked out about other rows is forgotten with them: test inputs come and go, parameters stay.
    """

    __slots__ = (
        "__weakref__",
        "_meets",
        "_positions",
        "_runs",
        "_split",
        "_unions",
        "_views",
        "batch",
        "numbers",
    )

    def __init__(self, numbers: np.ndarray, batch: Batch | None = None):
        self.numbers = numbers
        self.batch = batch  # whose own rows are among these
        self._views: WeakKeyDictionary[Expansion, View] = WeakKeyDictionary()
        self._meets: WeakKeyDictionary[Batch, bool] = WeakKeyDictionary()
        self._unions: WeakKeyDictionary[Rows, Rows] = WeakKeyDictionary()
        self._positions: WeakKeyDictionary[Rows, slice | Tensor] = WeakKeyDictionary()
        self._runs: np.ndarray | list[Run] | None = None
        self._split: dict[torch.device, tuple[Rows, slice | Tensor, Tensor]] = {}

    def __reduce__(self) -> tuple[type[Rows], tuple[np.ndarray, Batch | None]]:
        return Rows, (self.numbers, self.batch)

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def runs(self) -> np.ndarray | list[Run]:
        """The runs of consecutive numbers, ascending: few of them one by one, or a table of firsts, places, lengths."""
        if self._runs is None:
            numbers = self.numbers
            begin = np.concatenate(([0], np.flatnonzero(numbers[1:] - numbers[:-1] != 1) + 1, [len(numbers)]))
            if len(begin) > FEW_RUNS and len(numbers):
                table = np.stack((numbers[begin[:-1]], begin[:-1], np.diff(begin)))
                self._runs = table[:, np.argsort(table[0])]
            else:
                pairs = itertools.pairwise(begin.tolist() if len(numbers) else [])
                self._runs = sorted(Run(int(numbers[place]), place, end - place) for place, end in pairs)
        return self._runs

    def shared(self, part: Rows) -> list[Shared]:
        """Which rows of ``part`` stand among these, and where: the overlaps of all runs."""
        ours, theirs = self.runs, part.runs
        if isinstance(ours, list) and isinstance(theirs, list):
            pairs = itertools.product(ours, theirs)
            return [Shared(*overlap) for run, wanted in pairs if (overlap := _overlap(run, wanted))[2] > 0]
        return _shared(
            *(np.array(runs).reshape(-1, 3).T if isinstance(runs, list) else runs for runs in (ours, theirs))
        )

    def found(self, part: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Which rows of ``part`` are among these, and where."""
        held, places = np.zeros(len(part), dtype=bool), np.zeros(len(part), dtype=np.int64)
        shared = self.shared(part)
        if len(shared) <= FEW_RUNS:
            for at, place, length in shared:
                held[at : at + length] = True
                places[at : at + length] = np.arange(place, place + length)
        else:
            at, place, length = np.array(shared).T
            where = _counted(at, length)
            held[where], places[where] = True, _counted(place, length)
        return held, places

    def union(self, other: Rows) -> Rows:
        """These rows, then those of ``other`` that are new: the longer operand keeps its order."""
        if other is self or not len(other):
            return self
        if len(other) > len(self):
            return other.union(self)
        if other not in self._unions:
            assert self.batch is None or other.batch is None or self.batch is other.batch
            new = self._new(other)
            numbers = np.concatenate((self.numbers, new))
            self._unions[other] = Rows(numbers, self.batch or other.batch) if len(new) else self
        return self._unions[other]

    def _new(self, other: Rows) -> np.ndarray:
        """The numbers of ``other`` that are not among these."""
        known = sum(run.length for run in self.shared(other))
        if known in (0, len(other)):
            return other.numbers[known:]
        new: np.ndarray = other.numbers[~self.found(other)[0]]
        return new

    def meets(self, batch: Batch) -> bool:
        """Whether symbols of the batch stand among these rows already, written out.

        Several processes must answer alike, and each has other rows: there, rows of any sample will do.
        """
        if thread.arithmetic.shares is not None:
            return thread.arithmetic.shares.spread(self) is not None
        if batch not in self._meets:
            self._meets[batch] = bool(self.shared(batch.distinct))
        return self._meets[batch]

    def split(self, device: torch.device | None = None) -> tuple[Rows, slice | Tensor, Tensor]:
        """The rows that are not own, where they stand, and where the own rows stand by feature."""
        device = device or CPU
        if device not in self._split:
            assert self.batch is not None
            own = self.numbers < 0
            by_feature = np.flatnonzero(own)[np.argsort(self.batch.first - self.numbers[own])]
            with bookkeeping():
                where, features = piece(np.flatnonzero(~own), device), on_device(by_feature, device)
            self._split[device] = Rows(self.numbers[~own]), where, features
        return self._split[device]

    def positions(self, part: Rows, device: torch.device | None = None) -> slice | Tensor:
        """Where the rows of ``part``, all of them among these, stand; of one space, all are on one device."""
        found = self._positions.get(part)
        if isinstance(found, Tensor) and found.device != (device or CPU):
            found = None
        if found is None:
            shared = self.shared(part)
            assert sum(run.length for run in shared) == len(part)
            if len(shared) == 1:
                found = slice(shared[0].place, shared[0].place + len(part))
            else:
                with bookkeeping():
                    found = piece(self.found(part)[1], device or CPU)
            self._positions[part] = found
        return found

    def place(self, generators: Tensor, part: Rows) -> Tensor:
        """``generators`` of the rows ``part``, padded with zero rows to these rows."""
        if part is self:
            return generators
        out = generators.new_zeros(len(self), *generators.shape[1:])
        out[self.positions(part, out.device)] = generators
        return out

    def add(self, generators: Tensor, more: Tensor, part: Rows) -> Tensor:
        """``generators`` of these rows, overwritten, and ``more`` of the rows ``part``, which are among them."""
        if part is self:
            return generators.add_(more)
        where = self.positions(part, generators.device)
        if isinstance(where, slice):
            generators[where] += more
            return generators
        return generators.index_add_(0, where, more)


def _overlap(run: Any, wanted: Any, largest: Any = max, smallest: Any = min) -> tuple[Any, Any, Any]:
    """Where what runs share with wanted ones begins among those, and here, and its length."""
    (first, place, length), (number, at, count) = run, wanted
    begin = largest(first, number)
    return at + begin - number, place + begin - first, smallest(first + length, number + count) - begin


def _shared(ours: np.ndarray, theirs: np.ndarray) -> list[Shared]:
    """Runs of one tensor do not overlap, so those that meet a run of the other follow each other."""
    first, wanted = ours[0], theirs[0]
    begin = np.searchsorted(first + ours[2], wanted, "right")
    count = np.maximum(np.searchsorted(first, wanted + theirs[2], "left") - begin, 0)
    overlap = _overlap(ours[:, _counted(begin, count)], np.repeat(theirs, count, 1), np.maximum, np.minimum)
    return [Shared(*run) for run in np.stack(overlap, 1).tolist()]


def _counted(begin: np.ndarray, count: np.ndarray) -> np.ndarray:
    """From each beginning so many numbers on, one after the other."""
    total = np.cumsum(count)
    return np.repeat(begin - total + count, count) + np.arange(total[-1] if len(total) else 0)


NO_ROWS = Rows(np.empty(0, dtype=np.int64))
