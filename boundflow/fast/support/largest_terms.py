"""The k largest of many terms on a GPU, without sorting: their k-th is found by halving a range of bits (`terms.cu`).

    sum of the k largest t_o  =  sum over t_o > tau of t_o  +  (k - how many those are) tau,      tau the k-th largest

PyTorch's `topk` moves all terms several times; here a block of threads holds those of one row in registers. Terms are
not negative, and NaN is the largest of all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .kernel_compiler import launch, usable

# Warps of a block, and terms that a thread holds: a warp alone needs not wait for others.
SIZES = ((1, 8), (1, 16), (1, 40), (8, 8), (8, 16), (8, 32), (8, 64))
BOX, CROSS, SIMPLEX = 0, 2, 3  # kinds of terms, as `terms.cu` has them
NAMES = {torch.float32: "float", torch.float64: "double"}


def holds(rows: Tensor, terms: int, k: int) -> bool:
    """Whether there is a kernel for rows of so many terms."""
    fits = rows.dtype in NAMES and 0 < k <= terms <= _room(*SIZES[-1]) and 0 < len(rows) < 2**31
    return fits and rows.is_contiguous() and usable(rows.device)


def kth_largest(terms: Tensor, k: int) -> Tensor:
    """Of each row of contiguous terms (rows, terms)."""
    out = terms.new_empty(len(terms))
    _launch(terms, out, BOX, 1, (0, terms.shape[1], 1, k), summed=False)
    return out


def sums_of_largest(coefficients: Tensor, kind: int, begin: int, owners: int, width: int, k: int) -> Tensor:
    """Of each row of coefficients (rows, symbols), the sum of the k largest terms: (ends, rows), two of a simplex.

    An owner has ``width`` symbols that are neighbours, from ``begin`` on. A sum takes k + 2 roundings, and a term as
    many as it has symbols.
    """
    ends = 2 if kind == SIMPLEX else 1
    out = coefficients.new_empty(ends, len(coefficients))
    _launch(coefficients, out, kind, ends, (begin, owners, width, k), summed=True)
    return out


def _launch(rows: Tensor, out: Tensor, kind: int, ends: int, numbers: tuple[int, int, int, int], summed: bool) -> None:
    warps, items = next(size for size in SIZES if numbers[1] <= _room(*size))
    name = f"largest<{NAMES[rows.dtype]}, {kind}, {items}, {int(summed)}, {warps}>"
    launch(name, rows.device, (len(rows), ends), 32 * warps, [rows, out, rows.shape[1], *numbers])


def _room(warps: int, items: int) -> int:
    return 32 * warps * items
