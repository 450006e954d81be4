"""Operators of whole layers: pooling, softmax, normalisation, dropout, norms.

Each is composed of the rules of the other files, and pays for the rounding of the formula PyTorch really uses.

Softmax. With intervals, class c is smallest with its own logit at the lower end and all others at their upper end:
``p_c = 1 / sum_j exp(z_j - z_c)``, and with one stable offset per class. As an affine form, the mean value theorem:

    p(z) = p(z0) + J(z0) (z - z0) + e,      |e_c| <= sum_j max |J_cj(z) - J_cj(z0)| s_j,     J_cj = p_c (delta_cj - p_j)

whose error is second order in the spread. Two classes are a sigmoid of the difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import rounding
from ..bounded import Bounded, Form, aten, concretised, first_order, internal, plain, point, replaces, rule, value
from ..errors import UnsupportedOperator
from .bilinear import mul, square
from .linear import combination, mean, selected, sub, sum_, summed, view
from .unary import ABS, EXP, RSQRT, SIGMOID, SQRT, apply

# --- pooling: sums with nonnegative coefficients --------------------------------------------------------------------


def _planes(f: Callable[[Tensor], Tensor], keep: int) -> Callable[[Tensor, int], Tensor]:
    """``f`` on a batch of images, with leading axes folded into the batch; ``keep`` trailing axes are its own."""

    def folded(tensor: Tensor, lead: int) -> Tensor:
        outer = tensor.shape[:-keep]
        result = f(tensor.reshape(-1, *tensor.shape[-keep:]).unsqueeze(0))
        return result.reshape(*outer, *result.shape[-keep:])

    return folded


def _image_axis(x: Any) -> int | None:
    """The sample axis, if it is not one of the two that are pooled."""
    axis = x.form.axis if isinstance(x, Bounded) and x.affine else None
    return axis if axis is not None and axis < -2 else None


def _area(kernel: Any) -> int:
    values = [kernel] if isinstance(kernel, int) else list(kernel)
    return values[0] * values[-1]


@rule(aten.avg_pool2d.default, example=lambda t: (t(1, 2, 5, 4), [2, 3], [2, 1], [1, 0]))
def avg_pool2d(x: Bounded, kernel: Any, *options: Any) -> Bounded:
    f = _planes(lambda image: aten.avg_pool2d.default(image, kernel, *options), 2)
    return summed("avg_pool2d", x, f, _area(kernel) + 2, axis=_image_axis(x))


@rule(
    aten.avg_pool2d_backward.default,
    example=lambda t: (t(1, 2, 3, 2), t(1, 2, 5, 4), [2, 3], [2, 1], [1, 0], False, True, None),
)
def avg_pool2d_backward(grad: Bounded, x: Any, kernel: Any, *options: Any) -> Bounded:
    height, width = x.shape[-2:]

    def f(image: Tensor) -> Tensor:
        like = image.new_empty(*image.shape[:2], height, width)
        return aten.avg_pool2d_backward.default(image, like, kernel, *options)

    return summed("avg_pool2d_backward", grad, _planes(f, 2), _area(kernel) + 2, axis=_image_axis(grad))


@rule(aten._adaptive_avg_pool2d.default, example=lambda t: (t(1, 2, 5, 4), [3, 2]))
def adaptive_avg_pool2d(x: Bounded, size: Any) -> Bounded:
    f = _planes(lambda image: aten._adaptive_avg_pool2d.default(image, size), 2)
    return summed("adaptive_avg_pool2d", x, f, x.shape[-1] * x.shape[-2] + 2, axis=_image_axis(x))


@rule(aten._adaptive_avg_pool2d_backward.default, example=lambda t: (t(1, 2, 3, 2), t(1, 2, 5, 4)))
def adaptive_avg_pool2d_backward(grad: Bounded, x: Any) -> Bounded:
    height, width = x.shape[-2:]

    def f(image: Tensor) -> Tensor:
        like = image.new_empty(*image.shape[:2], height, width)
        return aten._adaptive_avg_pool2d_backward.default(image, like)

    return summed("adaptive_avg_pool2d_backward", grad, _planes(f, 2), height * width + 2, axis=_image_axis(grad))


# --- softmax --------------------------------------------------------------------------------------------------------


def _opposed(bounds: Tensor) -> tuple[Tensor, Tensor]:
    """log(sum_j exp(z_j - z_c)) with z_c at its upper and at its lower end, classes last: (smallest, largest)."""
    low, high = bounds.unbind(0)

    def others_against(own: Tensor, others: Tensor) -> Tensor:
        gap = others.unsqueeze(-2) - own.unsqueeze(-1)
        same = torch.eye(gap.shape[-1], dtype=torch.bool, device=gap.device)
        return torch.logsumexp(gap.masked_fill(same, 0.0), -1)

    return others_against(high, low), others_against(low, high)


def _logit_error(bounds: Tensor) -> Tensor:
    """What rounding does to a log-softmax: a few units of the largest logit and of the number of classes."""
    moduli = bounds.abs().amax(0).amax(-1, keepdim=True)
    classes = bounds.shape[-1]
    return (2 * moduli + classes + 8) * rounding.gamma(3, bounds.dtype)


def log_softmax_bounds(bounds: Tensor) -> Tensor:
    """Bounds of ``log p``, classes last: each class against all others at their opposite end."""
    least, most = _opposed(bounds)
    exact = torch.stack((-most, -least))
    error = _logit_error(bounds)
    return rounding.widened(exact, error + exact.abs().amax(0) * rounding.gamma(2, bounds.dtype)).clamp_max(0.0)


def softmax_bounds(bounds: Tensor) -> Tensor:
    """Bounds of p: the exponential of those of log p; its relative error is the absolute one of log p."""
    image = torch.exp(log_softmax_bounds(bounds))
    charge = _logit_error(bounds) + rounding.gamma(3, bounds.dtype)
    lost = rounding.tiny(FLOOR_TERMS, bounds.dtype)
    return rounding.widened(image, image * charge + lost).clamp(0.0, 1.0)


FLOOR_TERMS = 64


def softmax_last(x: Bounded) -> Bounded:
    """Probabilities over the last axis."""
    x = x if x.form.axis != -1 else x.dense()
    bounds = softmax_bounds(x._bounds)
    form = _softmax_form(x, bounds) if x.affine else None
    return concretised("softmax", bounds, form, x._symbols)


def _softmax_form(x: Bounded, bounds: Tensor) -> Form:
    classes = x.shape[-1]
    charge = (_logit_error(x._bounds) + rounding.gamma(3, x.dtype)) * bounds[1] + rounding.tiny(FLOOR_TERMS, x.dtype)
    if classes == 2:
        form = apply(SIGMOID, sub(x, selected(x, lambda tensor, lead: tensor.flip(-1)))).form
        return Form(form.center, form.generators, rounding.up(form.radius + charge), form.rows, form.axis)
    f, eye = x.form, torch.eye(classes, dtype=x.dtype, device=x.device)
    p = torch.softmax(f.center, -1)
    jacobian = p.unsqueeze(-1) * (eye - p.unsqueeze(-2))
    # the mean value theorem needs the slopes on the whole segment to the center, which may lie outside the interval
    ends = torch.stack((torch.minimum(x._bounds[0], f.center), torch.maximum(x._bounds[1], f.center)))
    low, high = softmax_bounds(ends)
    corners = torch.stack([a.unsqueeze(-1) * (eye - b.unsqueeze(-2)) for a in (low, high) for b in (high, low)])
    own = torch.stack([a * (1 - a) for a in (low, high)])  # on the diagonal both factors are the same p_c
    peak = torch.where((low < 0.5) & (high > 0.5), 0.25, own.amax(0))
    largest_j = torch.where(eye.bool(), peak.unsqueeze(-1), corners.amax(0))
    smallest_j = torch.where(eye.bool(), own.amin(0).unsqueeze(-1), corners.amin(0))
    off = torch.maximum(largest_j - jacobian, jacobian - smallest_j).clamp_min(0.0)
    unit = rounding.gamma(classes + 4, x.dtype)
    spread = torch.minimum(rounding.deviation(x._bounds, f.center), f.reach)
    slopes = jacobian.abs()
    radius = (off + unit) @ spread.unsqueeze(-1) + slopes @ (f.radius + unit * f.modulus).unsqueeze(-1)
    radius = rounding.up(radius.squeeze(-1) + charge + unit * p)
    generators = (jacobian @ f.generators.unsqueeze(-1)).squeeze(-1)
    return Form(p, generators, radius, f.rows, f.axis)


def _classes_last(x: Bounded, dim: int, f: Callable[[Bounded], Bounded]) -> Bounded:
    if x.dim() == 0:
        raise UnsupportedOperator("softmax of a scalar")

    def moved(tensor: Tensor, lead: int) -> Tensor:
        return tensor.movedim(lead + dim % x.dim(), -1)

    def back(tensor: Tensor, lead: int) -> Tensor:
        return tensor.movedim(-1, lead + dim % x.dim())

    return selected(f(selected(x, moved)), back)


@rule(aten._softmax.default, example=lambda t: (t(2, 3, low=-3, high=3), 1, False))
def softmax(x: Bounded, dim: int, half_to_float: bool) -> Bounded:
    return _classes_last(x, dim, softmax_last)


@rule(aten._softmax_backward_data.default, example=lambda t: (t(2, 3), t(2, 3, low=0, high=1), 1, torch.float64))
def softmax_backward(grad: Any, p: Bounded, dim: int, dtype: Any) -> Bounded:
    """``p (grad - sum_j p_j grad_j)``."""
    weighted = mul(grad, p)
    total = sum_(weighted, [dim], True)
    return combination("softmax_backward", [(weighted, 1.0), (mul(p, total), -1.0)], terms=p.shape[dim] + 4)


def log_softmax_last(x: Bounded) -> Bounded:
    """``log p_c = z_c - logsumexp(z)``; its affine form by the mean value theorem, with slopes delta_cj - p_j."""
    x = x if x.form.axis != -1 else x.dense()
    bounds = log_softmax_bounds(x._bounds)
    form = None
    if x.affine:
        f, classes = x.form, x.shape[-1]
        p = torch.softmax(f.center, -1)
        probabilities = softmax_bounds(x._bounds)
        off = rounding.deviation(probabilities, p)
        unit = rounding.gamma(classes + 4, x.dtype)
        spread = torch.minimum(rounding.deviation(x._bounds, f.center), f.reach)
        slopes = torch.eye(classes, dtype=x.dtype, device=x.device) - p.unsqueeze(-2)
        error = ((off + unit) * spread).sum(-1, keepdim=True)
        kept = (slopes.abs() @ (f.radius + unit * f.modulus).unsqueeze(-1)).squeeze(-1)
        center = torch.log_softmax(f.center, -1)
        radius = rounding.up(error + kept + _logit_error(x._bounds) + unit * center.abs())
        form = Form(center, (slopes @ f.generators.unsqueeze(-1)).squeeze(-1), rounding.up(radius), f.rows, f.axis)
    return concretised("log_softmax", bounds, form, x._symbols)


@rule(aten._log_softmax.default, example=lambda t: (t(2, 3, low=-3, high=3), 1, False))
def log_softmax(x: Bounded, dim: int, half_to_float: bool) -> Bounded:
    return _classes_last(x, dim, log_softmax_last)


@rule(
    aten._log_softmax_backward_data.default,
    example=lambda t: (t(2, 3), t(2, 3, low=-3, high=-0.1), 1, torch.float64),
)
def log_softmax_backward(grad: Any, log_p: Bounded, dim: int, dtype: Any) -> Bounded:
    """``grad - p sum_j grad_j``."""
    total = sum_(grad, [dim], True)
    return sub(grad, mul(apply(EXP, log_p), total))


# --- normalisation --------------------------------------------------------------------------------------------------


def charged(x: Bounded, amount: Tensor) -> Bounded:
    """``x`` with a radius added, for a formula that rounds more than ours."""
    if rounding.mode() != "outward":
        return x
    bounds = rounding.widened(x._bounds, amount)
    form = None
    if x.affine:
        form = x.form
        form = Form(form.center, form.generators, rounding.up(form.radius + amount), form.rows, form.axis)
    return concretised("rounding", bounds, form, x._symbols)


def _modulus(x: Any) -> Tensor:
    if plain(x):
        return value(x).abs()
    return rounding.up(torch.maximum(x._bounds.abs().amax(0), x.form.modulus if x.affine else x._bounds.abs().amax(0)))


def _statistics(x: Bounded, count: int, eps: float) -> tuple[Bounded, Bounded, Bounded]:
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


def _normalised(x: Bounded, deviations: Bounded, center: Any, scale: Any, terms: int) -> Bounded:
    """(x - mean) / sqrt(variance + eps), whose square never sums to more than n but for rounding of the mean."""
    result = mul(deviations, scale)
    loss = (_modulus(x) + _modulus(center)) * _modulus(scale) * rounding.gamma(8 + terms, x.dtype)
    result = charged(result, loss)
    limit = math.sqrt(terms) * (1 + rounding.gamma(8 * terms, x.dtype)) + float(loss.max())
    return Bounded(result._bounds.clamp(-limit, limit), result._form, result._symbols)


@rule(aten.native_layer_norm.default, example=lambda t: (t(2, 4), [4], t(4), t(4), 0.1))
def layer_norm(x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> tuple:
    if not isinstance(x, Bounded):
        x = point(x)
    deviations, center, scale = _statistics(x, len(shape), eps)
    result = _normalised(x, deviations, center, scale, math.prod(shape))
    if weight is not None:
        result = mul(result, weight)
    if bias is not None:
        result = combination("layer_norm", [(result, 1.0), (bias, 1.0)])
    return result, center, scale


@rule(aten.native_layer_norm_backward.default, example=None)
def layer_norm_backward(
    grad: Any, x: Any, shape: Sequence[int], center: Any, scale: Any, weight: Any, bias: Any, wanted: Sequence[bool]
) -> tuple:
    """With h the normalised input and g = grad weight: ``scale (g - mean(g) - h mean(g h))``."""
    count = len(shape)
    axes, outer = list(range(x.dim() - count, x.dim())), list(range(x.dim() - count))
    if not isinstance(x, Bounded):
        x = point(x)
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
    x: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Evaluation mode is an affine map; in training mode every sample would depend on every other."""
    if training or running_mean is None:
        raise UnsupportedOperator(
            "batch normalisation in training mode has no rule: its statistics are part of the training data. Call "
            ".eval() on it (fixed statistics), or use LayerNorm."
        )
    shape = (1, -1, *(1,) * (x.dim() - 2))
    scale = torch.rsqrt(running_var + eps).view(shape)
    shift = running_mean.view(shape)
    result = RoundedAffine.apply(x, scale, shift)
    if weight is not None:
        result = result * weight.view(shape)
    return result if bias is None else result + bias.view(shape)


class RoundedAffine(torch.autograd.Function):
    """``(x - shift) scale`` as plain PyTorch may compute it: also ``x scale - shift scale``, which cancels."""

    @staticmethod
    @internal
    def forward(ctx: Any, x: Any, scale: Tensor, shift: Tensor) -> Any:
        ctx.scale = scale
        if not isinstance(x, Bounded):
            x = point(x)
        result = mul(sub(x, shift), scale)
        return charged(result, (_modulus(x) + shift.abs()) * scale.abs() * rounding.gamma(8, x.dtype))

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override]
        result = mul(grad, ctx.scale) if isinstance(grad, Bounded) else grad * ctx.scale
        if isinstance(result, Bounded):
            result = charged(result, _modulus(grad) * ctx.scale.abs() * rounding.gamma(4, result.dtype))
        return result, None, None


# --- dropout --------------------------------------------------------------------------------------------------------


def _dropped(function: Callable[..., Tensor]) -> None:
    """A fixed mask, drawn as plain PyTorch draws it, so that the same seed gives the same mask."""

    @replaces(function)
    def drop(x: Bounded, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return x
        if inplace:
            raise UnsupportedOperator("dropout in place: use inplace=False")
        mask = function(torch.ones(x.shape, dtype=x.dtype, device=x.device), p, True)
        ends = mask.expand(2, *mask.shape)  # 1 / (1 - p) is rounded, 0 is not
        return x * Bounded(torch.where(ends == 0, ends, rounding.outward_sum(ends, ends, 1)), nonnegative=True)


for _function in (
    torch.nn.functional.dropout,
    torch.nn.functional.dropout1d,
    torch.nn.functional.dropout2d,
    torch.nn.functional.dropout3d,
):
    _dropped(_function)


# --- norms ----------------------------------------------------------------------------------------------------------


@rule(aten.linalg_vector_norm.default, example=lambda t: (t(3, 4), 2, [1]))
def vector_norm(x: Bounded, order: float = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Bounded:
    if order == 2:
        return apply(SQRT, sum_(square(x), dims, keepdim))
    if order == 1:
        return sum_(apply(ABS, x), dims, keepdim)
    if order == math.inf:
        from .selections import largest

        axes = list(range(x.dim())) if dims is None else [dim % x.dim() for dim in dims]
        kept = [dim for dim in range(x.dim()) if dim not in axes]

        def moved(tensor: Tensor, lead: int) -> Tensor:
            return tensor.permute(*range(lead), *(lead + d for d in kept + axes)).flatten(lead + len(kept))

        result = largest(selected(apply(ABS, x), moved))
        shape = [1 if dim in axes else size for dim, size in enumerate(x.shape)] if keepdim else result.shape
        return selected(result, lambda tensor, lead: view(tensor, lead, shape))
    raise UnsupportedOperator(f"the vector norm of order {order} has no rule: orders 1, 2 and infinity do")


def _nonnegative(x: Bounded) -> Bounded:
    """A variance is nonnegative whatever rounding did to its lower bound."""
    return Bounded(x._bounds.clamp_min(0.0), x._form, x._symbols, nonnegative=True)
