"""Balls whose radii differ much between features: what rounding adds to a move must not use up the ball's budget.

An attacker's data are floats, ``x' = fl(x + d)`` with ``|d / epsilon|_2 <= 1``. Everything here is exact: floats are
fractions, and lengths are compared by their squares.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from membership import fractions, left_alone, outside
from torch import Tensor

import boundflow as bf
from boundflow.tensor.bounded import Bounded

T = bf.threats
FLOAT64 = torch.float64
POWER = {T.L2: 2, T.L1: 1}


def lifted(threat: T.Threat, x: Tensor) -> Bounded:
    """One sample as the threat could have left it."""
    inputs, _ = bf.Symbols(threat).lift(x.unsqueeze(0), torch.zeros(1, 1, dtype=x.dtype), torch.zeros(1).long())
    assert isinstance(inputs, Bounded)
    return inputs


def allowed(kind: type, x: Tensor, moves: list[Fraction], epsilon: list[float]) -> Tensor:
    """The floats nearest to ``x + d``, of a d that the threat allows."""
    assert sum((abs(move) / Fraction(e)) ** POWER[kind] for move, e in zip(moves, epsilon, strict=True)) <= 1
    # a fraction becomes the nearest float64; the float32 of that one is at most one more rounding away
    return torch.tensor([float(a + move) for a, move in zip(fractions(x), moves, strict=True)], dtype=FLOAT64).to(x)


def test_a_rounded_feature_beside_one_that_moves_all_the_way() -> None:
    """Radii 1 and 1e-10: the first feature moves by nearly 1, and the second is rounded by 1e-16, 1e-6 of its radius.

    A linear functional shows it: ``a . (x' - c)`` must not exceed ``|a G|_2 + |a| . radius``, which the form reaches.
    """
    epsilon, x = [1.0, 1e-10], torch.ones(2, dtype=FLOAT64)
    small = Fraction(5, 2**55)  # less than one ulp of 1, and rounded to one
    large = Fraction(math.sqrt(1 - float(small / Fraction(epsilon[1])) ** 2)) - Fraction(1, 2**52)
    moved = allowed(T.L2, x, [large, small], epsilon)
    form = lifted(T.L2(epsilon), x).form
    generators = form.generators[:, 0]
    assert torch.equal(generators, generators.diag().diag()), "row k moves feature k alone"
    rows, radius = fractions(generators.diag()), fractions(form.radius)
    steps = [value - center for value, center in zip(fractions(moved), fractions(form.center), strict=True)]
    assert steps[1] == Fraction(1, 2**52)
    functional = [steps[0], steps[1] / Fraction(epsilon[1]) ** 2]
    value = sum(a * step for a, step in zip(functional, steps, strict=True))
    value -= sum(abs(a) * r for a, r in zip(functional, radius, strict=True))
    assert value <= 0 or value**2 <= sum((a * row) ** 2 for a, row in zip(functional, rows, strict=True))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("kind", [T.L2, T.L1], ids=["l2", "l1"])
def test_every_float_of_a_ball_is_in_its_form(kind: type, dtype: torch.dtype) -> None:
    """Directions of all sorts, radii over fourteen orders of magnitude, some of them less than an ulp of the value."""
    random = np.random.default_rng(7)
    for _ in range(200):
        count = int(random.integers(2, 5))
        epsilon = (10.0 ** random.uniform(-13, 1, size=count)).tolist()
        x = torch.from_numpy(random.normal(size=count) * 10.0 ** random.uniform(-3, 3, size=count)).to(dtype)
        inputs = lifted(kind(epsilon), x)
        for _ in range(5):
            direction = random.normal(size=count) * random.choice([1e-9, 1e-3, 1.0], size=count)
            length = np.abs(direction).sum() if kind is T.L1 else np.linalg.norm(direction)
            inside = 1 - Fraction(1, 2**48)  # the length was computed in floats
            moves = [Fraction(d / length) * Fraction(e) * inside for d, e in zip(direction, epsilon, strict=True)]
            assert not outside(inputs, allowed(kind, x, moves, epsilon).unsqueeze(0), kind.kind)


def test_two_balls_are_rounded_twice() -> None:
    """The radii of both changes count, and the rounding of their sum; where only one of them moves, its own do."""
    x, first, second = torch.tensor([1.0, 2.0], dtype=FLOAT64), T.L2(1e-12), T.L1(1e-12)
    one, both = (lifted(threat, x).form.radius for threat in (first, first & second))
    assert bool((both > 2 * one).all())
    apart = lifted(first.on(features=[0]) & second.on(features=[1]), x).form.radius
    assert torch.equal(apart, one)


def test_some_samples_of_a_batch() -> None:
    """What is rounded of a touched sample stays, beside one that the threat is not about."""
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=FLOAT64)
    every, some = T.L2(0.1), T.L2(0.1).on(samples=[1])
    found = [threat.lift(bf.Symbols(threat), x, torch.zeros(2), [0, 1]).inputs.form for threat in (every, some)]
    assert torch.equal(found[1].radius[1], found[0].radius[1]) and bool((found[0].radius > 0).all())
    assert not bool(found[1].radius[0].any()) and not bool(found[1].generators[:, 0].any())


def test_only_features_of_touched_samples_are_rounded() -> None:
    """A sample that was left alone is as observed, and so is a feature that cannot move: neither has a radius."""
    x = torch.tensor([1.0, 2.0, 3.0], dtype=FLOAT64)
    ball = T.L2([0.1, 0.0, 0.2]).on(features=[0, 1])
    for threat in (ball, T.AtMost(1, ball)):
        radius = lifted(threat, x).form.radius
        assert float(radius[0, 0]) > 0 and not bool(radius[0, 1:].any())
    assert left_alone(lifted(T.AtMost(1, ball), x), x.unsqueeze(0))
    for samples, moves in (([5], False), ([0], True)):
        inputs = lifted(T.AtMost(1, T.L2(0.1).on(samples=samples)), x)
        assert bool((inputs.form.radius > 0).all()) is moves and left_alone(inputs, x.unsqueeze(0))


def test_a_ball_of_all_beside_a_budget() -> None:
    """Of a sample that the budget leaves alone, what every sample may have is still rounded."""
    x = torch.tensor([1.0, 2.0], dtype=FLOAT64)
    free, few = T.L2(1e-3), T.AtMost(1, T.L1(0.1))
    inputs = lifted(free & few, x)
    assert inputs.set.clean is not None
    assert torch.equal(inputs.set.clean.radius, lifted(free, x).form.radius)
    assert bool((inputs.form.radius > inputs.set.clean.radius).all())


def test_boxes_have_rows_that_hold_their_rounding() -> None:
    """The rounded interval is the row itself: nothing is left for a radius."""
    assert not bool(lifted(T.Linf([0.1, 1e-12]), torch.ones(2, dtype=FLOAT64)).form.radius.any())
