"""Backward passes of functions: ``grad * f'(x)``, with f' bounded as a function of its own."""

from __future__ import annotations

from torch import Tensor

from ..errors import UnsupportedOperator
from ..rules.operand_properties import Operand
from ..rules.unary import Function, apply
from ..sets.set import Set, as_set
from ..tensor.rule_table import aten, rule
from .functions import GELU_DERIVATIVE, SILU_DERIVATIVE, elu_slope, exactly, positive, softplus_slope
from .products import mul

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
def tanh_backward(grad: Operand, y: Set | Tensor) -> Set:
    return mul(grad, apply(ONE_MINUS_SQUARE, as_set(y)))


@rule(aten.sigmoid_backward.default, example=lambda t: (t(3, 4), t(3, 4, low=0, high=1)))
def sigmoid_backward(grad: Operand, y: Set | Tensor) -> Set:
    return mul(grad, apply(SIGMOID_SLOPE, as_set(y)))


@rule(aten.softplus_backward.default, example=lambda t: (t(3, 4), t(3, 4, low=-4, high=22), 1.5, 20))
def softplus_backward(grad: Operand, x: Set | Tensor, beta: float, threshold: float) -> Set:
    positive("softplus", beta)
    return mul(grad, apply(softplus_slope(float(beta), float(threshold)), as_set(x)))


@rule(aten.silu_backward.default, example=lambda t: (t(3, 4), t(3, 4, low=-9, high=9)))
def silu_backward(grad: Operand, x: Set | Tensor) -> Set:
    return mul(grad, apply(SILU_DERIVATIVE, as_set(x)))


@rule(aten.gelu_backward.default, example=lambda t: (t(3, 4), t(3, 4, low=-9.5, high=9)))
def gelu_backward(grad: Operand, x: Set | Tensor, *, approximate: str = "none") -> Set:
    exactly(approximate)
    return mul(grad, apply(GELU_DERIVATIVE, as_set(x)))


@rule(aten.elu_backward.default, example=lambda t: (t(3, 4), 1.3, 1.1, 0.8, False, t(3, 4)))
def elu_backward(
    grad: Operand, alpha: float, scale: float, input_scale: float, is_result: bool, x: Set | Tensor
) -> Set:
    if is_result:
        raise UnsupportedOperator("elu_ in place has no backward rule: use the out-of-place elu")
    positive("elu", alpha, scale, input_scale)
    return mul(grad, apply(elu_slope(float(alpha), float(scale), float(input_scale)), as_set(x)))
