"""Steps as functions of tensors: traced once, compiled, and called from then on.

Between two steps nothing differs but numbers, so one function makes all of them (`traced_step.py`): on intervals one
for each length of a batch, on zonotopes one for all samples at once, whose rows are then the same in every step. It
says itself whether its bounds are finite and in order, and whether the plain parameters lie inside; where one is not
so, the step is made again by the rules, which raise what there is to raise. The first compiled step is made both ways,
and must come out the same but for roundings and the order of sums.

On a GPU reading these flags would make the processor wait, so they are read every few steps, and steps from the first
bad one on are made again.

A step is the same function every time only if the program is: `why_not` says for which runs that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...arithmetic import rounding
from ...arithmetic.tuned_numbers import COMPILED_STEPS, COMPILED_ZONOTOPE_STEPS, SMALL
from ...errors import BoundFlowError, OutsideBounds, VoidBounds
from ...files.training_state import Trainer, space_of
from ...same_program.tripwire import READ_EVERY
from ...sets.set import Set
from ...tensor.bounded import Bounded
from ...threats import Lifted
from ...training.checked_inputs import Prepared
from ...training.progress import only_looks
from ...training.recipe import Recipe
from .fixed_parts import split_off
from .graph_compiler import compiled
from .step_state import Intervals, NotTraceable, StepState, Zonotopes
from .traced_step import LEADING, Backward, Function, inside, smallest_normal, traced_step

FIRST = 2  # steps that are always made by the rules: initial weights are points, and momentum begins with the second
CLOSE = 1e-3  # of the width of an interval: what the order of sums may change

ByRules = Callable[[Tensor, int, bool], Tensor]  # one step, without the schedule; whether plain training is as far


def why_not(
    prepared: Prepared, steps: int, callbacks: Sequence[Callable[..., object]], recipe: Recipe | None = None
) -> str | None:
    """Why the steps of a run, or those of another recipe for it, are not compiled; None: they are."""
    recipe, threat = recipe or prepared.recipe, prepared.threat
    if recipe.compile is False:
        return "compile=False"
    device, zonotopes = prepared.x.device.type, recipe.domain == "zonotope"
    reasons = {
        "only steps on all samples at once are the same every time on zonotopes": zonotopes
        and recipe.batch_size is not None,
        "only steps on a CPU or with CUDA are compiled": device not in ("cpu", "cuda"),
        "only steps of torch.optim.SGD are the same every time": recipe.optimizer is not torch.optim.SGD,
        "an option that is a tensor can change": any(
            isinstance(option, Tensor) for option in recipe.optimizer_options.values()
        ),
        "gradients of single samples are clipped": recipe.clip_gradients is not None,
        "a budget, weights of samples, or samples that can be removed or replaced": threat.budget is not None
        or threat.touches("weights")
        or prepared.weights is not None
        or threat.touches("gradients"),
        "the forward pass draws numbers or changes state": bool(prepared.effects.draws or prepared.effects.changes),
        "callbacks that are not marked with bf.only_looks could change what a step does": not all(
            only_looks.marks(callback) for callback in callbacks
        ),
    }
    found = next((reason for reason, holds in reasons.items() if holds), None)
    enough = COMPILED_ZONOTOPE_STEPS if zonotopes else COMPILED_STEPS
    if found is None and recipe.compile == "auto" and steps < enough:
        return f"fewer than {enough} steps do not make up for compiling"
    return found


class _Pending(NamedTuple):
    """A step whose flags were not read yet, and all that making it again takes."""

    number: int
    samples: Tensor
    rates: list[float]
    before: list[Tensor]
    flags: Tensor


class CompiledSteps:
    """The steps of a run, one function for each length of a batch.

    From one step to the next only tensors are handed on: ``show`` puts them where everyone can see them.
    """

    def __init__(
        self, prepared: Prepared, trainer: Trainer, plain: Sequence[Tensor], backward: Backward, by_rules: ByRules
    ):
        self.trainer, self.backward, self.by_rules = trainer, backward, by_rules
        self.plain = [value.detach() for value in plain]  # the same memory, in which the plain optimizer writes
        self.space, self.device = space_of(trainer.model), prepared.x.device
        # steps by the rules are held against compiled ones, so they do nothing that is not traced
        self.space.arithmetic = replace(self.space.arithmetic, together=False)
        zonotopes = prepared.recipe.domain == "zonotope"
        self.state: StepState = Zonotopes(trainer) if zonotopes else Intervals(trainer)
        self.fixed_rates = zonotopes  # a number in the trace, not an input of it
        self._prepared = prepared
        self.whole = prepared.recipe.batch_size is None  # every batch has all samples, in their order
        self._functions: dict[int, Function] = {}
        self._groups = trainer.optimizer.param_groups
        self._options = self._fixed_options()
        self._tiny, self._rates = smallest_normal(prepared.x), torch.zeros(len(self._groups), dtype=prepared.x.dtype)
        self._held: list[float] = []
        self._made: list[Tensor] | None = None  # the state after the last step, where it is not shown yet
        self._pending: list[_Pending] = []
        small = sum(parameter.numel() for parameter in trainer.parameters()) <= SMALL
        self.every = READ_EVERY if self.device.type == "cuda" and small else 1

    @cached_property
    def _data(self) -> Lifted:
        """All samples as sets; made with the first step, since a resumed run must hand out no symbols before."""
        prepared, space = self._prepared, self.space if isinstance(self.state, Zonotopes) else None
        samples = torch.arange(len(prepared.x), device=self.device)
        return prepared.threat.lift(space, prepared.x, prepared.targets, samples)

    @cached_property
    def _tensors(self) -> list[Tensor]:
        """What a step takes of its data: all tensors inside or, once it is traced, what it computes from them alone."""
        return inside(self._data)

    def step(self, index: Tensor, number: int) -> Set:
        """The next step on a batch, and that of the schedule; gives the loss before it."""
        rounding.require_full_precision(self._tiny)  # the rules ask at every product, and a compiled step has none
        rates = [float(group["lr"]) for group in self._groups]
        if self._same_program(rates):
            before = self._made
            if before is None:
                before = self.state.tensors()
            loss, flags, first = self._compiled_step(index, rates, before)
            self._pending.append(_Pending(number, index, rates, before, flags))
            if first or len(self._pending) >= self.every:
                self.settle(require_alike=first)
        else:
            self.settle()
            self.show()
            before = self.state.tensors()
            loss = self._again(_Pending(number, index, rates, before, self._tiny), watched=True).set
        if self.trainer.schedule is not None:
            self.trainer.schedule.step()
        return loss

    def _compiled_step(self, index: Tensor, rates: list[float], before: list[Tensor]) -> tuple[Set, Tensor, bool]:
        if rates != self._held:
            self._rates = torch.tensor(rates, dtype=self._tiny.dtype).to(self.device)
            self._held = rates
        given = [index, self._rates, self._tiny, *self._tensors, *self.plain, *before]
        function, first = self._functions.get(index.size(0)), False
        if function is None:
            self.show()
            step = traced_step(self.trainer, self.plain, self.backward, self._data, given, self.state, self.whole)
            graph = step.graph
            if self.whole:
                graph, self._tensors = split_off(graph, given, slice(LEADING, LEADING + step.data))
                given = [*given[:LEADING], *self._tensors, *given[LEADING + step.data :]]
            function, first = compiled(graph, given), True
            self._functions[index.size(0)] = function
        *self._made, loss, flags = function(*given)
        return Set(loss, None, self.space), flags, first

    def show(self) -> None:
        """The sets of the trainer as they are after the last step."""
        made, self._made = self._made, None
        if made is not None:
            self.state.put(made)

    def _fixed_options(self) -> list[dict[str, Any]]:
        return [{key: x for key, x in group.items() if key not in ("params", "lr")} for group in self._groups]

    def _same_program(self, rates: list[float]) -> bool:
        """Whether nothing but learning rates has changed, and these are such as the traced step is right for."""
        unit = rounding.TINY[self._tiny.dtype]
        fits = all(unit <= rate <= rounding.LARGEST[self._tiny.dtype] for rate in rates)
        if self.fixed_rates and self._held:
            fits = fits and rates == self._held
        return fits and (self.trainer.schedule is None or self._fixed_options() == self._options)

    # --- steps that are looked at -------------------------------------------------------------------------------------

    def settle(self, require_alike: bool = False) -> None:
        """Read the flags of all steps since the last time, and make those from the first bad one on again."""
        pending, self._pending = self._pending, []
        read = [one.flags.tolist() for one in pending] if len(pending) < 2 else _read(pending)
        bad = next((place for place, (fine, held) in enumerate(read) if not (fine and held)), len(pending))
        if len(pending) > 1 and bad < len(pending) and read[bad][0]:  # plain training is further by now: say it here
            raise OutsideBounds(f"a parameter of the plain model left its bounds at step {pending[bad].number + 1}")
        bad = 0 if require_alike else bad
        for _ in pending[:bad]:  # the rules count their own
            self.space.count_step(self.trainer.optimizer)
        if bad == len(pending):
            return
        made, self._made = self._made, None
        for one in pending[bad:]:
            self._again(one, watched=len(pending) == 1)
        if require_alike:
            assert made is not None
            _require_alike(*map(self.state.bounds, (made, self.state.tensors())))
            self._made = made  # a resumed run has another first step

    def _again(self, one: _Pending, watched: bool) -> Bounded:
        """A step by the rules, from where it began; it counts once."""
        self.state.put(one.before)
        now = [group["lr"] for group in self._groups]
        try:
            for group, rate in zip(self._groups, one.rates, strict=True):
                group["lr"] = rate
            loss = self.by_rules(one.samples, one.number, watched)
        except VoidBounds as void:
            void.at_step = one.number + 1
            raise
        finally:
            for group, rate in zip(self._groups, now, strict=True):
                group["lr"] = rate
        assert isinstance(loss, Bounded)
        return loss


def _read(pending: Sequence[_Pending]) -> list[list[bool]]:
    """All flags in one transfer."""
    found: list[list[bool]] = torch.stack([one.flags for one in pending]).tolist()
    return found


def _require_alike(compiled: Sequence[Tensor], by_rules: Sequence[Tensor]) -> None:
    """Refuse a compiled step that gives other bounds than the rules, but for roundings and the order of sums."""
    for one, other in zip(compiled, by_rules, strict=True):
        allowed = CLOSE * (other[1] - other[0]) + rounding.UNIT[other.dtype] * 1024 * (1 + other.abs().amax(0))
        if not bool(((one - other).abs() <= allowed).all()):
            raise BoundFlowError(
                "a compiled step gave other bounds than the rules it was made from. Use compile=False, and please "
                "report this with the versions of PyTorch and of the compiler."
            )


__all__ = ["FIRST", "CompiledSteps", "NotTraceable", "why_not"]
