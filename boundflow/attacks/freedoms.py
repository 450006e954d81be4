"""What a threat allows, read off its description in plain numbers: what may move, how far, and in which range.

    Move        x' with |x' - x| <= amount (box), or |(x' - x) / amount| <= 1 in the l2 (ball) or l1 norm (cross),
                and low <= x' <= high
    Grid        another point of a grid, at most so many steps away
    OneOf       another one-hot vector in some columns, or zeros where it may be unknown; where it is missing, any
    Label       another class
    Presence    weight 0
    Anything    other features and another label

Amounts are float64 and exact, save a share of a value, which is rounded down. Inputs are flat: (samples, features).
Nothing of the sets that bounds are made of is used: the certificate and the attack read the threat each for themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, nextafter

import numpy as np
import torch
from torch import Tensor

from ..threats import (
    L1,
    L2,
    Category,
    Change,
    Labels,
    Linf,
    Missing,
    MissingCategory,
    Quantised,
    Removal,
    Replacement,
    Threat,
    Tolerance,
)


@dataclass(frozen=True)
class Freedom:
    """One thing that may differ about the samples in ``touched``, (N,)."""

    touched: Tensor


@dataclass(frozen=True)
class Move(Freedom):
    """Values that move by an amount of their own."""

    kind: str  # box, ball or cross
    about: str  # inputs or targets
    amounts: Tensor
    low: Tensor
    high: Tensor


@dataclass(frozen=True)
class Grid(Freedom):
    """Values on a grid."""

    features: Tensor  # which may move
    bins: int
    step: float
    low: float
    high: float

    def points(self, numbers: Tensor, dtype: torch.dtype) -> Tensor:
        """Points of the grid by their numbers, as floats."""
        return (numbers * self.step).clamp(self.low, self.high).to(dtype)


@dataclass(frozen=True)
class OneOf(Freedom):
    """Columns of which one is 1 and the others are 0; or all are 0, if ``none``."""

    columns: tuple[int, ...]
    none: bool = False


@dataclass(frozen=True)
class Label(Freedom):
    """The class of a sample."""


@dataclass(frozen=True)
class Presence(Freedom):
    """Whether a sample is there."""


@dataclass(frozen=True)
class Anything(Freedom):
    """A sample that may be any other. An attack looks no further than the ``low`` and ``high`` of what was observed."""

    low: Tensor
    high: Tensor


@dataclass(frozen=True)
class Clause:
    """Freedoms that touch the same samples: at most ``budget`` of them, or all."""

    budget: int | None
    freedoms: tuple[Freedom, ...]


@dataclass(frozen=True)
class Data:
    """Samples as they were observed: flat inputs with a stand-in for what is missing, and what was missing."""

    x: Tensor  # (N, F)
    y: Tensor  # (N, T), as numbers
    missing: Tensor  # (N, F)
    shape: torch.Size  # of one input

    @staticmethod
    def of(threat: Threat, x: Tensor, y: Tensor) -> Data:
        return Data(threat.observed(x).flatten(1), y, torch.isnan(x).flatten(1), x.shape[1:])


def clauses_of(threat: Threat, data: Data) -> tuple[Clause, ...]:
    """The clauses of a threat, in plain numbers."""
    found = tuple(
        Clause(clause.budget, tuple(_freedom(change, data) for change in clause.changes)) for clause in threat.clauses
    )
    _require_known_sums(found)
    return found


def some_of(clauses: tuple[Clause, ...], data: Data, samples: Tensor) -> tuple[tuple[Clause, ...], Data]:
    """The same for some of the samples."""

    def picked(freedom: Freedom) -> Freedom:
        names = ("touched", "amounts", "low", "high") if isinstance(freedom, Move) else ("touched",)
        return replace(freedom, **{name: getattr(freedom, name)[samples] for name in names})

    found = tuple(Clause(clause.budget, tuple(map(picked, clause.freedoms))) for clause in clauses)
    return found, Data(data.x[samples], data.y[samples], data.missing[samples], data.shape)


def _require_known_sums(clauses: tuple[Clause, ...]) -> None:
    """Refuse two balls for one sample: whether a move is the sum of two in them is not decided here."""
    balls = [f for clause in clauses for f in clause.freedoms if isinstance(f, Move) and f.kind != "box"]
    for number, first in enumerate(balls):
        if any(bool((first.touched & second.touched).any()) for second in balls[number + 1 :]):
            raise ValueError("two balls for the same samples: attacks know the sum of boxes and one ball, not of two")


def _freedom(change: Change, data: Data) -> Freedom:
    samples, device = len(data.x), data.x.device
    touched = torch.ones(samples, dtype=torch.bool, device=device)
    if change.samples is not None:
        touched = torch.zeros_like(touched)
        touched[torch.from_numpy(change.samples).to(device)] = True
    if isinstance(change, Removal):
        return Presence(touched)
    if isinstance(change, Replacement):
        return Anything(touched, data.x.amin(0), data.x.amax(0))
    if isinstance(change, Category):
        return OneOf(touched, tuple(change.columns), change.unknown)
    if isinstance(change, MissingCategory):
        return OneOf(touched & data.missing[:, list(change.columns)].all(1), tuple(change.columns))
    if isinstance(change, Labels) and change.epsilon is not None:
        return _move("box", "targets", touched, torch.full_like(data.y, change.epsilon, dtype=torch.float64))
    if isinstance(change, Labels):
        return Label(touched)
    if isinstance(change, Missing):
        return _missing(change, touched, data)
    if isinstance(change, Quantised):
        return _grid(change, touched, data)
    if isinstance(change, Tolerance | Linf):
        return _moved(change, touched, data)
    raise ValueError(
        f"attacks do not know the threat {type(change).__name__}: say in boundflow/attacks/freedoms.py what it allows"
    )


def _move(kind: str, about: str, touched: Tensor, amounts: Tensor, low: float = -inf, high: float = inf) -> Move:
    ends = (torch.full_like(amounts, end) for end in (low, high))
    return Move(touched, kind, about, torch.where(touched[:, None], amounts, 0.0), *ends)


def _missing(change: Missing, touched: Tensor, data: Data) -> Move:
    unknown = data.missing & touched[:, None] & _features(change, data)  # other holes are not for this range
    ranges = change.ranges.to(data.x.device)
    low, high = (ranges[..., end].expand(data.shape).flatten().expand(data.x.shape) for end in (0, 1))
    amounts = torch.where(unknown, inf, 0.0).double()
    return Move(touched, "box", "inputs", amounts, torch.where(unknown, low, -inf), torch.where(unknown, high, inf))


def _grid(change: Quantised, touched: Tensor, data: Data) -> Grid:
    bins = int(Fraction(change.epsilon) / Fraction(change.step)) + 1 if change.epsilon else 0
    low, high = change.clip or (-inf, inf)
    return Grid(touched, _features(change, data), bins, change.step, low, high)


def _moved(change: Tolerance | Linf, touched: Tensor, data: Data) -> Move:
    kind = "ball" if isinstance(change, L2) else "cross" if isinstance(change, L1) else "box"
    amounts = torch.where(_features(change, data), _amounts(change, data), 0.0)
    return _move(kind, "inputs", touched, amounts, *(change.clip or (-inf, inf)))


def _amounts(change: Tolerance | Linf, data: Data) -> Tensor:
    """How far each feature may move, in float64."""
    if isinstance(change, Linf):
        return change.epsilon.to(data.x.device).expand(data.shape).flatten().expand(data.x.shape)
    amounts = torch.zeros(data.x.shape, dtype=torch.float64, device=data.x.device)
    for column, amount in change.absolute.items():
        amounts[:, column] = amount
    for column, share in change.relative.items():
        values = torch.where(data.missing[:, column], 0.0, data.x[:, column].double().abs())  # it adds nothing to these
        amounts[:, column] = torch.tensor([_product(share, value) for value in values.tolist()], dtype=torch.float64)
    return amounts


def _product(share: float, value: float) -> float:
    """The largest float64 that is not above the product of two."""
    rounded = share * value
    return rounded if Fraction(rounded) <= Fraction(share) * Fraction(value) else nextafter(rounded, -inf)


def _features(change: Tolerance | Linf | Quantised | Missing, data: Data) -> Tensor:
    """Which features may move, (F,)."""
    allowed = np.ones(tuple(data.shape), dtype=bool)
    for chosen in change.features:
        mask = chosen
        if chosen.dtype != bool:
            mask = np.zeros(allowed.size, dtype=bool)
            mask[chosen] = True
            mask = mask.reshape(allowed.shape)
        allowed = allowed & mask
    return torch.from_numpy(allowed.reshape(-1)).to(data.x.device)
