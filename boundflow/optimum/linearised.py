"""How far a logit of the optimum can be from that of the given weights.

The optimum Theta + Delta of other data, in which the rows S have other targets, obeys (pieces: `logit_losses.py`)

    M Delta  =  - g0 - t - sum_(i in S) w_i d_i x_i - sum_i w_i e_i x_i,       M = sum_i w_i m_i x_i x_i^T + diag(r)

with g0 the gradient that the given weights leave on the observed data, t what the solver of the other data leaves (no
entry above its tolerance), d_i what the other target of row i adds (`changes.py`), and e_i what the slope m_i misses,
which lies in one interval where row i stands as observed and in another where its target differs. With ``M v = a - s``

    <a, Delta>  >=  - <v, g0> - tolerance |v|_1 - |s| |Delta| - sum_i still_i - the k largest (changed_i - still_i)
    still_i    =  max of  w_i <v, x_i> e   over the interval of e        changed_i = the same of d + e, d in its own

since every row stands as observed or does not. With squared loss there is no e, slopes are 1, and the bound is reached:
the k largest are a dataset. ``|<s, Delta>|`` is at most |s| in the norm of M^-1, which is less than ``|s| / sqrt(least
eigenvalue)`` (`training_rows.py`), times |Delta| in the norm of M, which is |M Delta| in that of M^-1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..symbols.budgets import few_largest
from .changes import Changes, Clause
from .inverse import Directions, Inverse
from .training_rows import LEAST, Rows, length, up


class Gradient(NamedTuple):
    """What the given weights leave, (outputs, d), how far each entry is off, and the tolerance of other solvers."""

    value: Tensor
    error: Tensor
    tolerance: float


class Asked(NamedTuple):
    """Directions, and ``w_i <v, x_i>`` of all rows (m, n), each off by at most ``error`` (m) times ``w_i |x_i|``.

    ``missed`` (m, 2): what slopes miss where rows stand as observed, its middle and how far it is from there.
    """

    directions: Directions
    weighted: Tensor
    error: Tensor
    missed: Tensor | None = None

    def at(self, places: slice | Tensor) -> Asked:
        missed = None if self.missed is None else self.missed[places]
        return Asked(self.directions.at(places), self.weighted[places], self.error[places], missed)


class Loss(NamedTuple):
    """How far down directions can go: in any case (m), and by rows with other targets, a list of (m, n) by clause.

    Every term is off by at most ``error`` (m), which is not among them.
    """

    fixed: Tensor
    terms: list[Tensor]
    error: Tensor


@dataclass(frozen=True)
class Linearised:
    """One linearisation: its inverse, and the intervals (n, 2) in which what it misses lies."""

    rows: Rows
    changes: Changes
    inverse: Inverse
    gradient: Gradient
    still: Tensor | None = None
    changed: Tensor | None = None

    def asked(self, inputs: Tensor) -> Asked:
        """The coefficients of all rows for inputs in scaled coordinates."""
        directions = self.inverse.of(inputs)
        found = directions.vectors @ self.rows.inputs.T
        charge = rounding.of_ours(self.rows.width + 1, found.dtype)
        lost = rounding.tiny(self.rows.width, found.dtype) / LEAST**3  # in units of ``w_i |x_i|``, no less than that
        error = up(charge * directions.lengths, 2) + lost
        weighted = found.mul_(self.rows.weights)
        return Asked(directions, weighted, error, self._missed_along(weighted, error))

    def _missed_along(self, weighted: Tensor, error: Tensor) -> Tensor | None:
        """The sum of ``W e`` over rows as observed: with e = c + r, |r| <= rho, it is ``W c``, off by ``|W| rho``."""
        if self.still is None:
            return None
        middle = self.still.mean(1)
        reach = up((self.still - middle[:, None]).abs().amax(1), 1)
        sums = weighted.abs() @ torch.stack((reach, middle.abs()), 1)
        charge = rounding.of_ours(weighted.shape[1] + 2, weighted.dtype)
        far = (
            sums[:, 0]
            + charge * sums.sum(1)
            + error * float(up(self._missed * self.rows.weights @ self.rows.norms, weighted.shape[1] + 4))
            + rounding.tiny(weighted.shape[1], weighted.dtype)
        )
        return torch.stack((weighted @ middle, far), 1)

    def loss(self, asked: Asked, direction: Tensor) -> Loss:
        """How far ``<a, Delta>`` can go down along a direction in the space of logits, by rows."""
        fixed = self.fixed(asked.directions, direction)
        if asked.missed is not None:
            fixed = fixed + (float(direction[0]) * asked.missed[:, 0] + asked.missed[:, 1])
        terms = []
        for clause in self.changes.clauses:
            lower, upper = (ends * clause.touched for ends in self.slopes(clause, direction))
            lower, upper = lower.clamp_max(0.0), upper.clamp_min(0.0)
            if bool((lower * upper < 0).any()):
                terms.append(torch.maximum(asked.weighted * lower, asked.weighted * upper))
            else:  # each row can go down by one sign of W alone
                terms.append((asked.weighted * (lower + upper)).clamp_min_(0.0))
        return Loss(fixed, terms, asked.error * self._longest(direction) + rounding.tiny(1, fixed.dtype))

    def slopes(self, clause: Clause, direction: Tensor) -> tuple[Tensor, Tensor]:
        """What a row with another target takes off is ``upper W`` where W > 0, and ``lower W`` where W < 0, (n) each.

        That is ``max(W low, W high)`` for what it adds then, less the same for what its slope missed before.
        """
        low, high = self.moves(clause, direction)
        if self.still is None:
            return low, high
        least, most = _along(self.still, direction)
        slack = rounding.of_ours(2, low.dtype) * (low.abs() + high.abs() + least.abs() + most.abs())
        return low - least - slack, high - most + slack

    def most(self, loss: Loss, budget: int | None = None) -> Tensor:
        """The most that directions can go down, (m): the sum of the largest terms, within each budget."""
        total = loss.fixed
        for clause, terms in zip(self.changes.clauses, loss.terms, strict=True):
            count = clause.budget if budget is None or clause.budget is None else budget
            count = terms.shape[1] if count is None else min(count, terms.shape[1])
            total = total + largest(terms, count) + up(count * loss.error, 2)
        return total + rounding.of_ours(2 * len(loss.terms) + 2, total.dtype) * total.abs()

    def _longest(self, direction: Tensor) -> float:
        """What an error of 1 in ``<v, x_j> / |x_j|`` makes of the term of a row, at most."""
        longest = 0.0
        for clause in self.changes.clauses:
            lower, upper = self.slopes(clause, direction)
            reach = torch.maximum(-lower, upper).clamp_min(0.0) * clause.touched
            longest = max(longest, float((reach * self.rows.weights * self.rows.norms).max()))
        return longest * (1 + rounding.of_ours(6, torch.float64))

    def moves(self, clause: Clause, direction: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds of what a row with another target adds, with what its slope misses then."""
        low, high = self.changes.bounds(clause, direction)
        if self.changed is None:
            return low, high
        slack = rounding.of_ours(2, low.dtype)
        least, most = _along(self.changed, direction)
        low, high = low + least, high + most
        return low - slack * low.abs(), high + slack * high.abs()

    def fixed(self, directions: Directions, direction: Tensor) -> Tensor:
        """How far directions go down by the gradient that is left, by the tolerance, and by what they leave."""
        gradient, error = self._along(direction)
        dot = directions.vectors @ gradient
        charge = rounding.of_ours(self.rows.width, dot.dtype)
        moduli = directions.vectors.abs()
        paid = moduli @ error + charge * directions.lengths * float(length(gradient))
        tolerance = self.gradient.tolerance * float(direction.abs().sum())
        if tolerance:
            paid = paid + tolerance * (
                moduli @ self.rows.scale
            )  # a gradient in scaled coordinates is that times the scale
        moved = directions.left * self.distance(direction)
        return dot + up(paid + torch.nan_to_num(moved, nan=torch.inf), self.rows.width)

    def distance(self, direction: Tensor) -> float:
        """An upper bound of |Delta| along a direction in the space of logits."""
        if self.inverse.least <= 0:
            return math.inf
        return self.reach(direction) / math.sqrt(self.inverse.least) * (1 + rounding.of_ours(4, torch.float64))

    def _along(self, direction: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient along a direction in the space of logits, and what it is off by."""
        error = direction.abs() @ self.gradient.error
        rounded = rounding.of_ours(len(direction), error.dtype) * (direction.abs() @ self.gradient.value.abs())
        return direction @ self.gradient.value, up(error + rounded, len(direction))

    def reach(self, direction: Tensor) -> float:
        """An upper bound of |Delta| along a direction in the space of logits, in the norm of M.

        It is one of the sum over logits, too, each times |q|: what plain logits round is of each of them.
        ``|x_j|^2`` in the norm of M^-1 is at most ``1 / (w_j m_j)``, since M is no less than ``w_j m_j x_j x_j^T``.
        """
        if self.inverse.least <= 0:
            return float("inf")
        far = self.pull(direction) + self._remainders
        for clause in self.changes.clauses:
            low, high = self.moves(clause, direction)
            longest = torch.maximum(-low, high).clamp_min(0.0) * self._pulls * clause.touched
            far += float(largest(up(longest, 4)[None], clause.budget)[0])
        return float(far) * (1 + rounding.of_ours(8 + len(self.changes.clauses), torch.float64))

    def pull(self, direction: Tensor) -> float:
        """How long the gradient that is left, and the tolerance, can be in the norm of M^-1."""
        ends = self._along(direction)
        far = float(up(direction.abs() @ length(self.gradient.value), len(direction))) + float(length(ends[1]))
        far += self.gradient.tolerance * float(direction.abs().sum()) * float(length(self.rows.scale))
        return far / math.sqrt(self.inverse.least) * (1 + rounding.of_ours(6, torch.float64))

    @cached_property
    def _pulls(self) -> Tensor:
        """``w_i |x_i|`` in the norm of M^-1, at most, (n)."""
        lengths = torch.minimum(self.rows.norms / self.inverse.least**0.5, self.inverse.slopes.rsqrt())
        return up(self.rows.weights * lengths, 4)

    @cached_property
    def _missed(self) -> Tensor:
        """How much the slopes of rows that stand as observed miss, at most, (n)."""
        return torch.zeros_like(self.rows.weights) if self.still is None else self.still.abs().amax(1)

    @cached_property
    def _remainders(self) -> float:
        """How long ``sum_i w_i e_i x_i`` of the rows that stand as observed can be, in the norm of M^-1."""
        return float(up(self._missed @ self._pulls, len(self.rows) + 4))


def _along(missed: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
    """The interval (n, 2) of what slopes miss in a logit, along a direction of one logit, which is 1 or -1."""
    low, high = missed[:, 0], missed[:, 1]
    return (low, high) if float(direction[0]) > 0 else (-high, -low)


def largest(terms: Tensor, budget: int | None) -> Tensor:
    """The sum of the ``budget`` largest of nonnegative terms in every row, rounded up, as products are, too."""
    count = terms.shape[1]
    if budget is not None and budget < count:
        terms, count = few_largest(terms, budget), budget
    return up(terms.sum(1), count)


def largest_budget(loss: Loss, terms: Tensor, room: Tensor, most: int) -> Tensor:
    """The largest k at which the k largest terms, with all else, take off less than there is room for; -1 if none.

    For a linearisation that is the same for every budget.
    """
    room = room - loss.fixed - rounding.of_ours(6, room.dtype) * (room.abs() + loss.fixed.abs())
    found = torch.where(room > 0, 0, -1)
    left, count, size = (room > 0).nonzero()[:, 0], 0, min(most, 64)
    while len(left) and count < most:
        size = min(most, max(size, 4 * count))
        sums = torch.topk(terms[left], size).values.cumsum(1)
        budgets = torch.arange(1, size + 1, device=terms.device)
        taken = up(sums, size) + budgets * loss.error[left, None] * 2
        holds = (taken < room[left, None]).long().cumprod(1).sum(1)
        found[left] = holds
        left, count = left[holds == size], size
    return found
