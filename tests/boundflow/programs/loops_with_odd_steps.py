"""Training loops of the user's own in which parameters are changed in unusual ways.

A loop is written once, ``train(side, model)``, and runs on plain tensors and on sets: `side.lift`, `side.attach` and
`side.batch` are `bf.lift`, `Symbols.attach` and `Symbols.lift` there, and do nothing on the plain side.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, lr_scheduler
from torch.optim.swa_utils import AveragedModel

from .recipe import Attack
from .table import loop


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


def one_pass(side: Any, model: nn.Module, *optimizers: torch.optim.Optimizer) -> None:
    """An ordinary pass over all batches, with a step of every optimizer."""
    for index in side.batches:
        ordinary(side, model, index, *optimizers)


def ordinary(side: Any, model: nn.Module, index: Tensor, *optimizers: torch.optim.Optimizer) -> Tensor:
    x, y = side.batch(index)
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    return loss.detach()


# --- averages and copies of weights -----------------------------------------------------------------------------------


@loop(small)
def a_moving_average(side: Any, model: nn.Module) -> nn.Module:
    """The average of the weights over time answers, not the weights themselves."""
    optimizer = SGD(model.parameters(), 0.3)
    side.lift(model)
    side.attach(optimizer)
    average = copy.deepcopy(model)
    for index in side.batches:
        ordinary(side, model, index, optimizer)
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.mul_(0.7).add_(fast, alpha=0.3)
    return average


@loop(small, "either")
def averaged_by_swa(side: Any, model: nn.Module) -> nn.Module:
    """`AveragedModel` copies the lifted model and keeps the mean of its weights."""
    optimizer = SGD(model.parameters(), 0.3)
    side.lift(model)
    side.attach(optimizer)
    average = AveragedModel(model)
    for index in side.batches:
        ordinary(side, model, index, optimizer)
        average.update_parameters(model)
    return average


@loop(small, "either")
def averaged_before_lifting(side: Any, model: nn.Module) -> nn.Module:
    """`AveragedModel` was made of the plain model, and would have to store sets in plain tensors."""
    optimizer = SGD(model.parameters(), 0.3)
    average = AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.7))
    side.lift(model)
    side.attach(optimizer)
    for index in side.batches:
        ordinary(side, model, index, optimizer)
        average.update_parameters(model)
    return average


@loop(small)
def a_target_network(side: Any, model: nn.Module) -> nn.Module:
    """A second network follows by `load_state_dict` every second step, and gives the targets."""
    target = copy.deepcopy(model)
    optimizer = SGD(model.parameters(), 0.3)
    side.lift(model, target)
    side.attach(optimizer)
    for step, index in enumerate(side.batches):
        x, y = side.batch(index)
        optimizer.zero_grad()
        with torch.no_grad():
            wanted = target(x).softmax(1)
        (F.cross_entropy(model(x), y) + F.mse_loss(model(x).softmax(1), wanted)).backward()
        optimizer.step()
        if step % 2:
            target.load_state_dict(model.state_dict())
    return model, dict(target.named_parameters())


@loop(small)
def weights_within_limits(side: Any, model: nn.Module) -> nn.Module:
    """Weights are clamped after each step, and one layer is brought back to length 1."""
    optimizer = SGD(model.parameters(), 0.3)
    side.lift(model)
    side.attach(optimizer)
    for index in side.batches:
        ordinary(side, model, index, optimizer)
        with torch.no_grad():
            model[0].weight.clamp_(-0.3, 0.3)
            model[2].weight.div_(model[2].weight.norm())
    return model


@loop(small)
def steps_by_hand(side: Any, model: nn.Module) -> nn.Module:
    """No optimizer: parameters are changed in place."""
    side.lift(model)
    for index in side.batches:
        ordinary(side, model, index)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.2 * parameter.grad
                parameter.grad = None
    return model


@loop(small, "either")
def steps_through_data(side: Any, model: nn.Module) -> nn.Module:
    """No optimizer: parameters are changed through `.data`, as old code does."""
    side.lift(model)
    for index in side.batches:
        ordinary(side, model, index)
        for parameter in model.parameters():
            parameter.data.sub_(0.2 * parameter.grad)
            parameter.grad = None
    return model


# --- choices ----------------------------------------------------------------------------------------------------------


@loop(small, "raises", attack=Attack(0.1))
def the_best_step(side: Any, model: nn.Module) -> nn.Module:
    """The model with the smallest loss is kept, which depends on the data."""
    optimizer, best, kept = SGD(model.parameters(), 0.3), None, model
    side.lift(model)
    side.attach(optimizer)
    for index in side.batches:
        loss = ordinary(side, model, index, optimizer)
        if best is None or loss < best - 1e-3 * loss:
            best, kept = loss, copy.deepcopy(model)
    return kept, {"best": best}


@loop(small, "raises")
def a_plateau(side: Any, model: nn.Module) -> nn.Module:
    """`ReduceLROnPlateau` looks at a loss that is a set."""
    optimizer = SGD(model.parameters(), 0.3)
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.05)
    side.lift(model)
    side.attach(optimizer)
    for index in side.batches:
        schedule.step(ordinary(side, model, index, optimizer))
    return model
