"""Poisoned runs of plain torch.nn and torch.optim land inside, for every optimizer, every layer and every loss."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from poisoning import batches, poisoned_inputs
from torch.optim import SGD, Adam, AdamW, RMSprop
from training import assert_contains_poisoned_runs, certified_training

import boundflow as bf

OPTIMIZERS = {
    "sgd": partial(SGD, lr=0.1),
    "sgd momentum": partial(SGD, lr=0.1, momentum=0.9),
    "sgd nesterov": partial(SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "sgd dampening": partial(SGD, lr=0.1, momentum=0.8, dampening=0.3),
    "sgd decay": partial(SGD, lr=0.1, weight_decay=0.5),
    "sgd maximize": partial(SGD, lr=0.1, maximize=True),
    "adam": partial(Adam, lr=0.01),
    "adam decay": partial(Adam, lr=0.01, weight_decay=0.1),
    "adam amsgrad": partial(Adam, lr=0.01, amsgrad=True),
    "adamw": partial(AdamW, lr=0.01, weight_decay=0.1),
    "rmsprop": partial(RMSprop, lr=0.005),
    "rmsprop momentum": partial(RMSprop, lr=0.005, momentum=0.5),
}


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(x + torch.tanh(self.inner(x)))


class WithEmbedding(nn.Module):
    """A learned table with fixed indices, added to the input."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(3, 4), nn.Linear(4, 1)
        self.register_buffer("index", torch.tensor([2, 0]))

    def forward(self, x):
        return self.head(x + self.table(self.index).mean(0))


def _image(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Unflatten(1, (1, 2, 2)), *layers)


def _batch_norm() -> nn.Module:
    layer = nn.BatchNorm1d(3)
    layer.running_mean.copy_(torch.tensor([0.1, -0.2, 0.3]))
    layer.running_var.copy_(torch.tensor([0.5, 1.5, 1.0]))
    return layer.eval()


class InEvaluation(nn.Module):
    """A layer that stays in evaluation mode whatever the model does."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x):
        self.layer.eval()
        return self.layer(x)


def _hidden(activation: type) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 3), activation(), nn.Linear(3, 1))


ACTIVATIONS = [nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.SiLU, nn.GELU, nn.ELU]
LAYERS = {
    **{kind.__name__: partial(_hidden, kind) for kind in ACTIVATIONS},
    "linear": lambda: nn.Linear(4, 1),
    "without bias": lambda: nn.Sequential(nn.Linear(4, 3, bias=False), nn.Tanh(), nn.Linear(3, 1, bias=False)),
    "residual": Residual,
    "embedding": WithEmbedding,
    "dropout": lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.4), nn.Linear(6, 1)),
    "layer norm": lambda: nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3, eps=0.1), nn.Linear(3, 1)),
    "batch norm": lambda: nn.Sequential(nn.Linear(4, 3), InEvaluation(_batch_norm()), nn.Tanh(), nn.Linear(3, 1)),
    "softmax": lambda: nn.Sequential(nn.Linear(4, 3), nn.Softmax(-1), nn.Linear(3, 1)),
    "conv2d": lambda: _image(nn.Conv2d(1, 2, 2, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(18, 1)),
    "conv2d strided": lambda: _image(nn.Conv2d(1, 2, 2, 2, 1, groups=1), nn.ReLU(), nn.Flatten(), nn.Linear(8, 1)),
    "conv2d dilated": lambda: _image(nn.Conv2d(1, 2, 2, padding=1, dilation=2), nn.Flatten(), nn.Linear(8, 1)),
    "conv1d grouped": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2)), nn.Conv1d(2, 4, 2, padding=1, groups=2), nn.Tanh(), nn.Flatten(), nn.Linear(12, 1)
    ),
    "avg pool": lambda: _image(nn.Conv2d(1, 2, 1), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(2, 1)),
    "max pool": lambda: _image(nn.Conv2d(1, 2, 1), nn.MaxPool2d(2, 1, 1), nn.Flatten(), nn.Linear(18, 1)),
    "adaptive pool": lambda: _image(
        nn.Conv2d(1, 2, 2, padding=1), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8, 1)
    ),
    "max pool 1d": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 2, 1), nn.MaxPool1d(2), nn.AvgPool1d(2), nn.Flatten(), nn.Linear(2, 1)
    ),
}  # fmt: skip


def data(samples: int, features: int, dtype: torch.dtype, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, features, generator=generator, dtype=torch.float64).to(dtype)
    return x, (x[:, 0] + 0.3 * x[:, 1] > 0).to(dtype)


def bce(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(logits.squeeze(-1), y)


def built(make, dtype: torch.dtype, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return make().to(dtype)


DOMAINS = pytest.mark.parametrize("domain", ["interval", "zonotope"])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


@pytest.mark.parametrize("name", OPTIMIZERS)
@DOMAINS
@DTYPES
def test_every_optimizer(name: str, domain: str, dtype: torch.dtype) -> None:
    x, y = data(12, 4, dtype)
    model = built(LAYERS["Tanh"], dtype)
    order = list(batches(12, 6, 2, seed=1))
    assert_contains_poisoned_runs(model, bce, OPTIMIZERS[name], x, y, 0.01, order, domain)


@pytest.mark.parametrize("name", LAYERS)
@DOMAINS
@DTYPES
def test_every_layer(name: str, domain: str, dtype: torch.dtype) -> None:
    x, y = data(10, 4, dtype)
    model = built(LAYERS[name], dtype)
    order = list(batches(10, 5, 2, seed=2))
    optimizer = partial(SGD, lr=0.1, momentum=0.5)
    assert_contains_poisoned_runs(model, bce, optimizer, x, y, 0.005, order, domain, datasets=20)


BINARY_LOSSES = {
    "bce": bce,
    "bce sum": lambda z, y: F.binary_cross_entropy_with_logits(z.squeeze(-1), y, reduction="sum"),
    "bce weights": lambda z, y: F.binary_cross_entropy_with_logits(z.squeeze(-1), y, weight=0.5 + y),
    "bce positive weight": lambda z, y: F.binary_cross_entropy_with_logits(
        z.squeeze(-1), y, pos_weight=torch.tensor(2.5, dtype=y.dtype)
    ),
    "bce soft labels": lambda z, y: F.binary_cross_entropy_with_logits(z.squeeze(-1), 0.1 + 0.8 * y),
    "bce per sample": lambda z, y: F.binary_cross_entropy_with_logits(z.squeeze(-1), y, reduction="none").sum() / 7,
    "mse": lambda z, y: F.mse_loss(z.squeeze(-1), y),
    "mse sum": lambda z, y: F.mse_loss(z.squeeze(-1), y, reduction="sum"),
    "mse weights": lambda z, y: (F.mse_loss(z.squeeze(-1), y, reduction="none") * (0.5 + y)).mean(),
    "hinge": lambda z, y: bf.losses.hinge(z.squeeze(-1), y),
    "hinge weights": lambda z, y: bf.losses.hinge(z.squeeze(-1), y, weight=0.5 + y, reduction="sum"),
    "hinge per sample": lambda z, y: bf.losses.hinge(z.squeeze(-1), y, reduction="none").mean(),
    "ten times": lambda z, y: 10 * bce(z, y),
}
CLASS_WEIGHTS = [0.5, 1.0, 2.0]
CLASS_LOSSES = {
    "ce": F.cross_entropy,
    "ce sum": partial(F.cross_entropy, reduction="sum"),
    "ce per sample": lambda z, y: F.cross_entropy(z, y, reduction="none").mean(),
    "ce smoothing": partial(F.cross_entropy, label_smoothing=0.2),
    "ce weights": lambda z, y: F.cross_entropy(z, y, weight=torch.tensor(CLASS_WEIGHTS, dtype=z.dtype)),
    "ce weights smoothing": lambda z, y: F.cross_entropy(
        z, y, weight=torch.tensor(CLASS_WEIGHTS, dtype=z.dtype), label_smoothing=0.1
    ),
    "ce ignored": lambda z, y: F.cross_entropy(z, y, ignore_index=2),
    "ce probabilities": lambda z, y: F.cross_entropy(z, F.one_hot(y, 3).to(z.dtype) * 0.7 + 0.1),
    "nll": lambda z, y: F.nll_loss(F.log_softmax(z, -1), y),
    "nll weights": lambda z, y: F.nll_loss(
        F.log_softmax(z, -1), y, torch.tensor(CLASS_WEIGHTS, dtype=z.dtype), ignore_index=1, reduction="sum"
    ),
    "multi margin": F.multi_margin_loss,
}


@pytest.mark.parametrize("name", BINARY_LOSSES)
@DOMAINS
@DTYPES
def test_every_binary_loss(name: str, domain: str, dtype: torch.dtype) -> None:
    x, y = data(8, 4, dtype)
    order = list(batches(8, 4, 2, seed=3))
    optimizer = partial(SGD, lr=0.05, momentum=0.5)
    model = built(LAYERS["Tanh"], dtype)
    assert_contains_poisoned_runs(model, BINARY_LOSSES[name], optimizer, x, y, 0.01, order, domain, datasets=20)


@pytest.mark.parametrize("name", CLASS_LOSSES)
@DOMAINS
@DTYPES
def test_every_class_loss(name: str, domain: str, dtype: torch.dtype) -> None:
    x, _ = data(9, 4, dtype)
    y = torch.arange(9) % 3
    model = built(lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3)), dtype)
    order = list(batches(9, 5, 2, seed=4))
    optimizer = partial(SGD, lr=0.1, momentum=0.5)
    assert_contains_poisoned_runs(model, CLASS_LOSSES[name], optimizer, x, y, 0.01, order, domain, datasets=20)


@pytest.mark.parametrize("name", {**BINARY_LOSSES, **CLASS_LOSSES})
@DOMAINS
def test_loss_values_are_bounded(name: str, domain: str) -> None:
    """Bounds on the value hold at random logits, and for intervals of one sample they are tight at the corners."""
    torch.manual_seed(5)
    classes = name in CLASS_LOSSES
    loss = (CLASS_LOSSES if classes else BINARY_LOSSES)[name]
    width = 3 if classes else 1
    z = 3 * torch.randn(6, width, dtype=torch.float64)
    y = torch.arange(6) % 3 if classes else (torch.arange(6) % 2).double()
    if domain == "interval":
        bounded = bf.ball(z, 0.5)
    else:
        bounded, _ = bf.Symbols(bf.threats.Linf(0.5)).lift(z, y, torch.arange(6))
    value = loss(bounded, y)
    for _ in range(200):
        moved = z + 0.5 * (2 * torch.rand_like(z) - 1).sign() * torch.rand(()).double().clamp_min(0.3)
        assert bool(value.contains(loss(moved, y)).all())


@DOMAINS
def test_schedules_and_clipping_by_value(domain: str) -> None:
    x, y = data(10, 4, torch.float64)
    model = built(LAYERS["Tanh"], torch.float64)

    def schedule(optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    order = list(batches(10, 5, 2, seed=5))
    assert_contains_poisoned_runs(
        model, bce, partial(SGD, lr=0.4), x, y, 0.01, order, domain, schedule=schedule, clip_value=0.05
    )


@DOMAINS
@pytest.mark.parametrize("norm", [2.0, 1.0, float("inf")])
def test_clipping_by_norm(domain: str, norm: float) -> None:
    """The norm joins all parameters of one model, so these plain runs go one by one."""
    x, y = data(10, 4, torch.float64)
    model = built(LAYERS["Tanh"], torch.float64)

    def loop(model, inputs, symbols=None):
        optimizer = SGD(model.parameters(), lr=0.3, momentum=0.5)
        if symbols is not None:
            symbols.attach(optimizer)
        for _ in range(3):
            optimizer.zero_grad()
            bce(model(inputs), y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.05, norm)
            optimizer.step()
        return model

    certified = copy.deepcopy(model)
    if domain == "interval":
        bf.lift(certified)
        loop(certified, bf.ball(x, 0.002))
    else:
        symbols = bf.Symbols(bf.threats.Linf(0.002), order=3)
        bf.lift(certified, symbols)
        loop(certified, symbols.lift(x, y, torch.arange(10))[0], symbols)
    for poisoned in poisoned_inputs(x, y, 0.002, 20, 0):
        for inside, plain in zip(
            certified.parameters(), loop(copy.deepcopy(model), poisoned).parameters(), strict=True
        ):
            assert bool(inside.contains(plain.detach()).all())


def test_weight_decay_contracts() -> None:
    """``p - lr (g + decay p)`` shrinks the radius of p by (1 - lr decay), also for intervals."""
    for symbols in (None, bf.Symbols(bf.threats.Linf(1.0))):
        layer = bf.lift(nn.Linear(3, 2).double(), symbols)
        with torch.no_grad():
            layer.weight.copy_(bf.ball(layer.weight.center, 0.1))
        optimizer = SGD(layer.parameters(), lr=0.1, weight_decay=0.5)
        layer.weight.grad = torch.zeros_like(layer.weight)
        optimizer.step()
        assert torch.allclose(layer.weight.spread, torch.full((2, 3), 0.095).double(), rtol=1e-9)


@DOMAINS
def test_frozen_layers_stay_points(domain: str) -> None:
    x, y = data(8, 4, torch.float64)
    model = built(LAYERS["Tanh"], torch.float64)
    model[0].requires_grad_(False)
    order = list(batches(8, 8, 3, seed=6))
    certified = assert_contains_poisoned_runs(model, bce, partial(SGD, lr=0.2), x, y, 0.01, order, domain)
    assert bool((certified[0].weight.spread == 0).all())


def test_larger_radius_gives_larger_sets() -> None:
    x, y = data(8, 4, torch.float64)
    model = built(LAYERS["Tanh"], torch.float64)
    order = list(batches(8, 4, 2, seed=7))
    small, large = (
        certified_training(model, bce, partial(SGD, lr=0.1), x, y, epsilon, order, "interval")
        for epsilon in (0.001, 0.002)
    )
    for inner, outer in zip(small.parameters(), large.parameters(), strict=True):
        assert bool((outer.lower <= inner.lower).all()) and bool((inner.upper <= outer.upper).all())


@DOMAINS
def test_a_radius_of_zero_gives_the_plain_run(domain: str) -> None:
    x, y = data(8, 4, torch.float64)
    model = built(LAYERS["Tanh"], torch.float64)
    order = list(batches(8, 4, 2, seed=8))
    certified = assert_contains_poisoned_runs(model, bce, partial(Adam, lr=0.01), x, y, 0.0, order, domain, datasets=4)
    assert max(float(p.spread.max()) for p in certified.parameters()) < 1e-9
