"""What a threat is: changes of samples, joined, restricted and counted.

Every change gives a sample a few symbols, the same at every visit, so what the attacker did to it is the same in every
epoch; `budgets.py` says from which set they are chosen. A change is one class, and **must define**

    deviation(values, raw, budgeted)   what can happen to a batch of values, all positions touched (`deviation.py`)
    __repr__                           itself as Python: a certificate records it, and ``eval`` makes the same threat

and says in class attributes, where the default is not right,

    about             what changes: "inputs", "targets", "weights" or "gradients"
    kind              the set from which the symbols of one sample are chosen (`budgets.py`)
    has_clean_state   whether symbols at zero mean "as observed": False keeps it out of every budget
    exclusive         whether it does not add up with other changes of the same thing
    adds_to_one       whether the targets of a sample add up to one whatever happens
    column            which column of the inputs it moves, or each of its rows, where these do not move a feature each

It may replace ``fits`` (data that the change cannot be about are refused before training), ``stand_in`` (what ordinary
training sees in place of a value that is not there), ``encoded`` (targets as numbers), ``on_features``, ``shrinks``
(how its rows become those of a smaller change) and ``without_radius`` (what it shares with those). Everything else is
**derived**: ``&``, ``on``, ``AtMost``, budgets, the lifting of a batch, clean states, test inputs, pieces of batches.

Under a budget, or beside other changes, symbols at zero must mean "as observed", so the center is the observed value,
and a side that a valid range cuts off is covered by one symmetric row. Only where every sample is touched may it move.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..fast.memory.loop_memory import require_room
from ..same_program.identity import of_value
from ..symbols.budgets import Kind
from ..symbols.recorded_values import NO_COLUMN
from ..symbols.space import Symbols
from ..tensor.lift import Given
from .deviation import Deviation, positions
from .lifting import Lifted, Lifting


class Clause(NamedTuple):
    """Changes under one budget; None: every sample may be touched."""

    budget: int | None
    changes: tuple[Change, ...]


class Threat(ABC):
    """What an attacker could have changed."""

    @property
    @abstractmethod
    def clauses(self) -> tuple[Clause, ...]:
        """The changes, by budget."""

    def __and__(self, other: Threat) -> Threat:
        """The attacker can do both."""
        if not isinstance(other, Threat):
            return NotImplemented
        return Both(self, other)

    @property
    def budget(self) -> int | None:
        """How many samples changes under a budget can touch, in all; None without one."""
        budgets = [clause.budget for clause in self.clauses if clause.budget is not None]
        return sum(budgets) if budgets else None

    @property
    def changes(self) -> tuple[Change, ...]:
        return tuple(change for clause in self.clauses for change in clause.changes)

    def touches(self, what: str) -> bool:
        """Whether inputs, targets or weights can change."""
        return any(change.about == what for change in self.changes)

    def observed(self, x: Tensor, samples: np.ndarray | None = None) -> Tensor:
        """The data that ordinary training sees: as they are, with a stand-in where a value is missing.

        Of training samples with these numbers, only those that the change is about: a hole elsewhere is refused.
        """
        for change in self.changes:
            filled = change.stand_in(x)
            if samples is not None and change.samples is not None:
                filled = torch.where(positions(change.touched(samples), x), filled, x)
            x = filled
        return x

    def check(self, x: Tensor, y: Tensor) -> None:
        """Refuse data that this threat cannot be about."""
        x = self.observed(x, np.arange(len(x)))
        unknown = ~torch.isfinite(x)
        if bool(unknown.any()):
            raise ValueError(
                f"{int(unknown.sum())} values of the data are NaN or infinite: add bf.threats.Missing(ranges) for NaN"
            )
        for clause in self.clauses:
            if clause.budget is not None and clause.budget > len(x):
                raise ValueError(f"at most {clause.budget} of {len(x)} samples: the budget exceeds the data")
            for change in clause.changes:
                change.about_these(len(x))
                change.fits(x, y)

    def lift(self, symbols: Symbols | None, x: Tensor, y: Tensor, index: Given) -> Lifted:
        """The batch as a set, with rows owned by the samples ``index``; intervals without ``symbols``."""
        samples = np.asarray(index.detach().cpu() if isinstance(index, Tensor) else index)
        if samples.shape != (len(x),):
            raise ValueError(f"index must hold one sample number per row: {samples.shape} for {len(x)} rows")
        if len(samples) and (samples.dtype.kind not in "iu" or samples.min() < 0):
            raise ValueError("index must hold the numbers of the samples in the whole data, counted from 0")
        if symbols is not None:
            require_room(symbols, self, x, y, samples)
        return Lifting(self, symbols, x, y, samples).lifted()

    def described(self, x: Tensor) -> list[dict[str, Any]]:
        """What a certificate must know to be asked about a smaller threat: budgets, and how each change shrinks.

        Nothing where nothing can have been changed: where every change moves features, and none of them by anything.
        """
        x = self.observed(x, np.arange(len(x)))
        found = [change.shrinks(x) for change in self.changes]
        if all(shrinks is not None and shrinks["epsilon"] == 0 for shrinks in found):
            return []
        return [
            {
                "budget": clause.budget,
                "changes": [
                    {
                        "about": change.about,
                        "recentred": not change.has_clean_state,
                        "shrinks": change.shrinks(x),
                        "exactly": of_value(change),
                        "kind": of_value((type(change), change.without_radius())),
                    }
                    for change in clause.changes
                ],
            }
            for clause in self.clauses
        ]

    def at_test_time(self, symbols: Symbols | None, x: Tensor) -> Tensor:
        """Test inputs as they could have been left: with rows of their own, or as intervals without ``symbols``."""
        if self.budget is not None:
            raise ValueError("a budget counts training samples: a test input is touched or it is not")
        if any(change.about != "inputs" for change in self.changes):
            raise ValueError("a test input has neither a label nor a weight that could change: give a threat to inputs")
        if any(change.samples is not None for change in self.changes):
            raise ValueError("a threat to some training samples says nothing about test inputs")
        return Lifting(self, symbols, x, torch.zeros(len(x)), np.arange(len(x)), guests=True).lifted().inputs


def _numbers_or_mask(given: Given, what: str) -> np.ndarray:
    """Whole numbers, or truths; bytes are numbers, which to torch are a mask."""
    chosen = np.asarray(given.detach().cpu() if isinstance(given, Tensor) else given).copy()  # which stays as it is
    if chosen.size and chosen.dtype.kind not in "biu":
        raise ValueError(f"{what} are chosen by whole numbers or by a mask of truths, not by {chosen.dtype}")
    if chosen.dtype == bool:
        return chosen
    if len(np.unique(chosen)) < chosen.size:
        raise ValueError(f"{what} are named once each: a mask is of truths (True and False), not of 0 and 1")
    return chosen.astype(np.int64)


class Both(Threat):
    """Two threats at once."""

    def __init__(self, first: Threat, second: Threat):
        self.parts = first, second
        apart = [change for part in self.parts for change in part.changes if change.exclusive]
        for what in {change.about for change in apart}:
            if sum(change.about == what for change in self.changes) > 1:
                names = " & ".join(type(change).__name__ for change in self.changes if change.about == what)
                raise ValueError(f"{names}: two changes of the {what} that do not add up")

    def __repr__(self) -> str:
        return " & ".join(map(repr, self.parts))

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """Changes without a budget together, then each budget."""
        found = [clause for part in self.parts for clause in part.clauses]
        free = tuple(change for clause in found if clause.budget is None for change in clause.changes)
        bounded = tuple(clause for clause in found if clause.budget is not None)
        return ((Clause(None, free),) if free else ()) + bounded


class AtMost(Threat):
    """At most ``k`` samples of the whole dataset touched, in the whole run: not k in every batch or step."""

    def __init__(self, k: int, threat: Threat):
        if isinstance(k, bool) or int(k) != k or k < 1:
            raise ValueError(f"at most k samples: k must be a whole number of at least 1, got {k!r}")
        if threat.budget is not None:
            raise ValueError("a budget inside a budget: write AtMost(k, A) & AtMost(m, B)")
        for change in threat.changes:
            if not change.has_clean_state:
                raise ValueError(
                    f"{type(change).__name__} has no clean state to count from: write AtMost(k, ...) & {change!r}"
                )
        self.k, self.threat = int(k), threat

    def __repr__(self) -> str:
        return f"AtMost({self.k}, {self.threat!r})"

    @property
    def clauses(self) -> tuple[Clause, ...]:
        return (Clause(self.k, self.threat.changes),)


class Change(Threat):
    """One thing that can differ about a sample."""

    about = "inputs"
    kind = Kind.BOX
    has_clean_state = True
    exclusive = False
    adds_to_one = False
    column: int | np.ndarray = NO_COLUMN  # of the inputs; rows that each move one feature tell it themselves
    samples: np.ndarray | None = None  # only these
    out_of: int | None = None  # how many samples a mask was about

    @abstractmethod
    def deviation(self, values: Tensor, raw: Tensor, budgeted: bool) -> Deviation:
        """What can happen to a batch of values (inputs, targets or weights), all positions touched.

        ``raw`` are the inputs as given, before stand-ins. Under a budget, or beside other changes, the center stays as
        observed.
        """

    @abstractmethod
    def __repr__(self) -> str:
        """The change as Python: what a certificate records."""

    @property
    def clauses(self) -> tuple[Clause, ...]:
        return (Clause(None, (self,)),)

    def on(self, samples: Given | None = None, features: Given | None = None) -> Change:
        """The same change of some samples only (numbers or a mask over the dataset), or of some features only."""
        restricted = copy.copy(self)
        if samples is not None:
            chosen = _numbers_or_mask(samples, "samples")
            restricted.out_of = len(chosen) if chosen.dtype == bool else self.out_of
            chosen = np.flatnonzero(chosen) if chosen.dtype == bool else np.unique(chosen)
            restricted.samples = chosen if self.samples is None else np.intersect1d(chosen, self.samples)
        return restricted if features is None else restricted.on_features(_numbers_or_mask(features, "features"))

    def on_features(self, features: np.ndarray) -> Change:
        raise ValueError(f"{type(self).__name__} is not about features")

    def _restricted(self) -> str:
        """The restriction to samples, as a certificate records it."""
        return "" if self.samples is None else f".on(samples={self.samples.tolist()})"

    def touched(self, samples: np.ndarray) -> np.ndarray:
        """Which positions of a batch can be touched."""
        return np.ones(len(samples), dtype=bool) if self.samples is None else np.isin(samples, self.samples)

    def stand_in(self, x: Tensor) -> Tensor:
        """Inputs with something in place of each value that is not there."""
        return x

    def shrinks(self, x: Tensor) -> dict[str, float | None] | None:
        """How its rows become those of a smaller change of the same kind; None where they do not."""
        return None

    def without_radius(self) -> str:
        """The change as text, but for the one radius that it shrinks with: what changes of other radii have, too."""
        return of_value(self)

    def encoded(self, y: Tensor, like: Tensor) -> Tensor:
        """Targets as numbers that can change, of the dtype of ``like``."""
        return y

    def about_these(self, count: int) -> None:
        """Refuse a restriction to samples that are not there."""
        if self.out_of not in (None, count):
            raise ValueError(f"this threat has a mask over {self.out_of} samples, and there are {count}")
        if self.samples is not None and len(self.samples) and not 0 <= self.samples[0] <= self.samples[-1] < count:
            raise ValueError(f"this threat is about samples up to {self.samples[-1]}, and there are {count}")

    def fits(self, x: Tensor, y: Tensor) -> None:
        """Refuse data that this change cannot be about."""
        self.deviation((x if self.about == "inputs" else y)[:1], x[:1], budgeted=True)
