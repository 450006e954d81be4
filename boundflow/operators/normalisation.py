"""Layer and batch normalisation, and norms, composed of other rules.

Each pays for the rounding of the formula PyTorch really uses: one pass, two passes or Welford's for a variance, and
``x scale - mean scale`` for ``(x - mean) scale``, which cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..errors import UnsupportedOperator
from ..rules.linear import combination, mean, sub, sum_
from ..rules.structural import selected, view
from ..rules.unary import apply
from ..sets.set import Set, as_set, concretised
from ..tensor.autograd_functions import applied, first_order, internal
from ..tensor.bounded import Bounded
from ..tensor.rule_table import aten, replaces, rule
from .functions import ABS, RSQRT, SQRT
from .products import mul, square
from .selections import largest


def charged(x: Set, amount: Tensor) -> Set:
    """``x`` with a radius added, for a formula that rounds more than ours."""
    if rounding.mode() != "outward":
        return x
    bounds = rounding.widened(x.bounds, amount)
    form = None
    if x.affine:
        form = x.form.with_radius(rounding.up(x.form.radius + amount))
    return concretised("rounding", bounds, form, x.symbols)


def _modulus(x: Set) -> Tensor:
    if x.exact:
        return x.center.abs()
    modulus = x.bounds.abs().amax(0)
    return torch.maximum(modulus, x.form.modulus) if x.affine else modulus


def _statistics(x: Set, count: int, eps: float) -> tuple[Set, Set, Set]:
    """Deviations from the mean, the mean, and 1 / sqrt(variance + eps), over the last ``count`` axes."""
    axes = list(range(x.dim() - count, x.dim()))
    terms = math.prod(x.shape[dim] for dim in axes)
    center = mean(x, axes, True)
    deviations = sub(x, center)
    variance = mean(square(deviations), axes, True)
    moduli = _modulus(x)
    # one-pass, two-pass and Welford formulas are all within gamma_n times the mean square of the input
    error = (moduli * moduli).mean(axes, keepdim=True) * rounding.gamma(4 * terms + 8, x.dtype)
    variance = _nonnegative(charged(variance, error))
    return deviations, center, apply(RSQRT, combination("layer_norm", [(variance, 1.0), (float(eps), 1.0)]))


def _normalised(x: Set, deviations: Set, center: Set, scale: Set, terms: int) -> Set:
    """``(x - mean) scale`` with ``scale = 1 / sqrt(v + eps)``: no value is far beyond sqrt(n).

    Deviations are at most ``sqrt(n) s``, with s^2 the exact variance. Of the variance v that PyTorch computes, by two
    passes or by Welford's formula, is known that ``s <= sqrt(v) + g |x|``, with g of n roundings (Chan, Golub and
    LeVeque 1983: ``s^2 - v <= g s |x|`` by Welford's, and ``g^2 |x|^2`` by two passes). So ``s scale <= 1 + g |x|
    scale``, of which the last is no more than ``loss``. A variance of one pass can be smaller by far more than that.
    """
    result = mul(deviations, scale)
    loss = (_modulus(x) + _modulus(center)) * _modulus(scale) * rounding.gamma(8 + terms, x.dtype)
    result = charged(result, loss)
    limit = math.sqrt(terms) * (1 + rounding.gamma(8 * terms, x.dtype)) * (1 + float(loss.max()))
    return Set(result.bounds.clamp(-limit, limit), result._form, result.symbols)


@rule(aten.native_layer_norm.default, example=lambda t: (t(2, 4), [4], t(4), t(4), 0.1))
def layer_norm(x: Set, shape: Sequence[int], weight: Set | None, bias: Set | None, eps: float) -> tuple[Set, Set, Set]:
    deviations, center, scale = _statistics(x, len(shape), eps)
    result = _normalised(x, deviations, center, scale, math.prod(shape))
    if weight is not None:
        result = mul(result, weight)
    if bias is not None:
        result = combination("layer_norm", [(result, 1.0), (bias, 1.0)])
    return result, center, scale


@rule(aten.native_layer_norm_backward.default, example=None)
def layer_norm_backward(
    grad: Set,
    x: Set,
    shape: Sequence[int],
    center: Set,
    scale: Set,
    weight: Set | None,
    bias: Set | None,
    wanted: Sequence[bool],
) -> tuple[Set | None, ...]:
    """With h the normalised input and g = grad weight: ``scale (g - mean(g) - h mean(g h))``."""
    count = len(shape)
    axes, outer = list(range(x.dim() - count, x.dim())), list(range(x.dim() - count))
    terms = math.prod(shape)
    normal = _normalised(x, sub(x, center), center, scale, terms)
    grad_x = grad_weight = grad_bias = None
    if wanted[0]:
        g = grad if weight is None else mul(grad, weight)
        inner = combination(
            "layer_norm_backward",
            [(g, 1.0), (mean(g, axes, True), -1.0), (mul(normal, mean(mul(g, normal), axes, True)), -1.0)],
            terms=terms + 8,
        )
        moduli = _modulus(g)
        sizes = _modulus(normal)
        total = moduli + moduli.mean(axes, keepdim=True) * (1 + sizes * sizes.amax(axes, keepdim=True))
        grad_x = mul(charged(inner, total * rounding.gamma(2 * terms + 8, x.dtype)), scale)
    if wanted[1]:
        grad_weight = sum_(mul(grad, normal), outer) if outer else mul(grad, normal)
    if wanted[2]:
        grad_bias = sum_(grad, outer) if outer else grad
    return grad_x, grad_weight, grad_bias


@replaces(torch.nn.functional.batch_norm)
def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Evaluation mode is an affine map; in training mode every sample would depend on every other."""
    if isinstance(running_mean, Bounded) or isinstance(running_var, Bounded):
        raise UnsupportedOperator("batch normalisation by statistics that are sets has no rule")
    if training or running_mean is None or running_var is None:
        raise UnsupportedOperator(
            "batch normalisation in training mode has no rule: its statistics are part of the training data. Call "
            ".eval() on it (fixed statistics), or use LayerNorm."
        )
    shape = (1, -1, *(1,) * (x.dim() - 2))
    scale = torch.rsqrt(running_var + eps).view(shape)
    shift = running_mean.view(shape)
    result = applied(RoundedAffine, x, scale, shift)
    if weight is not None:
        result = result * weight.view(shape)
    return result if bias is None else result + bias.view(shape)


class RoundedAffine(torch.autograd.Function):
    """``(x - shift) scale`` as plain PyTorch may compute it: also ``x scale - shift scale``, which cancels."""

    @staticmethod
    @internal
    def forward(ctx: Any, given: Tensor, scale: Tensor, shift: Tensor) -> Set:
        ctx.scale, x = scale, as_set(given)
        result = mul(sub(x, shift), scale)
        return charged(result, (_modulus(x) + shift.abs()) * scale.abs() * rounding.gamma(8, x.dtype))

    @staticmethod
    @first_order
    def backward(ctx: Any, given: Tensor) -> tuple[Set, None, None]:
        grad = as_set(given)
        charge = _modulus(grad) * ctx.scale.abs() * rounding.gamma(4, grad.dtype)
        return charged(mul(grad, ctx.scale), charge), None, None


# --- norms ---


@rule(aten.linalg_vector_norm.default, example=lambda t: (t(3, 4), 2, [1]))
def vector_norm(
    x: Set,
    order: float = 2,
    dims: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Set:
    if order == 2:
        return apply(SQRT, sum_(square(x), dims, keepdim))
    if order == 1:
        return sum_(apply(ABS, x), dims, keepdim)
    if order == math.inf:
        axes = list(range(x.dim())) if dims is None else [dim % x.dim() for dim in dims]
        kept = [dim for dim in range(x.dim()) if dim not in axes]

        def moved(tensor: Tensor, lead: int) -> Tensor:
            return tensor.permute(*range(lead), *(lead + d for d in kept + axes)).flatten(lead + len(kept))

        result = largest(selected(apply(ABS, x), moved))
        shape = [1 if dim in axes else size for dim, size in enumerate(x.shape)] if keepdim else result.shape
        return selected(result, lambda tensor, lead: view(tensor, lead, shape))
    raise UnsupportedOperator(f"the vector norm of order {order} has no rule: orders 1, 2 and infinity do")


def _nonnegative(x: Set) -> Set:
    """A variance is nonnegative whatever rounding did to its lower bound."""
    return Set(x.bounds.clamp_min(0.0), x._form, x.symbols, nonnegative=True)
