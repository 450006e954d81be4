"""Boxes and balls around the observed features, and triggers."""

from __future__ import annotations

from torch import Tensor

from ..symbols.budgets import Kind
from ..tensor.lift import Given
from .base import Change
from .moves import Moved, amount, valid_range


class Linf(Moved):
    """Every feature moved by at most epsilon: a number, or one per feature.

    ``clip`` is the valid range of the raw features, for instance (0, 1) for pixels.
    """

    def __init__(self, epsilon: Given, clip: tuple[float, float] | None = None):
        self.epsilon, self.clip = amount(epsilon, "epsilon"), valid_range(clip)

    def __repr__(self) -> str:
        # exactly: a certificate records it
        return f"{type(self).__name__}({self.epsilon.tolist()!r}{self._options()}{self._restricted()}"

    def without_radius(self) -> str:
        return f"{type(self).__name__}({(self.epsilon > 0).tolist()}{self._options()}{self._restricted()}"

    def amounts(self, x: Tensor) -> Tensor:
        shape = tuple(self.epsilon.shape)
        fits = (own in (1, size) for own, size in zip(shape[::-1], x.shape[:0:-1], strict=False))
        if len(shape) >= x.dim() or not all(fits):
            raise ValueError(f"epsilon is given for features of shape {shape}, and the data have {tuple(x.shape[1:])}")
        return self.epsilon.to(x.device)

    def moving(self, x: Tensor) -> Tensor:
        return (self.epsilon > 0).to(x.device).expand(x.shape[1:])


class L2(Linf):
    """The features of a sample moved by at most epsilon in Euclidean distance; per feature, an ellipsoid."""

    kind = Kind.BALL


class L1(Linf):
    """The features of a sample moved by at most epsilon in all, summed over the features; per feature, scaled."""

    kind = Kind.CROSS


def Trigger(features: Given, low: float = 0.0, high: float = 1.0) -> Change:
    """A trigger: the chosen features (a patch of pixels, say) replaced by anything in the valid range."""
    return Linf(high - low, clip=(low, high)).on(features=features)
