"""certify_many(): many trainings on intervals at once, over a leading axis.

    one traced step, mapped over runs:  bounds (R, 2, ...), sample numbers (R, B)  ->  bounds (R, 2, ...)

Runs of one recipe differ in numbers alone: initial weights, frozen parameters, buffers, the order of batches, radii,
stand-ins of missing values. So the step of the first run (`traced_step.py`) is mapped over all of them and compiled
once, and plain training is mapped likewise. Whatever is a constant of the traced step must be the same in every run: by
what a training rests on (`identity.py`), and not by its text. What is computed for a run is what its own compiled step
computes, in another order of sums, which the rules charge for. Every run has its tripwire; a run whose bounds become
void drops out, and its plain training goes on.

Where steps cannot be compiled, or runs are not alike, they are certified one by one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ..answers.certificate import Certificate
from ..arithmetic import rounding
from ..arithmetic.tuned_numbers import COMPILED_STEPS
from ..errors import OutsideBounds, VoidBounds
from ..fast.memory.out_of_memory import needs_less
from ..fast.steps.compiled_steps import FIRST, why_not
from ..fast.steps.graph_compiler import compiled
from ..fast.steps.step_state import Intervals, NotTraceable, hold, leaves_of
from ..fast.steps.traced_step import Function, inside, smallest_normal, traced_step
from ..files.training_state import Trainer
from ..operators.losses import LOSSES
from ..same_program.identity import differences, of_tensors, of_value
from ..same_program.tripwire import REASONS
from ..sets.set import Set
from ..tensor.bounded import Bounded
from ..tensor.lift import Given
from ..threats import Lifted, Threat
from .certified_training import _Run, certify
from .checked_inputs import Prepared
from .recipe import Recipe


@needs_less("fewer runs at once, or a smaller batch_size=, needs less")
def certify_many(
    models: Sequence[nn.Module],
    data: tuple[Given, Given],
    recipe: Recipe | None = None,
    *,
    threats: Sequence[Threat],
    seeds: Sequence[int] | None = None,
    **fields: Any,
) -> list[Certificate]:
    """Train every model under its own threat, all at once: as `certify` for each, and much faster for small ones.

    ``seeds`` are those of the order of batches; by default that of the recipe. Where ``compile=False``, all runs are
    too short to gain by it (``"auto"``), or steps cannot be compiled, runs are made one by one. Nothing is shown and no
    checkpoint is written on the way.
    """
    recipe = (recipe or Recipe(domain="interval")).but(**fields)
    seeds = [recipe.seed] * len(models) if seeds is None else list(seeds)
    if not len(models) == len(threats) == len(seeds) or not models:
        raise ValueError(f"{len(models)} models, {len(threats)} threats and {len(seeds)} seeds: give as many of each")
    recipes = [recipe.but(seed=seed) for seed in seeds]
    started = time.perf_counter()
    held = torch.as_tensor(data[0]).detach().clone(), torch.as_tensor(data[1]).clone()  # once for all runs
    runs = [
        _Run(Prepared(model, held, threat, one.but(compile=False), ours=True))
        for model, threat, one in zip(models, threats, recipes, strict=True)
    ]
    try:
        void = _Together(runs, recipe).trained()
    except NotTraceable:
        each = zip(models, threats, recipes, strict=True)
        return [certify(model, data, one, threat=threat, progress=False) for model, threat, one in each]
    seconds = (time.perf_counter() - started) / len(runs)
    return [run.certificate(at, seconds) for run, at in zip(runs, void, strict=True)]


class _Together:
    """The runs of one recipe, step by step."""

    def __init__(self, runs: list[_Run], recipe: Recipe):
        reason = _why_one_by_one(runs, recipe)
        if reason is not None:
            raise NotTraceable(reason)
        self.runs = runs
        self.void: list[int | None] = [None] * len(runs)
        self.trainers = [run.sets for run in runs]
        self.data = [_lifted(run) for run in runs]
        self.own = _own_tensors(runs)
        self.stand_ins = len({of_tensors(run.prepared.observed) for run in runs}) > 1
        self._functions: dict[int, tuple[Function, Function]] = {}

    def trained(self) -> list[int | None]:
        """Make all steps; gives the steps at which bounds became void."""
        batches = list(zip(*(run.batches for run in self.runs), strict=True))
        for number, index in enumerate(batches[:FIRST]):
            for place, run in enumerate(self.runs):
                with run.program.step(index[place]):
                    run._on_observed(index[place], number)
                    run.rehearse(index[place], number)
                    self._by_rules(place, index[place], number, watched=True)
        if len(batches) > FIRST:
            self._collect()
            for number, index in enumerate(batches[FIRST:], start=FIRST):
                self._step(torch.stack(index), number)
            self._show()
        for run in self.runs:
            run.program.require_as_found()
        return self.void

    def _by_rules(self, place: int, index: Tensor, number: int, watched: bool) -> None:
        """A step of one run by the rules, which say whether its bounds have become void."""
        if self.void[place] is None:
            try:
                self.runs[place]._by_rules(index, number, watched)
            except VoidBounds:
                self.void[place] = number + 1

    # --- all runs as tensors ------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Stack what the steps of all runs read and write; a run that is void by now takes the place of another."""
        alive = [place for place, at in enumerate(self.void) if at is None]
        if not alive:
            raise NotTraceable("all runs are void at once")
        place_of = [place if self.void[place] is None else alive[0] for place in range(len(self.runs))]
        self.first = alive[0]
        self.bounds = _stacked([[leaf.set.bounds for leaf in leaves_of(self.trainers[place])] for place in place_of])
        self.tensors = _stacked([inside(data) for data in self.data])
        self.plain = _stacked([_plain_state(run) for run in self.runs])
        like = self.runs[0].prepared.x
        self.kept = _stacked([[_plain_tensors(run)[name] for name in self.own] for run in self.runs])
        self.observed, self.targets = self.runs[0].prepared.observed, self.runs[0].prepared.y
        if self.stand_ins:
            self.observed = torch.stack([run.prepared.observed for run in self.runs])
        groups = self.runs[0].sets.optimizer.param_groups
        self.rates = torch.tensor([float(group["lr"]) for group in groups], dtype=like.dtype, device=like.device)
        self.tiny = smallest_normal(like)

    def _step(self, index: Tensor, number: int) -> None:
        rounding.require_full_precision(self.tiny)  # as the rules do at every product
        known = self._functions.get(index.size(1))
        with self.runs[self.first].program.step(index[self.first]) if known is None else nullcontext():
            if known is None:
                self.runs[self.first].rehearse(index[self.first], number)
            plain_step, step = known or self._traced(index)
        with torch.no_grad():
            self.plain = list(plain_step(index, self.observed, self.targets, *self.kept, *self.plain))
            parameters = self.plain[: len(self.runs[0].observed.parameters())]
            before = self.bounds
            *bounds, _, flags = step(index, self.rates, self.tiny, *self.tensors, *parameters, *before, *self.kept)
        self.bounds = list(bounds)
        read: list[list[bool]] = flags.tolist()
        for place, (fine, lies_inside) in enumerate(read):
            if self.void[place] is None and not (fine and lies_inside):
                self._look_closer(place, index[place], number, before, fine)
        self._functions[index.size(1)] = plain_step, step

    def _look_closer(self, place: int, index: Tensor, number: int, before: list[Tensor], fine: bool) -> None:
        """A step that was not fine is made again by the rules: void, or as they say."""
        if fine:
            raise OutsideBounds(f"the plain model of run {place} left its bounds at step {number + 1}. {REASONS}")
        leaves = leaves_of(self.trainers[place])
        for leaf, bounds in zip(leaves, before, strict=True):
            hold(leaf, bounds[place])
        self._by_rules(place, index, number, watched=False)
        if self.void[place] is None:
            for bounds, leaf in zip(self.bounds, leaves, strict=True):
                bounds[place] = leaf.set.bounds

    def _show(self) -> None:
        """Every run as it is after the last step."""
        for place, run in enumerate(self.runs):
            for value, state in zip(_plain_state(run), self.plain, strict=True):
                value.copy_(state[place])
            if self.void[place] is None:
                for leaf, bounds in zip(leaves_of(self.trainers[place]), self.bounds, strict=True):
                    hold(leaf, bounds[place].clone())
                run.record["compiled"] = True
                run.tripwire.step(len(run.batches))

    # --- the step of one run, mapped over all -------------------------------------------------------------------------

    def _traced(self, index: Tensor) -> tuple[Function, Function]:
        """Plain training as a graph of PyTorch's own operations, and the step on sets, compiled."""
        from torch.fx.experimental.proxy_tensor import make_fx

        run, place = self.runs[self.first], self.first
        one = [index[place], self.rates, self.tiny, *(part[place] for part in self.tensors)]
        plain = [value.detach() for value in run.observed.parameters()]
        before = [bounds[place] for bounds in self.bounds]

        def backward(model: nn.Module, batch: Lifted) -> Tensor:
            return run._backward(model, batch, 0, None)

        state, kept = _State(run.sets, self.own), [tensors[place] for tensors in self.kept]
        with state.buffers_kept():
            step = traced_step(run.sets, plain, backward, self.data[place], [*one, *plain, *before, *kept], state)
        along = (0, None, None, *(0,) * (step.data + step.plain + step.leaves + len(kept)))
        mapped = torch.func.vmap(step.graph, in_dims=along)
        given = [index, self.rates, self.tiny, *self.tensors, *self.plain[: step.plain], *self.bounds, *self.kept]
        stacked = (0 if self.stand_ins else None, None, *(0,) * (len(self.kept) + len(self.plain)))
        plain_mapped = torch.func.vmap(_plain_step(run, self.own), in_dims=(0, *stacked))
        try:
            graph = make_fx(mapped)(*given)
            plain_graph = make_fx(plain_mapped)(index, self.observed, self.targets, *self.kept, *self.plain)
        except RuntimeError as error:
            raise NotTraceable("the step cannot be mapped over runs") from error
        return plain_graph, compiled(graph, given)


def _why_one_by_one(runs: Sequence[_Run], recipe: Recipe) -> str | None:
    """Why runs are not made together; None: they are."""
    for run in runs:
        reason = why_not(run.prepared, 0, (), recipe.but(compile=True) if recipe.compile else recipe)
        if reason is not None:
            return reason
    if recipe.compile == "auto" and len(runs) * len(runs[0].batches) < COMPILED_STEPS:
        return f"fewer than {COMPILED_STEPS} steps of all runs do not make up for compiling"
    if recipe.domain != "interval":
        return "only runs on intervals are made together"
    if recipe.schedule is not None:
        return "a schedule"
    if runs[0].prepared.x.device.type != "cpu":
        return "runs are made together on a CPU only"
    first = _alike(runs[0])
    found = next((found for run in runs for found in differences(first, _alike(run))), None)
    return None if found is None else f"runs differ in {found}"


# parts of what a training rests on that are inputs of a mapped step, or become them
MAPPED = frozenset(("seed", "threat", "initial weights", "frozen parameters", "buffers"))


def _alike(run: _Run) -> dict[str, str]:
    """What must be the same in runs that are made together: everything but the numbers in mapped tensors."""
    parts = {name: digest for name, digest in run.prepared.identity.items() if name not in MAPPED}
    kinds = [(name, tuple(value.shape), value.dtype) for name, value in _plain_tensors(run).items()]
    lifted = _lifted(run)
    sets = [_kind(part) for part in (lifted.inputs, lifted.targets)]
    return {**parts, "kinds of tensors": of_value(kinds), "kinds of sets": of_value((sets, lifted.weights is None))}


def _kind(part: Tensor) -> tuple[object, ...]:
    """What a traced step takes for granted of a batch."""
    if not isinstance(part, Bounded):
        return tuple(part.shape), part.dtype
    held = part.set
    kinds = [(tuple(tensor.shape), tensor.dtype) for tensor in inside(Lifted(part, part, None))]
    return held.exact, held.nonnegative, held.affine, held.adds_to_one, held.clean is None, kinds


def _plain_tensors(run: _Run) -> dict[str, Tensor]:
    """Parameters and buffers of the plain model, by name."""
    return run.observed.tensors()


def _own_tensors(runs: Sequence[_Run]) -> list[str]:
    """The frozen parameters and buffers that are not the same in all runs."""
    trained = {id(value) for value in runs[0].observed.parameters()}
    fixed = [name for name, value in _plain_tensors(runs[0]).items() if id(value) not in trained]
    return [name for name in fixed if len({of_tensors(_plain_tensors(run)[name]) for run in runs}) > 1]


class _State(Intervals):
    """The state of a run, with the tensors behind it that no step changes and that are others in every run."""

    def __init__(self, trainer: Trainer, own: Sequence[str]):
        super().__init__(trainer)
        self.own = [trainer.tensors()[name] for name in own]
        self.buffers = [
            (module, name, held)
            for module in trainer.model.modules()
            for name, held in module._buffers.items()
            if held is not None
        ]

    def leaves(self) -> list[Bounded]:
        return [*leaves_of(self.trainer), *(held for held in self.own if isinstance(held, Bounded))]

    def tensors(self) -> list[Tensor]:
        return Intervals(self.trainer).tensors()

    def put(self, tensors: Sequence[Tensor]) -> None:
        count = len(tensors) - len(self.own)
        Intervals(self.trainer).put(tensors[:count])
        for held, value in zip(self.own, tensors[count:], strict=True):
            if isinstance(held, Bounded):
                held.set = Set(value.expand(2, *value.shape), None, held.set.symbols, True, held.set.nonnegative)
                held._recorded = held._version
            for module, name, buffer in self.buffers:
                if buffer is held:
                    module._buffers[name] = value

    @contextmanager
    def buffers_kept(self) -> Iterator[None]:
        """Buffers as they were, after the tracer has put its own there."""
        try:
            yield
        finally:
            for module, name, held in self.buffers:
                module._buffers[name] = held


def _lifted(run: _Run) -> Lifted:
    prepared = run.prepared
    samples = torch.arange(len(prepared.x), device=prepared.x.device)
    return prepared.threat.lift(None, prepared.x, prepared.targets, samples)


def _stacked(tensors: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Tensors of every run, stacked by place."""
    return [torch.stack([part.detach() for part in parts]) for parts in zip(*tensors, strict=True)]


def _plain_state(run: _Run) -> list[Tensor]:
    """What a plain step reads and writes: parameters, and momentum where there is any."""
    parameters, state = run.observed.parameters(), run.observed.optimizer.state
    buffers = [state[parameter].get("momentum_buffer") for parameter in parameters]
    return [*(value.detach() for value in parameters), *(buffer for buffer in buffers if buffer is not None)]


def _plain_step(run: _Run, own: Sequence[str]) -> Function:
    """A plain step of PyTorch's own SGD as a function of tensors: those that no step changes stand first."""
    from torch.optim.sgd import sgd

    model, loss = run.nominal, LOSSES[run.prepared.recipe.loss]
    trained = {id(value) for value in run.observed.parameters()}
    names = [name for name, value in model.named_parameters() if id(value) in trained]
    (group,) = run.observed.optimizer.param_groups
    options = {name: group[name] for name in ("weight_decay", "momentum", "lr", "dampening", "nesterov", "maximize")}

    def step(index: Tensor, x: Tensor, y: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        kept, state = dict(zip(own, tensors, strict=False)), tensors[len(own) :]

        def value(parameters: tuple[Tensor, ...]) -> Tensor:
            held = {**kept, **dict(zip(names, parameters, strict=True))}
            return loss(torch.func.functional_call(model, held, (x[index],)), y[index])

        parameters = [part.clone() for part in state[: len(names)]]
        buffers: list[Tensor | None] = [part.clone() for part in state[len(names) :]]
        gradients = list(torch.func.grad(value)(tuple(parameters)))
        sgd(parameters, gradients, buffers or [None] * len(names), foreach=False, **options)
        return (*parameters, *(part for part in buffers if part is not None))

    return step
