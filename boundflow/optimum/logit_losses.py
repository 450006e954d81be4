"""Losses of one logit: what each makes of a row whose logit moves, and of one whose target is another.

    squared        1/2 (z - y)^2                  psi = z - y                        d = y - y'
    logistic       log(1 + e^z) - y z             psi = sigmoid(z) - y               d = y - y'
    squared_hinge  1/2 max(0, 1 - s z)^2          psi = -s max(0, 1 - s z)           d = s max(2, 1 + |z|)
    huber          1/2 r^2 up to |r| = width      psi = clip(z - y, -width, width)   |d| <= min(|y - y'|, 2 width)

psi is the derivative by the logit, s = 2 y - 1, and ``d = psi' - psi`` what another target adds at the logit z. For a
row whose logit moves by u in [low, high],

    psi(z + u) - psi(z)  =  m u + e,       e in an interval        (`chord`: the slope of the chord, or the derivative)
    psi(z + u) - psi(z)  =  m~ u,          m~ in [least, most]     (`secants`)

For the logistic loss e is extreme at the ends of the range, or where ``sigmoid' = m``: ``z + u = +-2 artanh sqrt(1 - 4
m)``, a place that need be known only roughly, since e is flat there. Secants from a fixed point are means of sigmoid'
over an interval that grows; sigmoid' rises and then falls, and so do the means: the least is at an end of the range.
psi of the others is piecewise linear, and e is extreme at the ends or at a corner.

**Weights of classes**: a row of class y counts ``of_classes[y]``, so one with another label counts differently, too.
In units of its own weight it adds ``d = rho psi' - psi``, rho the quotient of the two weights. That is not constant for
the logistic loss either: d is ``(rho - 1) psi'`` more than without them, and psi' rises with the logit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from ..arithmetic import rounding

EXACT = 2.0**-46  # by how much functions of one number can be off here, in units of their largest value


class Chord(NamedTuple):
    """Slopes (n), and what they miss, (n) to (n)."""

    slope: Tensor
    least: Tensor
    most: Tensor


class Loss(ABC):
    """A convex loss of one logit with a derivative that is continuous."""

    name: str
    steepest = 1.0  # of psi
    regression = False
    of_classes: Tensor | None = None  # how much rows of class 0 and 1 count
    penalised = False  # whether the optimum is known to be the only one without a free intercept alone

    @abstractmethod
    def value(self, logits: Tensor, targets: Tensor) -> Tensor: ...

    @abstractmethod
    def slope(self, logits: Tensor, targets: Tensor) -> Tensor:
        """psi."""

    @abstractmethod
    def curvature(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The derivative of psi, where it has one."""

    def off(self, logits: Tensor) -> Tensor:
        """By how much the float of psi can be off, of a logit that is known."""
        return EXACT * (1 + logits.abs()) * _outward()

    def corners(self, targets: Tensor) -> tuple[Tensor, ...]:
        """Logits at which psi has a corner."""
        return ()

    def secants(self, logits: Tensor, targets: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds of the slopes of secants: between 0 and 1 where psi is piecewise linear, and 0 or 1 on one piece."""
        start, left, right = logits, torch.minimum(low, low * 0), torch.maximum(high, high * 0)
        least, most = torch.ones_like(start), torch.zeros_like(start)
        inside = self.curvature(start + left, targets), self.curvature(start + right, targets)
        corner = torch.zeros_like(start, dtype=torch.bool)
        for place in self.corners(targets):
            slack = EXACT * (1 + start.abs() + place.abs())
            corner |= (start + left <= place + slack) & (start + right >= place - slack)
        least = torch.where(corner, 0.0, torch.minimum(*inside))
        most = torch.where(corner, 1.0, torch.maximum(*inside))
        return least, most

    def chord(self, logits: Tensor, targets: Tensor, low: Tensor, high: Tensor) -> Chord:
        """The slope of the chord over a range, and what it misses."""
        at_low, at_high = (self.slope(logits + end, targets) for end in (low, high))
        wide = high - low > 2.0**-20 * (1 + logits.abs())
        found = (at_high - at_low) / torch.where(wide, high - low, 1.0)
        slope = torch.where(wide, found, self.curvature(logits, targets)).clamp(0.0, self.steepest)
        return self.missed(logits, targets, low, high, slope)

    def missed(self, logits: Tensor, targets: Tensor, low: Tensor, high: Tensor, slope: Tensor) -> Chord:
        """What given slopes miss over a range."""
        here = self.slope(logits, targets)
        places = [low, high, *(place.clamp(low, high) for place in self._flat(logits, targets, slope))]
        errors = [self.slope(logits + place, targets) - here - slope * place for place in places]
        found = torch.stack(errors)
        reach = torch.maximum(low.abs(), high.abs())
        off = 2 * self.off(logits.abs() + reach) + EXACT * reach * _outward()
        return Chord(slope, found.amin(0) - off, found.amax(0) + off)

    def _flat(self, logits: Tensor, targets: Tensor, slope: Tensor) -> list[Tensor]:
        """Moves at which what a slope misses can be extreme, but for the ends of the range."""
        return [place - logits for place in self.corners(targets)]

    def beyond(self, targets: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor] | None:
        """Bounds of ``d - (y - y')`` where logits lie in [low, high]; None if it is 0."""
        found = self._beyond(targets, low, high)
        if self.of_classes is None:
            return found
        other, weights = 1 - targets, self.of_classes.to(targets)
        more = weights[other.long()] / weights[targets.long()] - 1
        ends = torch.stack([self.slope(end, other) for end in (low, high)]) * more
        least, most = (torch.zeros_like(low), torch.zeros_like(low)) if found is None else found
        far = low.abs() + high.abs()
        off = (more.abs() + 1) * (self.off(far) + EXACT * (1 + far) * _outward())
        return least + ends.amin(0) - off, most + ends.amax(0) + off

    def _beyond(self, targets: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor] | None:
        """The same where rows of every class count as much."""
        return None


class Squared(Loss):
    name = "squared"

    def value(self, logits: Tensor, targets: Tensor) -> Tensor:
        return 0.5 * (logits - targets).square()

    def slope(self, logits: Tensor, targets: Tensor) -> Tensor:
        return logits - targets

    def curvature(self, logits: Tensor, targets: Tensor) -> Tensor:
        return torch.ones_like(logits)


class Logistic(Loss):
    name = "logistic"
    steepest = 0.25

    def value(self, logits: Tensor, targets: Tensor) -> Tensor:
        return torch.nn.functional.softplus(logits * (1 - 2 * targets))

    def slope(self, logits: Tensor, targets: Tensor) -> Tensor:
        return torch.sigmoid(logits) - targets

    def curvature(self, logits: Tensor, targets: Tensor) -> Tensor:
        return torch.sigmoid(logits) * torch.sigmoid(-logits)

    def off(self, logits: Tensor) -> Tensor:
        return torch.full_like(logits, EXACT * _outward())

    def secants(self, logits: Tensor, targets: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        ends = [self._secant(logits, low), self._secant(logits, high)]
        left, right = logits + low.clamp_max(0.0), logits + high.clamp_min(0.0)
        nearest = torch.where((left <= 0) & (right >= 0), 0.0, torch.minimum(left.abs(), right.abs()))
        most = self.curvature(nearest, targets) * (1 + EXACT * (1 + nearest) * _outward())
        return torch.minimum(*ends), most.clamp_max(0.25)

    def _secant(self, logits: Tensor, move: Tensor) -> Tensor:
        """A lower bound of the slope of one secant: no less than the derivative at both of its ends.

        A logit that is off by ``u |z|`` has a derivative that is off by that share of itself.
        """
        derivatives = [torch.sigmoid(z) * torch.sigmoid(-z) for z in (logits, logits + move)]
        safe = torch.minimum(*derivatives) * (1 - EXACT * (1 + logits.abs() + move.abs()) * _outward())
        off = 2.0**-49 * _outward()
        difference = (torch.sigmoid(logits + move) - torch.sigmoid(logits)).abs() - off
        return torch.maximum(safe, torch.where(move.abs() > 2.0**-20, difference / move.abs(), 0.0) * (1 - EXACT))

    def _flat(self, logits: Tensor, targets: Tensor, slope: Tensor) -> list[Tensor]:
        root = (1 - 4 * slope).clamp_min(0.0).sqrt()
        place = 2 * torch.log1p(root) - (4 * slope).log()
        place = torch.nan_to_num(place, nan=0.0, posinf=1e3)
        return [place - logits, -place - logits]


class SquaredHinge(Loss):
    name = "squared_hinge"
    penalised = True

    def value(self, logits: Tensor, targets: Tensor) -> Tensor:
        return 0.5 * (1 - (2 * targets - 1) * logits).clamp_min(0.0).square()

    def slope(self, logits: Tensor, targets: Tensor) -> Tensor:
        sign = 2 * targets - 1
        return -sign * (1 - sign * logits).clamp_min(0.0)

    def curvature(self, logits: Tensor, targets: Tensor) -> Tensor:
        return ((2 * targets - 1) * logits < 1).to(logits)

    def corners(self, targets: Tensor) -> tuple[Tensor, ...]:
        return (2 * targets - 1,)

    def _beyond(self, targets: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        sign = 2 * targets - 1
        far = torch.maximum(low.abs(), high.abs())
        near = torch.where((low <= 0) & (high >= 0), 0.0, torch.minimum(low.abs(), high.abs()))
        least, most = ((1 + size).clamp_min(2.0) for size in (near, far))
        off = EXACT * most * _outward()
        least, most = sign * (least - off) - sign, sign * (most + off) - sign
        return torch.minimum(least, most) - off, torch.maximum(least, most) + off


class Huber(Loss):
    name = "huber"
    regression = True
    penalised = True

    def __init__(self, width: float = 1.0):
        if not width > 0:
            raise ValueError(f"the width of the Huber loss must be above 0, got {width!r}")
        self.width = float(width)

    def value(self, logits: Tensor, targets: Tensor) -> Tensor:
        return torch.nn.functional.huber_loss(logits, targets, reduction="none", delta=self.width)

    def slope(self, logits: Tensor, targets: Tensor) -> Tensor:
        return (logits - targets).clamp(-self.width, self.width)

    def curvature(self, logits: Tensor, targets: Tensor) -> Tensor:
        return ((logits - targets).abs() < self.width).to(logits)

    def off(self, logits: Tensor) -> Tensor:
        """What is not cut off is a difference of at most the width, however large targets are."""
        return EXACT * (1 + logits.abs() + self.width) * _outward()

    def corners(self, targets: Tensor) -> tuple[Tensor, ...]:
        return targets - self.width, targets + self.width


def _outward() -> float:
    return 1.0 if rounding.mode() == "outward" else 0.0
