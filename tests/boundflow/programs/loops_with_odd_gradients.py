"""Training loops of the user's own with unusual gradients, losses and transformations of functions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import SGD

from .loops_with_odd_steps import one_pass, ordinary, small
from .oracle import seeded
from .recipe import Attack
from .table import loop


def started(side: Any, model: nn.Module, lr: float = 0.3, momentum: float = 0.0) -> torch.optim.Optimizer:
    optimizer = SGD(model.parameters(), lr, momentum=momentum)
    side.lift(model)
    side.attach(optimizer)
    return optimizer


# --- gradients --------------------------------------------------------------------------------------------------------


@loop(small)
def accumulated_gradients(side: Any, model: nn.Module) -> nn.Module:
    """Gradients of two batches are added up before a step, and set to zero in place after it."""
    optimizer = started(side, model)
    for step, index in enumerate(side.batches):
        x, y = side.batch(index)
        (F.cross_entropy(model(x), y) / 2).backward()
        if step % 2:
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
    return model


@loop(small)
def gone_through_twice(side: Any, model: nn.Module) -> nn.Module:
    """The same graph is gone through backwards twice."""
    optimizer = started(side, model)
    for index in side.batches:
        x, y = side.batch(index)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward(retain_graph=True)
        loss.backward()
        optimizer.step()
    return model


@loop(small)
def clipped_gradients(side: Any, model: nn.Module) -> nn.Module:
    """Gradients are clipped by value in one layer, and by norm in all."""
    optimizer = started(side, model)
    for index in side.batches:
        x, y = side.batch(index)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        clip_grad_value_(model[2].parameters(), 0.1)
        norm = clip_grad_norm_(model.parameters(), 0.2)
        optimizer.step()
    return model, {"norm": norm}


@loop(small)
def gradients_by_hand(side: Any, model: nn.Module) -> nn.Module:
    """`torch.autograd.grad` gives the gradients, which are stored and then given noise."""
    optimizer = started(side, model)
    for step, index in enumerate(side.batches):
        seeded(step)
        x, y = side.batch(index)
        gradients = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient + 0.01 * torch.randn(gradient.shape, dtype=gradient.dtype)
        optimizer.step()
    return model


@loop(small, "either")
def a_gradient_penalty(side: Any, model: nn.Module) -> nn.Module:
    """The gradient at the inputs is part of the loss, which takes second derivatives."""
    optimizer = started(side, model)
    for index in side.batches:
        x, y = side.batch(index)
        x = x.requires_grad_()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        (loss + slope.square().sum()).backward()
        optimizer.step()
    return model


@loop(small, "either", attack=Attack(0.001))
def adversarial_training(side: Any, model: nn.Module) -> nn.Module:
    """Inputs are moved along their gradient before the loss is computed again."""
    optimizer = started(side, model)
    for index in side.batches:
        x, y = side.batch(index)
        asked = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(F.cross_entropy(model(asked), y), asked)
        optimizer.zero_grad()
        F.cross_entropy(model(x + 0.1 * slope.detach()), y).backward()
        optimizer.step()
    return model


@loop(small, "either")
def hooks_before_lifting(side: Any, model: nn.Module) -> nn.Module:
    """Gradient hooks were registered before the parameters became sets."""
    model[0].weight.register_hook(lambda gradient: 2 * gradient)
    optimizer = started(side, model)
    one_pass(side, model, optimizer)
    return model


@loop(small)
def hooks_after_lifting(side: Any, model: nn.Module) -> nn.Module:
    """Gradient hooks are registered on parameters that are sets, and one is taken away again."""
    optimizer = started(side, model)
    model[0].weight.register_hook(lambda gradient: 2 * gradient)
    handle = model[2].weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    ordinary(side, model, side.batches[0], optimizer)
    handle.remove()
    one_pass(side, model, optimizer)
    return model


@loop(small, "either")
def steps_inside_the_backward_pass(side: Any, model: nn.Module) -> nn.Module:
    """Every parameter has an optimizer that steps as soon as its gradient is there."""
    side.lift(model)
    for parameter in model.parameters():
        optimizer = SGD([parameter], 0.2)
        side.attach(optimizer)

        def step(parameter: Tensor, optimizer: torch.optim.Optimizer = optimizer) -> None:
            optimizer.step()
            optimizer.zero_grad()

        parameter.register_post_accumulate_grad_hook(step)
    for index in side.batches:
        ordinary(side, model, index)
    return model


@loop(small, "either")
def saved_elsewhere(side: Any, model: nn.Module) -> nn.Module:
    """What the backward pass needs is packed away by hooks."""
    optimizer = started(side, model)
    with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept.clone(), lambda kept: kept * 1):
        one_pass(side, model, optimizer)
    return model


@loop(small, "either")
def looking_for_anomalies(side: Any, model: nn.Module) -> nn.Module:
    """Anomaly detection looks into every gradient."""
    optimizer = started(side, model)
    with torch.autograd.set_detect_anomaly(True):
        one_pass(side, model, optimizer)
    return model


@loop(small, "either", dtype=torch.float32)
def scaled_gradients(side: Any, model: nn.Module) -> nn.Module:
    """A `GradScaler` scales the loss, and looks whether gradients are finite."""
    optimizer, scaler = started(side, model), torch.amp.GradScaler("cpu", init_scale=64.0)
    for index in side.batches:
        x, y = side.batch(index)
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()
    return model


# --- losses -----------------------------------------------------------------------------------------------------------


@loop(small)
def a_loss_by_hand(side: Any, model: nn.Module) -> nn.Module:
    """Cross entropy written out, with penalties on weights and a total that is added up."""
    optimizer, total = started(side, model), 0.0
    for index in side.batches:
        x, y = side.batch(index)
        optimizer.zero_grad()
        logits = model(x)
        loss = -logits.log_softmax(1).gather(1, y.unsqueeze(1)).mean()
        loss = loss + 0.01 * sum(parameter.square().sum() + parameter.abs().sum() for parameter in model.parameters())
        loss.backward()
        optimizer.step()
        total = total + loss.detach()
    return model, {"total": total}


@loop(small, "either")
def a_plain_total(side: Any, model: nn.Module) -> nn.Module:
    """Losses are added up in a plain tensor."""
    optimizer, total = started(side, model), torch.zeros((), dtype=torch.float64)
    for index in side.batches:
        total += ordinary(side, model, index, optimizer)
    return model, {"total": total}


@loop(small)
def mixed_samples(side: Any, model: nn.Module) -> nn.Module:
    """Every sample is mixed with another one, and noise is added, after lifting."""
    optimizer = started(side, model)
    for step, index in enumerate(side.batches):
        seeded(step)
        x, y = side.batch(index)
        other, share = torch.randperm(len(x)), torch.rand(()).item()
        optimizer.zero_grad()
        logits = model(share * x + (1 - share) * x[other] + 0.1 * torch.randn(x.shape, dtype=x.dtype))
        (share * F.cross_entropy(logits, y) + (1 - share) * F.cross_entropy(logits, y[other])).backward()
        optimizer.step()
    return model


@loop(small)
def the_same_sample_twice(side: Any, model: nn.Module) -> nn.Module:
    """A batch holds samples twice, and one of them alone makes a batch."""
    optimizer = started(side, model)
    for index in side.batches:
        ordinary(side, model, torch.cat((index, index[:2])), optimizer)
        ordinary(side, model, index[:1], optimizer)
    return model


@loop(small, "either")
def the_hardest_samples(side: Any, model: nn.Module) -> nn.Module:
    """Only the three samples with the largest losses count."""
    optimizer = started(side, model)
    for index in side.batches:
        x, y = side.batch(index)
        optimizer.zero_grad()
        torch.topk(F.cross_entropy(model(x), y, reduction="none"), 3).values.mean().backward()
        optimizer.step()
    return model


# --- functions of functions -------------------------------------------------------------------------------------------


@loop(small)
def called_with_other_parameters(side: Any, model: nn.Module) -> nn.Module:
    """`functional_call` runs the model with half its parameters before the step."""
    optimizer = started(side, model)
    for index in side.batches:
        x, y = side.batch(index)
        optimizer.zero_grad()
        halves = {name: 0.5 * parameter for name, parameter in model.named_parameters()}
        F.cross_entropy(functional_call(model, halves, (x,)), y).backward()
        optimizer.step()
    return model


@loop(small, "either")
def gradients_of_functions(side: Any, model: nn.Module) -> nn.Module:
    """`torch.func.grad` differentiates a function of the parameters."""
    side.lift(model)
    for index in side.batches:
        x, y = side.batch(index)
        parameters = {name: value.detach() for name, value in model.named_parameters()}
        slopes = grad(lambda values: F.cross_entropy(functional_call(model, values, (x,)), y))(parameters)  # noqa: B023
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.sub_(0.3 * slopes[name])
    return model


@loop(small, "either")
def a_function_for_each_sample(side: Any, model: nn.Module) -> nn.Module:
    """`vmap` runs the model on each sample of a batch by itself."""
    optimizer = started(side, model)
    for index in side.batches:
        x, y = side.batch(index)
        optimizer.zero_grad()
        F.cross_entropy(vmap(lambda sample: model(sample))(x), y).backward()
        optimizer.step()
    return model
