"""certify(): train on every dataset of a threat at once.

    lift the batch; forward; loss; backward; promote; optimizer step; reduce

The loop is the one a user of PyTorch would write. It runs twice, step by step, with the same initial weights, batches,
masks and options: on the observed data with plain tensors (the nominal model), and on sets. All choices are fixed
before the first step, the number of steps included, and the certificate records them.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from .bounded import Bounded
from .certificate import REGRESSION, Certificate, versions
from .checkpoint import EVERY, Checkpoint, Made
from .chunks import accumulated, chunk_size, rows_fit
from .clipping import clipped_gradients
from .errors import BoundFlowError, VoidBounds
from .files import fingerprint
from .lift import lift
from .losses import hinge
from .progress import SAMPLES, Bar, Step, shown
from .state import Trainer, space_of
from .symbols import Symbols
from .threats import Lifted, Linf, Threat
from .tuning import MEMORY

LOSSES: dict[str, Callable[..., Tensor]] = {
    "bce": F.binary_cross_entropy_with_logits,
    "hinge": hinge,
    "ce": F.cross_entropy,
    "mse": F.mse_loss,
}
DOMAINS = ("interval", "zonotope")


def certify(
    model: nn.Module,
    data: tuple[Any, Any],
    *,
    threat: Threat,
    loss: str = "ce",
    optimizer: type[torch.optim.Optimizer] = torch.optim.SGD,
    optimizer_options: dict[str, Any] | None = None,
    schedule: Callable[[torch.optim.Optimizer], Any] | None = None,
    epochs: int = 1,
    steps: int | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    domain: str = "zonotope",
    order: int = 20,
    clip_gradients: float | None = None,
    memory: float = MEMORY,
    device: Any = None,
    dtype: torch.dtype | None = None,
    callbacks: Sequence[Callable[[Step], None]] = (),
    progress: bool | None = None,
    validation: tuple[Any, Any] | None = None,
    test_epsilon: Any = 0.0,
    checkpoint: str | Path | None = None,
    checkpoint_every: float = EVERY,
    resume: bool = False,
) -> Certificate:
    """Train a copy of ``model`` on every dataset the threat allows, and on the observed one.

    ``data`` are inputs (N, ...) and targets (N,): classes for "bce", "hinge" and "ce", numbers for "mse". Parameters
    that do not require gradients stay frozen. A pretrained model is a model like any other: its weights are the trusted
    start. ``batch_size=None`` takes all samples at once; otherwise batches are shuffled anew each epoch, by the seed.
    ``steps`` ends training after so many steps. If the bounds become void, training stops and the certificate says at
    which step; it then certifies nothing. (A threat whose very first sets are not finite raises.)

    ``clip_gradients`` clips the gradient of every single sample to that norm before the mean is taken, in plain
    training too: slower, and what bounds a sample that may be anything (`Replacement`).

    ``memory`` (bytes) decides how much of a batch is held at a time, and whether every sample gets rows of its own;
    where those do not fit, the certificate records what was not tracked.

    ``progress`` shows a bar on standard error, by default only on a terminal, with the accuracy by now on
    ``validation`` (inputs and targets, every feature moved by at most ``test_epsilon``) or else on some of the training
    samples. It is shown and no more: nothing in training depends on it.

    ``checkpoint`` is the path of a file that holds the state after a step: written every ``checkpoint_every`` seconds,
    at the end, and when the run is interrupted. With ``resume`` the run goes on from that file, if it is there, and
    gives the same certificate as one that was never interrupted; a file of another run is refused.
    """
    run = _Run(model, data, threat, loss, optimizer, optimizer_options or {}, schedule, seed, device, dtype)
    run.clip_gradients = clip_gradients
    if clip_gradients is not None and not clip_gradients > 0:
        raise ValueError(f"clip_gradients must be a positive norm, got {clip_gradients}")
    if threat.touches("gradients") and clip_gradients is None:
        raise ValueError("a replaced sample can have any gradient: bound it with clip_gradients=C")
    if domain not in DOMAINS:
        raise ValueError(f"domain must be one of {', '.join(DOMAINS)}, not {domain!r}")
    for name, number in (("epochs", epochs), ("batch_size", batch_size), ("steps", steps)):
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    batches = list(itertools.islice(_batches(len(run.x), batch_size, epochs, seed, run.x.device), steps))
    nominal, certified = copy.deepcopy(run.model), copy.deepcopy(run.model)
    symbols, untracked = None, []
    if domain == "zonotope":
        tracks = rows_fit(run.model, threat, run.x, run.targets, batches, memory)
        symbols = Symbols(threat, order=order, tracks=tracks)
        if not tracks:
            untracked.append("rows of the samples did not fit into memory: what was done to them is an error each time")
    if threat.budget is not None and (symbols is None or not symbols.tracks):
        untracked.append(f"no rows, no run-wide budget: at most {threat.budget} samples in every batch")
    elif threat.touches("gradients"):
        untracked.append(f"replaced gradients have no rows: {_replaced(threat)} in every batch")
    lift(certified, symbols)
    observed, sets = run.trainer(nominal), run.trainer(certified)
    recipe = {
        "loss": loss,
        "task": "regression" if loss == REGRESSION else "classification",
        "threat": repr(threat),
        "optimizer": optimizer.__name__,
        "optimizer_options": {key: _recorded(option) for key, option in (optimizer_options or {}).items()},
        "schedule": run.schedule_record(len(batches)),
        "epochs": epochs,
        "batch_size": batch_size,
        "seed": seed,
        "domain": domain,
        "order": order if domain == "zonotope" else None,
        "clip_gradients": clip_gradients,
        "steps": len(batches),
        "step_chosen": "the number of steps was fixed before training",
        "not_tracked": untracked,
        "input_shape": list(run.x.shape[1:]),
        "samples": len(run.x),
        "data": fingerprint(run.x, run.y),
        "initial_weights": fingerprint(*observed.tensors().values()),
        "frozen": [name for name, parameter in run.model.named_parameters() if not parameter.requires_grad],
        "dtype": str(run.x.dtype).removeprefix("torch."),
        **versions(),
    }
    saved = Checkpoint(checkpoint, checkpoint_every, {**recipe, "layers": repr(run.model)}, observed, sets)
    made = saved.resume() if resume else Made()
    watched = run.watched(validation, test_epsilon, recipe)
    size = chunk_size(run.model, run.x, symbols, batches[0], memory)
    bar = Bar(*watched, size, made.steps)
    if shown(progress):
        callbacks = [*callbacks, bar]
    started, void_at_step = time.perf_counter() - made.seconds, made.void_at_step
    with saved, bar:
        on_sets = run.on_sets(sets, batches, symbols, size, made.steps)
        for number, _ in enumerate(run.on_observed(observed, batches, made.steps), start=made.steps + 1):
            value = None
            if void_at_step is None:
                try:
                    value = next(on_sets)
                except VoidBounds:
                    void_at_step = number
                    bar.void(number)
            if value is not None and callbacks:
                _report(number, len(batches), value, certified, nominal, recipe, callbacks)
            saved.hold(Made(number, void_at_step, time.perf_counter() - started))  # once everyone has been told of it
    record = recipe if void_at_step is None else {**recipe, "void_at_step": void_at_step}
    seconds = time.perf_counter() - started
    return Certificate(certified.eval() if void_at_step is None else None, nominal.eval(), record, seconds)


def in_training(model: nn.Module) -> nn.Module:
    """Training mode, but for BatchNorm that was put in evaluation mode: only there each sample stands for itself."""
    fixed = [module for module in model.modules() if isinstance(module, _BatchNorm) and not module.training]
    model.train()
    for module in fixed:
        module.eval()
    return model


class _Run:
    """Data, model and recipe of one training, checked."""

    def __init__(
        self,
        model: nn.Module,
        data: tuple[Any, Any],
        threat: Threat,
        loss: str,
        optimizer: type[torch.optim.Optimizer],
        options: dict[str, Any],
        schedule: Callable[[torch.optim.Optimizer], Any] | None,
        seed: int,
        device: Any,
        dtype: torch.dtype | None,
    ):
        if loss not in LOSSES:
            raise ValueError(f"loss must be one of {', '.join(LOSSES)}, not {loss!r}")
        if any(isinstance(parameter, Bounded) for parameter in model.parameters()):
            raise BoundFlowError("certify lifts a copy of the model itself: give it a plain one")
        self.loss, self.optimizer, self.options, self.schedule, self.seed = loss, optimizer, options, schedule, seed
        reference = next(model.parameters())
        self.x = torch.as_tensor(data[0]).detach()
        if not self.x.is_floating_point():
            raise ValueError("inputs must be floats in the range the threat is about: convert integer images first")
        self.x = self.x.to(device or reference.device, dtype or self.x.dtype)
        self.model = in_training(copy.deepcopy(model).to(self.x.device, self.x.dtype))
        self.y = self.targets = self._targets(torch.as_tensor(data[1]).to(self.x.device))
        if loss == "ce" and threat.touches("targets"):
            self.targets = F.one_hot(self.y, self.outputs).to(self.x.dtype)
        threat.check(self.x, self.targets)
        self.threat, self.observed = threat, threat.observed(self.x)
        self.clip_gradients: float | None = None

    def _targets(self, y: Tensor) -> Tensor:
        if len(self.x) == 0:
            raise ValueError("there are no samples to train on")
        if len(self.x) != len(y):
            raise ValueError(f"{len(self.x)} inputs and {len(y)} targets")
        with torch.no_grad():
            found = copy.deepcopy(self.model).eval()(torch.zeros_like(self.x[:1]))
        if not isinstance(found, Tensor) or found.dim() != 2:
            shape = (
                f"shape {(len(self.x), *found.shape[1:])}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
            )
            raise ValueError(f"the model must put out (samples, outputs), with one column for one output, not {shape}")
        self.outputs = found.shape[1]
        if self.loss == REGRESSION:
            y = y.to(self.x.dtype).reshape(len(y), -1)
            if y.shape[1] != self.outputs or not bool(torch.isfinite(y).all()):
                raise ValueError(f"targets must be {self.outputs} finite numbers for each input, as the model puts out")
            return y
        if y.numel() != len(y):
            raise ValueError(f"labels must be one whole number for each input, and they have shape {tuple(y.shape)}")
        if self.loss == "ce" and self.outputs < 2:
            raise ValueError("the loss 'ce' needs a model with an output for each class, and this one has 1: use 'bce'")
        y = y.reshape(-1)
        classes = 2 if self.loss in ("bce", "hinge") else self.outputs
        if self.loss in ("bce", "hinge") and self.outputs != 1:
            raise ValueError(
                f"the loss {self.loss!r} needs a model with one output, and this one has {self.outputs}: use 'ce'"
            )
        if bool((y < 0).any()) or bool((y >= classes).any()) or bool((y != y.long()).any()):
            raise ValueError(f"labels must be whole numbers from 0 to {classes - 1}")
        return y.long() if self.loss == "ce" else y.to(self.x.dtype).reshape(-1, 1)

    def trainer(self, model: nn.Module) -> Trainer:
        """A model with its optimizer. Options are copied: a schedule writes into a learning rate that is a tensor."""
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = self.optimizer(parameters, **copy.deepcopy(self.options))
        return Trainer(model, optimizer, self.schedule(optimizer) if self.schedule else None)

    def schedule_record(self, steps: int) -> dict[str, str] | None:
        """A schedule is code, which no file holds: its name, and a fingerprint of all it does to the options."""
        if self.schedule is None:
            return None
        trial, digest = self.trainer(copy.deepcopy(self.model)), hashlib.sha256()
        for _ in range(steps):
            trial.skip(1)
            for group in trial.optimizer.param_groups:
                digest.update(repr([_recorded(group[key]) for key in sorted(group) if key != "params"]).encode())
        return {"name": type(trial.schedule).__name__, "options": digest.hexdigest()}

    def watched(self, validation: tuple[Any, Any] | None, epsilon: Any, recipe: dict[str, Any]) -> tuple[Any, Any, Any]:
        """What a progress bar measures on: inputs, targets and the perturbation of the inputs."""
        if validation is None:
            if bool((torch.as_tensor(epsilon) != 0).any()):
                raise ValueError("test_epsilon is about a validation set: give validation=(X, y) as well")
            some = torch.randperm(len(self.x), generator=torch.Generator().manual_seed(0))[:SAMPLES].to(self.x.device)
            return self.observed[some], self.y[some], 0.0
        x, y = (torch.as_tensor(part) for part in validation)
        if len(x) != len(y):
            raise ValueError(f"{len(x)} validation inputs and {len(y)} targets")
        Linf(epsilon)  # what is wrong is said now, and not in the middle of the run
        Certificate(None, copy.deepcopy(self.model).eval(), recipe).predict(x)
        return x, y, epsilon

    def on_observed(self, trainer: Trainer, batches: Sequence[Tensor], first: int) -> Iterator[Tensor]:
        """Ordinary training from step ``first`` on; yields the loss of every step after the step was made."""
        model = trainer.model

        def backward(index: Tensor, number: int) -> Tensor:
            return self._backward(model, Lifted(self.observed[index], self.y[index], None), number, None)

        def gradients(index: Tensor, number: int) -> Tensor:
            if self.clip_gradients is None:
                return backward(index, number)
            return clipped_gradients(model, index, lambda one: backward(one, number), self.clip_gradients, None)

        return self._steps(trainer, batches, gradients, None, first)

    def on_sets(
        self, trainer: Trainer, batches: Sequence[Tensor], symbols: Symbols | None, size: int, first: int
    ) -> Iterator[Tensor]:
        """The same training on sets, at most ``size`` samples of a batch at a time."""
        model = trainer.model

        def lifted(index: Tensor) -> Lifted:
            return self.threat.lift(symbols, self.x[index], self.targets[index], index)

        def gradients(index: Tensor, number: int) -> Tensor:
            if self.clip_gradients is not None:
                return clipped_gradients(
                    model,
                    index,
                    lambda one: self._backward(model, lifted(one), number, None),
                    self.clip_gradients,
                    self.threat,
                )
            if len(index) <= size:
                return self._backward(model, lifted(index), number, None)
            pieces = index.split(size)
            assert symbols is not None
            return accumulated(
                symbols, model, pieces, lambda piece: self._backward(model, lifted(piece), number, len(index))
            )

        return self._steps(trainer, batches, gradients, symbols, first)

    def _steps(
        self, trainer: Trainer, batches: Sequence[Tensor], gradients: Callable, symbols: Symbols | None, first: int
    ) -> Iterator[Tensor]:
        optimizer, schedule = trainer.optimizer, trainer.schedule
        if symbols is not None:
            symbols.attach(optimizer)
        for number, index in enumerate(batches[first:], start=first):
            optimizer.zero_grad()
            value = gradients(index, number)
            optimizer.step()
            if schedule is not None:
                schedule.step()
            yield value

    def _backward(self, model: nn.Module, batch: Lifted, number: int, of: int | None) -> Tensor:
        """The loss of a batch, or of a piece of a batch ``of`` so many samples, after its backward pass."""
        loss = LOSSES[self.loss]
        with torch.random.fork_rng(devices=[self.x.device] if self.x.is_cuda else []):
            torch.manual_seed(1_000_003 * self.seed + number)  # the masks of dropout are part of the recipe
            outputs = model(batch.inputs)
        if batch.weights is None and of is None:
            value = loss(outputs, batch.targets)
        else:  # a removed sample has weight 0 in its slot, and the mean still divides by all of them
            losses = loss(outputs, batch.targets, reduction="none").reshape(len(outputs), -1).mean(1)
            value = (losses if batch.weights is None else losses * batch.weights).sum() / (of or len(outputs))
        value.backward()
        return value.detach()


def _replaced(threat: Threat) -> str:
    """How many samples count as replaced."""
    clauses = [clause for clause in threat.clauses if any(change.about == "gradients" for change in clause.changes)]
    budgets = [clause.budget for clause in clauses if clause.budget is not None]
    return f"at most {sum(budgets)} samples" if len(budgets) == len(clauses) else "all samples that the threat names"


def _recorded(option: Any) -> Any:
    """An option of an optimizer as a certificate writes it down."""
    if isinstance(option, Tensor):
        return option.tolist()
    if isinstance(option, list | tuple):
        return [_recorded(part) for part in option]
    return option if option is None or isinstance(option, bool | int | float | str) else repr(option)


def _batches(samples: int, size: int | None, epochs: int, seed: int, device: torch.device) -> Iterator[Tensor]:
    """Sample numbers of every step: all in order, or shuffled anew each epoch."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        if size is None:
            yield torch.arange(samples, device=device)
        else:
            yield from torch.randperm(samples, generator=generator).to(device).split(size)


def _report(
    number: int,
    total: int,
    loss: Any,
    model: nn.Module,
    nominal: nn.Module,
    recipe: dict[str, Any],
    callbacks: Sequence[Callable[[Step], None]],
) -> None:
    widths = [float((parameter.upper - parameter.lower).mean()) for parameter in model.parameters()]  # type: ignore[attr-defined]
    step = Step(number, total, float(loss.center), sum(widths) / len(widths), model, nominal, recipe)
    for callback in callbacks:
        with space_of(model).aside():
            callback(step)
