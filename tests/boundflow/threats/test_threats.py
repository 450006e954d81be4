"""Every threat against plain PyTorch trainings on data that an attacker under it could really have left behind."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import poisons
import pytest
import torch
import torch.nn as nn
from poisons import Data, Poison
from threat_cases import FEATURES, LOSSES, SAMPLES, THREATS, T, batches, certified, network, observed, plain_runs
from torch import Tensor
from torch.func import functional_call, vmap

import boundflow as bf
from boundflow.sets import clean_state
from boundflow.symbols import symbol_numbers
from boundflow.training import certified_training

DRAWS = 60  # poisoned datasets of each threat


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
    monkeypatch.setattr(clean_state, "WORTH_AN_INTERVAL", 1e9)
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
            clean_state, "WORTH_AN_INTERVAL", 0.0
        )  # rows in the first step, so that the weight knows the sample, then moves
        recipe["callbacks"] = [lambda step: monkeypatch.setattr(clean_state, "WORTH_AN_INTERVAL", 1e9)]
        certificate = certified(T.AtMost(1, T.Linf(0.05)), "mse", data, "zonotope", epochs=steps, **recipe)
        runs = plain_runs(model, "mse", datasets, [torch.arange(2)] * steps, {"lr": lr})
        assert certificate.model is not None
        weight, symbols = certificate.model.weight, certificate.model.weight.symbols
        generators, rows, error = symbols.expand(weight.form.generators.flatten(1), weight.form.rows)
        owners, _ = symbols.owners_and_parts(rows.numbers)
        mine, free = (torch.from_numpy(owners == number) for number in (0, symbol_numbers.NOBODY))
        middle = weight.form.center.item() + generators[mine].sum() * moved / 0.05  # with the symbol at its true value
        reach = generators[free].abs().sum() + weight.form.radius.item() + error.item()
        assert bool(((runs["weight"].flatten() - middle).abs() <= reach).all()), "the form is off its symbol"


def test_what_every_sample_may_change_stays_in_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """All features move the same way and one target hardly: the rows of features are not those of touched samples."""
    monkeypatch.setattr(clean_state, "WORTH_AN_INTERVAL", 1e9)
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
def test_batches_in_pieces(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that does not fit into memory is taken in pieces; the budget still counts for all of it."""
    threat, poison, task, prepare = THREATS[name]
    data = observed(task, torch.float64)
    data = data if prepare is None else prepare(data)
    whole = certified(threat, task, data, "zonotope")
    monkeypatch.setattr(certified_training, "chunk_size", lambda *arguments: 7)
    pieces = assert_contains(threat, poison, task, data, "zonotope")
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


@pytest.mark.parametrize("epsilon", [[0.1, 0.1], [[0.1, 0.1, 0.1]] * 4], ids=["too few", "by sample"])
def test_radii_that_do_not_fit_the_features_are_refused(epsilon: list[float]) -> None:
    x, y = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)
    for kind in (bf.threats.Linf, bf.threats.L2):
        with pytest.raises(ValueError, match="features of shape"):
            kind(epsilon).check(x, y)


def test_samples_and_features_are_chosen_by_numbers_or_masks() -> None:
    """Bytes are numbers: torch would take them for a mask, and a threat would be a smaller one than was meant."""
    x, y = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)
    for features in (np.array([2, 0, 1], np.uint8), torch.tensor([0, 1, 2], dtype=torch.uint8), [True, True, True]):
        moved = bf.threats.Linf(0.1).on(features=features)
        assert bool(moved.deviation(x, x, budgeted=True).bounds[1].gt(0).all())
    for wrong in ([0.5], [3], [-1], [[0.0]]):
        with pytest.raises(ValueError, match="features are"):
            bf.threats.Linf(0.1).on(features=wrong).check(x, y)
    with pytest.raises(ValueError, match="samples are chosen by whole numbers"):
        bf.threats.Removal().on(samples=[1.5])
    assert bf.threats.Removal().on(samples=[]).touched(np.arange(4)).sum() == 0


@pytest.mark.parametrize("given", [[1, 0, 1], [0, 0], torch.tensor([1, 0, 0]), np.array([0, 1, 1], dtype=np.uint8)])
@pytest.mark.parametrize("what", ["samples", "features"])
def test_masks_of_zeros_and_ones_are_no_numbers(given: Any, what: str) -> None:
    """Read as numbers they would leave out what the mask means."""
    with pytest.raises(ValueError, match=f"{what} are named once each: a mask is of truths"):
        bf.threats.Linf(0.1).on(**{what: given})
