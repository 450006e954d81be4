"""What all attacks share: a dataset is checked, trained and asked, and what it breaks is written down.

    certified  <=  what is true  <=  attacked

A dataset counts only if it is inside the exact threat. With a certificate at hand every trained model is also a test of
it: parameters and outputs must lie between its bounds, and the label of a certified point must stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .freedoms import Clause, Data, Freedom, Label, Presence
from .membership import allowed
from .points import Points
from .poisoned import Poisoned
from .trainings import Trainings
from .watch import Watch

SMALL = 3.0  # a point whose lead fell by less than this share of what is left is not tried again


class Progress(NamedTuple):
    """How far an attack is."""

    attack: str
    done: int  # trainings, or as many as were left out
    planned: int
    broken: int
    points: int


class Spent(Exception):
    """As many trainings were made as were allowed."""


class Search:
    """Everything found so far about one run."""

    def __init__(
        self,
        trainings: Trainings,
        clauses: tuple[Clause, ...],
        data: Data,
        points: Points,
        right: Tensor,
        watch: Watch | None,
        seed: int,
        budget: int | None,
        tell: Callable[[Progress], None],
    ):
        self.trainings, self.clauses, self.data, self.points = trainings, clauses, data, points
        self.right, self.watch, self.tell, self.budget = right, watch, tell, budget
        device = points.x.device
        self.generator = torch.Generator().manual_seed(seed)
        self.start = points.leads(points.nominal[None])[0]
        self.lead = self.start.clone()
        self.broken = torch.zeros(len(points), dtype=torch.bool, device=device)
        self.found_by: list[str | None] = [None] * len(points)
        self.worst, self.worst_breaks, self.worst_attack = trainings.observed(), -1, "none"
        self.attack, self.made, self.outside, self.done, self.planned = "none", 0, 0, 0, 0
        self.moves = any(_of_inputs(freedom) for clause in clauses for freedom in clause.freedoms)
        self.size, self.size_of_slopes = (trainings.at_once(self.moves, derivatives) for derivatives in (False, True))

    def begin(self, attack: str, planned: int) -> None:
        self.attack, self.planned, self.done = attack, max(1, planned), 0
        self._told(0)

    def _told(self, more: int) -> None:
        self.done = min(self.planned, self.done + more)
        self.tell(Progress(self.attack, self.done, self.planned, int((self.broken & self.right).sum()), len(self.lead)))

    def skip(self, count: int) -> None:
        """So many trainings of the plan are not needed."""
        self._told(count)

    def consider(self, poisoned: Poisoned) -> Tensor:
        """The leads (D, T) under these datasets; those outside the threat, which should not be, count for nothing."""
        return torch.cat(
            [
                self._consider(poisoned.pick(slice(begin, begin + self.size)))
                for begin in range(0, poisoned.count, self.size)
            ]
        )

    def _consider(self, poisoned: Poisoned) -> Tensor:
        if self.budget is not None and self.made + poisoned.count > self.budget:
            raise Spent
        fits = allowed(self.clauses, self.data, poisoned)
        stacked = self.trainings.train(poisoned)
        answers = self.points.answers(stacked)
        self.made += poisoned.count
        self.outside += int((~fits).sum())
        lead = torch.where(fits[:, None], answers.lead, torch.inf)
        changed = answers.changed & fits[:, None]
        if self.watch is not None:
            self.watch.look(self.attack, poisoned, fits, stacked, answers)
        self._note(poisoned, lead, changed)
        self._told(poisoned.count)
        return lead

    def _note(self, poisoned: Poisoned, lead: Tensor, changed: Tensor) -> None:
        self.lead = torch.fmin(self.lead, lead.amin(0))
        new = changed.any(0) & ~self.broken
        for point in torch.nonzero(new).flatten().tolist():
            self.found_by[point] = self.attack
        self.broken = self.broken | new
        breaks = (changed & self.right).sum(1)
        most = int(breaks.argmax())
        if int(breaks[most]) > self.worst_breaks:
            self.worst_breaks, self.worst_attack = int(breaks[most]), self.attack
            self.worst = poisoned.written_out().pick([most])

    def has(self, *kinds: type[Freedom]) -> bool:
        """Whether the threat has a freedom of one of these kinds."""
        return any(isinstance(freedom, kinds) for clause in self.clauses for freedom in clause.freedoms)

    # --- what is left to do -----------------------------------------------------------------------------------------

    def left(self, again: bool = False) -> Tensor:
        """Points that are not broken yet, the nearest first and certified ones last.

        ``again``: only those whose lead fell visibly.
        """
        wanted = ~self.broken
        if again and not self.points.regression:
            wanted = wanted & (self.lead < SMALL * (self.start - self.lead))
        chosen = torch.nonzero(wanted).flatten()
        chosen = chosen[self.lead[chosen].argsort(stable=True)]
        if self.watch is None:
            return chosen
        certified = self.watch.certified[chosen]
        return torch.cat((chosen[~certified], chosen[certified]))

    def random(self, *shape: int) -> Tensor:
        """Normal numbers of the dtype of the data, from the seed of the attack."""
        drawn = torch.randn(*shape, generator=self.generator, dtype=torch.float64)
        return drawn.to(self.data.x.device, self.data.x.dtype)


def _of_inputs(freedom: Freedom) -> bool:
    """Whether inputs can change, and not only labels, targets or weights."""
    return not isinstance(freedom, Label | Presence) and getattr(freedom, "about", "inputs") == "inputs"
