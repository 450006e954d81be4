"""Who owns a symbol, and which rows a sample got.

Every symbol has a number that is handed out once and never again, so a tensor means the same for as long as it lives.
Numbers come from three ranges, each counted up from its start: symbols of the run itself, symbols that were made while
somebody looked at the run (a callback, a test input of the user's own loop), and symbols of one answer, whose space is
dropped with it (`Symbols.child`). So whoever looks on, in whatever thread, never changes the numbers of the run.

A symbol belongs to the sample that owns it and to a part of the threat (`budgets.py`), or to nobody: free errors and
derived symbols. Tables only grow; what was written is never changed.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable

import numpy as np

from ..arithmetic.tuned_numbers import BATCHES_KEPT
from ..errors import MixedSymbols
from .budgets import FREE
from .recorded_values import NO_COLUMN, Meaning, Recorded, Told
from .rows import Batch, Rows

NOBODY = -1  # the owner of an error row or a derived symbol
DERIVED = -2  # the part of a derived symbol
LOOKED_AT = 2**40  # numbers from here on were made by somebody who looked at the run
ANSWERED = 2**50  # and from here on for one answer; a space for an answer within an answer begins as far again on

_handing_out = threading.Lock()  # held for microseconds, by all spaces


class Written:
    """Owners and parts of the symbols that a file holds, ascending: no more of them than it names."""

    def __init__(self, numbers: np.ndarray, owners: np.ndarray, parts: np.ndarray, columns: np.ndarray | None = None):
        self._numbers, self._owners, self._parts = numbers, owners, parts
        self._columns = np.full(len(numbers), NO_COLUMN) if columns is None else columns

    def known(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """To whom symbols belong, and to which part of the threat; the others are errors that belong to nobody."""
        if not len(self._numbers):
            return np.full(len(numbers), NOBODY), np.full(len(numbers), FREE)
        places = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        found = self._numbers[places] == numbers
        return np.where(found, self._owners[places], NOBODY), np.where(found, self._parts[places], FREE)

    def columns(self, numbers: np.ndarray) -> np.ndarray:
        """Which column each symbol moves."""
        if not len(self._numbers):
            return np.full(len(numbers), NO_COLUMN)
        places = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        return np.where(self._numbers[places] == numbers, self._columns[places], NO_COLUMN)

    def knows(self, numbers: np.ndarray) -> np.ndarray:
        """Which of the symbols the file names."""
        return np.isin(numbers, self._numbers)


class Registry:
    """Owners and parts of the symbols ``first``, ``first + 1``, ...; smaller numbers are known ``before``."""

    def __init__(self, first: int = 0, before: Registry | Written | None = None):
        self.first, self.before, self.count = first, before, 0
        self._owners = np.empty(1024, dtype=np.int64)
        self._parts = np.empty(1024, dtype=np.int64)
        self._columns = np.empty(1024, dtype=np.int64)

    def new(
        self, owners: np.ndarray | None, parts: np.ndarray, each: int = 1, columns: np.ndarray | None = None
    ) -> np.ndarray:
        """Numbers of new symbols. Without ``owners`` every ``each`` of them in a row belong to the first of these."""
        with _handing_out:
            places = np.arange(self.count, self.count + len(parts))
            while self.count + len(parts) > len(self._owners):
                self._owners = np.concatenate((self._owners, np.empty_like(self._owners)))
                self._parts = np.concatenate((self._parts, np.empty_like(self._parts)))
                self._columns = np.concatenate((self._columns, np.empty_like(self._columns)))
            numbers = self.first + places
            self._owners[places] = np.repeat(numbers[::each], each) if owners is None else owners
            self._parts[places] = parts
            self._columns[places] = NO_COLUMN if columns is None else columns
            self.count += len(parts)
        return numbers

    def free(self, count: int, part: int = FREE) -> Rows:
        """Rows of new symbols that belong to nobody."""
        return Rows(self.new(np.full(count, NOBODY), np.full(count, part)))

    def known(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """To whom symbols belong, and to which part of the threat."""
        if self.before is None:
            return self._owners[numbers], self._parts[numbers]
        mine = numbers >= self.first
        if not mine.any():
            return self.before.known(numbers)
        owners, parts = np.empty_like(numbers), np.empty_like(numbers)
        owners[~mine], parts[~mine] = self.before.known(numbers[~mine])
        owners[mine], parts[mine] = self._owners[numbers[mine] - self.first], self._parts[numbers[mine] - self.first]
        return owners, parts

    def columns(self, numbers: np.ndarray) -> np.ndarray:
        """Which column each symbol moves: a feature, or one of the names in `recorded_values.py`."""
        mine = numbers >= self.first
        found = np.full(len(numbers), NO_COLUMN)
        found[mine] = self._columns[numbers[mine] - self.first]
        if self.before is not None and not mine.all():
            found[~mine] = self.before.columns(numbers[~mine])
        return found

    def knows(self, numbers: np.ndarray) -> np.ndarray:
        """Which of the numbers have been handed out."""
        mine = (numbers >= self.first) & (numbers < self.first + self.count)
        return mine if self.before is None else mine | ((numbers < self.first) & self.before.knows(numbers))

    def all(self) -> tuple[np.ndarray, np.ndarray]:
        """Owners and parts of every symbol in this range."""
        return self._owners[: self.count], self._parts[: self.count]


class Ledger:
    """Which samples were lifted, with which values, and the own rows they got."""

    def __init__(self, registry: Registry, before: Ledger | None = None):
        self.registry, self.before = registry, before
        self.first_row: dict[int, int] = {}
        self.raw: dict[int, bytes] = {}
        self.own = -1 - registry.first  # the next number of an own row
        self.recorded: list[Recorded] = []  # of the samples that were lifted, batch by batch
        self._batches: dict[bytes, Batch] = {}

    def _found(self, sample: int) -> tuple[int, bytes] | None:
        """The first symbol of a sample that was lifted before, and the fingerprint of its values."""
        if sample in self.first_row:
            return self.first_row[sample], self.raw[sample]
        return self.before._found(sample) if self.before is not None else None

    def rows_of(
        self,
        samples: np.ndarray,
        raw: np.ndarray,
        parts: np.ndarray,
        meaning: Told | None = None,
        still: np.ndarray | None = None,
    ) -> Rows:
        """Own rows of a batch of samples; a sample's symbols are the same at every call.

        A symbol may only reappear for the same raw value: ``raw`` holds the values, one line per sample. ``parts``
        holds the part of the threat that each own row belongs to, ``meaning`` what its symbols stand for, and ``still``
        (samples, rows) which symbols reach nothing.
        """
        head, tail = f"{raw.dtype}{raw.shape[1:]}".encode(), parts.tobytes()
        moving = b"" if still is None else still.tobytes()
        whole = hashlib.blake2b(head + samples.tobytes() + raw.tobytes() + tail + moving).digest()
        if whole in self._batches:
            return self._batches[whole].own
        values, each = raw.tobytes(), raw.nbytes // max(1, len(raw))
        lines = (head + values[at : at + each] + tail for at in range(0, len(samples) * each, each or 1))
        unseen = self._unseen(samples, lines)
        if unseen:
            self._enter(unseen, samples, parts, None if meaning is None else meaning())
        first = np.array([self._found(sample)[0] for sample in samples.tolist()], dtype=np.int64)  # type: ignore[index]
        batches, made = (
            dict(list(self._batches.items())[-BATCHES_KEPT:]),
            self._batch(first, samples, parts, still=still),
        )
        self._batches = batches | {whole: made}  # at once: another thread may be reading
        return made.own

    def _unseen(self, samples: np.ndarray, values: Iterable[bytes]) -> dict[int, bytes]:
        """The samples that were never lifted, with the fingerprints of their values; others must be as they were."""
        unseen: dict[int, bytes] = {}
        for sample, value in zip(samples.tolist(), values, strict=True):
            fingerprint = hashlib.blake2b(value, digest_size=16).digest()
            found = self._found(sample)
            if (found[1] if found is not None else unseen.setdefault(sample, fingerprint)) != fingerprint:
                raise MixedSymbols(
                    f"sample {sample} was lifted before with other values, and one symbol cannot mean both. Lift the "
                    "raw data, then augment or normalise the bounded batch."
                )
        return unseen

    def _enter(self, unseen: dict[int, bytes], samples: np.ndarray, parts: np.ndarray, told: Meaning | None) -> None:
        """Give samples that were never lifted their symbols, and write down what these stand for."""
        rows = len(parts)
        columns = None if told is None else np.tile(told.columns, len(unseen))
        numbers = self.registry.new(np.repeat(list(unseen), rows), np.tile(parts, len(unseen)), columns=columns)
        if told is not None:
            where = {sample: place for place, sample in reversed(list(enumerate(samples.tolist())))}
            places = np.array([where[sample] for sample in unseen])
            self.recorded.append(told.of_samples(places, numbers.reshape(-1, rows)))
        self.raw |= unseen
        self.first_row |= zip(unseen, numbers[::rows].tolist(), strict=True)

    def guests(self, count: int, parts: np.ndarray) -> Rows:
        """Own rows of samples that come once and never again: test inputs. Each owns itself."""
        first = self.registry.new(None, np.tile(parts, count), each=len(parts))[:: len(parts)]
        return self._batch(first, first, parts, guests=True).own

    def _batch(
        self,
        first: np.ndarray,
        samples: np.ndarray,
        parts: np.ndarray,
        guests: bool = False,
        still: np.ndarray | None = None,
    ) -> Batch:
        numbers = first[:, None] + np.arange(len(parts))
        if still is not None:
            # symbols that reach nothing have no coefficient but 0, so the first of them can stand for all: a column
            # with few missing values costs as many rows as there are missing values, not as many as samples
            numbers = np.where(still, numbers[still.argmax(0), np.arange(len(parts))], numbers)
        made = Batch(numbers, self.own, samples, parts, guests)
        self.own -= len(parts)
        return made
