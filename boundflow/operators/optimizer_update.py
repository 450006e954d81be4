"""Gradient descent while a step is traced (`traced_step.py`): its learning rate is a tensor, and not a number.

    x - rate (g + decay x)  =  (1 - rate decay) x - rate g

By the rules, where the rate is a number, `linear.add` does the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..arithmetic.thread_context import thread
from ..sets.set import Set, as_set, concretised
from ..tensor.bounded import Bounded
from ..tensor.rule_table import replaces


@replaces(Tensor.add_)
def add_in_place(x: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """``x += alpha other``. While a step is traced, the number can be a tensor: minus a learning rate."""
    checks = thread.arithmetic.deferred
    if not isinstance(alpha, Tensor) or checks is None:
        with torch._C.DisableTorchFunctionSubclass():
            return Tensor.add_(x, other, alpha=alpha)
    return x.copy_(Bounded(_descended(as_set(x), as_set(other), -alpha, checks)))


def _descended(x: Set, gradient: Set, rate: Tensor, checks: list[Tensor]) -> Set:
    """``x - rate gradient`` of intervals, for a rate above 0 that the dtype holds: what `add` does for a number.

    With weight decay x has the coefficient ``1 - rate decay``, which must not be negative. It is rounded twice more
    than a number would be, and so is charged for five operations instead of three.
    """
    decay, rest = 0.0, gradient
    if gradient.remembered is not None and gradient.remembered.parameter is x:
        decay, rest = gradient.remembered.coefficient, gradient.remembered.rest
        rounding.require_normal(decay, x.dtype)
    other, terms = rest.bounds.flip(0), 5 if decay else 3
    if not decay:
        kept, moduli = x.bounds, torch.addcmul(x.bounds.abs(), other.abs(), rate)
    else:
        share = 1 - rate * decay
        checks.append(share >= 0)
        kept = x.bounds * share
        largest, reach = (part.abs().amax(0, True) for part in (x.bounds, other))
        moduli = largest * (1 + rate * abs(decay)) + reach * rate
    bounds = torch.addcmul(kept, other, rate, value=-1)
    charge = rounding.gamma(terms, x.dtype) * moduli + rounding.tiny(terms, x.dtype)  # and products may underflow
    return concretised("add", rounding.widened(bounds, charge), None, x.symbols or gradient.symbols)
