"""What a threat to labels lets each sample add to the gradient.

With one number, or one for each class, as the target of a row, another target y' of row j adds ``w_j (y_j - y'_j) x_j``
to the gradient of the objective. Along a direction (q, v), q in the space of logits, that is ``w_j <v, x_j> d`` with

    d  =  <q, y_j - y'_j>,      between ``low_j(q)`` and ``high_j(q)`` over the targets that are allowed.

A change whose size depends on where the optimum goes (`logit_losses.py`) is asked for its own bounds of d.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..arithmetic import rounding
from ..errors import BoundFlowError
from ..tensor.lift import ball
from ..threats import Labels, Threat

ONLY = (
    "at the optimum, only labels and targets can be in doubt (Labels, alone, under AtMost, or for some samples): train "
    "on every dataset step by step for other threats, with bf.certify"
)


@dataclass(frozen=True)
class Clause:
    """Rows whose target can differ, at most ``budget`` of them (None: all), and by how much: classes or a radius."""

    touched: Tensor  # (n) of bool
    budget: int | None
    allowed: Tensor | None = None  # (n, classes) of bool, the label that stands there among them
    radius: Tensor | None = None  # (n), of numbers


@dataclass(frozen=True)
class Changes:
    """All that a threat allows, and what stands in the data: labels (n) of so many classes, or numbers (n)."""

    clauses: tuple[Clause, ...]
    targets: Tensor
    classes: int | None

    @staticmethod
    def of(threat: Threat, targets: Tensor, classes: int | None) -> Changes:
        """What a threat allows; refused by name where it is about anything but labels and targets."""
        found = []
        for clause in threat.clauses:
            for change in clause.changes:
                if not isinstance(change, Labels):
                    if change.about == "inputs" and change.shrinks(torch.zeros(1, 1)) == {"epsilon": 0.0}:
                        continue  # moves by nothing
                    raise BoundFlowError(f"{type(change).__name__}: {ONLY}")
                change.about_these(len(targets))
                found.append(_clause(change, clause.budget, targets, classes))
        if sum(clause.budget is not None for clause in found) and len(found) > 1:
            _require_apart(found)
        return Changes(tuple(found), targets, classes)

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def budget(self) -> int | None:
        """The one budget; None where there is none."""
        budgets = [clause.budget for clause in self.clauses if clause.budget is not None]
        return budgets[0] if len(budgets) == 1 else None

    def within(self, budget: int) -> Changes:
        """The same with another budget."""
        clauses = (
            clause
            if clause.budget is None
            else Clause(clause.touched & (budget > 0), budget, clause.allowed, clause.radius)
            for clause in self.clauses
        )
        return Changes(tuple(clauses), self.targets, self.classes)

    def but(self, samples: Sequence[int] | np.ndarray | Tensor) -> Changes:
        """The same where these samples are as they stand there."""
        known = torch.zeros(len(self), dtype=torch.bool, device=self.targets.device)
        known[torch.as_tensor(np.asarray(samples), dtype=torch.long, device=known.device)] = True
        clauses = (
            Clause(clause.touched & ~known, clause.budget, clause.allowed, clause.radius) for clause in self.clauses
        )
        return Changes(tuple(clauses), self.targets, self.classes)

    def bounds(self, clause: Clause, direction: Tensor) -> tuple[Tensor, Tensor]:
        """``low`` and ``high`` of every row, (n), for one direction in the space of logits; both are exact."""
        if clause.radius is not None:
            reach = clause.radius * direction.abs().sum() * clause.touched
            return -reach, reach
        if len(direction) == 1:  # one logit, targets 0 and 1: the other label changes y by 1 - 2 y
            other = clause.allowed.gather(1, 1 - self.targets[:, None])[:, 0] & clause.touched  # type: ignore[union-attr]
            moved = (2 * self.targets - 1).to(direction) * direction[0] * other
            return moved, moved
        assert clause.allowed is not None
        there = direction[self.targets]
        least = direction.masked_fill(~clause.allowed, torch.inf).amin(1)
        most = direction.masked_fill(~clause.allowed, -torch.inf).amax(1)
        return (there - most) * clause.touched, (there - least) * clause.touched


def _clause(change: Labels, budget: int | None, targets: Tensor, classes: int | None) -> Clause:
    touched = torch.from_numpy(change.touched(np.arange(len(targets)))).to(targets.device)
    if change.epsilon is not None:
        if classes is not None:
            raise ValueError("Labels(epsilon) moves numbers: classes change as Labels()")
        radius = rounding.deviation(ball(targets, change.epsilon).set.bounds, targets)  # other targets are floats, too
        return Clause(touched, budget, radius=radius)
    if classes is None:
        raise ValueError("targets that are numbers move by at most epsilon: write Labels(epsilon)")
    if change.classes not in (None, classes):
        raise ValueError(f"the threat is about {change.classes} classes, and the head is for {classes}")
    allowed = torch.ones(len(targets), classes, dtype=torch.bool, device=targets.device)
    if change.among is not None:
        allowed = torch.from_numpy(change.among).to(targets.device)
        outside = touched & ~allowed.gather(1, targets[:, None])[:, 0]
        if bool(outside.any()):
            sample = int(outside.nonzero()[0])
            raise ValueError(f"sample {sample} has the label {int(targets[sample])}, which is not among its classes")
    return Clause(touched & (allowed.sum(1) > 1), budget, allowed=allowed)


def _require_apart(clauses: Sequence[Clause]) -> None:
    """A sample in two clauses would have two changes of one label."""
    if bool((torch.stack([clause.touched for clause in clauses]).sum(0) > 1).any()):
        raise BoundFlowError("two changes of the labels of one sample: give each sample to one of them")
