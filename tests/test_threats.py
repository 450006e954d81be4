"""Every threat against plain PyTorch trainings on data that an attacker under it could really have left behind."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import poisons
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from poisons import Data, Poison
from torch import Tensor
from torch.func import functional_call, vmap

import boundflow as bf
from boundflow import clean
from boundflow import symbols as symbols_module

T = bf.threats
SAMPLES, DRAWS = 24, 60
FEATURES = 5  # two numbers, then three one-hot columns


def observed(task: str, dtype: torch.dtype) -> Data:
    """Two clouds in the plane with a category beside them; labels 0 to 2, or numbers."""
    random = np.random.default_rng(5)
    y = torch.arange(SAMPLES) % (3 if task == "ce" else 2)
    plane = torch.from_numpy(random.normal(size=(SAMPLES, 2)) * 0.3) + torch.stack((2 * y - 1, 1 - 2 * y), 1)
    hot = F.one_hot(torch.from_numpy(random.integers(0, 3, SAMPLES)), 3)
    x = torch.cat((plane, hot), 1).to(dtype)
    targets = y if task in ("bce", "ce", "hinge") else (plane[:, 0] * 0.5).to(dtype)
    return Data(x, targets, torch.ones(SAMPLES, dtype=dtype))


def network(outputs: int, dtype: torch.dtype, activation: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(FEATURES, 4), activation(), nn.Linear(4, outputs)).to(dtype)


LOSSES = {
    "bce": lambda z, y, w: F.binary_cross_entropy_with_logits(z[:, 0], y.to(z.dtype), reduction="none") * w,
    "ce": lambda z, y, w: F.cross_entropy(z, y, reduction="none") * w,
    "mse": lambda z, y, w: (z[:, 0] - y) ** 2 * w,
    "hinge": lambda z, y, w: torch.relu(1 - (2 * y - 1).to(z.dtype) * z[:, 0]) * w,
}


def plain_runs(
    model: nn.Module, task: str, datasets: list[Data], order: list[Tensor], options: dict
) -> dict[str, Tensor]:
    """Ordinary SGD on every dataset: the parameters of each, stacked."""
    model = copy.deepcopy(model)
    parameters = {
        name: value.detach().expand(len(datasets), *value.shape).clone().requires_grad_()
        for name, value in model.named_parameters()
    }
    optimizer = torch.optim.SGD(list(parameters.values()), **options)
    x, y, w = (torch.stack([getattr(data, name) for data in datasets]) for name in ("x", "y", "weights"))

    def loss(values: dict[str, Tensor], x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return LOSSES[task](functional_call(model, values, (x,)), y, w).sum() / len(x)

    for index in order:
        optimizer.zero_grad()
        vmap(loss)(parameters, x[:, index], y[:, index], w[:, index]).sum().backward()
        optimizer.step()
    return {name: value.detach() for name, value in parameters.items()}


def batches(size: int | None, epochs: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)  # as certify draws them
    if size is None:
        return [torch.arange(SAMPLES)] * epochs
    return [part for _ in range(epochs) for part in torch.randperm(SAMPLES, generator=generator).split(size)]


def certified(threat: Any, task: str, data: Data, domain: str, **options: Any) -> bf.Certificate:
    settings = {"optimizer_options": {"lr": 0.4, "momentum": 0.5}, "epochs": 4, "order": 3, **options}
    outputs = 3 if task == "ce" else 1
    model = settings.pop("model", None) or network(outputs, data.x.dtype)
    return bf.certify(model, (data.x, data.y), threat=threat, loss=task, domain=domain, **settings)


def assert_contains(threat: Any, poison: Poison, task: str, data: Data, domain: str, **options: Any) -> bf.Certificate:
    """No parameter and no logit of any poisoned run outside its bounds, with no tolerance."""
    certificate = certified(threat, task, data, domain, **options)
    assert certificate.model is not None
    random = np.random.default_rng(1)
    datasets = [poison(data, random) for _ in range(DRAWS)]
    model = options.get("model") or network(3 if task == "ce" else 1, data.x.dtype)
    order = batches(options.get("batch_size"), options.get("epochs", 4))
    runs = plain_runs(model, task, datasets, order, options.get("optimizer_options", {"lr": 0.4, "momentum": 0.5}))
    for name, parameter in certificate.model.named_parameters():
        inside = parameter.contains(runs[name])
        assert bool(inside.all()), f"{name}: {int((~inside).sum())} of {inside.numel()} values outside"
    observed_x = torch.nan_to_num(data.x, nan=0.0)
    prediction = certificate.predict(observed_x)
    outputs = vmap(lambda values: functional_call(model, values, (observed_x,)))(runs)
    assert bool(((prediction.lower <= outputs) & (outputs <= prediction.upper)).all()), "a logit is outside"
    answers = (outputs[..., 0] > 0).long() if outputs.shape[-1] == 1 else outputs.argmax(-1)
    if task != "mse":
        assert bool((answers == prediction.label)[:, prediction.certified].all()), "a certified answer has changed"
    return certificate


def with_holes(data: Data) -> Data:
    x = data.x.clone()
    x[::5, 0] = float("nan")
    x[3, 1] = float("nan")
    return data._replace(x=x)


def on_grid(data: Data) -> Data:
    x = data.x.clone()
    x[:, :2] = (torch.round(x[:, :2] / 0.125) * 0.125).clamp(-4, 4)
    return data._replace(x=x)


def clipped(data: Data) -> Data:
    x = data.x.clone()
    x[:, :2] = x[:, :2].clamp(0.0, 1.0)  # many values on the edge of the range
    return data._replace(x=x)


RANGE = [[-1.0, 1.0], [-1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
PLANE = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0], dtype=torch.float64)

# name -> (threat, poison, loss, what is done to the observed data)
THREATS: dict[str, tuple[Any, Poison, str, Any]] = {
    "linf": (T.Linf(0.05), poisons.linf(0.05), "bce", None),
    "linf per feature": (T.Linf(0.1 * PLANE), poisons.linf(0.1 * PLANE), "ce", None),
    "linf, clipped": (T.Linf(0.1, clip=(0, 1)), poisons.linf(0.1, (0, 1)), "bce", clipped),
    "l2": (T.L2(0.1), poisons.ball(0.1, 2), "bce", None),
    "l2, clipped": (T.L2(0.8, clip=(0, 1)).on(features=[0, 1]), poisons.to_the_corner(0.8, [0, 1]), "bce", clipped),
    "l1": (T.L1(0.1), poisons.ball(0.1, 1), "ce", None),
    "labels": (T.AtMost(3, T.Labels()), poisons.at_most(3, poisons.labels(2)), "bce", None),
    "labels, hinge": (T.AtMost(2, T.Labels()), poisons.at_most(2, poisons.labels(2)), "hinge", None),
    "labels of three classes": (T.AtMost(3, T.Labels()), poisons.at_most(3, poisons.labels(3)), "ce", None),
    "every label": (T.Labels(), poisons.on(poisons.labels(2), lambda n, r: poisons.chosen(n, n, r)), "bce", None),
    "targets": (T.Labels(0.2), poisons.targets(0.2), "mse", None),
    "targets of a few": (T.AtMost(3, T.Labels(0.5)), poisons.at_most(3, poisons.targets(0.5)), "mse", None),
    "removal": (T.AtMost(4, T.Removal()), poisons.at_most(4, poisons.removal), "bce", None),
    "removal, three classes": (T.AtMost(4, T.Removal()), poisons.at_most(4, poisons.removal), "ce", None),
    "removal, regression": (T.AtMost(4, T.Removal()), poisons.at_most(4, poisons.removal), "mse", None),
    "any may be gone": (
        T.Removal(),
        poisons.on(poisons.removal, lambda n, r: poisons.chosen(n, n, r)),
        "bce",
        None,
    ),
    "linf of a few": (T.AtMost(3, T.Linf(0.5)), poisons.at_most(3, poisons.linf(0.5)), "bce", None),
    "linf of a few, clipped": (
        T.AtMost(4, T.Linf(0.5, clip=(0, 1))),
        poisons.at_most(4, poisons.linf(0.5, (0, 1))),
        "ce",
        clipped,
    ),
    "l2 of a few": (T.AtMost(3, T.L2(0.5)), poisons.at_most(3, poisons.ball(0.5, 2)), "bce", None),
    "l1 of a few": (T.AtMost(3, T.L1(0.5)), poisons.at_most(3, poisons.ball(0.5, 1)), "bce", None),
    "features and labels of a few": (
        T.AtMost(3, T.Linf(0.3) & T.Labels()),
        poisons.at_most(3, poisons.linf(0.3), poisons.labels(3)),
        "ce",
        None,
    ),
    "all features, a few labels, a few gone": (
        T.Linf(0.02) & T.AtMost(2, T.Labels()) & T.AtMost(1, T.Removal()),
        poisons.together(
            poisons.linf(0.02), poisons.at_most(2, poisons.labels(2)), poisons.at_most(1, poisons.removal)
        ),
        "bce",
        None,
    ),
    "tolerance": (
        T.Tolerance({"a": 0.1, 1: "10%"}, columns=["a", "b", "c", "d", "e"]),
        lambda data, random: poisons.linf(
            torch.stack(
                (
                    torch.full((SAMPLES,), 0.1, dtype=torch.float64),
                    0.1 * data.x[:, 1].abs().double(),
                    *torch.zeros(3, SAMPLES, dtype=torch.float64),
                ),
                1,
            )
        )(data, random),
        "bce",
        None,
    ),
    "missing": (T.Missing(RANGE), poisons.missing(-1.0, 1.0), "bce", with_holes),
    "missing, and a few labels": (
        T.Missing(RANGE) & T.AtMost(2, T.Labels()),
        poisons.together(poisons.missing(-1.0, 1.0), poisons.at_most(2, poisons.labels(2))),
        "bce",
        with_holes,
    ),
    "categories": (T.Categories([[2, 3, 4]]), poisons.category([2, 3, 4]), "bce", None),
    "categories of a few": (
        T.AtMost(3, T.Categories([[2, 3, 4]])),
        poisons.at_most(3, poisons.category([2, 3, 4])),
        "ce",
        None,
    ),
    "quantised": (
        T.Quantised(0.05, 0.125, clip=(-4, 4)).on(features=[0, 1]),
        lambda data, random: data._replace(
            x=torch.cat((poisons.requantised(0.05, 0.125, (-4, 4))(data, random).x[:, :2], data.x[:, 2:]), 1)
        ),
        "bce",
        on_grid,
    ),
    "an untrusted source": (
        T.Linf(0.3).on(samples=[1, 4, 7]),
        poisons.on(poisons.linf(0.3), lambda n, r: torch.tensor([1, 4, 7])),
        "bce",
        None,
    ),
    "some features of some": (
        T.AtMost(2, T.Linf(0.5).on(samples=np.arange(SAMPLES) < 6, features=[1])),
        poisons.at_most(2, poisons.on(poisons.linf(0.5, features=[1]), lambda n, r: torch.arange(6))),
        "ce",
        None,
    ),
}


@pytest.mark.parametrize("domain", ["zonotope", "interval"])
@pytest.mark.parametrize("name", THREATS)
def test_poisoned_trainings_stay_inside(name: str, domain: str) -> None:
    threat, poison, task, prepare = THREATS[name]
    for dtype in (torch.float64, torch.float32):
        data = observed(task, dtype)
        data = data if prepare is None else prepare(data)
        assert_contains(threat, poison, task, data, domain)


@pytest.mark.parametrize("name", THREATS)
def test_poisoned_trainings_in_batches_stay_inside(name: str) -> None:
    threat, poison, task, prepare = THREATS[name]
    data = observed(task, torch.float64)
    data = data if prepare is None else prepare(data)
    model = network(3 if task == "ce" else 1, torch.float64, nn.ReLU)
    assert_contains(threat, poison, task, data, "zonotope", batch_size=10, epochs=3, model=model)


FEW = [name for name, (threat, *_) in THREATS.items() if threat.budget is not None]


@pytest.mark.parametrize("pieces", [False, True], ids=["whole", "in pieces"])
@pytest.mark.parametrize("name", FEW)
def test_touched_samples_by_their_intervals(name: str, pieces: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a sum over samples could take a sample's own rows or all of its move, let it take the move."""
    monkeypatch.setattr(clean, "WORTH", 1e9)
    threat, poison, task, prepare = THREATS[name]
    data = observed(task, torch.float64)
    data = data if prepare is None else prepare(data)
    options = {"memory": 200_000} if pieces else {}
    assert_contains(threat, poison, task, data, "zonotope", **options)


@pytest.mark.parametrize("lr", [0.1, 1 / 6, 0.25, 1 / 3])
def test_a_sample_that_the_parameters_have_seen(lr: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a sample's move does now and what it did to the weight in the first step cancel, or nearly so.

    One weight w = 1 for x = 1 with target 0: after a step it is ``1 - lr x^2``, and its output ``x - lr x^3`` hardly
    depends on x for lr = 1/3, though the weight alone does.
    """
    data = Data(torch.tensor([[1.0], [0.01]]).double(), torch.zeros(2).double(), torch.ones(2).double())
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.ones_(model.weight)
    recipe: dict[str, Any] = {"model": model, "optimizer_options": {"lr": lr}}
    moved = torch.linspace(-0.05, 0.05, 81, dtype=torch.float64)
    datasets = [data._replace(x=data.x + shift * torch.tensor([[1.0], [0.0]]).double()) for shift in moved]
    for steps in (2, 3, 4):
        monkeypatch.setattr(
            clean, "WORTH", 0.0
        )  # rows in the first step, so that the weight knows the sample, then moves
        recipe["callbacks"] = [lambda step: monkeypatch.setattr(clean, "WORTH", 1e9)]
        certificate = certified(T.AtMost(1, T.Linf(0.05)), "mse", data, "zonotope", epochs=steps, **recipe)
        runs = plain_runs(model, "mse", datasets, [torch.arange(2)] * steps, {"lr": lr})
        assert certificate.model is not None
        weight, symbols = certificate.model.weight, certificate.model.weight.symbols
        generators, rows, error = symbols.expand(weight.form.generators.flatten(1), weight.form.rows)
        owners, _ = symbols.owners_and_parts(rows.numbers)
        mine, free = (torch.from_numpy(owners == number) for number in (0, symbols_module.NOBODY))
        middle = weight.form.center.item() + generators[mine].sum() * moved / 0.05  # with the symbol at its true value
        reach = generators[free].abs().sum() + weight.form.radius.item() + error.item()
        assert bool(((runs["weight"].flatten() - middle).abs() <= reach).all()), "the form is off its symbol"


def test_what_every_sample_may_change_stays_in_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """All features move the same way and one target hardly: the rows of features are not those of touched samples."""
    monkeypatch.setattr(clean, "WORTH", 1e9)
    data = observed("mse", torch.float64)
    model = nn.Linear(FEATURES, 1).double()
    nn.init.zeros_(model.weight), nn.init.zeros_(model.bias)
    threat = T.Linf(0.3) & T.AtMost(1, T.Labels(1e-6))
    options = {"lr": 0.1}
    certificate = certified(threat, "mse", data, "zonotope", model=model, optimizer_options=options, epochs=2)
    signs = (
        data.y.sign().unsqueeze(1)
        * torch.tensor([[1.0, 1, 1, 1, 1], [1, 0, 0, 0, 0], [0, 1, 0, 0, 0]]).double()[:, None]
    )
    datasets = [data._replace(x=data.x + 0.3 * side * sign) for sign in signs for side in (-1, 1)]
    runs = plain_runs(model, "mse", datasets, [torch.arange(SAMPLES)] * 2, options)
    assert certificate.model is not None
    for name, parameter in certificate.model.named_parameters():
        assert bool(parameter.contains(runs[name]).all()), name


@pytest.mark.parametrize("name", THREATS)
def test_without_rows_for_samples(name: str) -> None:
    """Where rows do not fit into memory, what the attacker did is an error like any other, and still covered."""
    threat, poison, task, prepare = THREATS[name]
    data = observed(task, torch.float64)
    data = data if prepare is None else prepare(data)
    certificate = assert_contains(threat, poison, task, data, "zonotope", batch_size=10, epochs=3, memory=0)
    assert certificate.record["not_tracked"]


@pytest.mark.parametrize("name", THREATS)
def test_batches_in_pieces(name: str) -> None:
    """A batch that does not fit into memory is taken in pieces; the budget still counts for all of it."""
    threat, poison, task, prepare = THREATS[name]
    data = observed(task, torch.float64)
    data = data if prepare is None else prepare(data)
    whole = certified(threat, task, data, "zonotope")
    pieces = assert_contains(threat, poison, task, data, "zonotope", memory=200_000)
    assert not pieces.record["not_tracked"] and whole.model is not None and pieces.model is not None
    for first, second in zip(whole.model.parameters(), pieces.model.parameters(), strict=True):
        wide, wider = first.upper - first.lower, second.upper - second.lower
        # a line is chosen for each unit by what it costs over the samples of a piece, so pieces differ a little
        assert float((wider / wide).mean()) < 1.1, "pieces cost tightness"


# --- replaced samples -----------------------------------------------------------------------------------------------


def clipped_run(model: nn.Module, task: str, data: Data, order: list[Tensor], norm: float, lr: float) -> list[Tensor]:
    """Ordinary SGD where the gradient of every sample is clipped by PyTorch before the mean is taken."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for index in order:
        total = [torch.zeros_like(parameter) for parameter in model.parameters()]
        for i in index.tolist():
            model.zero_grad()
            LOSSES[task](model(data.x[i : i + 1]), data.y[i : i + 1], data.weights[i : i + 1]).sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), norm)
            for sum_, parameter in zip(total, model.parameters(), strict=True):
                sum_ += parameter.grad
        for sum_, parameter in zip(total, model.parameters(), strict=True):
            parameter.grad = sum_ / len(index)
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize("domain", ["zonotope", "interval"])
@pytest.mark.parametrize("task", ["bce", "ce"])
def test_replaced_samples_over_epochs(task: str, domain: str) -> None:
    """A replaced sample has another gradient at every visit, and no two epochs see the same one."""
    data = observed(task, torch.float64)
    random = np.random.default_rng(2)
    model = network(3 if task == "ce" else 1, torch.float64)
    options = {"epochs": 2, "batch_size": 12, "optimizer_options": {"lr": 0.2}, "clip_gradients": 0.5, "model": model}
    certificate = certified(T.AtMost(2, T.Replacement()), task, data, domain, **options)
    assert certificate.model is not None and "in every batch" in certificate.record["not_tracked"][0]
    for _ in range(12):
        touched = poisons.chosen(SAMPLES, 2, random)
        x, y = data.x.clone(), data.y.clone()
        x[touched] = 100.0 * torch.from_numpy(random.normal(size=(len(touched), FEATURES)))
        y[touched] = (y[touched] + 1) % (3 if task == "ce" else 2)
        trained = clipped_run(model, task, Data(x, y, data.weights), batches(12, 2), 0.5, 0.2)
        for parameter, value in zip(certificate.model.parameters(), trained, strict=True):
            assert bool(parameter.contains(value).all())


def test_clipping_without_replacement_follows_every_sample() -> None:
    data = observed("bce", torch.float64)
    model = network(1, torch.float64)
    options = {"epochs": 2, "optimizer_options": {"lr": 0.2}, "clip_gradients": 0.3, "model": model}
    certificate = certified(T.Linf(0.05), "bce", data, "zonotope", **options)
    random = np.random.default_rng(4)
    for _ in range(8):
        poisoned = poisons.linf(0.05)(data, random)
        trained = clipped_run(model, "bce", poisoned, batches(None, 2), 0.3, 0.2)
        for parameter, value in zip(certificate.model.parameters(), trained, strict=True):
            assert bool(parameter.contains(value).all())


def test_replacement_needs_clipping() -> None:
    data = observed("bce", torch.float64)
    with pytest.raises(ValueError, match="clip_gradients"):
        certified(T.AtMost(1, T.Replacement()), "bce", data, "zonotope")
    with pytest.raises(bf.MixedSymbols, match="clip_gradients"):
        bf.Symbols(T.AtMost(1, T.Replacement())).lift(data.x, data.y, torch.arange(SAMPLES))
