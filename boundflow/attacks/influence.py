"""Greedy choice of the samples that a budget is spent on, by their influence on one test point.

    influence of changing sample i  ~  d margin / d (its label, weight, features) . change       through all of training

A few samples are added at a time, and the gradient is taken anew at the dataset that this gives. Of small budgets the
best few of each round are all trained, and the one that really lowers the margin most is kept. At the end single
samples are exchanged for others as long as that helps.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .freedoms import Clause
from .hypergradients import slopes_of
from .poisoned import Poisoned
from .search import Search
from .steepest import Slopes, best, steepest
from .trainings import Parameters

NAME = "influence"
ROUNDS = 6  # in which a large budget is spent
TRIED = 6  # samples that are trained in each round of a small budget
SMALL = 4  # budgets that are spent one by one


def counted(search: Search) -> list[int]:
    """The places of the clauses with a budget."""
    return [place for place, clause in enumerate(search.clauses) if clause.budget is not None]


def _rounds(clause: Clause) -> tuple[int, int]:
    """How many rounds there are, and how many samples each tries."""
    budget = clause.budget or 0
    return (2 * budget, TRIED) if budget <= SMALL else (ROUNDS, 1)


def planned(search: Search, steps: int, restarts: int, targets: int | None) -> int:
    del steps, restarts
    points = len(search.points) if targets is None else min(targets, len(search.points))
    each = [rounds * tried for rounds, tried in (_rounds(search.clauses[place]) for place in counted(search))]
    return points * sum(each)


def run(search: Search, steps: int, restarts: int, targets: int | None) -> None:
    del steps, restarts
    for place in counted(search):
        points = search.left()[:targets]
        for chunk in torch.split(points, search.size_of_slopes):
            chunk = chunk[~search.broken[chunk]]
            if len(chunk):
                Greedy(search, place, chunk).run()


class Greedy:
    """One dataset for each of some points; the budget of one clause is spent step by step."""

    def __init__(self, search: Search, place: int, points: Tensor):
        self.search, self.place, self.points = search, place, points
        self.clause = search.clauses[place]
        self.budget = self.clause.budget or 0
        samples = len(search.data.x)
        self.taken = torch.zeros(len(points), samples, dtype=torch.bool, device=points.device)
        self.current = search.trainings.observed().repeated(len(points)).written_out()
        self.lead = search.start[points].clone()

    def run(self) -> None:
        rounds, tried = _rounds(self.clause)
        each = 1 if tried > 1 else -(-self.budget // rounds)
        for number in range(rounds):
            slopes = self._slopes()
            gain = torch.stack([best(f, self.search.data, slopes).gain for f in self.clause.freedoms]).sum(0)
            full = int(self.taken.sum(1).max()) >= self.budget
            candidates = self._exchanged(gain, tried) if full else self._added(gain, tried, each)
            improved = self._keep_best(candidates, slopes, always=not full)
            if self._drop_broken() or (full and not improved):
                self.search.skip((rounds - number - 1) * tried * len(self.points))
                break

    def _slopes(self) -> Slopes:
        def margin(stacked: Parameters, which: Tensor) -> Tensor:
            return self.search.points.own(stacked, self.points[which])

        return slopes_of(self.search, self.current, margin, torch.arange(len(self.points), device=self.points.device))

    def _added(self, gain: Tensor, tried: int, each: int) -> list[Tensor]:
        """What is taken now and the next best: one more for each that is tried, or so many at once."""
        order = torch.where(self.taken | (gain <= 0), -torch.inf, gain)
        top = order.topk(min(max(tried, each), order.shape[1]), dim=1)
        if tried == 1:
            found = torch.zeros_like(self.taken).scatter(1, top.indices, top.values > -torch.inf)
            return [self._within_budget(self.taken | found)]
        return [self._with(top.indices[:, n], top.values[:, n] > -torch.inf) for n in range(top.indices.shape[1])]

    def _with(self, sample: Tensor, wanted: Tensor) -> Tensor:
        return self.taken | torch.zeros_like(self.taken).scatter(1, sample[:, None], wanted[:, None])

    def _within_budget(self, taken: Tensor) -> Tensor:
        """The first so many, where rounding up took too many."""
        return taken & (taken.cumsum(1) <= self.budget)

    def _exchanged(self, gain: Tensor, tried: int) -> list[Tensor]:
        """The sample of the least gain among those taken, for one that is not."""
        least = torch.where(self.taken, gain, torch.inf).argmin(1, keepdim=True)
        without = self.taken.scatter(1, least, False)
        order = torch.where(self.taken | (gain <= 0), -torch.inf, gain)
        top = order.topk(min(tried, order.shape[1]), dim=1).indices
        return [without.scatter(1, top[:, n : n + 1], True) for n in range(top.shape[1])]

    def _keep_best(self, candidates: list[Tensor], slopes: Slopes, always: bool) -> bool:
        """Train all candidates and keep the best for each point, or only if its lead is smaller; whether any was."""
        made = [
            steepest(self.search.clauses, self.search.data, slopes, taken={self.place: taken}) for taken in candidates
        ]
        leads = torch.stack([self.search.consider(one).gather(1, self.points[:, None])[:, 0] for one in made])
        least, which = leads.min(0)
        smaller = least < self.lead
        for number, (one, taken) in enumerate(zip(made, candidates, strict=True)):
            self._take((smaller | always) & (which == number), one, taken, least)
        return bool(smaller.any())

    def _take(self, better: Tensor, made: Poisoned, taken: Tensor, leads: Tensor) -> None:
        def mixed(new: Tensor, old: Tensor) -> Tensor:
            return torch.where(better.view(-1, *(1,) * (new.dim() - 1)), new, old)

        full, now = made.written_out(), self.current
        self.current = Poisoned(mixed(full.x, now.x), mixed(full.y, now.y), mixed(full.weights, now.weights))
        self.taken, self.lead = mixed(taken, self.taken), torch.where(better, leads, self.lead)

    def _drop_broken(self) -> bool:
        """Go on with the points that are not broken; whether none is left."""
        keep = torch.nonzero(~self.search.broken[self.points]).flatten()
        self.points, self.taken, self.lead = self.points[keep], self.taken[keep], self.lead[keep]
        self.current = self.current.pick(keep)
        return not len(keep)
