"""Which column a symbol moves, and what the symbol is where its sample is as it was recorded.

Symbols at 0 mean "as recorded" wherever the center of a set is the observed value. Two changes put the center
elsewhere: a box without a budget that a valid range cuts is centered again, and a missing cell stands in the middle of
its range. There the cell is ``center + reach xi``, so that

    xi = (recorded - center) / reach

where something is recorded; of a missing cell nothing is, until somebody fills it in. A missing category has a symbol
for each that it could be, with center 0 and reach 1: that of the true one is 1, and the others are 0, as its one-hot
columns are. Only these symbols are kept here, and all others are 0 where their sample is as recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..arithmetic import rounding

NO_COLUMN, LABEL, PRESENCE = -1, -2, -3  # what a symbol moves, where it is no feature: unknown, the target, the weight


class Recorded(NamedTuple):
    """Symbols that are not 0 where their sample is as recorded. What is not recorded is NaN; numbers ascend."""

    numbers: np.ndarray
    observed: np.ndarray
    center: np.ndarray
    reach: np.ndarray

    @staticmethod
    def of(numbers: np.ndarray, observed: np.ndarray, center: np.ndarray, reach: np.ndarray) -> Recorded:
        """Those among symbols that can move at all and are not 0 as recorded."""
        held = (reach > 0) & ~(observed == center)
        numbers = np.broadcast_to(numbers, held.shape)[held]
        order = np.argsort(numbers)
        found = (
            np.broadcast_to(part, held.shape)[held][order].astype(np.float64) for part in (observed, center, reach)
        )
        return Recorded(numbers[order], *found)

    @staticmethod
    def joined(parts: Sequence[Recorded]) -> Recorded:
        """The symbols of several batches together."""
        if not parts:
            return NOTHING
        together = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
        order = np.argsort(together[0])
        return Recorded(*(column[order] for column in together))

    def among(self, numbers: np.ndarray) -> Recorded:
        """Only those among some symbols."""
        held = np.isin(self.numbers, numbers)
        return Recorded(*(column[held] for column in self))

    def filled(self, values: np.ndarray) -> Recorded:
        """The same with values where nothing was recorded; NaN leaves a cell open."""
        return self._replace(observed=np.where(np.isnan(self.observed), values, self.observed))

    @property
    def is_open(self) -> np.ndarray:
        """Which symbols stay as they are: nothing is recorded, and nobody has filled it in."""
        found: np.ndarray = np.isnan(self.observed)
        return found

    def symbols(self) -> Tensor:
        """Bounds (2, n) of the symbols that are not open, rounded outwards."""
        known = ~self.is_open
        observed, center, reach = (torch.from_numpy(part[known]) for part in (self.observed, self.center, self.reach))
        return rounding.quotient_of_move(observed, center, reach)


NOTHING = Recorded(np.empty(0, dtype=np.int64), *(np.empty(0) for _ in range(3)))


class Meaning(NamedTuple):
    """What the symbols of one batch of samples stand for: columns (rows), and where they are as recorded."""

    columns: np.ndarray
    observed: np.ndarray  # (samples, rows), as are the others
    center: np.ndarray
    reach: np.ndarray

    def of_samples(self, places: np.ndarray, numbers: np.ndarray) -> Recorded:
        """Of the samples at these places, whose symbols have these numbers (samples, rows)."""
        return Recorded.of(numbers, self.observed[places], self.center[places], self.reach[places])


Told = Callable[[], Meaning]  # asked only where samples are new
