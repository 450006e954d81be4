"""Rows of an objective as exact numbers: matrices, their inverses, and whether they are positive."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from exact import Exact, adverse, exact, product
from flint import fmpq_mat
from torch import Tensor

from boundflow.optimum.training_rows import Rows

DOUBLE = torch.float64


def some(kind: str, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return adverse(kind, shape, DOUBLE, seed)


def rows_of(inputs: Tensor, ridge: float = 1.0, weights: Tensor | None = None, scale: float = 1.0) -> Rows:
    """Rows as they are: nothing is scaled, and there is no intercept."""
    n, d = inputs.shape
    columns = torch.full((d,), scale, dtype=DOUBLE)
    return Rows(inputs, torch.ones(n, dtype=DOUBLE) if weights is None else weights, columns * ridge, columns)


def at_most(found: Tensor, wanted: Any) -> bool:
    return bool(np.all(exact(found) <= wanted))


def solved(matrix: Exact, right: Exact) -> Exact:
    """``matrix^-1 right``, exactly."""
    made = fmpq_mat(*matrix.shape, list(matrix.flatten())).solve(fmpq_mat(*right.shape, list(right.flatten())))
    return np.array([[made[i, j] for j in range(made.ncols())] for i in range(made.nrows())], dtype=object)


def matrix_of(rows: Rows, slopes: Tensor) -> Exact:
    """``sum_i s_i x_i x_i^T + diag(ridge)``."""
    x = exact(rows.inputs)
    return product((x * exact(slopes)[:, None]).T, x) + np.diag(exact(rows.ridge))


def definite(matrix: Exact) -> bool:
    """Whether no eigenvalue is below 0: Gauss's elimination with nothing below 0 on its diagonal."""
    left = matrix.copy()
    for place in range(len(left)):
        pivot = left[place, place]
        if pivot < 0 or (pivot == 0 and any(left[place, place:] != 0)):
            return False
        if pivot != 0:
            left = left - left[:, place : place + 1] * left[place : place + 1] / pivot
    return True
