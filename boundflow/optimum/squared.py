"""Squared loss: logits of the optimum are sums over labels, so worst cases are exact.

    F = sum_i w_i / 2 |z_i - Y_i|^2 + ridge         z(x) = sum_j W_j(x) Y_j,     W_j(x) = w_j <M^-1 x, x_j>

W does not depend on labels. One number as the target, or one for each class (one-hot). Each changed label of at most k
takes off the lead of a class what it takes off alone, so the largest k of these are the worst dataset there is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from ..arithmetic import rounding
from . import fitting
from .changes import Changes
from .inverse import Inverse
from .linearised import Linearised
from .training_rows import Rows


@dataclass(frozen=True)
class SquaredOptimum:
    """The optimum under squared loss: weights (outputs, d) in scaled coordinates, and a linearisation without error."""

    rows: Rows
    changes: Changes
    weights: Tensor
    exact: Linearised

    @staticmethod
    def of(
        rows: Rows, changes: Changes, targets: Tensor, given: Tensor | None = None, tolerance: float = 0.0
    ) -> SquaredOptimum:
        """Fitted, or from given weights, for targets (n, outputs)."""
        inverse = Inverse(rows, rows.weights)
        weights = fitting.squared(rows, targets, inverse) if given is None else given
        logits, error = fitting.logits_of(rows, weights)
        slopes = logits - targets
        off = error + rounding.of_ours(1, slopes.dtype) * slopes.abs()
        gradient = fitting.left(rows, slopes, off, weights, tolerance)
        return SquaredOptimum(rows, changes, weights, Linearised(rows, changes, inverse, gradient))

    def linear(self, budget: int | None) -> Linearised:
        """For any budget."""
        return self.exact

    def within(self, changes: Changes) -> SquaredOptimum:
        """The same under other changes."""
        return replace(self, changes=changes, exact=replace(self.exact, changes=changes))
