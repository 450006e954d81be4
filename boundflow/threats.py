"""Threats are symbol sets: what an attacker could have done to the training data.

A *change* is one thing that can differ about a sample: its features, its label, its presence. Every change gives a
sample a few symbols, the same at every visit, so what the attacker did to it is the same in every epoch; `support.py`
says from which set they are chosen. Changes are joined with ``&`` (the attacker can do both), restricted with ``on``
(only these samples, only these features), and put under a budget with ``AtMost(k, ...)``: no more than k samples of the
whole dataset are touched, in the whole run.

Under a budget, symbols at zero must mean "as observed", so the center is the observed value, and a side that a valid
range cuts off is covered by one symmetric row. Only where every sample is touched may the center move.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from . import rounding
from .bounded import Bounded, Form, ball_form, concretised
from .clean import Clean, Samples
from .lift import ball
from .rules.constants import constant
from .rules.linear import combination
from .symbols import Symbols
from .terms import Kind


class Clause(NamedTuple):
    """Changes under one budget; None: every sample may be touched."""

    budget: int | None
    changes: tuple[Change, ...]


class Lifted(NamedTuple):
    """A batch as the attacker could have left it. ``weights`` are those of the samples, where they can be removed."""

    inputs: Tensor
    targets: Tensor
    weights: Bounded | None


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
                filled = torch.where(_positions(change.touched(samples), x), filled, x)
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

    def lift(self, symbols: Symbols | None, x: Tensor, y: Tensor, index: Any) -> Lifted:
        """The batch as a set, with rows owned by the samples ``index``; intervals without ``symbols``."""
        samples = np.asarray(index.detach().cpu() if isinstance(index, Tensor) else index)
        if samples.shape != (len(x),):
            raise ValueError(f"index must hold one sample number per row: {samples.shape} for {len(x)} rows")
        return _Lifting(self, symbols, x, y, samples).lifted()

    def at_test_time(self, symbols: Symbols | None, x: Tensor) -> Tensor:
        """Test inputs as they could have been left: with rows of their own, or as intervals without ``symbols``."""
        if self.budget is not None:
            raise ValueError("a budget counts training samples: a test input is touched or it is not")
        if any(change.about != "inputs" for change in self.changes):
            raise ValueError("a test input has neither a label nor a weight that could change: give a threat to inputs")
        if any(change.samples is not None for change in self.changes):
            raise ValueError("a threat to some training samples says nothing about test inputs")
        return _Lifting(self, symbols, x, torch.zeros(len(x)), np.arange(len(x)), guests=True).lifted().inputs


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


@dataclass
class Deviation:
    """What a change does to a batch of values: rows (R, B, *shape) around a center, and the interval."""

    center: Tensor
    generators: Tensor | Diagonal
    bounds: Tensor


class Diagonal:
    """One row for each feature that can move: its radius at every position, and zero at all other features.

    Written out only where rows are wanted: of images they would take more memory than there is.
    """

    def __init__(self, radius: Tensor, moving: Tensor):
        self.radius, self.features = radius, moving.flatten().nonzero()[:, 0]

    def __len__(self) -> int:
        return len(self.features)

    def written_out(self) -> Tensor:
        flat = self.radius.reshape(len(self.radius), -1)
        generators = flat.new_zeros(len(self), *flat.shape)
        generators[torch.arange(len(self), device=flat.device), :, self.features] = flat[:, self.features].T
        return generators.reshape(len(self), *self.radius.shape)

    def masked(self, mask: Tensor) -> Diagonal:
        kept = copy.copy(self)
        kept.radius = torch.where(mask, self.radius, 0.0)
        return kept


class Change(Threat):
    """One thing that can differ about a sample."""

    about = "inputs"  # or "targets", "weights", "gradients"
    kind = Kind.BOX
    has_clean_state = True
    exclusive = False  # does not add up with other changes of the same thing
    samples: np.ndarray | None = None  # only these
    out_of: int | None = None  # how many samples a mask was about

    @property
    def clauses(self) -> tuple[Clause, ...]:
        return (Clause(None, (self,)),)

    def on(self, samples: Any = None, features: Any = None) -> Change:
        """The same change of some samples only (numbers or a mask over the dataset), or of some features only."""
        restricted = copy.copy(self)
        if samples is not None:
            chosen = np.asarray(samples)
            restricted.out_of = len(chosen) if chosen.dtype == bool else self.out_of
            chosen = np.flatnonzero(chosen) if chosen.dtype == bool else np.unique(chosen.astype(np.int64))
            restricted.samples = chosen if self.samples is None else np.intersect1d(chosen, self.samples)
        return restricted if features is None else restricted.on_features(np.asarray(features))

    def on_features(self, features: np.ndarray) -> Change:
        raise ValueError(f"{type(self).__name__} is not about features")

    def _restricted(self) -> str:
        """The restriction to samples, as a certificate records it."""
        return "" if self.samples is None else f".on(samples={self.samples.tolist()})"

    def touched(self, samples: np.ndarray) -> np.ndarray:
        """Which positions of a batch can be touched."""
        return np.ones(len(samples), dtype=bool) if self.samples is None else np.isin(samples, self.samples)

    def stand_in(self, x: Tensor) -> Tensor:
        return x

    def about_these(self, count: int) -> None:
        """Refuse a restriction to samples that are not there."""
        if self.out_of not in (None, count):
            raise ValueError(f"this threat has a mask over {self.out_of} samples, and there are {count}")
        if self.samples is not None and len(self.samples) and not 0 <= self.samples[0] <= self.samples[-1] < count:
            raise ValueError(f"this threat is about samples up to {self.samples[-1]}, and there are {count}")

    def fits(self, x: Tensor, y: Tensor) -> None:
        """Refuse data that this change cannot be about."""
        self.deviation((x if self.about == "inputs" else y)[:1], x[:1], budgeted=True)

    @abstractmethod
    def deviation(self, values: Tensor, raw: Tensor, budgeted: bool) -> Deviation:
        """What can happen to a batch of values (inputs, targets or weights), all positions touched.

        ``raw`` are the inputs as given, before stand-ins. Under a budget, or beside other changes, the center stays as
        observed.
        """


class _Moved(Change):
    """Features that move by an amount of their own: the base of every ball around the observed features."""

    clip: tuple[float, float] | None = None
    features: tuple[np.ndarray, ...] = ()  # only features in all of these

    @abstractmethod
    def amounts(self, x: Tensor) -> Tensor:
        """How far each feature of each sample can move, (B, *shape) or (*shape)."""

    @abstractmethod
    def moving(self, x: Tensor) -> Tensor:
        """Which features can move at all, of any sample."""

    def fits(self, x: Tensor, y: Tensor) -> None:
        super().fits(x, y)
        self._in_range(x)

    def _in_range(self, x: Tensor) -> None:
        if self.clip is None:
            return
        chosen = x[:, self._allowed(x)]
        if bool((chosen < self.clip[0]).any()) or bool((chosen > self.clip[1]).any()):
            raise ValueError(f"the data leave the valid range [{self.clip[0]}, {self.clip[1]}] of the threat")

    def on_features(self, features: np.ndarray) -> Change:
        self.features = (*self.features, features)
        return self

    def _allowed(self, x: Tensor) -> Tensor:
        """Which features may move, (*shape)."""
        allowed = torch.ones(x.shape[1:], dtype=torch.bool, device=x.device)
        for chosen in self.features:
            mask = torch.from_numpy(chosen).to(x.device)
            if mask.dtype is not torch.bool:
                numbers, mask = mask, torch.zeros_like(allowed).flatten()
                mask[numbers] = True
                mask = mask.view(allowed.shape)
            allowed = allowed & mask
        return allowed

    def deviation(self, values: Tensor, raw: Tensor, budgeted: bool) -> Deviation:
        allowed = self._allowed(values)
        amounts = torch.where(allowed, self.amounts(values), 0.0).expand(values.shape)
        boxed = ball(values, amounts)
        center, bounds = values, boxed._bounds
        if self.clip is not None:
            self._in_range(values)
            least, most = (constant(end, values.dtype, values.device) for end in self.clip)
            bounds = torch.where(allowed, bounds.clamp(least.lower, most.upper), bounds)
            if not budgeted and self.kind is Kind.BOX and self.samples is None:
                center = rounding.middle(bounds)[0]
        # the radius is rounded up, so a symbol at 1 is a little more than the amount: the symbol covers it. What a
        # valid range cuts off shortens the rows of a box only: in a ball, features share one budget of distance
        reached = bounds if self.kind is Kind.BOX else boxed._bounds
        radius = rounding.deviation(reached, center)
        if self.kind is not Kind.BOX:  # the attacker's floats are rounded in every feature at once
            rounded = (radius - amounts.to(radius.dtype)).clamp_min(0.0).flatten(1).amax(1)
            radius = rounding.up(radius + values[0].numel() * rounded.view(-1, *(1,) * (values.dim() - 1)))
        radius = torch.where(reached[0] < reached[1], radius, 0.0)
        return Deviation(center, Diagonal(radius, allowed & self.moving(values)), bounds)

    def _options(self) -> str:
        clip = "" if self.clip is None else f", clip={self.clip}"
        return clip + ")" + "".join(f".on(features={chosen.tolist()})" for chosen in self.features)


def _amount(number: Any, name: str) -> Tensor:
    amount = torch.as_tensor(number, dtype=torch.float64)
    if bool((amount < 0).any()) or not bool(torch.isfinite(amount).all()):
        raise ValueError(f"{name} must be finite and not negative, got {number}")
    return amount


def _clip(clip: tuple[float, float] | None) -> tuple[float, float] | None:
    if clip is not None and not clip[0] < clip[1]:
        raise ValueError(f"clip must be an increasing pair, got {clip}")
    return None if clip is None else (float(clip[0]), float(clip[1]))


class Linf(_Moved):
    """Every feature moved by at most epsilon: a number, or one per feature.

    ``clip`` is the valid range of the raw features, for instance (0, 1) for pixels.
    """

    def __init__(self, epsilon: Any, clip: tuple[float, float] | None = None):
        self.epsilon, self.clip = _amount(epsilon, "epsilon"), _clip(clip)

    def __repr__(self) -> str:
        # exactly: a certificate records it
        return f"{type(self).__name__}({self.epsilon.tolist()!r}{self._options()}{self._restricted()}"

    def amounts(self, x: Tensor) -> Tensor:
        return self.epsilon.to(x.device)

    def moving(self, x: Tensor) -> Tensor:
        return (self.epsilon > 0).to(x.device).expand(x.shape[1:])


def Trigger(features: Any, low: float = 0.0, high: float = 1.0) -> Change:
    """A trigger: the chosen features (a patch of pixels, say) replaced by anything in the valid range."""
    return Linf(high - low, clip=(low, high)).on(features=features)


class L2(Linf):
    """The features of a sample moved by at most epsilon in Euclidean distance; per feature, an ellipsoid."""

    kind = Kind.BALL


class L1(Linf):
    """The features of a sample moved by at most epsilon in all, summed over the features; per feature, scaled."""

    kind = Kind.CROSS


class Tolerance(_Moved):
    """A table whose columns are only known up to a tolerance: ``{column: amount}``.

    A column is its number, or its name in ``columns``; an amount is in the units of the column, or a share of the
    observed value as "5%". A missing value is anything in its range already: a share adds nothing to it.
    """

    def __init__(self, tolerances: dict[Any, Any], columns: Sequence[str] | None = None, clip: Any = None):
        self.columns, self.clip = list(columns) if columns is not None else None, _clip(clip)
        self.absolute: dict[int, float] = {}
        self.relative: dict[int, float] = {}
        for column, amount in tolerances.items():
            if isinstance(column, str) and (self.columns is None or column not in self.columns):
                known = "give the names as columns=[...]" if self.columns is None else f"there are {self.columns}"
                raise ValueError(f"a tolerance for the column {column!r}: {known}")
            number = self.columns.index(column) if isinstance(column, str) and self.columns else int(column)
            if number < 0:
                raise ValueError(f"a tolerance for the column {column}: columns are counted from 0")
            if number in self.absolute or number in self.relative:
                raise ValueError(f"two tolerances for the column {column!r}")
            if isinstance(amount, str) and amount.strip().endswith("%"):
                self.relative[number] = float(_amount(float(amount.strip()[:-1]) / 100, "a tolerance"))
            else:
                self.absolute[number] = float(_amount(float(amount), "a tolerance"))

    def __repr__(self) -> str:
        shares = {column: f"{100 * share:.17g}%" for column, share in self.relative.items()}
        return f"Tolerance({ {**self.absolute, **shares} }{self._options()}{self._restricted()}"

    def moving(self, x: Tensor) -> Tensor:
        chosen = [column for part in (self.absolute, self.relative) for column, amount in part.items() if amount]
        moving = torch.zeros(x.shape[1:], dtype=torch.bool, device=x.device)
        moving[chosen] = True
        return moving

    def amounts(self, x: Tensor) -> Tensor:
        if x.dim() != 2:
            raise ValueError(f"tolerances are for tables of rows and columns, and the data have shape {tuple(x.shape)}")
        worst = max([*self.absolute, *self.relative], default=-1)
        if worst >= x.shape[1]:
            raise ValueError(f"a tolerance for column {worst}, and the data have {x.shape[1]} columns")
        amounts = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
        for column, amount in self.absolute.items():
            amounts[:, column] = amount
        for column, share in self.relative.items():
            amounts[:, column] = share * x[:, column].abs() * (1 + 1e-15)
        return amounts


class Quantised(_Moved):
    """Values on a grid of ``step``, written down after something moved by at most epsilon: another bin may be hit.

    The raw value lay within half a step of what was written; moved by epsilon it is written at most
    ``floor(epsilon / step) + 1`` steps away.
    """

    def __init__(self, epsilon: float, step: float, clip: tuple[float, float] | None = None):
        self.epsilon, self.clip = float(_amount(epsilon, "epsilon")), _clip(clip)
        if not step > 0:
            raise ValueError(f"the step of the grid must be positive, got {step}")
        self.step = float(step)

    def __repr__(self) -> str:
        return f"Quantised({self.epsilon!r}, {self.step!r}{self._options()}{self._restricted()}"

    def amounts(self, x: Tensor) -> Tensor:
        bins = int(self.epsilon / self.step * (1 + 1e-12)) + 1 if self.epsilon else 0
        # the written values are rounded themselves: allow for both ends
        return torch.as_tensor(bins * self.step, dtype=torch.float64, device=x.device) + bins * 4 * x.abs() * 2**-23

    def moving(self, x: Tensor) -> Tensor:
        return torch.full(x.shape[1:], self.epsilon > 0, device=x.device)


class Missing(Change):
    """Missing values (NaN) that may have been anything in the range of their column: ``(low, high)``, or one each.

    A missing value has no clean state, so it stays outside every budget.
    """

    has_clean_state = False

    def __init__(self, ranges: Any):
        self.ranges = torch.as_tensor(ranges, dtype=torch.float64)
        if self.ranges.shape[-1:] != (2,) or not bool((self.ranges[..., 0] <= self.ranges[..., 1]).all()):
            raise ValueError("ranges must be a pair (low, high), or one pair per column")
        if not bool(torch.isfinite(self.ranges).all()):
            raise ValueError("the range of a missing value must be finite")

    def __repr__(self) -> str:
        return f"Missing({self.ranges.tolist()!r}){self._restricted()}"

    def _ends(self, x: Tensor) -> Tensor:
        ends = self.ranges.to(x.device).movedim(-1, 0).to(x.dtype)
        try:
            return rounding.outward(
                ends.reshape(2, *(1,) * (x.dim() - ends.dim() + 1), *ends.shape[1:]).expand(2, *x.shape)
            )
        except RuntimeError:
            raise ValueError(f"{len(self.ranges)} ranges do not fit data of shape {tuple(x.shape)}") from None

    def stand_in(self, x: Tensor) -> Tensor:
        middle = rounding.middle(self._ends(x))[0]
        return torch.where(torch.isnan(x), middle, x)

    def deviation(self, values: Tensor, raw: Tensor, budgeted: bool) -> Deviation:
        missing = torch.isnan(raw)
        bounds = torch.where(missing, self._ends(values), values)
        radius = torch.where(missing, rounding.deviation(bounds, values), 0.0)
        wide = (self.ranges[..., 0] < self.ranges[..., 1]).to(values.device).expand(values.shape[1:])
        return Deviation(values, Diagonal(radius, wide), bounds)


class _OneOf(Change):
    """One-hot columns of which any other may be the true one: ``e_y + sum_c a_c (e_c - e_y)``, a in the simplex."""

    kind = Kind.SIMPLEX
    exclusive = True

    @staticmethod
    def alternatives(hot: Tensor, what: str) -> Tensor:
        """Rows (C - 1, B, C) from a batch of one-hot vectors to each other class."""
        classes = hot.shape[1]
        if not bool(((hot == 0) | (hot == 1)).all()) or not bool((hot.sum(1) == 1).all()):
            raise ValueError(f"{what} must be one-hot: a single 1 in every row")
        own = hot.argmax(1)
        rows = []
        for step in range(1, classes):
            other = torch.nn.functional.one_hot((own + step) % classes, classes).to(hot.dtype)
            rows.append(other - hot)
        return torch.stack(rows) if rows else hot.new_zeros(0, *hot.shape)


class Category(_OneOf):
    """One group of one-hot columns."""

    exclusive = False

    def __init__(self, columns: Sequence[int]):
        self.columns = [int(column) for column in columns]

    def __repr__(self) -> str:
        return f"Category({self.columns!r}){self._restricted()}"

    def deviation(self, values: Tensor, raw: Tensor, budgeted: bool) -> Deviation:
        if values.dim() != 2 or max(self.columns) >= values.shape[1]:
            raise ValueError(f"the columns {self.columns} do not fit data of shape {tuple(values.shape)}")
        columns = torch.tensor(self.columns, device=values.device)
        rows = self.alternatives(values[:, columns], f"the columns {self.columns}")
        generators = values.new_zeros(len(rows), *values.shape)
        generators[:, :, columns] = rows
        low, high = values.clone(), values.clone()
        low[:, columns], high[:, columns] = 0.0, 1.0
        return Deviation(values, generators, torch.stack((low, high)))


class Categories(Threat):
    """Groups of one-hot columns whose category may have been any other of its group: ``[[3, 4, 5], [6, 7]]``."""

    def __init__(self, groups: Sequence[Sequence[int]]):
        flat = [int(column) for group in groups for column in group]
        if len(set(flat)) != len(flat) or any(len(group) < 2 for group in groups):
            raise ValueError("each group needs two columns or more, and no column may be in two groups")
        self.groups = tuple(Category(group) for group in groups)

    def __repr__(self) -> str:
        return f"Categories({[group.columns for group in self.groups]!r})"

    @property
    def clauses(self) -> tuple[Clause, ...]:
        return (Clause(None, self.groups),)


class Labels(_OneOf):
    """The label of a sample: any other class; for regression, a target moved by at most ``epsilon``.

    Targets are 0 and 1, or one-hot vectors; class numbers need ``classes``.
    """

    about = "targets"

    def __init__(self, epsilon: float | None = None, classes: int | None = None):
        self.epsilon, self.classes = epsilon, classes
        if epsilon is not None:
            _amount(epsilon, "epsilon")
            self.kind = Kind.BOX

    def __repr__(self) -> str:
        named = (("epsilon", self.epsilon), ("classes", self.classes))
        options = [f"{name}={value!r}" for name, value in named if value is not None]
        return f"Labels({', '.join(options)}){self._restricted()}"

    def fits(self, x: Tensor, y: Tensor) -> None:
        if y.is_floating_point():
            super().fits(x, y)

    def encoded(self, y: Tensor, like: Tensor) -> Tensor:
        """Class numbers as one-hot vectors."""
        if y.is_floating_point():
            return y
        if self.classes is None:
            raise ValueError("class numbers as targets: write Labels(classes=10), or give one-hot targets")
        if bool((y < 0).any()) or bool((y >= self.classes).any()):
            raise ValueError(f"labels must be whole numbers from 0 to {self.classes - 1}")
        return torch.nn.functional.one_hot(y.long(), self.classes).to(like.dtype)

    def deviation(self, values: Tensor, raw: Tensor, budgeted: bool) -> Deviation:
        if self.epsilon is not None:
            boxed = ball(values, float(self.epsilon))
            moving = torch.ones(values.shape[1:], dtype=torch.bool, device=values.device)
            radius = rounding.deviation(boxed._bounds, values)
            return Deviation(values, Diagonal(radius.reshape(values.shape), moving), boxed._bounds)
        if values.dim() == 2 and values.shape[1] > 1:
            generators = self.alternatives(values, "targets")
        else:
            if not bool(((values == 0) | (values == 1)).all()):
                raise ValueError("flipped labels are for targets 0 and 1; for regression write Labels(epsilon)")
            generators = (1 - 2 * values).unsqueeze(0)
        return Deviation(values, generators, torch.stack((torch.zeros_like(values), torch.ones_like(values))))


class Removal(Change):
    """The presence of a sample: weight 0 in its slot. Batches, their order and the divisor of the mean stay."""

    about = "weights"
    kind = Kind.SIMPLEX
    exclusive = True

    def __repr__(self) -> str:
        return f"Removal(){self._restricted()}"

    def fits(self, x: Tensor, y: Tensor) -> None:
        pass

    def deviation(self, values: Tensor, raw: Tensor, budgeted: bool) -> Deviation:
        return Deviation(values, -values.unsqueeze(0), torch.stack((torch.zeros_like(values), values)))


class Replacement(Change):
    """A sample replaced by anything: other features, another label, or one that the attacker put in.

    Its influence is bounded by per-sample clipping alone: `certify(..., clip_gradients=C)`.
    """

    about = "gradients"

    def __repr__(self) -> str:
        return f"Replacement(){self._restricted()}"

    def fits(self, x: Tensor, y: Tensor) -> None:
        pass

    def deviation(self, values: Tensor, raw: Tensor, budgeted: bool) -> Deviation:
        raise ValueError(
            "a replaced sample is bounded by clipping its gradient, not by lifting a batch: use "
            "certify(..., clip_gradients=C)"
        )


class _Lifting:
    """One batch being lifted: every change's rows side by side, so that a sample's symbols are known together."""

    def __init__(
        self,
        threat: Threat,
        symbols: Symbols | None,
        x: Tensor,
        y: Tensor,
        samples: np.ndarray,
        guests: bool = False,
    ):
        self.threat, self.symbols, self.samples, self.guests = threat, symbols, samples, guests
        self.raw = x
        weights = torch.ones(len(x), dtype=x.dtype, device=x.device) if threat.touches("weights") else None
        self.values: dict[str, Any] = {
            "inputs": threat.observed(x, samples),
            "targets": self._targets(y),
            "weights": weights,
        }
        self.owners = None
        if threat.budget is not None:
            first = symbols.declare(threat) if symbols is not None else 0
            budgets = [clause.budget for clause in threat.clauses for _ in clause.changes]
            still = frozenset(first + number for number, budget in enumerate(budgets) if budget is not None)
            self.owners = Samples(samples, threat.budget, still)

    def _targets(self, y: Tensor) -> Tensor:
        for change in self.threat.changes:
            if isinstance(change, Labels):
                y = change.encoded(y, self.raw)
        return y

    def lifted(self) -> Lifted:
        found: list[tuple[Change, bool, Deviation]] = []
        parts: list[int] = []
        number = self.symbols.declare(self.threat) if self.symbols is not None else 0
        for clause in self.threat.clauses:
            for change in clause.changes:
                if isinstance(change, Replacement):  # nothing of the batch is lifted: see `clipping.py`
                    number += 1
                    continue
                values = self.values[change.about]
                alone = sum(other.about == change.about for other in self.threat.changes) == 1
                deviation = change.deviation(values, self.raw, budgeted=clause.budget is not None or not alone)
                made = self._masked(change, values, deviation)
                found.append((change, clause.budget is not None, made))
                parts += [number] * len(made.generators)
                number += 1
        rows = None
        if self.symbols is not None and self.guests and parts:
            rows = self.symbols.of_guests(len(self.samples), np.array(parts))
        elif self.symbols is not None and self.symbols.tracks and parts:
            rows = self.symbols.of_samples(self.samples, self._fingerprints(), np.array(parts))
        inputs, targets, weights = (self._set(what, found, rows, len(parts)) for what in self.values)
        if any(isinstance(change, Labels) and change.epsilon is None for change, _, _ in found):
            targets._adds_to_one = targets.dim() == 2  # whatever the label is, it is one of them
        return Lifted(inputs, targets, weights)

    def _fingerprints(self) -> np.ndarray:
        flat = [self.raw.detach().cpu().reshape(len(self.raw), -1).double()]
        if self.threat.touches("targets"):
            flat.append(self.values["targets"].detach().cpu().reshape(len(self.raw), -1).double())
        return torch.cat(flat, 1).numpy()

    def _masked(self, change: Change, values: Tensor, made: Deviation) -> Deviation:
        """Nothing moves at the positions of samples that the change is not about."""
        touched = change.touched(self.samples)
        if touched.all():
            return made
        mask = _positions(touched, values)
        bounds = torch.where(mask, made.bounds, values)
        rows = made.generators
        kept = rows.masked(mask) if isinstance(rows, Diagonal) else torch.where(mask, rows, 0.0)
        return Deviation(torch.where(mask, made.center, values), kept, bounds)

    def _set(self, what: str, found: list[tuple[Change, bool, Deviation]], rows: Any, count: int) -> Any:
        """The set of one of inputs, targets and weights."""
        values = self.values[what]
        mine = [(budgeted, made) for change, budgeted, made in found if change.about == what]
        if values is None or not mine:
            return values
        clean_bounds = _added(values, [made for budgeted, made in mine if not budgeted])
        bounds = _added(values, [made for _, made in mine])
        center = mine[0][1].center  # the observed values, unless one change has moved it
        form = ball_form(center, rounding.deviation(bounds, center)) if self.owners is not None else None
        clean = None
        if rows is not None:
            generators, begin = values.new_zeros(count, *values.shape), 0
            for change, _, made in found:
                own = made.generators
                if change.about == what:
                    written = own.written_out() if isinstance(own, Diagonal) else own
                    generators[begin : begin + len(own)] = written
                begin += len(own)
            radius = torch.zeros_like(values)
            if len(mine) > 1:  # the sum of several moves is rounded where the attacker's data are floats
                radius = rounding.gamma(len(mine), values.dtype) * bounds.abs().amax(0)
            form = Form(center, generators, radius, rows, -values.dim())
        if self.owners is not None:
            rounded = form.radius if rows is not None and form is not None else None
            clean = Clean(clean_bounds, rounded, -values.dim(), self.owners)
        if rows is None:
            return Bounded(bounds, form, self.symbols, clean=clean)
        return concretised("lift", bounds, form, self.symbols, clean=clean, sharp=False)  # the interval is exact


def _positions(touched: np.ndarray, values: Tensor) -> Tensor:
    """A mask over samples, to be broadcast over their values."""
    return torch.from_numpy(touched).to(values.device).view(-1, *(1,) * (values.dim() - 1))


def _added(values: Tensor, deviations: list[Deviation]) -> Tensor:
    """Bounds of values to which several changes are made."""
    point = torch.stack((values, values))
    if not deviations:
        return point
    if len(deviations) == 1:
        return deviations[0].bounds
    moved = [(Bounded(made.bounds), 1.0) for made in deviations]
    total = combination("lift", [*moved, (values, 1.0 - len(deviations))])._bounds
    return torch.stack((torch.minimum(total[0], values), torch.maximum(total[1], values)))


__all__ = [
    "L1",
    "L2",
    "AtMost",
    "Both",
    "Categories",
    "Category",
    "Change",
    "Deviation",
    "Kind",
    "Labels",
    "Linf",
    "Missing",
    "Quantised",
    "Removal",
    "Replacement",
    "Threat",
    "Tolerance",
    "Trigger",
]
