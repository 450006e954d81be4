"""Unary functions: lines and radii hold the exact values of functions that have rational ones, or bounds of others."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from exact import DTYPES, UNIT, exact, number
from exact_sets import affine, cancelling_rows, holds, narrow, symbols
from torch import Tensor

from boundflow.operators.functions import ABS, RELU, SIGMOID, SIGN
from boundflow.rules.unary import Function, apply, error_of_line, relaxation
from boundflow.sets.set import Set

COUNT = 200


def numbers(dtype: torch.dtype, low: float, high: float, seed: int) -> Tensor:
    return torch.tensor(np.random.default_rng(seed).uniform(low, high, size=COUNT), dtype=dtype)


@pytest.mark.parametrize("file", ["rules/unary.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_constants_in_the_middle_of_an_image(file: str, dtype: torch.dtype) -> None:
    """A function without a slope is within half of its range of the middle."""
    image = torch.stack((numbers(dtype, -2, 0, 1), numbers(dtype, 0, 2, 2)))
    slope, mu, delta = relaxation(SIGN, image, image)
    assert not bool(slope.any())
    for end in image:
        assert np.all(np.abs(exact(end) - exact(mu)) <= exact(delta))


@pytest.mark.parametrize("file", ["rules/unary.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_off_a_line_that_is_given(file: str, dtype: torch.dtype) -> None:
    """``|y - slope x - mu|`` for every x in an interval and every y in an image."""
    x, slope, mu = (numbers(dtype, 1, 2, seed) for seed in (1, 2, 3))
    found = error_of_line(SIGN, torch.stack((-x, x)), torch.stack((mu, mu)), slope, mu)
    assert np.all(exact(found) >= exact(slope) * exact(x))


@pytest.mark.parametrize("file", ["rules/unary.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("function", [RELU, ABS], ids=lambda function: function.name)
def test_chords(file: str, function: Function, dtype: torch.dtype) -> None:
    """Corners next to 0 and far from it: what a chord misses is far less than what it is computed from."""
    bounds = torch.stack((numbers(dtype, -1e-3, 0, 1), numbers(dtype, 1, 2, 2)))
    slope, mu, delta = relaxation(function, bounds, apply(function, Set(bounds)).bounds)
    for x in (bounds[0], torch.zeros_like(bounds[0]), bounds[1]):
        assert np.all(np.abs(exact(function.f(x)) - exact(slope) * exact(x) - exact(mu)) <= exact(delta))


@pytest.mark.parametrize("file", ["rules/unary.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("function", [RELU, ABS], ids=lambda function: function.name)
def test_rows_that_reach_far(file: str, function: Function, dtype: torch.dtype) -> None:
    """The slope times rows that cancel, which are far larger than the interval is wide."""
    center, rows = numbers(dtype, -1e-3, 1e-3, 3), cancelling_rows((COUNT,), dtype, 2.0**-4 / UNIT[dtype])
    x = affine(symbols(), center, rows, wide=(-1.3e-3, 1.7e-3))
    assert holds(apply(function, x), exact(function.f(center)))


@pytest.mark.parametrize("file", ["rules/unary.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_that_underflow(file: str, dtype: torch.dtype) -> None:
    """``sigmoid(-n)`` is more than ``2.8^-n`` for these n, and PyTorch says 0."""
    power = 91 if dtype is torch.float32 else 715
    found = apply(SIGMOID, narrow(torch.full((1,), -float(power), dtype=dtype)))
    assert exact(found.bounds[1])[0] >= number(1) / number("2.8") ** power
