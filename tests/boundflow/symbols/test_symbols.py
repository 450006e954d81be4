"""Spaces of symbols: numbers that are never handed out twice, several optimizers, reduction methods."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boundflow as bf
from boundflow.symbols import reduction
from boundflow.threats import Linf


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(30, 3, generator=generator, dtype=torch.float64)
    return x, (x[:, 0] > 0).double()


def test_what_two_callbacks_of_one_step_keep_is_told_apart() -> None:
    """Each lifts samples of its own; the difference of what they keep holds every plain difference."""
    x, y = data()
    kept: list[Any] = []

    def look(samples: Tensor, first: int) -> Any:
        def callback(step: bf.Step) -> None:
            if step.number == 1:
                symbols = step.model[0].weight.symbols
                kept.append(symbols.lift(x[samples], y[samples], samples + first)[0])

        return callback

    model = nn.Sequential(nn.Linear(3, 1)).double()
    callbacks = [look(torch.tensor([10, 11]), 100), look(torch.tensor([5, 6]), 200)]
    x_used, y_used = x[20:], y[20:]  # the run has other samples than the callbacks
    bf.certify(
        model, (x_used, y_used), threat=Linf(0.5), loss="bce", steps=2, epochs=2, callbacks=callbacks, progress=False
    )
    difference = kept[0] - kept[1]
    widest = (x[10:12] + 0.5) - (x[5:7] - 0.5)  # the first moved up, the second down: one of the allowed datasets
    assert bool((difference.upper >= widest).all())


def test_test_inputs_that_come_one_after_the_other_are_told_apart() -> None:
    x, _ = data()
    symbols, threat = bf.Symbols(Linf(0.5)), Linf(0.25)
    first, second = (threat.at_test_time(symbols, x[:4]) for _ in range(2))
    difference = first.sum() - second.sum()  # of 24 features, each of which moves on its own
    assert float(difference.upper) >= 6.0 and float(difference.lower) <= -6.0
    assert float((first.sum() - first.sum()).spread.max()) < 1e-12


def two_optimizers(joint: bool) -> tuple[float, int]:
    """The mean width of all parameters after training a network's layers with one optimizer, or with one each."""
    x, y = data()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    symbols = bf.Symbols(Linf(0.01), order=10)
    groups = [model.parameters()] if joint else [model[0].parameters(), model[2].parameters()]
    optimizers = [torch.optim.SGD(list(group), lr=0.3, momentum=0.5) for group in groups]
    bf.lift(model, symbols)
    for optimizer in optimizers:
        symbols.attach(optimizer)
    for _ in range(6):
        inputs, targets = symbols.lift(x, y, torch.arange(len(x)))
        loss = F.binary_cross_entropy_with_logits(model(inputs).squeeze(1), targets)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    widths = [float((p.upper - p.lower).mean()) for p in model.parameters()]  # type: ignore[attr-defined]
    return sum(widths) / len(widths), symbols.steps


def test_two_optimizers_on_one_space_are_as_tight_as_one() -> None:
    (together, steps), (apart, steps_apart) = two_optimizers(True), two_optimizers(False)
    assert steps == steps_apart == 6
    assert apart < 1.05 * together


def test_two_optimizers_on_one_space_hold_poisoned_trainings() -> None:
    """They take turns, so that what one of them derived is looked through after the other has stepped."""
    x, y = data()
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1)).double()

    def trained(model: nn.Sequential, symbols: bf.Symbols | None, x: Tensor) -> nn.Sequential:
        if symbols is not None:
            bf.lift(model, symbols)
        optimizers = [torch.optim.SGD(model[layer].parameters(), lr=0.5, momentum=0.5) for layer in (0, 2)]
        for optimizer in optimizers if symbols is not None else ():
            symbols.attach(optimizer)
        for number in range(6):
            inputs = x if symbols is None else symbols.lift(x, y, torch.arange(len(x)))[0]
            optimizers[number % 2].zero_grad()
            F.binary_cross_entropy_with_logits(model(inputs).squeeze(1), y).backward()
            optimizers[number % 2].step()
        return model

    sets = trained(copy.deepcopy(plain), bf.Symbols(Linf(0.05), order=4), x)
    signs = torch.ones_like(x)
    for corner in (
        signs,
        -signs,
        x.sign(),
        -x.sign(),
        (2 * y - 1).unsqueeze(1) * signs,
        (1 - 2 * y).unsqueeze(1) * signs,
    ):
        bf.check(trained(copy.deepcopy(plain), None, x + 0.0499 * corner), sets)


def test_what_steps_aside_leaves_no_expansion_behind() -> None:
    x, y = data()
    symbols = bf.Symbols(Linf(0.01))
    model = bf.lift(nn.Linear(3, 1).double(), symbols)

    def step(model: nn.Module) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        symbols.attach(optimizer)
        model(symbols.lift(x, y, torch.arange(len(x)))[0]).sum().backward()
        optimizer.step()
        return optimizer

    step(model)
    expansion, steps = symbols.expansion, symbols.steps
    with symbols.aside():
        step(copy.deepcopy(model))
        assert symbols.expansion is not expansion
    assert symbols.expansion is expansion and symbols.steps == steps


@pytest.mark.parametrize("method", reduction.METHODS)
def test_every_reduction_method_holds_poisoned_trainings(method: str) -> None:
    x, y = data()
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    model = copy.deepcopy(plain)
    symbols = bf.Symbols(Linf(0.02), order=2, reduction=method)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    bf.lift(model, symbols)
    symbols.attach(optimizer)
    for _ in range(5):
        inputs, targets = symbols.lift(x, y, torch.arange(len(x)))
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(inputs).squeeze(1), targets).backward()
        optimizer.step()
    generator = torch.Generator().manual_seed(2)
    for _ in range(12):
        poisoned = x + 0.02 * torch.randint(-1, 2, x.shape, generator=generator)
        poisoned = torch.clamp(poisoned, x - 0.02 + 1e-16, x + 0.02 - 1e-16)
        run = copy.deepcopy(plain)
        plain_optimizer = torch.optim.SGD(run.parameters(), lr=0.5, momentum=0.9)
        for _ in range(5):
            plain_optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(run(poisoned).squeeze(1), y).backward()
            plain_optimizer.step()
        for sets, values in zip(model.parameters(), run.parameters(), strict=True):
            assert bool(sets.contains(values.detach()).all())  # type: ignore[operator]


def test_a_reduction_gives_every_scalar_the_errors_it_had() -> None:
    """Radii of 0, 1, 2 and 3: the interval holds them in any case, and the form must, too."""
    space = bf.Symbols(Linf(0.1), order=1)
    model = bf.lift(nn.Linear(3, 1).double(), space)
    amounts = [torch.tensor([[0.0, 1.0, 2.0]], dtype=torch.float64), torch.tensor([3.0], dtype=torch.float64)]
    with torch.no_grad():
        for parameter, amount in zip(model.parameters(), amounts, strict=True):
            parameter.copy_(bf.ball(parameter.center, amount))
    space.reduce(torch.optim.SGD(model.parameters(), lr=1.0))
    for parameter, amount in zip(model.parameters(), amounts, strict=True):
        reach = space.support(parameter.form)  # type: ignore[attr-defined]
        assert bool((reach >= amount).all()) and torch.allclose(reach, amount.expand_as(reach))


def test_an_unknown_reduction_method_is_refused() -> None:
    with pytest.raises(ValueError, match="girard"):
        bf.Symbols(Linf(0.1), reduction="best")


def test_an_own_loop_is_warned_once_when_its_sets_blow_up() -> None:
    """With squared errors each step multiplies the widths, while the middles stay where plain training is."""
    x, y = data()
    torch.manual_seed(0)
    model = bf.lift(nn.Linear(3, 1).double())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    with pytest.warns(bf.WideBounds, match="blown up") as caught:
        for _ in range(24):
            optimizer.zero_grad()
            F.mse_loss(model(bf.ball(x, 0.05)).squeeze(1), y).backward()
            optimizer.step()
    assert len(caught) == 1
