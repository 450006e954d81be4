"""Autograd functions made of rules: both passes below `__torch_function__`, in the arithmetic of one run.

PyTorch runs backward passes in threads of its own, so the arithmetic of the forward pass is kept in its context.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import torch
from torch import Tensor

from ..arithmetic.thread_context import using
from ..errors import UnsupportedOperator
from ..sets.set import Set
from .bounded import Bounded, unwrapped_all, wrapped

Arguments = ParamSpec("Arguments")
Gradients = Set | tuple[Set | None, ...]  # one for each argument of a forward pass


def internal(forward: Callable[Concatenate[Any, Arguments], Set]) -> Callable[Concatenate[Any, Arguments], Bounded]:
    """The forward pass of an autograd function made of rules: below `__torch_function__`, as rules are."""

    @wraps(forward)
    def run(ctx: Any, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Bounded:
        ctx.arithmetic = unwrapped_all([x for x in args if type(x) is Bounded])[1]
        with torch._C.DisableTorchFunctionSubclass(), using(ctx.arithmetic):
            made: Bounded = wrapped(forward(ctx, *args, **kwargs))
            return made

    return run


def first_order(backward: Callable[[Any, Tensor], Gradients]) -> Callable[[Any, Tensor], Any]:
    """Its backward pass, in the arithmetic of the forward pass, whichever thread PyTorch runs it in.

    Refuses ``create_graph=True``: a backward pass made of rules is not itself recorded, so terms would be lost.
    """

    @wraps(backward)
    def run(ctx: Any, grad: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise UnsupportedOperator("second derivatives of this operator have no rule: drop create_graph=True")
        with torch._C.DisableTorchFunctionSubclass(), using(ctx.arithmetic):
            return wrapped(backward(ctx, grad))

    return run


def applied(function: type[torch.autograd.Function], *operands: Tensor | float | None) -> Tensor:
    """An autograd function made of rules, on tensors."""
    made: Tensor = function.apply(*operands)  # type: ignore[no-untyped-call]
    return made
