"""Samples that may not be there: weight ``1 - s`` in their slot, s in [0, 1]."""

from __future__ import annotations

import torch
from torch import Tensor

from ..symbols.budgets import Kind
from .base import Change
from .deviation import Deviation


class Removal(Change):
    """The presence of a sample: weight 0 in its slot. Batches, their order and the divisor of the mean stay."""

    about = "weights"
    kind = Kind.SIMPLEX
    exclusive = True

    def __repr__(self) -> str:
        return f"Removal(){self._restricted()}"

    def fits(self, x: Tensor, y: Tensor) -> None:
        """Every sample has a weight."""

    def deviation(self, values: Tensor, raw: Tensor, budgeted: bool) -> Deviation:
        return Deviation(values, -values.unsqueeze(0), torch.stack((torch.zeros_like(values), values)))
