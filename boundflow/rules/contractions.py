"""Contractions: bilinear operators that sum products (`bilinear.py`), and what becomes of the sample axis.

A matrix product leaves samples apart where they are rows of the first factor or columns of the second: own rows stay
own, and every state has its product. Where it sums over them, `products_over_samples.py` does.
Elsewhere own rows are written out.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..arithmetic.thread_context import keeps_by_sample, thread
from ..arithmetic.tuned_numbers import FEWEST_TOGETHER, MOST_TOGETHER
from ..refinements.products_of_deviations import smaller
from ..sets.factors import Factors
from ..sets.sample_axis import SampleAxis
from ..sets.set import Check, Set, concretised
from .bilinear import (
    Product,
    ball_product,
    interval_alone,
    interval_of,
    linear_product,
    radius_of_product,
)
from .ends_of_products import within_corners
from .linear import broadcast, combination
from .operand_properties import only_touched, same_kind, sample_axis, symbols_of, varies
from .products_over_samples import (
    clean_samples,
    own_terms,
    sample_sum_form,
    summed_over_samples,
    with_excess,
    worst_product,
)
from .states import Remainder, States

Rule = Callable[[Set, Set], tuple[Set, Set, SampleAxis | None]]


def apart(a: Set, b: Set) -> tuple[Set, Set, SampleAxis | None]:
    """For operators that mix all positions: own rows are written out before."""
    return a.dense(), b.dense(), None


def contraction(
    name: str,
    a: Set,
    b: Set,
    f: Product,
    left: Product,
    right: Product,
    terms: float,
    bias: Set | None = None,
    samples: Rule = apart,
) -> Set:
    """A bilinear operator that sums ``terms`` products, and adds a bias (which counts among the terms).

    ``samples`` says where the sample axis of the operands ends up.
    """
    same_kind(a, b, bias)
    rounding.require_full_precision(a)
    if a.affine or b.affine or (bias is not None and bias.affine):
        product = _affine_contraction(name, a, b, f, left, right, terms, samples, sharp=bias is None)
        if bias is not None:
            product = _with_bias(name, product, a, b, bias, terms, samples)
        return within_corners(name, product, a, b, bias, terms) if samples is matrix_samples else product
    if samples is matrix_samples and clean_samples(a, b) is not None:
        product = _affine_contraction(name, a, b, f, left, right, terms, samples)
        return product if bias is None else combination(name, [(product, 1.0), (bias, 1.0)], terms=terms + 3)
    if a.clean is None and b.clean is None:
        bounds = _interval(f, terms, a, b, bias)
        return concretised(name, bounds, None, symbols_of(a, b, bias), check=Check.OVERFLOW)
    over = _apart_states(a, b, samples(a, b)[2], *(() if bias is None else (bias,)))
    views = [over.views[0], *(tuple(map(interval_alone, view)) for view in over.views[1:])]
    return over.result(name, [Remainder(_interval(f, terms, *view), None) for view in views])


def _interval(f: Product, terms: float, a: Set, b: Set, bias: Set | None = None) -> Tensor:
    """The interval of ``f(a, b) + bias`` where there are no rows: balls are multiplied (Rump 1999), ends are added."""
    center, radius = ball_product(a, b, f, terms + 2)
    if bias is None:
        return rounding.around(center, radius)
    ends = broadcast(bias.bounds, center.dim())
    charge = rounding.gamma(terms + 2, center.dtype)  # of the bias, too: the sum with it is one of the terms
    return rounding.widened(center + ends, torch.add(radius, ends.abs().amax(0), alpha=charge))


def _with_bias(name: str, product: Set, a: Set, b: Set, bias: Set, terms: float, samples: Rule) -> Set:
    """An affine product and its bias, made sharp together; a matrix product remembers its factors where it can."""
    factors = _factors(a, b, bias) if samples is matrix_samples else None
    if factors is not None and factors.mixes and _two_logits(product):
        return combination(name, [(product, 1.0), (bias, 1.0)], terms=terms + 3, waits=True)
    total = combination(name, [(product, 1.0), (bias, 1.0)], terms=terms + 3, factors=factors)
    if factors is not None and not factors.mixes and total.along is None:
        total.product = Factors(factors.a, factors.b, factors.bias)
    return total


def _two_logits(product: Set) -> bool:
    """Whether these may be logits of two classes, of which a loss looks at the difference alone.

    Their supports, two for each sample over all parameters, wait until somebody asks, where they take long. Factors are
    not kept for that: they may be tensors of the user, who may write to them, and threads that ask would share them.
    """
    if product.shape[-1] != 2 or product.symbols is None or thread.arithmetic.deferred is not None:
        return False
    return not product.symbols.support.cheap(product.form, max(1, thread.arithmetic.pieces))


def _affine_contraction(
    name: str,
    a: Set,
    b: Set,
    f: Product,
    left: Product,
    right: Product,
    terms: float,
    samples: Rule,
    sharp: bool = True,
) -> Set:
    """Without a bias. With one, the sum is made sharp, not this."""
    affine = a.affine or b.affine
    excess, own = None, own_terms(a, b) if samples is matrix_samples and summed_over_samples(a, b) else None
    if samples is matrix_samples and clean_samples(a, b) is not None:
        excess = worst_product(a, b, terms, affine, own)
    bounds = excess.bounds() if excess is not None else rounding.around(*ball_product(a, b, f, terms))
    if not affine:
        over = _apart_states(a, b, samples(a, b)[2] if excess is None else None)
        intervals = [bounds, *(interval_of(x, y, f, terms) for x, y in over.views[1:])]
        return with_excess(over.result(name, [Remainder(interval, None) for interval in intervals]), excess)
    if samples is matrix_samples and summed_over_samples(a, b):
        form = sample_sum_form(a, b, f, left, right, terms, excess, own)
        sharp = sharp and not keeps_by_sample()  # of all pieces together, not of each (`batch_pieces.py`)
        return with_excess(concretised(name, bounds, form, symbols_of(a, b), sharp=sharp), excess)
    a, b, along = samples(a, b)
    linear = linear_product(a, b, f, left, right, along)
    over = _apart_states(a, b, along)
    shared = _shared_deviations(a, b) if samples is matrix_samples else None
    remainders = [Remainder(bounds, radius_of_product(a, b, f, terms, shared))]
    remainders += [
        Remainder(interval_of(x, y, f, terms), radius_of_product(x, y, f, terms, shared)) for x, y in over.views[1:]
    ]
    factors = _factors(a, b, None) if samples is matrix_samples and sharp else None
    return over.result(name, remainders, linear, sharp=sharp, factors=factors)


def _shared_deviations(a: Set, b: Set) -> Callable[[Tensor, Tensor], Tensor] | None:
    """How far products of deviations reach together, where entries of b share symbols and there are many of them."""
    if not varies(a) or not b.affine or b.symbols is None or sample_axis(b) is not None:
        return None
    if not FEWEST_TOGETHER <= a.shape[1] <= MOST_TOGETHER or thread.arithmetic.deferred is not None:
        return None
    if not rounding.float32_is_full(a.device):
        return None
    found = b.symbols.support.together(b.form)
    return None if found is None else partial(smaller, found=found)


def _factors(a: Set, b: Set, bias: Set | None) -> Factors | None:
    """A product by its factors, if none of them lets samples meet; own rows are left to the product."""
    if sample_axis(b) is not None or (bias is not None and (bias.dim() != 1 or sample_axis(bias) is not None)):
        return None
    if sample_axis(a) not in (-2, None):
        return None
    return Factors(a.form, b.form, None if bias is None else bias.form)


def _apart_states(a: Set, b: Set, along: SampleAxis | None, *others: Set) -> States[Set]:
    """The states of a product that leaves samples apart, on this axis: one of the factors may know its clean state.

    What is added to it may have the same samples along another axis: then each position has that of many samples, and
    where one of them was left alone, others may not have been.
    """
    known = [x for x in (a, b) if x.clean is not None]
    others = tuple(x if x.along == along else x.without_clean() for x in others)
    if along is None or len(known) != 1 or any(only_touched(x) for x in (a, b)):
        return States(a, b, *others, found=None)
    return States(a, b, *others, found=along)


def matrix_samples(a: Set, b: Set) -> tuple[Set, Set, SampleAxis | None]:
    """Rows of a or columns of b may be samples, not both; sums over samples are handled apart."""
    if sample_axis(a) == -2 and sample_axis(b) is None:
        return a, b, a.along
    if sample_axis(b) == -1 and sample_axis(a) is None:
        return a, b, b.along
    return apart(a, b)


def first_samples(a: Set, b: Set) -> tuple[Set, Set, SampleAxis | None]:
    """The first axis of a may be the samples, as in a convolution."""
    if sample_axis(a) == -a.dim() and sample_axis(b) is None:
        return a, b, a.along
    return apart(a, b)
