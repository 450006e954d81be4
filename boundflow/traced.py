"""A step on intervals as a graph of operations on tensors, written down once by PyTorch's own tracer.

    sample numbers, learning rates, data, plain parameters, bounds  ->  the bounds one step later, the loss, two flags

What is written down are the operations of the rules and nothing else, each with the error that its rule has charged
for. Numbers that change from step to step are inputs: learning rates, sample numbers, class indices. Checks are put off
into the flags: whether every bound of the step is finite and in order and no number was flushed to zero, and whether
the plain parameters lie inside (the tripwire). A step that looks at other numbers to decide what to do is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from . import rounding
from .bounded import Bounded
from .context import using
from .errors import BoundFlowError
from .forms import ball_form
from .sets import Set
from .threats import Lifted
from .training_state import Trainer, space_of

Backward = Callable[[nn.Module, Lifted], Tensor]
Function = Callable[..., tuple[Tensor, ...]]
LEADING = 3  # inputs before the data: sample numbers, learning rates, the smallest normal number


class NotTraceable(BoundFlowError):
    """A step that looks at numbers to decide what to do, or is not the same function every time."""


@dataclass(frozen=True)
class TracedStep:
    """The graph of a step, and how many inputs of each kind it has."""

    graph: GraphModule
    data: int  # tensors inside inputs and targets
    plain: int  # plain parameters
    leaves: int  # sets that the step changes


def traced_step(
    trainer: Trainer, plain: Sequence[Tensor], backward: Backward, data: Lifted, given: Sequence[Tensor]
) -> TracedStep:
    """Trace the next step of a trainer on these inputs; the sets of the trainer are left as they were."""
    from torch.fx.experimental.proxy_tensor import make_fx  # takes a while to import

    leaves = leaves_of(trainer)
    before = [leaf.set for leaf in leaves]
    if any(held.affine or held.exact or held.clean is not None for held in before):
        raise NotTraceable("a parameter is a point, or more than an interval")
    parts = len(inside(data))
    function = _as_function(trainer, plain, backward, data, leaves, parts)
    try:
        with warnings.catch_warnings(), _options_kept(trainer):
            warnings.simplefilter("ignore")  # PyTorch's own, about its own
            graph = make_fx(function)(*given)
        after = [leaf.set for leaf in leaves]
    except (RuntimeError, BoundFlowError) as error:
        reason = "the step looks at numbers, or does something that cannot be traced"
        raise NotTraceable(reason) from error
    finally:
        for leaf, held in zip(leaves, before, strict=True):
            leaf.set, leaf._recorded, leaf.grad = held, leaf._version, None
    if [_kind(held) for held in after] != [_kind(held) for held in before]:
        raise NotTraceable("a step changes what is known of a parameter besides its bounds")
    _without_profiling(graph)
    return TracedStep(graph, parts, len(plain), len(leaves))


def _as_function(
    trainer: Trainer,
    plain: Sequence[Tensor],
    backward: Backward,
    data: Lifted,
    leaves: Sequence[Bounded],
    parts: int,
) -> Function:
    """The step by the rules, as a function of tensors."""
    space, count = space_of(trainer.model), len(plain)

    def step(index: Tensor, rates: Tensor, tiny: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        checks: list[Tensor] = [tiny * 0.5 > 0]  # numbers are not flushed to zero
        arithmetic, space.arithmetic = space.arithmetic, replace(space.arithmetic, deferred=checks)
        try:
            with using(space.arithmetic):
                for leaf, bounds in zip(leaves, tensors[parts + count :], strict=True):
                    hold(leaf, bounds.clone())
                for group, rate in zip(trainer.optimizer.param_groups, rates.unbind(0), strict=True):
                    group["lr"] = rate
                loss = backward(trainer.model, _batch(data, tensors[:parts], index))
                trainer.optimizer.step()
        finally:
            space.arithmetic = arithmetic
        assert isinstance(loss, Bounded)
        held = [_lies_inside(p, value) for p, value in zip(trainer.parameters(), tensors[parts:], strict=False)]
        flags = torch.stack((_all(checks), _all(held)))
        return (*(leaf.set.bounds for leaf in leaves), loss.set.bounds, flags)

    return step


def _all(flags: Sequence[Tensor]) -> Tensor:
    """Whether all flags are set, one by one: a stack of them would cost the compiler a buffer each."""
    total = flags[0]
    for flag in flags[1:]:
        total = total & flag
    return total


def _lies_inside(parameter: Tensor, value: Tensor) -> Tensor:
    assert isinstance(parameter, Bounded)
    lower, upper = parameter.set.bounds.unbind(0)
    return ((lower <= value) & (value <= upper)).all()


@contextmanager
def _options_kept(trainer: Trainer) -> Iterator[None]:
    """The learning rates of the optimizer as they were, after the tracer has put its own there."""
    groups = trainer.optimizer.param_groups
    rates = [group["lr"] for group in groups]
    try:
        yield
    finally:
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate


def _without_profiling(graph: GraphModule) -> None:
    """Take out the marks that optimizers leave for a profiler."""
    for node in reversed(graph.graph.nodes):
        if "profiler" in str(node.target):
            graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()
    graph.recompile()


# --- a batch as tensors -----------------------------------------------------------------------------------------------


def inside(data: Lifted) -> list[Tensor]:
    """The tensors inside inputs and targets."""
    found: list[Tensor] = []
    for part in (data.inputs, data.targets):
        if isinstance(part, Bounded):
            form = part.set._form
            found += [part.set.bounds.contiguous(), *((form.center, form.radius) if form is not None else ())]
        else:
            found.append(part)
    return found


def _batch(data: Lifted, tensors: Sequence[Tensor], index: Tensor) -> Lifted:
    """The samples of a batch, of inputs and targets that hold these tensors."""
    rest, parts = list(tensors), []
    for part in (data.inputs, data.targets):
        first = rest.pop(0)
        if not isinstance(part, Bounded):
            parts.append(first[index])
            continue
        form = ball_form(rest.pop(0)[index], rest.pop(0)[index]) if part.set._form is not None else None
        made = Set(first[:, index], form, part.set.symbols, part.set.exact, part.set.nonnegative)
        made.adds_to_one = part.set.adds_to_one
        parts.append(Bounded(made))
    inputs, targets = parts
    return Lifted(inputs, targets, None)


# --- the state of training as tensors ---------------------------------------------------------------------------------


def leaves_of(trainer: Trainer) -> list[Bounded]:
    """All sets that a step changes: trained parameters, and what the optimizer keeps of each."""
    found: list[Any] = []
    for parameter in trainer.parameters():
        kept = trainer.optimizer.state.get(parameter, {})
        found += [parameter, *(value for value in kept.values() if isinstance(value, Bounded))]
    return found


def _kind(held: Set) -> tuple[bool, bool, bool]:
    return held.exact, held.nonnegative, held.affine


def hold(leaf: Bounded, bounds: Tensor) -> None:
    """Other bounds for a tensor, of which the rest stays as it is."""
    before = leaf.set
    held = Set(bounds, None, before.symbols, False, before.nonnegative)
    held.parameter = before.parameter
    leaf.set, leaf._recorded = held, leaf._version
    leaf.grad = None


def smallest_normal(like: Tensor) -> Tensor:
    """What the first check of a step halves."""
    return torch.full((), rounding.TINY[like.dtype], dtype=like.dtype, device=like.device)
