"""Moves by epsilon, for methods that count changed categories: features are put into bins, and most stay in theirs.

    cell(x) = floor( (x - low) / (high - low) * bins ), cut off at the first and the last bin, for every feature

A move by at most epsilon changes a feature only if a border lies within epsilon of it, so a method that counts changed
categories has to answer for those samples alone. Every operation here grows with x, its roundings too, so the cells of
fl(x - epsilon) and fl(x + epsilon) have all floats of the attacker between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Cells:
    """Bins of equal width for every feature, fixed beforehand."""

    low: Sequence[float]
    high: Sequence[float]
    bins: int

    def of(self, x: Tensor) -> Tensor:
        """The bin of every feature (n, features), as whole numbers."""
        low, high = x.new_tensor(self.low), x.new_tensor(self.high)
        return ((x - low) / (high - low) * self.bins).floor().long().clamp(0, self.bins - 1)

    def middle(self, cells: Tensor) -> Tensor:
        """The middle of each cell, in float64."""
        low, high = (torch.tensor(ends, dtype=torch.float64, device=cells.device) for ends in (self.low, self.high))
        return low + (cells + 0.5) * (high - low) / self.bins

    def all(self, device: torch.device) -> Tensor:
        """Every cell (bins ^ features, features)."""
        axis = torch.arange(self.bins, device=device)
        return torch.cartesian_prod(*[axis] * len(self.low)).view(-1, len(self.low))

    def changed(self, x: Tensor, epsilon: float) -> Tensor:
        """How many features of each sample can leave their bin (n,)."""
        return (self.of(x - epsilon) != self.of(x + epsilon)).sum(1)

    def holds(self, wanted: Tensor, good: Tensor, x: Tensor, epsilon: float) -> Tensor:
        """Which inputs meet nothing but good cells with the label that is wanted of them, wherever they are moved.

        ``good`` says for every cell and class (cells, classes) whether the class is certified there.
        """
        found = []
        for first, last, label in zip(self.of(x - epsilon), self.of(x + epsilon), wanted.tolist(), strict=True):
            table = good[:, label].view([self.bins] * len(self.low))
            for axis, (start, end) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
                table = table.narrow(axis, start, end - start + 1)
            found.append(bool(table.all()))
        return torch.tensor(found)
