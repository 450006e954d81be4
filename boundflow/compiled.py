"""A step on intervals as one function of tensors: traced once, compiled, and called from then on.

    bounds of parameters and optimizer state, a batch  ->  the same bounds one step later, the loss, and one flag

Between two steps on intervals nothing differs but numbers. So the step is traced over the tensors inside the sets: what
is compiled are the operations of the rules and nothing else, each with the error that its rule has charged for. The
compiler fuses them; it may neither contract nor reorder floating-point operations (`FLAGS`), and operators of which it
is not known that they round as their rules charge are left to the rules (`KNOWN`).

The flag says whether every bound of the step is finite and in order. Where one is not, the step is made again by the
rules, which raise what there is to raise. The first compiled step is made both ways, and must come out the same but for
the order of sums.

A step is the same function every time only if the program is: `why_not` says for which runs that is known.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from . import rounding
from .bounded import Bounded
from .context import using
from .errors import BoundFlowError
from .forms import ball_form
from .prepared import Prepared
from .sets import Set
from .threats import Lifted
from .training_state import Trainer, space_of
from .tuning import COMPILED_STEPS

FIRST = 2  # steps that are always made by the rules: initial weights are points, and momentum begins with the second
# nothing reordered or contracted, and tanh as it is: ``2 sigmoid(2 x) - 1`` would cancel
FLAGS = {
    "cpp.enable_unsafe_math_opt_flag": False,
    "cpp.enable_floating_point_contract_flag": "off",
    "cpp.use_decompose_tanh": False,
}
# operators that the compiler computes with the roundings that the rules charge for: those that round not at all or
# once, products and sums, and functions that were tried; not expm1, for instance, which it takes for exp(x) - 1
KNOWN = frozenset(
    f"aten.{name}"
    for name in (
        "add sub rsub mul div neg addcmul maximum minimum clamp clamp_min clamp_max nextafter sum mean "
        "mm addmm bmm baddbmm dot mv abs sign relu threshold_backward sigmoid tanh exp log log1p softplus logit silu "
        "amax amin aminmax max min where all any eq ne lt le gt ge logical_and logical_or logical_not "
        "bitwise_and bitwise_or bitwise_not isfinite isnan "
        "t transpose permute view reshape _unsafe_view expand unsqueeze squeeze flatten unflatten alias detach clone "
        "copy unbind select slice stack cat flip index index_select gather split _to_copy to lift_fresh_copy "
        "zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full new_empty empty empty_like fill "
        "zero scalar_tensor"
    ).split()
)
CLOSE = 1e-3  # of the width of an interval: what the order of sums may change

Backward = Callable[[nn.Module, Lifted], Tensor]
Function = Callable[..., tuple[Tensor, ...]]


class NotTraceable(BoundFlowError):
    """A step that looks at numbers to decide what to do, or is not the same function every time."""


def why_not(prepared: Prepared, steps: int, callbacks: int) -> str | None:
    """Why the steps of a run are not compiled; None: they are."""
    recipe, threat = prepared.recipe, prepared.threat
    if recipe.compile is False:
        return "compile=False"
    reasons = {
        "only steps on intervals are compiled": recipe.domain != "interval",
        "only steps on a CPU are compiled": prepared.x.device.type != "cpu",
        "only steps of torch.optim.SGD are the same every time": recipe.optimizer is not torch.optim.SGD,
        "a schedule makes every step another one": recipe.schedule is not None,
        "a learning rate that is a tensor can change": isinstance(recipe.optimizer_options.get("lr"), Tensor),
        "gradients of single samples are clipped": recipe.clip_gradients is not None,
        "a budget, weights of samples, or samples that can be removed or replaced": threat.budget is not None
        or threat.touches("weights")
        or prepared.weights is not None
        or threat.touches("gradients"),
        "the forward pass draws numbers or changes state": bool(prepared.effects.draws or prepared.effects.changes),
        "callbacks could change what a step does": callbacks > 0,
    }
    found = next((reason for reason, holds in reasons.items() if holds), None)
    if found is None and recipe.compile == "auto" and steps < COMPILED_STEPS:
        return f"fewer than {COMPILED_STEPS} steps do not make up for compiling"
    return found


class CompiledSteps:
    """The steps of a run on intervals, one function for each length of a batch."""

    def __init__(self, prepared: Prepared, trainer: Trainer, backward: Backward):
        self.trainer, self.backward, self.space = trainer, backward, space_of(trainer.model)
        samples = torch.arange(len(prepared.x), device=prepared.x.device)
        self._data = prepared.threat.lift(None, prepared.x, prepared.targets, samples)
        self._tensors = _inside(self._data)
        self._functions: dict[int, Function] = {}

    def step(self, index: Tensor, by_rules: Callable[[], Tensor]) -> Tensor:
        """The next step on a batch; gives the loss before it. ``by_rules`` makes it without the compiler."""
        leaves = _leaves(self.trainer)
        before = [leaf.set for leaf in leaves]
        function = self._functions.get(len(index))
        first = function is None
        if function is None:
            function = self._functions[len(index)] = self._compiled(index, leaves)
        with torch.no_grad():
            *bounds, loss, finite = function(index, *self._tensors, *(held.bounds for held in before))
        if first or not bool(finite):
            by_rules()
            _require_alike(bounds, [leaf.set.bounds for leaf in leaves])
        else:
            rounding.require_gradual_underflow()
            self.space.count_step(self.trainer.optimizer)
        for leaf, new in zip(leaves, bounds, strict=True):  # also after the first: a resumed run has another first step
            _hold(leaf, new)
        return Bounded(Set(loss, None, self.space))

    def _compiled(self, index: Tensor, leaves: Sequence[Bounded]) -> Function:
        before = [leaf.set for leaf in leaves]
        if any(held.affine or held.exact or held.clean is not None for held in before):
            raise NotTraceable("a parameter is a point, or more than an interval")
        given = [index, *self._tensors, *(held.bounds for held in before)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's own, about its own
            graph = self._graph(given, leaves)
            after = [leaf.set for leaf in leaves]
            for leaf, held in zip(leaves, before, strict=True):
                leaf.set, leaf._recorded, leaf.grad = held, leaf._version, None
            if graph is None:
                raise NotTraceable("the step looks at numbers, or does something that cannot be traced")
            if [_kind(held) for held in after] != [_kind(held) for held in before]:
                raise NotTraceable("a step changes what is known of a parameter besides its bounds")
            return _by_inductor(graph, given)

    def _graph(self, given: Sequence[Tensor], leaves: Sequence[Bounded]) -> GraphModule | None:
        """The step as a graph of operations on tensors; None where it cannot be traced."""
        from torch.fx.experimental.proxy_tensor import make_fx  # takes a while to import

        try:
            return make_fx(self._traced(leaves))(*given)
        except (RuntimeError, BoundFlowError):
            return None

    def _traced(self, leaves: Sequence[Bounded]) -> Function:
        """The step by the rules, as a function of tensors; checks are put off into the flag."""
        trainer, space, parts = self.trainer, self.space, len(self._tensors)

        def step(index: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
            checks: list[Tensor] = []
            arithmetic, space.arithmetic = space.arithmetic, replace(space.arithmetic, deferred=checks)
            try:
                with using(space.arithmetic):
                    for leaf, bounds in zip(leaves, tensors[parts:], strict=True):
                        _hold(leaf, bounds.clone())
                    loss = self.backward(trainer.model, _batch(self._data, tensors[:parts], index))
                    trainer.optimizer.step()
            finally:
                space.arithmetic = arithmetic
            assert isinstance(loss, Bounded)
            return (*(leaf.set.bounds for leaf in leaves), loss.set.bounds, torch.stack(checks).all())

        return step


# --- a batch as tensors -----------------------------------------------------------------------------------------------


def _inside(data: Lifted) -> list[Tensor]:
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


def _leaves(trainer: Trainer) -> list[Bounded]:
    """All sets that a step changes: trained parameters, and what the optimizer keeps of each."""
    found: list[Any] = []
    for parameter in trainer.parameters():
        kept = trainer.optimizer.state.get(parameter, {})
        found += [parameter, *(value for value in kept.values() if isinstance(value, Bounded))]
    return found


def _kind(held: Set) -> tuple[bool, bool, bool]:
    return held.exact, held.nonnegative, held.affine


def _hold(leaf: Bounded, bounds: Tensor) -> None:
    """Other bounds for a tensor, of which the rest stays as it is."""
    held = Set(bounds, None, leaf.set.symbols, False, leaf.set.nonnegative)
    held.parameter = leaf.set.parameter
    leaf.set, leaf._recorded = held, leaf._version
    leaf.grad = None


# --- what the compiler is given, and must keep ------------------------------------------------------------------------


def _without_profiling(graph: GraphModule) -> None:
    """Take out the marks that optimizers leave for a profiler."""
    for node in reversed(graph.graph.nodes):
        if "profiler" in str(node.target):
            graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _by_inductor(graph: GraphModule, given: Sequence[Tensor]) -> Function:
    import torch._inductor  # takes a while to import

    _without_profiling(graph)
    _require_known_roundings(graph)
    if any(not hasattr(torch._inductor.config.cpp, name.removeprefix("cpp.")) for name in FLAGS):
        raise NotTraceable(f"the compiler of PyTorch {torch.__version__} cannot be told to round as the rules charge")
    with torch.no_grad(), torch._inductor.config.patch(FLAGS):
        made: Function = torch._inductor.compile(graph, [*given])
    return made


def _require_known_roundings(graph: GraphModule) -> None:
    """Refuse operators that were not tried, and division by a constant tensor, which may become two roundings."""
    varying: set[Any] = set()
    for node in graph.graph.nodes:
        name = str(node.target).rpartition(".")[0].removesuffix("_")
        if node.op == "call_function" and name.startswith("aten.") and name not in KNOWN:
            raise NotTraceable(f"it is not known how a compiler rounds {name}")
        if node.op == "placeholder" or any(argument in varying for argument in node.all_input_nodes):
            varying.add(node)
        divides = node.op == "call_function" and "aten.div" in str(node.target)
        if divides and isinstance(node.args[1], torch.fx.Node) and node.args[1] not in varying:
            raise NotTraceable("the step divides by a tensor that never changes")


def _require_alike(compiled: Sequence[Tensor], by_rules: Sequence[Tensor]) -> None:
    """Refuse a compiled step that gives other bounds than the rules, but for the order in which sums are taken."""
    for one, other in zip(compiled, by_rules, strict=True):
        allowed = CLOSE * (other[1] - other[0]) + rounding.UNIT[other.dtype] * 1024 * (1 + other.abs().amax(0))
        if not bool(((one - other).abs() <= allowed).all()):
            raise BoundFlowError(
                "a compiled step gave other bounds than the rules it was made from. Use compile=False, and please "
                "report this with the versions of PyTorch and of the compiler."
            )
