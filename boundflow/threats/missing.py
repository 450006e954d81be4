"""Missing values, which may have been anything in a range: ``middle + half the range xi``, xi in [-1, 1] for each."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..arithmetic import rounding
from ..tensor.lift import Given
from .base import Change
from .deviation import Deviation, Diagonal


class Missing(Change):
    """Missing values (NaN) that may have been anything in the range of their column: ``(low, high)``, or one each.

    A missing value has no clean state, so it stays outside every budget. With ``on(features=...)`` what is missing
    elsewhere is left to others.
    """

    has_clean_state = False
    features: tuple[np.ndarray, ...] = ()  # masks or numbers, each a further restriction

    def __init__(self, ranges: Given):
        self.ranges = torch.as_tensor(ranges, dtype=torch.float64).clone()
        if self.ranges.shape[-1:] != (2,) or not bool((self.ranges[..., 0] <= self.ranges[..., 1]).all()):
            raise ValueError("ranges must be a pair (low, high), or one pair per column")
        if not bool(torch.isfinite(self.ranges).all()):
            raise ValueError("the range of a missing value must be finite")

    def __repr__(self) -> str:
        chosen = "".join(f".on(features={features.tolist()!r})" for features in self.features)
        return f"Missing({self.ranges.tolist()!r}){chosen}{self._restricted()}"

    def on_features(self, features: np.ndarray) -> Missing:
        self.features = (*self.features, features)
        return self

    def _holes(self, x: Tensor) -> Tensor:
        """What is missing, and for this range to fill."""
        holes = torch.isnan(x)
        for features in self.features:
            chosen = torch.zeros(x.shape[1:], dtype=torch.bool, device=x.device)
            chosen.view(-1)[torch.from_numpy(features).to(x.device).flatten()] = True
            holes = holes & chosen
        return holes

    def _ends(self, x: Tensor) -> Tensor:
        ends = self.ranges.to(x.device).movedim(-1, 0).to(x.dtype)
        try:
            return rounding.outward(
                ends.reshape(2, *(1,) * (x.dim() - ends.dim() + 1), *ends.shape[1:]).expand(2, *x.shape)
            )
        except RuntimeError:
            raise ValueError(f"{len(self.ranges)} ranges do not fit data of shape {tuple(x.shape)}") from None

    def stand_in(self, x: Tensor) -> Tensor:
        low, high = self._ends(x)
        return torch.where(self._holes(x), 0.5 * (low + high), x)

    def deviation(self, values: Tensor, raw: Tensor, budgeted: bool) -> Deviation:
        missing = self._holes(raw)
        bounds = torch.where(missing, self._ends(values), values)
        radius = torch.where(missing, rounding.deviation(bounds, values), 0.0)
        wide = (self.ranges[..., 0] < self.ranges[..., 1]).to(values.device).expand(values.shape[1:])
        # a range of one number has no row: what its float is off by is all there is
        return Deviation(values, Diagonal(radius, wide), bounds, torch.where(wide, 0.0, radius))
