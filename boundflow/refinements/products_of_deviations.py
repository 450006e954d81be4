"""What ``sum_j x_j db_j`` can reach, for any x with ``|x_j| <= s_j``: the entries of b deviate by the same symbols.

The product of two sets is off its linear part by ``da . db``, a sum of products of deviations. Bounded one by one that
is ``sum_j s_j t_j``, as if every entry of b could be at its end at once. But ``db = E xi``, where column k of E belongs
to symbol k, and a symbol that moves one entry up moves another down. For any positive d, and h the support function,

    h(a)  <=  sqrt(h(d)) sqrt(sum_k a_k^2 / d_k)                                                   (Cauchy, Schwarz)

Proof: the term of one sample has ``term(a)^2 <= term(d) sum_k a_k^2 / d_k`` over its symbols, for boxes by Cauchy and
Schwarz, for all others because their term is at most the length of a, and that of d at least its largest entry. Parts
of a clause, the samples within a budget, and clauses add up; Cauchy and Schwarz once more bound the sum of the roots.

For a = x E the second factor is the root of ``x C x`` with ``C = E diag(1/d) E'``. With x_j = s_j y_j and |y_j| <= 1,
of which n are not 0,

    |x db|  <=  sqrt(h(d)) sqrt(n |M|),        M = diag(s) C diag(s),        |M| its norm on Euclidean space.

Here d_k is about the length of column k. Error rows that belong to one entry each are no matter of Cauchy and Schwarz:
what they reach is added up. The norm of a matrix P of n lines follows from its powers: ``|P|^2 = |P'P|``, three times,
and in the end the root of the sum of all squares, which is too large by n^(1/16) at most.

Roundings: where P'P is rounded by R, ``|P|^2 <= |P'P + R| + |R|``, and R has length ``gamma_n`` times the sum of the
squares of P, which is at most n |P|^2. Matrices and lines are scaled by powers of two first, which is exact, so that
nothing underflows that would count.

MAGIC with all samples moved by 0.01: products of deviations of 128 hidden units reach two thirds of what they do one by
one, and half of a per cent more is certified. On Two-Moons with 100 units nearly none reaches less, which one vector
tells of a line without its matrix: of 18,800 lines 9 are left, and 2.5 s of 8.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..arithmetic.tuned_numbers import MATRICES_AT_A_TIME, MATRICES_AT_A_TIME_CUDA
from ..symbols.budgets import box

if TYPE_CHECKING:
    from ..sets.forms import Form
    from ..symbols.budgets import Columns
    from ..symbols.expansion import Expansion

SQUARINGS = 3
TRIED = 4  # products of a matrix and a vector, before any power of the matrix is made
LEAST_TRACE = 2.0**-900  # what underflows beside it is less than a rounding of it


class Together(NamedTuple):
    """What is known of a matrix b of shape (inner, width), in float64, and in units of a power of two for each output.

    None of it is rounded up: `second_order` does that in the end.
    """

    exponent: Tensor  # (width): of these powers
    reach: Tensor  # (width): h(d)
    gram: Tensor  # (width, inner, inner): E diag(1/d) E'
    terms: int  # that were added up in it
    rest: Tensor  # (inner, width): what E leaves out


def together(form: Form, expansion: Expansion, columns: Columns) -> Together:
    """The deviations of a matrix whose rows all stand in an expansion, and whose deep rows are these columns."""
    inner, width = form.center.shape
    generators = form.generators.double()
    exponent = torch.frexp(generators.abs().amax((0, 1))).exponent
    elements = _times_power(generators, -exponent).reshape(len(form.rows), inner * width).T
    deep, error = expansion.expanded(elements, form.rows)
    count = deep.shape[1] - (0 if expansion.boxes is None else len(expansion.boxes))
    rest = (error + box(deep[:, count:], 1)).view(inner, width) + _times_power(form.radius.double(), -exponent)
    e = deep[:, :count].view(inner, width, count).transpose(0, 1)
    length = torch.linalg.vector_norm(e, dim=1) + e.abs().amax(1)  # squares may underflow: it must not be 0 then
    root = length.sqrt()
    weighted = torch.where(root.unsqueeze(1) > 0, e / root.unsqueeze(1), 0.0)
    weights = torch.nn.functional.pad(root * root, (0, deep.shape[1] - count))
    reach = columns.reach(weights).amax(0)
    return Together(exponent, reach, weighted @ weighted.mT, count, rest)


def smaller(one_by_one: Tensor, deviation: Tensor, found: Together) -> Tensor:
    """The smaller of what entries reach one by one, (lines, width), and `second_order`, of which either is true.

    The second one is made of lines alone for which it can be smaller.
    """
    lines = (~(_at_least(deviation.double(), found) >= one_by_one)).any(1).nonzero().squeeze(1)
    if not len(lines):
        return one_by_one
    made = second_order(deviation[lines], found).to(one_by_one.dtype)
    return one_by_one.index_copy(0, lines, torch.fmin(one_by_one[lines], made))


def _at_least(s: Tensor, found: Together) -> Tensor:
    """No more than `second_order` gives: ``|M| >= |M v| / |v|``, for v that M has been applied to a few times.

    v begins as the column of M with the largest entry. Powers of M cost as much as inner terms times this. Nothing is
    rounded down: `operator_norm` adds far more than roundings of float64 are. NaN says nothing.
    """
    exponent = torch.frexp(s.amax(1, keepdim=True)).exponent
    s = _times_power(s, -exponent)
    largest = (s.square().unsqueeze(1) * found.gram.diagonal(dim1=1, dim2=2)).argmax(2)  # (lines, width)
    by_output = s.unsqueeze(0)
    v = by_output * torch.take_along_dim(found.gram, largest.T.unsqueeze(2), 1)  # (width, lines, inner)
    for _ in range(TRIED):
        v = v / torch.linalg.vector_norm(v, dim=2, keepdim=True)
        v = by_output * ((by_output * v) @ found.gram)
    norm = torch.linalg.vector_norm(v, dim=2).T
    return _times_power(_times_power(_root(norm, s, found) + s @ found.rest, exponent), found.exponent)


def second_order(deviation: Tensor, found: Together) -> Tensor:
    """How far ``sum_j x_j db_jp`` reaches, (lines, width), for x within ``deviation`` (lines, inner)."""
    width, inner, _ = found.gram.shape
    numbers = MATRICES_AT_A_TIME_CUDA if deviation.is_cuda else MATRICES_AT_A_TIME
    some = torch.split(deviation.double(), max(1, numbers // (width * inner * inner)))
    return torch.cat([_second_order(part, found) for part in some])


def _second_order(s: Tensor, found: Together) -> Tensor:
    """The same of some lines.

    An entry of M is a product of four numbers that were rounded three times, summed up over the symbols: M is off by
    ``gamma_(K + 8)`` times its trace, which is at most n |M|. Everything else takes n + 16 roundings.
    """
    inner = s.shape[1]
    exponent = torch.frexp(s.amax(1, keepdim=True)).exponent
    s = _times_power(s, -exponent)
    diagonal = found.gram.diagonal(dim1=1, dim2=2).T
    trace = (s * s) @ diagonal
    least = torch.frexp(trace).exponent  # no entry of M is larger
    scaled = _times_power(s.unsqueeze(1).unsqueeze(3) * found.gram, -least[..., None, None])
    norm = _times_power(operator_norm((scaled * s.unsqueeze(1).unsqueeze(2)).float()), least)
    root = _root(norm, s, found)
    deviates = (s > 0).double() @ (found.gram != 0).any(2).double().T > 0  # though it may be too little to be seen
    root = torch.where((trace < LEAST_TRACE) & deviates, math.inf, root)
    unit = rounding.of_ours(inner * (found.terms + 8) + inner + 16, s.dtype)
    reached = (root + s @ found.rest) * (1 + unit)
    return _times_power(_times_power(reached, exponent), found.exponent) + rounding.tiny(inner, s.dtype)


def _root(norm: Tensor, s: Tensor, found: Together) -> Tensor:
    """``sqrt(h(d)) sqrt(n |M|)``."""
    return norm.sqrt() * (s > 0).sum(1, keepdim=True).sqrt() * found.reach.sqrt()


def operator_norm(matrices: Tensor) -> Tensor:
    """At least the largest singular value of square matrices (..., n, n) in float32 with no entry above 1, in float64.

    Each of the squarings loses ``n gamma_n`` of the norm before its roots are taken, and so do entries that were
    converted; the sum of the squares is one of float64. Where the trace is about 1, and the norm no less than a
    (2 n)-th of it, not even the eighth power underflows.
    """
    n = matrices.shape[-1]
    for _ in range(SQUARINGS):
        matrices = matrices.mT @ matrices
    length: Tensor = torch.linalg.vector_norm(matrices, dim=(-1, -2), dtype=torch.float64)
    return length.pow(0.5**SQUARINGS) * (1 + rounding.of_ours(n * n, matrices.dtype))


def _times_power(x: Tensor, exponent: Tensor) -> Tensor:
    """``x 2^exponent`` in float64, exactly unless it underflows, for exponents of floats.

    `torch.ldexp` makes the power in float32 in some versions. Half of an exponent is within the range of float64.
    """
    half = torch.div(exponent, 2, rounding_mode="floor").long()
    return x * _power(half) * _power(exponent.long() - half)


def _power(exponent: Tensor) -> Tensor:
    """2 to this, from the bits of a float."""
    return ((exponent + 1023) << 52).view(torch.float64)
