"""certify(): train on every dataset of a threat at once.

    lift the batch; forward; loss; backward; promote; optimizer step; reduce

The loop is the one a user of PyTorch would write. It runs twice, step by step, with the same initial weights, batches,
masks and options: on the observed data with plain tensors (the nominal model), and on sets. After every step the plain
parameters must lie inside the set (`tripwire.py`). All choices are fixed before the first step, the number of steps
included, and the certificate records them.
"""

from __future__ import annotations

import copy
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..answers.certificate import Certificate, versions
from ..arithmetic import rounding
from ..errors import UnsupportedProgram, VoidBounds, WideBounds
from ..fast.memory.batch_pieces import accumulated, pieces, spread_pieces
from ..fast.memory.memory_plan import chunk_size, for_rows, rows_fit
from ..fast.memory.out_of_memory import needs_less
from ..fast.processes.ranks import Ranks, joined
from ..fast.processes.row_placement import Shares
from ..fast.processes.shared_checkpoint import SharedCheckpoint
from ..fast.steps.compiled_steps import FIRST, CompiledSteps, NotTraceable, why_not
from ..fast.steps.deferred_checks import checked_at_the_end
from ..files.checkpoint import EVERY, Checkpoint, Made
from ..files.training_state import Trainer, space_of
from ..operators.losses import LOSSES
from ..same_program.identity import of_tensors, of_value
from ..same_program.one_program import OneProgram
from ..same_program.tripwire import Tripwire
from ..sets.set import Set
from ..symbols.space import Symbols
from ..symbols.width_forecast import Growth
from ..tensor.bounded import Bounded, exact
from ..tensor.draws import Draws
from ..tensor.lift import Given, lift
from ..threats import Lifted, Linf, Threat
from .checked_inputs import Prepared
from .clipping import clipped_gradients
from .progress import SAMPLES, Bar, Step, only_looks, shown
from .recipe import Recipe

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Callback = Callable[[Step], None]


@needs_less("a smaller memory=, batch_size= or order=, fewer samples, or domain='interval' needs less")
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
    distributed: bool | ProcessGroup = False,
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

    ``distributed`` makes one training on several processes, which all call this with the same arguments: True for those
    that ``torchrun`` started or that ``torch.distributed`` knows, or a process group. Rows of samples are spread over
    the processes, and every one of them gets the certificate; `docs/several-devices.md` says what is shared.
    """
    recipe = (recipe or Recipe()).but(**fields)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError("the model has no parameters to train")
    ranks = joined(distributed, torch.device(recipe.device or next(model.parameters()).device))
    run = _Run(Prepared(model, data, threat, recipe), callbacks, ranks)
    path, every = checkpoint, checkpoint_every
    if ranks is None:
        saved = Checkpoint(path, every, run.record, run.observed, run.sets)
    else:
        same = f"{json.dumps(run.record, sort_keys=True)} {path is None} {resume}"
        ranks.require_same("what to train", [same], "give all of them the same model, data, threat and recipe")
        saved = SharedCheckpoint(path, every, run.record, run.observed, run.sets, ranks)
    made = saved.resume() if resume else Made()
    bar = Bar(*run.watched(validation, test_epsilon), run.size, made.steps)
    if shown(progress) and (ranks is None or ranks.rank == 0):
        callbacks = [*callbacks, bar]
    started = time.perf_counter() - made.seconds
    with saved, bar:
        for step in run.steps(made, callbacks, bar, kept=checkpoint is not None):
            made = step._replace(seconds=time.perf_counter() - started)
            saved.hold(made)  # after all callbacks have seen the step
    return run.certificate(made.void_at_step, time.perf_counter() - started)


class _Run:
    """One training: on observed data and on sets, step by step."""

    def __init__(self, prepared: Prepared, callbacks: Sequence[Callback] = (), ranks: Ranks | None = None):
        self.prepared, self.ranks, recipe = prepared, ranks, prepared.recipe
        self._processes = 1 if ranks is None else ranks.count
        self.batches = recipe.batches(len(prepared.x), prepared.x.device)
        self.nominal, self.certified = copy.deepcopy(prepared.model), copy.deepcopy(prepared.model)
        self.space, not_tracked = self._space(recipe)
        space_of(lift(self.certified, self.space)).growth.told = True  # this run has its own, which knows its end
        self.growth = Growth(len(self.batches))
        self.observed, self.sets = recipe.trainer(self.nominal), recipe.trainer(self.certified)
        self.size = chunk_size(prepared, self.space, self.batches, self._processes)
        self.spread = spread_pieces(prepared, self.space, self.batches[0], ranks)
        self.tripwire = Tripwire(self.nominal, self.certified, rounding.mode() == "outward")
        self.program = OneProgram(prepared, self.observed, self.sets)
        self.record = {
            **recipe.record(prepared.model, len(self.batches)),
            "threat": repr(prepared.threat),
            "clauses": prepared.threat.described(prepared.x),
            "not_tracked": not_tracked,
            "input_shape": list(prepared.x.shape[1:]),
            "samples": len(prepared.x),
            "data": prepared.identity["data"],
            "initial_weights": prepared.identity["initial weights"],
            "frozen": [name for name, parameter in prepared.model.named_parameters() if not parameter.requires_grad],
            "dtype": str(prepared.x.dtype).removeprefix("torch."),
            **({} if prepared.weights is None else {"sample_weights": of_tensors(prepared.weights)}),
            **versions(),
            "identity": prepared.identity,
        }
        self.compiled = self._compiled(callbacks)
        if self.compiled is not None:
            self.record["compiled"] = True

    def _compiled(self, callbacks: Sequence[Callback]) -> CompiledSteps | None:
        """The steps as compiled functions, if that is wanted and known to be the same program."""
        reason = why_not(self.prepared, len(self.batches), callbacks)
        if self.ranks is not None:
            reason = "steps on several processes are not compiled"
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
            tracks = rows_fit(prepared, self.batches, self._processes)
            space = Symbols(threat, order=recipe.order, tracks=tracks, reduction=recipe.reduction, memory=None)
            if self.ranks is not None:
                if prepared.effects.changes:
                    raise UnsupportedProgram(
                        f"the forward pass changes {', '.join(prepared.effects.changes)}, and rows of what it keeps "
                        "would be spread over several processes: keep no state, or use one process"
                    )
                space.arithmetic = replace(space.arithmetic, shares=Shares(self.ranks, space, len(prepared.x)))
            if not tracks:
                lost = "rows of the samples did not fit into memory: what was done to them is an error each time"
                not_tracked.append(
                    f"{lost} (memory={for_rows(prepared, self.batches, self._processes):.2g} holds them)"
                )
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
        if self.ranks is not None:
            record["processes"] = self.ranks.count
            self._whole(self.ranks, void_at_step)
        if void_at_step is not None:
            return Certificate(None, self.nominal.eval(), {**record, "void_at_step": void_at_step}, seconds)
        return Certificate(self.certified.eval(), self.nominal.eval(), record, seconds)

    def _whole(self, ranks: Ranks, void_at_step: int | None) -> None:
        """Everything on every process: the rows of all, and the plain model of the first, which may differ in digits.

        What is asked of the certificate needs nobody else any more.
        """
        for name, value in self.observed.tensors().items():
            value.data.copy_(ranks.gathered(f"plain {name}", value)[0])
        space = self.space
        if space is not None:
            shares, space.arithmetic = space.arithmetic.shares, replace(space.arithmetic, shares=None)
            if shares is not None and space.expansion is not None and void_at_step is None:
                space.expands(self.sets.optimizer, shares.whole(space.expansion))

    # --- steps ----------------------------------------------------------------------------------------------------

    def steps(self, made: Made, callbacks: Sequence[Callback], bar: Bar, kept: bool = False) -> Iterator[Made]:
        """Make all steps that are left, tell everyone, and say how far the run has come.

        Sets are there to be seen after every step where there are callbacks, or where each state is ``kept``.
        """
        shown = kept or bool(callbacks)
        if self.space is not None:
            self.sets.optimizer.register_step_post_hook(_forget_gradients)  # before rows are reduced, which takes room
            self.space.attach(self.sets.optimizer)
        for number, index in enumerate(self.batches[made.steps :], start=made.steps):
            void_at_step, loss = made.void_at_step, None
            with self.program.step(index):
                self._on_observed(index, number)
                if void_at_step is None:
                    self.rehearse(index, number)
                    try:
                        loss = self._next(index, number)
                        asked = shown or self.growth.asks(number + 1) or number + 1 == len(self.batches)
                        if self.compiled is not None and asked:
                            self.compiled.settle()
                            self.compiled.show()
                    except VoidBounds as void:
                        void_at_step = void.at_step or number + 1
                        bar.void(void_at_step)
                        _warn(self.growth.void(void_at_step))
            if void_at_step is None:
                if self.growth.asks(number + 1):
                    parameters = [value for value in self.sets.parameters() if isinstance(value, Bounded)]
                    _warn(self.growth.after(number + 1, [value.set.bounds for value in parameters]))
                self.program.require_same_options(number + 1)
                if callbacks:
                    assert loss is not None
                    changed = self._report(number + 1, loss, callbacks)
                    if changed is not None and kept:
                        raise UnsupportedProgram(
                            f"a callback changes {changed}, and a checkpoint does not hold what callbacks do: train "
                            "without one, or write what it does into the network or the optimizer"
                        )
            made = Made(number + 1, void_at_step)
            yield made
        self.tripwire.read()
        self.program.require_as_found()

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
        with checked_at_the_end(space_of(self.certified), self.prepared.x.device):
            loss = self._on_sets(index, number)
        if watched:  # or plain training is further by now
            self.tripwire.step(number + 1)
        if self.ranks is not None:
            sets = [value.set for value in self.sets.parameters() if isinstance(value, Bounded)]
            parts = [part for each in sets for part in (each.bounds, each.form.center, each.form.radius)]
            self.ranks.require_same(
                f"the sets after step {number + 1}", parts, "use machines and libraries of one kind"
            )
        assert isinstance(loss, Bounded)
        return loss

    def _on_observed(self, index: Tensor, number: int) -> None:
        """A step of ordinary training."""
        self._plainly(self.observed, index, number)

    def _plainly(self, trainer: Trainer, index: Tensor, number: int) -> None:
        model, prepared, clip = trainer.model, self.prepared, self.prepared.recipe.clip_gradients

        def backward(index: Tensor) -> Tensor:
            batch = Lifted(prepared.observed[index], prepared.y[index], None)
            return self._backward(model, prepared.weighted(batch, index), number, None)

        trainer.optimizer.zero_grad()
        clipped_gradients(model, index, backward, clip, None) if clip is not None else backward(index)
        with self.program.optimizer_step():
            trainer.step()

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

    def rehearse(self, index: Tensor, number: int) -> None:
        """The first step, and the first of every length, without the threat: a network may do something else there."""
        if not self.program.is_new(index):
            return
        model, plain = self.prepared.model, self.nominal
        if number:
            plain = copy.deepcopy(model)
            self._plainly(self.prepared.recipe.trainer(plain), index, number)
        self.tripwire.rehearse(number + 1, model, plain, lambda made: self._rehearsed(made, index, number))

    def _rehearsed(self, model: nn.Module, index: Tensor, number: int) -> None:
        """A first step on sets as wide as rounding: every sample is as observed."""
        prepared, removable = self.prepared, self.prepared.threat.touches("weights")

        def lifted(index: Tensor) -> Lifted:
            x = prepared.observed[index]
            weights = exact(torch.ones(len(x), dtype=x.dtype, device=x.device)) if removable else None
            return prepared.weighted(Lifted(exact(x), prepared.targets[index], weights), index)

        trainer = prepared.recipe.trainer(model)
        self._gradients(model, space_of(model), lifted, None, index, number)
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

        spread = self.spread if self.ranks is not None and len(index) >= self.ranks.count else None
        in_pieces = clip is None and (len(index) > self.size or spread is not None)
        if clip is not None:
            return clipped_gradients(model, index, backward, clip, threat)
        if spread is not None:
            return accumulated(space, model, index.tensor_split(spread.count), backward, spread)
        return accumulated(space, model, pieces(index, self.size), backward) if in_pieces else backward(index)

    def _backward(self, model: nn.Module, batch: Lifted, number: int, of: int | None) -> Tensor:
        """The loss of a batch, or of a piece of a batch ``of`` so many samples, after its backward pass."""
        recipe = self.prepared.recipe
        loss = LOSSES[recipe.loss]
        # the masks of dropout are part of the recipe; a forward pass that keeps state may begin to draw at any step
        effects = self.prepared.effects
        watched = effects.draws or effects.changes or self.program.drawn
        draws = Draws(recipe.seed_of_step(number)) if watched else None
        with draws or nullcontext():
            outputs = model(batch.inputs)
        if batch.weights is None and of is None:
            value = loss(outputs, batch.targets)
        else:  # a removed sample has weight 0 in its slot, and the mean still divides by all of them
            losses = loss(outputs, batch.targets, reduction="none").reshape(len(outputs), -1)
            losses = losses.mean(1) if losses.shape[1] > 1 else losses.squeeze(1)  # of one, a mean is a support more
            value = (losses if batch.weights is None else losses * batch.weights).sum() / (of or len(outputs))
        # also on a GPU in this thread: two that take turns at Python are slower than one
        with draws.over() if draws is not None else nullcontext(), torch.autograd.set_multithreading_enabled(False):
            value.backward()  # type: ignore[no-untyped-call]
        return value.detach()

    def _report(self, number: int, loss: Set, callbacks: Sequence[Callback]) -> str | None:
        """Tell everyone; gives the name of what a callback has changed, if one has: then it is part of the program."""
        widths = [float((p.upper - p.lower).mean()) for p in self.certified.parameters()]  # type: ignore[attr-defined]
        width = sum(widths) / len(widths)
        middle = float(loss.form.center)
        step = Step(number, len(self.batches), middle, width, self.certified, self.nominal, self.record)
        before = self.program.models()
        for callback in callbacks:
            with space_of(self.certified).aside():
                callback(step)
        changed = self.program.changed_since(before)
        if changed is not None:
            acting = [callback for callback in callbacks if not only_looks.marks(callback)]
            self.record["identity"] = {**self.record["identity"], "callbacks": of_value(acting)}
            if number == len(self.batches):  # or the next step is compared
                self.tripwire.step(number)
        return changed


def _warn(said: str | None) -> None:
    if said is not None:
        warnings.warn(said, WideBounds, stacklevel=3)


def _forget_gradients(optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
    optimizer.zero_grad()


def _replaced(threat: Threat) -> str:
    """How many samples count as replaced."""
    clauses = [clause for clause in threat.clauses if any(change.about == "gradients" for change in clause.changes)]
    budgets = [clause.budget for clause in clauses if clause.budget is not None]
    return f"at most {sum(budgets)} samples" if len(budgets) == len(clauses) else "all samples that the threat names"
