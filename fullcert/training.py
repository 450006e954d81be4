"""One recipe, trained twice: on the observed data with plain PyTorch, and on every dataset the threat allows.

Both go through the same loop. Only `lift` knows whether a batch is a tensor or a set of tensors.
"""

import copy
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import boundflow as bf
from fullcert import datasets, models
from fullcert.losses import Loss, loss_for
from fullcert.mistakes import Mistake, choose
from fullcert.options import Options

Lift = Callable[[Tensor], tuple[Tensor, Tensor]]
Progress = Callable[[int, int, float], None]

DTYPES = {"float32": torch.float32, "float64": torch.float64}

OPTIMIZERS: dict[str, Callable[[Iterator[nn.Parameter], Options], Optimizer]] = {
    "sgd": lambda p, o: torch.optim.SGD(p, lr=o.lr, momentum=o.momentum, weight_decay=o.weight_decay),
    "adam": lambda p, o: torch.optim.Adam(p, lr=o.lr, weight_decay=o.weight_decay),
    "adamw": lambda p, o: torch.optim.AdamW(p, lr=o.lr, weight_decay=o.weight_decay),
    "rmsprop": lambda p, o: torch.optim.RMSprop(p, lr=o.lr, momentum=o.momentum, weight_decay=o.weight_decay),
}


class Samples(NamedTuple):
    """A split on the device and in the precision of the run."""

    inputs: Tensor
    labels: Tensor


class Certified(NamedTuple):
    """What certified training leaves: the set of all models, or the step at which its bounds became void."""

    model: nn.Module | None
    void_at_step: int | None
    seconds: float


class Recipe:
    """Options with every name looked up and the data loaded: all that a user can get wrong is raised here."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.device = available(options.device)
        self.dtype = choose("dtype", options.dtype, DTYPES)
        if max(options.epsilon, options.test_epsilon) > torch.finfo(self.dtype).max:
            raise Mistake(f"--epsilon and --test-epsilon must be finite in {options.dtype}")
        self.make_optimizer = choose("optimizer", options.optimizer, OPTIMIZERS)
        self.lift_run = choose("domain", options.domain, DOMAINS)
        data = datasets.load(options.dataset, Path(options.data_dir), options.seed)
        self.train, self.validation, self.test = map(self.on_device, (data.train, data.validation, data.test))
        self.classes = data.classes
        self.planar = data.classes == 2 and self.train.inputs.shape[1:] == (2,)  # can be drawn
        self.loss = loss_for(options.loss, data.classes)
        self.targets = self.loss.targets(self.train.labels, like=self.train.inputs)
        features = self.train.inputs[0].numel()
        self.initial = models.build(options, features, self.loss.outputs(data.classes)).to(self.device, self.dtype)
        self.batches = batches(len(self.targets), options, self.device)

    def on_device(self, split: datasets.Split) -> Samples:
        inputs = torch.as_tensor(split.inputs, dtype=self.dtype, device=self.device)
        return Samples(inputs, torch.as_tensor(split.labels, device=self.device))

    def train_plain(self) -> nn.Module:
        """The model that PyTorch trains on the data as observed."""
        model = copy.deepcopy(self.initial)
        optimizer = self.make_optimizer(model.parameters(), self.options)
        for _ in descend(model, optimizer, self.loss, self.batches, self.observed):
            pass
        return model

    def train_certified(self, progress: Progress) -> Certified:
        """The set of models that PyTorch trains on all datasets of the threat."""
        started, model = time.perf_counter(), copy.deepcopy(self.initial)
        void_at_step = self.train_set(model, progress)
        return Certified(None if void_at_step else model, void_at_step, time.perf_counter() - started)

    def train_set(self, model: nn.Module, progress: Progress) -> int | None:
        """Train on sets, in place. Returns the step at which the bounds became void, if they did."""
        steps = 0
        try:
            optimizer = self.make_optimizer(model.parameters(), self.options)
            lift = self.lift_run(self, model, optimizer)
            for steps, value in enumerate(descend(model, optimizer, self.loss, self.batches, lift), start=1):
                progress(steps, len(self.batches), value.center.item())
        except bf.VoidBounds:
            return steps + 1
        except bf.UnsupportedOperator as error:
            raise Mistake(f"this recipe cannot be bounded: {error}") from error
        return None

    def observed(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """A batch as it was observed."""
        return self.train.inputs[index], self.targets[index]


def descend(model: nn.Module, optimizer: Optimizer, loss: Loss, batches: list[Tensor], lift: Lift) -> Iterator[Any]:
    """Ordinary PyTorch training, one step at a time; yields the loss of each step."""
    for index in batches:
        inputs, targets = lift(index)
        optimizer.zero_grad()
        value = loss.value(model(inputs), targets)
        value.backward()
        optimizer.step()
        yield value


def interval(recipe: Recipe, model: nn.Module, optimizer: Optimizer) -> Lift:
    """Sets are boxes: every step forgets how its errors depend on the data."""
    bf.lift(model)

    def lift(index: Tensor) -> tuple[Tensor, Tensor]:
        inputs, targets = recipe.observed(index)
        return bf.ball(inputs, recipe.options.epsilon), targets

    return lift


def zonotope(recipe: Recipe, model: nn.Module, optimizer: Optimizer) -> Lift:
    """Sets remember which training sample moved them, so the same sample's effects can cancel later."""
    symbols = bf.Symbols(bf.threats.Linf(recipe.options.epsilon), order=recipe.options.order)
    bf.lift(model, symbols)
    symbols.attach(optimizer)
    return lambda index: symbols.lift(*recipe.observed(index), index)


DOMAINS: dict[str, Callable[[Recipe, nn.Module, Optimizer], Lift]] = {"interval": interval, "zonotope": zonotope}


def batches(samples: int, options: Options, device: torch.device) -> list[Tensor]:
    """The sample indices of every step, fixed before training: a full batch in order, or shuffled every epoch."""
    if options.batch_size == 0:
        return [torch.arange(samples, device=device)] * options.epochs
    generator = torch.Generator().manual_seed(options.seed)
    orders = [torch.randperm(samples, generator=generator).to(device) for _ in range(options.epochs)]
    return [index for order in orders for index in order.split(options.batch_size)]


def available(name: str) -> torch.device:
    """The device called `name`, if this machine has it."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise Mistake(f"the device {name!r} is not available here") from None
    return device
