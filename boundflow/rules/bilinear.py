"""Bilinear operators f(a, b): products, matrix products, convolutions.

With a = ca + Ga xi + rho_a zeta, |a - ca| <= s_a, and the same for b:

    c   = f(ca, cb)
    G   = f(Ga, cb) + f(ca, Gb)
    rho = |f|(s_a, s_b) + |f|(|ca|, rho_b) + |f|(rho_a, |cb|)  +  gamma |f|(|ca| + sigma_a, |cb| + sigma_b)

Proof: expand f(ca + da, cb + db); f(ca, cb) and the terms linear in xi are c and G, f(ca, rho_b zeta) and
f(rho_a zeta, cb) are bounded by moduli, and so is f(da, db). The last term pays for rounding (`rounding.py`).

With K = 0 contractions (`contractions.py`) use the first three lines as they stand (Rump 1999); elementwise products
and quotients (`products.py`) use the exact hull of the four corners.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..refinements.upper_products import Product as Product
from ..refinements.upper_products import upper_product
from ..sets.sample_axis import SampleAxis
from ..sets.set import Set
from ..symbols.rows import NO_ROWS, Rows
from .linear import as_tensor
from .operand_properties import Operand, reference, varies
from .states import Linear


def linear_product(
    a: Operand, b: Operand, f: Product, left: Product, right: Product, along: SampleAxis | None
) -> Linear:
    """The linear part; ``left`` and ``right`` are f with generator rows on its first or second operand.

    Own rows are rows like any other, because positions stay apart; ``along`` is where the samples end up.
    """
    generators, rows = row_products(a, b, left, right)
    return Linear(center_of_product(a, b, f), generators, rows, along if rows.batch is not None else None)


def row_products(a: Operand, b: Operand, left: Product, right: Product) -> tuple[Tensor, Rows]:
    """``f(Ga, cb) + f(ca, Gb)`` over the common rows.

    Placed afterwards: of a file, a parameter has a row for every training sample, and an input few of its own. The
    factor with fewer rows is added where these stand.
    """
    first, second = (x.form if varies(x) else None for x in (a, b))
    rows, products = NO_ROWS, []
    if first is not None and len(first.rows):
        other = second.center if second is not None else as_tensor(b, first.center)
        rows = rows.union(first.rows)
        products.append((left(first.generators, other), first.rows))
    if second is not None and len(second.rows):
        other = first.center if first is not None else as_tensor(a, second.center)
        rows = rows.union(second.rows)
        products.append((right(other, second.generators), second.rows))
    products.sort(key=lambda one: len(one[1]))
    generators = rows.place(*products.pop())
    for product, part in products:
        generators = rows.add(generators, product, part)
    return generators, rows


def center_of_product(a: Operand, b: Operand, f: Product) -> Tensor:
    """``f(ca, cb)``."""
    first, second = (x.form.center if varies(x) else None for x in (a, b))
    like = first if first is not None else second
    assert like is not None
    return f(as_tensor(a, like) if first is None else first, as_tensor(b, like) if second is None else second)


def radius_of_product(
    a: Operand, b: Operand, f: Product, terms: float, deviations: Callable[[Tensor, Tensor], Tensor] | None = None
) -> Tensor:
    """How far the product can be off its linear part.

    ``deviations`` makes the bound of the product of both deviations smaller, for that of a, where more is known of b
    than how far each of its entries deviates.
    """
    like = reference(a, b)
    charge, lost = rounding.gamma(terms, like.dtype), rounding.tiny(terms, like.dtype)
    if varies(a) and varies(b):
        first, second = a.form, b.form
        rounded = charge * second.modulus
        radius = f(first.center.abs(), rounding.up(second.radius + rounded)) + f(first.reach, rounded)
        both = f(a.deviation, b.deviation)
        if deviations is not None:
            both = deviations(both, a.deviation)
        radius = radius + both + f(first.radius, second.center.abs())
    elif varies(a):
        radius = f(rounding.up(a.form.radius + charge * a.form.modulus), as_tensor(b, a.bounds).abs())
    else:
        assert varies(b)
        radius = f(as_tensor(a, b.bounds).abs(), rounding.up(b.form.radius + charge * b.form.modulus))
    return rounding.up(radius) + lost


def ball_product(a: Set, b: Set, f: Product, terms: float) -> tuple[Tensor, Tensor]:
    """Rump's product of two balls, rounding included: three products, or two when one operand is a point."""
    charge, lost = rounding.gamma(terms, a.dtype), rounding.tiny(terms, a.dtype)
    if not a.exact and not b.exact:
        (center_a, radius_a), (center_b, radius_b) = middle(a), middle(b)
        modulus_b = center_b.abs()
        inner = torch.add(radius_b, modulus_b + radius_b, alpha=charge)
        radius = upper_product(f, center_a.abs() + radius_a, inner).add_(upper_product(f, radius_a, modulus_b))
        return f(center_a, center_b), radius.add_(lost)
    if not b.exact:
        y, (center, radius) = a.center, middle(b)
        wide = radius + charge * (center.abs() + radius)
        return f(y, center), upper_product(f, y.abs(), wide).add_(lost)
    y, (center, radius) = b.center, middle(a)
    wide = radius + charge * (center.abs() + radius)
    return f(center, y), upper_product(f, wide, y.abs()).add_(lost)


def middle(x: Set) -> tuple[Tensor, Tensor]:
    """Middle and half width of the interval; the cached form has them when there are no rows."""
    if x.affine:
        return rounding.middle(x.bounds)
    return x.form.center, x.form.radius


def interval_of(a: Set, b: Set, f: Product, terms: float) -> Tensor:
    """The interval of a product of two intervals, whatever their forms are."""
    return rounding.around(*ball_product(interval_alone(a), interval_alone(b), f, terms))


def interval_alone(x: Set) -> Set:
    """An operand without its form: where samples were left alone, the form still has the center of the touched ones.

    A flipped label is at the other end of its interval; the ball around the middle that holds the clean end holds both.
    """
    return x if x.exact else Set(x.bounds)
