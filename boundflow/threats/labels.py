"""Labels that may have been others, and targets that may have been moved.

    y is 0 or 1       y + a (1 - 2 y), a in [0, 1]
    y is one-hot      e_y + sum_c a_c (e_c - e_y), a in the simplex (`one_hot.py`)
    y is a number     y + epsilon xi, xi in [-1, 1]

Rows of classes hold whole numbers, so they are exact; the row of a number is its rounded interval.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..symbols.budgets import Kind
from ..tensor.lift import ball
from .base import Change
from .deviation import Deviation, Diagonal
from .moves import amount
from .one_hot import alternatives, check_one_hot


class Labels(Change):
    """The label of a sample: any other class; for regression, a target moved by at most ``epsilon``.

    Targets are 0 and 1, or one-hot vectors; class numbers need ``classes``.
    """

    about = "targets"
    exclusive = True

    def __init__(self, epsilon: float | None = None, classes: int | None = None):
        self.epsilon = None if epsilon is None else float(amount(epsilon, "epsilon"))
        self.classes = None if classes is None else int(classes)
        self.kind = Kind.SIMPLEX if epsilon is None else Kind.BOX
        self.adds_to_one = epsilon is None

    def __repr__(self) -> str:
        named = (("epsilon", self.epsilon), ("classes", self.classes))
        options = [f"{name}={value!r}" for name, value in named if value is not None]
        return f"Labels({', '.join(options)}){self._restricted()}"

    def fits(self, x: Tensor, y: Tensor) -> None:
        if not y.is_floating_point():
            return  # class numbers are for the loss, which makes numbers of them
        if self.epsilon is not None:
            super().fits(x, y)
        else:
            self._check(y)

    def _check(self, y: Tensor) -> None:
        """Refuse targets that are not classes."""
        if y.dim() == 2 and y.shape[1] > 1:
            check_one_hot(y, "targets")
        elif not bool(((y == 0) | (y == 1)).all()):
            raise ValueError("flipped labels are for targets 0 and 1; for regression write Labels(epsilon)")

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
            bounds = ball(values, self.epsilon).set.bounds
            moving = torch.ones(values.shape[1:], dtype=torch.bool, device=values.device)
            radius = rounding.deviation(bounds, values)
            return Deviation(values, Diagonal(radius.reshape(values.shape), moving), bounds)
        self._check(values)
        if values.dim() == 2 and values.shape[1] > 1:
            generators = alternatives(values, "targets")
        else:
            generators = (1 - 2 * values).unsqueeze(0)
        return Deviation(values, generators, torch.stack((torch.zeros_like(values), torch.ones_like(values))))
