"""Sums, means and combinations: the exact value is inside, where nothing but roundings is in doubt."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from exact import DTYPES, LEAST, adverse, exact, number, product, total
from exact_sets import affine, cancelling_rows, holds, narrow, symbols
from torch import Tensor

import boundflow as bf
from boundflow.operators.pooling import adaptive_avg_pool2d_backward, avg_pool2d_backward
from boundflow.rules.linear import Remembered, add, lerp, mean, sum_
from boundflow.sets.clean_state import Remainder
from boundflow.sets.forms import Form
from boundflow.sets.sample_axis import SampleAxis, Samples
from boundflow.sets.set import Set, point

COUNT = 300


@pytest.mark.parametrize("file", ["rules/linear.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", ["normal", "subnormal"])
def test_means_and_combinations(file: str, size: str, dtype: torch.dtype) -> None:
    """A share of a smallest number is not there; rows that cancel need not cancel when they are divided."""
    unit = LEAST[dtype] if size == "subnormal" else 1.0
    center = torch.tensor([[1.0, 0.0, 0.0], [7.0, 5.0, -1.0]], dtype=dtype) * unit
    rows = torch.tensor([3.0, -1.0, -2.0], dtype=dtype).view(3, 1, 1).expand(3, 2, 3) * unit
    x, other = affine(symbols(), center, rows), point(torch.zeros(2, 3, dtype=dtype))
    assert holds(mean(x, [1]), total(exact(center), 1) / number(3.0))
    assert holds(add(other, x, alpha=0.3), exact(center) * number(0.3))


@pytest.mark.parametrize("file", ["rules/linear.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("share", [0.3, 0.9])
@pytest.mark.parametrize("size", ["normal", "subnormal"])
def test_two_products(file: str, size: str, share: float, dtype: torch.dtype) -> None:
    """``x + w (y - x)`` and ``x - w (y + d x)``, which we compute as two products: they underflow, or cancel."""
    few = torch.arange(60, dtype=dtype) * LEAST[dtype]
    x, y = torch.cartesian_prod(few, -few).T
    if size == "normal":
        x = torch.linspace(1, 2, 100, dtype=dtype)
        y = x * ((share - 1) / share)
    first, second, weight = narrow(x), narrow(y), number(share)
    assert holds(lerp(first, second, share), exact(x) + weight * (exact(y) - exact(x)))
    decayed = narrow(y)
    decayed.remembered = Remembered(second, first, 0.3)
    wanted = exact(x) - weight * (exact(y) + number(0.3) * exact(x))
    assert holds(add(first, decayed, alpha=-share), wanted)


@pytest.mark.parametrize("file", ["rules/linear.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("far", [0.0, 2.0**10])
def test_long_sums(file: str, far: float, dtype: torch.dtype) -> None:
    for kind in ("one sign", "swallowed", "mixed sizes"):
        center = adverse(kind, (COUNT, 2), dtype)
        x = affine(symbols(), center, cancelling_rows((COUNT, 2), dtype, far))
        assert holds(sum_(x, [0]), total(exact(center)))
        assert holds(mean(x, [0]), total(exact(center)) / number(float(COUNT)))


@pytest.mark.parametrize("file", ["rules/linear.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["one sign", "swallowed", "mixed sizes"])
def test_sums_over_samples_whose_clean_state_is_not_known(file: str, kind: str, dtype: torch.dtype) -> None:
    space, center = symbols(), adverse(kind, (COUNT, 2), dtype)
    raw = np.arange(COUNT, dtype=np.float64)[:, None]
    rows = space.of_samples(np.arange(COUNT), raw, np.zeros(1, dtype=np.int64))
    assert rows.batch is not None
    zeros = torch.zeros_like(center)
    form = Form(center, zeros[None], zeros, rows, SampleAxis(-2, Samples.of(rows.batch)))
    found = sum_(Set(torch.stack((center, center)), form, space), [0])
    assert holds(found, total(exact(center)))


@pytest.mark.parametrize("file", ["rules/linear.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("adaptive", [False, True])
def test_gradients_of_windows_that_overlap(file: str, adaptive: bool, dtype: torch.dtype) -> None:
    """A ninth of four smallest numbers is nothing, and nine of them are four."""
    size, area, units = (3, 4, 2) if adaptive else (5, 9, 4)
    image = torch.zeros(1, 1, size, size, dtype=dtype)

    def spread(grad: Set) -> Set:
        if adaptive:
            return adaptive_avg_pool2d_backward(grad, point(image))
        return avg_pool2d_backward(grad, point(image), [3, 3], [1, 1], [0, 0], False, True, None)

    ones = torch.ones(1, 1, *((2, 2) if adaptive else (3, 3)), dtype=dtype)
    windows = spread(narrow(ones * area)).center.round()  # how many hold each pixel
    found = spread(narrow(ones * (units * LEAST[dtype])))
    assert holds(found, exact(windows) * number(units * LEAST[dtype]) / number(float(area)))


def left_alone(center: Tensor) -> Set:
    """Samples that nobody can touch, and it is known that they are what they are."""
    bounds = torch.stack((center, center))
    along = SampleAxis(-2, Samples(np.arange(len(center)), 2))
    return Set(bounds, None, symbols(), clean=Remainder(bounds, None), along=along)


@pytest.mark.parametrize("file", ["rules/linear.py", "rules/products_over_samples.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_shares_of_samples_that_underflow(file: str, dtype: torch.dtype) -> None:
    """Every term of a mean, or of a product, is less than half of the smallest number, and all together are many."""
    center = torch.full((COUNT, 1), 100.0, dtype=dtype) * LEAST[dtype]
    weights = torch.full((1, COUNT), 2.0**-8, dtype=dtype)
    wanted = exact(torch.full((1,), 100.0, dtype=dtype) * LEAST[dtype])
    with torch.no_grad():
        assert holds(bf.Bounded(left_alone(center)).mean(0), wanted)
        found = torch.mm(weights, bf.Bounded(left_alone(center)))
    assert holds(found, product(exact(weights), exact(center)))
