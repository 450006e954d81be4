"""certify(): train on every dataset of a threat at once.

    lift the batch; forward; loss; backward; promote; optimizer step; reduce

The loop is the one a user of PyTorch would write. It runs twice with the same initial weights, batches, masks and
options: on the observed data with plain tensors (the nominal model), and on sets. All choices are fixed before the
first step, the number of steps included, and the certificate records them.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .bounded import Bounded
from .certificate import REGRESSION, Certificate, fingerprint, versions
from .errors import BoundFlowError, VoidBounds
from .lift import lift
from .losses import hinge
from .symbols import Symbols
from .threats import Threat

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "bce": F.binary_cross_entropy_with_logits,
    "hinge": hinge,
    "ce": F.cross_entropy,
    "mse": F.mse_loss,
}
DOMAINS = ("interval", "zonotope")


@dataclass(frozen=True)
class Step:
    """What a callback sees after each step of certified training."""

    number: int
    total: int
    loss: float  # at the center of the set
    width: float  # mean width of the parameters
    model: nn.Module


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
    batch_size: int | None = None,
    seed: int = 0,
    domain: str = "zonotope",
    order: int = 20,
    device: Any = None,
    dtype: torch.dtype | None = None,
    callbacks: Sequence[Callable[[Step], None]] = (),
) -> Certificate:
    """Train a copy of ``model`` on every dataset the threat allows, and on the observed one.

    ``data`` are inputs (N, ...) and targets (N,): classes for "bce", "hinge" and "ce", numbers for "mse". Parameters
    that do not require gradients stay frozen. A pretrained model is a model like any other: its weights are the trusted
    start. ``batch_size=None`` takes all samples at once; otherwise batches are shuffled anew each epoch, by the seed.
    If the bounds become void, training stops and the certificate says at which step; it then certifies nothing. (A
    threat whose very first sets are not finite raises.)
    """
    run = _Run(model, data, loss, optimizer, optimizer_options or {}, schedule, seed, device, dtype)
    if domain not in DOMAINS:
        raise ValueError(f"domain must be one of {', '.join(DOMAINS)}, not {domain!r}")
    if epochs < 1 or (batch_size is not None and batch_size < 1):
        raise ValueError(f"epochs and batch_size must be at least 1, got {epochs} and {batch_size}")
    threat.check(run.x)
    batches = list(_batches(len(run.x), batch_size, epochs, seed, run.x.device))
    nominal = copy.deepcopy(run.model)
    for _ in run.steps(nominal, batches, lambda index: (run.x[index], run.y[index]), None):
        pass
    started, void_at_step = time.perf_counter(), None
    certified: nn.Module | None = copy.deepcopy(run.model)
    assert certified is not None
    symbols = Symbols(threat, order=order) if domain == "zonotope" else None
    lift(certified, symbols)

    def sets(index: Tensor) -> tuple[Tensor, Tensor]:
        if symbols is not None:
            return symbols.lift(run.x[index], run.y[index], index)
        return threat.box(run.x[index]), run.y[index]

    number = 0
    try:
        for number, value in enumerate(run.steps(certified, batches, sets, symbols), start=1):
            _report(number, len(batches), value, certified, callbacks)
    except VoidBounds:
        certified, void_at_step = None, number + 1
    record = {
        "loss": loss,
        "threat": repr(threat),
        "optimizer": optimizer.__name__,
        "optimizer_options": {key: _recorded(option) for key, option in (optimizer_options or {}).items()},
        "epochs": epochs,
        "batch_size": batch_size,
        "seed": seed,
        "domain": domain,
        "order": order if domain == "zonotope" else None,
        "steps": len(batches),
        "step_chosen": "the number of steps was fixed before training",
        "input_shape": list(run.x.shape[1:]),
        "samples": len(run.x),
        "data": fingerprint(run.x, run.y),
        "dtype": str(run.x.dtype).removeprefix("torch."),
        **versions(),
    }
    if void_at_step is not None:
        record["void_at_step"] = void_at_step
    seconds = time.perf_counter() - started
    return Certificate(certified.eval() if certified is not None else None, nominal.eval(), record, seconds)


class _Run:
    """Data, model and recipe of one training, checked."""

    def __init__(
        self,
        model: nn.Module,
        data: tuple[Any, Any],
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
        self.x = torch.as_tensor(data[0])
        if not self.x.is_floating_point():
            raise ValueError("inputs must be floats in the range the threat is about: convert integer images first")
        self.x = self.x.to(device or reference.device, dtype or self.x.dtype)
        self.model = copy.deepcopy(model).to(self.x.device, self.x.dtype).train()
        self.y = self._targets(torch.as_tensor(data[1]).to(self.x.device))

    def _targets(self, y: Tensor) -> Tensor:
        if len(self.x) == 0:
            raise ValueError("there are no samples to train on")
        if len(self.x) != len(y):
            raise ValueError(f"{len(self.x)} inputs and {len(y)} targets")
        with torch.no_grad():
            outputs = copy.deepcopy(self.model).eval()(self.x[:1]).shape[1]
        if self.loss == REGRESSION:
            return y.to(self.x.dtype).reshape(len(y), -1)
        classes = 2 if self.loss in ("bce", "hinge") else outputs
        if self.loss in ("bce", "hinge") and outputs != 1:
            raise ValueError(
                f"the loss {self.loss!r} needs a model with one output, and this one has {outputs}: use 'ce'"
            )
        if bool((y < 0).any()) or bool((y >= classes).any()) or bool((y != y.long()).any()):
            raise ValueError(f"labels must be whole numbers from 0 to {classes - 1}")
        return y.long() if self.loss == "ce" else y.to(self.x.dtype).reshape(-1, 1)

    def steps(
        self, model: nn.Module, batches: Sequence[Tensor], batch: Callable, symbols: Symbols | None
    ) -> Iterator[Tensor]:
        """Ordinary training; yields the loss of every step after the step was made."""
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = self.optimizer(parameters, **self.options)
        schedule = self.schedule(optimizer) if self.schedule else None
        if symbols is not None:
            symbols.attach(optimizer)
        loss = LOSSES[self.loss]
        devices = [self.x.device] if self.x.is_cuda else []
        for number, index in enumerate(batches):
            inputs, targets = batch(index)
            with torch.random.fork_rng(devices=devices):
                torch.manual_seed(1_000_003 * self.seed + number)  # the masks of dropout are part of the recipe
                value = loss(model(inputs), targets)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            if schedule is not None:
                schedule.step()
            yield value


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


def _report(number: int, total: int, loss: Any, model: nn.Module, callbacks: Sequence[Callable[[Step], None]]) -> None:
    if not callbacks:
        return
    widths = [float((parameter.upper - parameter.lower).mean()) for parameter in model.parameters()]  # type: ignore[attr-defined]
    step = Step(number, total, float(loss.center), sum(widths) / len(widths), model)
    for callback in callbacks:
        callback(step)
