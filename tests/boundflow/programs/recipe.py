"""All choices of a training, and datasets that an attacker could have left behind. Nothing here imports boundflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class Attack(NamedTuple):
    """Every feature moved by epsilon, at most so many labels flipped, at most so many samples removed."""

    epsilon: float = 0.01
    flips: int = 0
    removals: int = 0


class Data(NamedTuple):
    x: Tensor
    y: Tensor
    weights: Tensor | None = None  # 0 where a sample was removed from its slot


@dataclass(frozen=True)
class Recipe:
    """All choices of a training, fixed before it starts."""

    attack: Attack = Attack()
    loss: str = "ce"
    classes: int = 2
    samples: int = 12
    shape: tuple[int, ...] = (4,)
    scale: float = 1.0  # of the inputs
    turned: bool = False  # whether samples lie column by column in memory
    dtype: torch.dtype = torch.float64
    optimizer: type[torch.optim.Optimizer] = torch.optim.SGD
    options: dict[str, Any] = field(default_factory=lambda: {"lr": 0.2})
    make_schedule: Callable[[], Any] | None = None
    """Makes a function from an optimizer to its schedule: anew for every run, since a schedule may keep things."""
    epochs: int = 2
    steps: int = 3  # at most
    batch_size: int | None = 6
    seed: int = 3
    clip_gradients: float | None = None  # the norm to which the gradient of every single sample is clipped
    evaluations: int = 1
    datasets: int = 20

    def schedule(self) -> Any:
        return None if self.make_schedule is None else self.make_schedule()

    @property
    def batches(self) -> list[Tensor]:
        return list(islice(batches(self.samples, self.batch_size, self.epochs, self.seed), self.steps))


def observed(recipe: Recipe) -> Data:
    generator = torch.Generator().manual_seed(recipe.seed)
    x = recipe.scale * torch.randn(recipe.samples, *recipe.shape, generator=generator, dtype=torch.float64)
    first = x.flatten(1)[:, 0] / recipe.scale
    x = x.T.contiguous().T if recipe.turned else x
    if recipe.loss == "mse":
        return Data(x.to(recipe.dtype), first.to(recipe.dtype))
    y = (first > 0).long() if recipe.classes == 2 else torch.bucketize(first, torch.tensor([-0.4, 0.4]).double())
    return Data(x.to(recipe.dtype), y)


def poisoned(recipe: Recipe) -> list[Data]:
    """The observed data, then corners, random points and shifts of one class against the other or of all samples."""
    data, generator = observed(recipe), np.random.default_rng(recipe.seed)
    return [data, *(_one(data, recipe, number, generator) for number in range(recipe.datasets))]


def _one(data: Data, recipe: Recipe, number: int, generator: np.random.Generator) -> Data:
    x, y, weights = data.x, data.y, None
    if recipe.attack.epsilon:
        x = _within(x, recipe.attack.epsilon, _move(data, number % 4, generator))
    if recipe.attack.flips:
        chosen = _chosen(recipe.samples, recipe.attack.flips, number, y, generator)
        y = y.clone()
        y[chosen] = (y[chosen] + torch.from_numpy(generator.integers(1, recipe.classes, len(chosen)))) % recipe.classes
    if recipe.attack.removals:
        weights = torch.ones(recipe.samples, dtype=x.dtype)
        weights[_chosen(recipe.samples, recipe.attack.removals, number, y, generator)] = 0
    return Data(x, y, weights)


def _move(data: Data, kind: int, generator: np.random.Generator) -> Tensor:
    shape = tuple(data.x.shape)
    if kind == 0:
        return torch.from_numpy(generator.choice([-1.0, 1.0], size=shape))
    if kind == 1:
        return torch.from_numpy(generator.uniform(-1, 1, size=shape))
    direction = torch.from_numpy(generator.choice([-1.0, 1.0], size=shape[1:]))
    if kind == 2:
        return direction.expand(shape)
    sign = (data.y > 0).double() * 2 - 1
    return sign.view(-1, *(1,) * len(shape[1:])) * direction


def _within(x: Tensor, epsilon: float, move: Tensor) -> Tensor:
    """``x + epsilon move`` in the dtype of the data, no further than epsilon away even after rounding."""
    moved = (x.double() + epsilon * move).to(x.dtype)
    too_far = (moved.double() - x.double()).abs() > epsilon
    return torch.where(too_far, torch.nextafter(moved, x), moved)


def _chosen(samples: int, most: int, number: int, y: Tensor, generator: np.random.Generator) -> Tensor:
    """At most so many samples: any, or all of one class."""
    order = generator.permutation(samples)
    if number % 2:
        order = order[np.argsort(y.numpy()[order], kind="stable")]
    return torch.from_numpy(order[: most if number % 3 else generator.integers(0, most + 1)].copy())


def batches(samples: int, size: int | None, epochs: int, seed: int) -> Iterator[Tensor]:
    """All samples in order, or shuffled anew each epoch by one generator."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        if size is None:
            yield torch.arange(samples)
        else:
            yield from torch.randperm(samples, generator=generator).split(size)
