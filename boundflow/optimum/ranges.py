"""Where the logits of the training rows can go: the ranges on which a loss is linearised.

Row i has a range for datasets that leave its target, and one for those that change it: the k largest terms without its
own, and its own term with the k - 1 largest others. Two bounds fill them, and either may be taken where it is less.

**Chords** (`linearised.py`). **Secants**, for a loss whose label part is a tilt: exactly ``Delta = -T b`` with ``T =
(sum_i w_i m~_i x_i x_i^T + R)^-1``, m~_i the slope of the secant of psi between the two logits. If it lies in [least_i,
most_i] on the ranges, then Q <= T <= P in the order of quadratic forms, P and Q being the inverses for least and most,
and by Cauchy and Schwarz for ``T - H``, ``H = (P + Q) / 2``, ``E = (P - Q) / 2``,

    |<a, T b> - <a, H b>|  <=  |a|_E |b|_E,       and by the triangle inequality a sum over owners.

**Ranges that hold.** They are guessed, and widened until they are proven, by one of two arguments for each dataset:

- chords (Brouwer): ``Phi(Delta) = -M^-1 (g0 + b + sum_i w_i e_i(Delta) x_i)`` is continuous and bounded on the closed,
  convex set of all Delta in the ranges. If all its values are in the ranges, it has a fixed point there, which makes
  the gradient zero: the optimum. The bound of chords is one of all values of Phi.
- secants (continuity): let the gradient at the given weights be tau (g0 + b), tau from 0 to 1. The optimum moves
  continuously from the given weights, and as long as it is in the ranges it is within tau times the bound. If that lies
  strictly inside of ranges that hold 0, no row gets to an end of its own, so none ever leaves.

Afterwards they are narrowed, by both, as often as that helps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..symbols.budgets import few_largest
from . import fitting, many_rows
from .changes import Changes
from .inverse import Inverse
from .linearised import Gradient, Linearised, largest
from .logit_losses import Logistic, Loss
from .pieces import pieces
from .training_rows import Rows, length, up

MANY = 2**24  # terms of all rows and rows: beyond, lengths come first
EXPECTED = 0.4  # of how far all rows can be moved by lengths alone
OUTWARDS = torch.tensor([-1.0, 1.0])
FAR = 600.0  # no logit is followed further: beyond, a sigmoid is 0 or 1 in floats, and its slopes are nothing
WIDER, TRIES, PASSES, ENOUGH = 1.15, 24, 8, 0.02  # how guesses grow, how often, and when narrowing ends


class Ranges(NamedTuple):
    """(n, 2) each: by how much logits move where the target of their row stands, and where it is another."""

    still: Tensor
    changed: Tensor

    def hull(self) -> Tensor:
        return torch.stack(
            (
                torch.minimum(self.still[:, 0], self.changed[:, 0]).clamp_max(0.0),
                torch.maximum(self.still[:, 1], self.changed[:, 1]).clamp_min(0.0),
            ),
            1,
        )

    def within(self, other: Ranges) -> Ranges:
        """The part that both have."""
        return Ranges(
            *(
                torch.stack((torch.maximum(a[:, 0], b[:, 0]), torch.minimum(a[:, 1], b[:, 1])), 1)
                for a, b in zip(self, other, strict=True)
            )
        )

    def joined(self, other: Ranges) -> Ranges:
        """The least ranges that hold both."""
        return Ranges(
            *(
                torch.stack((torch.minimum(a[:, 0], b[:, 0]), torch.maximum(a[:, 1], b[:, 1])), 1)
                for a, b in zip(self, other, strict=True)
            )
        )

    def inside(self, other: Ranges) -> bool:
        return all(
            bool((a[:, 0] >= b[:, 0]).all()) and bool((a[:, 1] <= b[:, 1]).all())
            for a, b in zip(self, other, strict=True)
        )

    def strictly_inside(self, other: Ranges) -> bool:
        return all(
            bool((a[:, 0] > b[:, 0]).all()) and bool((a[:, 1] < b[:, 1]).all())
            for a, b in zip(self, other, strict=True)
        )

    def wider(self, factor: float) -> Ranges:
        """Longer, holding 0 inside."""
        return Ranges(
            *(
                torch.stack((ends[:, 0].clamp_max(0.0) * factor - 1e-9, ends[:, 1].clamp_min(0.0) * factor + 1e-9), 1)
                for ends in self
            )
        )

    @property
    def width(self) -> float:
        return float((self.still[:, 1] - self.still[:, 0]).mean())


@dataclass(frozen=True)
class Observed:
    """The given weights (1, d) of a loss of one logit, on the rows and targets (n) that were observed."""

    rows: Rows
    changes: Changes
    targets: Tensor
    loss: Loss
    weights: Tensor
    tolerance: float = 0.0
    known: dict[int | None, Linearised | None] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def of(
        rows: Rows,
        changes: Changes,
        targets: Tensor,
        loss: Loss,
        given: Tensor | None = None,
        tolerance: float = 0.0,
        start: Tensor | None = None,
    ) -> Observed:
        """Fitted, from a ``start``, or the given weights."""
        weights = fitting.newton(rows, targets, loss, start) if given is None else given
        return Observed(rows, changes, targets, loss, weights, tolerance)

    @cached_property
    def logits(self) -> tuple[Tensor, Tensor]:
        """Logits of the rows, and how far each is off, at most."""
        logits, error = fitting.logits_of(self.rows, self.weights)
        return logits[:, 0], error[:, 0]

    @cached_property
    def gradient(self) -> Gradient:
        logits, error = self.logits
        off = self.loss.steepest * error + self.loss.off(logits)
        slope = self.loss.slope(logits, self.targets)
        return fitting.left(self.rows, slope[:, None], off[:, None], self.weights, self.tolerance)

    def linear(self, budget: int | None) -> Linearised | None:
        """The linearisation for a budget, over ranges that hold; None where none were found."""
        if budget not in self.known:
            of_budget = self if budget is None else self.within(self.changes.within(budget))
            ranges = of_budget.ranges()
            self.known[budget] = None if ranges is None else of_budget.linearised(ranges)
        return self.known[budget]

    # --- one linearisation ----------------------------------------------------------------------------------------

    def linearised(self, ranges: Ranges) -> Linearised:
        """By chords over the ranges of rows that stand as observed."""
        logits, error = self.logits
        (low, high), (other_low, other_high) = (
            (ends[:, 0] - error, ends[:, 1] + error) for ends in (ranges.still, ranges.changed)
        )
        chord = self.loss.chord(logits, self.targets, low, high)
        other = self.loss.missed(logits, self.targets, other_low, other_high, chord.slope)
        off = 2 * self.loss.steepest * error
        still = torch.stack((chord.least - off, chord.most + off), 1)
        changed = torch.stack((other.least - off, other.most + off), 1)
        beyond = self.loss.beyond(self.targets, logits + other_low, logits + other_high)
        if beyond is not None:
            changed = changed + torch.stack(beyond, 1)
        inverse = Inverse(self.rows, chord.slope * self.rows.weights)
        return Linearised(self.rows, self.changes, inverse, self.gradient, still, changed)

    def by_chords(self, ranges: Ranges) -> Ranges:
        """Where the logits of the rows can go, if they are in these ranges."""
        return self._swept(self.linearised(ranges))

    def _swept(self, linear: Linearised) -> Ranges:
        """Every row held against every other."""
        clause = self.changes.clauses[0]
        sides = [torch.tensor([side], dtype=torch.float64, device=self.targets.device) for side in (1.0, -1.0)]
        slopes = [linear.slopes(clause, side) for side in sides]
        ends: tuple[list[tuple[Tensor, Tensor]], ...] = ([], [])
        for places in self._pieces():
            asked = linear.asked(self.rows.inputs[places])
            own = asked.weighted.gather(1, places[:, None])[:, 0]
            reach = asked.error * self.rows.weights[places] * self.rows.norms[places]
            for side, (lower, upper), end in zip(sides, slopes, ends, strict=True):
                loss, lower, upper = linear.loss(asked, side), lower[places], upper[places]
                mine = torch.where(own > 0, own * upper, own * lower)
                mine = mine + up(reach * torch.maximum(lower.abs(), upper.abs()), 4)
                end.append(self._without_own(loss.terms[0], mine, loss.fixed, loss.error, places))
        down, up_ = ([torch.cat(part) for part in zip(*end, strict=True)] for end in ends)
        return _from_losses(down, up_)

    def by_kept(self, ranges: Ranges) -> Ranges:
        """The same for very many rows, wider (`many_rows.py`)."""
        still, changed = many_rows.moved(self.linearised(ranges), self.kept)
        return Ranges(still * OUTWARDS.to(still), changed * OUTWARDS.to(still))

    @cached_property
    def kept(self) -> many_rows.Kept:
        """Directions for slopes over about the ranges that are to be expected, and what other targets do there."""
        linear = self.linearised(self._point())
        size = linear.inverse.norms(self.rows.inputs, linear.inverse.of(self.rows.inputs))
        clause = self.changes.clauses[0]
        far = largest((size * self.rows.weights * clause.touched)[None], clause.budget)
        about = (EXPECTED * size * far)[:, None] * OUTWARDS.to(size)
        inverse = self.linearised(Ranges(about, about)).inverse
        none = Gradient(torch.zeros_like(self.weights), torch.zeros_like(self.weights), 0.0)
        found = self._swept(Linearised(self.rows, self.changes, inverse, none))
        return many_rows.Kept(inverse.of(self.rows.inputs), *(ends * OUTWARDS.to(size) for ends in found))

    def by_secants(self, ranges: Ranges) -> Ranges:
        """The same by inverses between which the true one lies."""
        logits, error = self.logits
        hull = ranges.hull()
        least, most = self.loss.secants(logits, self.targets, hull[:, 0] - error, hull[:, 1] + error)
        slack = 0.1 * error
        least, most = (least - slack).clamp_min(0.0), (most + slack).clamp_max(self.loss.steepest)
        middle, spread = Between.of(self.rows, least * self.rows.weights, most * self.rows.weights)
        clause, sign = self.changes.clauses[0], torch.ones(1, dtype=torch.float64, device=logits.device)
        moves = self.changes.bounds(clause, sign)[0] * self.rows.weights
        far = spread.norms(self.rows.inputs, self.rows.norms)
        reaches = up(far * moves.abs(), 4)
        value, off = self.gradient.value[0], self.gradient.error[0]
        idle = float(length(off)) + self.gradient.tolerance * float(length(self.rows.scale))
        idle = idle / spread.least if spread.least > 0 else float("inf")  # what is not known of the gradient
        pulls = float(spread.norms(value[None], length(value[None]))[0])
        ends: list[list[tuple[Tensor, Tensor]]] = [[], []]
        charge = rounding.of_ours(2 * self.rows.width + 4, torch.float64) * spread.size
        for places in self._pieces():
            turned = self.rows.inputs[places] @ middle
            tilt = turned @ self.rows.inputs.T * moves
            radius = far[places, None] * reaches + charge * (
                self.rows.norms[places, None] * self.rows.norms * moves.abs()
            )
            fixed = turned @ value
            around = far[places] * pulls + self.rows.norms[places] * (idle + charge * float(length(value)))
            none = torch.zeros_like(fixed)
            for end, side in zip(ends, (1.0, -1.0), strict=True):
                terms = (side * tilt + up(radius, 4)).masked_fill_(~clause.touched, 0.0)
                own = terms.gather(1, places[:, None])[:, 0]
                end.append(self._without_own(terms.clamp_min_(0.0), own, side * fixed + up(around, 4), none, places))
        lower, upper = ([torch.cat(part) for part in zip(*end, strict=True)] for end in ends)
        return _from_losses(lower, upper)

    def _pieces(self) -> Iterator[Tensor]:
        """Rows, so many that their terms are few."""
        n = len(self.rows)
        for piece in pieces(n, self.rows.at_a_time, "training rows"):
            yield torch.arange(n, device=self.targets.device)[piece]

    def _without_own(
        self, positive: Tensor, own: Tensor, fixed: Tensor, error: Tensor, places: Tensor
    ) -> tuple[Tensor, Tensor]:
        """How far rows can go down: as observed, by the k largest others; changed, by its own and k - 1 others."""
        clause = self.changes.clauses[0]
        n = positive.shape[1]
        k = n if clause.budget is None else min(clause.budget, n)
        mine = positive.gather(1, places[:, None])[:, 0]
        if not 0 < k < n:
            sums = positive.sum(1, keepdim=True) * min(k, 1)
            others = fewer = (sums[:, 0] - mine).clamp_min(0.0)
        else:
            values = few_largest(positive, k + 1).sort(descending=True).values
            sums = torch.nn.functional.pad(values, (1, 0)).cumsum(1)
            others = torch.where(mine >= values[:, k - 1], sums[:, k + 1] - mine, sums[:, k])
            before = values[:, k - 2] if k > 1 else torch.full_like(mine, torch.inf)
            fewer = torch.where(mine >= before, sums[:, k] - mine, sums[:, k - 1])
        slack = rounding.of_ours(k + 8, positive.dtype) * sums[:, -1] + up((k + 1) * error, 4)
        slack = slack + rounding.of_ours(4, positive.dtype) * (fixed.abs() + own.abs())
        touched = clause.touched[places]
        stays = fixed + others + slack
        return stays, torch.where(touched, fixed + own + fewer + slack, stays)

    # --- ranges -----------------------------------------------------------------------------------------------------

    def ranges(self) -> Ranges | None:
        """Ranges that hold; None where none were found."""
        bounds = [(self.by_chords, Ranges.inside), (self.by_secants, Ranges.strictly_inside)][: 1 + self.tilts]
        if self._many:
            bounds = [(self.by_kept, Ranges.inside), *bounds]
        first = bounds[0][0](self._point()).wider(WIDER)
        for bound, proven in bounds:
            guess = first
            for _ in range(TRIES):
                if not float(guess.hull().abs().max()) <= FAR:
                    break
                found = bound(guess)
                if proven(found, guess):
                    return self.narrowed(found)
                guess = guess.joined(found.wider(WIDER))
        return None

    def _point(self) -> Ranges:
        """Rows that stay where they are."""
        point = torch.zeros(len(self.rows), 2, dtype=torch.float64, device=self.targets.device)
        return Ranges(point, point)

    @property
    def _many(self) -> bool:
        """Whether there are too many rows to look at every two of them often."""
        return len(self.rows) ** 2 > MANY

    @property
    def tilts(self) -> bool:
        """Whether another target tilts the objective, and does nothing else."""
        return isinstance(self.loss, Logistic) and self.loss.of_classes is None

    def narrowed(self, found: Ranges) -> Ranges:
        """The part of ranges that hold which is left by each bound in turn, for as long as that helps."""
        if self._many:
            return self._passed(found, [self.by_kept])
        return self._passed(found, [self.by_chords, self.by_secants][: 1 + self.tilts])

    def _passed(self, found: Ranges, bounds: Sequence[Callable[[Ranges], Ranges]]) -> Ranges:
        for _ in range(PASSES):
            before = found.width
            for bound in bounds:
                found = found.within(bound(found))
            if found.width > (1 - ENOUGH) * before:
                break
        return found

    def within(self, changes: Changes) -> Observed:
        return replace(self, changes=changes, known={})


def _from_losses(down: list[Tensor], up_: list[Tensor]) -> Ranges:
    return Ranges(*(torch.stack((-low, high), 1) for low, high in zip(down, up_, strict=True)))


class Between(NamedTuple):
    """``E`` as it is known, in floats: ``|a|_E^2`` of its float, and what is added for each |a|^2."""

    half: Tensor
    slack: float
    size: float  # of the entries of H together
    least: float  # eigenvalue of all matrices between

    @staticmethod
    def of(rows: Rows, least: Tensor, most: Tensor) -> tuple[Tensor, Between]:
        """``H`` and ``E``: the inverses are known up to what their columns leave, over the least eigenvalue."""
        unit = torch.eye(rows.width, dtype=torch.float64, device=rows.inputs.device)
        found, off, inverses = [], 0.0, [Inverse(rows, slopes) for slopes in (least, most)]
        for inverse in inverses:
            directions = inverse.of(unit)
            off += float(length(directions.left)) / inverse.least if inverse.least > 0 else float("inf")
            found.append((directions.vectors + directions.vectors.T) / 2)
        larger, smaller = found
        size = float(length(larger.reshape(1, -1))[0])
        charge = rounding.of_ours(2 * rows.width + 8, torch.float64) * size
        return (larger + smaller) / 2, Between((larger - smaller) / 2, off + 2 * charge, size, inverses[0].least)

    def norms(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        square = ((vectors @ self.half) * vectors).sum(1).clamp_min(0.0)
        return up((square + self.slack * lengths.square()).sqrt(), 8)
