"""What is said of sets that widen: before they are void, with what would hold, and of no run that holds."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boundflow as bf
from boundflow.symbols.width_forecast import LOST, Growth
from boundflow.threats import AtMost, Labels, Linf


def moons(samples: int = 200) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    angle = torch.rand(samples, generator=generator, dtype=torch.float64) * math.pi
    y = torch.arange(samples) % 2
    sign = 1.0 - 2.0 * y
    x = torch.stack((sign * angle.cos() + y, sign * angle.sin() + 0.5 * y), 1)
    return x + 0.1 * torch.randn(samples, 2, generator=generator, dtype=torch.float64), y


X, Y = moons()
MOVED = Linf(1e-3)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 10), nn.ReLU(), nn.Linear(10, 2)).double()


def said_of(widths: Callable[[int], float], steps: int, total: int | None) -> list[tuple[int, str]]:
    """What is said of a run whose widest parameter is known up to so much after each step."""
    growth, found = Growth(total), []
    for step in range(1, steps + 1):
        if growth.asks(step):
            bounds = torch.tensor([[0.0], [widths(step)]], dtype=torch.float64)
            bounds = bounds - bounds.mean()  # around zero: its size is 1
            said = growth.after(step, [bounds])
            found += [(step, said)] if said else []
    return found


@pytest.mark.parametrize("widths", [lambda t: 1e-3 * t, lambda t: 1e-5 * t**2, lambda t: 1e-2, lambda t: 0.5 / t])
def test_widths_that_add_up_are_not_taken_for_ones_that_multiply(widths: Callable[[int], float]) -> None:
    assert said_of(widths, 300, 1000) == [] and said_of(widths, 300, None) == []


def test_widths_that_multiply_are_forecast_once() -> None:
    """1.3 times a step, from 1e-4: ten after 44 steps, a tenth after 26."""
    ((step, said),) = said_of(lambda t: 1e-4 * 1.3**t, 40, 4000)
    assert step == 8 and "widen 1.3-fold a step" in said
    assert "after about 43 steps of 4,000" in said and "About 26 steps would hold" in said
    assert said_of(lambda t: 1e-4 * 1.3**t, 40, 40) == []  # it ends before
    ((step, said),) = said_of(lambda t: 1e-4 * 1.3**t, 40, None)
    assert step == 8 and " of " not in said.split("after about")[1].split("will")[0]


def test_sets_that_have_blown_up_and_void_ones_say_what_was_still_narrow() -> None:
    ((step, said),) = said_of(lambda t: 1e-2 if t < 4 else 2 * LOST, 4, 100)
    assert step == 4 and said.startswith("after step 4 of 100 the sets have blown up") and "About 2 steps" in said
    growth = Growth(4000)
    assert "Not even the first step would hold" in growth.void(1)
    assert not growth.asks(2)


def train(threat: bf.threats.Threat = MOVED, **options: object) -> tuple[bf.Certificate, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = bf.certify(network(), (X, Y), threat=threat, loss="ce", progress=False, **options)  # type: ignore[arg-type]
    assert {one.category for one in caught} <= {bf.WideBounds}
    return made, [str(one.message) for one in caught]


def test_certify_says_before_sets_blow_up_how_many_steps_would_hold() -> None:
    options = {"domain": "interval", "optimizer_options": {"lr": 0.5}, "batch_size": 50, "epochs": 10}
    made, said = train(**options)
    assert len(said) == 1 and "-fold a step" in said[0] and " of 40 and will certify nothing" in said[0]
    assert made.accuracy(X, Y).certified == 0.0
    (few,) = map(int, re.findall(r"About (\d+) steps would hold", said[0]))
    fewer, nothing = train(**options, steps=few)
    assert nothing == [] and fewer.accuracy(X, Y).robustness > 0.8


def test_certify_says_that_bounds_became_void() -> None:
    """Adam divides by the root of a square that may be next to nothing."""
    adam = {"optimizer": torch.optim.Adam, "optimizer_options": {"lr": 0.01}, "batch_size": 50, "epochs": 10}
    made, said = train(AtMost(5, Labels()), **adam, order=2)
    assert made.void_at_step is not None
    assert (
        f"the bounds became void at step {made.void_at_step} of 40" in said[-1] and "SGD in place of Adam" in said[-1]
    )


def test_runs_that_hold_are_not_warned_of() -> None:
    options = {"optimizer_options": {"lr": 0.1}, "batch_size": 50, "epochs": 10, "order": 5}
    made, said = train(**options)
    assert said == [] and made.accuracy(X, Y).robustness > 0.95
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bf.certify(network(), (X, Y), threat=AtMost(2, Labels()), loss="ce", epochs=10, progress=False)


def test_an_own_loop_says_from_where_on_its_sets_say_nothing() -> None:
    model = bf.lift(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with pytest.warns(
        bf.WideBounds, match=r"after about \d+ steps and will certify nothing. About \d+ steps"
    ) as caught:
        for step in range(16):
            index = torch.arange(50) + 50 * (step % 4)
            optimizer.zero_grad()
            F.cross_entropy(model(bf.ball(X[index], 1e-3)), Y[index]).backward()
            optimizer.step()
    assert len(caught) == 1


def test_a_parameter_without_elements_has_no_width() -> None:
    assert Growth(9).after(1, [torch.zeros(2, 0)]) is None and Growth(9).after(1, []) is None


def test_two_optimizers_are_compared_with_themselves() -> None:
    """One whose parameters were always wider than those of the other have not widened."""
    growth = Growth()
    for step in (1, 2, 4, 8, 16):
        for width in (1e-4 * step, 0.5):
            bounds = torch.tensor([[0.0], [width]], dtype=torch.float64)
            assert growth.after(step, [bounds]) is None
