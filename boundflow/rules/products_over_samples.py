"""Matrix products that sum over the samples of a batch, as the gradient of a weight does.

    sum_i a_mi b_ip,      with own row f at sample i:  a^f_mi b_ip + a_mi b^f_ip,  written out as a row of its own

Where at most k samples are touched, the terms are bounded one by one, by exact hulls and radii, as they are and where
their sample was left alone: all clean terms add up, and of what touched ones add the k largest (`clean_state.py`).
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..arithmetic.thread_context import keeps_by_sample, thread
from ..arithmetic.tuned_numbers import SUM_TERMS, SUM_TERMS_CUDA
from ..sets.clean_state import Excess, OwnRows, without_own
from ..sets.forms import Form
from ..sets.sample_axis import Samples
from ..sets.set import Set
from ..symbols.rows import NO_ROWS
from .bilinear import Product, center_of_product, radius_of_product, row_products
from .operand_properties import has_own_rows, only_touched, sample_axis
from .structural import selected

EVERYTHING = slice(None)


def summed_over_samples(a: Set, b: Set) -> bool:
    """Whether a matrix product contracts the sample axis of one operand or of both, and they agree on the samples."""
    whose = {x.along.samples for x in (a, b) if x.along is not None}
    return len(whose) == 1 and sample_axis(a) in (-1, None) and sample_axis(b) in (-2, None)


def clean_samples(a: Set, b: Set) -> Samples | None:
    """The samples that a matrix product sums over, if it is known what the operands are where they were left alone."""
    known = [x.along for x in (a, b) if x.clean is not None]
    if not known or not summed_over_samples(a, b) or any(only_touched(x) for x in (a, b)):
        return None
    return known[0].samples if known[0] is not None else None


def _outer(x: Tensor, y: Tensor) -> Tensor:
    """The terms of a matrix product, summed index first."""
    return x.transpose(-1, -2).unsqueeze(-1) * y.unsqueeze(-2)


def _pieces(a: Set, b: Set) -> Iterator[Set]:
    """The first factor in pieces of rows, so that the terms of the product fit into memory."""
    held = SUM_TERMS_CUDA if a.bounds.is_cuda else SUM_TERMS
    size = max(1, held // max(1, a.shape[1] * b.shape[1]))
    for begin in range(0, a.shape[0], size):
        yield _narrowed(a, begin, min(size, a.shape[0] - begin))


def _narrowed(a: Set, begin: int, size: int) -> Set:
    return selected(a, lambda tensor, lead: tensor.narrow(lead, begin, size))


def _untouched(*operands: Set) -> list[Set]:
    return [x.untouched for x in operands]


def own_terms(a: Set, b: Set, here: slice = EVERYTHING, everybody: bool = False) -> OwnRows | None:
    """Own rows of the terms of a product over samples, ``a^f_mi b_ip + a_mi b^f_ip``, for the rows m ``here``.

    Of several processes each has those of its samples (`row_placement.py`), and for a while those of ``everybody``.
    """
    values, made, shares = None, None, thread.arithmetic.shares
    for x, y, flipped in ((a, b, False), (b, a, True)):
        if has_own_rows(x):
            own = x.form.generators[x.form.rows.split(x.device)[2]]
            first, second = (y.center, own) if flipped else (own, y.center)
            first = first[..., here, :]
            if shares is not None and not everybody and x.form.rows.batch is not None:
                mine = shares.written(x.form.rows.batch)[1].to(x.device)
                first, second = first[..., mine], second[..., mine, :]
            part = _outer(first, second)
            values = part if values is None else values.add_(part)
            assert x.symbols is not None and x.along is not None
            made = OwnRows.of(x.along.samples, values, x.symbols.table, clean=clean_samples(a, b) is not None)
    return made


def worst_product(a: Set, b: Set, terms: float, affine: bool, own: OwnRows | None) -> Excess:
    """``sum_i a_mi b_ip`` where at most k samples i are touched: exact hulls, and radii, of every term."""
    samples = clean_samples(a, b)
    assert samples is not None
    parts, begin, kept, shares = [], 0, [], thread.arithmetic.shares
    for piece in _pieces(a, b):
        here = slice(begin, begin + piece.shape[0])
        begin = here.stop
        inner_a, inner_b = _untouched(piece, b)
        touched, clean = _term_hulls(piece, b), _term_hulls(inner_a, inner_b)
        moduli = torch.maximum(touched.abs(), clean.abs()).amax(0)
        # every term was rounded once, here and in the plain run, then they were added up, in both
        lost = rounding.tiny(terms, moduli.dtype)
        charge = rounding.gamma(2 * terms + 4, moduli.dtype) * moduli.sum(0) + lost
        interval = rounding.widened(clean.sum(1), charge)
        beyond = torch.stack((clean[0] - touched[0], touched[1] - clean[1])).clamp_min(0.0)
        radius = more = None
        if affine:
            before = radius_of_product(inner_a, inner_b, _outer, terms)
            # both round no more than is charged for terms: `summed_radius` of sums_over_samples.py, `Excess.errors`
            more = (radius_of_product(piece, b, _outer, terms) - before).clamp_min(0.0)
            radius = before.sum(0)
            own_here = None if own is None else OwnRows(own.rows[:, :, here], own.zero_when_clean)
            if shares is not None and own is not None:  # which rows are cleared goes by all samples
                own_here = own_terms(a, b, here, everybody=True)
            more = without_own(touched, clean, more, own_here, moduli, terms)
            if shares is not None and own_here is not None and samples.batch is not None:
                kept.append(own_here.rows[:, shares.written(samples.batch)[1].to(a.device)])
        part = Excess(samples, interval, beyond, radius, more)
        parts.append(part if keeps_by_sample() else part.settled())
    if own is not None and kept:
        own.rows = torch.cat(kept, 2)
    return Excess.beside(parts)


def _term_hulls(a: Set, b: Set) -> Tensor:
    ends = [[x.center] if x.exact else list(x.bounds) for x in (a, b)]
    corners = torch.stack([_outer(x, y) for x in ends[0] for y in ends[1]])
    return torch.stack((corners.amin(0), corners.amax(0)))


def sample_sum_form(
    a: Set,
    b: Set,
    f: Product,
    left: Product,
    right: Product,
    terms: float,
    excess: Excess | None,
    own: OwnRows | None,
) -> Form:
    """``sum_i a_mi b_ip`` over samples i: own row f at i becomes a row of its own."""
    center, radius = center_of_product(a, b, f), radius_of_product(a, b, f, terms)
    batches = [x.form.rows.batch for x in (a, b) if x.affine]
    batch = next((batch for batch in batches if batch is not None), None)
    generators, rows = center.new_zeros(0, *center.shape), NO_ROWS
    if a.affine or b.affine:
        generators, rows = row_products(a, b, left, right)
    if rows.batch is not None:  # own rows were summed up for nothing, but before that all others would be copied
        rows, where, _ = rows.split(center.device)
        generators = generators[where]
    if batch is not None and own is not None:
        union = rows.union(batch.written)
        generators, rows = batch.written_into(union.place(generators, rows), union, own.rows), union
    form = Form(center, generators, radius, rows)
    return form if excess is None else excess.around(form)


def with_excess(total: Set, excess: Excess | None) -> Set:
    total.excess = excess if keeps_by_sample() else None
    return total
