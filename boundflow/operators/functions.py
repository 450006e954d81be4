"""The table of functions: for each its derivative, inflections, turning points, and what PyTorch's formula rounds."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from ..arithmetic.thread_context import thread
from ..errors import UnsupportedOperator
from ..rules.structural import selected
from ..rules.unary import Function, apply, function_rule
from ..sets.set import Set
from ..tensor.rule_table import aten, rule
from .constants import ones_like
from .products import square, without_zero


def _sigmoid_derivative(x: Tensor) -> Tensor:
    return torch.sigmoid(x) * torch.sigmoid(-x)  # not s (1 - s), which cancels


def _sigmoid_critical(slope: Tensor, piece: int) -> Tensor:
    """s (1 - s) = slope: the logit of the smaller root, mirrored on the concave side."""
    inner = (1 - 4 * slope).clamp_min(0.0)
    # a candidate need not be exact, and of a square root it is not known how a compiler rounds it
    traced = thread.arithmetic.deferred is not None
    root = 2 * slope / (1 + (torch.exp(0.5 * torch.log(inner)) if traced else torch.sqrt(inner)))
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
def gelu(x: Set, *, approximate: str = "none") -> Set:
    exactly(approximate)
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
def leaky_relu(x: Set, slope: float = 0.01) -> Set:
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


def clamp_between(x: Set, low: float | None, high: float | None) -> Set:
    low = -math.inf if low is None else float(low)
    high = math.inf if high is None else float(high)
    if low > high:
        raise UnsupportedOperator(f"clamp to the empty range [{low}, {high}]")
    return apply(clamped(low, high), x)


@rule(aten.clamp.default, example=lambda t: (t(3, 4), -0.7, 0.4))
def clamp(x: Set, low: float | None = None, high: float | None = None) -> Set:
    return clamp_between(x, low, high)


@rule(aten.hardtanh.default, example=lambda t: (t(3, 4), -0.7, 0.4))
def hardtanh(x: Set, low: float = -1, high: float = 1) -> Set:
    return clamp_between(x, low, high)


@rule(aten.clamp_min.default, example=lambda t: (t(3, 4), -0.2))
def clamp_min(x: Set, low: float) -> Set:
    return clamp_between(x, low, None)


@rule(aten.clamp_max.default, example=lambda t: (t(3, 4), 0.2))
def clamp_max(x: Set, high: float) -> Set:
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
def softplus(x: Set, beta: float = 1, threshold: float = 20) -> Set:
    positive("softplus", beta)
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
def elu(x: Set, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Set:
    positive("elu", alpha, scale, input_scale)
    return apply(elu_function(float(alpha), float(scale), float(input_scale)), x)


@rule(aten.celu.default, example=lambda t: (t(3, 4), 1.3))
def celu(x: Set, alpha: float = 1.0) -> Set:
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


def exactly(approximate: str) -> None:
    """Refuse the approximation of gelu by tanh."""
    if approximate != "none":
        raise UnsupportedOperator(f"gelu(approximate={approximate!r}) has no rule: use approximate='none'")


def positive(name: str, *options: float) -> None:
    if not all(option > 0 for option in options):
        raise UnsupportedOperator(f"{name} has a rule for positive options only, got {options}")


@rule(aten.reciprocal.default, example=lambda t: (t(3, 4, low=0.3, high=3),))
def reciprocal(x: Set) -> Set:
    return apply(RECIPROCAL, without_zero(x, "reciprocal"))


@rule(aten.pow.Tensor_Scalar, example=lambda t: (t(3, 4), 3))
def power(x: Set, exponent: float) -> Set:
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
