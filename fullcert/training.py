"""One recipe: options with every name looked up and the data loaded, ready to be trained by `bf.certify`."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

import boundflow as bf
from boundflow.training import DOMAINS
from fullcert import datasets, losses, models
from fullcert.mistakes import Mistake, check_known, choose
from fullcert.options import Options

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
        self.options = options
        self.device = available(options.device)
        self.dtype = choose("dtype", options.dtype, DTYPES)
        check_precision(options, self.dtype)
        check_known("domain", options.domain, DOMAINS)
        self.optimizer, taken = choose("optimizer", options.optimizer, OPTIMIZERS)
        self.optimizer_options = {name: getattr(options, name) for name in taken}
        self.data = datasets.load(options.dataset, Path(options.data_dir), options.seed)
        self.planar = self.data.classes == 2 and self.data.train.inputs.shape[1:] == (2,)  # can be drawn
        outputs = losses.outputs(options.loss, self.data.classes)
        self.initial = models.build(options, self.data.train.inputs.shape[1:], outputs)

    def certify(self, progress: Callable[[bf.Step], None]) -> bf.Certificate:
        """Train on the observed data, and on every dataset the threat allows."""
        options, train = self.options, self.data.train
        try:
            certificate = bf.certify(
                self.initial,
                (train.inputs, losses.targets(options.loss, train.labels)),
                threat=bf.threats.Linf(options.epsilon),
                loss=options.loss,
                optimizer=self.optimizer,
                optimizer_options=self.optimizer_options,
                epochs=options.epochs,
                batch_size=options.batch_size or None,
                seed=options.seed,
                domain=options.domain,
                order=options.order,
                device=self.device,
                dtype=self.dtype,
                callbacks=[progress],
                progress=False,  # the command has a bar of its own
            )
        except (bf.UnsupportedOperator, bf.VoidBounds) as error:  # void before the first step
            raise Mistake(f"this recipe cannot be bounded: {error}") from error
        return losses.of_classes(certificate)


def check_precision(options: Options, dtype: torch.dtype) -> None:
    """Refuse an epsilon that would become infinite, or nothing at all, in the precision of the run."""
    limits = torch.finfo(dtype)
    for epsilon in (options.epsilon, options.test_epsilon):
        if epsilon != 0 and not limits.tiny <= epsilon <= limits.max:
            raise Mistake(
                f"--epsilon and --test-epsilon must be 0 or normal numbers in {options.dtype}: {epsilon:g} is not"
            )


def available(name: str) -> torch.device:
    """The device called `name`, if this machine has it."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise Mistake(f"the device {name!r} is not available here") from None
    return device
