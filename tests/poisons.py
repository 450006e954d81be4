"""Datasets that an attacker could really have left behind, for every threat. Nothing here imports boundflow.

A poison takes the observed data and a generator of random numbers, and gives inputs, targets and sample weights; where
a weight is 0 the sample is gone from its slot. Two thirds of the draws go to the limit in every feature they touch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

Random = np.random.Generator


class Data(NamedTuple):
    x: Tensor
    y: Tensor  # class numbers, or numbers for regression
    weights: Tensor


Poison = Callable[[Data, Random], Data]


def chosen(samples: int, k: int, random: Random) -> Tensor:
    """k samples, or fewer."""
    count = k if random.random() < 0.8 else int(random.integers(0, k + 1))
    return torch.from_numpy(np.sort(random.permutation(samples)[:count]))


def within(x: Tensor, moved: Tensor, amount: Tensor | float) -> Tensor:
    """``moved``, brought back where rounding carried it further than ``amount`` from x."""
    too_far = (moved.double() - x.double()).abs() > amount
    return torch.where(too_far, torch.nextafter(moved, x), moved)


def moves(shape: tuple[int, ...], random: Random) -> Tensor:
    """Factors in [-1, 1]: corners, one direction for all, or anything between."""
    kind = random.integers(3)
    if kind == 0:
        return torch.from_numpy(random.choice([-1.0, 1.0], size=shape))
    if kind == 1:
        return torch.from_numpy(random.choice([-1.0, 1.0], size=shape[1:])).expand(shape)
    return torch.from_numpy(random.uniform(-1, 1, size=shape))


def linf(epsilon: float | Tensor, clip: tuple[float, float] | None = None, features: list[int] | None = None) -> Poison:
    def poison(data: Data, random: Random) -> Data:
        amount = torch.as_tensor(epsilon, dtype=torch.float64).expand(data.x.shape)
        moved = within(data.x, (data.x.double() + amount * moves(data.x.shape, random)).to(data.x.dtype), amount)
        if clip is not None:
            moved = moved.clamp(*clip)
        if features is not None:
            kept = data.x.clone()
            kept[:, features] = moved[:, features]
            moved = kept
        return data._replace(x=moved)

    return poison


def ball(epsilon: float, norm: int) -> Poison:
    """Moves on the sphere of an l2 or l1 ball, a little inside it so that rounding cannot leave it."""

    def poison(data: Data, random: Random) -> Data:
        direction = torch.from_numpy(random.normal(size=data.x.shape))
        if norm == 1 and random.random() < 0.5:  # a corner of the cross polytope
            corner = torch.zeros_like(direction)
            corner[torch.arange(len(corner)), torch.from_numpy(random.integers(0, corner.shape[1], len(corner)))] = 1.0
            direction = corner * direction.sign()
        length = direction.abs().sum(1, keepdim=True) if norm == 1 else direction.norm(dim=1, keepdim=True)
        step = epsilon * (1 - 1e-9) * direction / length
        return data._replace(x=(data.x.double() + step).to(data.x.dtype))

    return poison


def to_the_corner(epsilon: float, features: list[int]) -> Poison:
    """Features moved to a corner of [0, 1], wherever that is within epsilon in Euclidean distance."""

    def poison(data: Data, random: Random) -> Data:
        x = data.x.clone()
        x[:, features] = torch.from_numpy(random.integers(0, 2, size=(len(x), len(features)))).to(x.dtype)
        near = (x.double() - data.x.double()).norm(dim=1, keepdim=True) <= epsilon
        return data._replace(x=torch.where(near, x, data.x))

    return poison


def labels(classes: int) -> Poison:
    def poison(data: Data, random: Random) -> Data:
        shift = torch.from_numpy(random.integers(1, classes, size=len(data.y)))
        return data._replace(y=(data.y + shift) % classes)

    return poison


def targets(epsilon: float) -> Poison:
    def poison(data: Data, random: Random) -> Data:
        moved = data.y + epsilon * moves((len(data.y), 1), random)[:, 0].to(data.y.dtype)
        return data._replace(y=within(data.y, moved, epsilon))

    return poison


def removal(data: Data, random: Random) -> Data:
    return data._replace(weights=torch.zeros_like(data.weights))


def missing(low: float, high: float) -> Poison:
    """Every NaN filled in with something in the range."""

    def poison(data: Data, random: Random) -> Data:
        ends = random.random() < 0.5
        if ends:
            filled = torch.from_numpy(random.choice([low, high], size=data.x.shape))
        else:
            filled = torch.from_numpy(random.uniform(low, high, size=data.x.shape))
        return data._replace(x=torch.where(torch.isnan(data.x), filled.to(data.x.dtype), data.x))

    return poison


def category(columns: list[int]) -> Poison:
    def poison(data: Data, random: Random) -> Data:
        x = data.x.clone()
        new = torch.from_numpy(random.integers(0, len(columns), size=len(x)))
        x[:, columns] = torch.nn.functional.one_hot(new, len(columns)).to(x.dtype)
        return data._replace(x=x)

    return poison


def any_category(columns: list[int]) -> Poison:
    """Any category, or one that has no column: a row of zeros."""

    def poison(data: Data, random: Random) -> Data:
        x = data.x.clone()
        new = torch.from_numpy(random.integers(0, len(columns) + 1, size=len(x)))
        x[:, columns] = torch.nn.functional.one_hot(new, len(columns) + 1)[:, :-1].to(x.dtype)
        return data._replace(x=x)

    return poison


def missing_category(columns: list[int]) -> Poison:
    """Every group of columns that is missing filled in with one of its categories."""

    def poison(data: Data, random: Random) -> Data:
        holes = torch.isnan(data.x[:, columns]).all(1)
        filled = category(columns)(data, random).x
        return data._replace(x=torch.where(holes.unsqueeze(1), filled, data.x))

    return poison


def requantised(epsilon: float, step: float, clip: tuple[float, float]) -> Poison:
    """The raw values, somewhere in their bins, moved by epsilon and written down again."""

    def poison(data: Data, random: Random) -> Data:
        raw = data.x.double() + step * torch.from_numpy(random.uniform(-0.499, 0.499, size=data.x.shape))
        moved = torch.round((raw + epsilon * moves(data.x.shape, random)) / step) * step
        return data._replace(x=moved.clamp(*clip).to(data.x.dtype))

    return poison


def on(poison: Poison, pick: Callable[[int, Random], Tensor]) -> Poison:
    """The same poison for some samples only."""

    def some(data: Data, random: Random) -> Data:
        full = poison(data, random)
        keep = torch.ones(len(data.x), dtype=torch.bool)
        keep[pick(len(data.x), random)] = False
        x = torch.where(keep.view(-1, *(1,) * (data.x.dim() - 1)), data.x, full.x)
        return Data(x, torch.where(keep, data.y, full.y), torch.where(keep, data.weights, full.weights))

    return some


def at_most(k: int, *poisons: Poison) -> Poison:
    """k samples, chosen once, to which every poison is applied."""

    def poison(data: Data, random: Random) -> Data:
        touched = chosen(len(data.x), k, random)
        for part in poisons:
            data = on(part, lambda samples, generator: touched)(data, random)
        return data

    return poison


def together(*poisons: Poison) -> Poison:
    def poison(data: Data, random: Random) -> Data:
        for part in poisons:
            data = part(data, random)
        return data

    return poison
