"""What a change does to a batch of values: rows around a center, a radius, and the interval.

Of every dataset that the change allows, a value is

    v' = center + sum_k generators_k xi_k + radius zeta     and     lower <= v' <= upper,

for one choice of the sample's symbols xi, and zeta in [-1, 1] by value. The rows are the move itself. The radius is
what the floats of the attacker add to it, ``fl(x + d) - (x + d)``, where symbols cannot pay for it: those of a ball
share one budget of distance, and a feature that moves all the way leaves nothing for the roundings of all others. In a
box every feature has its own symbol, so the rounded interval is the row, and there is no radius.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass
class Deviation:
    """Rows (R, B, *shape) around a center, what rounding adds to them, and the interval (2, B, *shape)."""

    center: Tensor
    generators: Tensor | Diagonal
    bounds: Tensor
    radius: Tensor | None = None  # (B, *shape); None for 0

    def masked(self, mask: Tensor, values: Tensor) -> Deviation:
        """The same where the mask holds, and the values as observed elsewhere."""
        rows = self.generators
        return Deviation(
            torch.where(mask, self.center, values),
            rows.masked(mask) if isinstance(rows, Diagonal) else torch.where(mask, rows, 0.0),
            torch.where(mask, self.bounds, values),
            None if self.radius is None else torch.where(mask, self.radius, 0.0),
        )


class Diagonal:
    """One row for each feature that can move: its radius at every position, and zero at all other features.

    Written out only where rows are wanted: of images they would take more memory than there is.
    """

    def __init__(self, radius: Tensor, moving: Tensor):
        self.radius, self.features = radius, moving.flatten().nonzero()[:, 0]

    def __len__(self) -> int:
        return len(self.features)

    def written_out(self) -> Tensor:
        flat = self.radius.reshape(len(self.radius), -1)
        generators = flat.new_zeros(len(self), *flat.shape)
        generators[torch.arange(len(self), device=flat.device), :, self.features] = flat[:, self.features].T
        return generators.reshape(len(self), *self.radius.shape)

    def masked(self, mask: Tensor) -> Diagonal:
        kept = copy.copy(self)
        kept.radius = torch.where(mask, self.radius, 0.0)
        return kept


def positions(touched: np.ndarray, values: Tensor) -> Tensor:
    """A mask over samples, to be broadcast over their values."""
    return torch.from_numpy(touched).to(values.device).view(-1, *(1,) * (values.dim() - 1))
