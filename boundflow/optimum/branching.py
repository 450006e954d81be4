"""Which of the rows are wrong, one after the other: answers that end in certainty either way.

Bounds of a loss that is not squared leave something open. Order the rows by what they can do, and divide all datasets
within a budget of k into those in which row j is the first of the order that is wrong, for the first rows of it, and
those in which none of these is:

    k of the rows from p on  =  union over j in p .. p + T of  {j wrong} + (k - 1 of the rows after j),   and
                                k of the rows from p + T on

Of each part the optimum without further wrong labels is fitted, and the others are bounded around it (`ranges.py`). The
datasets of a part are among those of the part that was divided, so its ranges hold, moved by how far the logits of the
two fits are apart. Only test points that are still open go down, and rows are ordered anew by what they can do to them.
With one label left, all optima are fitted at once, with the curvature of the part first: what a fit leaves of the
gradient, over the least eigenvalue, encloses its optimum, and fits go on only while a point is open in that. Parts are
taken breadth first, so that when time ends what was decided stays decided; a point is certain if it is in every part,
and changed if one enclosed optimum answers otherwise.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..arithmetic import rounding
from .changes import Changes, Clause
from .fitting import gradient_of
from .inverse import Inverse
from .linearised import largest
from .logit_bounds import Answers, Inputs
from .ranges import Observed, Ranges
from .training_rows import length, up

WIDTH = 16  # rows that are taken one by one in a part
BATCH = 2**24  # numbers of the products of a batch of fits
SHARED, FITS, HALVINGS = 3, 20, 20  # steps of a fit with the curvature of its part, all of them, and halvings of one
ATTACK = 6  # steps of a fit to the rows that seem worst


class Branched(NamedTuple):
    """Of each point: a lower bound of its lead where it is certain (else -inf), and whether it can be changed."""

    lead: Tensor
    changed: Tensor
    ended: bool  # whether every part was looked at: what is neither certain nor changed is so by roundings alone
    parts: int


class Above(NamedTuple):
    """The fit of the part that was divided, and ranges that hold there, if any were found."""

    observed: Observed
    ranges: Ranges | None


class Part(NamedTuple):
    """Rows that are wrong, which others may be, how many of them, and which points are open."""

    wrong: tuple[int, ...]
    others: Tensor
    budget: int
    points: Tensor
    above: Above | None = None


def branched(observed: Observed, inputs: Inputs, label: Tensor, budget: int, seconds: float) -> Branched:
    """Decide points (m, d) with these labels, for at most so many wrong labels, within some seconds."""
    search = _Search(observed, inputs, label, time.perf_counter() + seconds)
    return search.run(budget)


class _Search:
    def __init__(self, observed: Observed, inputs: Inputs, label: Tensor, end: float):
        self.observed, self.inputs, self.label, self.end = observed, inputs, label, end
        self.side = (2 * label - 1).double()
        self.lead = torch.full_like(self.side, torch.inf)
        self.changed = torch.zeros_like(label, dtype=torch.bool)
        self.penalised = not observed.rows.free_intercept

    def run(self, budget: int) -> Branched:
        every = torch.arange(len(self.label), device=self.label.device)
        others = self.observed.changes.clauses[0].touched.nonzero()[:, 0]
        parts, left, done = deque([Part((), others, budget, every)]), torch.zeros_like(self.changed), 0
        while parts:
            part = parts.popleft()
            part = part._replace(points=part.points[~self.changed[part.points]])
            if not len(part.points):
                continue
            if done and time.perf_counter() > self.end:
                left[part.points] = True
                continue
            parts.extend(self._divided(part, left))
            done += 1
        lead = torch.where(left | self.changed, -torch.inf, self.lead)
        return Branched(lead, self.changed, not bool(left.any()), done)

    def _terms(self, of_part: Observed, answers: Answers, points: Tensor) -> Tensor:
        """What each row can take off the leads of points, (points, n): by bounds, or by slopes where there are none."""
        center, side = self.inputs.center[points], self.side[points]
        if answers.linear is None:
            rows = of_part.rows
            vectors = self._curved(of_part).of(center).vectors
            wrong = (1 - 2 * of_part.targets) * rows.weights * of_part.changes.clauses[0].touched
            return (-(vectors @ rows.inputs.T) * wrong * side[:, None]).clamp_min(0.0)
        asked, terms = answers.linear.asked(center), torch.zeros(len(points), len(of_part.rows), dtype=side.dtype)
        for sign in (1.0, -1.0):
            terms[side == sign] = answers.linear.loss(asked, self._sign(sign)).terms[0][side == sign]
        return terms

    @staticmethod
    def _ordered(terms: Tensor, part: Part) -> Tensor:
        """Rows in doubt, those first that can take most off the leads of points, as a share of what all can."""
        size = (terms / largest(terms, part.budget)[:, None].clamp_min(1e-300)).sum(0)
        return part.others[torch.argsort(size[part.others], descending=True, stable=True)]

    @staticmethod
    def _curved(of_part: Observed) -> Inverse:
        """The inverse with the curvature at the fit of a part."""
        curvature = of_part.loss.curvature(of_part.logits[0], of_part.targets)
        return Inverse(of_part.rows, curvature * of_part.rows.weights)

    def _attack(self, part: Part, of_part: Observed, terms: Tensor, points: Tensor) -> None:
        """Fit, for each point, the dataset in which the rows are wrong that can take most off its lead."""
        flipped = torch.topk(terms, min(part.budget, len(part.others))).indices
        targets = of_part.targets.repeat(len(points), 1)
        targets.scatter_(1, flipped, 1 - targets.gather(1, flipped))
        weights, shared, least = of_part.weights.repeat(len(points), 1), self._curved(of_part), self._least(of_part)
        for _ in range(ATTACK):
            gradient = self._leads(of_part, weights, targets, least, points)[2]
            weights = _downhill(of_part, targets, weights, shared.of(gradient).vectors)
        lead, around = self._leads(of_part, weights, targets, least, points)[:2]
        self.changed[points[(lead + around < 0).any(1)]] = True

    def _sign(self, sign: float) -> Tensor:
        return torch.full((1,), sign, dtype=torch.float64, device=self.side.device)

    def _divided(self, part: Part, left: Tensor) -> list[Part]:
        """Settle what can be settled of a part; the parts of the rest."""
        of_part = self._observed(part)
        alone = self._alone(of_part, part.points)
        if not part.budget or not len(part.others):
            self._settle(part.points, *alone, left)
            return []
        self._settle(part.points, *alone, left if part.budget == 1 else None)
        if part.budget == 1 and self.penalised:
            self._fit_each(part, of_part, part.points[~self.changed[part.points]], left)
            return []
        ranges = self._ranges(part, of_part)
        of_part.known[None] = None if ranges is None else of_part.linearised(ranges)
        answers, center = Answers(of_part, None), self.inputs.at(part.points)
        asked = answers.asked(center)
        ahead = [answers.direction(center, asked, self._sign(s)).lower for s in (1.0, -1.0)]
        lower = torch.where(self.side[part.points] > 0, ahead[0], ahead[1])
        sure = lower > 0
        self.lead[part.points[sure]] = torch.minimum(self.lead[part.points[sure]], lower[sure])
        points = part.points[~sure & ~self.changed[part.points]]
        if not len(points):
            return []
        if part.budget == 1:
            self._fit_each(part, of_part, points, left)
            return []
        terms = self._terms(of_part, answers, points)
        self._attack(part, of_part, terms, points)
        going = ~self.changed[points]
        points, terms = points[going], terms[going]
        if not len(points):
            return []
        above, order = Above(of_part, ranges), self._ordered(terms, part)
        ones = [
            Part((*part.wrong, row), order[place + 1 :], part.budget - 1, points, above)
            for place, row in enumerate(order[:WIDTH].tolist())
        ]
        return [*ones, Part(part.wrong, order[WIDTH:], part.budget, points, above)]

    def _observed(self, part: Part) -> Observed:
        """The optimum where the rows of a part are wrong and no others, and what others can still do."""
        first, clause = self.observed, self.observed.changes.clauses[0]
        touched = torch.zeros_like(clause.touched)
        touched[part.others] = True
        targets, codes = first.targets.clone(), first.changes.targets.clone()
        wrong = torch.tensor(part.wrong, dtype=torch.long, device=targets.device)
        targets[wrong], codes[wrong] = 1 - targets[wrong], 1 - codes[wrong]
        changes = Changes((Clause(touched, part.budget, clause.allowed),), codes, first.changes.classes)
        above = None if part.above is None else part.above.observed
        if above is not None and torch.equal(above.targets, targets):
            return replace(above, changes=changes, known={})
        if above is None:
            return replace(first, changes=changes, known={})
        return Observed.of(first.rows, changes, targets, first.loss, tolerance=first.tolerance, start=above.weights)

    @staticmethod
    def _ranges(part: Part, of_part: Observed) -> Ranges | None:
        """Ranges that hold in a part, narrowed from those of the part above it."""
        if part.above is None or part.above.ranges is None:
            return of_part.ranges()
        (were, off), (are, error) = part.above.observed.logits, of_part.logits
        touched, moved = of_part.changes.clauses[0].touched, were - are
        slack = off + error + rounding.of_ours(4, off.dtype) * (were.abs() + are.abs())
        wrong = part.above.observed.targets != of_part.targets  # which differed there
        ends = torch.stack((moved - slack, moved + slack), 1)
        still = torch.where(wrong[:, None], part.above.ranges.changed, part.above.ranges.still) + ends
        return of_part.narrowed(Ranges(still, torch.where(touched[:, None], part.above.ranges.changed + ends, still)))

    def _alone(self, of_part: Observed, points: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds of the lead that the optimum without further wrong labels has."""
        if self.penalised:
            lead, around = self._leads(of_part, of_part.weights, of_part.targets[None], self._least(of_part), points)[
                :2
            ]
            return (lead - around)[:, 0], (lead + around)[:, 0]
        answers, center = Answers(of_part.within(of_part.changes.within(0)), None), self.inputs.at(points)
        asked = answers.asked(center)
        low, high = (answers.direction(center, asked, self._sign(s)).lower for s in (1.0, -1.0))
        positive = self.side[points] > 0
        return torch.where(positive, low, high), torch.where(positive, -high, -low)

    def _settle(self, points: Tensor, low: Tensor, high: Tensor, left: Tensor | None) -> None:
        """Count a dataset whose leads are between these; without ``left`` it is counted in another part, too."""
        self.changed[points[high < 0]] = True
        if left is not None:
            self.lead[points] = torch.minimum(self.lead[points], low)
            left[points[(low <= 0) & (high >= 0)]] = True

    # --- one label left -----------------------------------------------------------------------------------------------

    def _fit_each(self, part: Part, of_part: Observed, points: Tensor, left: Tensor) -> None:
        """All optima with one more wrong label, batch by batch, each as near as it takes to decide the points."""
        least = self._least(of_part)
        if not least[0] > 0:
            left[points] = True
            return
        shared = self._curved(of_part)
        for flipped in torch.split(part.others, max(1, BATCH // (of_part.rows.width**2 + 8 * len(of_part.rows)))):
            self._fit_batch(of_part, shared, flipped, least, points, left)

    def _fit_batch(
        self,
        of_part: Observed,
        shared: Inverse,
        flipped: Tensor,
        least: tuple[float, Tensor],
        points: Tensor,
        left: Tensor,
    ) -> None:
        targets = of_part.targets.repeat(len(flipped), 1)
        targets.scatter_(1, flipped[:, None], 1 - of_part.targets[flipped][:, None])
        pulled = (of_part.targets - 1 + of_part.targets)[flipped] * of_part.rows.weights[flipped]
        weights = of_part.weights - shared.of(of_part.rows.inputs[flipped] * pulled[:, None]).vectors
        for number in range(FITS):
            lead, around, gradient, logits = self._leads(of_part, weights, targets, least, points)
            self.changed[points[(lead + around < 0).any(1)]] = True
            kept = ~self.changed[points]
            points, lead, around = points[kept], lead[kept], around[kept]
            going = ~(lead - around > 0).all(0)
            done = ~going | (number == FITS - 1)
            if bool(done.any()):
                self.lead[points] = torch.minimum(self.lead[points], (lead - around)[:, done].amin(1))
            if not len(points) or bool(done.all()):
                left[points[~(lead - around > 0).all(1)]] = True
                return
            weights, targets, gradient, logits = weights[going], targets[going], gradient[going], logits[going]
            own = number >= SHARED and of_part.rows.width**2 * len(of_part.rows) <= BATCH
            curvature = of_part.loss.curvature(logits, targets) if own else None
            weights = _downhill(of_part, targets, weights, _steps(of_part, shared, gradient, curvature))

    def _leads(
        self, of_part: Observed, weights: Tensor, targets: Tensor, least: tuple[float, Tensor], points: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The leads (points, B) of weights (B, d), how far those of their optima may be; gradients and logits."""
        fits = Fits.of(of_part, weights, targets)
        off = _distances(of_part, fits, *least)
        center = self.inputs.center[points]
        lead = (center @ weights.T) * self.side[points, None]
        charge = rounding.gamma(of_part.rows.width + 1, lead.dtype) * (length(weights) + off) + off
        around = up(length(center)[:, None] * charge, 4)
        if self.inputs.radius is not None:
            around = around + up(self.inputs.radius[points] @ (weights.abs() + off[:, None]).T, weights.shape[1])
        return lead, around, fits.gradient, fits.logits

    @staticmethod
    def _least(of_part: Observed) -> tuple[float, Tensor]:
        """The least eigenvalue of second derivatives, and the moves of logits (n, 2), those of all optima among them.

        A slope rises and then falls, so it is least at an end; the ridge alone is enough where all columns have one.
        """
        rows = of_part.rows
        everywhere = torch.tensor([[-torch.inf, torch.inf]], dtype=torch.float64, device=rows.inputs.device)
        ranges = of_part.ranges() if rows.free_intercept else None
        if ranges is None:
            return 0.0 if rows.free_intercept else rows.least_eigenvalue(rows.weights), everywhere
        hull, (logits, error) = ranges.wider(1.01).hull(), of_part.logits
        slopes = torch.minimum(*(of_part.loss.curvature(logits + hull[:, end], of_part.targets) for end in (0, 1)))
        slopes = slopes - rounding.of_ours(32, slopes.dtype) * slopes - 0.1 * error
        return rows.least_eigenvalue(slopes.clamp_min(0.0) * rows.weights), hull


def _steps(of_part: Observed, shared: Inverse, gradient: Tensor, curvature: Tensor | None) -> Tensor:
    """Newton steps (B, d): with the curvature of the part, or with (B, n) of their own."""
    if curvature is None:
        return shared.of(gradient).vectors
    rows = of_part.rows
    outer = (rows.inputs[:, :, None] * rows.inputs[:, None, :]).flatten(1)
    hessian = ((curvature * rows.weights) @ outer).view(-1, rows.width, rows.width) + torch.diag(rows.ridge)
    return torch.nan_to_num(torch.cholesky_solve(gradient[:, :, None], torch.linalg.cholesky_ex(hessian)[0])[:, :, 0])


def _downhill(of_part: Observed, targets: Tensor, weights: Tensor, step: Tensor) -> Tensor:
    """Weights after a step each, halved until the objective does not rise."""
    rows, loss = of_part.rows, of_part.loss

    def value(at: Tensor) -> Tensor:
        return loss.value(at @ rows.inputs.T, targets) @ rows.weights + 0.5 * (rows.ridge * at * at).sum(1)

    before, factor = value(weights), torch.ones_like(weights[:, :1])
    before = before + 2.0**-44 * before.abs()
    for _ in range(HALVINGS):
        worse = ~(value(weights - factor * step) <= before)
        if not bool(worse.any()):
            break
        factor[worse] *= 0.5
    return weights - factor * step


class Fits(NamedTuple):
    """Weights (B, d), and the logits (B, n), the slopes of the loss and the gradients (B, d) that they have."""

    weights: Tensor
    logits: Tensor
    slope: Tensor
    gradient: Tensor

    @staticmethod
    def of(of_part: Observed, weights: Tensor, targets: Tensor) -> Fits:
        logits = weights @ of_part.rows.inputs.T
        slope = of_part.loss.slope(logits, targets)
        return Fits(weights, logits, slope, gradient_of(of_part.rows, slope.T, weights))


def _distances(of_part: Observed, fits: Fits, least: float, hull: Tensor) -> Tensor:
    """How far the optima may be: ``|gradient| / least eigenvalue``, enclosed, with the tolerance of other solvers.

    Weights whose logits leave the hull are as far as can be: the eigenvalue is one of second derivatives inside.
    """
    rows, loss, (weights, logits, slope, gradient) = of_part.rows, of_part.loss, fits
    if not least > 0:
        return torch.full_like(gradient[:, 0], torch.inf)
    n, dtype, pulls = len(rows) + rows.width, weights.dtype, rows.weights * rows.norms
    error = rounding.of_ours(rows.width, dtype) * length(weights)[:, None] * rows.norms
    off, around = loss.steepest * error + loss.off(logits), error + of_part.logits[1]
    moved = logits - of_part.logits[0]
    inside = ((moved - around > hull[:, 0]) & (moved + around < hull[:, 1])).all(1)
    lost = rounding.of_ours(n, dtype) * (slope.abs() @ pulls + length(rows.ridge * weights)) + up(off, 4) @ pulls
    idle = of_part.tolerance * rows.count * float(length(rows.scale))
    return torch.where(inside, up((length(gradient) + up(lost, n) + idle) / least, 2), torch.inf)
