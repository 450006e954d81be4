"""Losses, each with tight bounds on its value and one primitive for its gradient.

    binary cross entropy   softplus(z) - y z              gradient  sigmoid(z) - y
    cross entropy          sum_c t_c (lse(z) - z_c)       gradient  p(z) sum_c t_c - t
    squared error          (z - y)^2                      gradient  2 (z - y)
    hinge                  max(0, 1 - y z), y = +-1       gradient  -y where y z < 1

PyTorch decomposes the first two into chains of exp, log and clamp, sound but loose. So they are caught before autograd
sees them, and every option is honoured or refused. The upstream gradient, per-sample weights and the reduction stay
outside, as ordinary bounded arithmetic: ``(10 * loss).backward()`` is ten times the gradient.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..arithmetic import rounding
from ..arithmetic.thread_context import keeps_by_sample, thread
from ..errors import UnsupportedOperator
from ..rules.linear import combination, mean, neg, sub, sum_
from ..rules.operand_properties import Operand, same_kind, symbols_of, value, varies
from ..rules.structural import selected
from ..rules.unary import apply
from ..sets.set import Check, Set, as_set, concretised, point
from ..tensor.autograd_functions import applied, first_order, internal
from ..tensor.bounded import Bounded, unwrapped
from ..tensor.rule_table import aten, replaces, rule
from .functions import SIGMOID
from .products import hull, mul, product, scaled, square
from .softmax import SOFTPLUS, THRESHOLD, difference, log_softmax_last, softmax_last


def reduced(losses: Tensor, reduction: str) -> Tensor:
    """Mean, sum, or every sample's own loss."""
    if reduction == "mean":
        return losses.mean()
    if reduction == "sum":
        return losses.sum()
    if reduction == "none":
        return losses
    raise UnsupportedOperator(f"reduction={reduction!r} is not one of 'mean', 'sum', 'none'")


def _each_counts(reduction: str) -> bool:
    """Whether bounds of every sample's own loss are asked for: not where they are added up, also over pieces."""
    return reduction == "none" and not keeps_by_sample()


# --- binary cross entropy -------------------------------------------------------------------------------------------


class BinaryCrossEntropy(torch.autograd.Function):
    """softplus(z) - y z, elementwise. ``sharp=False`` where a sum follows, whose own bounds come from the form."""

    @staticmethod
    @internal
    def forward(ctx: Any, logits: Tensor, targets: Tensor, sharp: bool) -> Set:
        ctx.save_for_backward(logits, targets)
        z, y = as_set(logits), unwrapped(targets)
        bounds = _bce_bounds(z.bounds, y.bounds.unbind(0) if varies(y) else (value(y),))
        form = None
        if z.affine or (varies(y) and y.affine):
            summands = [(apply(SOFTPLUS, z), 1.0), (product(y, z, sharp=False), -1.0)]
            form = combination("binary_cross_entropy", summands, sharp=False).form
            charge = rounding.gamma(8, z.dtype) * (1 + 2 * z.form.modulus)
            form = form.with_radius(form.radius + charge)  # of which 12 roundings are spare, as in the radius
        return concretised("binary_cross_entropy", bounds, form, symbols_of(z, y), sharp=sharp, check=Check.OVERFLOW)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Set | None, ...]:
        logits, targets = ctx.saved_tensors
        summands = [(apply(SIGMOID, as_set(logits)), 1.0), (unwrapped(targets), -1.0)]
        slope = combination("binary_cross_entropy", summands, terms=6, sharp=False)  # loses a thousandth at most
        for_targets = mul(as_set(grad), neg(as_set(logits))) if ctx.needs_input_grad[1] else None
        return mul(as_set(grad), slope), for_targets, None


def _bce_bounds(z: Tensor, targets: tuple[Tensor, ...]) -> Tensor:
    """Linear in y, so y at its ends; convex in z, so largest at the ends and smallest at logit(y) or the nearer end."""
    bounds = None
    low, high = z.unbind(0)
    for y in targets:
        at = torch.stack((low, high, torch.logit(y.clamp(0, 1)).clamp(low, high)))
        values = torch.addcmul(F.softplus(at, 1, THRESHOLD), y, at, value=-1)
        ends = torch.stack(torch.aminmax(values, dim=0))
        bounds = ends if bounds is None else hull(torch.cat((ends, bounds)))
    assert bounds is not None
    largest = targets[0].abs() if len(targets) == 1 else torch.stack(targets).abs().amax(0)
    charge = rounding.gamma(16, z.dtype)
    # logit(y) is only near the minimum, but the loss is flat there: an error d costs d^2 / 8
    amount = z.abs().amax(0).mul_(1 + largest).mul_(charge).add_(charge + math.exp(-THRESHOLD))
    return rounding.apart(bounds, amount)  # 40 roundings of the loss pay for this one, too


@replaces(F.binary_cross_entropy_with_logits, torch.binary_cross_entropy_with_logits)
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """PyTorch's function on sets; bounded targets are allowed."""
    _no_legacy(size_average, reduce)
    logits, targets = unwrapped(input), unwrapped(target)  # asking tensors themselves takes another way each time
    if logits.shape != targets.shape:
        raise ValueError(f"target has shape {tuple(targets.shape)}, but the logits have {tuple(logits.shape)}")
    same_kind(logits, targets)
    target = target if isinstance(target, Bounded) else target.to(logits.dtype)
    if pos_weight is None:
        losses = applied(BinaryCrossEntropy, input, target, _each_counts(reduction))
    else:
        losses = _weighted(input, target, pos_weight)
    return reduced(losses if weight is None else losses * weight, reduction)


def _weighted(z: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """``w y (softplus(z) - z) + (1 - y) softplus(z)``.

    PyTorch computes ``1 + (w - 1) y`` instead of ``w y`` and ``1 - y``, which cancels, so both factors are sets that
    are wider by the roundings of 1 + w.
    """
    like = as_set(y).bounds[0]
    positive = applied(BinaryCrossEntropy, z, torch.ones_like(like), True)
    negative = applied(BinaryCrossEntropy, z, torch.zeros_like(like), True)
    given = weight if isinstance(weight, Bounded) else torch.as_tensor(weight, dtype=z.dtype, device=z.device)
    scale = 1 + as_set(given).bounds.abs().amax(0)
    moduli = scale * as_set(y).bounds.abs().amax(0)
    doubt = (1 + moduli) * rounding.gamma(8, z.dtype)
    wide = Bounded(Set(torch.stack((-doubt, doubt))))
    return (weight * y + wide) * positive + ((1 - y) + wide) * negative


# --- cross entropy --------------------------------------------------------------------------------------------------


class LogProbabilities(torch.autograd.Function):
    """``sum_c t_c (-log p_c)`` over the last axis; t are the (possibly bounded) target weights of the classes.

    ``total`` is 1.0 where every target is known to add up to one, as flipped labels do. ``sharp=False`` where a sum
    over samples follows, whose own bounds come from the form.
    """

    @staticmethod
    @internal
    def forward(ctx: Any, logits: Tensor, targets: Tensor, total: float | None, sharp: bool) -> Set:
        ctx.save_for_backward(logits, targets)
        ctx.total, z = total, as_set(logits)
        ctx.difference = difference(z, comes_again=ctx.needs_input_grad[0])  # both passes look at it
        surprise = neg(log_softmax_last(z, sharp, ctx.difference))
        return sum_(product(as_set(targets), surprise, sharp=False), [-1], sharp=sharp)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Set | None, ...]:
        logits, targets = map(as_set, ctx.saved_tensors)
        p = softmax_last(logits, ctx.difference)
        weighted = p
        if ctx.total is None:
            weighted = mul(p, point(targets.bounds[0].sum(-1, True)) if targets.exact else sum_(targets, [-1], True))
        summands = [(weighted, 1.0), (targets, -1.0)]
        # fixed targets, or flipped ones whose symbols p hardly knows: the interval says it all
        slope = combination("cross_entropy", summands, terms=logits.shape[-1] + 6, sharp=False)
        spread = selected(as_set(grad), lambda tensor, lead: tensor.unsqueeze(-1))
        for_targets = None
        if ctx.needs_input_grad[1]:
            for_targets = mul(spread, neg(log_softmax_last(logits, apart=ctx.difference)))
        return mul(spread, slope), for_targets, None, None


@replaces(F.cross_entropy)
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """PyTorch's function on sets: class indices, or (possibly bounded) class probabilities."""
    _no_legacy(size_average, reduce)
    logits = input.movedim(1, -1) if input.dim() > 2 else input
    classes = logits.shape[-1]
    scale = torch.ones(classes, dtype=logits.dtype, device=logits.device) if weight is None else weight
    if isinstance(scale, Bounded):
        raise UnsupportedOperator("bounded class weights change the divisor of the mean: give plain ones")
    if target.is_floating_point():
        if ignore_index >= 0:  # as PyTorch says
            raise UnsupportedOperator("ignore_index is not supported for floating point target: leave it out")
        targets = (target.movedim(1, -1) if target.dim() > 1 else target) * scale
        divisor: Bounded | float = float(max(target.numel() // classes, 1))
        if label_smoothing:
            targets = targets * (1 - label_smoothing) + scale * (label_smoothing / classes)
    else:
        safe, own = _own_weights(target, scale, ignore_index)
        hot = (safe.unsqueeze(-1) == torch.arange(classes, device=safe.device)).to(logits.dtype)
        smooth = scale * (label_smoothing / classes) * (target != ignore_index).unsqueeze(-1)
        targets = hot * own.unsqueeze(-1) * (1 - label_smoothing) + smooth
        divisor = _total(own, weight)
    certain = weight is None and isinstance(target, Bounded) and target.set.adds_to_one
    losses = applied(LogProbabilities, logits, targets, 1.0 if certain else None, _each_counts(reduction))
    if reduction != "mean":
        return reduced(losses, reduction)
    return losses.sum() / divisor


def _own_weights(target: Tensor, scale: Tensor, ignored: int) -> tuple[Tensor, Tensor]:
    """Class indices with the ignored ones replaced by 0, and the weight of each sample's own class."""
    if isinstance(target, Bounded):
        raise UnsupportedOperator("bounded class indices: give bounded class probabilities of shape (N, C)")
    kept = target != ignored
    safe = torch.where(kept, target, 0)
    known = ((safe >= 0) & (safe < len(scale))).all()
    if thread.arithmetic.deferred is not None:
        thread.arithmetic.deferred.append(known & kept.all())  # `_total` counts on it
    elif not bool(known):
        raise ValueError(f"a target lies outside the {len(scale)} classes")
    return safe, scale[safe] * kept


def _total(own: Tensor, weight: Tensor | None) -> Bounded | float:
    """What a weighted mean divides by: a count, or a sum of weights as plain PyTorch may round it."""
    if weight is None and thread.arithmetic.deferred is not None:  # a step that is being traced: no target is ignored
        return float(own.numel())
    total = own.sum()
    if weight is None:
        return float(total)
    return Bounded(Set(rounding.outward_sum(torch.stack((total, total)), own.abs().sum(), own.numel())))


@replaces(F.nll_loss)
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``-log p`` of the own class, from log-probabilities."""
    _no_legacy(size_average, reduce)
    scores = input.movedim(1, -1) if input.dim() > 1 else input
    scale = torch.ones(scores.shape[-1], dtype=input.dtype, device=input.device) if weight is None else weight
    safe, own = _own_weights(target, scale, ignore_index)
    losses = -scores.gather(-1, safe.unsqueeze(-1)).squeeze(-1) * own
    return losses.sum() / _total(own, weight) if reduction == "mean" else reduced(losses, reduction)


# --- squared error --------------------------------------------------------------------------------------------------


@rule(aten.mse_loss.default, example=lambda t: (t(3, 4), t(3, 4), 0))
def mse_loss(x: Operand, y: Operand, reduction: int = 1) -> Set:
    losses = square(sub(x, y))
    return (losses, mean(losses), sum_(losses))[reduction]


@rule(aten.mse_loss_backward.default, example=lambda t: (t(3, 4), t(3, 4), t(3, 4), 0))
def mse_loss_backward(grad: Operand, x: Operand, y: Operand, reduction: int) -> Set:
    difference = sub(x, y)
    factor = 2.0 / difference.numel() if reduction == 1 else 2.0
    return mul(grad, scaled(difference, factor))


# --- hinge ----------------------------------------------------------------------------------------------------------


def hinge(logits: Tensor, targets: Tensor, weight: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """``max(0, 1 - y z)`` with y = +1 for target 1 and -1 for target 0, on plain tensors and on sets alike."""
    if logits.shape != targets.shape:
        raise ValueError(f"targets have shape {tuple(targets.shape)}, but the logits have {tuple(logits.shape)}")
    sign = 2 * (targets if targets.is_floating_point() else targets.to(logits.dtype)) - 1
    losses = torch.relu(1 - sign * logits)
    return reduced(losses if weight is None else losses * weight, reduction)


@replaces(F.l1_loss)
def l1_loss(input: Tensor, target: Tensor, *options: Any, **named: Any) -> Tensor:
    """``|z - y|``. PyTorch loses the weight of this one loss on its way to tensors that are not its own."""
    asked: FrameType | None = sys._getframe()
    while asked is not None and asked.f_code is not F.l1_loss.__code__:
        asked = asked.f_back
    if asked is not None and asked.f_locals.get("weight") is not None:
        raise UnsupportedOperator("l1_loss has no rule for a weight: reduce weight * (input - target).abs()")
    with torch._C.DisableTorchFunctionSubclass():
        return F.l1_loss(input, target, *options, **named)


@replaces(F.multi_margin_loss)
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The multi-class hinge ``sum over c != y of max(0, margin - z_y + z_c) / C``."""
    _no_legacy(size_average, reduce)
    if p != 1:
        raise UnsupportedOperator("multi_margin_loss has a rule for p=1 only")
    own = input.gather(-1, target.unsqueeze(-1))
    others = 1 - F.one_hot(target, input.shape[-1]).to(input.dtype)
    losses = (torch.relu(margin - own + input) * others).sum(-1) / input.shape[-1]
    return reduced(losses if weight is None else losses * weight[target], reduction)


def _no_legacy(size_average: bool | None, reduce: bool | None) -> None:
    if size_average is not None or reduce is not None:
        raise UnsupportedOperator("size_average and reduce are gone: use reduction='mean', 'sum' or 'none'")


# --- losses by name -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loss:
    """A loss that recipes name, and what it takes the outputs of a network for.

    ``outputs``: "one" that tells two classes apart by its sign, one for each of the "classes", or "values" to predict.
    """

    function: Callable[..., Tensor]
    outputs: str

    def __call__(self, outputs: Tensor, targets: Tensor, **options: Any) -> Tensor:
        return self.function(outputs, targets, **options)


def as_targets(loss: str, y: Tensor, dtype: torch.dtype) -> Tensor:
    """Targets as a loss takes them: whole numbers for classes, numbers of this dtype in columns for the others."""
    if LOSSES[loss].outputs == "classes":
        return y.reshape(-1).long()
    return y.to(dtype).reshape(len(y), -1)


LOSSES = {
    "bce": Loss(F.binary_cross_entropy_with_logits, "one"),
    "hinge": Loss(hinge, "one"),
    "ce": Loss(F.cross_entropy, "classes"),
    "mse": Loss(F.mse_loss, "values"),
}
