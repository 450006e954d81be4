"""Sums over the samples of a batch, as the mean of a loss is, and the radius of any sum.

    sum_i x_i,      with own row f at sample i written out as a row of its own

Where at most k samples are touched, all clean terms add up, and of what touched ones add the k largest
(`clean_state.py`). Sums of products over samples: `products_over_samples.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..arithmetic.thread_context import keeps_by_sample
from ..sets.clean_state import Excess, OwnRows, without_own
from ..sets.forms import Form, PartMap
from ..sets.set import Set, concretised
from .operand_properties import has_own_rows


def summed_radius(radius: Tensor, form: Form, f: PartMap, terms: float) -> Tensor:
    """The radius of a sum, whose terms all have rows that were rounded.

    With gamma_n = n u / (1 - n u) the charge is gamma_2n of the moduli, and 8 roundings. Computed with n roundings it
    is still ``(1 - gamma_n) gamma_2n = 2 gamma_n``: once for the plain run, and once for ours, in which centers and
    rows take what is charged on them, and the sum of radii, whatever their parts are, what is charged on radii.
    """
    total = f(radius + rounding.gamma(terms, radius.dtype) * form.modulus, 0)
    return total + rounding.tiny(terms, radius.dtype)


def added_over_samples(
    name: str,
    x: Set,
    f: PartMap,
    terms: float,
    over_samples: PartMap,
) -> Set:
    """A sum over the sample axis: own rows are written out, and of what touched samples add the k largest are taken."""
    excess = _worst_sum(x, over_samples, terms) if x.clean is not None else None
    if excess is not None:
        bounds = excess.bounds()
    else:
        bounds = rounding.outward_sum(f(x.bounds, 1), f(x.bounds.abs(), 1), terms)
    form = None
    if x.affine:
        generators, rows = x.form.generators, x.form.rows
        own = _own_rows(x, over_samples)
        if excess is not None and x.clean is not None and x.clean.radius is not None:
            excess.radius = summed_radius(x.clean.radius, x.form, f, terms)
            # rounded once, of which `Excess.errors` charges sixteen, and then as the radii of `summed_radius` are
            more = over_samples((x.form.radius - x.clean.radius).clamp_min(0.0), 0)
            touched, inner = over_samples(x.bounds, 1), over_samples(x.clean.bounds, 1)
            excess.more = without_own(touched, inner, more, own, over_samples(_largest_moduli(x), 0), terms)
        if own is not None and rows.batch is not None:
            rest, where, _ = rows.split(x.device)
            batch, kept = rows.batch, f(generators, 1)[where]
            rows = rest.union(batch.written)
            generators = batch.written_into(rows.place(kept, rest), rows, own.rows)
        else:
            generators = f(generators, 1)
        form = Form(f(x.form.center, 0), generators, summed_radius(x.form.radius, x.form, f, terms), rows)
        form = excess.around(form) if excess is not None and excess.radius is not None else form
    in_pieces = keeps_by_sample()  # then the support is that of all pieces together (`batch_pieces.py`)
    total = concretised(name, bounds, form, x.symbols, x.nonnegative, sharp=not in_pieces)
    total.excess = excess if in_pieces else None
    return total


def _own_rows(x: Set, over_samples: PartMap) -> OwnRows | None:
    """The own rows of the terms of a sum over samples."""
    if not has_own_rows(x):
        return None
    assert x.symbols is not None and x.along is not None
    rows = over_samples(x.form.generators[x.form.rows.split(x.device)[2]], 1)
    return OwnRows.of(x.along.samples, rows, x.symbols.table, clean=x.clean is not None)


def _largest_moduli(x: Set) -> Tensor:
    """The largest modulus of every element, touched or clean."""
    assert x.clean is not None
    return torch.maximum(x.bounds.abs(), x.clean.bounds.abs()).amax(0)


def _worst_sum(x: Set, over_samples: PartMap, terms: float) -> Excess:
    """A sum over samples of which at most k are touched: the clean sum, and what touching each of them adds."""
    assert x.clean is not None and x.along is not None
    touched, clean = over_samples(x.bounds, 1), over_samples(x.clean.bounds, 1)
    # the moduli at their largest: n roundings of every member, n of our clean sum, and 2 n of both ends of a move
    moduli = over_samples(_largest_moduli(x), 0).sum(0)
    # a mean divides every term before they are added up: each of them may underflow
    charge = rounding.gamma(2 * terms + 2, x.dtype) * moduli + rounding.tiny(terms, x.dtype)
    interval = rounding.widened(clean.sum(1), charge)
    beyond = torch.stack((clean[0] - touched[0], touched[1] - clean[1])).clamp_min(0.0)
    return Excess(x.along.samples, interval, beyond)
