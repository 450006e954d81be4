"""What a trial found out about a program is not believed for the whole run: both runs are watched, step by step."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import boundflow as bf
from boundflow.threats import AtMost, Labels, Linf

X = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = (X[:, 0] > 0).long()
FLIPS = AtMost(6, Labels(classes=2))  # wide sets, in which the tripwire is silent
RECIPE: dict[str, Any] = {"loss": "ce", "epochs": 3, "batch_size": 40, "optimizer_options": {"lr": 0.01}}


def certified(model: nn.Module, **changed: Any) -> bf.Certificate:
    given = {"threat": FLIPS, "compile": False, "progress": False, **RECIPE, **changed}
    return bf.certify(model, (X, Y), **given)


def linear() -> nn.Linear:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Linear(3, 2).double()


# --- a forward pass that does something else for some of the batches --------------------------------------------------


class Odd(nn.Module):
    """Does something where a batch has as many samples as the last one of an epoch, which are not as many as tried."""

    calls: int
    scale: Tensor

    def __init__(self, act: Callable[[Odd], Any], training: bool = True):
        super().__init__()
        self.inner, self.act, self.in_training, self.calls = linear(), act, training, 0
        self.register_buffer("scale", torch.ones(1, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        acts = self.training is self.in_training and len(x) == 10
        return self.inner(x) * (self.act(self) if acts else 1.0)


def counted(model: Odd) -> float:
    model.calls += 1
    return 1.0 + model.calls


def in_place(model: Odd) -> Tensor:
    model.scale += 1
    return model.scale


def anew(model: Odd) -> Tensor:
    model.scale = model.scale + 1
    return model.scale


ODD: dict[str, tuple[Callable[[Odd], Any], str]] = {
    "draws": (lambda model: 1 + 0.1 * torch.rand(1, dtype=torch.float64), "draws random numbers for a batch of 10"),
    "draws of numpy": (lambda model: 1 + 0.1 * np.random.rand(), "random numbers of numpy"),
    "draws pairs of numpy": (lambda model: 1 + 0.1 * np.random.randn(), "random numbers of numpy"),
    "draws of python": (lambda model: 1 + 0.1 * random.random(), "random numbers of Python"),
    "counts": (counted, "changes calls, and did not when it was tried"),
    "writes into a buffer": (in_place, "changes scale, and did not when it was tried"),
    "makes a buffer anew": (anew, "changes scale, and did not when it was tried"),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_a_batch_of_another_length(name: str, domain: str) -> None:
    act, words = ODD[name]
    with pytest.raises(bf.UnsupportedProgram, match=words):
        certified(Odd(act), domain=domain)


@pytest.mark.parametrize("name", ODD)
def test_a_batch_of_another_length_in_many_runs(name: str) -> None:
    act, words = ODD[name]
    with pytest.raises(bf.UnsupportedProgram, match=words):
        bf.certify_many([Odd(act), Odd(act)], (X, Y), threats=[Linf(0.1)] * 2, compile=True, **RECIPE)


@pytest.mark.parametrize("name", ["draws", "counts"])
def test_answers_for_another_number_of_inputs(name: str) -> None:
    certificate = certified(Odd(ODD[name][0], training=False), batch_size=25)
    certificate.predict(X[:5])
    for asked in (lambda: certificate.predict(X[:10]), lambda: certificate.predict(X, chunk=40)):
        with pytest.raises(bf.UnsupportedProgram, match="in evaluation mode"):
            asked()


class FallsBack(nn.Module):
    """Does something simpler for few samples, where an operator is not there."""

    def __init__(self, in_training: bool):
        super().__init__()
        self.inner, self.in_training = linear(), in_training

    def forward(self, x: Tensor) -> Tensor:
        if self.training is self.in_training and len(x) == 10:
            try:
                return torch.erfinv(0.1 * torch.tanh(self.inner(x)))
            except bf.UnsupportedOperator:
                pass
        return self.inner(x)


@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_a_batch_of_another_length_that_sets_do_otherwise(domain: str) -> None:
    with pytest.raises(bf.OutsideBounds, match="on the data as observed, where sets are as wide as rounding"):
        certified(FallsBack(in_training=True), domain=domain)
    with pytest.raises(bf.OutsideBounds, match="on the data as observed"):
        bf.certify_many([FallsBack(in_training=True)], (X, Y), threats=[Linf(0.1)], compile=True, **RECIPE)
    certificate = certified(FallsBack(in_training=False), domain=domain)
    certificate.predict(X[:5])
    with pytest.raises(bf.OutsideBounds, match="on the inputs as observed"):
        certificate.predict(X[:10])


# --- what both runs share ---------------------------------------------------------------------------------------------

COUNT = [0]


class OfTheProcess(nn.Module):
    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.inner = linear()

    def count(self) -> int:
        COUNT[0] += 1
        return COUNT[0]

    def forward(self, x: Tensor) -> Tensor:
        late = self.training and self.count() > 12
        return self.inner(x) * (1.5 if late and self.count() % 2 else 1.0)


class OfTheClass(OfTheProcess):
    def count(self) -> int:
        OfTheClass.calls += 1
        return OfTheClass.calls


@pytest.mark.parametrize("model", [OfTheProcess, OfTheClass])
def test_what_counts_outside_of_the_model(model: type[OfTheProcess]) -> None:
    COUNT[0] = OfTheClass.calls = 0
    with pytest.raises(bf.UnsupportedProgram, match="code of the layers changes something outside of the model"):
        certified(model(), epochs=6)


def at_random(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step < 3 else random.random())


def from_one_iterator() -> Callable[[torch.optim.Optimizer], Any]:
    rates = iter([1 - 0.9**step for step in range(1, 1000)])

    def schedule(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step < 3 else next(rates))

    return schedule


@pytest.mark.parametrize("schedule", [at_random, from_one_iterator()])
def test_rates_that_are_not_the_same_in_both_runs(schedule: Any) -> None:
    with pytest.raises(bf.UnsupportedProgram, match=r"lr is .* in plain training and .* on sets|schedule changes"):
        certified(linear(), schedule=schedule, optimizer_options={"lr": 0.5})


class LateNoise(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        for group in self.param_groups:
            group["made"] = group.get("made", 0) + 1
            for parameter in group["params"] if group["made"] > 2 else ():
                with torch.no_grad():
                    parameter.add_(0.01 * torch.randn(parameter.shape, dtype=torch.float64))


def test_an_optimizer_that_begins_to_draw() -> None:
    torch.manual_seed(0)  # with other numbers the plain model may leave its bounds before anybody asks who draws
    with pytest.raises(bf.UnsupportedProgram, match="in a step of the optimizer"):
        certified(linear(), optimizer=LateNoise, optimizer_options={"lr": 0.5})


def test_other_threads_may_draw() -> None:
    ended = threading.Event()

    def draw() -> None:
        while not ended.is_set():
            torch.rand(1), np.random.rand(), random.random()

    model = linear()  # whose weights are drawn before anybody else draws
    quiet = certified(model)
    other = threading.Thread(target=draw)
    other.start()
    try:
        found = certified(model)
    finally:
        ended.set()
        other.join()
    for one, same in zip(quiet.model.parameters(), found.model.parameters(), strict=True):  # type: ignore[union-attr]
        assert torch.equal(one.lower, same.lower) and torch.equal(one.upper, same.upper)  # type: ignore[attr-defined]


# --- callbacks --------------------------------------------------------------------------------------------------------


def without_bias(step: bf.Step) -> None:
    with torch.no_grad():
        for model in (step.nominal, step.model):
            model.bias.mul_(0.0)


def plain_alone(step: bf.Step) -> None:
    with torch.no_grad():
        step.nominal.bias.add_(100.0)


def test_a_callback_that_changes_the_models_is_part_of_the_program(tmp_path: Path) -> None:
    changed, as_it_is = (certified(linear(), callbacks=[act]) for act in (without_bias, lambda step: None))
    assert "callbacks" in changed.record["identity"] and "callbacks" not in as_it_is.record["identity"]
    with pytest.raises(bf.DifferentRuns, match="callbacks"):
        bf.withstands([changed, as_it_is], X, over="k")
    with pytest.raises(bf.UnsupportedProgram, match="a callback changes bias, and a checkpoint does not hold"):
        certified(linear(), callbacks=[without_bias], checkpoint=tmp_path / "checkpoint")
    with pytest.raises(bf.OutsideBounds, match="bias"):
        certified(linear(), callbacks=[plain_alone], steps=1)


# --- own loops --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [torch.ones(50, dtype=torch.bool), torch.arange(50) - 50, torch.arange(50) / 100])
def test_samples_are_named_by_their_numbers(index: Tensor) -> None:
    with pytest.raises(ValueError, match="counted from 0"):
        bf.Symbols(FLIPS).lift(X, Y, index)
