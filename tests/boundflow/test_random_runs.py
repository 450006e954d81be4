"""Two hundred randomly drawn training runs, each against fifty poisoned datasets trained in plain PyTorch.

Architecture, optimizer, loss, radius, batch size, dtype, domain and seeds are drawn at random; the draw is fixed by the
number of the run. No parameter and no logit may lie outside its bounds.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from poisoning import batches
from training import assert_contains_poisoned_runs

import boundflow as bf

RUNS = 200
ACTIVATIONS = [nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.SiLU, nn.GELU, nn.ELU, nn.Hardtanh]


def drawn_model(random: np.random.Generator, features: int, outputs: int) -> nn.Module:
    layers: list[nn.Module] = []
    width = features
    if random.random() < 0.15:
        channels = int(random.integers(1, 3))
        layers += [nn.Unflatten(1, (1, features)), nn.Conv1d(1, channels, 2, padding=1)]
        layers += [random.choice(ACTIVATIONS)()]
        if random.random() < 0.5:
            layers += [random.choice([nn.MaxPool1d, nn.AvgPool1d])(2)]
            width = channels * ((features + 1) // 2)
        else:
            width = channels * (features + 1)
        layers += [nn.Flatten()]
    for _ in range(random.integers(0, 3)):
        hidden = int(random.integers(1, 6))
        layers += [nn.Linear(width, hidden, bias=bool(random.random() < 0.8))]
        if random.random() < 0.15 and hidden > 1:
            layers += [nn.LayerNorm(hidden, eps=0.5)]
        layers += [random.choice(ACTIVATIONS)()]
        if random.random() < 0.15:
            layers += [nn.Dropout(0.3)]
        width = hidden
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def drawn_optimizer(random: np.random.Generator):
    lr = float(random.choice([0.01, 0.05, 0.2]))
    decay = float(random.choice([0.0, 0.0, 0.1]))
    momentum = float(random.choice([0.0, 0.5, 0.9]))
    kind = random.integers(0, 6)
    if kind <= 2:
        nesterov = bool(momentum > 0 and random.random() < 0.4)
        return lambda p: torch.optim.SGD(p, lr=lr, momentum=momentum, weight_decay=decay, nesterov=nesterov)
    if kind == 3:
        return lambda p: torch.optim.Adam(p, lr=0.1 * lr, weight_decay=decay, amsgrad=bool(decay))
    if kind == 4:
        return lambda p: torch.optim.AdamW(p, lr=0.1 * lr, weight_decay=decay)
    return lambda p: torch.optim.RMSprop(p, lr=0.02 * lr, momentum=momentum)


def drawn_loss(random: np.random.Generator):
    """(loss, number of outputs, whether targets are class indices)."""
    kind = random.integers(0, 6)
    if kind == 0:
        return lambda z, y: F.mse_loss(z.squeeze(-1), y), 1, False
    if kind == 1:
        return lambda z, y: bf.losses.hinge(z.squeeze(-1), y), 1, False
    if kind <= 3:
        reduction = str(random.choice(["mean", "sum"]))
        return lambda z, y: F.binary_cross_entropy_with_logits(z.squeeze(-1), y, reduction=reduction), 1, False
    smoothing = float(random.choice([0.0, 0.1]))
    return lambda z, y: F.cross_entropy(z, y, label_smoothing=smoothing), int(random.integers(2, 5)), True


@pytest.mark.parametrize("number", range(RUNS))
def test_random_run(number: int) -> None:
    random = np.random.default_rng([2024, number])
    dtype = [torch.float32, torch.float64][number % 2]
    domain = ["interval", "zonotope"][number // 2 % 2]
    features, samples = int(random.integers(1, 6)), int(random.integers(3, 13))
    loss, outputs, classes = drawn_loss(random)
    torch.manual_seed(int(random.integers(2**31)))
    model = drawn_model(random, features, outputs).to(dtype)
    x = torch.tensor(random.normal(size=(samples, features)), dtype=dtype)
    y = torch.tensor(random.integers(0, outputs if classes else 2, size=samples))
    y = y if classes else y.to(dtype)
    order = list(batches(samples, int(random.integers(1, samples + 1)), 2, seed=number))[: int(random.integers(1, 6))]
    epsilon = float(10.0 ** random.uniform(-5, -2.5))
    try:
        assert_contains_poisoned_runs(model, loss, drawn_optimizer(random), x, y, epsilon, order, domain, seed=number)
    except bf.VoidBounds:
        pytest.fail("the drawn run blew up and shows nothing: draw smaller radii")
