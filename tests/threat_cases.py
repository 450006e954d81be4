"""Every threat with the poison that an attacker under it could use, and small data and networks to try them on."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import poisons
import torch
import torch.nn as nn
import torch.nn.functional as F
from poisons import Data, Poison
from torch import Tensor
from torch.func import functional_call, vmap

import boundflow as bf

T = bf.threats
SAMPLES = 24
FEATURES = 5  # two numbers, then three one-hot columns


def observed(task: str, dtype: torch.dtype) -> Data:
    """Two clouds in the plane with a category beside them; labels 0 to 2, or numbers."""
    random = np.random.default_rng(5)
    y = torch.arange(SAMPLES) % (3 if task == "ce" else 2)
    plane = torch.from_numpy(random.normal(size=(SAMPLES, 2)) * 0.3) + torch.stack((2 * y - 1, 1 - 2 * y), 1)
    hot = F.one_hot(torch.from_numpy(random.integers(0, 3, SAMPLES)), 3)
    x = torch.cat((plane, hot), 1).to(dtype)
    targets = y if task in ("bce", "ce", "hinge") else (plane[:, 0] * 0.5).to(dtype)
    return Data(x, targets, torch.ones(SAMPLES, dtype=dtype))


def network(outputs: int, dtype: torch.dtype, activation: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(FEATURES, 4), activation(), nn.Linear(4, outputs)).to(dtype)


LOSSES = {
    "bce": lambda z, y, w: F.binary_cross_entropy_with_logits(z[:, 0], y.to(z.dtype), reduction="none") * w,
    "ce": lambda z, y, w: F.cross_entropy(z, y, reduction="none") * w,
    "mse": lambda z, y, w: (z[:, 0] - y) ** 2 * w,
    "hinge": lambda z, y, w: torch.relu(1 - (2 * y - 1).to(z.dtype) * z[:, 0]) * w,
}


def plain_runs(
    model: nn.Module, task: str, datasets: list[Data], order: list[Tensor], options: dict
) -> dict[str, Tensor]:
    """Ordinary SGD on every dataset: the parameters of each, stacked."""
    model = copy.deepcopy(model)
    parameters = {
        name: value.detach().expand(len(datasets), *value.shape).clone().requires_grad_()
        for name, value in model.named_parameters()
    }
    optimizer = torch.optim.SGD(list(parameters.values()), **options)
    x, y, w = (torch.stack([getattr(data, name) for data in datasets]) for name in ("x", "y", "weights"))

    def loss(values: dict[str, Tensor], x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return LOSSES[task](functional_call(model, values, (x,)), y, w).sum() / len(x)

    for index in order:
        optimizer.zero_grad()
        vmap(loss)(parameters, x[:, index], y[:, index], w[:, index]).sum().backward()
        optimizer.step()
    return {name: value.detach() for name, value in parameters.items()}


def batches(size: int | None, epochs: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)  # as certify draws them
    if size is None:
        return [torch.arange(SAMPLES)] * epochs
    return [part for _ in range(epochs) for part in torch.randperm(SAMPLES, generator=generator).split(size)]


def certified(threat: Any, task: str, data: Data, domain: str, **options: Any) -> bf.Certificate:
    settings = {"optimizer_options": {"lr": 0.4, "momentum": 0.5}, "epochs": 4, "order": 3, **options}
    outputs = 3 if task == "ce" else 1
    model = settings.pop("model", None) or network(outputs, data.x.dtype)
    return bf.certify(model, (data.x, data.y), threat=threat, loss=task, domain=domain, **settings)


def with_holes(data: Data) -> Data:
    x = data.x.clone()
    x[::5, 0] = float("nan")
    x[3, 1] = float("nan")
    return data._replace(x=x)


def some_without_category(data: Data) -> Data:
    """Rows of zeros, as a category without a column leaves them."""
    x = data.x.clone()
    x[::5, 2:5] = 0.0
    return data._replace(x=x)


def without_category(data: Data) -> Data:
    x = data.x.clone()
    x[1::4, 2:5] = float("nan")
    return data._replace(x=x)


def with_all_holes(data: Data) -> Data:
    return data._replace(x=torch.where(torch.isnan(with_holes(data).x), torch.nan, without_category(data).x))


def on_grid(data: Data) -> Data:
    x = data.x.clone()
    x[:, :2] = (torch.round(x[:, :2] / 0.125) * 0.125).clamp(-4, 4)
    return data._replace(x=x)


def clipped(data: Data) -> Data:
    x = data.x.clone()
    x[:, :2] = x[:, :2].clamp(0.0, 1.0)  # many values on the edge of the range
    return data._replace(x=x)


RANGE = [[-1.0, 1.0], [-1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
PLANE = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0], dtype=torch.float64)

# name -> (threat, poison, loss, what is done to the observed data)
THREATS: dict[str, tuple[Any, Poison, str, Any]] = {
    "linf": (T.Linf(0.05), poisons.linf(0.05), "bce", None),
    "linf per feature": (T.Linf(0.1 * PLANE), poisons.linf(0.1 * PLANE), "ce", None),
    "linf, clipped": (T.Linf(0.1, clip=(0, 1)), poisons.linf(0.1, (0, 1)), "bce", clipped),
    "l2": (T.L2(0.1), poisons.ball(0.1, 2), "bce", None),
    "l2, clipped": (T.L2(0.8, clip=(0, 1)).on(features=[0, 1]), poisons.to_the_corner(0.8, [0, 1]), "bce", clipped),
    "l1": (T.L1(0.1), poisons.ball(0.1, 1), "ce", None),
    "labels": (T.AtMost(3, T.Labels()), poisons.at_most(3, poisons.labels(2)), "bce", None),
    "labels, hinge": (T.AtMost(2, T.Labels()), poisons.at_most(2, poisons.labels(2)), "hinge", None),
    "labels of three classes": (T.AtMost(3, T.Labels()), poisons.at_most(3, poisons.labels(3)), "ce", None),
    "every label": (T.Labels(), poisons.on(poisons.labels(2), lambda n, r: poisons.chosen(n, n, r)), "bce", None),
    "targets": (T.Labels(0.2), poisons.targets(0.2), "mse", None),
    "targets of a few": (T.AtMost(3, T.Labels(0.5)), poisons.at_most(3, poisons.targets(0.5)), "mse", None),
    "removal": (T.AtMost(4, T.Removal()), poisons.at_most(4, poisons.removal), "bce", None),
    "removal, three classes": (T.AtMost(4, T.Removal()), poisons.at_most(4, poisons.removal), "ce", None),
    "removal, regression": (T.AtMost(4, T.Removal()), poisons.at_most(4, poisons.removal), "mse", None),
    "any may be gone": (
        T.Removal(),
        poisons.on(poisons.removal, lambda n, r: poisons.chosen(n, n, r)),
        "bce",
        None,
    ),
    "linf of a few": (T.AtMost(3, T.Linf(0.5)), poisons.at_most(3, poisons.linf(0.5)), "bce", None),
    "linf of a few, clipped": (
        T.AtMost(4, T.Linf(0.5, clip=(0, 1))),
        poisons.at_most(4, poisons.linf(0.5, (0, 1))),
        "ce",
        clipped,
    ),
    "l2 of a few": (T.AtMost(3, T.L2(0.5)), poisons.at_most(3, poisons.ball(0.5, 2)), "bce", None),
    "l1 of a few": (T.AtMost(3, T.L1(0.5)), poisons.at_most(3, poisons.ball(0.5, 1)), "bce", None),
    "features and labels of a few": (
        T.AtMost(3, T.Linf(0.3) & T.Labels()),
        poisons.at_most(3, poisons.linf(0.3), poisons.labels(3)),
        "ce",
        None,
    ),
    "all features, a few labels, a few gone": (
        T.Linf(0.02) & T.AtMost(2, T.Labels()) & T.AtMost(1, T.Removal()),
        poisons.together(
            poisons.linf(0.02), poisons.at_most(2, poisons.labels(2)), poisons.at_most(1, poisons.removal)
        ),
        "bce",
        None,
    ),
    "tolerance": (
        T.Tolerance({"a": 0.1, 1: "10%"}, columns=["a", "b", "c", "d", "e"]),
        lambda data, random: poisons.linf(
            torch.stack(
                (
                    torch.full((SAMPLES,), 0.1, dtype=torch.float64),
                    0.1 * data.x[:, 1].abs().double(),
                    *torch.zeros(3, SAMPLES, dtype=torch.float64),
                ),
                1,
            )
        )(data, random),
        "bce",
        None,
    ),
    "missing": (T.Missing(RANGE), poisons.missing(-1.0, 1.0), "bce", with_holes),
    "missing, and a few labels": (
        T.Missing(RANGE) & T.AtMost(2, T.Labels()),
        poisons.together(poisons.missing(-1.0, 1.0), poisons.at_most(2, poisons.labels(2))),
        "bce",
        with_holes,
    ),
    "missing categories": (
        T.MissingCategory([2, 3, 4]),
        poisons.missing_category([2, 3, 4]),
        "bce",
        without_category,
    ),
    "missing numbers and categories, a few labels": (
        T.MissingCategory([2, 3, 4]) & T.Missing(RANGE).on(features=[0, 1]) & T.AtMost(2, T.Labels()),
        poisons.together(
            poisons.missing_category([2, 3, 4]), poisons.missing(-1.0, 1.0), poisons.at_most(2, poisons.labels(3))
        ),
        "ce",
        with_all_holes,
    ),
    "categories": (T.Categories([[2, 3, 4]]), poisons.category([2, 3, 4]), "bce", None),
    "categories of a few": (
        T.AtMost(3, T.Categories([[2, 3, 4]])),
        poisons.at_most(3, poisons.category([2, 3, 4])),
        "ce",
        None,
    ),
    "categories, known or not": (T.Category([2, 3, 4], unknown=True), poisons.any_category([2, 3, 4]), "bce", None),
    "categories of a few, known or not": (
        T.AtMost(3, T.Category([2, 3, 4], unknown=True)),
        poisons.at_most(3, poisons.any_category([2, 3, 4])),
        "ce",
        some_without_category,
    ),
    "quantised": (
        T.Quantised(0.05, 0.125, clip=(-4, 4)).on(features=[0, 1]),
        lambda data, random: data._replace(
            x=torch.cat((poisons.requantised(0.05, 0.125, (-4, 4))(data, random).x[:, :2], data.x[:, 2:]), 1)
        ),
        "bce",
        on_grid,
    ),
    "an untrusted source": (
        T.Linf(0.3).on(samples=[1, 4, 7]),
        poisons.on(poisons.linf(0.3), lambda n, r: torch.tensor([1, 4, 7])),
        "bce",
        None,
    ),
    "some features of some": (
        T.AtMost(2, T.Linf(0.5).on(samples=np.arange(SAMPLES) < 6, features=[1])),
        poisons.at_most(2, poisons.on(poisons.linf(0.5, features=[1]), lambda n, r: torch.arange(6))),
        "ce",
        None,
    ),
}
