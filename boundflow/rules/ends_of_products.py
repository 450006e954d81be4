"""The ends of a matrix product of test inputs: where a column has a sign, the weight is at an end of its interval.

With weights b in [l, u], their middle m and half width h,

    sum_j a_ij b_jp  >=  sum_j a_ij w_ijp  -  sum over j of unknown sign  |a_ij| h_jp,

where w is l for a >= 0, u for a <= 0 and m otherwise. Proof: a (b - w) is not negative in the first two cases, and at
least -|a| h in the third. The upper end is the same with l and u exchanged.

The right side is linear in a, and w is plain: what the columns of a share, an input that moves all features at once,
stays together, where the product of two sets charges every column with both spreads. In exchange, what the entries of b
share is lost. So the tighter of both is taken, element by element. It is for answers alone: a step is taken often, and
there it gained nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..arithmetic.tuned_numbers import MOST_ENDS, WORTH_ENDS
from ..sets.forms import Form
from ..sets.set import Set, concretised, intersected
from .linear import combination
from .operand_properties import has_own_rows, symbols_of, varies


def within_corners(name: str, product: Set, a: Set, b: Set, bias: Set | None, terms: float) -> Set:
    """A matrix product ``a b + bias``, within the bounds that follow from the signs of test inputs a."""
    if not has_own_rows(a) or a.form.axis != -2:
        return product
    batch = a.form.rows.batch
    if batch is None or not batch.guests or not varies(b) or a.shape[0] * b.numel() > MOST_ENDS:
        return product
    if not _worth_it(product, a, b):
        return product
    ends = _ends(name, a, b, terms, sharp=bias is None)
    if bias is not None:
        ends = (combination(name, [(end, 1.0), (bias, 1.0)], terms=terms + 3) for end in ends)
    return intersected(name, product, torch.stack([end.bounds[side] for side, end in enumerate(ends)]))


def _worth_it(product: Set, a: Set, b: Set) -> bool:
    """Whether products of two deviations, and a center of b out of its middle, make up much of the product's width."""
    spread, half = b.deviation, 0.5 * (b.bounds[1] - b.bounds[0])
    most = a.deviation @ spread + a.form.center.abs() @ (spread - half).clamp_min(0.0)
    return bool((most > WORTH_ENDS * 0.5 * (product.bounds[1] - product.bounds[0])).any())


def _ends(name: str, a: Set, b: Set, terms: float, sharp: bool) -> Iterator[Set]:
    """Two sets: the lower end of one is one of the product, the upper end of the other. ``sharp`` if no bias comes."""
    middle, half = rounding.middle(b.bounds)
    up, down = (a.bounds[0] >= 0).unsqueeze(-1), (a.bounds[1] <= 0).unsqueeze(-1)
    unsigned = torch.where((up | down).squeeze(-1), 0.0, a.bounds.abs().amax(0))
    # the plain product rounds with any b, and so do center and rows here: 2 n roundings, and sums of radii a few more
    charge = 2 * rounding.gamma(terms + 2, a.dtype)
    modulus = torch.maximum(a.form.modulus, a.bounds.abs().amax(0))
    doubt = (unsigned @ half) * (1 + charge) + charge * (modulus @ b.bounds.abs().amax(0))
    doubt = doubt + rounding.tiny(2 * terms + 2, a.dtype)

    def around(center: Tensor, radius: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        spread = torch.einsum("ij,ijp->ip", radius, weights.abs()) * (1 + charge)
        return torch.einsum("ij,ijp->ip", center, weights), spread + doubt

    for least, most in (b.bounds, b.bounds.flip(0)):
        weights = torch.where(up, least, torch.where(down, most, middle))  # (samples, columns, outputs)
        bounds = rounding.around(*around(*rounding.middle(a.bounds), weights))
        center, radius = around(a.form.center, a.form.radius, weights)
        generators = torch.einsum("kij,ijp->kip", a.form.generators, weights)
        form = Form(center, generators, radius, a.form.rows, a.form.along)
        yield concretised(name, bounds, form, symbols_of(a, b), sharp=sharp)
