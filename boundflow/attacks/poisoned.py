"""Poisoned datasets, many at once: inputs, targets and the weights of samples.

    x        (D, N, *shape)     y   (D, N, T)     weights   (D, N)         D datasets of N samples

Targets are numbers that a gradient can be taken of: one-hot vectors for classes, one column of 0 and 1 for two classes,
values for regression. A weight is 1, or 0 where the sample is gone from its slot. What all datasets have in common may
be there once, with a first axis of length 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Poisoned:
    """Datasets that an attacker could have left behind."""

    x: Tensor
    y: Tensor
    weights: Tensor

    @property
    def count(self) -> int:
        return max(len(self.x), len(self.y), len(self.weights))

    def pick(self, chosen: Tensor | slice | Sequence[int]) -> Poisoned:
        """Some of the datasets."""
        picked = [part[chosen] if len(part) > 1 else part for part in (self.x, self.y, self.weights)]
        if max(map(len, picked)) == 1 and not isinstance(chosen, slice):
            picked[2] = picked[2].expand(len(chosen), -1)
        return Poisoned(*picked)

    def written_out(self) -> Poisoned:
        """The same with the full first axis everywhere."""
        return Poisoned(*(part.expand(self.count, *part.shape[1:]) for part in (self.x, self.y, self.weights)))

    def repeated(self, count: int) -> Poisoned:
        """One dataset, so many times."""
        return Poisoned(*(part.expand(count, *part.shape[1:]) for part in (self.x, self.y, self.weights)))

    @staticmethod
    def joined(parts: Sequence[Poisoned]) -> Poisoned:
        full = [part.written_out() for part in parts]
        return Poisoned(*(torch.cat([getattr(part, name) for part in full]) for name in ("x", "y", "weights")))
