"""Products, squares, conversions and updates: the exact value is inside, where nothing but roundings is in doubt.

Sets are single points by their intervals, and reach far by their forms (`exact_sets.py`).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from exact import ADVERSE, DTYPES, LEAST, Exact, adverse, exact, number, product
from exact_sets import affine, cancelling_rows, holds, narrow, symbols
from torch import Tensor

import boundflow as bf
from boundflow.operators.constants import to_copy
from boundflow.operators.optimizer_update import _descended
from boundflow.operators.products import _reciprocal_ball, mul, square
from boundflow.rules.bilinear import ball_product
from boundflow.rules.linear import Remembered
from boundflow.sets.set import point


def digits(shape: tuple[int, ...], dtype: torch.dtype, size: float = 1.0, seed: int = 0) -> Tensor:
    """Numbers with all their digits, of both signs."""
    random = np.random.default_rng([seed, 3])
    return torch.tensor(random.uniform(1, 2, size=shape) * random.choice([-size, size], size=shape), dtype=dtype)


def sizes(dtype: torch.dtype) -> tuple[float, float]:
    """A size of numbers whose products are normal, and one of numbers whose products underflow."""
    return 1.0, 2.0**-72 if dtype is torch.float32 else 2.0**-530


@pytest.mark.parametrize("file", ["rules/bilinear.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("moves", ["first", "second", "both"])
@pytest.mark.parametrize("far", [2.0**-3, 2.0**20])
def test_products_elementwise(file: str, moves: str, dtype: torch.dtype, far: float) -> None:
    for size in sizes(dtype):
        space, (a, b) = symbols(), (digits((40,), dtype, size, seed) for seed in (1, 2))
        first, second = (affine(space, x, cancelling_rows((40,), dtype, far * size, 5)) for x in (a, b))
        found = mul(first if moves != "second" else point(a), second if moves != "first" else point(b))
        assert holds(found, exact(a) * exact(b))


@pytest.mark.parametrize("file", ["rules/bilinear.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("moves", ["first", "second", "both"])
@pytest.mark.parametrize("kind", ADVERSE)
def test_products_of_balls(file: str, kind: str, moves: str, dtype: torch.dtype) -> None:
    """Center and radius of a matrix product, before any bound is rounded outwards."""
    for terms in (1, 30):
        a, b = adverse(kind, (3, terms), dtype, 1), adverse(kind, (terms, 2), dtype, 2)
        first = narrow(a) if moves != "second" else point(a)
        second = narrow(b) if moves != "first" else point(b)
        center, radius = ball_product(first, second, torch.matmul, terms)
        assert np.all(np.abs(product(exact(a), exact(b)) - exact(center)) <= exact(radius))


@pytest.mark.parametrize("file", ["operators/products.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_squares(file: str, domain: str, dtype: torch.dtype) -> None:
    for size in sizes(dtype):
        x = digits((40,), dtype, size)
        for far in (2.0**-3, 2.0**20):
            made = (
                narrow(x) if domain == "interval" else affine(symbols(), x, cancelling_rows((40,), dtype, far * size))
            )
            assert holds(square(made), exact(x) ** 2)


@pytest.mark.parametrize("file", ["operators/products.py"])
def test_factors_that_are_converted(file: str) -> None:
    """A number in float64 meets a set in float32: it stands for itself, not for what it is rounded to."""
    x, factor = digits((40,), torch.float32), torch.tensor(0.1, dtype=torch.float64)
    assert holds(mul(narrow(x), factor), exact(x) * number(0.1))


@pytest.mark.parametrize("file", ["operators/products.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reciprocals(file: str, dtype: torch.dtype) -> None:
    x = digits((40,), dtype)
    for operand in (x, narrow(x)):
        assert holds(_reciprocal_ball(operand, narrow(x)), number(1) / exact(x))
    assert holds(_reciprocal_ball(3.0, narrow(x[:1])), number(1) / number(3.0))


@pytest.mark.parametrize("file", ["operators/constants.py"])
@pytest.mark.parametrize("size", [1.0, 2.0**-140])
@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_conversion_to_a_narrower_dtype(file: str, domain: str, size: float) -> None:
    x = digits((40,), torch.float64, size)
    rows = digits((3, 40), torch.float64, size / 4, 1) * torch.tensor([1.0, 1.0, 0.0]).view(3, 1)
    rows[1] = -rows[0]
    made = narrow(x) if domain == "interval" else affine(symbols(), x, rows)
    assert holds(to_copy(made, dtype=torch.float32), exact(x))


@pytest.mark.parametrize("file", ["operators/optimizer_update.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_updates_of_a_traced_step(file: str, decay: float, dtype: torch.dtype) -> None:
    rate, few = torch.full((1,), 0.7, dtype=dtype), torch.arange(80, dtype=dtype) * LEAST[dtype]
    for x, gradient in (digits((2, 40), dtype), torch.cartesian_prod(few, -few).T):
        parameter, given = narrow(x), narrow(gradient)
        if decay:
            given.remembered = Remembered(narrow(gradient), parameter, decay)
        found = _descended(parameter, given, rate, [])
        assert holds(found, exact(x) - exact(rate) * (exact(gradient) + number(decay) * exact(x)))


@pytest.mark.parametrize("file", ["operators/dropout_and_noise.py"])
@pytest.mark.parametrize("share", [0.456, 0.728, 0.966])
def test_dropout_divides_by_what_is_kept(file: str, share: float) -> None:
    """The mask is 1 / (1 - p), which float32 does not hold."""
    x = digits((200,), torch.float32)
    kept = torch.nn.functional.dropout
    torch.manual_seed(0)
    mask = kept(torch.ones(200), share) != 0
    torch.manual_seed(0)
    found = kept(bf.Bounded(narrow(x)), share)
    wanted: Exact = exact(x * mask) / number(str(1 - Fraction(share)))
    assert holds(found, wanted)
