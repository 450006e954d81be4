"""Plain PyTorch trainings on poisoned datasets, many at once.

The parameters of D models are stacked on a leading axis and held by one ordinary `torch.optim` optimizer; the loss is
the sum over `vmap` of the ordinary module. Optimizers work elementwise, so these are D independent trainings. Nothing
here imports boundflow.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, vmap

Schedule = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]


def poisoned_inputs(x: Tensor, y: Tensor, epsilon: float, count: int, seed: int) -> Tensor:
    """``count`` datasets within epsilon: corners, random points, and shifts of one class against the other."""
    random = np.random.default_rng(seed)
    datasets = []
    for number in range(count):
        kind = number % 4
        if kind == 0:
            move = random.choice([-1.0, 1.0], size=x.shape)
        elif kind == 1:
            move = random.uniform(-1, 1, size=x.shape)
        else:
            direction = random.choice([-1.0, 1.0], size=x.shape[1:])
            sign = (y.numpy().reshape(len(x), -1)[:, 0] > 0.5) * 2.0 - 1 if kind == 2 else np.ones(len(x))
            move = sign.reshape(-1, *(1,) * (x.dim() - 1)) * direction
        datasets.append(_inside(x, epsilon, torch.tensor(move, dtype=torch.float64)))
    return torch.stack(datasets)


def _inside(x: Tensor, epsilon: float, move: Tensor) -> Tensor:
    """``x + epsilon move`` in the dtype of the data, no further than epsilon away even after rounding."""
    wide = x.double()
    moved = (wide + epsilon * move).to(x.dtype)
    too_far = (moved.double() - wide).abs() > epsilon
    return torch.where(too_far, torch.nextafter(moved, x), moved)


def batches(samples: int, batch_size: int, epochs: int, seed: int) -> Iterator[Tensor]:
    """The same order of samples for every training."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        yield from torch.randperm(samples, generator=generator).split(batch_size)


def stacked_trainings(
    model: torch.nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    make_optimizer: Callable[[list[Tensor]], torch.optim.Optimizer],
    datasets: Tensor,
    targets: Tensor,
    order: list[Tensor],
    schedule: Schedule | None = None,
    clip_value: float | None = None,
) -> dict[str, Tensor]:
    """The parameters of D trainings, each of shape (D, *shape)."""
    model, count = copy.deepcopy(model), len(datasets)
    parameters = {
        name: parameter.detach().expand(count, *parameter.shape).clone().requires_grad_(parameter.requires_grad)
        for name, parameter in model.named_parameters()
    }
    trained = [parameter for parameter in parameters.values() if parameter.requires_grad]
    optimizer = make_optimizer(trained)
    scheduler = schedule(optimizer) if schedule else None

    def one_loss(values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return loss(functional_call(model, values, (x,)), y)

    for step, index in enumerate(order):
        torch.manual_seed(step)  # masks of dropout
        optimizer.zero_grad()
        x = datasets[:, index]
        vmap(one_loss, in_dims=(0, 0, None), randomness="same")(parameters, x, targets[index]).sum().backward()
        if clip_value is not None:
            torch.nn.utils.clip_grad_value_(trained, clip_value)
        optimizer.step()
        if scheduler:
            scheduler.step()
    return {name: parameter.detach() for name, parameter in parameters.items()}


def stacked_outputs(model: torch.nn.Module, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
    """Logits of every trained model on every input, (D, N, ...)."""
    model = copy.deepcopy(model).eval()
    with torch.no_grad():
        return vmap(lambda values: functional_call(model, values, (x,)))(parameters)
