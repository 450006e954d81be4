"""Bounds of what every optimum answers: logits and leads, for single inputs or boxes of them.

A direction q in the space of logits (a logit, or one less another) has, at the features a of an input,

    <q, Theta' a>  >=  <q, Theta a>  -  how far it can go down (`linearised.py`)  -  roundings

for every dataset. Roundings are those of ``Theta a`` here, and those of a plain model that computes ``Theta' a`` in
floats: gamma_d times ``|Theta'_q| |a|``, with ``|Theta'_q| <= |Theta_q| + |Delta|``. An input that may itself lie
anywhere in a box adds, for every feature, its radius times the largest modulus of the coefficient.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..arithmetic import rounding
from .changes import Changes
from .linearised import Asked, Linearised
from .pieces import pieces
from .training_rows import Rows, length, up


class Optimum(Protocol):
    """Given weights (outputs, d), and a linearisation for every budget; None where nothing is known."""

    @property
    def rows(self) -> Rows: ...
    @property
    def changes(self) -> Changes: ...
    @property
    def weights(self) -> Tensor: ...
    def linear(self, budget: int | None) -> Linearised | None: ...


class Inputs(NamedTuple):
    """Features (m, d) in scaled coordinates, and how far each may be from there (m, d); None: they are points."""

    center: Tensor
    radius: Tensor | None = None

    def at(self, places: Tensor | slice) -> Inputs:
        return Inputs(self.center[places], None if self.radius is None else self.radius[places])


class Direction(NamedTuple):
    """A direction in the space of logits: what every input has by the given weights, and how far down it can go."""

    value: Tensor  # (m)
    charge: Tensor  # (m), of roundings and boxes
    down: Tensor  # (m)

    @property
    def lower(self) -> Tensor:
        found = self.value - self.charge - self.down
        size = self.value.abs() + self.charge + self.down.abs()
        found = found - rounding.of_ours(4, found.dtype) * size
        return torch.nan_to_num(found, nan=-torch.inf)


class Answers:
    """What optima answer within one budget."""

    def __init__(self, optimum: Optimum, budget: int | None):
        self.optimum, self.budget, self.linear = optimum, budget, optimum.linear(budget)
        self._moduli: dict[tuple[float, ...], Tensor] = {}

    def pieces(self, count: int) -> Iterator[slice]:
        """Inputs at a time."""
        return pieces(count, self.optimum.rows.at_a_time, "inputs")

    def asked(self, inputs: Inputs) -> Asked | None:
        return None if self.linear is None else self.linear.asked(inputs.center)

    def direction(self, inputs: Inputs, asked: Asked | None, q: Tensor) -> Direction:
        """One direction for these inputs."""
        weights = self.optimum.weights
        value = inputs.center @ (q @ weights)
        if self.linear is None or asked is None:
            never = torch.full_like(value, torch.inf)
            return Direction(value, torch.zeros_like(value), never)
        far = float(q.abs() @ length(weights)) + self.linear.distance(q)
        size = length(inputs.center) if inputs.radius is None else length(inputs.center) + length(inputs.radius)
        charge = rounding.gamma(self.optimum.rows.width + len(q), value.dtype) * far * size
        if inputs.radius is not None:
            charge = charge + up(inputs.radius @ self.moduli(q), self.optimum.rows.width)
        return Direction(value, up(charge, 4), self.linear.most(self.linear.loss(asked, q), self.budget))

    def moduli(self, q: Tensor) -> Tensor:
        """Upper bounds of the moduli of all coefficients along a direction, (d)."""
        key = tuple(q.tolist())
        if key not in self._moduli:
            low, high = self.coefficients(q)
            self._moduli[key] = torch.maximum(low.abs(), high.abs())
        return self._moduli[key]

    def coefficients(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds of the coefficients of every optimum along a direction, (d) each, in scaled coordinates."""
        unit = Inputs(torch.eye(self.optimum.rows.width, dtype=q.dtype, device=q.device))
        ends = []
        for side in (q, -q):
            parts = [unit.at(piece) for piece in self.pieces(self.optimum.rows.width)]
            ends.append(torch.cat([self.direction(part, self.asked(part), side).lower for part in parts]))
        return ends[0], -ends[1]

    def logits(self, inputs: Inputs, asked: Asked | None) -> tuple[Tensor, Tensor]:
        """Bounds of all logits, (m, outputs)."""
        unit = torch.eye(len(self.optimum.weights), dtype=inputs.center.dtype, device=inputs.center.device)
        lower = [self.direction(inputs, asked, q).lower for q in unit]
        upper = [-self.direction(inputs, asked, -q).lower for q in unit]
        return torch.stack(lower, 1), torch.stack(upper, 1)

    def leads(self, inputs: Inputs, asked: Asked | None, label: Tensor) -> Tensor:
        """Lower bounds of the lead of each label over every other class, (m, outputs); its own is infinite."""
        outputs = len(self.optimum.weights)
        found = inputs.center.new_full((len(inputs.center), outputs), torch.inf)
        for name in sorted(set(label.tolist())):
            mine = (label == name).nonzero()[:, 0]
            part, of_part = inputs.at(mine), None if asked is None else asked.at(mine)
            for rival in range(outputs):
                if rival != name:
                    q = difference(name, rival, outputs).to(inputs.center)
                    found[mine, rival] = self.direction(part, of_part, q).lower
        return found


def difference(label: int, rival: int, outputs: int) -> Tensor:
    """The direction of one logit less another."""
    q = torch.zeros(outputs, dtype=torch.float64)
    q[label], q[rival] = 1.0, -1.0
    return q
