"""Threats are symbol sets: what an attacker could have done to the training data.

A threat lifts a batch: it owns one symbol per (sample, raw feature), the same at every visit of the sample, so what
the attacker did to it is the same in every epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .bounded import Bounded, Form, concretised
from .lift import ball, interval
from .rules.constants import constant
from .symbols import Symbols


class Threat(ABC):
    """What an attacker could have changed."""

    @abstractmethod
    def box(self, x: Tensor) -> Bounded:
        """The perturbed inputs as an interval."""

    @abstractmethod
    def lift(self, symbols: Symbols, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """The batch as a set, with rows owned by the samples ``index``."""

    def check(self, x: Tensor) -> None:
        """Refuse data that this threat cannot be about."""
        if not bool(torch.isfinite(x).all()):
            raise ValueError(f"{int((~torch.isfinite(x)).sum())} values of the data are NaN or infinite")
        self.box(x[:1])


class Linf(Threat):
    """Every feature of every sample moved by at most epsilon: a number, or one per feature.

    ``clip`` is the valid range of the raw features, for instance (0, 1) for pixels. All samples are touched, so the
    clipped box may be centered anew.
    """

    def __init__(self, epsilon: Any, clip: tuple[float, float] | None = None):
        self.epsilon = torch.as_tensor(epsilon, dtype=torch.float64)
        if bool((self.epsilon < 0).any()) or not bool(torch.isfinite(self.epsilon).all()):
            raise ValueError(f"epsilon must be finite and not negative, got {epsilon}")
        if clip is not None and not clip[0] < clip[1]:
            raise ValueError(f"clip must be an increasing pair, got {clip}")
        self.clip = clip

    def __repr__(self) -> str:
        epsilon = repr(self.epsilon.tolist())  # exactly: a certificate records it
        return f"Linf({epsilon})" if self.clip is None else f"Linf({epsilon}, clip={self.clip})"

    def box(self, x: Tensor) -> Bounded:
        made = ball(x, self.epsilon.to(x.device))
        if self.clip is None:
            return made
        low, high = self.clip
        if bool((x < low).any()) or bool((x > high).any()):
            raise ValueError(f"the data leave the valid range [{low}, {high}] of the threat")
        least, most = constant(low, x.dtype, x.device).lower, constant(high, x.dtype, x.device).upper
        return interval(made.lower.clamp(least, most), made.upper.clamp(least, most))

    def lift(self, symbols: Symbols, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        samples = np.asarray(index.detach().cpu() if isinstance(index, Tensor) else index)
        if samples.shape != (len(x),):
            raise ValueError(f"index must hold one sample number per row: {samples.shape} for {len(x)} rows")
        boxed = self.box(x)
        center, radius = boxed.form.center, boxed.form.radius
        features = x[0].numel()
        raw = x.detach().cpu().reshape(len(x), features).numpy()
        rows = symbols.of_samples(samples, raw)
        # own row f is the radius of feature f at every position, and zero at all other features
        generators = torch.diag_embed(radius.reshape(len(x), features)).permute(1, 0, 2)
        # the radius is rounded up, so xi = 1 is a little more than epsilon: the symbol covers it
        form = Form(center, generators.reshape(features, *x.shape), torch.zeros_like(center), rows, -x.dim())
        return concretised("lift", boxed._bounds, form, symbols), y


__all__ = ["Linf", "Threat"]
