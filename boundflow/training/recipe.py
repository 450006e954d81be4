"""Recipe: everything `certify` is told about training, in one place.

A certificate speaks of the training algorithm with all its choices fixed, so this is what it is about. The command, the
estimators, checkpoints and the record of a certificate use the same object.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..arithmetic.tuned_numbers import MEMORY
from ..errors import UnsupportedProgram
from ..files.training_state import Trainer
from ..operators.losses import LOSSES
from ..same_program.identity import of_value
from ..symbols import reduction

DOMAINS = ("interval", "zonotope")


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    ``batch_size=None`` takes all samples at once; otherwise batches are shuffled anew each epoch, by the seed.
    ``steps`` ends training after so many steps. ``clip_gradients`` clips the gradient of every single sample to that
    norm before the mean is taken, in plain training too: slower, and what bounds a sample that may be anything.
    ``order`` is how many error rows are kept per trained scalar and ``reduction`` how they are chosen. ``memory``
    (bytes) is what a run on zonotopes may take besides its data, within a third (`memory_plan.py`): it decides how much
    of a batch is held at a time and whether every sample gets rows of its own, and what cannot fit is refused.
    ``compile`` traces and compiles the step where that is possible (`compiled_steps.py`): ``"auto"`` for runs long
    enough to gain by it.
    ``sample_weights`` (N,) multiply the losses of samples before the mean over all of them: numbers that are fixed
    before training, whatever the data are.
    """

    loss: str = "ce"
    optimizer: type[torch.optim.Optimizer] = torch.optim.SGD
    optimizer_options: dict[str, Any] = field(default_factory=dict)
    schedule: Callable[[torch.optim.Optimizer], Any] | None = None
    epochs: int = 1
    steps: int | None = None
    batch_size: int | None = None
    seed: int = 0
    domain: str = "zonotope"
    order: int = 20
    reduction: str = "girard"
    clip_gradients: float | None = None
    sample_weights: Tensor | None = field(default=None, compare=False)
    memory: float = MEMORY
    compile: bool | str = "auto"
    device: torch.device | str | None = None
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        if self.optimizer_options is None:
            object.__setattr__(self, "optimizer_options", {})
        for name, known in (("loss", LOSSES), ("domain", DOMAINS), ("reduction", reduction.METHODS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, not {getattr(self, name)!r}")
        if self.compile not in (True, False, "auto"):
            raise ValueError(f"compile must be True, False or 'auto', not {self.compile!r}")
        for name in ("epochs", "batch_size", "steps"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        if self.clip_gradients is not None and not self.clip_gradients > 0:
            raise ValueError(f"clip_gradients must be a positive norm, got {self.clip_gradients}")

    def but(self, **fields: Any) -> Recipe:
        """The same recipe with some fields changed."""
        known = [each.name for each in dataclasses.fields(self)]
        unknown = [name for name in fields if name not in known]
        if unknown:
            raise TypeError(f"a recipe has no {unknown[0]!r}: it has {', '.join(known)}")
        return dataclasses.replace(self, **fields)

    @property
    def regression(self) -> bool:
        return LOSSES[self.loss].outputs == "values"

    def batches(self, samples: int, device: torch.device) -> list[Tensor]:
        """Sample numbers of every step: all in order, or shuffled anew each epoch."""

        def each() -> Iterator[Tensor]:
            generator = torch.Generator().manual_seed(self.seed)
            for _ in range(self.epochs):
                if self.batch_size is None:
                    yield torch.arange(samples, device=device)
                else:
                    yield from torch.split(torch.randperm(samples, generator=generator).to(device), self.batch_size)

        return list(itertools.islice(each(), self.steps))

    def seed_of_step(self, number: int) -> int:
        """The seed of the random numbers of a step: a plain training gives it to ``torch.manual_seed`` before each."""
        return 1_000_003 * self.seed + number

    def trainer(self, model: nn.Module) -> Trainer:
        """A model with its optimizer. Options are copied: a schedule writes into a learning rate that is a tensor."""
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = self.optimizer(parameters, **copy.deepcopy(self.optimizer_options))
        _require_step_alone(optimizer, "calls the model by itself, several times a step: use SGD or Adam")
        schedule = self.schedule(optimizer) if self.schedule else None
        if schedule is not None:
            _require_step_alone(schedule, "looks at a value, which is a choice made on data: use one that counts steps")
        return Trainer(model, optimizer, schedule)

    def record(self, model: nn.Module, steps: int) -> dict[str, Any]:
        """What a certificate says of the recipe."""
        zonotope = self.domain == "zonotope"
        said = {
            "loss": self.loss,
            "task": "regression" if self.regression else "classification",
            "optimizer": self.optimizer.__name__,
            "optimizer_options": {key: _recorded(option) for key, option in self.optimizer_options.items()},
            "schedule": self._schedule_record(model, steps),
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "seed": self.seed,
            "domain": self.domain,
            "order": self.order if zonotope else None,
            "clip_gradients": self.clip_gradients,
            "steps": steps,
            "step_chosen": "the number of steps was fixed before training",
        }
        return said | ({"reduction": self.reduction} if zonotope and self.reduction != "girard" else {})

    def _schedule_record(self, model: nn.Module, steps: int) -> dict[str, str] | None:
        """A schedule is code, which no file holds: its name, and a fingerprint of all it does to the options."""
        if self.schedule is None:
            return None
        trial, digest = self.trainer(copy.deepcopy(model)), hashlib.sha256()
        for _ in range(steps):
            trial.skip(1)
            for group in trial.optimizer.param_groups:
                digest.update(of_value([group[key] for key in sorted(group) if key != "params"]).encode())
        return {"name": type(trial.schedule).__name__, "options": digest.hexdigest()}


def _require_step_alone(stepping: Any, why: str) -> None:
    """Refuse optimizers and schedules whose step must be given something."""
    needed = [p for p in inspect.signature(stepping.step).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    if any(parameter.default is parameter.empty for parameter in needed):
        raise UnsupportedProgram(f"{type(stepping).__name__} {why}")


def _recorded(option: Any) -> Any:
    """An option of an optimizer as a certificate writes it down."""
    if isinstance(option, Tensor):
        return option.tolist()
    if isinstance(option, list | tuple):
        return [_recorded(part) for part in option]
    return option if option is None or isinstance(option, bool | int | float | str) else of_value(option)
