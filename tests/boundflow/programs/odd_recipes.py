"""Optimizers, schedules and threats that `certify` is seldom given, on networks that are nothing special."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from .networks_with_noise import Between
from .recipe import Attack
from .table import IN_PIECES, certified

Schedule = Callable[[torch.optim.Optimizer], Any]


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


def entered(name: str, odd: str, expected: str = "contained", make: Callable[[], nn.Module] = small, **options) -> None:
    certified(expected, name=name, odd=odd, **options)(_named(make))


def _named(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """The family of a program is where its function was written down, also if it comes from another file."""

    def made() -> nn.Module:
        return make()

    return made


# --- optimizers -------------------------------------------------------------------------------------------------------


class Signs(torch.optim.Optimizer):
    """Steps by the sign of the gradient, which shrink as a counter of its own says."""

    def __init__(self, parameters: Iterable[Tensor], lr: float):
        super().__init__(parameters, {"lr": lr})
        self.made = 0

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        self.made += 1
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad.sign(), alpha=-group["lr"] / self.made)


class Langevin(torch.optim.SGD):
    """Gradient steps with noise, drawn after the forward pass was seeded."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        super().step()
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(0.01 * torch.randn(parameter.shape, dtype=parameter.dtype))


class Lookahead(torch.optim.SGD):
    """Every second step goes halfway back to slow weights that are kept in the state."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter].setdefault("slow", parameter.detach().clone())
        super().step()
        self.made = getattr(self, "made", 0) + 1
        for parameter, state in self.state.items():
            if self.made % 2 == 0:
                parameter.lerp_(state["slow"], 0.5)
                state["slow"].copy_(parameter)


entered(
    "signs of gradients", "An optimizer of one's own counts its steps.", "either", optimizer=Signs, options={"lr": 0.02}
)
entered(
    "noise in the optimizer", "Steps add noise that is drawn after the backward pass.", "either", optimizer=Langevin
)
entered("slow weights", "An optimizer of one's own keeps slow weights in its state.", "either", optimizer=Lookahead)
entered(
    "lbfgs in certify",
    "An optimizer that asks for the loss several times in a step.",
    "either",
    optimizer=torch.optim.LBFGS,
    options={"lr": 0.1, "max_iter": 2},
)
entered(
    "fused steps", "The fused form of SGD with momentum.", "either", options={"lr": 0.2, "momentum": 0.9, "fused": True}
)
entered(
    "steps by foreach",
    "SGD on lists of tensors, with Nesterov's momentum.",
    "either",
    options={"lr": 0.2, "momentum": 0.9, "nesterov": True, "foreach": True},
)
entered(
    "a learning rate in a tensor",
    "The learning rate is a tensor without dimensions.",
    optimizer=torch.optim.Adam,
    options={"lr": torch.tensor(0.03), "eps": 0.1},
)
entered(
    "largest second moments",
    "Adam with AMSGrad, decay and the loss maximised.",
    optimizer=torch.optim.Adam,
    options={"lr": 0.03, "eps": 0.1, "amsgrad": True, "weight_decay": 0.1, "maximize": True},
)
entered(
    "centered rmsprop",
    "A variance that is a difference of two averages.",
    "either",
    optimizer=torch.optim.RMSprop,
    options={"lr": 0.01, "eps": 0.1, "centered": True, "momentum": 0.5},
)
for rare, chosen in (
    ("Adagrad", {"lr": 0.05, "eps": 0.1}),
    ("Adadelta", {"lr": 0.5, "eps": 0.1}),
    ("Adamax", {"lr": 0.03, "eps": 0.1}),
    ("NAdam", {"lr": 0.03, "eps": 0.1}),
    ("RAdam", {"lr": 0.03, "eps": 0.1}),
    ("Rprop", {"lr": 0.01}),
    ("ASGD", {"lr": 0.1}),
):
    entered(
        rare.lower(),
        f"`torch.optim.{rare}`, which few programs use.",
        "either",
        optimizer=getattr(torch.optim, rare),
        options=chosen,
        domains=("zonotope",),
    )

# --- schedules --------------------------------------------------------------------------------------------------------


def from_an_iterator() -> Schedule:
    """Every call of the schedule takes the next number, so that two runs with one schedule share them."""
    numbers = itertools.count(1)
    return lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / next(numbers))


def at_random() -> Schedule:
    return lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda epoch: random.random())


def up_and_down() -> Schedule:
    return partial(lr_scheduler.OneCycleLR, max_lr=0.3, total_steps=4)


def on_a_plateau() -> Schedule:
    return partial(lr_scheduler.ReduceLROnPlateau, patience=0, threshold=10.0)


def one_after_another() -> Schedule:
    def make(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
        parts = [lr_scheduler.LinearLR(optimizer, 0.2, total_iters=2), lr_scheduler.ExponentialLR(optimizer, 0.5)]
        return lr_scheduler.SequentialLR(optimizer, parts, milestones=[2])

    return make


MOMENTUM = {"lr": 0.2, "momentum": 0.9}
entered(
    "a schedule from an iterator",
    "Two runs with the same schedule would share its numbers.",
    "either",
    make_schedule=from_an_iterator,
)
entered("a schedule at random", "Learning rates are drawn by `random.random()`.", "either", make_schedule=at_random)
entered("a cycle of momentum", "The schedule changes momentum as well.", make_schedule=up_and_down, options=MOMENTUM)
entered(
    "a schedule on a plateau",
    "The schedule wants to see the loss, which is a set.",
    "either",
    make_schedule=on_a_plateau,
)
entered(
    "schedules in a row", "A warm-up and a decay, one after another.", make_schedule=one_after_another, options=MOMENTUM
)

# --- threats ----------------------------------------------------------------------------------------------------------


def dropped() -> nn.Module:
    return Between(lambda h, net: nn.functional.dropout(h, 0.4, net.training))


def three() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.Softplus(), nn.Linear(3, 3))


entered(
    "flipped labels and dropout",
    "At most three labels are wrong, and a mask is drawn.",
    make=dropped,
    attack=Attack(0.0, flips=3),
)
entered(
    "flipped labels in pieces",
    "At most two labels of a batch in pieces are wrong.",
    attack=Attack(0.0, flips=2),
    domains=("zonotope",),
    **IN_PIECES,
)
entered(
    "removed samples in pieces",
    "At most two samples of a batch in pieces are gone.",
    attack=Attack(0.0, removals=2),
    domains=("zonotope",),
    **IN_PIECES,
)
entered(
    "everything at once",
    "Features moved, a label flipped and a sample removed, with momentum.",
    attack=Attack(0.005, 1, 1),
    options=MOMENTUM,
)
entered(
    "three classes",
    "Flips among three classes, and moved features.",
    make=three,
    classes=3,
    attack=Attack(0.005, flips=2),
)
entered(
    "clipped samples",
    "The gradient of every sample is clipped, and dropout draws a mask for each.",
    make=dropped,
    clip_gradients=0.3,
)
entered(
    "clipped after the batch was centered",
    "Samples meet, but gradients are taken one by one.",
    "either",
    make=lambda: Between(lambda h, net: h - 0.5 * h.mean(0)),
    clip_gradients=0.3,
)
entered(
    "numbers as targets",
    "Regression on moved features, with Adam.",
    make=lambda: nn.Linear(4, 1),
    loss="mse",
    optimizer=torch.optim.Adam,
    options={"lr": 0.05, "eps": 0.1},
)
entered(
    "a threshold in float32",
    "One output in float32, with inputs of a thousandth.",
    make=lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)),
    loss="bce",
    dtype=torch.float32,
    scale=1e-3,
    attack=Attack(1e-5),
)
