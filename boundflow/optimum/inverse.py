"""Directions in which the optimum is asked about: what has to be tilted, and how far, to move a logit.

For ``M Delta = -b`` and any direction a, every vector v gives ``<a, Delta> = -<v, b> + <a - M v, Delta>``. So v need
only be near ``M^-1 a``: a Cholesky factor in floats finds it, and what it leaves, ``|a - M v|``, is paid for by a bound
of |Delta|. With M^ the float matrix and ``d_p = sqrt(M_pp)``, Cauchy and Schwarz give ``sum_i s_i |x_ip| |x_iq| <= d_p
d_q``, so in any order of summation

    |M - M^|  <=  gamma_n d d^T        and        |a - M v|  <=  |a - M^ v| + gamma (|a| + |d| (d |v|)).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..arithmetic import rounding
from .training_rows import Rows, length, up

BLOCK, BAND = 1024, 512  # rows and columns of the products that are made at a time


class Directions(NamedTuple):
    """Vectors v, one a row, upper bounds of their lengths, and how much of what was asked they leave, at most."""

    vectors: Tensor
    lengths: Tensor
    left: Tensor

    def at(self, places: slice | Tensor) -> Directions:
        return Directions(self.vectors[places], self.lengths[places], self.left[places])


class Inverse:
    """``M = sum_i s_i x_i x_i^T + diag(ridge)``, factored."""

    def __init__(self, rows: Rows, slopes: Tensor):
        self.slopes, self.ridge = slopes, rows.ridge
        self.matrix, summands = gram(rows.inputs, slopes)
        self.matrix.diagonal().add_(rows.ridge)
        self.summands = summands + 1
        diagonal = self.matrix.diagonal()
        self.moduli = up(diagonal.clamp_min(0.0).sqrt(), self.summands)
        self.factor, info = torch.linalg.cholesky_ex(self.matrix)
        self.singular = bool(info != 0)
        self.least = rows.least_eigenvalue(slopes)

    def of(self, asked: Tensor) -> Directions:
        """What solves ``M v = a`` nearly, for every row a."""
        if self.singular:
            vectors = torch.zeros_like(asked)
        else:
            vectors = torch.cholesky_solve(asked.T, self.factor).T.contiguous()
            vectors += torch.cholesky_solve((asked - vectors @ self.matrix).T, self.factor).T
        remainder, off = self.remainder(asked, vectors)
        return Directions(vectors, length(vectors), up(length(remainder) + off, 1))

    def remainder(self, asked: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """``a - M v``, and how long what is not known of it can be."""
        charge = rounding.of_ours(self.summands + len(self.matrix), asked.dtype)
        moduli = vectors.abs() @ self.moduli
        off = charge * (length(asked) + float(length(self.moduli)) * moduli) * (1 + charge)
        return asked - vectors @ self.matrix, off + rounding.tiny(self.summands, asked.dtype)

    def norms(self, asked: Tensor, directions: Directions) -> Tensor:
        """Upper bounds of |a| in the norm of M^-1: ``<a, v> + <v, s> + <s, M^-1 s>`` is its square, s = a - M v."""
        product = (asked * directions.vectors).sum(1).abs()
        charge = rounding.of_ours(len(self.matrix), asked.dtype) * length(asked) * directions.lengths
        known = up(product, 4) + charge + directions.left * directions.lengths
        return up((known + directions.left.square() / self.least).sqrt(), 8)

    def over_rows(self, vectors: Tensor) -> Tensor:
        """Upper bounds of ``sqrt(sum_i s_i <v, x_i>^2)``: what |v| in the norm of M has without the ridge."""
        moduli = vectors.abs() @ self.moduli
        charge = rounding.of_ours(self.summands + 2 * len(self.matrix), vectors.dtype) * moduli.square()
        product = ((vectors @ self.matrix) * vectors).sum(1) - vectors.square() @ self.ridge
        return up((product.clamp_min(0.0) + 2 * charge).sqrt(), 8)


def gram(inputs: Tensor, slopes: Tensor) -> tuple[Tensor, int]:
    """``sum_i s_i x_i x_i^T``, and through how many roundings a summand goes.

    Blocks of rows are added up one after the other, so that there are few: those of a product of a block, and one for
    each block. Of products only those above the diagonal are made.
    """
    n, width = inputs.shape
    total = inputs.new_zeros(width, width)
    for begin in range(0, n, BLOCK):
        part = inputs[begin : begin + BLOCK]
        weighted = (part * slopes[begin : begin + BLOCK, None]).T
        for first in range(0, width, BAND):
            total[first : first + BAND, first:] += weighted[first : first + BAND] @ part[:, first:]
    return torch.triu(total) + torch.triu(total, 1).T, min(n, BLOCK) + -(-n // BLOCK) + 1
