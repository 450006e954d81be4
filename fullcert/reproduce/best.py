"""Our own recipes, chosen on validation sets and the same for all seeds: what certifies most, by dataset and epsilon.

Two-Moons and MNIST: every feature of every training *and* test input may move by epsilon. Half-moons: the recipe of
Abstract Gradient Training, where the attacker moves the features of at most k training samples, or flips k labels.
Their number of steps is fixed beforehand, so nothing is chosen on data inside the threat.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import boundflow as bf
from fullcert.data.datasets import Dataset, load
from fullcert.networks.layers import Bumps, Domes, EdgeEnergy


@dataclass(frozen=True)
class Recipe:
    """A network with one hidden layer, or none (0), behind fixed features, and how it is trained."""

    hidden: int
    steps: int
    lr: float
    momentum: float = 0.0
    batch_size: int | None = None  # None: all samples at once
    activation: type[nn.Module] = nn.Tanh
    features: Callable[[], nn.Module] | None = None  # fixed beforehand, nothing in them is trained
    head_bias: bool = True
    first_scale: float = 1.0  # the first layer's initial values are multiplied by this
    head_scale: float = 1.0  # the last layer's
    frozen: bool = False  # the first layer keeps its initial values
    order: int = 20
    outputs: int = 1
    decay: float = 0.0  # the learning rate of step t is lr / (1 + decay t)
    weight_seed: int | None = None  # of the initial weights; None: the seed of the run
    cuts: int = 0  # a test input that stays undecided is answered for in up to 2 ** cuts parts


@dataclass(frozen=True)
class Setting:
    """One line of the table: what the attacker can do, the recipe against it, and what was published."""

    threat: str
    epsilon: float | None  # of labels, None
    k: int | None  # None: every sample
    recipe: Recipe
    published: float | None = None
    at_test_time: bool = True  # test inputs move by epsilon too


@dataclass(frozen=True)
class Suite:
    """A dataset and the settings it is measured in."""

    dataset: str
    settings: tuple[Setting, ...]
    one_seed: bool = False  # the recipe fixes data and initial weights


def _linf(recipes: dict[float, Recipe], published: dict[float, float]) -> tuple[Setting, ...]:
    return tuple(Setting("linf", eps, None, recipe, published.get(eps)) for eps, recipe in recipes.items())


FULLCERT = {1e-4: 0.839, 1e-3: 0.822, 1e-2: 0.715, 1e-1: 0.367}  # GCPR 2024, Two-Moons
BUMPS = Recipe(
    0,
    1,
    1.0,
    features=lambda: Bumps((-1.5, -1.0), (2.5, 1.5), spacing=0.15, width=0.08),
    head_bias=False,
    head_scale=0,
)
DOMES = replace(BUMPS, features=lambda: Domes((-1.8, -1.3), (2.8, 1.8), spacing=0.3, width=0.55), cuts=4)
EDGES = Recipe(5, 1, 1.0, batch_size=1000, features=EdgeEnergy, first_scale=0.25, order=3)
AGT = Recipe(128, 4, 2.0, activation=nn.ReLU, outputs=2, decay=0.6, weight_seed=1234, order=2)
HALF_MOONS = [
    *[("linf", 0.01, 200, 0.762), ("linf", 0.2, 10, 0.26), ("linf", 0.01, 3000, 0.0)],
    *[("labels", None, k, published) for k, published in ((1, 0.91), (3, 0.708), (5, 0.3), (7, 0.032), (20, None))],
]
CASES = {
    "two-moons": Suite(  # one step of the head on fixed local features
        "two-moons",
        _linf({1e-4: BUMPS, 1e-3: BUMPS, 1e-2: BUMPS, 1e-1: DOMES}, FULLCERT),
    ),
    "two-moons-tanh": Suite(
        "two-moons",
        _linf(
            {
                1e-4: Recipe(16, 40, 0.5, 0.9, first_scale=6),
                1e-3: Recipe(16, 40, 0.5, 0.9, first_scale=6),
                1e-2: Recipe(100, 50, 0.02, 0.9, first_scale=12, frozen=True, order=60, cuts=4),
                1e-1: Recipe(20, 1, 1.0, first_scale=2, head_scale=0, cuts=4),
            },
            FULLCERT,
        ),
    ),
    "two-moons-relu": Suite(  # the network of the paper, 2-20-1
        "two-moons",
        _linf(
            {
                1e-4: Recipe(20, 64, 0.5, activation=nn.ReLU, head_scale=0.3, order=40),
                1e-3: Recipe(20, 42, 0.5, activation=nn.ReLU, order=40),
                1e-2: Recipe(20, 20, 0.5, activation=nn.ReLU, head_scale=0.3, order=40),
                1e-1: Recipe(20, 2, 0.5, activation=nn.ReLU, head_scale=0.3, cuts=6),
            },
            FULLCERT,
        ),
    ),
    "mnist17": Suite(
        "mnist-1-7",
        _linf(
            {
                1e-4: replace(EDGES, steps=12, lr=0.7, momentum=0.5),
                1e-3: replace(EDGES, steps=9, lr=0.3, momentum=0.9),
                1e-2: Recipe(10, 1, 0.4, batch_size=1000, first_scale=0.03, order=3),
            },
            {1e-4: 0.6},
        ),
    ),
    "half-moons": Suite(
        "half-moons",
        tuple(
            Setting(threat, epsilon, k, replace(AGT, order=6) if k == 10 else AGT, published, at_test_time=False)
            for threat, epsilon, k, published in HALF_MOONS
        ),
        one_seed=True,
    ),
}


def network(recipe: Recipe, shape: torch.Size, seed: int) -> nn.Sequential:
    """The network of a recipe with its initial weights, for inputs of this shape."""
    torch.manual_seed(seed if recipe.weight_seed is None else recipe.weight_seed)
    front = recipe.features() if recipe.features is not None else nn.Flatten()
    width = front(torch.zeros(1, *shape, dtype=torch.float64)).shape[1]
    layers: list[nn.Module] = [front]
    if recipe.hidden:
        first = nn.Linear(width, recipe.hidden)
        _scale(first, recipe.first_scale)
        layers += [first.requires_grad_(not recipe.frozen), recipe.activation()]
    head = nn.Linear(recipe.hidden or width, recipe.outputs, bias=recipe.head_bias)
    _scale(head, recipe.head_scale)
    return nn.Sequential(*layers, head).double()


def _scale(layer: nn.Module, factor: float) -> None:
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(factor)


def threat_of(setting: Setting, samples: int) -> bf.threats.Threat:
    """What the attacker of a setting can do."""
    change = bf.threats.Labels() if setting.epsilon is None else bf.threats.Linf(setting.epsilon)
    return change if setting.k is None or setting.k >= samples else bf.threats.AtMost(setting.k, change)


def certified(
    setting: Setting, data: Dataset, seed: int, device: str, samples: int | None = None
) -> tuple[bf.Certificate, int]:
    """Train, on the first ``samples`` only for a small cut, and say on how many."""
    recipe = setting.recipe
    x, y = (torch.tensor(part, device=device)[:samples] for part in (data.train.inputs, data.train.labels))
    certificate = bf.certify(
        network(recipe, x.shape[1:], seed),
        (x, y),
        program(recipe, seed, device),
        threat=threat_of(setting, len(x)),
        progress=False,
    )
    return certificate, len(x)


def program(recipe: Recipe, seed: int, device: str) -> bf.Recipe:
    """How the network of a recipe is trained, as the library takes it."""
    return bf.Recipe(
        loss="bce" if recipe.outputs == 1 else "ce",
        optimizer_options={"lr": recipe.lr, "momentum": recipe.momentum},
        schedule=lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1 / (1 + recipe.decay * t)),
        epochs=recipe.steps,
        steps=recipe.steps,
        batch_size=recipe.batch_size,
        seed=seed,
        order=recipe.order,
        device=device,
        memory=2.0**35 if device.startswith("cuda") else 2.0**34,
    )


def measure(
    name: str,
    setting: Setting,
    seed: int,
    device: str,
    split: str = "test",
    samples: int | None = None,
    dataset: str | None = None,
) -> dict[str, Any]:
    """One seed: load or draw the data, train and certify the test set.

    Another ``dataset`` than that of the case can be given, of inputs of the same shape.
    """
    data = load(dataset or CASES[name].dataset, Path(os.environ.get("BOUNDFLOW_DATA", "data")), seed)
    test = getattr(data, split)
    started = time.perf_counter()
    certificate, trained_on = certified(setting, data, seed, device, samples)
    epsilon = setting.epsilon or 0.0 if setting.at_test_time else 0.0
    accuracy = certificate.accuracy(test.inputs, test.labels, epsilon=epsilon, cuts=setting.recipe.cuts)
    return {
        "case": name,
        "epsilon": setting.epsilon,
        "k": setting.k or trained_on,
        "threat": setting.threat,
        "seed": seed,
        "certified_accuracy": accuracy.certified,
        "nominal_accuracy": accuracy.nominal,
        "seconds": time.perf_counter() - started,
        "published": setting.published,
    }


def setting_of(name: str, epsilon: float) -> Setting:
    """The setting of a case with this epsilon."""
    return next(setting for setting in CASES[name].settings if setting.epsilon == epsilon)
