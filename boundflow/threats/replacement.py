"""Samples replaced by anything: nothing of a batch is lifted, and their clipped gradients are sets (`clipping.py`)."""

from __future__ import annotations

from torch import Tensor

from .base import Change
from .deviation import Deviation


class Replacement(Change):
    """A sample replaced by anything: other features, another label, or one that the attacker put in.

    Its influence is bounded by per-sample clipping alone: `certify(..., clip_gradients=C)`.
    """

    about = "gradients"

    def __repr__(self) -> str:
        return f"Replacement(){self._restricted()}"

    def fits(self, x: Tensor, y: Tensor) -> None:
        """Whatever the data are, they may have been others."""

    def deviation(self, values: Tensor, raw: Tensor, budgeted: bool) -> Deviation:
        raise ValueError(
            "a replaced sample is bounded by clipping its gradient, not by lifting a batch: use "
            "certify(..., clip_gradients=C)"
        )
