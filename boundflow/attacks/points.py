"""Test points, and what poisoned models answer for them.

The *lead* of a test point is that of the label which the model trained on the observed data gives it, over all others:

    z_label - max over c != label of z_c        one output z: z or -z        regression: -|z - z of the observed model|

A point is broken when a poisoned model gives it another label. Where the inputs of the test may have moved too, the
attacker moves them last, against each poisoned model: to all corners where few features move, else along the gradient.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..threats import Threat
from .freedoms import Data, Freedom, Move, clauses_of, some_of
from .steepest import Slopes, steepest
from .trainings import Parameters, Trainings

CORNERS = 4  # features up to which all corners of a test input are tried
FOLLOWED = 2  # steps along the gradient otherwise
ROOM = {"cpu": 2**24, "cuda": 2**28}  # numbers that the answers of one call may hold, roughly


@dataclass(frozen=True)
class Answers:
    """Of D models for T points: the smallest lead, whether the label changed, and the ends of all outputs found."""

    lead: Tensor
    changed: Tensor
    low: Tensor
    high: Tensor


class Points:
    """Test inputs, the threat to them, and the labels of the observed model."""

    def __init__(self, trainings: Trainings, x: Tensor, threat: Threat | None, regression: bool):
        self.trainings, self.regression = trainings, regression
        self.x = x if threat is None else threat.observed(x)
        self.data = None if threat is None else Data.of(threat, x, x.new_zeros(len(x), 1))
        self.clauses = () if threat is None or self.data is None else clauses_of(threat, self.data)
        if not any(moves(freedom) for clause in self.clauses for freedom in clause.freedoms):
            self.clauses = ()
        nominal = trainings.train(trainings.observed())
        with torch.no_grad():
            self.nominal = trainings.outputs(nominal, self.x)[0]
        self.label = self.answered(self.nominal)
        self.corners = self._corners()

    def __len__(self) -> int:
        return len(self.x)

    def answered(self, outputs: Tensor) -> Tensor:
        """The classes that outputs (..., C) stand for."""
        return (outputs[..., 0] > 0).long() if outputs.shape[-1] == 1 else outputs.argmax(-1)

    def leads(self, outputs: Tensor, points: Tensor | slice = slice(None)) -> Tensor:
        """The leads in outputs (D, T, C) of these points."""
        label, nominal = self.label[points], self.nominal[points]
        if self.regression:
            return -(outputs - nominal).abs().amax(-1)
        if outputs.shape[-1] == 1:
            return torch.where(label > 0, outputs[..., 0], -outputs[..., 0])
        own = torch.nn.functional.one_hot(label, outputs.shape[-1]).bool()
        others = outputs.masked_fill(own, -torch.inf).amax(-1)
        return (outputs * own).sum(-1) - others

    # --- all points, of every model -----------------------------------------------------------------------------------

    def answers(self, stacked: Parameters) -> Answers:
        """What every model answers, with the test inputs moved against it."""
        count = len(next(iter(stacked.values())))
        each = len(self) * (
            self.x[0].numel()
            + sum(value[0].numel() // max(1, value[0].shape[-1]) for value in stacked.values() if value[0].dim())
        )
        size = int(max(1, ROOM.get(self.x.device.type, 2**24) // max(1, each)))
        parts = [
            self._answers({name: value[begin : begin + size] for name, value in stacked.items()})
            for begin in range(0, count, size)
        ]
        names = ("lead", "changed", "low", "high")
        return Answers(*(torch.cat([getattr(part, name) for part in parts]) for name in names))

    def _answers(self, stacked: Parameters) -> Answers:
        found = None
        with torch.no_grad():
            for outputs in self._tried(stacked):
                changed = torch.zeros(outputs.shape[:2], dtype=torch.bool, device=outputs.device)
                changed = changed if self.regression else self.answered(outputs) != self.label
                now = Answers(self.leads(outputs), changed, outputs, outputs)
                found = now if found is None else _worse(found, now)
        assert found is not None
        return found

    def _tried(self, stacked: Parameters) -> Iterator[Tensor]:
        """The outputs of every model for inputs as they are, and as they were moved."""
        yield self.trainings.outputs(stacked, self.x)
        if self.corners is not None:
            for corner in self.corners:
                yield self.trainings.outputs(stacked, corner)
        elif self.clauses:
            moved = self.x
            for _ in range(FOLLOWED):
                moved = self._moved(stacked, moved)
                yield self.trainings.outputs(stacked, moved, own=True)

    def _moved(self, stacked: Parameters, x: Tensor, points: Tensor | None = None) -> Tensor:
        """Inputs moved against each model, (D, T, *shape): to the corner that the gradient at x points away from."""
        count = len(next(iter(stacked.values())))
        x = x if x.dim() > self.x.dim() else x.expand(count, *x.shape)
        with torch.enable_grad():
            x = x.detach().clone().requires_grad_()
            outputs = self.trainings.outputs({name: value.detach() for name, value in stacked.items()}, x, own=True)
            lead = self.leads(outputs) if points is None else self.leads(outputs, points[:, None])
            slope = torch.autograd.grad(lead.sum(), x)[0].flatten(2)
        return self._against(slope, points)

    def _against(self, slope: Tensor, points: Tensor | None = None) -> Tensor:
        """The best moves against slopes (D, T, F); with ``points`` (D,), of one point for each model."""
        assert self.data is not None
        if points is not None:
            clauses, data = some_of(self.clauses, self.data, points)
            return steepest(clauses, data, self._slopes(slope.transpose(0, 1))).x.transpose(0, 1)
        return steepest(self.clauses, self.data, self._slopes(slope)).x

    def _slopes(self, slope: Tensor) -> Slopes:
        assert self.data is not None
        zero = slope.new_zeros(*slope.shape[:2])
        return Slopes(slope, zero[..., None], zero)

    def _corners(self) -> Tensor | None:
        """All corners that test inputs can be moved to, (corners, T, *shape), where they are few."""
        features = self.x[0].numel()
        if not self.clauses or features > CORNERS:
            return None
        signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=features)), dtype=self.x.dtype)
        return self._against(signs.to(self.x.device)[:, None, :].expand(-1, len(self), -1))

    # --- one point for every model ------------------------------------------------------------------------------------

    def own(self, stacked: Parameters, points: Tensor) -> Tensor:
        """The lead (D,) of one point for each model, differentiable by the models: its input moved as is worst."""
        x = self.x[points][:, None]
        if self.clauses:
            x = self._worst_of(stacked, points, x)
        return self.leads(self.trainings.outputs(stacked, x, own=True), points[:, None])[:, 0]

    def _worst_of(self, stacked: Parameters, points: Tensor, x: Tensor) -> Tensor:
        if self.corners is None:
            return self._moved(stacked, x, points)
        with torch.no_grad():
            tried = torch.stack([x, *(corner[points][:, None] for corner in self.corners)])
            leads = [
                self.leads(self.trainings.outputs(stacked, each, own=True), points[:, None])[:, 0] for each in tried
            ]
            worst = torch.stack(leads).argmin(0)
        return tried[worst, torch.arange(len(points), device=x.device)]


def moves(freedom: Freedom) -> bool:
    """Whether a freedom allows anything at all: a radius of 0 does not."""
    return not isinstance(freedom, Move) or bool((freedom.amounts > 0).any())


def _worse(first: Answers, second: Answers) -> Answers:
    return Answers(
        torch.minimum(first.lead, second.lead),
        first.changed | second.changed,
        torch.minimum(first.low, second.low),
        torch.maximum(first.high, second.high),
    )
