"""Plain PyTorch trainings on data that an attacker could have left behind. Nothing here imports boundflow.

    one program, one recipe:  the same initial weights, batches, seeds and options; only the data differ

Every run makes its model anew, so that whatever a network keeps (attributes, buffers, closures, classes) starts afresh.
A run ends with one evaluation on inputs that were moved as well, or with as many as the program asks for.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.lr_scheduler import ReduceLROnPlateau

from .recipe import Data, Recipe

LOSSES: dict[str, Callable[..., Tensor]] = {
    "ce": F.cross_entropy,
    "bce": F.binary_cross_entropy_with_logits,
    "mse": F.mse_loss,
}


class Run(NamedTuple):
    """What a training gave: parameters, buffers, anything else a loop hands out, and the outputs in evaluation mode."""

    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]
    outputs: list[Tensor]


def seeded(number: int) -> None:
    """Every source of random numbers that a network may draw from."""
    torch.default_generator.manual_seed(number)  # as `torch.manual_seed` does, which asks other devices as well
    np.random.seed(number % 2**32)
    random.seed(number)


def made(make: Callable[[], nn.Module], dtype: torch.dtype) -> nn.Module:
    seeded(0)
    return make().to(dtype)


def as_certified(make: Callable[[], nn.Module], recipe: Recipe, data: Data, test: Tensor) -> Run:
    """The training that a certificate speaks of, on one dataset."""
    model = in_training(made(make, recipe.dtype))
    optimizer = recipe.optimizer([p for p in model.parameters() if p.requires_grad], **recipe.options)
    make_schedule = recipe.schedule()
    schedule = make_schedule(optimizer) if make_schedule is not None else None
    for number, index in enumerate(recipe.batches):
        optimizer.zero_grad()
        if recipe.clip_gradients is not None:
            value = _clipped_backward(model, recipe, data, index, number)
        else:
            value = _backward(model, recipe, data, index, number)
        _step(optimizer, partial(_backward, model, recipe, data, index, number))
        if schedule is not None:
            schedule.step(*([value] if isinstance(schedule, ReduceLROnPlateau) else []))
    return ended(model, recipe, test)


def _step(optimizer: torch.optim.Optimizer, again: Callable[[], Tensor]) -> None:
    """One step; an optimizer that looks at the loss several times gets it computed ``again``."""
    if not isinstance(optimizer, torch.optim.LBFGS):
        optimizer.step()
        return

    def closure() -> Tensor:
        optimizer.zero_grad()
        return again()

    optimizer.step(closure)


def _backward(model: nn.Module, recipe: Recipe, data: Data, index: Tensor, number: int) -> Tensor:
    seeded(1_000_003 * recipe.seed + number)
    value = _loss(recipe, first(model(data.x[index])), data, index)
    value.backward()
    return value.detach()


def _clipped_backward(model: nn.Module, recipe: Recipe, data: Data, index: Tensor, number: int) -> Tensor:
    """The mean of the gradients of single samples, each clipped to a norm."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gathered: list[list[Tensor]] = [[] for _ in parameters]
    losses = []
    for one in index.split(1):
        losses.append(_backward(model, recipe, data, one, number))
        nn.utils.clip_grad_norm_(parameters, recipe.clip_gradients or 0.0)
        for parameter, kept in zip(parameters, gathered, strict=True):
            if parameter.grad is not None:
                kept.append(parameter.grad)
            parameter.grad = None
    for parameter, kept in zip(parameters, gathered, strict=True):
        parameter.grad = torch.stack(kept).sum(0) / len(index) if kept else None
    return torch.stack(losses).mean()


def in_training(model: nn.Module) -> nn.Module:
    """Training mode, but for parts that were put in evaluation mode on purpose."""
    if model.training:
        return model
    fixed = [module for module in model.modules() if isinstance(module, _BatchNorm) and not module.training]
    model.train()
    for module in fixed:
        module.eval()
    return model


def _loss(recipe: Recipe, outputs: Tensor, data: Data, index: Tensor) -> Tensor:
    y = data.y[index]
    if recipe.loss != "ce":
        y = y.to(recipe.dtype).reshape(-1, 1)
    if data.weights is None:
        return LOSSES[recipe.loss](outputs, y)
    losses = LOSSES[recipe.loss](outputs, y, reduction="none").reshape(len(index), -1).mean(1)
    return (losses * data.weights[index]).sum() / len(index)


class Plain:
    """The plain side of a loop that is written once: lifting does nothing, batches are as this dataset has them."""

    def __init__(self, recipe: Recipe, data: Data):
        self.recipe, self.data = recipe, data
        self.batches = recipe.batches

    def lift(self, *models: nn.Module) -> None:
        pass

    def attach(self, *optimizers: torch.optim.Optimizer) -> None:
        pass

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        return self.data.x[index], self.data.y[index]


def through_loop(loop: Callable, make: Callable[[], nn.Module], recipe: Recipe, data: Data, test: Tensor) -> Run:
    """A loop of the user's own, on one dataset."""
    model, extras = handed_out(loop(Plain(recipe, data), in_training(made(make, recipe.dtype))))
    run = ended(model, recipe, test)
    return run._replace(parameters={**run.parameters, **{name: value.detach() for name, value in extras.items()}})


def handed_out(result: Any) -> tuple[nn.Module, dict[str, Tensor]]:
    """What a loop returns: a model, or a model and further tensors by name."""
    return result if isinstance(result, tuple) else (result, {})


def ended(model: nn.Module, recipe: Recipe, test: Tensor) -> Run:
    model.eval()  # first of all: some networks change their parameters when they are put in evaluation mode
    parameters = {name: value.detach().clone() for name, value in model.named_parameters()}
    buffers = {name: value.detach().clone() for name, value in model.named_buffers()}
    outputs = []
    for _ in range(recipe.evaluations):
        seeded(recipe.seed)
        with torch.no_grad():
            outputs.append(first(model(test.clone())))
    return Run(parameters, buffers, outputs)


def first(outputs: Any) -> Tensor:
    """The logits of a network that puts out several things."""
    if isinstance(outputs, dict):
        return outputs["logits"]
    return outputs[0] if isinstance(outputs, tuple) else outputs
