"""Rows of an objective as exact numbers: matrices, their inverses, and whether they are positive; sums in a bad order.

PyTorch adds numbers up in blocks, and loses little. Bounds are to hold in any order, so laws add one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import torch
from exact import Exact, adverse, exact, product
from flint import arb, ctx, fmpq_mat
from torch import Tensor
from torch.overrides import TorchFunctionMode

from boundflow.optimum.training_rows import Rows

DOUBLE = torch.float64


def some(kind: str, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return adverse(kind, shape, DOUBLE, seed)


def make(kind: str, shape: tuple[int, int], seed: int = 0) -> Tensor:
    """Rows whose terms are chosen so, or have squares that are swallowed by that of the first."""
    if kind == "squares":
        return make("swallowed", shape, seed).abs().sqrt()
    return some(kind, (shape[1], shape[0]), seed).T.contiguous()


def rows_of(inputs: Tensor, ridge: float = 1.0, weights: Tensor | None = None, scale: float = 1.0) -> Rows:
    """Rows as they are: nothing is scaled, and there is no intercept."""
    n, d = inputs.shape
    columns = torch.full((d,), scale, dtype=DOUBLE)
    return Rows(inputs, torch.ones(n, dtype=DOUBLE) if weights is None else weights, columns * ridge, columns)


class OneAfterTheOther(TorchFunctionMode):
    """Sums and products of matrices add their terms in order, each to all before it."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in (torch.Tensor.sum, torch.sum) and args[0].is_floating_point():
            return _sum(*args, **(kwargs or {}))
        if function in (torch.Tensor.__matmul__, torch.Tensor.matmul, torch.matmul):
            x, y = args
            if y.dim() == 1:
                return last(x * y, x.dim() - 1)
            return last(x.unsqueeze(-1) * y, x.dim() - 1)
        return function(*args, **(kwargs or {}))


def _sum(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    found = last(x.flatten(), 0) if dim is None else last(x, dim)
    return found.unsqueeze(dim) if keepdim and dim is not None else found


def one_after_the_other(test: Callable[..., None]) -> Callable[..., None]:
    @wraps(test)
    def called(*args: Any, **kwargs: Any) -> None:
        with OneAfterTheOther():
            test(*args, **kwargs)

    return called


def last(terms: Tensor, dim: int) -> Tensor:
    """The sum, by a loop."""
    moved = terms.movedim(dim, 0)
    found = moved[0].clone() if len(moved) else moved.sum(0)
    for term in moved[1:]:
        found = found + term
    return found


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


def with_many_bits(test: Callable[..., None]) -> Callable[..., None]:
    @wraps(test)
    def called(*args: Any, **kwargs: Any) -> None:
        before, ctx.prec = ctx.prec, 1200
        try:
            test(*args, **kwargs)
        finally:
            ctx.prec = before

    return called


def bend(z: Any) -> Any:
    """The derivative of the logistic function."""
    return 1 / ((1 + arb(z).exp()) * (1 + (-arb(z)).exp()))
