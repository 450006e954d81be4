"""Values on a grid, of which another point may have been hit.

The raw value lay within half a step of the point n that was written. Moved by epsilon it is within ``step / 2 +
epsilon`` of it, and the point n' that is written then is within half a step of that:

    |n' - n| step <= step + epsilon,     so     |n' - n| <= floor(epsilon / step) + 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..arithmetic import rounding
from .moves import Moved, amount, valid_range


class Quantised(Moved):
    """Values on a grid of ``step``, written down after something moved by at most epsilon: another bin may be hit.

    The raw value lay within half a step of what was written; moved by epsilon it is written at most
    ``floor(epsilon / step) + 1`` steps away.
    """

    def __init__(self, epsilon: float, step: float, clip: tuple[float, float] | None = None):
        self.epsilon, self.clip = float(amount(epsilon, "epsilon")), valid_range(clip)
        if not step > 0:
            raise ValueError(f"the step of the grid must be positive, got {step}")
        self.step = float(step)

    def __repr__(self) -> str:
        return f"Quantised({self.epsilon!r}, {self.step!r}{self._options()}{self._restricted()}"

    def amounts(self, x: Tensor) -> Tensor:
        bins = rounding.whole_steps(self.epsilon, self.step) + 1 if self.epsilon else 0
        distance = bins * self.step
        return distance + rounding.of_grid(x, distance) if bins else torch.zeros_like(x)

    def shrinks(self, x: Tensor) -> None:
        """Steps of a grid are whole: half of a move can still be a whole step."""
        return None

    def moving(self, x: Tensor) -> Tensor:
        return torch.full(x.shape[1:], self.epsilon > 0, device=x.device)
