"""Unary functions: on [l, u] choose a slope, ``f(x) in lambda x + mu +- delta``.

    c' = lambda c + mu        G' = lambda G        rho' = |lambda| rho + delta

The extremes of ``d(x) = f(x) - lambda x`` on [l, u] give mu and delta. Cut the line at the inflections of f: on a
piece [a, b] where f is convex, the maximum of d is at a or b, and for *any* p in [a, b]

    d(x) >= d(p) + d'(p) (x - p) >= d(p) - max(0, d'(p) (p - a), -d'(p) (b - p)),

so a computed critical point p (where f'(p) = lambda) is a candidate, not a bound; what it misses is paid for.
Concave pieces likewise. With slope 0 the result is the exact range: at the ends and at the turning points; this is
the interval rule, and what the affine rule falls back to where it would be wider.

Rounding: PyTorch's f is off by a few units of ``moduli(|x|, |f(x)|)``, the sum of the moduli of the terms of the
formula it really uses (monotone in |x| and |f(x)|, and taken at their largest). A new function is one row of a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from .. import rounding
from ..bounded import Bounded, Form, aten, concretised, plain, rule
from ..errors import UnsupportedOperator, VoidBounds
from .bilinear import mul, square, without_zero
from .linear import ones_like, selected

ROUNDINGS = 4  # PyTorch's elementary functions are within a few units in the last place of their terms
FLOOR = 1024  # and within this many smallest normal numbers where they underflow


@dataclass(frozen=True, eq=False)
class Function:
    """A function of one variable, described well enough to bound it. ``curvature`` has one sign per piece."""

    name: str
    f: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor] | None = None
    inflections: tuple[float, ...] = ()
    curvature: tuple[int, ...] = (0,)
    turning: tuple[float, ...] = ()
    increasing: bool = True  # before the first turning point
    critical: Callable[[Tensor, int], Tensor] | None = None  # slope, piece -> where f' equals the slope
    moduli: Callable[[Tensor, Tensor], Tensor] | None = lambda x, y: y  # of |x|, |f(x)|; None: f is exact
    correctly_rounded: bool = False  # then one step outwards is all that a value can be off
    extra: float = 0.0  # what PyTorch's formula is off by besides rounding
    domain: tuple[float, float] = (-math.inf, math.inf)
    keeps_sign: bool = False  # f(x) >= 0 for x >= 0
    smallest: float = -math.inf
    largest: float = math.inf


def allowance(function: Function, bounds: Tensor, image: Tensor) -> Tensor:
    """How far a floating-point value of f on the interval may be from the true one."""
    if function.moduli is None:
        return torch.zeros_like(image[0])
    moduli = function.moduli(bounds.abs().amax(0), image.abs().amax(0))
    lost = function.extra + FLOOR * rounding.tiny(1, image.dtype)
    return moduli * rounding.gamma(ROUNDINGS, image.dtype) + lost


def range_of(function: Function, bounds: Tensor) -> Tensor:
    """The exact range: ends and turning points, then outward."""
    y = function.f(bounds)
    if function.turning:
        low, high = bounds.unbind(0)
        inside = [y[0], y[1]]
        for turn in function.turning:
            point = torch.full((), turn, dtype=bounds.dtype, device=bounds.device)
            inside.append(torch.where((low < turn) & (turn < high), function.f(point), y[0]))
        values = torch.stack(inside)
        y = torch.stack((values.amin(0), values.amax(0)))
    elif not function.increasing:
        y = y.flip(0)
    if function.moduli is None:
        return y
    y = rounding.outward(y) if function.correctly_rounded else rounding.widened(y, allowance(function, bounds, y))
    if function.smallest > -math.inf or function.largest < math.inf:
        y = y.clamp(function.smallest, function.largest)
    return y


def relaxation(function: Function, bounds: Tensor, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(lambda, mu, delta) with f(x) within delta of ``lambda x + mu`` on the interval."""
    low, high = bounds.unbind(0)
    middle, half = rounding.middle(image)
    if function.derivative is None:
        return torch.zeros_like(low), middle, half
    f, derivative, dtype = function.f, function.derivative, bounds.dtype
    width = high - low
    narrow = width <= math.sqrt(rounding.unit(dtype)) * (1 + low.abs() + high.abs())
    slope = torch.where(narrow, derivative(0.5 * low + 0.5 * high), (f(high) - f(low)) / width)
    slope = torch.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0)

    edges = [low, *(low.clamp_min(cut).minimum(high) for cut in function.inflections), high]
    corners = torch.stack(edges)
    values = f(corners)
    offsets = values - slope * corners
    least, most = offsets.amin(0), offsets.amax(0)
    unit = 8 * rounding.gamma(1, dtype)
    for piece, sign in enumerate(function.curvature):
        if sign == 0:
            continue
        a, b = edges[piece], edges[piece + 1]
        p = _critical_point(function, slope, piece, a, b)
        steep = derivative(p)
        error = unit * (steep.abs() + slope.abs()) + rounding.tiny(1, dtype)
        tilt = sign * (steep - slope)
        missed = torch.maximum((tilt + error) * (p - a), (error - tilt) * (b - p)).clamp_min(0.0)
        offset = f(p) - slope * p
        if sign > 0:
            least = torch.minimum(least, offset - missed)
        else:
            most = torch.maximum(most, offset + missed)
    mu, delta = 0.5 * (most + least), 0.5 * (most - least)
    reach = slope.abs() * corners.abs().amax(0) + values.abs().amax(0) + mu.abs()
    delta = rounding.up(delta + unit * reach + allowance(function, bounds, image))

    better = delta < half  # False for NaN: then the slope is 0 and the exact range is used
    zero = torch.zeros_like(slope)
    return torch.where(better, slope, zero), torch.where(better, mu, middle), torch.where(better, delta, half)


def _critical_point(function: Function, slope: Tensor, piece: int, a: Tensor, b: Tensor) -> Tensor:
    """A point of [a, b] near where f' equals the slope: closed form, or bisection (f' is monotone on a piece)."""
    if function.critical is not None:
        p = torch.nan_to_num(function.critical(slope, piece), nan=0.0)
        return torch.maximum(torch.minimum(p, b), a)
    assert function.derivative is not None
    sign = function.curvature[piece]
    left, right = a, b
    for _ in range(40):
        half = 0.5 * left + 0.5 * right
        before = sign * (function.derivative(half) - slope) < 0
        left, right = torch.where(before, half, left), torch.where(before, right, half)
    return 0.5 * left + 0.5 * right


def apply(function: Function, x: Bounded) -> Bounded:
    """The set of all f(x)."""
    low, high = function.domain
    if low > -math.inf or high < math.inf:
        inside = (x._bounds[0] >= low) & (x._bounds[1] <= high)
        if not bool(inside.all()):
            step = x._symbols.steps if x._symbols is not None else None
            raise VoidBounds(
                f"{function.name}: the set reaches to {float(x._bounds[0].min()):.4g} .. "
                f"{float(x._bounds[1].max()):.4g}, outside [{low:g}, {high:g}] where the function is defined",
                step,
            )
    image = range_of(function, x._bounds)
    form = None
    if x.affine:
        slope, mu, delta = relaxation(function, x._bounds, image)
        form = x.form
        charge = rounding.gamma(2, x.dtype)
        radius = slope.abs() * (form.radius + charge * form.modulus) + delta + charge * mu.abs()
        radius = rounding.up(rounding.up(radius)) + rounding.tiny(2, x.dtype)
        form = Form(slope * form.center + mu, slope * form.generators, radius, form.rows, form.axis)
    never_negative = function.smallest >= 0 or (function.keeps_sign and x._nonnegative)
    return concretised(function.name, image, form, x._symbols, never_negative)


def function_rule(operator: Any, function: Function, low: float = -3.0, high: float = 3.0) -> None:
    """One row of the table: an operator without options and its function; the laws are tested on [low, high]."""
    FUNCTION_TABLE[operator] = function
    rule(operator, example=lambda t: (t(3, 4, low=low, high=high),))(lambda x: apply(function, x))


FUNCTION_TABLE: dict[Any, Function] = {}


# --- the functions --------------------------------------------------------------------------------------------------


def _sigmoid_derivative(x: Tensor) -> Tensor:
    return torch.sigmoid(x) * torch.sigmoid(-x)  # not s (1 - s), which cancels


def _sigmoid_critical(slope: Tensor, piece: int) -> Tensor:
    """s (1 - s) = slope: the logit of the smaller root, mirrored on the concave side."""
    root = 2 * slope / (1 + torch.sqrt((1 - 4 * slope).clamp_min(0.0)))
    p = torch.log(root) - torch.log1p(-root)
    return p if piece == 0 else -p


def _tanh_critical(slope: Tensor, piece: int) -> Tensor:
    return 0.5 * _sigmoid_critical(0.25 * slope, piece)  # tanh(x) = 2 sigmoid(2 x) - 1


SIGMOID = Function(
    "sigmoid",
    torch.sigmoid,
    _sigmoid_derivative,
    (0.0,),
    (1, -1),
    critical=_sigmoid_critical,
    smallest=0.0,
    largest=1.0,
)
TANH = Function(
    "tanh",
    torch.tanh,
    lambda x: 4 * _sigmoid_derivative(2 * x),
    (0.0,),
    (1, -1),
    critical=_tanh_critical,
    smallest=-1.0,
    largest=1.0,
)
RELU = Function("relu", torch.relu, lambda x: (x > 0).to(x.dtype), (0.0,), (0, 0), moduli=None, smallest=0.0)
EXP = Function("exp", torch.exp, torch.exp, (), (1,), critical=lambda slope, piece: torch.log(slope), smallest=0.0)
LOG = Function(
    "log",
    torch.log,
    torch.reciprocal,
    (),
    (-1,),
    critical=lambda slope, piece: 1 / slope,
    domain=(5e-324, math.inf),
)
SQRT = Function(
    "sqrt",
    torch.sqrt,
    lambda x: 0.5 / torch.sqrt(x),
    (),
    (-1,),
    critical=lambda slope, piece: 0.25 / (slope * slope),
    correctly_rounded=True,
    domain=(0.0, math.inf),
    smallest=0.0,
)
RSQRT = Function(
    "rsqrt",
    torch.rsqrt,
    lambda x: -0.5 * torch.rsqrt(x) / x,
    (),
    (1,),
    increasing=False,
    critical=lambda slope, piece: (-0.5 / slope) ** (2 / 3),
    domain=(5e-324, math.inf),
    smallest=0.0,
)
RECIPROCAL = Function(
    "reciprocal",
    torch.reciprocal,
    lambda x: -torch.reciprocal(x * x),
    (0.0,),
    (-1, 1),
    increasing=False,
    critical=lambda slope, piece: (2 * piece - 1) * torch.rsqrt(-slope),
    correctly_rounded=True,
    keeps_sign=True,
)
ABS = Function(
    "abs", torch.abs, torch.sign, (0.0,), (0, 0), turning=(0.0,), increasing=False, moduli=None, smallest=0.0
)
SIGN = Function("sign", torch.sign, moduli=None)

function_rule(aten.tanh.default, TANH)
function_rule(aten.sigmoid.default, SIGMOID)
function_rule(aten.relu.default, RELU)
function_rule(aten.exp.default, EXP)
function_rule(aten.log.default, LOG, low=0.1, high=4.0)
function_rule(aten.sqrt.default, SQRT, low=0.0, high=4.0)
function_rule(aten.rsqrt.default, RSQRT, low=0.1, high=4.0)
function_rule(aten.abs.default, ABS)
function_rule(aten.sign.default, SIGN)
function_rule(aten.sgn.default, SIGN)

function_rule(
    aten.log1p.default,
    Function(
        "log1p",
        torch.log1p,
        lambda x: 1 / (1 + x),
        (),
        (-1,),
        critical=lambda slope, piece: 1 / slope - 1,
        domain=(-1 + 2**-24, math.inf),
    ),
    low=-0.5,
)
function_rule(
    aten.expm1.default,
    Function("expm1", torch.expm1, torch.exp, (), (1,), critical=lambda slope, piece: torch.log(slope), smallest=-1.0),
)


def _normal_density(x: Tensor) -> Tensor:
    return torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def _gelu_derivative(x: Tensor) -> Tensor:
    return 0.5 * torch.erfc(-x / math.sqrt(2)) + x * _normal_density(x)


def _silu_derivative(x: Tensor) -> Tensor:
    s = torch.sigmoid(x)
    return s + x * s * torch.sigmoid(-x)


def _silu_curvature(x: Tensor) -> Tensor:
    s, t = torch.sigmoid(x), torch.sigmoid(-x)
    return s * t * (2 + x * (t - s))


SILU_FLEX = 2.3993572805154677  # where silu'' = 0, i.e. x tanh(x/2) = 2
SILU_BENT = 3.4358409935351107  # where silu''' = 0 besides 0
SILU_TURN = -1.2784645427610738  # where silu' = 0

# x Phi(x): 1 + erf cancels on the left, so the allowance is on |x|.
GELU = Function(
    "gelu",
    torch.nn.functional.gelu,
    _gelu_derivative,
    (-math.sqrt(2), math.sqrt(2)),
    (-1, 1, -1),
    turning=(-0.7517915246935645,),
    increasing=False,
    moduli=lambda x, y: x,
)
GELU_DERIVATIVE = Function(
    "gelu_derivative",
    _gelu_derivative,
    lambda x: (2 - x * x) * _normal_density(x),
    (-2.0, 0.0, 2.0),
    (-1, 1, -1, 1),
    turning=(-math.sqrt(2), math.sqrt(2)),
    moduli=lambda x, y: 1 + x,
)
SILU = Function(
    "silu",
    torch.nn.functional.silu,
    _silu_derivative,
    (-SILU_FLEX, SILU_FLEX),
    (-1, 1, -1),
    turning=(SILU_TURN,),
    increasing=False,
    moduli=lambda x, y: y * (1 + x),
)
SILU_DERIVATIVE = Function(
    "silu_derivative",
    _silu_derivative,
    _silu_curvature,
    (-SILU_BENT, 0.0, SILU_BENT),
    (-1, 1, -1, 1),
    turning=(-SILU_FLEX, SILU_FLEX),
    moduli=lambda x, y: 1 + x,
)
function_rule(aten.silu.default, SILU, low=-9.0, high=9.0)


# --- functions with options -----------------------------------------------------------------------------------------


@rule(aten.gelu.default, example=lambda t: (t(3, 4, low=-9.5, high=9.0),))
def gelu(x: Bounded, *, approximate: str = "none") -> Bounded:
    if approximate != "none":
        raise UnsupportedOperator(f"gelu(approximate={approximate!r}) has no rule: use approximate='none'")
    return apply(GELU, x)


@lru_cache(maxsize=64)
def leaky(slope: float) -> Function:
    """Piecewise linear; for a negative slope it turns at 0."""
    turning = (0.0,) if slope < 0 else ()
    return Function(
        "leaky_relu",
        lambda x: torch.nn.functional.leaky_relu(x, slope),
        lambda x: torch.where(x > 0, x.new_ones(()), x.new_tensor(slope)),
        (0.0,),
        (0, 0),
        turning=turning,
    )


@rule(aten.leaky_relu.default, example=lambda t: (t(3, 4), 0.1))
def leaky_relu(x: Bounded, slope: float = 0.01) -> Bounded:
    return apply(leaky(float(slope)), x)


@lru_cache(maxsize=64)
def clamped(low: float, high: float) -> Function:
    """min(max(x, low), high). PyTorch returns ``high`` when low > high; such a range is refused."""
    return Function(
        "clamp",
        lambda x: x.clamp(low, high),
        lambda x: ((x > low) & (x < high)).to(x.dtype),
        tuple(cut for cut in (low, high) if math.isfinite(cut)),
        (0,) * (1 + sum(math.isfinite(cut) for cut in (low, high))),
        correctly_rounded=True,  # nothing rounds but the limits, which are converted to the dtype
        keeps_sign=high >= 0,
        smallest=0.0 if low >= 0 else -math.inf,
    )


def clamp_between(x: Bounded, low: Any, high: Any) -> Bounded:
    if not plain(low) or not plain(high):
        raise UnsupportedOperator("clamp with bounded limits: use torch.minimum and torch.maximum")
    low = -math.inf if low is None else float(low)
    high = math.inf if high is None else float(high)
    if low > high:
        raise UnsupportedOperator(f"clamp to the empty range [{low}, {high}]")
    return apply(clamped(low, high), x)


@rule(aten.clamp.default, example=lambda t: (t(3, 4), -0.7, 0.4))
def clamp(x: Bounded, low: Any = None, high: Any = None) -> Bounded:
    return clamp_between(x, low, high)


@rule(aten.hardtanh.default, example=lambda t: (t(3, 4), -0.7, 0.4))
def hardtanh(x: Bounded, low: float = -1, high: float = 1) -> Bounded:
    return clamp_between(x, low, high)


@rule(aten.clamp_min.default, example=lambda t: (t(3, 4), -0.2))
def clamp_min(x: Bounded, low: float) -> Bounded:
    return clamp_between(x, low, None)


@rule(aten.clamp_max.default, example=lambda t: (t(3, 4), 0.2))
def clamp_max(x: Bounded, high: float) -> Bounded:
    return clamp_between(x, None, high)


@lru_cache(maxsize=64)
def softplus_function(beta: float, threshold: float) -> Function:
    """log(1 + exp(beta x)) / beta; PyTorch returns x above the threshold, which is off by exp(-threshold) / beta."""
    return Function(
        "softplus",
        lambda x: torch.nn.functional.softplus(x, beta, threshold),
        lambda x: torch.sigmoid(beta * x),
        (),
        (1,),
        critical=lambda slope, piece: (torch.log(slope) - torch.log1p(-slope)) / beta,
        moduli=lambda x, y: y * (2 + beta * x),
        extra=math.exp(-threshold) / beta,
    )


@rule(aten.softplus.default, example=lambda t: (t(3, 4, low=-4, high=22), 1.5, 20))
def softplus(x: Bounded, beta: float = 1, threshold: float = 20) -> Bounded:
    _positive("softplus", beta)
    return apply(softplus_function(float(beta), float(threshold)), x)


@lru_cache(maxsize=64)
def softplus_slope(beta: float, threshold: float) -> Function:
    """sigmoid(beta x), and 1 above the threshold."""
    return Function(
        "softplus_backward",
        lambda x: torch.sigmoid(beta * x),
        lambda x: beta * _sigmoid_derivative(beta * x),
        (0.0,),
        (1, -1),
        critical=lambda slope, piece: _sigmoid_critical(slope / beta, piece) / beta,
        moduli=lambda x, y: y * (2 + beta * x),
        extra=math.exp(-threshold),
    )


@lru_cache(maxsize=64)
def elu_function(alpha: float, scale: float, input_scale: float) -> Function:
    return Function(
        "elu",
        lambda x: aten.elu.default(x, alpha, scale, input_scale),
        lambda x: torch.where(x > 0, scale, scale * alpha * input_scale * torch.exp(input_scale * x.clamp_max(0.0))),
        (0.0,),
        (1, 0),
        moduli=lambda x, y: y + scale * alpha * (1 + input_scale * x),
    )


@rule(aten.elu.default, example=lambda t: (t(3, 4), 1.3, 1.1, 0.8))
def elu(x: Bounded, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Bounded:
    _positive("elu", alpha, scale, input_scale)
    return apply(elu_function(float(alpha), float(scale), float(input_scale)), x)


@rule(aten.celu.default, example=lambda t: (t(3, 4), 1.3))
def celu(x: Bounded, alpha: float = 1.0) -> Bounded:
    return elu(x, alpha, 1.0, 1.0 / alpha)


@lru_cache(maxsize=64)
def elu_slope(alpha: float, scale: float, input_scale: float) -> Function:
    """scale for x > 0, ``scale alpha input_scale exp(input_scale x)`` else: it jumps at 0 unless these agree."""
    jump = scale * alpha * input_scale

    def f(x: Tensor) -> Tensor:
        return torch.where(x > 0, scale, jump * torch.exp(input_scale * x.clamp_max(0.0)))

    return Function(
        "elu_backward",
        f,
        None,
        turning=(0.0,) if jump > scale else (),
        moduli=lambda x, y: (jump + scale) * (1 + input_scale * x),
    )


def _positive(name: str, *options: float) -> None:
    if not all(option > 0 for option in options):
        raise UnsupportedOperator(f"{name} has a rule for positive options only, got {options}")


@rule(aten.reciprocal.default, example=lambda t: (t(3, 4, low=0.3, high=3),))
def reciprocal(x: Bounded) -> Bounded:
    without_zero(x, "reciprocal")
    return apply(RECIPROCAL, x)


@rule(aten.pow.Tensor_Scalar, example=lambda t: (t(3, 4), 3))
def power(x: Bounded, exponent: float) -> Bounded:
    if exponent == 0:
        return ones_like(x)
    if exponent == 1:
        return selected(x, lambda tensor, lead: tensor)
    if exponent == 2:
        return square(x)
    if exponent == -1:
        return reciprocal(x)
    if abs(exponent) == 0.5:
        return apply(SQRT if exponent > 0 else RSQRT, x)
    if exponent != int(exponent) or exponent < 3:
        raise UnsupportedOperator(f"x ** {exponent} has a rule for 0.5, -0.5, -1 and whole exponents from 1 on")
    return apply(_whole_power(int(exponent)), x)


@lru_cache(maxsize=16)
def _whole_power(n: int) -> Function:
    odd = n % 2 == 1
    return Function(
        f"x ** {n}",
        lambda x: x**n,
        lambda x: n * x ** (n - 1),
        (0.0,),
        (-1, 1) if odd else (1, 1),
        turning=() if odd else (0.0,),
        increasing=odd,
        moduli=lambda x, y: n * y,
        keeps_sign=True,
        smallest=-math.inf if odd else 0.0,
    )


# --- backward: grad * f'(x) -----------------------------------------------------------------------------------------

ONE_MINUS_SQUARE = Function(
    "tanh_backward",
    lambda y: 1 - y * y,
    lambda y: -2 * y,
    (),
    (-1,),
    turning=(0.0,),
    critical=lambda slope, piece: -0.5 * slope,
    moduli=lambda x, y: 1 + x * x,
)
SIGMOID_SLOPE = Function(
    "sigmoid_backward",
    lambda y: y * (1 - y),
    lambda y: 1 - 2 * y,
    (),
    (-1,),
    turning=(0.5,),
    critical=lambda slope, piece: 0.5 - 0.5 * slope,
    moduli=lambda x, y: x * (1 + x),
)


@rule(aten.tanh_backward.default, example=lambda t: (t(3, 4), t(3, 4)))
def tanh_backward(grad: Any, y: Any) -> Bounded:
    return mul(grad, apply(ONE_MINUS_SQUARE, y))


@rule(aten.sigmoid_backward.default, example=lambda t: (t(3, 4), t(3, 4, low=0, high=1)))
def sigmoid_backward(grad: Any, y: Any) -> Bounded:
    return mul(grad, apply(SIGMOID_SLOPE, y))


@rule(aten.softplus_backward.default, example=lambda t: (t(3, 4), t(3, 4, low=-4, high=22), 1.5, 20))
def softplus_backward(grad: Any, x: Any, beta: float, threshold: float) -> Bounded:
    return mul(grad, apply(softplus_slope(float(beta), float(threshold)), x))


@rule(aten.silu_backward.default, example=lambda t: (t(3, 4), t(3, 4, low=-9, high=9)))
def silu_backward(grad: Any, x: Any) -> Bounded:
    return mul(grad, apply(SILU_DERIVATIVE, x))


@rule(aten.gelu_backward.default, example=lambda t: (t(3, 4), t(3, 4, low=-9.5, high=9)))
def gelu_backward(grad: Any, x: Any, *, approximate: str = "none") -> Bounded:
    return mul(grad, apply(GELU_DERIVATIVE, x))


@rule(aten.elu_backward.default, example=lambda t: (t(3, 4), 1.3, 1.1, 0.8, False, t(3, 4)))
def elu_backward(grad: Any, alpha: float, scale: float, input_scale: float, is_result: bool, x: Any) -> Bounded:
    if is_result:
        raise UnsupportedOperator("elu_ in place has no backward rule: use the out-of-place elu")
    return mul(grad, apply(elu_slope(float(alpha), float(scale), float(input_scale)), x))
