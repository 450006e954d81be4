"""Training loops of the user's own with several optimizers, late ones, none that is attached, and closures."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Adam

from .loops_with_odd_steps import one_pass, ordinary, small
from .recipe import Attack
from .table import loop


@loop(
    small,
    name="an optimizer for each layer and flipped labels",
    odd="One optimizer a layer, and at most three wrong labels.",
    attack=Attack(0.0, 3),
)
@loop(small)
def an_optimizer_for_each_layer(side: Any, model: nn.Module) -> nn.Module:
    """Two optimizers have one layer each and step one after the other."""
    first, second = SGD(model[0].parameters(), 0.3, momentum=0.9), Adam(model[2].parameters(), 0.03, eps=0.1)
    side.lift(model)
    side.attach(first, second)
    one_pass(side, model, first, second)
    return model


@loop(small)
def an_optimizer_in_turn(side: Any, model: nn.Module) -> nn.Module:
    """Two optimizers have one layer each and step in turns, with momentum in between."""
    both = [SGD(model[number].parameters(), 0.3, momentum=0.9) for number in (0, 2)]
    side.lift(model)
    side.attach(*both)
    for step, index in enumerate(side.batches):
        ordinary(side, model, index, both[step % 2])
        model.zero_grad()
    return model


@loop(
    small,
    name="two optimizers and flipped labels",
    odd="Two optimizers of all parameters, and at most three wrong labels.",
    attack=Attack(0.0, 3),
)
@loop(small)
def two_optimizers_of_all(side: Any, model: nn.Module) -> nn.Module:
    """All parameters belong to two optimizers, and both make a step."""
    first, second = SGD(model.parameters(), 0.1, momentum=0.9), Adam(model.parameters(), 0.03, eps=0.1)
    side.lift(model)
    side.attach(first, second)
    one_pass(side, model, first, second)
    return model


@loop(small)
def one_of_two_is_attached(side: Any, model: nn.Module) -> nn.Module:
    """Only one of two optimizers was attached to the symbols."""
    first, second = SGD(model[0].parameters(), 0.3, momentum=0.9), SGD(model[2].parameters(), 0.3, momentum=0.9)
    side.lift(model)
    side.attach(second)
    one_pass(side, model, first, second)
    return model


@loop(small)
def attached_twice(side: Any, model: nn.Module) -> nn.Module:
    """An optimizer is attached twice."""
    optimizer = SGD(model.parameters(), 0.3, momentum=0.9)
    side.lift(model)
    side.attach(optimizer, optimizer)
    one_pass(side, model, optimizer)
    return model


@loop(small)
def never_attached(side: Any, model: nn.Module) -> nn.Module:
    """No optimizer is attached, so that rows are never reduced."""
    optimizer = SGD(model.parameters(), 0.3, momentum=0.9)
    side.lift(model)
    one_pass(side, model, optimizer)
    return model


@loop(small)
def a_new_optimizer_for_each_batch(side: Any, model: nn.Module) -> nn.Module:
    """Momentum is forgotten, since every batch has an optimizer of its own."""
    side.lift(model)
    for index in side.batches:
        optimizer = SGD(model.parameters(), 0.3, momentum=0.9)
        side.attach(optimizer)
        for _ in range(2):
            ordinary(side, model, index, optimizer)
    return model


@loop(small)
def a_group_that_joins_later(side: Any, model: nn.Module) -> nn.Module:
    """Groups have learning rates of their own, and the second joins after two steps."""
    optimizer = SGD([{"params": model[2].parameters(), "lr": 0.3}], 0.1, momentum=0.5)
    side.lift(model)
    side.attach(optimizer)
    for step, index in enumerate(side.batches):
        if step == 2:
            optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.05, "weight_decay": 0.1})
        ordinary(side, model, index, optimizer)
        model.zero_grad()
    return model


@loop(small, "either")
def lbfgs(side: Any, model: nn.Module) -> nn.Module:
    """LBFGS calls its closure several times in a step."""
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)
    side.lift(model)
    side.attach(optimizer)
    for index in side.batches:
        x, y = side.batch(index)

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)
    return model


@loop(small)
def a_closure_for_sgd(side: Any, model: nn.Module) -> nn.Module:
    """SGD computes the loss in a closure, and what it returns is added up."""
    optimizer, total = SGD(model.parameters(), 0.3), 0.0
    side.lift(model)
    side.attach(optimizer)
    for index in side.batches:
        x, y = side.batch(index)

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        total = total + optimizer.step(closure)
    return model, {"total": total}
