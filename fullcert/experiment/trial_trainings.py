"""A training on few of its samples, for a few steps, that makes the choices of the whole: what a forecast looks at.

Whether samples have rows goes by memory, and how a support is computed by the work in it: a trial is told both. Of a
budget it has the same share as of the samples: 200 of 64 would be no budget at all, and of 512 one whose largest terms
take longer to find than all others. It makes its first step on some samples, whose symbols are known from then on, and
its next ones on as many of these as it is told, so that the samples of a step and the rows of all symbols vary apart.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

import boundflow as bf
from boundflow.arithmetic.thread_context import thread, using
from boundflow.fast.memory.memory_plan import chunk_size, for_rows, rows_fit
from boundflow.fast.steps.compiled_steps import why_not
from boundflow.files.training_state import space_of
from boundflow.symbols.budgets import FREE
from boundflow.symbols.space import Symbols
from boundflow.tensor.lift import Given
from boundflow.threats.base import AtMost, Both, Threat
from boundflow.training.checked_inputs import Prepared
from fullcert.system.widening import told_by

LEAST, AGAIN = 3, 0.1  # steps after the first that are always made, and seconds up to which there are more

Clock = Callable[[], float]


@dataclass(frozen=True)
class Training:
    """What `bf.certify` is given."""

    model: nn.Module
    data: tuple[Given, Given]
    recipe: bf.Recipe
    threat: Threat

    @property
    def samples(self) -> int:
        return len(torch.as_tensor(self.data[0]))

    @property
    def size(self) -> int:
        """The samples of a step."""
        return min(self.recipe.batch_size or self.samples, self.samples)

    @property
    def steps(self) -> int:
        steps = self.recipe.epochs * -(-self.samples // self.size)
        return steps if self.recipe.steps is None else min(steps, self.recipe.steps)

    @property
    def on_gpu(self) -> bool:
        device = self.recipe.device or next(self.model.parameters()).device
        return torch.device(device).type == "cuda"

    def met(self, step: int) -> int:
        """Samples whose symbols are known after so many steps."""
        return min(self.samples, step * self.size)

    def certify(self, **how: Any) -> bf.Certificate:
        return bf.certify(self.model, self.data, self.recipe, threat=self.threat, **how)

    def prepared(self, recipe: bf.Recipe) -> tuple[Prepared, list[Tensor]]:
        made = Prepared(self.model, self.data, self.threat, recipe)
        return made, recipe.batches(self.samples, made.x.device)


@dataclass(frozen=True)
class Plan:
    """What a run chooses by its size, so that its trials choose the same."""

    tracked: bool  # whether samples have rows
    piece: int  # how many samples are held at a time
    compiled: bool

    @staticmethod
    def of(training: Training) -> "Plan":
        prepared, batches = training.prepared(training.recipe)
        space = None
        if training.recipe.domain == "zonotope":
            space = Symbols(training.threat, order=training.recipe.order, tracks=rows_fit(prepared, batches))
        piece = chunk_size(prepared, space, batches)
        compiled = why_not(prepared, len(batches), ()) is None and (space is None or piece >= training.samples)
        return Plan(space is not None and space.tracks, piece, compiled)


@dataclass(frozen=True)
class Seen:
    """A step of a trial, and the rows there are after it."""

    samples: int
    seconds: float
    owned: int = 0  # by samples
    errors: int = 0  # of nobody
    most: int = 0  # that errors can have


@dataclass(frozen=True)
class _Few(bf.Recipe):
    """The same recipe, for steps on so many samples each; any of them stand for all."""

    sizes: tuple[int, ...] = ()

    def batches(self, samples: int, device: torch.device) -> list[Tensor]:
        order = torch.randperm(samples, generator=torch.Generator().manual_seed(self.seed)).to(device)
        return [order[:size] for size in self.sizes]


class _Enough(Exception):
    """A trial has seen what it was made for."""


def trial(training: Training, plan: Plan, sizes: Sequence[int], clock: Clock, least: int = LEAST) -> list[Seen]:
    """Steps on so many samples each; those after the first ``least`` later ones only where all are short."""
    given = {field.name: getattr(training.recipe, field.name) for field in fields(bf.Recipe)}
    recipe = _Few(**{**given, "compile": False}, sizes=tuple(sizes))
    if recipe.domain == "zonotope" and not plan.tracked:  # nor with a byte less than that takes
        recipe = replace(recipe, memory=min(recipe.memory, for_rows(*training.prepared(recipe)) - 1))
    times = training.met(training.steps) / sizes[0]
    work, threat = training.size * times, with_budgets(training.threat, 1 / times)  # of which a step has its share
    seen: list[Seen] = []
    begun = last = clock()

    def see(step: bf.Step) -> None:
        nonlocal last
        if next(step.model.parameters()).is_cuda:
            torch.cuda.synchronize()
        now, space = clock(), space_of(step.model)
        seen.append(Seen(sizes[len(seen)], now - last, *_rows(space)))
        if len(seen) == len(sizes) or (len(seen) > least and now - begun > AGAIN):
            raise _Enough
        space.arithmetic = replace(space.arithmetic, trial_of=work / sizes[len(seen)])
        last = clock()

    with (
        using(replace(thread.arithmetic, trial_of=work / sizes[0], samples_of=times)),
        told_by(None),
        suppress(_Enough),
    ):
        bf.certify(training.model, training.data, recipe, threat=threat, callbacks=[see], progress=False)
    if len(seen) < 2:
        raise bf.VoidBounds("nothing was seen of a second step")
    return seen


def with_budgets(threat: Threat, share: float) -> Threat:
    """The same threat with a share of each budget, and one sample at least."""
    if isinstance(threat, AtMost):
        return AtMost(max(1, round(share * threat.k)), threat.threat)
    if isinstance(threat, Both):
        return with_budgets(threat.parts[0], share) & with_budgets(threat.parts[1], share)
    return threat


def _rows(space: Symbols) -> tuple[int, int, int]:
    """Rows of symbols by now: those of samples, those of nobody, and how many these can become."""
    if space.expansion is None:
        return 0, 0, 0
    deep = space.expansion.deep
    free = int((space.owners_and_parts(deep.numbers)[1] == FREE).sum())
    return len(deep) - free, free, space.order * len(space.expansion.derived)
