"""Ranges of very many rows: every two of them are held against each other once, and not in every pass.

With any vectors v (`Kept`: those that solve ``M v = a`` for slopes that were guessed), for whatever slopes are proven
later, and ``s = a - M v``,

    <a, Delta>  =  <v, M Delta> + <s, Delta>,       |<s, Delta>|  <=  |s| |M Delta|      in the norm of M^-1.

Of ``M Delta`` (`linearised.py`) the part of other targets, ``sum_(i in S) w_i d_i x_i``, is the same in every pass: its
k largest terms along v are kept. What slopes miss is e = c + r, |r| <= rho, and e' where a target differs: it is small,
so lengths do: by Cauchy and Schwarz

    |sum_i w_i r_i <v, x_i>|  <=  sqrt(sum_i w_i m_i <v, x_i>^2) sqrt(sum_i w_i rho_i^2 / m_i),

the first of which is at most |v| in the norm of M, which is ``|a - s|`` in that of M^-1; and a changed row adds at most
``w_j |e'_j - c_j| |v| |x_j|`` in these norms.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..arithmetic import rounding
from .inverse import Directions
from .linearised import Linearised, largest
from .training_rows import length, up

LEAST = 1e-280  # of a slope by which something is divided


class Kept(NamedTuple):
    """Directions for all rows, and how far down and up, (n, 2) each, other targets move them at most.

    ``still`` is for rows whose own target stands, ``changed`` for those whose target differs.
    """

    directions: Directions
    still: Tensor
    changed: Tensor


def moved(linear: Linearised, kept: Kept) -> tuple[Tensor, Tensor]:
    """How far rows can go down and up, (n, 2): where their own target stands, and where it differs."""
    assert linear.still is not None
    rows, inverse, weights = linear.rows, linear.inverse, linear.rows.weights
    clause, one = linear.changes.clauses[0], torch.ones_like(weights[:1])
    size = inverse.norms(rows.inputs, inverse.of(rows.inputs))
    remainder, off = inverse.remainder(rows.inputs, kept.directions.vectors)
    off = off / inverse.least**0.5
    short = inverse.norms(remainder, inverse.of(remainder)) + off
    middle = linear.still.mean(1)
    reach = up((linear.still - middle[:, None]).abs().amax(1), 1)
    low, high = linear.moves(clause, one)
    ends = torch.stack((low, high)) - middle
    known = torch.stack((low, high)) - torch.stack(linear.changes.bounds(clause, one)) - middle
    most, more = (
        float(largest(up(part.abs().amax(0) * weights * size * clause.touched, 6)[None], clause.budget)[0])
        for part in (ends, known)
    )
    missed = _together(linear, reach)
    far = _together(linear, reach + middle.abs()) + most + linear.pull(one)
    vectors = kept.directions.vectors
    around = up(inverse.over_rows(vectors) * missed + (size + short) * more + short * far, 16)
    charge = rounding.of_ours(len(rows) + rows.width, middle.dtype)
    around = around + charge * kept.directions.lengths * float((middle.abs() * weights) @ rows.norms)
    along = vectors @ ((middle * weights) @ rows.inputs)
    directions = kept.directions._replace(left=torch.zeros_like(size))
    fixed = torch.stack([linear.fixed(directions, side * one) + side * along + around for side in (1.0, -1.0)], 1)
    slack = rounding.of_ours(6, fixed.dtype)
    still, changed = (top + fixed + slack * (top.abs() + fixed.abs() + along.abs()[:, None]) for top in kept[1:])
    return still, changed


def _together(linear: Linearised, missed: Tensor) -> float:
    """``sqrt(sum_i w_i rho_i^2 / m_i)``, at least the length of ``sum_i w_i r_i x_i`` in the norm of M^-1."""
    slopes, lost = linear.inverse.slopes, missed * linear.rows.weights
    found = torch.where(slopes > LEAST, lost.square() / slopes, torch.inf).masked_fill(lost == 0, 0.0)
    return float(length(up(found, 8).sqrt()))
