"""The optimum of the observed data, by well-known solvers, and the gradient that weights leave.

Squared loss is one linear system, solved by a Cholesky factor and corrected once. The others take Newton steps: the
gradient divided by the curvature at the current weights, halved until the objective falls enough (Armijo). Where a
solver ends is no part of any proof: what the weights leave is enclosed (`left`) and charged (`linearised.py`).
"""

from __future__ import annotations

from torch import Tensor

from ..arithmetic import rounding
from .inverse import Inverse
from .linearised import Gradient
from .logit_losses import Loss
from .training_rows import Rows, length, up

STEPS = 100
CLOSE = 2.0**-40  # of the largest entry of the gradient, in the size of what it is a sum of


def squared(rows: Rows, targets: Tensor, inverse: Inverse) -> Tensor:
    """Least squares with a ridge, for targets (n, outputs)."""
    weights = inverse.of((targets.T * rows.weights) @ rows.inputs).vectors
    remainder = gradient_of(rows, (rows.inputs @ weights.T - targets), weights)
    return weights - inverse.of(remainder).vectors


def newton(rows: Rows, targets: Tensor, loss: Loss, start: Tensor | None = None) -> Tensor:
    """The optimum of a loss of one logit, (1, d)."""
    weights = rows.inputs.new_zeros(rows.width) if start is None else start.reshape(-1).clone()
    for _ in range(STEPS):
        logits = rows.inputs @ weights
        gradient = gradient_of(rows, loss.slope(logits, targets)[:, None], weights[None])[0]
        size = (loss.slope(logits, targets).abs() * rows.weights) @ rows.inputs.abs() + rows.ridge * weights.abs()
        if bool((gradient.abs() <= CLOSE * size).all()):
            break
        step = _newton_step(rows, loss.curvature(logits, targets), gradient)
        moved = _downhill(rows, targets, loss, weights, gradient, step)
        if moved is None:
            break
        weights = moved
    return weights[None]


def _newton_step(rows: Rows, curvature: Tensor, gradient: Tensor) -> Tensor:
    slopes = curvature * rows.weights
    inverse = Inverse(rows, slopes)
    if inverse.singular:  # nowhere curved: as if it were a little
        inverse = Inverse(rows, slopes + 2.0**-20 * rows.weights)
    return inverse.of(gradient[None]).vectors[0]


def _downhill(
    rows: Rows, targets: Tensor, loss: Loss, weights: Tensor, gradient: Tensor, step: Tensor
) -> Tensor | None:
    """The first of the halved steps after which the objective is less by a part of what the slope promises."""

    def value(at: Tensor) -> float:
        return float((loss.value(rows.inputs @ at, targets) * rows.weights).sum() + 0.5 * (rows.ridge * at * at).sum())

    before, promised = value(weights), float(gradient @ step)
    for halvings in range(40):
        found = weights - step * 0.5**halvings
        if value(found) <= before - 1e-4 * 0.5**halvings * promised:
            return found
    return weights - step if abs(promised) <= 2.0**-44 * abs(before) else None


def gradient_of(rows: Rows, slopes: Tensor, weights: Tensor) -> Tensor:
    """``sum_i w_i psi_i x_i + r theta``, (outputs, d), of psi (n, outputs)."""
    return (slopes.T * rows.weights) @ rows.inputs + rows.ridge * weights


def logits_of(rows: Rows, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (n, outputs), and how far each is off, at most."""
    charge = rounding.of_ours(rows.width, weights.dtype)
    error = charge * rows.norms[:, None] * length(weights) + rounding.tiny(rows.width, weights.dtype)
    return rows.inputs @ weights.T, up(error, 2)


def left(rows: Rows, slopes: Tensor, off: Tensor, weights: Tensor, tolerance: float = 0.0) -> Gradient:
    """The gradient that weights leave, from psi (n, outputs) that is off by at most ``off``."""
    value, n = gradient_of(rows, slopes, weights), len(rows) + 4
    moduli = rows.inputs.abs()
    size = (slopes.abs().T * rows.weights) @ moduli + rows.ridge * weights.abs()
    known = (off.T * rows.weights) @ moduli
    error = up(rounding.of_ours(n, value.dtype) * size, n) + up(known, n) + rounding.tiny(n, value.dtype)
    return Gradient(value, error, tolerance * rows.count)
