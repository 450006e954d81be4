"""Softmax. With intervals, class c is smallest with its own logit at the lower end and all others at their upper end:
``p_c = 1 / sum_j exp(z_j - z_c)``, and with one stable offset per class. As an affine form, with d = z - z0,

    p(z) = p(z0) + J(z0) d + e,      J_cj = p_c (delta_cj - p_j),      and by Taylor's theorem, for some q on the way,

    e_c = q_c ((d_c - m)^2 - v) / 2      with mean m = sum_j q_j d_j and variance v = sum_j q_j (d_j - m)^2.

Both squares are bounded by the spread s_j of each logit, and e_c has an upper and a lower end of its own. Where the
spread is large, the mean value theorem says more: ``|e_c| <= sum_j max |J_cj(z) - J_cj(z0)| s_j``.

Two classes are a sigmoid of the difference d of their logits, ``p_0 = sigmoid(d)``, and their logarithms are
``-softplus(-d)`` and ``-softplus(d)``: only d has to be known well.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..errors import UnsupportedOperator
from ..rules.linear import combination, neg, sub, sum_
from ..rules.operand_properties import sample_axis
from ..rules.states import Linear, Remainder, States, linear_part
from ..rules.structural import selected
from ..rules.unary import apply
from ..sets.factors import Softened
from ..sets.set import Set, as_set, concretised, point
from ..tensor.rule_table import aten, rule
from .functions import EXP, SIGMOID, softplus_function
from .products import mul, product


def _opposed(bounds: Tensor) -> tuple[Tensor, Tensor]:
    """log(sum_j exp(z_j - z_c)) with z_c at its upper and at its lower end, classes last: (smallest, largest)."""
    low, high = bounds.unbind(0)

    def others_against(own: Tensor, others: Tensor) -> Tensor:
        gap = others.unsqueeze(-2) - own.unsqueeze(-1)
        same = torch.eye(gap.shape[-1], dtype=torch.bool, device=gap.device)
        return torch.logsumexp(gap.masked_fill(same, 0.0), -1)

    return others_against(high, low), others_against(low, high)


def _logit_error(bounds: Tensor) -> Tensor:
    """What rounding does to a log-softmax: a few units of the largest logit and of the number of classes.

    ``|log p| <= 2 moduli + log(classes)``, so these are more than the roundings of ``log p`` itself, and 126 of them
    pay for an exponential that follows.
    """
    moduli = bounds.abs().amax(0).amax(-1, keepdim=True)
    classes = bounds.shape[-1]
    return (2 * moduli + classes + 8) * rounding.gamma(3, bounds.dtype)


def log_softmax_bounds(bounds: Tensor) -> Tensor:
    """Bounds of ``log p``, classes last: each class against all others at their opposite end."""
    least, most = _opposed(bounds)
    exact = torch.stack((-most, -least))
    error = _logit_error(bounds)
    return rounding.widened(exact, error).clamp_max(0.0)


def softmax_bounds(bounds: Tensor) -> Tensor:
    """Bounds of p: the exponential of those of log p; its relative error is the absolute one of log p."""
    image = torch.exp(log_softmax_bounds(bounds))
    lost = rounding.tiny(FLOOR_TERMS, bounds.dtype)
    return rounding.widened(image, image * _logit_error(bounds) + lost).clamp(0.0, 1.0)


FLOOR_TERMS = 64
THRESHOLD = 40.0  # above it softplus(z) is z, within exp(-40)
SOFTPLUS = softplus_function(1.0, THRESHOLD)


def difference(x: Set, comes_again: bool = False) -> Set | None:
    """``z_0 - z_1``, of shape (..., 1), where a set has rows and two classes on its last axis; None elsewhere.

    A gradient has multiples of its rows: they come again.
    """
    if not x.affine or x.shape[-1] != 2:
        return None
    x = x.rough
    x = x if sample_axis(x) != -1 else x.dense()
    first = selected(x, lambda tensor, lead: tensor.narrow(-1, 0, 1))
    second = selected(x, lambda tensor, lead: tensor.narrow(-1, 1, 1))
    apart = combination("sub", [(first, 1.0), (second, -1.0)], sharp=False)
    told = apart.nonnegative, apart.clean
    return concretised(
        "sub", apart.bounds, apart.form, apart.symbols, *told, along=apart.along, comes_again=comes_again
    )


def softmax_last(x: Set, apart: Set | None = None) -> Set:
    """Probabilities over the last axis; ``apart`` is the `difference` of two classes, where it is known already."""
    apart = difference(x) if apart is None else apart
    x = x if apart is None else x.rough
    x = x if sample_axis(x) != -1 else x.dense()
    over = States(x)
    images = [softmax_bounds(view.bounds) for (view,) in over.views]
    if not x.affine:
        return over.result("softmax", [Remainder(image, None) for image in images])
    if apart is not None:
        return _two_classes(x, apart, over, images)
    p = torch.softmax(x.form.center, -1)
    jacobian = p.unsqueeze(-1) * (torch.eye(x.shape[-1], dtype=x.dtype, device=x.device) - p.unsqueeze(-2))
    below, above = zip(*(_softmax_error(view, jacobian) for (view,) in over.views), strict=True)
    middle, off = over.middle(above, below)
    remainders = [
        Remainder(image, _softmax_radius(view, p, jacobian, image, middle, error))
        for (view,), image, error in zip(over.views, images, off, strict=True)
    ]
    linear = Linear(p + middle, p * _less_their_mean(x.form.generators, p), x.form.rows, x.form.along)
    sharp = x.symbols is None or x.symbols.support.cheap(x.form)
    factors = Softened(x.product, p) if x.product is not None and x.dim() == 2 else None
    return over.result("softmax", remainders, linear, sharp=sharp, factors=factors)


def _two_classes(x: Set, apart: Set, over: States[Set], images: list[Tensor]) -> Set:
    """``p_0 = sigmoid(d)`` and ``p_1 = 1 - p_0``: the image of one difference is the range of both."""
    signs, offsets = (point(_pair(ends, x)) for ends in ((1.0, -1.0), (0.0, 1.0)))
    turned = product(apply(SIGMOID, apart), signs, sharp=False)
    both = combination("softmax", [(turned, 1.0), (offsets, 1.0)], sharp=False)
    return _charged("softmax", both, x, over, images, _softmax_charge(x, images[0]))


def _pair(ends: tuple[float, float], x: Set) -> Tensor:
    """Two numbers like those of a set; a GPU is not waited for."""
    return torch.stack([torch.full((), end, dtype=x.dtype, device=x.device) for end in ends])


def _two_logarithms(x: Set, apart: Set, over: States[Set], images: list[Tensor]) -> Set:
    """``log p_0 = -softplus(-d)`` and ``log p_1 = -softplus(d)``."""
    turned = product(apart, point(_pair((-1.0, 1.0), x)), sharp=False)
    both = neg(apply(SOFTPLUS, turned))
    return _charged("log_softmax", both, x, over, images, _logit_error(x.bounds).expand(x.shape))


def _charged(name: str, both: Set, x: Set, over: States[Set], images: list[Tensor], charge: Tensor) -> Set:
    """What was computed from the difference, with the roundings of PyTorch's formula, and within these images."""
    over = States(x, found=None if both.clean is None else over.found)
    remainders = []
    for view, image in zip((both, both.untouched), images, strict=False):
        ends = rounding.widened(view.bounds, charge)
        bounds = torch.stack((image[0].maximum(ends[0]), image[1].minimum(ends[1])))
        remainders.append(Remainder(bounds, rounding.up(view.form.radius + charge)))
    return over.result(name, remainders[: len(over.views)], linear_part(both.form), sharp=False)


def _softmax_charge(x: Set, image: Tensor) -> Tensor:
    """What rounding does to probabilities."""
    return _logit_error(x.bounds) * image[1] + rounding.tiny(FLOOR_TERMS, x.dtype)


def _softmax_error(x: Set, jacobian: Tensor) -> tuple[Tensor, Tensor]:
    """How far e_c reaches down and up: the smaller of what Taylor and the mean value theorem say."""
    # both need probabilities on the whole segment to the center, which may lie outside the interval
    center = x.form.center
    low, high = softmax_bounds(torch.stack((torch.minimum(x.bounds[0], center), torch.maximum(x.bounds[1], center))))
    spread = x.deviation
    most = _by_mean_value(low, high, jacobian, spread)
    below, above = _by_taylor(low, high, spread)
    return torch.minimum(below, most), torch.minimum(above, most)


def _by_taylor(low: Tensor, high: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Ends of ``q_c ((d_c - m)^2 - v) / 2`` for probabilities q in [low, high] and ``|d_j| <= s_j``.

    ``d_c - m`` is ``(1 - q_c) d_c`` less the other ``q_j d_j``. A variance is at least ``q_c (d_c - m)^2``, so that
    ``(1 - q_c) (d_c - m)^2`` is left above. Below, the mean square of d around 0, and that of all others around d_c,
    are no less than ``v - (d_c - m)^2``. These take 2 C + 8 roundings at most, of 2 C + 16.
    """
    others, largest = _of_others(high), s.amax(-1, keepdim=True)
    rest = torch.minimum(1 - low, others)
    of_all = torch.minimum((high * s * s).sum(-1, keepdim=True), largest * largest)
    apart = s.unsqueeze(-1) + s.unsqueeze(-2)
    around_own = _of_others(high.unsqueeze(-2) * apart * apart, diagonal=True)
    deviation = rest * s + torch.minimum(_of_others(high * s), rest * largest)
    half = 0.5 * (1 + rounding.gamma(s.shape[-1] + 4, s.dtype)) * high
    return half * torch.minimum(of_all, around_own), half * (1 - low) * deviation * deviation


def _of_others(values: Tensor, diagonal: bool = False) -> Tensor:
    """For each class, the sum over all others of values (classes), or (own, others): without a difference."""
    eye = torch.eye(values.shape[-1], dtype=torch.bool, device=values.device)
    apart = values if diagonal else values.unsqueeze(-2).expand(*values.shape, values.shape[-1])
    return apart.masked_fill(eye, 0.0).sum(-1)


def _by_mean_value(low: Tensor, high: Tensor, jacobian: Tensor, spread: Tensor) -> Tensor:
    """``sum_j max |J_cj(z) - J_cj(z0)| s_j`` for probabilities in [low, high]."""
    classes = low.shape[-1]
    eye = torch.eye(classes, dtype=low.dtype, device=low.device)
    corners = torch.stack([a.unsqueeze(-1) * (eye - b.unsqueeze(-2)) for a in (low, high) for b in (high, low)])
    own = torch.stack([a * (1 - a) for a in (low, high)])  # on the diagonal both factors are the same p_c
    peak = torch.where((low < 0.5) & (high > 0.5), 0.25, own.amax(0))
    largest_j = torch.where(eye.bool(), peak.unsqueeze(-1), corners.amax(0))
    smallest_j = torch.where(eye.bool(), own.amin(0).unsqueeze(-1), corners.amin(0))
    off = torch.maximum(largest_j - jacobian, jacobian - smallest_j).clamp_min(0.0)
    error: Tensor = ((off + rounding.gamma(classes + 4, low.dtype)) @ spread.unsqueeze(-1)).squeeze(-1)
    return error


def _softmax_radius(x: Set, p: Tensor, jacobian: Tensor, image: Tensor, middle: Tensor, error: Tensor) -> Tensor:
    """The error beside its middle, the radius of the logits, and roundings."""
    f, unit = x.form, rounding.gamma(x.shape[-1] + 4, x.dtype)
    kept = (jacobian.abs() @ f.radius.unsqueeze(-1)).squeeze(-1)
    # the modulus holds the radius, whose product is paid for with it, and so is the slope of each logit
    charge = _softmax_charge(x, image) + unit * (middle.abs() + p * (1 + _and_their_mean(f.modulus, p)))
    return rounding.up(error + kept + charge)


def _less_their_mean(rows: Tensor, p: Tensor) -> Tensor:
    """``g_c - sum_j p_j g_j``: slopes of the form delta_cj - p_j, applied to rows without a matrix for each of them.

    It may be off by ``gamma_(C + 4)`` times the same with moduli and a plus.
    """
    return rows - (rows * p).sum(-1, keepdim=True)


def _and_their_mean(moduli: Tensor, p: Tensor) -> Tensor:
    return moduli + (p * moduli).sum(-1, keepdim=True)


def _classes_last(x: Set, dim: int, f: Callable[[Set], Set]) -> Set:
    if x.dim() == 0:
        raise UnsupportedOperator("softmax of a scalar")

    def moved(tensor: Tensor, lead: int) -> Tensor:
        return tensor.movedim(lead + dim % x.dim(), -1)

    def back(tensor: Tensor, lead: int) -> Tensor:
        return tensor.movedim(-1, lead + dim % x.dim())

    return selected(f(selected(x, moved)), back)


@rule(aten._softmax.default, example=lambda t: (t(2, 3, low=-3, high=3), 1, False))
def softmax(x: Set, dim: int, half_to_float: bool) -> Set:
    return _classes_last(x, dim, softmax_last)


@rule(aten._softmax_backward_data.default, example=lambda t: (t(2, 3), t(2, 3, low=0, high=1), 1, torch.float64))
def softmax_backward(grad: Set | Tensor, p: Set | Tensor, dim: int, dtype: torch.dtype) -> Set:
    """``p (grad - sum_j p_j grad_j)``; of a number, p is 1 and the gradient 0."""
    if not p.dim():
        raise UnsupportedOperator("a softmax of a number, which is 1, has no rule: write it as such")
    weighted = mul(grad, p)
    total = sum_(weighted, [dim], True)
    return combination("softmax_backward", [(weighted, 1.0), (mul(p, total), -1.0)], terms=p.shape[dim] + 4)


def log_softmax_last(x: Set, sharp: bool = True, apart: Set | None = None) -> Set:
    """``log p_c = z_c - lse(z)``, with lse the logarithm of a sum of exponentials and p(z) its gradient.

    As an affine form with slopes delta_cj - p_j(z0). lse is convex, so with d = z - z0

        0  <=  lse(z) - lse(z0) - p(z0) d  <=  (p(z) - p(z0)) d:

    only the values of p at z matter, in every state those on its interval, which need not hold the center z0.
    ``apart`` is the `difference` of two classes, where it is known already.
    """
    apart = difference(x) if apart is None else apart
    x = x if apart is None else x.rough
    x = x if sample_axis(x) != -1 else x.dense()
    over = States(x)
    intervals = [log_softmax_bounds(view.bounds) for (view,) in over.views]
    if not x.affine:
        return over.result("log_softmax", [Remainder(interval, None) for interval in intervals])
    if apart is not None:
        return _two_logarithms(x, apart, over, intervals)
    f, unit = x.form, rounding.gamma(x.shape[-1] + 4, x.dtype)
    p, center = torch.softmax(f.center, -1), torch.log_softmax(f.center, -1)
    slopes = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device) - p.unsqueeze(-2)

    def radius(view: Set) -> Tensor:
        off = rounding.deviation(softmax_bounds(view.bounds), p)
        error = ((off + unit) * view.deviation).sum(-1, keepdim=True)
        kept = (slopes.abs() @ view.form.radius.unsqueeze(-1)).squeeze(-1)
        rounded = unit * _and_their_mean(f.modulus, p) + _logit_error(view.bounds) + unit * center.abs()
        return rounding.up(error + kept + rounded)

    remainders = [Remainder(image, radius(view)) for image, (view,) in zip(intervals, over.views, strict=True)]
    linear = Linear(center, _less_their_mean(f.generators, p), f.rows, f.along)
    return over.result("log_softmax", remainders, linear, sharp=sharp)


@rule(aten._log_softmax.default, example=lambda t: (t(2, 3, low=-3, high=3), 1, False))
def log_softmax(x: Set, dim: int, half_to_float: bool) -> Set:
    return _classes_last(x, dim, log_softmax_last)


@rule(
    aten._log_softmax_backward_data.default,
    example=lambda t: (t(2, 3), t(2, 3, low=-3, high=-0.1), 1, torch.float64),
)
def log_softmax_backward(grad: Set | Tensor, log_p: Set | Tensor, dim: int, dtype: torch.dtype) -> Set:
    """``grad - p sum_j grad_j``."""
    total = sum_(grad, [dim], True)
    return sub(grad, mul(apply(EXP, as_set(log_p)), total))
