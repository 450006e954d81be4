"""certify(): train on every dataset of a threat at once.

    lift the batch; forward; loss; backward; promote; optimizer step; reduce

The loop is the one a user of PyTorch would write. It runs twice, step by step, with the same initial weights, batches,
masks and options: on the observed data with plain tensors (the nominal model), and on sets. After every step the plain
parameters must lie inside the set (`tripwire.py`). All choices are fixed before the first step, the number of steps
included, and the certificate records them.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from . import rounding
from .bounded import Bounded, exact
from .certificate import Certificate, versions
from .checkpoint import EVERY, Checkpoint, Made
from .chunks import accumulated, chunk_size, rows_fit
from .clipping import clipped_gradients
from .compiled import FIRST, CompiledSteps, NotTraceable, why_not
from .draws import Draws
from .errors import UnsupportedProgram, VoidBounds
from .files import fingerprint
from .lift import Given, lift
from .losses import LOSSES
from .prepared import Prepared
from .progress import SAMPLES, Bar, Step, shown
from .recipe import Recipe
from .sets import Set
from .symbols import Symbols
from .threats import Lifted, Linf, Threat
from .training_state import space_of
from .tripwire import Tripwire

Callback = Callable[[Step], None]


def certify(
    model: nn.Module,
    data: tuple[Given, Given],
    recipe: Recipe | None = None,
    *,
    threat: Threat,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    validation: tuple[Given, Given] | None = None,
    test_epsilon: Given = 0.0,
    checkpoint: str | Path | None = None,
    checkpoint_every: float = EVERY,
    resume: bool = False,
    **fields: Any,
) -> Certificate:
    """Train a copy of ``model`` on every dataset the threat allows, and on the observed one.

    ``data`` are inputs (N, ...) and targets (N,): classes for "bce", "hinge" and "ce", numbers for "mse". Parameters
    that do not require gradients stay frozen. A pretrained model is a model like any other: its weights are the trusted
    start. How it is trained is a `Recipe`, or its ``fields``: ``loss="bce", epochs=3, batch_size=100, seed=0,
    optimizer=torch.optim.SGD, optimizer_options={"lr": 0.1}, domain="zonotope", ...``. If the bounds become void,
    training stops and the certificate says at which step; it then certifies nothing. (A threat whose very first sets
    are not finite raises.)

    ``progress`` shows a bar on standard error, by default only on a terminal, with the accuracy by now on
    ``validation`` (inputs and targets, every feature moved by at most ``test_epsilon``) or else on some of the training
    samples. It is shown and no more: nothing in training depends on it.

    ``checkpoint`` is the path of a file that holds the state after a step: written every ``checkpoint_every`` seconds,
    at the end, and when the run is interrupted. With ``resume`` the run goes on from that file, if it is there, and
    gives the same certificate as one that was never interrupted; a file of another run is refused.
    """
    run = _Run(Prepared(model, data, threat, (recipe or Recipe()).but(**fields)), callbacks)
    layers = {"layers": repr(run.prepared.model)}
    saved = Checkpoint(checkpoint, checkpoint_every, {**run.record, **layers}, run.observed, run.sets)
    made = saved.resume() if resume else Made()
    bar = Bar(*run.watched(validation, test_epsilon), run.size, made.steps)
    if shown(progress):
        callbacks = [*callbacks, bar]
    started = time.perf_counter() - made.seconds
    with saved, bar:
        for step in run.steps(made, callbacks, bar, kept=checkpoint is not None):
            made = step._replace(seconds=time.perf_counter() - started)
            saved.hold(made)  # after all callbacks have seen the step
    return run.certificate(made.void_at_step, time.perf_counter() - started)


class _Run:
    """One training: on observed data and on sets, step by step."""

    def __init__(self, prepared: Prepared, callbacks: Sequence[Callback] = ()):
        self.prepared, recipe = prepared, prepared.recipe
        self.batches = recipe.batches(len(prepared.x), prepared.x.device)
        self.nominal, self.certified = copy.deepcopy(prepared.model), copy.deepcopy(prepared.model)
        self.space, not_tracked = self._space(recipe)
        space_of(lift(self.certified, self.space)).warned_of_width = True  # the bar and the certificate say it
        self.observed, self.sets = recipe.trainer(self.nominal), recipe.trainer(self.certified)
        self.size = chunk_size(prepared, self.space, self.batches[0])
        self.tripwire = Tripwire(self.nominal, self.certified, rounding.mode() == "outward")
        self.record = {
            **recipe.record(prepared.model, len(self.batches)),
            "threat": repr(prepared.threat),
            "clauses": prepared.threat.described(prepared.x),
            "not_tracked": not_tracked,
            "input_shape": list(prepared.x.shape[1:]),
            "samples": len(prepared.x),
            "data": fingerprint(prepared.x, prepared.y),
            "initial_weights": fingerprint(*self.observed.tensors().values()),
            "frozen": [name for name, parameter in prepared.model.named_parameters() if not parameter.requires_grad],
            "dtype": str(prepared.x.dtype).removeprefix("torch."),
            **({} if prepared.weights is None else {"sample_weights": fingerprint(prepared.weights)}),
            **versions(),
        }
        self.compiled = self._compiled(callbacks)
        if self.compiled is not None:
            self.record["compiled"] = True

    def _compiled(self, callbacks: Sequence[Callback]) -> CompiledSteps | None:
        """The steps as compiled functions, if that is wanted and known to be the same program."""
        reason = why_not(self.prepared, len(self.batches), callbacks)
        if reason is None and self.space is not None and self.size < len(self.prepared.x):
            reason = "a batch of zonotopes that is taken in pieces"
        if reason is None:
            plain = [value for value in self.observed.parameters() if self.tripwire.outward]

            def backward(model: nn.Module, batch: Lifted) -> Tensor:
                return self._backward(model, batch, 0, None)

            return CompiledSteps(self.prepared, self.sets, plain, backward, self._by_rules)
        if self.prepared.recipe.compile is True:
            raise ValueError(f"compile=True: {reason}")
        return None

    def _space(self, recipe: Recipe) -> tuple[Symbols | None, list[str]]:
        """The space of a zonotope run, and what of the threat it cannot track."""
        prepared, threat = self.prepared, self.prepared.threat
        space, not_tracked = None, []
        if recipe.domain == "zonotope":
            tracks = rows_fit(prepared, self.batches)
            space = Symbols(threat, order=recipe.order, tracks=tracks, reduction=recipe.reduction)
            if not tracks:
                lost = "rows of the samples did not fit into memory: what was done to them is an error each time"
                not_tracked.append(lost)
        if threat.budget is not None and (space is None or not space.tracks):
            not_tracked.append(f"no rows, no run-wide budget: at most {threat.budget} samples in every batch")
        elif threat.touches("gradients"):
            not_tracked.append(f"replaced gradients have no rows: {_replaced(threat)} in every batch")
        return space, not_tracked

    def watched(self, validation: tuple[Given, Given] | None, epsilon: Given) -> tuple[Tensor, Tensor, Given]:
        """What a progress bar measures on: inputs, targets and the perturbation of the inputs."""
        prepared = self.prepared
        if validation is None:
            if bool((torch.as_tensor(epsilon) != 0).any()):
                raise ValueError("test_epsilon is about a validation set: give validation=(X, y) as well")
            order = torch.randperm(len(prepared.x), generator=torch.Generator().manual_seed(0))
            some = order[:SAMPLES].to(prepared.x.device)
            return prepared.observed[some], prepared.y[some], 0.0
        x, y = (torch.as_tensor(part) for part in validation)
        if len(x) != len(y):
            raise ValueError(f"{len(x)} validation inputs and {len(y)} targets")
        Linf(epsilon)  # what is wrong is said now, and not in the middle of the run
        Certificate(None, copy.deepcopy(prepared.model).eval(), self.record).predict(x)
        return x, y, epsilon

    def certificate(self, void_at_step: int | None, seconds: float) -> Certificate:
        state = sorted({*self.observed.changed(), *self.sets.changed()})
        record = {**self.record, **({"state": state} if state else {})}
        if void_at_step is not None:
            return Certificate(None, self.nominal.eval(), {**record, "void_at_step": void_at_step}, seconds)
        return Certificate(self.certified.eval(), self.nominal.eval(), record, seconds)

    # --- steps ----------------------------------------------------------------------------------------------------

    def steps(self, made: Made, callbacks: Sequence[Callback], bar: Bar, kept: bool = False) -> Iterator[Made]:
        """Make all steps that are left, tell everyone, and say how far the run has come.

        Sets are there to be seen after every step where there are callbacks, or where each state is ``kept``.
        """
        shown = kept or bool(callbacks)
        if self.space is not None:
            self.space.attach(self.sets.optimizer)
        for number, index in enumerate(self.batches[made.steps :], start=made.steps):
            self._on_observed(index, number)
            if number == 0:
                self.tripwire.rehearse(1, self.prepared.model, self._rehearsed)
            void_at_step = made.void_at_step
            if void_at_step is None:
                try:
                    loss = self._next(index, number)
                    if self.compiled is not None and (shown or number + 1 == len(self.batches)):
                        self.compiled.settle()
                        self.compiled.show()
                except VoidBounds as void:
                    void_at_step = void.at_step or number + 1
                    bar.void(void_at_step)
                else:
                    if callbacks:
                        self._report(number + 1, loss, callbacks)
            made = Made(number + 1, void_at_step)
            yield made
        self.tripwire.read()

    def _next(self, index: Tensor, number: int) -> Set:
        """A step on sets, compiled or by the rules, that the plain step must lie inside; gives the loss before it."""
        if self.compiled is not None and number >= FIRST:
            try:
                return self.compiled.step(index, number)
            except NotTraceable as reason:
                if self.prepared.recipe.compile is True:
                    raise UnsupportedProgram(f"compile=True: {reason}") from None
                self.compiled = None
                del self.record["compiled"]
        loss = self._by_rules(index, number)
        if self.sets.schedule is not None:
            self.sets.schedule.step()
        return loss.set

    def _by_rules(self, index: Tensor, number: int, watched: bool = True) -> Bounded:
        """A step on sets by the rules, but for that of the schedule, that the plain step must lie inside."""
        loss = self._on_sets(index, number)
        if watched:  # or plain training is further by now
            self.tripwire.step(number + 1)
        assert isinstance(loss, Bounded)
        return loss

    def _on_observed(self, index: Tensor, number: int) -> None:
        """A step of ordinary training."""
        model, prepared, clip = self.nominal, self.prepared, self.prepared.recipe.clip_gradients

        def backward(index: Tensor) -> Tensor:
            batch = Lifted(prepared.observed[index], prepared.y[index], None)
            return self._backward(model, prepared.weighted(batch, index), number, None)

        self.observed.optimizer.zero_grad()
        clipped_gradients(model, index, backward, clip, None) if clip is not None else backward(index)
        self.observed.step()

    def _on_sets(self, index: Tensor, number: int) -> Tensor:
        """The same step on sets, without that of the schedule; gives the loss before it."""
        prepared, space = self.prepared, space_of(self.certified)

        def lifted(index: Tensor) -> Lifted:
            batch = prepared.threat.lift(self.space, prepared.x[index], prepared.targets[index], index)
            return prepared.weighted(batch, index)

        self.sets.optimizer.zero_grad()
        loss = self._gradients(self.certified, space, lifted, prepared.threat, index, number)
        self.sets.optimizer.step()
        return loss

    def _rehearsed(self, model: nn.Module) -> None:
        """The first step on sets as wide as rounding: every sample is as observed."""
        prepared, removable = self.prepared, self.prepared.threat.touches("weights")

        def lifted(index: Tensor) -> Lifted:
            x = prepared.observed[index]
            weights = exact(torch.ones(len(x), dtype=x.dtype, device=x.device)) if removable else None
            return prepared.weighted(Lifted(exact(x), prepared.targets[index], weights), index)

        trainer = prepared.recipe.trainer(model)
        self._gradients(model, space_of(model), lifted, None, self.batches[0], 0)
        trainer.step()

    def _gradients(
        self,
        model: nn.Module,
        space: Symbols,
        lifted: Callable[[Tensor], Lifted],
        threat: Threat | None,
        index: Tensor,
        number: int,
    ) -> Tensor:
        """Gradients of a batch on sets, at most ``size`` samples at a time; gives the loss."""
        clip = self.prepared.recipe.clip_gradients

        def backward(part: Tensor) -> Tensor:
            return self._backward(model, lifted(part), number, len(index) if in_pieces else None)

        in_pieces = clip is None and len(index) > self.size
        if clip is not None:
            return clipped_gradients(model, index, backward, clip, threat)
        return accumulated(space, model, torch.split(index, self.size), backward) if in_pieces else backward(index)

    def _backward(self, model: nn.Module, batch: Lifted, number: int, of: int | None) -> Tensor:
        """The loss of a batch, or of a piece of a batch ``of`` so many samples, after its backward pass."""
        recipe = self.prepared.recipe
        loss = LOSSES[recipe.loss]
        # the masks of dropout are part of the recipe; a forward pass that keeps state may begin to draw at any step
        effects = self.prepared.effects
        draws = Draws(1_000_003 * recipe.seed + number) if effects.draws or effects.changes else None
        with draws or nullcontext():
            outputs = model(batch.inputs)
        if batch.weights is None and of is None:
            value = loss(outputs, batch.targets)
        else:  # a removed sample has weight 0 in its slot, and the mean still divides by all of them
            losses = loss(outputs, batch.targets, reduction="none").reshape(len(outputs), -1).mean(1)
            value = (losses if batch.weights is None else losses * batch.weights).sum() / (of or len(outputs))
        with draws.over() if draws is not None else nullcontext():
            value.backward()  # type: ignore[no-untyped-call]
        return value.detach()

    def _report(self, number: int, loss: Set, callbacks: Sequence[Callback]) -> None:
        widths = [float((p.upper - p.lower).mean()) for p in self.certified.parameters()]  # type: ignore[attr-defined]
        width = sum(widths) / len(widths)
        middle = float(loss.form.center)
        step = Step(number, len(self.batches), middle, width, self.certified, self.nominal, self.record)
        for callback in callbacks:
            with space_of(self.certified).aside():
                callback(step)


def _replaced(threat: Threat) -> str:
    """How many samples count as replaced."""
    clauses = [clause for clause in threat.clauses if any(change.about == "gradients" for change in clause.changes)]
    budgets = [clause.budget for clause in clauses if clause.budget is not None]
    return f"at most {sum(budgets)} samples" if len(budgets) == len(clauses) else "all samples that the threat names"
