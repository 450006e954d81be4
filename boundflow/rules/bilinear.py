"""Bilinear operators f(a, b): products, matrix products, convolutions.

With a = ca + Ga xi + rho_a zeta, |a - ca| <= s_a, and the same for b:

    c   = f(ca, cb)
    G   = f(Ga, cb) + f(ca, Gb)
    rho = |f|(s_a, s_b) + |f|(|ca|, rho_b) + |f|(rho_a, |cb|)  +  gamma |f|(|ca| + sigma_a, |cb| + sigma_b)

Proof: expand f(ca + da, cb + db); f(ca, cb) and the terms linear in xi are c and G, f(ca, rho_b zeta) and
f(rho_a zeta, cb) are bounded by moduli, and so is f(da, db). The last term pays for rounding (`rounding.py`).

With K = 0 contractions use the first three lines as they stand (Rump 1999); elementwise products and quotients use
the exact hull of the four corners, and ``x * x`` with one and the same object is a square.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import rounding
from ..bounded import (
    Bounded,
    Form,
    aten,
    concretised,
    plain,
    point,
    replaces,
    rule,
    same_kind,
    symbols_of,
    value,
)
from ..rows import NO_ROWS, Rows
from .linear import as_tensor, combination

Product = Callable[[Tensor, Tensor], Tensor]


def bilinear_form(a: Any, b: Any, f: Product, left: Product, right: Product, terms: float, axis: int | None) -> Form:
    """The affine rule; ``left`` and ``right`` are f with generator rows on its first or second operand.

    Own rows are rows like any other, because positions stay apart; ``axis`` is where the sample axis ends up.
    """
    generators, rows = _row_products(a, b, left, right)
    return _with_radius(a, b, f, terms, generators, rows, axis)


def _row_products(a: Any, b: Any, left: Product, right: Product) -> tuple[Tensor, Rows]:
    """``f(Ga, cb) + f(ca, Gb)`` over the common rows."""
    first, second = (x.form if isinstance(x, Bounded) and not plain(x) else None for x in (a, b))
    rows = NO_ROWS
    for form in (first, second):
        rows = rows.union(form.rows) if form is not None else rows
    generators = None
    if first is not None and len(first.rows):
        other = second.center if second is not None else as_tensor(b, first.center)
        generators = left(rows.place(first.generators, first.rows), other)
    if second is not None and len(second.rows):
        other = first.center if first is not None else as_tensor(a, second.center)
        products = right(other, rows.place(second.generators, second.rows))
        generators = products if generators is None else generators.add_(products)
    assert generators is not None
    return generators, rows


def _with_radius(a: Any, b: Any, f: Product, terms: float, generators: Tensor, rows: Rows, axis: int | None) -> Form:
    """Center and radius of the product, with rows that were computed before."""
    dtype = a.dtype if isinstance(a, Bounded) else b.dtype
    charge, lost = rounding.gamma(terms, dtype), rounding.tiny(terms, dtype)
    if plain(a) or plain(b):
        form, y = (b.form, as_tensor(a, b._bounds)) if plain(a) else (a.form, as_tensor(b, a._bounds))

        def product(x: Tensor, y: Tensor) -> Tensor:
            return f(y, x) if plain(a) else f(x, y)

        radius = product(rounding.up(form.radius + charge * form.modulus), y.abs())
        return Form(product(form.center, y), generators, rounding.up(radius) + lost, rows, axis)
    first, second = a.form, b.form
    rounded = charge * second.modulus
    radius = f(first.center.abs(), rounding.up(second.radius + rounded)) + f(first.reach, rounded)
    radius = radius + f(a.deviation, b.deviation) + f(first.radius, second.center.abs())
    return Form(f(first.center, second.center), generators, rounding.up(radius) + lost, rows, axis)


def _ball_product(a: Any, b: Any, f: Product, terms: float) -> tuple[Tensor, Tensor]:
    """Rump's product of two balls, rounding included: three products, or two when one operand is a point."""
    dtype = a.dtype if isinstance(a, Bounded) else b.dtype
    charge, lost = rounding.gamma(terms, dtype), rounding.tiny(terms, dtype)
    if plain(a) or plain(b):
        flipped = plain(a) and isinstance(b, Bounded)
        x, y = (b, value(a)) if flipped else (a, value(b))
        center, radius = _middle(x)
        wide = radius + charge * (center.abs() + radius)
        if flipped:
            return f(y, center), f(y.abs(), wide).add_(lost)
        return f(center, y), f(wide, y.abs()).add_(lost)
    (center_a, radius_a), (center_b, radius_b) = _middle(a), _middle(b)
    modulus_b = center_b.abs()
    inner = torch.add(radius_b, modulus_b + radius_b, alpha=charge)
    radius = f(center_a.abs() + radius_a, inner).add_(f(radius_a, modulus_b))
    return f(center_a, center_b), radius.add_(lost)


def _middle(x: Bounded) -> tuple[Tensor, Tensor]:
    """Middle and half width of the interval; the cached form has them when there are no rows."""
    if x.affine:
        return rounding.middle(x._bounds)
    return x.form.center, x.form.radius


Rule = Callable[[Any, Any], tuple[Any, Any, "int | None"]]


def apart(a: Any, b: Any) -> tuple[Any, Any, int | None]:
    """For operators that mix all positions: own rows are written out before."""
    a, b = (x.dense() if isinstance(x, Bounded) else x for x in (a, b))
    return a, b, None


def contraction(
    name: str,
    a: Any,
    b: Any,
    f: Product,
    left: Product,
    right: Product,
    terms: float,
    bias: Any = None,
    samples: Rule = apart,
) -> Bounded:
    """A bilinear operator that sums ``terms`` products, and adds a bias (which counts among the terms).

    ``samples`` says where the sample axis of the operands ends up.
    """
    same_kind(a, b, bias)
    rounding.require_full_precision(a if isinstance(a, Bounded) else b)
    if any(isinstance(x, Bounded) and x.affine for x in (a, b, bias)):
        if bias is not None:
            product = contraction(name, a, b, f, left, right, terms, None, samples)
            return combination(name, [(product, 1.0), (bias, 1.0)], terms=terms + 3)
        bounds = rounding.around(*_ball_product(a, b, f, terms))
        if not any(isinstance(x, Bounded) and x.affine for x in (a, b)):
            return concretised(name, bounds, None, symbols_of(a, b))
        if samples is matrix_samples and _summed_over_samples(a, b):
            form = _sample_sum_form(a, b, f, left, right, terms)
        else:
            a, b, axis = samples(a, b)
            form = bilinear_form(a, b, f, left, right, terms, axis)
        return concretised(name, bounds, form, symbols_of(a, b))
    center, radius = _ball_product(a, b, f, terms + 2)
    if bias is not None:
        middle, spread = (value(bias), 0.0) if plain(bias) else _middle(bias)
        center = center + middle
        radius = torch.add(radius + spread, middle.abs() + spread, alpha=rounding.gamma(terms + 2, center.dtype))
    return concretised(name, rounding.around(center, radius), None, symbols_of(a, b, bias))


def _axis_of(x: Any) -> int | None:
    return x.form.axis if isinstance(x, Bounded) and x.affine else None


def matrix_samples(a: Any, b: Any) -> tuple[Any, Any, int | None]:
    """Rows of a or columns of b may be samples, not both; sums over samples are handled apart."""
    if _axis_of(a) == -2 and _axis_of(b) is None:
        return a, b, -2
    if _axis_of(b) == -1 and _axis_of(a) is None:
        return a, b, -1
    return apart(a, b)


def first_samples(a: Any, b: Any) -> tuple[Any, Any, int | None]:
    """The first axis of a may be the samples, as in a convolution."""
    axis = _axis_of(a)
    if axis is not None and axis == -a.dim() and _axis_of(b) is None:
        return a, b, axis
    return apart(a, b)


def _summed_over_samples(a: Any, b: Any) -> bool:
    """Whether a matrix product contracts the sample axis of one operand or of both."""
    batches = {x.form.rows.batch for x in (a, b) if _axis_of(x) is not None}
    return len(batches) == 1 and _axis_of(a) in (-1, None) and _axis_of(b) in (-2, None)


def _sample_sum_form(a: Any, b: Any, f: Product, left: Product, right: Product, terms: float) -> Form:
    """``sum_i a_mi b_ip`` over samples i: own row f at i becomes a row of its own, ``a^f_mi b_ip + a_mi b^f_ip``."""
    sides = []
    for x in (a, b):
        if _axis_of(x) is None:
            sides.append((x, None))
            continue
        rest, where, own = x.form.rows.split()
        kept = Form(x.form.center, x.form.generators[where.to(x.device)], x.form.radius, rest)
        sides.append((Bounded(x._bounds, kept, x._symbols), x.form.generators[own.to(x.device)]))
    (rest_a, own_a), (rest_b, own_b) = sides
    batch = (a if own_a is not None else b).form.rows.batch
    center_a, center_b = (x.form.center if isinstance(x, Bounded) else x for x in (a, b))
    values = 0.0
    if own_a is not None:
        values = values + own_a.transpose(-1, -2).unsqueeze(-1) * center_b.unsqueeze(-2)
    if own_b is not None:
        values = values + center_a.transpose(-1, -2).unsqueeze(-1) * own_b.unsqueeze(-2)
    written = batch.written_out(values)
    if any(isinstance(x, Bounded) and x.affine for x in (rest_a, rest_b)):
        generators, rows = _row_products(rest_a, rest_b, left, right)
    else:
        generators, rows = written.new_zeros(0, *written.shape[1:]), NO_ROWS
    union = rows.union(batch.distinct)
    generators = union.place(generators, rows) + union.place(written, batch.distinct)
    return _with_radius(a, b, f, terms, generators, union, None)


# --- matrix products ------------------------------------------------------------------------------------------------


@rule(aten.mm.default, example=lambda t: (t(2, 3), t(3, 4)))
def mm(a: Any, b: Any) -> Bounded:
    return contraction("mm", a, b, torch.mm, torch.matmul, torch.matmul, a.shape[1], samples=matrix_samples)


@rule(aten.bmm.default, example=lambda t: (t(2, 2, 3), t(2, 3, 2)))
def bmm(a: Any, b: Any) -> Bounded:
    return contraction("bmm", a, b, torch.bmm, torch.matmul, torch.matmul, a.shape[2])


@rule(aten.mv.default, example=lambda t: (t(2, 3), t(3)))
def mv(a: Any, b: Any) -> Bounded:
    return contraction("mv", a, b, torch.mv, torch.matmul, _matrix_by_rows, a.shape[1])


@replaces(torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__)
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """PyTorch multiplies a vector by a matrix with an in-place squeeze, which would change the shape of a set."""
    if a.dim() == 1 and b.dim() > 1:
        return matmul(a.unsqueeze(0), b).squeeze(-2)
    with torch._C.DisableTorchFunctionSubclass():
        return torch.matmul(a, b)


def _matrix_by_rows(matrix: Tensor, rows: Tensor) -> Tensor:
    return rows @ matrix.transpose(0, 1)


@rule(aten.dot.default, example=lambda t: (t(4), t(4)))
def dot(a: Any, b: Any) -> Bounded:
    return contraction("dot", a, b, torch.dot, torch.matmul, lambda x, rows: rows @ x, a.shape[0])


@rule(aten.addmm.default, example=lambda t: (t(2, 4), t(2, 3), t(3, 4)))
def addmm(bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Bounded:
    return _biased("addmm", bias, a, b, beta, alpha, torch.mm, a.shape[1])


@rule(aten.baddbmm.default, example=lambda t: (t(2, 2, 2), t(2, 2, 3), t(2, 3, 2)))
def baddbmm(bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Bounded:
    return _biased("baddbmm", bias, a, b, beta, alpha, torch.bmm, a.shape[2])


def _biased(name: str, bias: Any, a: Any, b: Any, beta: float, alpha: float, f: Product, terms: int) -> Bounded:
    """``beta bias + alpha a b``."""
    if not isinstance(a, Bounded) and not isinstance(b, Bounded):
        a = point(a)
    samples = matrix_samples if f is torch.mm else apart
    if beta == 1 and alpha == 1:
        return contraction(name, a, b, f, torch.matmul, torch.matmul, terms, bias, samples)
    product = contraction(name, a, b, f, torch.matmul, torch.matmul, terms, None, samples)
    return combination(name, [(product, float(alpha)), (bias, float(beta))], terms=terms + 3)
