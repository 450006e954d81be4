"""Forward passes that change state or draw numbers: called once a step, tracked as sets, saved, resumed, or refused."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boundflow as bf
from boundflow.analysis.smaller_threats import levels
from boundflow.threats import Linf


def data(samples: int = 12, features: int = 2) -> tuple[Tensor, Tensor]:
    x = torch.randn(samples, features, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x, (x[:, 0] > 0).double()


class Stateful(nn.Module):
    """A linear model behind a change of state that ``change`` makes in training."""

    def __init__(self, change: Callable[[Stateful, Tensor], Tensor], always: bool = False):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.change, self.always = nn.Linear(2, 1), change, always
        self.register_buffer("mean", torch.zeros(2, dtype=torch.float64))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64), persistent=False)
        self.scale: Any = None
        self.count = 0

    def forward(self, x: Tensor) -> Tensor:
        x = self.change(self, x) if self.training or self.always else self.kept(x)
        return self.linear(x)

    def kept(self, x: Tensor) -> Tensor:
        x = x - self.mean
        return x if self.scale is None else x * self.scale


def running_mean(model: Stateful, x: Tensor) -> Tensor:
    model.mean = 0.5 * model.mean.detach() + 0.5 * x.mean(0).detach()
    model.calls += 1
    return x - model.mean


def first_batch(model: Stateful, x: Tensor) -> Tensor:
    """ActNorm: scaled by the first batch, for ever."""
    if model.scale is None:
        model.scale = 1 / (x.detach() * x.detach()).mean(0).sqrt()
    return x * model.scale


def counter(model: Stateful, x: Tensor) -> Tensor:
    model.count += 1
    return x * (1 + 0.1 * model.count)


STATES = {"running mean": running_mean, "scale of the first batch": first_batch, "counter": counter}
RECIPE = {"loss": "bce", "optimizer_options": {"lr": 0.3}, "epochs": 2, "batch_size": 6, "progress": False}


def trained_plainly(model: nn.Module, x: Tensor, y: Tensor) -> nn.Module:
    """As certify trains, in plain PyTorch."""
    model = copy.deepcopy(model).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        for index in torch.randperm(len(x), generator=generator).split(6):
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(model(x[index]), y[index].unsqueeze(1)).backward()
            optimizer.step()
    return model.eval()


@pytest.mark.parametrize("domain", ["interval", "zonotope"])
@pytest.mark.parametrize("name", STATES)
def test_state_is_tracked_saved_and_resumed(name: str, domain: str, tmp_path: Path) -> None:
    x, y = data()
    model = Stateful(STATES[name]).double()
    seen: list[Any] = []

    def look(step: bf.Step) -> None:
        step.accuracy(x, y)  # neither this nor the bar is a step
        seen.append(step.number)
        if step.number == 2 and stop:
            raise KeyboardInterrupt

    options = {**RECIPE, "domain": domain, "memory": 1e4, "callbacks": [look]}
    stop = False
    certificate = bf.certify(model, (x, y), threat=Linf(0.02), **options)
    stop = True
    with pytest.raises(KeyboardInterrupt):
        bf.certify(model, (x, y), threat=Linf(0.02), **options, checkpoint=tmp_path / "checkpoint")
    stop = False
    resumed = bf.certify(model, (x, y), threat=Linf(0.02), **options, checkpoint=tmp_path / "checkpoint", resume=True)
    certificate.save(tmp_path / "certificate")
    resumed.save(tmp_path / "resumed")
    assert (tmp_path / "certificate").read_bytes() == (tmp_path / "resumed").read_bytes()
    loaded = bf.load(tmp_path / "certificate", model=Stateful(STATES[name]).double())
    answers = [found.predict(x, epsilon=0.01) for found in (certificate, loaded)]
    assert float((answers[0].lower - answers[1].lower).abs().max()) < 1e-9
    generator = torch.Generator().manual_seed(5)
    for number in range(20):
        moved = x + 0.02 * (torch.randint(0, 2, x.shape, generator=generator) * 2 - 1) * (number > 0) * 0.999
        plain = trained_plainly(model, moved, y)
        outputs = plain(x).detach()
        for answer in answers:
            assert bool(((answer.lower <= outputs) & (outputs <= answer.upper)).all())
        if number == 0:
            assert torch.equal(plain.mean, certificate.nominal.mean) and plain.count == certificate.nominal.count
            assert torch.equal(plain.linear.weight, certificate.nominal.linear.weight)


@pytest.mark.parametrize("name", STATES)
def test_state_follows_verified_samples_and_shorter_moves(name: str) -> None:
    """What a buffer or an attribute holds moved with the samples, and stays with those that did not."""
    x, y = data()
    certificate = bf.certify(Stateful(STATES[name]).double(), (x, y), threat=Linf(0.02), **RECIPE)
    some = torch.arange(len(x)) % 2 == 0
    found = {"verified": (certificate.verified(some), 0.02 * ~some[:, None])}
    if name == "scale of the first batch":
        with pytest.raises(bf.NoSmallerThreat, match="keeps sets of its own"):
            certificate.withstands(x)
    else:
        found["shorter"] = levels(certificate).at(30), 0.3 * 0.02 * torch.ones(len(x), 1)
    for smaller, amounts in found.values():
        for plain, wide in (
            (smaller.model.mean, certificate.model.mean),
            (smaller.model.scale, certificate.model.scale),
        ):
            if isinstance(wide, bf.Bounded):
                assert isinstance(plain, bf.Bounded)
                assert bool((plain.upper - plain.lower < 0.9 * (wide.upper - wide.lower)).all())
        answer = smaller.predict(x)
        for signs in itertools.product((-0.999, 0.999), repeat=2):
            outputs = trained_plainly(Stateful(STATES[name]).double(), x + amounts * torch.tensor(signs), y)(x)
            assert bool(((answer.lower <= outputs) & (outputs <= answer.upper)).all())


def test_state_that_changes_in_evaluation_mode_is_refused() -> None:
    for name, change in STATES.items():
        with pytest.raises(bf.UnsupportedProgram, match="evaluation mode") as raised:
            bf.certify(Stateful(change, always=True).double(), data(), threat=Linf(0.01), **RECIPE)
        what = {"running mean": "mean", "scale of the first batch": "scale", "counter": "count"}
        assert what[name] in str(raised.value)


def test_state_and_clipped_gradients_are_refused() -> None:
    with pytest.raises(bf.UnsupportedProgram, match="clip_gradients"):
        model = Stateful(running_mean).double()
        bf.certify(model, data(), threat=Linf(0.01), clip_gradients=1.0, **RECIPE)


@pytest.mark.parametrize(
    "draw", [lambda: float(np.random.rand()), random.random], ids=["numpy", "random"]
)  # the generators of the process
def test_random_numbers_of_others_are_refused(draw: Callable[[], float]) -> None:
    before = np.random.get_state()[1].copy(), random.getstate()  # type: ignore[index, union-attr]
    with pytest.raises(bf.UnsupportedProgram, match=r"random numbers of (numpy|Python's random)"):
        bf.certify(Stateful(lambda model, x: x + draw()).double(), data(), threat=Linf(0.01), **RECIPE)
    assert np.array_equal(before[0], np.random.get_state()[1]) and before[1] == random.getstate()  # type: ignore[index]


@pytest.mark.parametrize("noise", [torch.randn_like, torch.rand_like, lambda x: torch.randn(x.shape, dtype=x.dtype)])
def test_noise_of_torch_is_part_of_the_recipe(noise: Callable[[Tensor], Tensor]) -> None:
    x, y = data()
    model = Stateful(lambda model, x: x + 0.1 * noise(x)).double()
    certificate = bf.certify(model, (x, y), threat=Linf(1e-3), **{**RECIPE, "memory": 1e4})
    again = bf.certify(model, (x, y), threat=Linf(1e-3), **RECIPE)
    assert certificate.model is not None
    assert torch.equal(certificate.nominal.linear.weight, again.nominal.linear.weight)
    assert bool(certificate.model.linear.weight.contains(certificate.nominal.linear.weight.detach()).all())


def test_a_hook_of_a_parameter_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 1)).double()
    model[0].weight.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
    with pytest.raises(bf.UnsupportedProgram, match=r"0\.weight has a hook"):
        bf.certify(model, data(), threat=Linf(0.01), **RECIPE)


def test_answers_leave_the_mode_of_a_model_alone() -> None:
    x, y = data()
    modes, answers = [], []
    model = nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5), nn.Linear(4, 1)).double()

    def look(step: bf.Step) -> None:
        certificate = bf.Certificate(step.model, step.nominal, step.record)
        answers.append(certificate.predict(x))
        modes.append(step.model.training and step.nominal[1].training)
        answers.append(step.predict(x))

    bf.certify(model, (x, y), threat=Linf(0.01), callbacks=[look], **RECIPE)
    assert modes == [True] * 4
    assert all(torch.equal(a.lower, b.lower) for a, b in zip(answers[::2], answers[1::2], strict=True))
