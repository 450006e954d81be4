"""Modules, parameters and plain tensors onto sets, and back.

`lift` swaps the parameters of a module in place, so an optimizer built before it still holds them. Plain tensors that
meet a set are exact constants: what they hold is what is meant.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from ..arithmetic import rounding
from ..arithmetic.thread_context import thread
from ..errors import BoundFlowError, CrossedBounds, MixedTensors, UnsupportedOperator, UnsupportedProgram, WideBounds
from ..sets.forms import ball_form
from ..sets.set import Check, Set, checked
from ..symbols.space import Symbols
from . import layout
from .bounded import Bounded, exact

Given = Tensor | np.ndarray | np.generic | Sequence[object] | float  # what `torch.as_tensor` takes


def interval(lower: Given, upper: Given) -> Bounded:
    """All tensors between two."""
    low, high = _plain(lower), _plain(upper)
    lower, upper = _side_by_side(low, high.to(low.dtype) if high.dim() == 0 else high)
    if lower.dtype != upper.dtype or lower.device != upper.device:
        raise MixedTensors(f"lower is {lower.dtype} on {lower.device}, upper {upper.dtype} on {upper.device}")
    if bool((lower > upper).any()):
        raise CrossedBounds(f"{int((lower > upper).sum())} lower bounds exceed their upper bounds")
    bounds = torch.stack((lower, upper))
    checked("interval", bounds, None)
    return Bounded(Set(bounds), strides=layout.of(lower))


def ball(center: Given, radius: Tensor | float) -> Bounded:
    """All tensors within ``radius`` (a number or a tensor) of ``center``, elementwise."""
    center = _plain(center).clone()
    if isinstance(radius, Tensor):
        center, bounds = _around_each(center, radius.detach())
    else:
        bounds = _around_all(center, radius)
    checked("ball", bounds, None, Check.OVERFLOW)
    # the ball that holds the rounded interval, around the very center that was given
    form = ball_form(center, rounding.deviation(bounds, center))
    return Bounded(Set(bounds, form), strides=layout.of(center))


def _around_all(center: Tensor, radius: float) -> Tensor:
    """Bounds of a ball with one radius; with none it is the point itself, not its neighbouring floats."""
    _check_radius(0 <= radius < math.inf)
    rounding.require_normal(radius, center.dtype)
    return rounding.around_by(center, radius) if radius > 0 else torch.stack((center, center))


def _around_each(center: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """The center and the bounds of balls with a radius each, in the shape that both have together."""
    positive = radius[radius > 0]  # before it is converted, which could make it zero
    amount = radius.to(dtype=center.dtype, device=center.device)
    _check_radius(bool(((amount >= 0) & torch.isfinite(amount)).all()))
    if positive.numel():
        rounding.require_normal(float(positive.min()), center.dtype)
    center, amount = _side_by_side(center, rounding.up(amount))
    return center, torch.where(amount > 0, rounding.around(center, amount), center)


def _check_radius(valid: bool) -> None:
    if not valid:
        raise ValueError("a radius must be a finite number that is not negative")


def _side_by_side(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Two tensors in the shape they have together."""
    first, second = torch.broadcast_tensors(first, second)  # type: ignore[no-untyped-call]
    return first, second


def _plain(given: Given) -> Tensor:
    x = torch.as_tensor(given)
    if isinstance(x, Bounded):
        raise MixedTensors("bounds must be plain tensors; this one is already a set")
    if not x.is_floating_point():
        if x.dtype in (torch.float16, torch.bfloat16, torch.complex64, torch.complex128):
            raise MixedTensors(f"bounds exist for float32 and float64 tensors, not for {x.dtype}")
        x = x.to(torch.get_default_dtype())
    rounding.unit(x.dtype)
    return x.detach()


def lift(module: torch.nn.Module, symbols: Symbols | None = None) -> torch.nn.Module:
    """Make every parameter a set of one point, in place; training then runs on sets.

    With ``symbols`` training runs on zonotopes, otherwise on intervals. Returns the module.
    """
    rounding.require_gradual_underflow()
    _count_steps()
    symbols = symbols if symbols is not None else Symbols()
    for name, parameter in module.named_parameters():
        if isinstance(parameter, Bounded):
            raise BoundFlowError(f"parameter {name} is bounded already: lift a module once")
    require_no_hooks(module, "does not survive lifting: register it on the lifted parameter")
    for name, parameter in list(module.named_parameters()):
        made = exact(parameter.detach().clone(), symbols)
        lifted = torch.nn.Parameter(made, requires_grad=parameter.requires_grad)
        try:
            torch.utils.swap_tensors(parameter, lifted)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            raise UnsupportedOperator(
                f"parameter {name} cannot become a set: something else holds it, as recurrent layers do ({error})"
            ) from None
        if parameter.requires_grad:
            parameter.set.parameter = True  # type: ignore[attr-defined]
            parameter.register_hook(_as_set)  # type: ignore[no-untyped-call]
        parameter.grad = None
    symbols.lifts(module)
    return module


def require_no_hooks(module: torch.nn.Module, why: str) -> None:
    """Refuse hooks of parameters that would be lost without a word: another program would be trained."""
    for name, parameter in module.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise UnsupportedProgram(f"the parameter {name} has a hook, which {why}")


def _as_set(grad: Tensor) -> Tensor:
    """A plain gradient that reaches a bounded parameter is a set of one point."""
    return grad if isinstance(grad, Bounded) else exact(grad.clone())


def centers(module: torch.nn.Module) -> torch.nn.Module:
    """Replace every bounded parameter by its center, in place: an ordinary module again."""
    for parameter in module.parameters():
        if isinstance(parameter, Bounded):
            plain = torch.nn.Parameter(parameter.center.clone(), requires_grad=parameter.requires_grad)
            torch.utils.swap_tensors(parameter, plain)  # type: ignore[no-untyped-call]
            parameter._backward_hooks = None  # of the set, which is gone: the dict alone outlives the swap
    return module


def _count_step(optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
    """Every optimizer step on bounded parameters advances the clock that errors report; others are none of ours."""
    parameters = [p for group in optimizer.param_groups for p in group["params"] if isinstance(p, Bounded)]
    spaces = {id(p.symbols): p for p in parameters}
    if spaces and thread.arithmetic.deferred is None:
        rounding.require_gradual_underflow()
    for parameter in spaces.values():
        if parameter.symbols is not None and parameter.symbols.arithmetic.deferred is None:
            parameter.symbols.count_step(optimizer)
            _warn_of_width(parameters, parameter.symbols)


def _warn_of_width(parameters: list[Bounded], symbols: Symbols) -> None:
    """Say once that sets have blown up, or will, long before they are infinite."""
    if symbols.growth.asks(symbols.steps):
        said = symbols.growth.after(symbols.steps, [each.set.bounds for each in parameters if each.symbols is symbols])
        if said is not None:
            warnings.warn(said, WideBounds, stacklevel=4)  # where the optimizer makes its step


_counting = False


def _count_steps() -> None:
    """From the first lift on: importing this library changes nothing for anyone."""
    global _counting
    if not _counting:
        _counting = True
        register_optimizer_step_post_hook(_count_step)
