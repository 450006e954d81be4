"""A small task of two classes, its recipe, and plain trainings on datasets with flipped labels or moved features."""

from __future__ import annotations

from typing import Any

import torch
from poisoning import stacked_outputs
from torch import Tensor
from torch.func import functional_call, grad, vmap

from boundflow.threats import AtMost, Labels


def task(samples: int = 9, features: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, features, generator=generator, dtype=torch.float64)
    return x, (x.sum(1) > 0).long()


def network(features: int = 3, hidden: bool = False) -> torch.nn.Sequential:
    torch.manual_seed(3)
    layers = [torch.nn.Linear(features, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)] if hidden else []
    return torch.nn.Sequential(*(layers or [torch.nn.Linear(features, 2)])).double()


RECIPE: dict[str, Any] = {"loss": "ce", "epochs": 4, "optimizer_options": {"lr": 0.5}}


def flips(k: int) -> AtMost:
    return AtMost(k, Labels(classes=2))


def points(count: int = 40, features: int = 3) -> Tensor:
    return torch.randn(count, features, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


def trained(
    model: torch.nn.Module, datasets: Tensor, labels: Tensor, weights: Tensor | None = None
) -> dict[str, Tensor]:
    """The parameters (D, *shape) of plain trainings by the recipe on D datasets (D, N, F) with labels (D, N)."""
    weights = torch.ones(labels.shape, dtype=datasets.dtype) if weights is None else weights

    def loss(values: dict[str, Tensor], x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        each = torch.nn.functional.cross_entropy(functional_call(model, values, (x,)), y, reduction="none")
        return (each * weights).mean()

    values = {name: p.detach().expand(len(labels), *p.shape) for name, p in model.named_parameters()}
    for _ in range(RECIPE["epochs"]):
        gradients = vmap(grad(loss))(values, datasets, labels, weights)
        values = {name: value - RECIPE["optimizer_options"]["lr"] * gradients[name] for name, value in values.items()}
    return values


def plain_answers(
    model: torch.nn.Module, inputs: Tensor, datasets: Tensor, labels: Tensor, weights: Tensor | None = None
) -> Tensor:
    """The labels (D, N) that the models of D plain trainings answer."""
    return stacked_outputs(model, trained(model, datasets, labels, weights), inputs).argmax(-1)
