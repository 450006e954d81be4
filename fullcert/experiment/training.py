"""One recipe: options with every name looked up and the data loaded, ready to be trained by `bf.certify`."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import LambdaLR

import boundflow as bf
from boundflow.operators.losses import LOSSES
from boundflow.training.recipe import DOMAINS
from fullcert.data.datasets import Split
from fullcert.data.encoding import SCALED, Number
from fullcert.experiment import identity, losses, recipes, tasks, threats
from fullcert.experiment.identity import Identity, Kept
from fullcert.experiment.options import Options, situation
from fullcert.networks import models, optimum_fitting, optimum_rules
from fullcert.system import processes, widening
from fullcert.system.mistakes import LESS_MEMORY, Mistake, check_known, choose

DTYPES = {"float32": torch.float32, "float64": torch.float64}

# optimizer -> the options it takes
OPTIMIZERS: dict[str, tuple[type[Optimizer], tuple[str, ...]]] = {
    "sgd": (SGD, ("lr", "momentum", "weight_decay")),
    "adam": (Adam, ("lr", "weight_decay")),
    "adamw": (AdamW, ("lr", "weight_decay")),
    "rmsprop": (RMSprop, ("lr", "momentum", "weight_decay")),
}


class Recipe:
    """What is fixed before the first step: all that a user can get wrong is raised here."""

    def __init__(self, options: Options) -> None:
        self.asked = options  # before what the data decide is filled in
        self.device = available(options.device)
        self.dtype = choose("dtype", options.dtype, DTYPES)
        check_precision(options, self.dtype)
        check_known("domain", options.domain, DOMAINS)
        self.optimizer, taken = choose("optimizer", options.optimizer, OPTIMIZERS)
        self.task = tasks.load(options)
        self.data, classes = self.task.data, self.task.data.classes
        loss, missing = losses.chosen(options.loss, classes), self.task.missing or options.missing
        rate = losses.learning_rate(loss, classes)
        lr = rate if options.lr is None else options.lr
        kept, options = replace(options, missing=missing), replace(options, loss=loss, lr=lr, missing=missing)
        self.options = kept if self.converges else options
        self.rule = recipes.record(situation(asdict(options)), asdict(options), rate)
        self.optimizer_options = {name: getattr(options, name) for name in taken}
        outputs = losses.outputs(options.loss, classes)
        unit = torch.finfo(self.dtype).eps
        train = self.data.train.inputs
        subject = threats.Subject(train, self.task.encoding, classes, self.data.valid, unit, *self.reaches())
        self.threats = threats.build(options, subject)
        self.code: dict[str, str] = {}  # the digests of the user's own files
        initial = models.build(options, train.shape[1:], outputs, self.code)
        if self.task.trusted is not None:
            self.pretrain(initial, self.task.trusted)
        self.initial = models.freeze(initial, options.frozen)
        if self.converges:
            self.require_table()
        if ":" in options.tuned_on:
            identity.require_choice(options, self.identity)

    @property
    def converges(self) -> bool:
        """Whether the optimum is fitted, and nothing is trained step by step."""
        return self.asked.fit == "optimum"

    def require_table(self) -> None:
        """Refuse what is not fitted to the optimum here."""
        if self.data.train.inputs.ndim != 2:
            raise Mistake("--fit optimum is for tables: use --fit steps for images")
        if not threats.changes_labels_alone(self.threats.training):
            raise Mistake("--fit optimum is for --flip-labels or --target-tolerance alone: use --fit steps")

    def reaches(self) -> tuple[np.ndarray, float]:
        """The largest modulus of every input, and of a target, in all samples; what is missing has none."""
        splits = (self.data.train, self.data.validation, self.data.test)
        targets = max(float(np.abs(split.labels).max(initial=0)) for split in splits)
        return threats.largest(*(split.inputs for split in splits)), targets

    @cached_property
    def identity(self) -> Identity:
        """What a run of this rests on."""
        return identity.of(self.options, self.task, self.code)

    def pretrain(self, model: nn.Module, trusted: Split) -> None:
        """Plain training on trusted data, whose weights certified training starts from."""
        options, loss = self.options, LOSSES[self.options.loss]
        x, y = self.tensors(trusted)
        x, y = x.double().cpu(), self.compared(y)
        optimizer = self.optimizer(model.parameters(), **self.optimizer_options)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(options.seed)
            for _ in range(options.trusted_epochs):
                for batch in torch.randperm(len(x)).split(options.batch_size or len(x)):
                    optimizer.zero_grad()
                    loss(model(x[batch]), y[batch]).backward()
                    optimizer.step()
        if not all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters()):
            raise Mistake("training on the trusted data diverged: use a smaller --lr or fewer --trusted-epochs")

    def compared(self, labels: Tensor) -> Tensor:
        """Labels in the form that the loss of plain PyTorch takes."""
        loss, classes = self.options.loss, self.data.classes
        made = torch.from_numpy(losses.targets(loss, classes, labels.cpu().numpy()))
        return made if LOSSES[loss].outputs == "classes" else made.double().unsqueeze(1)

    def tensors(self, split: Split) -> tuple[Tensor, Tensor]:
        return torch.as_tensor(split.inputs, dtype=self.dtype, device=self.device), torch.from_numpy(split.labels)

    def observed(self) -> tuple[np.ndarray, np.ndarray]:
        """The training data as they are, with targets in the form that the loss takes."""
        train = self.data.train
        return train.inputs, losses.targets(self.options.loss, self.data.classes, train.labels)

    def program(self) -> bf.Recipe:
        """How the network is trained, as the library takes it."""
        options, decay = self.options, self.options.lr_decay
        return bf.Recipe(
            loss=options.loss,
            optimizer=self.optimizer,
            optimizer_options=self.optimizer_options,
            schedule=(lambda o: LambdaLR(o, lambda step: 1 / (1 + decay * step))) if decay else None,
            epochs=options.epochs,
            steps=options.steps,
            batch_size=options.batch_size or None,
            seed=options.seed,
            domain=options.domain,
            order=options.order,
            clip_gradients=options.clip_gradients,
            memory=options.memory * 2**30,
            device=self.device,
            dtype=self.dtype,
        )

    def certify(
        self,
        callbacks: Sequence[Callable[[bf.Step], None]],
        checkpoint: Path | None = None,
        resume: bool = False,
        *,
        rows: np.ndarray | None = None,
        threat: bf.threats.Threat | None = None,
        part: Identity | None = None,
        distributed: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> Any:
        """Train on the observed data, or on some of its rows, and on every dataset the threat allows.

        ``part`` says which of its rows. ``distributed``: together with the other processes of this run
        (`processes.py`). ``tell`` is given what is to be said while sets widen.
        """
        if self.converges:
            return self.fitted(part)
        inputs, labels = self.observed()
        try:
            with widening.told_by(tell):
                certificate = bf.certify(
                    self.initial,
                    (inputs, labels) if rows is None else (inputs[rows], labels[rows]),
                    self.program(),
                    threat=self.threats.training if threat is None else threat,
                    callbacks=callbacks,
                    progress=False,  # the command has a bar of its own
                    checkpoint=checkpoint,
                    resume=resume,
                    distributed=distributed,
                )
        except bf.LostRank as error:
            raise Mistake(str(error), own=True) from error
        except (bf.UnsupportedOperator, bf.VoidBounds) as error:  # void before the first step
            raise Mistake(f"this recipe cannot be bounded: {error}") from error
        except bf.CrossedBounds:  # a bug of ours
            raise
        except bf.TooLittleMemory as error:
            raise Mistake(self.needs_less(error)) from error
        except bf.BoundFlowError as error:  # a checkpoint of another run, for instance
            raise Mistake(str(error)) from error
        certificate.record |= {"recipe": self.rule, identity.KEY: {**self.identity, **(part or {})}}
        return losses.of_task(certificate, self.data.classes)

    def fitted(self, part: Identity | None = None) -> bf.OptimumCertificate:
        """Fit the optimum on the observed data, and enclose those of every dataset the threat allows."""
        options, classes = self.options, self.data.classes
        x, y = self.tensors(self.data.train)
        moved = bool(options.test_epsilon or options.test_tolerance)
        features = "none" if options.features == "auto" and moved else options.features
        given = optimum_fitting.Given(None if features == "auto" else features, l2=options.l2)
        try:
            certificate = optimum_fitting.fitted(
                *(x.double(), y.double() if self.task.regression else y, None if self.task.regression else classes),
                *(self.threats.training, given),
                scaled=self.raw_units(x),
                seed=options.seed,
            )
        except (bf.BoundFlowError, ValueError) as error:
            raise Mistake(f"this cannot be fitted: {error}") from error
        self.rule = certificate.record["recipe"]
        certificate.record |= {
            "steps": 0,
            "seed": options.seed,
            "domain": options.domain,
            "data": certificate.record["identity"]["data"],
            "boundflow": bf.__version__,
            "torch": str(torch.__version__),
            identity.KEY: {**self.identity, **(part or {})},
        }
        return certificate

    def raw_units(self, x: Tensor) -> nn.Linear | None:
        """A layer that gives columns back their own unit, where all are numbers that share one."""
        encoding = self.task.encoding
        columns = [column for column in encoding.columns if isinstance(column, Number)] if encoding else []
        if not encoding or len(columns) < len(encoding.columns):
            return None
        scales = torch.tensor([column.scale for column in columns], dtype=torch.float64)
        if not optimum_rules.share_a_unit((x.cpu().double() * scales).numpy()):
            return None
        layer = nn.Linear(len(scales), len(scales), bias=False).double().requires_grad_(False)
        layer.weight.copy_(scales.diag())
        return layer.to(x.device)

    def needs_less(self, error: bf.TooLittleMemory) -> str:
        """What fits into memory, in flags of the command."""
        if error.needed is None:  # the machine has no more
            return f"there is not enough memory: {LESS_MEMORY}"
        gib, options = error.needed / 2**30, self.options
        fits = [f"--memory {1.1 * gib:.2g}"]
        fits += [f"--order {error.order}"] if error.order is not None else []
        fits += [f"--batch-size {error.batch_size}"] if error.batch_size is not None else []
        return (
            f"this run would take {gib:.2g} GiB and --memory is {options.memory:.3g}: {' or '.join(fits)} would fit, "
            "and --domain interval takes far less"
        )


def of_run(kept: Kept, device: str | None = None) -> Recipe:
    """The recipe of a finished run, refused where what it rests on has changed; on another device where one is named.

    Code of the user is run, if it is that of the run.
    """
    options = kept.options if device is None else replace(kept.options, device=device)
    identity.require_code(kept)
    with identity.loading_again(kept):
        recipe = Recipe(options)
    identity.require_now(kept, recipe.identity)
    return recipe


def check_precision(options: Options, dtype: torch.dtype) -> None:
    """Refuse an epsilon that would be nothing at all in the precision of the run, or beyond all inputs."""
    least = torch.finfo(dtype).tiny
    for epsilon in (options.epsilon, options.test_epsilon):
        if epsilon != 0 and not least <= epsilon <= SCALED:
            raise Mistake(
                f"--epsilon and --test-epsilon must be 0, or normal numbers in {options.dtype} up to {SCALED:g}: "
                f"{epsilon:g} is not"
            )


def available(name: str) -> torch.device:
    """The device called `name`, if this machine has it."""
    name = processes.device(name)
    try:
        device = torch.device(name)
        torch.empty(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise Mistake(f"the device {name!r} is not available here", own=processes.several()) from None
    return device
