"""The training rows of a convex objective, in coordinates of about unit size.

    F(Theta) = sum_i w_i loss(Theta x_i, y_i) + 1/2 sum_j r_j |Theta_j|^2

is the objective times the number of rows, so that weights stay the numbers they are; ``r_j = n l2``, and 0 for a free
intercept, whose column of ones stands last. Column j is multiplied by a power of two t_j that makes its root mean
square about 1, and r_j by t_j^2: both products are exact, and neither logits nor the optimum of the labels depend on
them.

**How fast the objective rises.** Let ``M = sum_i s_i x_i x_i^T + diag(r)`` with s_i >= 0, r0 the least ridge of a
penalised column, S = sum s_i, and xbar the mean of the penalised columns with weights s_i. By Jensen's inequality
``sum_i s_i (w x_i + b)^2 >= S (w xbar + b)^2``, so on (w, b) M is at least ``r0 |w|^2 + S (w xbar + b)^2``, whose
matrix on the plane of xbar and b has determinant ``r0 S`` and trace ``r0 + S (1 + |xbar|^2)``:

    smallest eigenvalue of M  >=  r0 S / (r0 + S (1 + |xbar|^2)),     and r0 where the intercept is penalised.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ..arithmetic import rounding

TERMS, WIDE = 2**20, 256  # of inputs and rows at a time, and inputs that are enough for a quick product
LEAST, MOST = 2.0**-300, 2.0**300  # of a number in the data; squares of such numbers are floats


@dataclass(frozen=True)
class Rows:
    """Inputs (n, d) in float64 and scaled, how much each counts (n), the ridge of each column (d) and its scale (d)."""

    inputs: Tensor
    weights: Tensor
    ridge: Tensor
    scale: Tensor

    @staticmethod
    def of(inputs: Tensor, weights: Tensor | None, ridge: float, intercept: bool, penalised: bool) -> Rows:
        """Scaled rows with a column of ones after the others, if there is an ``intercept``."""
        inputs = inputs.detach().double()
        if intercept:
            inputs = torch.cat((inputs, torch.ones_like(inputs[:, :1])), 1)
        require_ordinary(inputs, "features")
        largest = power_of_two(inputs.abs().amax(0))
        scale = largest * power_of_two((inputs * largest).square().mean(0).sqrt())
        weights = torch.ones_like(inputs[:, 0]) if weights is None else weights.detach().to(inputs)
        if weights.shape != (len(inputs),) or not bool((torch.isfinite(weights) & (weights >= 0)).all()):
            raise ValueError(f"weights must be one finite number of at least 0 for each of the {len(inputs)} samples")
        require_ordinary(weights, "weights")
        of_columns = ridge * scale.square()
        if not bool(((of_columns >= LEAST**3) & (of_columns <= MOST**3)).all()):
            raise ValueError("l2 is too small or too large for features of this size: bring them near 1")
        if intercept and not penalised:
            of_columns[-1] = 0.0
        return Rows(inputs * scale, weights, of_columns, scale)

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def width(self) -> int:
        return self.inputs.shape[1]

    @property
    def at_a_time(self) -> int:
        """How many inputs are held against all rows at a time: as few as stay in a cache, if products stay quick."""
        return max(TERMS // max(1, len(self)), min(self.width // 4, WIDE), 1)

    @property
    def count(self) -> float:
        """How many times the mean objective this one is, at most: solvers divide by n, or by the sum of the weights."""
        return max(float(len(self)), float(up(self.weights.sum(), len(self))))

    @property
    def free_intercept(self) -> bool:
        return bool(self.ridge[-1] == 0)

    def asked(self, inputs: Tensor) -> Tensor:
        """Test inputs in the coordinates of the rows."""
        inputs = inputs.detach().to(self.inputs)
        if inputs.shape[1] < self.width:
            inputs = torch.cat((inputs, torch.ones_like(inputs[:, :1])), 1)
        return inputs * self.scale

    @cached_property
    def norms(self) -> Tensor:
        """Upper bounds of |x_i|."""
        return length(self.inputs)

    def least_eigenvalue(self, slopes: Tensor) -> float:
        """A lower bound of the smallest eigenvalue of ``sum_i slopes_i x_i x_i^T + diag(ridge)``."""
        n = len(self) + 8
        if not self.free_intercept:
            return float(self.ridge.min()) * (1 - rounding.of_ours(4, slopes.dtype))
        least = float(self.ridge[:-1].min()) if self.width > 1 else float("inf")
        total = float(slopes.sum()) * (1 - rounding.of_ours(n, slopes.dtype))
        if total <= 0:
            return 0.0
        means = (slopes @ self.inputs[:, :-1]).abs()
        means = means + rounding.of_ours(n, slopes.dtype) * (slopes @ self.inputs[:, :-1].abs())
        one = float(self.scale[-1])  # what stands in the column of ones
        if self.width == 1:
            return total * one**2 * (1 - rounding.of_ours(n, slopes.dtype))
        far = float((means / total).square().sum())
        found = least * total * one**2 / (least + total * (one**2 + far))
        return found * (1 - rounding.of_ours(self.width + 8, slopes.dtype))


def require_ordinary(inputs: Tensor, what: str) -> None:
    """Refuse numbers whose products with others could overflow, or lose all they have to underflow."""
    moduli = inputs.abs()
    if not bool(((moduli == 0) | ((moduli >= LEAST) & (moduli <= MOST))).all()):
        raise ValueError(f"{what} must be finite, and 0 or between {LEAST:.0e} and {MOST:.0e} in modulus")


def power_of_two(moduli: Tensor) -> Tensor:
    """The power of two that brings a number near 1, exactly; 1 where the number is 0."""
    exponent = np.frexp(moduli.cpu().numpy())[1]
    return torch.from_numpy(np.ldexp(1.0, -exponent)).to(moduli)


def length(vectors: Tensor) -> Tensor:
    """Upper bounds of the Euclidean norms of rows; squares that underflow are paid for."""
    lost: float = rounding.tiny(1, vectors.dtype) ** 0.5
    return up(vectors.square().sum(-1).sqrt(), vectors.shape[-1]) + lost


def up(moduli: Tensor, n: int) -> Tensor:
    """An upper bound of a nonnegative sum of n products, from its float."""
    return moduli * (1 + rounding.of_ours(n + 4, moduli.dtype))
