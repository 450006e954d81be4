"""AGT's recipes: what is attacked, what is small when it has to be quick, and plain runs that must lie inside."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from data_at_hand import needs

from fullcert.data import datasets
from fullcert.reproduce import agt
from fullcert.reproduce.agt import Attack
from fullcert.reproduce.experiments import Scale, load

CPU = torch.device("cpu")
MOONS = Attack("half-moons", 200, 8, 2, 2.0, 0.6, k=200)
IDS = ("agt-half-moons", "agt-magic", "agt-mnist")


@pytest.mark.parametrize("id", IDS)
def test_full_cases_are_those_published(id: str) -> None:
    cases = load()[id].cases(Scale())
    assert any(case.paper is not None for case in cases) and all(case.recipe == "paper" for case in cases)
    keys = [(tuple(case.setting.items()), case.domain) for case in cases]
    assert len(keys) == len(set(keys)) and {case.domain for case in cases} == {"interval", "zonotope"}
    assert load()[id].gpu and "whole run" in load()[id].differs, "a k in every step is not a k for the run"


@pytest.mark.parametrize("id", IDS)
def test_quick_cases_say_what_is_left_and_claim_nothing_published(id: str) -> None:
    cases = load()[id].cases(Scale(quick=True))
    assert all(case.paper is None and set(case.fixed) == {"samples", "hidden", "test"} for case in cases)
    keys = [(tuple(case.setting.items()), case.domain) for case in cases]
    assert len(keys) == len(set(keys)), "what is the same when it is small is run once"


def test_a_small_attack_touches_as_small_a_share() -> None:
    whole = Attack("half-moons", 3000, 128, 4, 2.0, 0.6, k=200, epsilon=0.01)
    small = whole.smaller(samples=300, hidden=16, test=50)
    assert (small.k, small.samples, small.hidden, small.test) == (20, 300, 16, 50)
    assert replace(whole, k=3).smaller(300, 16, 50).k == 1 and replace(whole, k=3000).smaller(300, 16, 50).k == 300


def test_threats() -> None:
    linf = replace(MOONS, epsilon=0.5)
    assert repr(linf.threat) == "Linf(0.5)" and repr(replace(linf, k=7).threat) == "AtMost(7, Linf(0.5))"
    both = replace(linf, k=7, labels=True)
    assert repr(both.threat) == "AtMost(7, Linf(0.5) & Labels())" and both.threat.budget == 7
    assert both.setting == {"threat": "features and labels", "k": 7, "epsilon": 0.5, "steps": 2}
    assert replace(MOONS, labels=True, k=1).setting == {"threat": "labels", "k": 1, "steps": 2}


@pytest.mark.parametrize(
    "attack",
    [
        replace(MOONS, epsilon=0.01, k=20),
        replace(MOONS, epsilon=0.001),
        replace(MOONS, labels=True, k=1),
        replace(MOONS, epsilon=0.1, labels=True, k=1),
    ],
    ids=lambda attack: attack.setting["threat"] + f" {attack.k}",
)
def test_zonotopes_certify_more_than_intervals(attack: Attack) -> None:
    interval, zonotope = (agt.certified(replace(attack, domain=domain), 0, CPU) for domain in ("interval", "zonotope"))
    assert interval.value <= zonotope.value <= zonotope.nominal == interval.nominal
    assert zonotope.value > 0


def plain(attack: Attack, x: torch.Tensor, y: torch.Tensor) -> torch.nn.Module:
    """The published loop, in plain PyTorch."""
    model = agt.network(attack, x.shape[1], 2)
    for step in range(attack.steps):
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= attack.lr / (1 + attack.decay * step) * parameter.grad
    return model


def test_the_plain_recipe_and_poisoned_runs_agree_with_the_outcome() -> None:
    attack = replace(MOONS, epsilon=0.05, labels=True, k=1, samples=100)
    found = agt.certified(attack, 0, CPU)
    data = datasets.load("half-moons", Path("."), 0)
    (x, y), (test_x, test_y) = agt.tensors(data.train, 100, CPU), agt.tensors(data.test, None, CPU)
    right = [plain(attack, x, y)(test_x).argmax(1) == test_y]
    assert 100 * right[0].double().mean().item() == pytest.approx(found.nominal)
    generator = torch.Generator().manual_seed(0)
    for number in range(20):
        moved, flipped = x.clone(), y.clone()
        moved[number] += 0.05 * torch.randint(0, 2, (6,), generator=generator).mul(2).sub(1)
        flipped[number] = 1 - flipped[number]
        right.append(plain(attack, moved, flipped)(test_x).argmax(1) == test_y)
    always = 100 * torch.stack(right).all(0).double().mean().item()
    assert 0 < found.value <= always, "no attack undoes what is certified"


@needs("magic/magic04.data.gz")
def test_magic_reaches_the_published_nominal_accuracy() -> None:
    """By the plain recipe on all samples; the certificate is for a hundred of them."""
    attack = Attack("magic", 15216, 128, 3, 1.0, 0.6, k=200, epsilon=0.01)
    data = datasets.load("magic", Path(os.environ["BOUNDFLOW_DATA"]), 0)
    model = plain(attack, *agt.tensors(data.train, None, CPU))
    test_x, test_y = agt.tensors(data.test, None, CPU)
    assert round(100 * (model(test_x).argmax(1) == test_y).double().mean().item(), 1) == 78.9
    small = agt.certified(replace(attack, samples=100, k=2, hidden=4, steps=2, test=200), 0, CPU)
    assert 50 < small.value <= (small.nominal or 0)


@needs("mnist/train-images-idx3-ubyte.gz")
def test_mnist_on_few_digits() -> None:
    found = agt.certified(Attack("mnist-32", 200, 0, 1, 5.0, 1.0, k=1, labels=True, test=100), 0, CPU)
    assert 0 < found.value <= (found.nominal or 0)


def test_intervals_give_the_figure_of_agt() -> None:
    """On the whole recipe: the same sets as AGT's, of parameters that are intervals, with k in every step."""
    attack = Attack("half-moons", 3000, 128, 4, 2.0, 0.6, k=1, labels=True, domain="interval")
    assert agt.certified(attack, 0, CPU).value == pytest.approx(91.0, abs=0.41)
