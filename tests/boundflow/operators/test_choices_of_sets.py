"""Gates, choices and maxima: the exact value is inside, where nothing but roundings is in doubt."""

from __future__ import annotations

import pytest
import torch
from exact import DTYPES, LEAST, UNIT, exact, number
from exact_sets import affine, holds, narrow, symbols

from boundflow.operators.gates import gated, leaky_relu_backward, where
from boundflow.operators.selections import largest
from boundflow.sets.set import Set, point

UNDECIDED = torch.tensor([[False], [True]])
HALVED = ((3.0,), (-1.0,), (-1.0,), (-1.0,))  # rows that add up to 0; halves of these numbers of units do not


@pytest.mark.parametrize("file", ["operators/gates.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_halves_of_subnormal_numbers(file: str, dtype: torch.dtype) -> None:
    """Rows and centers of an undecided choice are halved, and half of a smallest number is not there."""
    rows = torch.tensor(HALVED, dtype=dtype) * LEAST[dtype]
    zero = torch.zeros(1, dtype=dtype)
    for center in (zero, zero + LEAST[dtype]):
        x, doubt = affine(symbols(), center, rows), Set(UNDECIDED)
        for found in (gated(x, doubt), where(doubt, x, point(zero))):
            assert holds(found, exact(center)) and holds(found, exact(zero))


@pytest.mark.parametrize("file", ["operators/gates.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("center", [1.0, -1.0])
def test_gates_of_forms_that_are_tighter_than_their_bounds(file: str, center: float, dtype: torch.dtype) -> None:
    """What is less than half a unit of the center is lost when it is added to that."""
    middle, radius = torch.full((1,), center, dtype=dtype), 0.9 * UNIT[dtype]
    x = affine(symbols(), middle, torch.zeros(1, 1, dtype=dtype), radius, wide=(-2.0, 2.0))
    found = gated(x, Set(UNDECIDED))
    for value in (exact(middle) + exact(radius), exact(middle) - exact(radius), exact(torch.zeros(1))):
        assert holds(found, value)


@pytest.mark.parametrize("file", ["operators/gates.py"])
@pytest.mark.parametrize("slope", [0.1, 0.01, 0.3])
def test_slopes_that_float32_does_not_hold(file: str, slope: float) -> None:
    grad = torch.linspace(1, 2, 400)
    found = leaky_relu_backward(narrow(grad), narrow(-torch.ones(400)), slope, False)
    assert holds(found, exact(grad) * number(slope))


@pytest.mark.parametrize("file", ["operators/selections.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_maxima_of_entries_a_few_units_apart(file: str, dtype: torch.dtype) -> None:
    """The middle of what others exceed the first by is added to its center, and rounded."""
    step = 2 * UNIT[dtype]
    for steps in range(1, 8):
        center = torch.ones(2, dtype=dtype)
        upper = torch.tensor([1.0, 1.0 + steps * step], dtype=dtype)
        x = affine(
            symbols(), center, torch.zeros(1, 2, dtype=dtype), torch.tensor([0.0, steps * step]), (center, upper)
        )
        found = largest(x)
        for last in range(steps + 1):
            assert holds(found, number(1.0) + number(last * step))
