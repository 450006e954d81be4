"""Features that move by an amount of their own: the base of every box and ball around the observed features.

    box             |x'_f - x_f| <= amount_f for every feature f           row_f = the rounded interval
    ball, cross     |(x' - x) / amount| <= 1 in the norm of the kind       row_f = amount_f, rounded up

The attacker's data are floats, ``x' = fl(x + d)``. In a box each symbol pays for the rounding of its own feature. In a
ball the move d alone is in the ball: with ``xi = d / row`` the norm of xi is at most 1, because no row is less than its
amount, and what is left is ``|x'_f - x_f - row_f xi_f| = |fl(x_f + d_f) - (x_f + d_f)|``, a radius of its own for each
feature that can move. (Longer rows would not do: with amounts 1 and 1e-10 around ones, a first feature that moves by 1
leaves nothing to the second, whose float is off by 1e-16, a millionth of its row.)

A valid range cuts the interval, and the rows of a box. In a ball it cuts no row: features share one budget of distance,
and projecting onto the range brings every feature nearer to where it was.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor

from ..arithmetic import rounding
from ..operators.constants import constant
from ..symbols.budgets import Kind
from ..tensor.lift import Given, ball
from .base import Change
from .deviation import Deviation, Diagonal

EVEN = 1.01  # how far amounts of features are apart at most that count as one epsilon


class Moved(Change):
    """Features that move by an amount of their own."""

    clip: tuple[float, float] | None = None
    features: tuple[np.ndarray, ...] = ()  # only features in all of these

    @abstractmethod
    def amounts(self, x: Tensor) -> Tensor:
        """How far each feature of each sample can move, (B, *shape) or (*shape)."""

    @abstractmethod
    def moving(self, x: Tensor) -> Tensor:
        """Which features can move at all, of any sample."""

    def fits(self, x: Tensor, y: Tensor) -> None:
        super().fits(x, y)
        self._in_range(x)

    def _in_range(self, x: Tensor) -> None:
        if self.clip is None:
            return
        chosen = x[:, self._allowed(x)]
        if bool((chosen < self.clip[0]).any()) or bool((chosen > self.clip[1]).any()):
            raise ValueError(f"the data leave the valid range [{self.clip[0]}, {self.clip[1]}] of the threat")

    def on_features(self, features: np.ndarray) -> Change:
        self.features = (*self.features, features)
        return self

    def _allowed(self, x: Tensor) -> Tensor:
        """Which features may move, (*shape)."""
        allowed = torch.ones(x.shape[1:], dtype=torch.bool, device=x.device)
        for chosen in self.features:
            mask = torch.from_numpy(chosen).to(x.device)
            if mask.dtype is not torch.bool:
                numbers, mask = mask, torch.zeros_like(allowed).flatten()
                if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(mask):
                    raise ValueError(f"features are counted from 0 to {len(mask) - 1}, and not {chosen.tolist()}")
                mask[numbers] = True
                mask = mask.view(allowed.shape)
            allowed = allowed & mask
        return allowed

    def deviation(self, values: Tensor, raw: Tensor, budgeted: bool) -> Deviation:
        allowed = self._allowed(values)
        amounts = torch.where(allowed, self.amounts(values), 0.0).expand(values.shape)
        center, bounds = values, ball(values, amounts).set.bounds
        if self.clip is not None:
            self._in_range(values)
            least, most = (constant(end, values.dtype, values.device) for end in self.clip)
            bounds = torch.where(allowed, bounds.clamp(least.bounds[0], most.bounds[1]), bounds)
            if not budgeted and self.kind is Kind.BOX and self.samples is None:
                center = 0.5 * (bounds[0] + bounds[1])
        moving = allowed & self.moving(values)
        if self.kind is Kind.BOX:
            rows = torch.where(bounds[0] < bounds[1], rounding.deviation(bounds, center), 0.0)
            return Deviation(center, Diagonal(rows, moving), bounds)
        rows = rounding.up(amounts.to(values.dtype))
        return Deviation(center, Diagonal(rows, moving), bounds, rounding.of_moves(values, rows))

    def shrinks(self, x: Tensor) -> dict[str, float | None] | None:
        """Moves by a share t of the amounts: the rows shrink to ``t + slack``, where the center is the observed value.

        In a box, symbols of a move by t are at most ``t + slack`` (`rounding.of_shorter_moves`); in a ball their norm
        is at most t, and the radius that pays for roundings stays. A valid range cuts the rows of long and short moves
        alike and may move the center, so there the rows say nothing about shorter moves. Amounts that are the same but
        for what scaling a table rounds are one epsilon, the least of them: whoever moves no feature by more than t of
        that moves none by more than t of its own amount. A share of 0 is no amount at all, so it is not the same.
        """
        if self.clip is not None:
            return None
        allowed, slack, least, most = self._allowed(x), 0.0, math.inf, 0.0
        moving = allowed & self.moving(x)
        for part in torch.split(x, 4096):  # amounts of all samples at once may not fit
            amounts = torch.where(allowed, self.amounts(part), 0.0).expand(part.shape)
            slack = max(slack, rounding.of_shorter_moves(part, amounts))
            reached = amounts[:, moving]
            if reached.numel():
                least, most = min(least, float(reached.min())), max(most, float(reached.max()))
        even = most <= EVEN * least
        return {"epsilon": min(least, most) if even else None, "slack": slack}

    def _options(self) -> str:
        clip = "" if self.clip is None else f", clip={self.clip}"
        return clip + ")" + "".join(f".on(features={chosen.tolist()})" for chosen in self.features)


def amount(number: Given, name: str) -> Tensor:
    """How far something moves, as float64: finite, and not negative."""
    found = torch.as_tensor(number, dtype=torch.float64).clone()  # whose memory nobody else writes to
    if bool((found < 0).any()) or not bool(torch.isfinite(found).all()):
        raise ValueError(f"{name} must be finite and not negative, got {number}")
    return found


def valid_range(clip: tuple[float, float] | None) -> tuple[float, float] | None:
    """The range that features cannot leave, as two floats."""
    if clip is not None and not clip[0] < clip[1]:
        raise ValueError(f"clip must be an increasing pair, got {clip}")
    return None if clip is None else (float(clip[0]), float(clip[1]))
