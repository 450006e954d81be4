"""Interval mode is never looser than the published FullCert bounds, and zonotopes never looser than intervals.

The published step (Lorenz, Kwiatkowska, Fritz, GCPR 2024) is written out here from its formulas: Rump's product of
center and radius for every matrix product, end points for monotone functions, four corners for elementwise products,
and an update that subtracts the gradient's interval. Its second division by the batch size is left out.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import boundflow as bf

Interval = tuple[torch.Tensor, torch.Tensor]


def middle(x: Interval) -> Interval:
    return (x[0] + x[1]) / 2, (x[1] - x[0]) / 2


def product(a: Interval, b: Interval) -> Interval:
    (ca, ra), (cb, rb) = middle(a), middle(b)
    center, radius = ca @ cb, (ca.abs() + ra) @ rb + ra @ cb.abs()
    return center - radius, center + radius


def elementwise(a: Interval, b: Interval) -> Interval:
    corners = torch.stack([x * y for x in a for y in b])
    return corners.amin(0), corners.amax(0)


def transposed(x: Interval) -> Interval:
    return x[0].T, x[1].T


def published_step(layers: list[tuple[Interval, Interval]], x: Interval, y: torch.Tensor, lr: float) -> list:
    """One SGD step of a ReLU network with binary cross entropy; each layer is (weight, bias) with weight (out, in)."""
    inputs, gates = [], []
    for number, (weight, bias) in enumerate(layers):
        inputs.append(x)
        low, high = product(x, transposed(weight))
        x = low + bias[0], high + bias[1]
        if number < len(layers) - 1:
            gates.append(((x[0] > 0).to(y.dtype), (x[1] > 0).to(y.dtype)))
            x = x[0].relu(), x[1].relu()
    gradient = tuple((torch.sigmoid(end[:, 0]) - y).unsqueeze(1) / len(y) for end in x)
    updated = []
    for number in reversed(range(len(layers))):
        (weight, bias), before = layers[number], inputs[number]
        change = product(transposed(gradient), before)
        updated.append(
            (
                (weight[0] - lr * change[1], weight[1] - lr * change[0]),
                (bias[0] - lr * gradient[1].sum(0), bias[1] - lr * gradient[0].sum(0)),
            )
        )
        if number:
            gradient = elementwise(gates[number - 1], product(gradient, weight))
    return updated[::-1]


def network(random: np.random.Generator) -> nn.Sequential:
    widths = [int(random.integers(1, 7)) for _ in range(random.integers(2, 5))] + [1]
    layers: list[nn.Module] = []
    for before, after in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(before, after).double(), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@pytest.mark.parametrize("seed", range(25))
def test_never_looser_than_the_published_bounds(seed: int) -> None:
    random = np.random.default_rng(seed)
    torch.manual_seed(seed)
    model = network(random)
    linears = [layer for layer in model if isinstance(layer, nn.Linear)]
    x = torch.tensor(random.normal(size=(9, linears[0].in_features)))
    y = torch.tensor(random.integers(0, 2, size=9)).double()
    epsilon, lr = float(10.0 ** random.uniform(-4, -1)), 0.3
    theirs = [((w, w), (b, b)) for w, b in ((layer.weight.detach(), layer.bias.detach()) for layer in linears)]
    bf.lift(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(3):
        theirs = published_step(theirs, (x - epsilon, x + epsilon), y, lr)
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(bf.ball(x, epsilon))[:, 0], y).backward()
        optimizer.step()
        for layer, (weight, bias) in zip(linears, theirs, strict=True):
            for ours, (low, high) in ((layer.weight, weight), (layer.bias, bias)):
                allowance = 1e-11 * (1 + high.abs() + low.abs() + (high - low))
                assert bool((low - allowance <= ours.lower).all()) and bool((ours.upper <= high + allowance).all())


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
def test_zonotopes_are_never_looser_than_intervals_in_training(seed: int, activation: type) -> None:
    """Whole runs, small radii and radii at which the affine form alone would be worse."""
    random = np.random.default_rng(seed)
    torch.manual_seed(seed)
    plain = nn.Sequential(nn.Linear(3, 5), activation(), nn.Linear(5, 1)).double()
    x, y = torch.tensor(random.normal(size=(8, 3))), torch.tensor(random.integers(0, 2, size=8)).double()
    epsilon = float(10.0 ** random.uniform(-4, 0))
    trained = []
    for symbols in (None, bf.Symbols(bf.threats.Linf(epsilon), order=2)):
        model = bf.lift(copy.deepcopy(plain), symbols)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)
        if symbols is not None:
            symbols.attach(optimizer)
        for _ in range(4):
            inputs = bf.ball(x, epsilon) if symbols is None else symbols.lift(x, y, torch.arange(8))[0]
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(model(inputs)[:, 0], y).backward()
            optimizer.step()
        trained.append(model)
    for interval, zonotope in zip(trained[0].parameters(), trained[1].parameters(), strict=True):
        allowance = 1e-11 * (1 + interval.spread)
        assert bool((interval.lower - allowance <= zonotope.lower).all())
        assert bool((zonotope.upper <= interval.upper + allowance).all())


def test_zonotopes_contract_where_intervals_grow() -> None:
    """``theta - lr (theta - x)`` contracts to x: the radius tends to that of x, while an interval's radius explodes."""
    radii = []
    for symbols in (None, bf.Symbols(bf.threats.Linf(0.01))):
        theta = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        module = bf.lift(nn.ParameterList([theta]), symbols)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
        x = torch.ones(1, 1, dtype=torch.float64)
        if symbols is None:
            target = bf.ball(x, 0.01)
        else:
            symbols.attach(optimizer)
            target, _ = symbols.lift(x, x, torch.tensor([0]))
        for _ in range(30):
            optimizer.zero_grad()
            (0.5 * (module[0] - target[0]).square()).sum().backward()
            optimizer.step()
        radii.append(float(module[0].spread))
    assert radii[0] > 100 and abs(radii[1] - 0.01) < 1e-6


def test_one_flipped_label_moves_every_layer_by_one_sample() -> None:
    """Under a budget, intervals of all layers count what one sample does, not the sum over all of them."""
    torch.manual_seed(0)
    x = torch.randn(100, 3, dtype=torch.float64)
    y = (x[:, 0] > 0).long()
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).double()
    threat = bf.threats.AtMost(1, bf.threats.Labels())
    certificate = bf.certify(model, (x, y), threat=threat, domain="interval", loss="ce", optimizer_options={"lr": 1.0})
    assert certificate.model is not None
    first = next(certificate.model.parameters())
    one_sample = model[2].weight.abs().sum(0).unsqueeze(1) * x.abs().amax(0) / len(x)  # |W^T (p - y)| x_i / n
    assert bool((first.upper - first.lower <= 2 * one_sample + 1e-9).all())  # one sample upwards, another downwards
