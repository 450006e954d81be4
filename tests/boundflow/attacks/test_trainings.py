"""Mapped trainings are the ordinary ones, and their derivatives are those of differences."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import boundflow as bf
from boundflow.attacks import Poisoned
from boundflow.attacks.trainings import Trainings
from boundflow.errors import UnsupportedProgram
from boundflow.training.checked_inputs import Prepared

OPTIMIZERS = {
    "SGD": (torch.optim.SGD, {"lr": 0.3, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True}),
    "damped SGD": (torch.optim.SGD, {"lr": 0.3, "momentum": 0.5, "weight_decay": 0.1, "dampening": 0.3}),
    "Adam": (torch.optim.Adam, {"lr": 0.05}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5}),
}


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(18, 3, dtype=torch.float64, generator=generator)
    return x, (x[:, 0] + 0.3 * x[:, 1] > 0).long()


def network(*layers: nn.Module, outputs: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), *layers, nn.Linear(4, outputs)).double()


def trainings(model: nn.Module, **fields: object) -> Trainings:
    recipe = bf.Recipe(**{"loss": "bce", "epochs": 2, "batch_size": 7, **fields})
    return Trainings(Prepared(model, data(), bf.threats.Linf(0.01), recipe))


def moved(program: Trainings, count: int) -> Poisoned:
    now = program.observed()
    shifts = torch.linspace(0, 0.1, count, dtype=torch.float64).view(-1, 1, 1)
    weights = now.weights.repeat(count, 1)
    weights[-1, 3] = 0.0
    return Poisoned(now.x + shifts, now.y, weights)


@pytest.mark.parametrize("clip", [None, 0.2], ids=["unclipped", "clipped"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_mapped_trainings_are_plain_ones(name: str, clip: float | None) -> None:
    made, options = OPTIMIZERS[name]
    decay = lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda t: 1 / (1 + t))  # noqa: E731
    program = trainings(
        network(nn.Tanh()), optimizer=made, optimizer_options=options, schedule=decay, clip_gradients=clip
    )
    datasets = moved(program, 3)
    stacked = program.train(datasets)
    assert program.mapped
    for number in range(3):
        plain = dict(program.plainly(datasets.written_out().pick([number])).named_parameters())
        for key, value in stacked.items():
            assert torch.allclose(plain[key].detach(), value[number], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", ["bce", "ce", "mse", "hinge"])
def test_the_observed_data_give_the_nominal_model(loss: str) -> None:
    model, fields = network(nn.Tanh(), outputs=2 if loss == "ce" else 1), {"optimizer_options": {"lr": 0.2}}
    program = trainings(model, loss=loss, **fields)
    recipe = program.recipe
    certificate = bf.certify(model, data(), recipe, threat=bf.threats.Linf(1e-9))
    stacked = program.train(program.observed())
    for key, value in certificate.nominal.named_parameters():
        assert torch.allclose(stacked[key][0], value.detach(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("clip", [None, 0.2], ids=["unclipped", "clipped"])
def test_samples_count_as_much_as_in_the_run(clip: float | None) -> None:
    counts = torch.linspace(0, 3, 18, dtype=torch.float64)
    fields = {"optimizer_options": {"lr": 0.2}, "clip_gradients": clip}
    model = network(nn.Tanh())
    program = trainings(model, sample_weights=counts, **fields)
    nominal = bf.certify(model, data(), program.recipe, threat=bf.threats.Linf(1e-9)).nominal
    other = trainings(model, **fields)
    stacked, uncounted = program.train(program.observed()), other.train(other.observed())
    plain = dict(program.plainly(program.observed()).named_parameters())
    for key, value in nominal.named_parameters():
        assert torch.allclose(stacked[key][0], value.detach(), rtol=1e-12, atol=1e-14)
        assert torch.allclose(plain[key].detach(), value.detach(), rtol=1e-12, atol=1e-14)
        assert not torch.allclose(uncounted[key][0], value.detach())


def test_a_certificate_with_other_counts_is_of_another_training() -> None:
    counts, threat = torch.linspace(0, 3, 18, dtype=torch.float64), bf.threats.Linf(1e-3)
    fields = {"loss": "bce", "epochs": 2, "optimizer_options": {"lr": 0.2}}
    weighted = bf.certify(network(nn.Tanh()), data(), threat=threat, sample_weights=counts, **fields)
    asked = {"threat": threat, "test": data(), "certificate": weighted, "attacks": ["random-corners"], **fields}
    found = bf.attack(network(nn.Tanh()), data(), sample_weights=counts, restarts=1, progress=False, **asked)
    assert found.trainings > 0  # and every one of them inside the bounds
    for other in (None, counts.flip(0)):
        with pytest.raises(ValueError, match="sample_weights"):
            bf.attack(network(nn.Tanh()), data(), sample_weights=other, **asked)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_slopes_are_those_of_differences(name: str) -> None:
    made, options = OPTIMIZERS[name]
    program = trainings(network(nn.Tanh()), optimizer=made, optimizer_options=options)
    x, now = data()[0][:4] + 0.1, program.observed()

    def margin(stacked: dict[str, torch.Tensor]) -> torch.Tensor:
        return program.outputs(stacked, x)[:, :, 0].mean(1)

    slopes, _ = program.slopes(now.repeated(2), margin)
    for part, slope, place in (
        ("x", slopes.x, (0, 2, 1)),
        ("y", slopes.y, (0, 5, 0)),
        ("weights", slopes.weights, (0, 4)),
    ):
        ends = []
        for sign in (-1, 1):
            changed = {name: getattr(now, name).clone() for name in ("x", "y", "weights")}
            changed[part][place] += sign * 1e-6
            ends.append(margin(program.train(Poisoned(**changed)))[0])
        assert float(slope[place]) == pytest.approx(float(ends[1] - ends[0]) / 2e-6, rel=1e-3, abs=1e-9)


def test_dropout_is_drawn_as_in_the_run() -> None:
    model = network(nn.Tanh(), nn.Dropout(0.4))
    program = trainings(model, optimizer_options={"lr": 0.2})
    assert not program.mapped
    certificate = bf.certify(model, data(), program.recipe, threat=bf.threats.Linf(1e-9))
    stacked = program.train(program.observed())
    for key, value in certificate.nominal.named_parameters():
        assert torch.allclose(stacked[key][0], value.detach(), rtol=1e-12, atol=1e-14)
    slopes, _ = program.slopes(program.observed(), lambda s: program.outputs(s, data()[0])[:, :, 0].mean(1))
    assert bool((slopes.x != 0).any())


def test_a_network_that_keeps_state_is_trained_by_ordinary_modules() -> None:
    program = trainings(network(nn.BatchNorm1d(4), nn.Tanh()), optimizer_options={"lr": 0.2})
    assert program.why_plain is not None and "state" in program.why_plain
    stacked = program.train(moved(program, 2))
    assert len(stacked["0.weight"]) == 2 and "1.running_mean" in stacked
    with pytest.raises(UnsupportedProgram, match="keeps state"):
        program.slopes(program.observed(), lambda s: s["0.bias"].sum(1))
