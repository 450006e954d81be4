"""Certified training as a user writes it, and the comparison with poisoned plain runs."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from poisoning import poisoned_inputs, stacked_outputs, stacked_trainings
from torch import Tensor

import boundflow as bf


def certified_training(
    model: torch.nn.Module,
    loss: Callable,
    make_optimizer: Callable,
    x: Tensor,
    y: Tensor,
    epsilon: float,
    order: list[Tensor],
    domain: str,
    schedule: Callable | None = None,
    clip_value: float | None = None,
) -> torch.nn.Module:
    """An ordinary loop on a lifted copy of the model."""
    model = copy.deepcopy(model)
    optimizer = make_optimizer([p for p in model.parameters() if p.requires_grad])
    scheduler = schedule(optimizer) if schedule else None
    symbols = bf.Symbols(bf.threats.Linf(epsilon), order=3) if domain == "zonotope" else None
    bf.lift(model, symbols)
    if symbols is not None:
        symbols.attach(optimizer)
    for step, index in enumerate(order):
        torch.manual_seed(step)
        inputs = bf.ball(x[index], epsilon) if symbols is None else symbols.lift(x[index], y[index], index)[0]
        optimizer.zero_grad()
        loss(model(inputs), y[index]).backward()
        if clip_value is not None:
            torch.nn.utils.clip_grad_value_(model.parameters(), clip_value)
        optimizer.step()
        if scheduler:
            scheduler.step()
    return model


def assert_contains_poisoned_runs(
    model: torch.nn.Module,
    loss: Callable,
    make_optimizer: Callable,
    x: Tensor,
    y: Tensor,
    epsilon: float,
    order: list[Tensor],
    domain: str,
    datasets: int = 50,
    seed: int = 0,
    **options: object,
) -> torch.nn.Module:
    """No parameter and no logit of any poisoned run outside its bounds, with no tolerance."""
    certified = certified_training(model, loss, make_optimizer, x, y, epsilon, order, domain, **options)
    poisoned = poisoned_inputs(x, y, epsilon, datasets, seed)
    runs = stacked_trainings(model, loss, make_optimizer, poisoned, y, order, **options)
    for name, parameter in certified.named_parameters():
        inside = (parameter.lower <= runs[name]) & (runs[name] <= parameter.upper)
        assert bool(inside.all()), f"{name}: {int((~inside).sum())} values outside"
    certified.eval()
    with torch.no_grad():
        logits = certified(bf.ball(x, epsilon))
        for test in (x, poisoned[1], poisoned[2]):
            outputs = stacked_outputs(model, runs, test)
            assert bool(((logits.lower <= outputs) & (outputs <= logits.upper)).all()), "a logit is outside"
    return certified
