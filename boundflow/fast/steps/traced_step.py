"""A step on sets as a graph of operations on tensors, written down once by PyTorch's own tracer.

    sample numbers, learning rates, data, plain parameters, state  ->  the state one step later, the loss, two flags

What is written down are the operations of the rules and nothing else, each with the error that its rule has charged
for. The state are the bounds of all sets, and on zonotopes their rows as well (`step_state.py`). Numbers that change
from step to step are inputs: sample numbers, class indices and, on intervals, learning rates. Checks are put off into
the flags: whether every bound of the step is finite and in order and no number was flushed to zero, and whether the
plain parameters lie inside (the tripwire). A step that looks at other numbers to decide what to do is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from ...arithmetic import rounding
from ...arithmetic.thread_context import using
from ...errors import BoundFlowError
from ...files.training_state import Trainer, space_of
from ...sets.forms import Form, ball_form
from ...sets.set import Set
from ...tensor.bounded import Bounded
from ...threats import Lifted
from .step_state import Intervals, NotTraceable, StepState

Backward = Callable[[nn.Module, Lifted], Tensor]
Function = Callable[..., tuple[Tensor, ...]]
LEADING = 3  # inputs before the data: sample numbers, learning rates, the smallest normal number


@dataclass(frozen=True)
class TracedStep:
    """The graph of a step, and how many inputs of each kind it has."""

    graph: GraphModule
    data: int  # tensors inside inputs and targets
    plain: int  # plain parameters
    leaves: int  # tensors of the state, which the step changes


def traced_step(
    trainer: Trainer,
    plain: Sequence[Tensor],
    backward: Backward,
    data: Lifted,
    given: Sequence[Tensor],
    state: StepState | None = None,
    whole: bool = False,
) -> TracedStep:
    """Trace the next step of a trainer on these inputs; the sets of the trainer are left as they were.

    A batch that is ``whole`` has all samples in their order, whatever the sample numbers are.
    """
    from torch.fx.experimental.proxy_tensor import make_fx  # takes a while to import

    state = state or Intervals(trainer)
    leaves, parts, held = state.leaves(), len(inside(data)), len(state.tensors())
    before = [leaf.set for leaf in leaves]
    function = _as_function(trainer, plain, backward, data, state, parts, whole)
    try:
        with warnings.catch_warnings(), _options_kept(trainer), _expansions_kept(trainer):
            warnings.simplefilter("ignore")  # PyTorch's own, about its own
            graph = make_fx(function)(*given)
        after = [leaf.set for leaf in leaves]
    except (RuntimeError, BoundFlowError) as error:
        reason = "the step looks at numbers, or does something that cannot be traced"
        raise NotTraceable(reason) from error
    finally:
        for leaf, kept in zip(leaves, before, strict=True):
            leaf.set, leaf._recorded, leaf.grad = kept, leaf._version, None
    if [_kind(held) for held in after] != [_kind(held) for held in before]:
        raise NotTraceable("a step changes what is known of a parameter besides its bounds")
    _without_profiling(graph)
    return TracedStep(graph, parts, len(plain), held)


def _as_function(
    trainer: Trainer,
    plain: Sequence[Tensor],
    backward: Backward,
    data: Lifted,
    state: StepState,
    parts: int,
    whole: bool,
) -> Function:
    """The step by the rules, as a function of tensors."""
    space, count = space_of(trainer.model), len(plain)

    def step(index: Tensor, rates: Tensor, tiny: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        checks: list[Tensor] = [tiny * 0.5 > 0]  # numbers are not flushed to zero
        arithmetic, space.arithmetic = space.arithmetic, replace(space.arithmetic, deferred=checks)
        try:
            with using(space.arithmetic):
                state.put([tensor.clone() for tensor in tensors[parts + count :]])
                if isinstance(state, Intervals):  # of zonotopes, rates are numbers: `compiled_steps.py` sees to it
                    for group, rate in zip(trainer.optimizer.param_groups, rates.unbind(0), strict=True):
                        group["lr"] = rate
                loss = backward(trainer.model, _batch(data, tensors[:parts], slice(None) if whole else index))
                trainer.optimizer.step()
        finally:
            space.arithmetic = arithmetic
        assert isinstance(loss, Bounded)
        held = [_lies_inside(p, value) for p, value in zip(trainer.parameters(), tensors[parts:], strict=False)]
        flags = torch.stack((_all(checks), _all(held)))
        return (*state.tensors(), loss.set.bounds, flags)

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


@contextmanager
def _expansions_kept(trainer: Trainer) -> Iterator[None]:
    """What derived symbols stand for, as it was."""
    space = space_of(trainer.model)
    before = dict(space._expansions), space.expansion
    try:
        yield
    finally:
        space._expansions, space.expansion = before


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
            found += [form.generators] if form is not None and part.set.affine else []
        else:
            found.append(part)
    return found


def _batch(data: Lifted, tensors: Sequence[Tensor], index: Tensor | slice) -> Lifted:
    """The samples of a batch, of inputs and targets that hold these tensors.

    Own rows are those of all samples in their order, so that a batch of sets with rows is all of them.
    """
    rest, parts = list(tensors), []
    for part in (data.inputs, data.targets):
        first = rest.pop(0)
        if not isinstance(part, Bounded):
            parts.append(first[index])
            continue
        form = part.set._form
        if form is not None and part.set.affine:
            center, radius = rest.pop(0), rest.pop(0)
            form = Form(center, rest.pop(0), radius, form.rows, form.along)
        else:
            form = ball_form(rest.pop(0)[index], rest.pop(0)[index]) if form is not None else None
            first = first[:, index]
        made = Set(first, form, part.set.symbols, part.set.exact, part.set.nonnegative)
        made.adds_to_one = part.set.adds_to_one
        parts.append(Bounded(made))
    inputs, targets = parts
    return Lifted(inputs, targets, None)


def _kind(held: Set) -> tuple[bool, bool, bool]:
    return held.exact, held.nonnegative, held.affine


def smallest_normal(like: Tensor) -> Tensor:
    """What the first check of a step halves."""
    return torch.full((), rounding.TINY[like.dtype], dtype=like.dtype, device=like.device)
