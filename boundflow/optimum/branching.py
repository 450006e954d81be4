"""Which of the rows are wrong, one after the other: answers that end in certainty either way.

Bounds of a loss that is not squared leave something open. Order the rows by what they can do, and divide all datasets
within a budget of k into those in which row j is the first of the order that is wrong, for the first rows of it, and
those in which none of these is:

    k of the rows from p on  =  union over j in p .. p + T of  {j wrong} + (k - 1 of the rows after j),   and
                                k of the rows from p + T on

Of each part the optimum without further wrong labels is fitted, and the others are bounded around it (`ranges.py`).
Only test points that are still open go down. With one label left, all optima are fitted: each is enclosed by the
gradient that it leaves, over the least eigenvalue between. Parts are taken breadth first, so that when time ends what
was decided stays decided; a point is certain if it is in every part, and changed if one fitted optimum answers
otherwise.
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
from .ranges import Observed
from .training_rows import length, up

WIDTH = 16  # rows that are taken one by one in a part
BATCH = 2**27  # numbers of the products of a batch of fits
FITS, HALVINGS = 24, 20  # steps of a fit in a batch, and how often one is halved


class Branched(NamedTuple):
    """Of each point: a lower bound of its lead where it is certain (else -inf), and whether it can be changed."""

    lead: Tensor
    changed: Tensor
    ended: bool  # whether every part was looked at: what is neither certain nor changed is so by roundings alone
    parts: int


class Part(NamedTuple):
    """Rows that are wrong, from which place of the order others may be, how many, and which points are open."""

    wrong: tuple[int, ...]
    begin: int
    budget: int
    points: Tensor


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
        self.order = torch.empty(0, dtype=torch.long)

    def run(self, budget: int) -> Branched:
        every = torch.arange(len(self.label), device=self.label.device)
        parts, left, done = deque([Part((), 0, budget, every)]), torch.zeros_like(self.changed), 0
        self.order = self.observed.changes.clauses[0].touched.nonzero()[:, 0]
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

    def _ordered(self, answers: Answers, points: Tensor) -> Tensor:
        """Rows in doubt, those first that can take most off the leads of these points, as a share of what all can."""
        if answers.linear is None:
            return self._by_slopes(points)
        inputs = self.inputs.at(points)
        asked, size = answers.linear.asked(inputs.center), torch.zeros(0)
        for sign in (1.0, -1.0):
            mine = self.side[points] == sign
            terms = answers.linear.loss(asked, torch.full((1,), sign, dtype=torch.float64)).terms[0][mine]
            taken = (terms / largest(terms, answers.optimum.changes.budget)[:, None].clamp_min(1e-300)).sum(0)
            size = taken + size if len(size) else taken
        return self._descending(size)

    def _by_slopes(self, points: Tensor) -> Tensor:
        """The same by the slopes at the given weights, where no linearisation holds."""
        rows = self.observed.rows
        curvature = self.observed.loss.curvature(self.observed.logits[0], self.observed.targets)
        vectors = Inverse(rows, curvature * rows.weights).of(self.inputs.center[points]).vectors
        wrong = (1 - 2 * self.observed.targets) * rows.weights
        pulls = -(vectors @ rows.inputs.T) * wrong * self.side[points, None]
        return self._descending(pulls.clamp_min(0.0).sum(0))

    def _descending(self, size: Tensor) -> Tensor:
        touched = self.observed.changes.clauses[0].touched
        return torch.argsort(size.masked_fill(~touched, -1.0), descending=True, stable=True)[: int(touched.sum())]

    def _divided(self, part: Part, left: Tensor) -> list[Part]:
        """Settle what can be settled of a part; the parts of the rest."""
        of_part = self._observed(part)
        if not part.budget or part.begin >= len(self.order):
            self._settle(part.points, *self._answer(of_part, part.points), left)
            return []
        answers = Answers(of_part, None)
        center = self.inputs.at(part.points)
        asked = answers.asked(center)
        ahead = [answers.direction(center, asked, torch.full((1,), s, dtype=torch.float64)).lower for s in (1.0, -1.0)]
        lower = torch.where(self.side[part.points] > 0, ahead[0], ahead[1])
        sure = lower > 0
        self.lead[part.points[sure]] = torch.minimum(self.lead[part.points[sure]], lower[sure])
        points = part.points[~sure]
        if len(points):  # a dataset of this part, and of none of those into which it is divided
            self._settle(points, *self._answer(of_part, points), left)
        points = points[~self.changed[points]]
        if not len(points):
            return []
        if not part.wrong and not part.begin:
            self.order = self._ordered(answers, points)
        if part.budget == 1:
            if of_part.rows.width**2 * len(of_part.rows) > BATCH:
                left[points] = True  # too many numbers to fit every optimum
            else:
                self._fit_each(part, of_part, points, left)
            return []
        end = min(part.begin + WIDTH, len(self.order))
        places = range(part.begin, end)
        children = [Part((*part.wrong, int(self.order[place])), place + 1, part.budget - 1, points) for place in places]
        return [*children, Part(part.wrong, end, part.budget, points)]

    def _observed(self, part: Part) -> Observed:
        """The optimum where the rows of a part are wrong and no others, and what others can still do."""
        first, clause = self.observed, self.observed.changes.clauses[0]
        touched = torch.zeros_like(clause.touched)
        touched[self.order[part.begin :]] = True
        targets, codes = first.targets.clone(), first.changes.targets.clone()
        wrong = torch.tensor(part.wrong, dtype=torch.long, device=targets.device)
        targets[wrong], codes[wrong] = 1 - targets[wrong], 1 - codes[wrong]
        changes = Changes((Clause(touched, part.budget, clause.allowed),), codes, first.changes.classes)
        if not part.wrong:
            return replace(first, changes=changes, known={})
        return Observed.of(first.rows, changes, targets, first.loss, tolerance=first.tolerance, start=first.weights)

    def _answer(self, of_part: Observed, points: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds of the lead that the optimum without further wrong labels has."""
        alone = of_part.within(of_part.changes.within(0))
        answers, center = Answers(alone, None), self.inputs.at(points)
        asked = answers.asked(center)
        one = torch.ones(1, dtype=torch.float64, device=self.side.device)
        low, high = (answers.direction(center, asked, q).lower for q in (one, -one))
        positive = self.side[points] > 0
        return torch.where(positive, low, high), torch.where(positive, -high, -low)

    def _settle(self, points: Tensor, low: Tensor, high: Tensor, left: Tensor) -> None:
        self.changed[points[high < 0]] = True
        self.lead[points] = torch.minimum(self.lead[points], low)
        left[points[(low <= 0) & (high >= 0)]] = True

    # --- one label left -----------------------------------------------------------------------------------------------

    def _fit_each(self, part: Part, of_part: Observed, points: Tensor, left: Tensor) -> None:
        """All optima with one more wrong label, batch by batch."""
        least, hull = self._least(of_part)
        places = self.order[part.begin :]
        size = max(1, BATCH // (of_part.rows.width**2 + len(of_part.rows)))
        for flipped in torch.split(places, size):
            weights, off = _fits(of_part, flipped, least, hull)
            center = self.inputs.center[points]
            lead = (center @ weights.T) * self.side[points, None]
            lengths = length(center)[:, None]
            charge = rounding.gamma(of_part.rows.width + 1, lead.dtype) * (length(weights) + off) + off
            around = up(lengths * charge, 4)
            if self.inputs.radius is not None:
                around = around + up(self.inputs.radius[points] @ (weights.abs() + off[:, None]).T, weights.shape[1])
            self._settle(points, (lead - around).amin(1), (lead + around).amin(1), left)

    @staticmethod
    def _least(of_part: Observed) -> tuple[float, Tensor]:
        """The least eigenvalue of second derivatives, and the moves of logits (n, 2), those of all optima among them.

        A slope rises and then falls, so it is least at an end; the ridge alone is enough where all columns have one.
        """
        rows = of_part.rows
        everywhere = torch.tensor([-torch.inf, torch.inf], dtype=torch.float64, device=rows.inputs.device)
        ranges = of_part.ranges() if rows.free_intercept else None
        if ranges is None:
            return 0.0 if rows.free_intercept else rows.least_eigenvalue(rows.weights), everywhere[None]
        hull, (logits, error) = ranges.wider(1.01).hull(), of_part.logits
        slopes = torch.minimum(*(of_part.loss.curvature(logits + hull[:, end], of_part.targets) for end in (0, 1)))
        slopes = slopes - rounding.of_ours(32, slopes.dtype) * slopes - 0.1 * error
        return rows.least_eigenvalue(slopes.clamp_min(0.0) * rows.weights), hull


def _fits(of_part: Observed, flipped: Tensor, least: float, hull: Tensor) -> tuple[Tensor, Tensor]:
    """Weights (B, d) with one more wrong label each, and how far the optimum may be from them, at most."""
    rows, loss = of_part.rows, of_part.loss
    targets = of_part.targets.repeat(len(flipped), 1)
    targets.scatter_(1, flipped[:, None], 1 - of_part.targets[flipped][:, None])
    weights = of_part.weights.repeat(len(flipped), 1)
    outer = (rows.inputs[:, :, None] * rows.inputs[:, None, :]).flatten(1)
    for _ in range(FITS):
        logits = weights @ rows.inputs.T
        gradient = gradient_of(rows, loss.slope(logits, targets).T, weights)
        if float(gradient.abs().max()) < 2.0**-42 * len(rows):
            break
        curvature = (loss.curvature(logits, targets) * rows.weights) @ outer
        hessian = curvature.view(-1, rows.width, rows.width) + torch.diag(rows.ridge)
        step = torch.cholesky_solve(gradient[:, :, None], torch.linalg.cholesky_ex(hessian)[0])[:, :, 0]
        weights = _downhill(of_part, targets, weights, torch.nan_to_num(step))
    return weights, _distances(of_part, weights, targets, least, hull)


def _downhill(of_part: Observed, targets: Tensor, weights: Tensor, step: Tensor) -> Tensor:
    """Weights after a step each, halved until the objective does not rise."""
    rows, loss = of_part.rows, of_part.loss

    def value(at: Tensor) -> Tensor:
        return loss.value(at @ rows.inputs.T, targets) @ rows.weights + 0.5 * (rows.ridge * at * at).sum(1)

    before, factor = value(weights), torch.ones_like(weights[:, :1])
    slack = 2.0**-44 * before.abs()
    for _ in range(HALVINGS):
        worse = ~(value(weights - factor * step) <= before + slack)
        if not bool(worse.any()):
            break
        factor[worse] *= 0.5
    return weights - factor * step


def _distances(of_part: Observed, weights: Tensor, targets: Tensor, least: float, hull: Tensor) -> Tensor:
    """``|gradient| / least eigenvalue``, of the enclosed gradient and the tolerance of other solvers.

    Weights whose logits leave the hull are as far as can be: the eigenvalue is one of second derivatives inside.
    """
    rows, loss = of_part.rows, of_part.loss
    logits = weights @ rows.inputs.T
    slope = loss.slope(logits, targets)
    gradient = gradient_of(rows, slope.T, weights)
    n, dtype = len(rows) + rows.width, weights.dtype
    pulls = rows.weights * rows.norms
    error = rounding.of_ours(rows.width, dtype) * length(weights)[:, None] * rows.norms
    off, around = loss.steepest * error + loss.off(logits), error + of_part.logits[1]
    moved = logits - of_part.logits[0]
    inside = ((moved - around > hull[:, 0]) & (moved + around < hull[:, 1])).all(1)
    lost = rounding.of_ours(n, dtype) * (slope.abs() @ pulls + length(rows.ridge * weights)) + up(off, 4) @ pulls
    idle = of_part.tolerance * rows.count * float(length(rows.scale))
    found = length(gradient) + up(lost, n) + idle
    return torch.where(inside, up(found / least, 2), torch.inf) if least > 0 else torch.full_like(found, torch.inf)
