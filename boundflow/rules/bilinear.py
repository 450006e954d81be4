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

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import rounding
from ..bounded import (
    Bounded,
    Form,
    as_set,
    aten,
    concretised,
    nonnegative,
    own_axis,
    plain,
    point,
    replaces,
    rule,
    same_kind,
    symbols_of,
    value,
)
from ..errors import UnsupportedOperator, VoidBounds
from ..symbols import NO_ROWS, Rows
from .linear import as_tensor, broadcast, combination, selected, sum_, to_copy, view

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
    spread_a = torch.minimum(rounding.deviation(a._bounds, first.center), first.reach)
    spread_b = torch.minimum(rounding.deviation(b._bounds, second.center), second.reach)
    rounded = charge * second.modulus
    radius = f(first.center.abs(), rounding.up(second.radius + rounded)) + f(first.reach, rounded)
    radius = radius + f(spread_a, spread_b) + f(first.radius, second.center.abs())
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


# --- elementwise products and quotients -----------------------------------------------------------------------------


def hull(corners: Tensor, dims: int | tuple[int, ...] = 0) -> Tensor:
    """(smallest, largest) over the corner axes, stacked."""
    return torch.stack((corners.amin(dims), corners.amax(dims)))


def _elementwise(a: Any, b: Any, f: Product) -> Tensor:
    """The exact hull of f over two intervals: f is monotone in each operand, so the corners suffice."""
    dims = max(x.dim() for x in (a, b) if isinstance(x, Tensor))
    like = a._bounds if isinstance(a, Bounded) else b._bounds
    if plain(a) and isinstance(b, Bounded):
        return hull(f(as_tensor(a, like).unsqueeze(0), broadcast(b._bounds, dims)))
    if plain(b):
        return hull(f(broadcast(a._bounds, dims), as_tensor(b, like).unsqueeze(0)))
    return hull(f(broadcast(a._bounds, dims).unsqueeze(1), broadcast(b._bounds, dims).unsqueeze(0)), (0, 1))


def _rounded(raw: Tensor, a: Any, b: Any) -> Tensor:
    """Rounding is monotone: one step outwards holds every plain result, unless an operand was converted first."""
    if all(isinstance(x, Tensor) and x.dtype is raw.dtype for x in (a, b)):
        return rounding.outward(raw)
    return rounding.outward_sum(raw, raw.abs(), 1)


def as_float(x: Any, other: Any) -> Any:
    """A condition counts as 0 or 1 in a product."""
    if isinstance(x, Bounded) and x.dtype is torch.bool:
        return to_copy(x, dtype=other.dtype if isinstance(other, Tensor) else torch.get_default_dtype())
    return x


@rule(aten.mul.Tensor, aten.mul.Scalar, example=lambda t: (t(2, 3), t(3)))
def mul(a: Any, b: Any) -> Bounded:
    if a is b:
        return square(a)
    a, b = as_float(a, b), as_float(b, a)
    same_kind(a, b)
    if isinstance(a, int | float) or isinstance(b, int | float):
        return scaled(b, float(a)) if isinstance(a, int | float) else scaled(a, float(b))
    bounds = _rounded(_elementwise(a, b, torch.mul), a, b)
    form = None
    if any(isinstance(x, Bounded) and x.affine for x in (a, b)):
        form = _elementwise_form(a, b)
    return concretised("mul", bounds, form, symbols_of(a, b), nonnegative(a, b))


def _elementwise_form(a: Any, b: Any) -> Form:
    (a, b), axis = own_axis(a, b)
    dims = max(x.dim() for x in (a, b) if isinstance(x, Tensor))

    def left(rows: Tensor, y: Tensor) -> Tensor:
        return broadcast(rows, dims) * y

    def right(x: Tensor, rows: Tensor) -> Tensor:
        return x * broadcast(rows, dims)

    return bilinear_form(a, b, torch.mul, left, right, 1, axis)


def scaled(x: Bounded, factor: float) -> Bounded:
    """``factor x`` for a number."""
    rounding.require_normal(factor, x.dtype)
    raw = (x._bounds if factor >= 0 else x._bounds.flip(0)) * factor
    form = _elementwise_form(x, factor) if x.affine else None
    return concretised("mul", rounding.outward_sum(raw, raw.abs(), 1), form, x._symbols, nonnegative(x, factor))


def quotient(x: Bounded, divisor: float) -> Bounded:
    """``x / divisor`` for a number other than zero."""
    rounding.require_normal(divisor, x.dtype)
    raw = (x._bounds if divisor > 0 else x._bounds.flip(0)) / divisor
    form = _elementwise_form(x, _reciprocal_ball(divisor, x)) if x.affine else None
    return concretised("div", rounding.outward_sum(raw, raw.abs(), 1), form, x._symbols, nonnegative(x, divisor))


def square(x: Bounded) -> Bounded:
    """``x^2``: with d = x - c, ``x^2 = c^2 + 2 c d + d^2`` and d^2 lies in [0, s^2], not in [-s^2, s^2]."""
    ends = x._bounds * x._bounds
    smallest, largest = hull(ends)
    straddles = (x._bounds[0] < 0) & (x._bounds[1] > 0)
    smallest = torch.where(straddles, 0.0, smallest)
    bounds = torch.stack((smallest, largest))
    bounds = rounding.outward_sum(bounds, bounds, 1)
    form = None
    if x.affine:
        f = x.form
        spread = torch.minimum(rounding.deviation(x._bounds, f.center), f.reach)
        half = 0.5 * spread * spread
        charge = rounding.gamma(2, x.dtype)
        radius = half + 2 * f.center.abs() * f.radius + charge * f.modulus * f.modulus
        radius = rounding.up(radius) + rounding.tiny(2, x.dtype)
        form = Form(f.center * f.center + half, 2 * f.center * f.generators, radius, f.rows, f.axis)
    return concretised("square", bounds, form, x._symbols, nonnegative=True)


def without_zero(x: Bounded, what: str) -> None:
    """Division needs a divisor that is never zero."""
    low, high = x._bounds.unbind(0)
    if not bool(((low > 0) | (high < 0)).all()):
        raise VoidBounds(f"{what}: the divisor may be zero, so the quotient is unbounded", _step(x))


def _step(x: Bounded) -> int | None:
    return x._symbols.steps if x._symbols is not None else None


@rule(aten.div.Tensor, aten.div.Scalar, example=lambda t: (t(2, 3), t(3, low=0.5, high=3)))
def div(a: Any, b: Any) -> Bounded:
    a, b = as_float(a, b), as_float(b, a)
    if isinstance(b, int | float) and b:
        return quotient(a, float(b))
    same_kind(a, b)
    if plain(b):
        a = as_set(a)
        divisor = as_tensor(b, a._bounds)
        if bool((divisor == 0).any()):
            raise VoidBounds("div: division by zero", _step(a))
    else:
        without_zero(b, "div")
    bounds = _rounded(_elementwise(a, b, torch.div), a, b)
    form = None
    if isinstance(b, Bounded) and b.affine:
        from .unary import reciprocal

        form = mul(a, reciprocal(b)).form
    elif isinstance(a, Bounded) and a.affine:
        form = _elementwise_form(a, _reciprocal_ball(b, a))
    return concretised("div", bounds, form, symbols_of(a, b), nonnegative(a, b))


def _reciprocal_ball(b: Any, like: Bounded) -> Any:
    """1 / b as an interval: for a number or plain tensor it still rounds."""
    ends = 1.0 / (b._bounds.flip(0) if isinstance(b, Bounded) else as_tensor(b, like._bounds).unsqueeze(0))
    ends = ends.expand(2, *ends.shape[1:])
    return Bounded(rounding.outward_sum(ends, ends.abs(), 2))


@rule(
    aten.addcmul.default,
    example=lambda t: (
        t(2, 3),
        t(2, 3),
        t(3),
    ),
)
def addcmul(x: Any, a: Any, b: Any, *, value: float = 1) -> Bounded:
    """``x + value a b``."""
    return combination("addcmul", [(x, 1.0), (mul(a, b), float(value))], terms=5)


@rule(aten.addcdiv.default, example=lambda t: (t(2, 3), t(2, 3), t(3, low=0.5, high=3)))
def addcdiv(x: Any, a: Any, b: Any, *, value: float = 1) -> Bounded:
    return combination("addcdiv", [(x, 1.0), (div(a, b), float(value))], terms=5)


# --- convolutions ---------------------------------------------------------------------------------------------------


def _direct(f: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Run without cuDNN, oneDNN and NNPACK: Winograd and FFT do not obey the rounding bound, im2col does."""

    def run(*args: Any) -> Tensor:
        off = {"enabled": False}
        with torch.backends.cudnn.flags(**off), torch.backends.mkldnn.flags(**off), torch.backends.nnpack.flags(**off):
            return f(*args)

    return run


def _mapped(f: Product, operand: int) -> Product:
    """f over generator rows of one operand."""
    dims = (0, None) if operand == 0 else (None, 0)

    def over_rows(a: Tensor, b: Tensor) -> Tensor:
        with torch.overrides.enable_reentrant_dispatch(), torch.no_grad():
            return torch.func.vmap(f, in_dims=dims)(a, b)

    return over_rows


def _convolution_rule(
    name: str, a: Any, b: Any, f: Product, terms: float, bias: Any = None, samples: Rule = first_samples
) -> Bounded:
    f = _direct(f)
    rounding.require_full_precision(a if isinstance(a, Bounded) else b, convolution=True)
    return contraction(name, a, b, f, _mapped(f, 0), _mapped(f, 1), terms, bias, samples)


@rule(
    aten.convolution.default,
    example=lambda t: (t(2, 2, 4, 4), t(4, 1, 3, 3), t(4), [2, 1], [1, 0], [1, 1], False, [0, 0], 2),
)
def convolution(x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, *rest: Any) -> Bounded:
    transposed, output_padding, groups = rest
    if transposed:
        raise UnsupportedOperator("transposed convolutions have no rule: use upsampling and a convolution")

    def f(inputs: Tensor, kernel: Tensor) -> Tensor:
        return aten.convolution.default(inputs, kernel, None, stride, padding, dilation, False, output_padding, groups)

    shape = (-1, *(1,) * (x.dim() - 2))
    if isinstance(bias, Bounded):
        bias = selected(bias, lambda tensor, lead: view(tensor, lead, shape))
    elif bias is not None:
        bias = bias.view(shape)
    if not isinstance(x, Bounded) and not isinstance(weight, Bounded):
        x = point(x)
    return _convolution_rule("convolution", x, weight, f, math.prod(weight.shape[1:]), bias)


@rule(
    aten.convolution_backward.default,
    example=lambda t: (
        t(2, 4, 2, 2),
        t(2, 2, 4, 4),
        t(4, 1, 3, 3),
        [4],
        [2, 1],
        [1, 0],
        [1, 1],
        False,
        [0, 0],
        2,
        [True, True, True],
    ),
)
def convolution_backward(grad: Any, x: Any, weight: Any, bias_sizes: Any, *options: Any) -> tuple:
    *geometry, wanted = options
    kernel, batch = math.prod(weight.shape[2:]), math.prod(grad.shape) // grad.shape[1]

    def gradient(of: int) -> Product:
        mask = [index == of for index in range(3)]

        def f(grad: Tensor, other: Tensor) -> Tensor:
            inputs, weights = (_like(x, other), other) if of == 0 else (other, _like(weight, other))
            return aten.convolution_backward.default(grad, inputs, weights, None, *geometry, mask)[of]

        return f

    def product(of: int, other: Any, terms: int) -> Any:
        if not wanted[of]:
            return None
        if not isinstance(grad, Bounded) and not isinstance(other, Bounded):
            return _direct(gradient(of))(grad, other)
        samples = first_samples if of == 0 else apart
        return _convolution_rule("convolution_backward", grad, other, gradient(of), terms, None, samples)

    bias = sum_(as_set(grad), [0, *range(2, grad.dim())]) if wanted[2] else None
    return product(0, weight, weight.shape[0] * kernel), product(1, x, batch), bias


def _like(x: Any, other: Tensor) -> Tensor:
    """A stand-in of the right shape: the gradient with respect to an operand does not read it."""
    return torch.empty(x.shape, dtype=other.dtype, device=other.device)
