"""Selections: maximum, amax, max pooling.

    max_i x_i = x_j + max(0, max_i (x_i - x_j))      for any j

With j the entry of the largest center, the affine form of x_j is kept and what others can exceed it by becomes
radius; where one entry dominates this is exact. Bounds are the maxima of the bounds.

Backward: entry i receives the gradient certainly if l_i > u_k for every other k, possibly if u_i >= max_k l_k. Ties
may go either way. Recomputed from bounds: the indices of a forward pass are those of one tensor of the set only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..errors import Undecided, UnsupportedOperator
from ..rules.linear import Dims, as_tensor, broadcast, combination, neg, sub
from ..rules.operand_properties import any_affine, reference, same_kind, sample_axis, samples_of, varies
from ..rules.states import Remainder, States, linear_part
from ..rules.structural import gathered, selected
from ..rules.unary import apply
from ..sets.forms import Form
from ..sets.set import Set, as_set
from ..tensor.autograd_functions import applied, first_order, internal
from ..tensor.bounded import Bounded
from ..tensor.rule_table import aten, replaces, rule
from .constants import new_zeros
from .functions import RELU
from .gates import gated
from .indexed_writes import scattered
from .pooling import Sizes

Windows = tuple[Sizes, Sizes | None, Sizes, Sizes, bool]  # kernel, stride, padding, dilation, rounded up


@rule(aten.maximum.default, example=lambda t: (t(3, 4), t(4)))
def maximum(a: Set | Tensor, b: Set | Tensor) -> Set:
    """``b + relu(a - b)`` as an affine form, in every state; the maxima of the bounds as an interval."""
    same_kind(a, b)
    like, dims = reference(a, b), max(a.dim(), b.dim())

    def interval(*view: Set | Tensor) -> Tensor:
        ends = (broadcast(x.bounds, dims) if varies(x) else as_tensor(x, like.bounds).unsqueeze(0) for x in view)
        bounds = torch.maximum(*ends)
        return bounds.expand(2, *bounds.shape[1:])

    over = States(a, b)
    if not any_affine(a, b):
        return over.result("maximum", [Remainder(interval(*view), None) for view in over.views])
    composed = combination("maximum", [(b, 1.0), (apply(RELU, sub(a, b)), 1.0)])
    if composed.clean is None:
        over = States(a, b, found=None)
    forms = [composed.form, composed.untouched.form]
    remainders = [Remainder(interval(*view), form.radius) for view, form in zip(over.views, forms, strict=False)]
    return over.result("maximum", remainders, linear_part(composed.form))


@rule(aten.minimum.default, example=lambda t: (t(3, 4), t(4)))
def minimum(a: Set | Tensor, b: Set | Tensor) -> Set:
    return neg(maximum(*(neg(x) if isinstance(x, Set) else -x for x in (a, b))))


def largest(x: Set) -> Set:
    """The maximum over the last axis: x_j, and between 0 and what others exceed it by, in every state."""
    x = x if sample_axis(x) != -1 else x.dense()
    over = States(x, found=None)
    if not x.affine:
        along = samples_of(x)
        if along is not None:
            over = States(x, found=along.at(along.position + 1))
        remainders = [Remainder(view.bounds.amax(-1), None) for (view,) in over.views]
        return over.result("max", remainders, nonnegative=x.nonnegative)
    best = x.form.center.argmax(-1, keepdim=True)
    chosen = _along_last(x, best)
    ahead, kept = sub(x, chosen), _squeezed(chosen)
    if kept.clean is not None and ahead.clean is not None:
        over = States(x, found=kept.along)
    excesses = [view.bounds[1].clamp_min(0.0).scatter(-1, best, 0.0).amax(-1) for view in (ahead, ahead.untouched)]
    middle, off = over.middle(excesses[: len(over.views)])

    def radius(form: Form, off: Tensor, excess: Tensor) -> Tensor:
        # of ten roundings of all that is added up, the center takes one, and this sum three
        return form.radius + off + rounding.gamma(len(over.views), x.dtype) * (kept.form.modulus + excess)

    radii = map(radius, (kept.form, kept.untouched.form), off, excesses)
    remainders = [Remainder(view.bounds.amax(-1), length) for (view,), length in zip(over.views, radii, strict=False)]
    linear = linear_part(kept.form)._replace(center=kept.form.center + middle)
    return over.result("max", remainders, linear, nonnegative=x.nonnegative)


def _along_last(x: Set, index: Tensor) -> Set:
    numbers = torch.arange(x.numel(), device=x.device).view(x.shape).gather(-1, index)
    return selected(x, lambda tensor, lead: gathered(tensor, lead, numbers))


def _squeezed(x: Set) -> Set:
    return selected(x, lambda tensor, lead: tensor.squeeze(-1))


def winners(x: Set) -> Set:
    """For each entry along the last axis: is it the maximum? Certainly, possibly, or no."""
    low, high = x.bounds.unbind(0)
    if x.shape[-1] == 1:
        return Set(torch.ones_like(x.bounds, dtype=torch.bool), None, x.symbols)
    top = high.topk(2, -1)
    others = torch.where(top.indices[..., :1] == _numbers_last(x), top.values[..., 1:2], top.values[..., :1])
    return Set(torch.stack((low > others, high >= low.amax(-1, keepdim=True))), None, x.symbols)


def _numbers_last(x: Set) -> Tensor:
    return torch.arange(x.shape[-1], device=x.device)


# --- amax, amin, argmax ---------------------------------------------------------------------------------------------


def _last(x: Tensor, dims: Dims) -> tuple[Tensor, list[int]]:
    """``x`` with the reduced axes merged into its last one."""
    axes = list(range(x.dim())) if dims in (None, ()) or dims == [] else [dims] if isinstance(dims, int) else list(dims)
    axes = [dim % max(x.dim(), 1) for dim in axes]
    kept = [dim for dim in range(x.dim()) if dim not in axes]
    return x.permute(*kept, *axes).reshape(*(x.shape[dim] for dim in kept), -1), axes


class LargestEntry(torch.autograd.Function):
    """The maximum over the last axis, whose gradient goes to whichever entries can be the maximum."""

    @staticmethod
    @internal
    def forward(ctx: Any, x: Bounded) -> Set:
        ctx.save_for_backward(x)
        return largest(as_set(x))

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> Set:
        (x,) = ctx.saved_tensors
        spread = selected(as_set(grad), lambda tensor, lead: tensor.unsqueeze(-1).expand(*tensor.shape, x.shape[-1]))
        return gated(spread, winners(as_set(x)))


@replaces(torch.amax, torch.Tensor.amax)
def amax(x: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    merged, axes = _last(x, dim)
    result = applied(LargestEntry, merged)
    if keepdim:
        result = result.reshape([1 if index in axes else size for index, size in enumerate(x.shape)])
    return result


@replaces(torch.amin, torch.Tensor.amin)
def amin(x: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    return -amax(-x, dim, keepdim)


@replaces(
    torch.max,
    torch.Tensor.max,
    torch.min,
    torch.Tensor.min,
    torch.nn.functional.max_pool1d_with_indices,
    torch.nn.functional.max_pool2d_with_indices,
)
def max_min(*args: object, **kwargs: object) -> NoReturn:
    """Refused, as are the indices of a pooling."""
    raise UnsupportedOperator("the index of a maximum is not one answer for a set: use amax, amin or maximum")


@rule(aten.argmax.default, example=None)
def argmax(x: Set, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the maximum, if it is the same for every tensor in the set."""

    def moved(tensor: Tensor, lead: int) -> Tensor:
        return tensor.flatten(lead) if dim is None else tensor.movedim(lead + dim % x.dim(), -1)

    certain = winners(selected(x, moved)).bounds[0]
    if not bool(certain.any(-1).all()):
        raise Undecided("argmax is not the same for every tensor in the set: compare .lower and .upper instead")
    index = certain.to(torch.uint8).argmax(-1)
    return index.unsqueeze(dim) if keepdim and dim is not None else index


# --- max pooling ----------------------------------------------------------------------------------------------------


def _windows(
    x: Set, kernel: Sizes, stride: Sizes | None, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> tuple[Tensor, Tensor]:
    """Positions of every window in the flattened image, (height_out, width_out, kernel), and which are real."""
    pairs = [_pair(option) for option in (kernel, stride or kernel, padding, dilation)]
    lines = []
    for size, k, s, p, d in zip(x.shape[-2:], *pairs, strict=True):
        span = size + 2 * p - d * (k - 1) - 1
        count = (-(-span // s) if ceil_mode else span // s) + 1
        if ceil_mode and (count - 1) * s >= size + p:
            count -= 1
        lines.append(torch.arange(count)[:, None] * s - p + torch.arange(k)[None, :] * d)
    rows, columns = lines[0][:, None, :, None], lines[1][None, :, None, :]
    height, width = x.shape[-2:]
    real = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    positions = rows.clamp(0, height - 1) * width + columns.clamp(0, width - 1)
    return positions.flatten(2).to(x.device), real.flatten(2).to(x.device)


def _pair(option: Sizes) -> tuple[int, int]:
    values = [option] if isinstance(option, int) else list(option)
    return (values[0], values[-1])


def _unrolled(x: Set, options: Windows) -> tuple[Set, Tensor, Tensor]:
    """Windows on a last axis. Padding repeats a real entry of the same window, which cannot change its maximum."""
    positions, real = _windows(x, *options)
    first = positions.gather(-1, real.to(torch.uint8).argmax(-1, keepdim=True))
    positions = torch.where(real, positions, first)
    return selected(x, lambda tensor, lead: tensor.flatten(-2)[..., positions]), positions, real


@rule(
    aten.max_pool2d_with_indices.default,
    example=None,
)
def max_pool2d(
    x: Set, kernel: Sizes, stride: Sequence[int] = (), padding: Sizes = 0, dilation: Sizes = 1, ceil: bool = False
) -> tuple[Set, Tensor]:
    windows, positions, _ = _unrolled(x, (kernel, list(stride) if stride else None, padding, dilation, ceil))
    result = largest(windows)
    index = windows.form.center.argmax(-1)
    indices = positions.expand(*windows.shape).gather(-1, index.unsqueeze(-1)).squeeze(-1)
    return result, indices


@rule(aten.max_pool2d_with_indices_backward.default, example=None)
def max_pool2d_backward(
    grad: Set | Tensor,
    x: Set,
    kernel: Sizes,
    stride: Sequence[int],
    padding: Sizes,
    dilation: Sizes,
    ceil: bool,
    indices: Tensor,
) -> Set:
    """The indices are ignored: they belong to one tensor of the set."""
    windows, positions, real = _unrolled(x, (kernel, list(stride) if stride else None, padding, dilation, ceil))
    won = _among_real(windows, real)
    spread = selected(as_set(grad), lambda tensor, lead: tensor.unsqueeze(-1).expand(*tensor.shape, windows.shape[-1]))
    passed = gated(spread, won)
    planes = torch.arange(x.shape[:-2].numel(), device=x.device).view(*x.shape[:-2], 1, 1, 1)
    targets = planes * (x.shape[-2] * x.shape[-1]) + positions
    return scattered("max_pool_backward", new_zeros(passed, x.shape), targets, passed)


def _among_real(windows: Set, real: Tensor) -> Set:
    """Winners, padding excluded: it never wins and never competes."""
    low, high = windows.bounds.unbind(0)
    outside = torch.finfo(low.dtype).min
    padded = Set(torch.stack((low, high)).where(real, outside), None, windows.symbols)
    return Set(winners(padded).bounds & real, None, windows.symbols)
