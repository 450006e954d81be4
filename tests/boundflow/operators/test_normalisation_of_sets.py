"""Normalisation: what PyTorch computes is inside, by each formula that there is, and what is exact is inside.

Inputs are far from 0 and close to each other, so that means, variances and ``x scale - mean scale`` cancel.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from exact import DTYPES, UNIT, Exact, exact, number, root
from exact_sets import affine, holds, narrow, symbols
from torch import Tensor

import boundflow as bf
from boundflow.operators.normalisation import _normalised, _statistics, charged, layer_norm_backward
from boundflow.sets.set import Set

FAR = {torch.float32: 3e2, torch.float64: 3e6}  # how far inputs are from 0, in units of their spread
EPS = 1e-5


def inputs(dtype: torch.dtype, size: int, far: float, seed: int = 0) -> Tensor:
    return torch.tensor(far + np.random.default_rng([seed, size]).normal(size=(20, size)), dtype=dtype)


def inside(found: Set, value: Tensor) -> bool:
    return bool(((found.bounds[0] <= value) & (value <= found.bounds[1])).all())


@pytest.mark.parametrize("file", ["operators/normalisation.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_radii_that_are_added(file: str, dtype: torch.dtype) -> None:
    """What is less than half a unit of a bound or of a radius is not lost."""
    one, amount = torch.ones(1, dtype=dtype), torch.full((1,), 0.9 * UNIT[dtype], dtype=dtype)
    made = charged(affine(symbols(), one, torch.zeros(1, 1, dtype=dtype), 1.0, wide=(0.0, 2.0)), amount)
    assert exact(made.form.radius)[0] >= number(1) + exact(amount)[0]
    made = charged(narrow(one), amount)
    assert holds(made, number(1) + exact(amount)) and holds(made, number(1) - exact(amount))


@pytest.mark.parametrize("file", ["operators/normalisation.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [4, 100])
def test_variances_of_one_pass_and_of_two(file: str, size: int, dtype: torch.dtype) -> None:
    for far in (0.0, 10.0, FAR[dtype]):
        x = inputs(dtype, size, far)
        _, _, scale = _statistics(narrow(x), 1, EPS)
        center = x.mean(-1, keepdim=True)
        for variance in (
            x.square().mean(-1, keepdim=True) - center.square(),
            (x - center).square().mean(-1, keepdim=True),
        ):
            assert inside(scale, torch.rsqrt(variance.clamp_min(0.0) + EPS))
        assert inside(scale, torch.native_layer_norm(x, [size], None, None, EPS)[2])


@pytest.mark.parametrize("file", ["operators/normalisation.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [4, 100])
def test_layers(file: str, size: int, dtype: torch.dtype) -> None:
    """Forward and backward, as PyTorch computes them, and by ``x scale - mean scale``."""
    for far in (0.0, 10.0, FAR[dtype]):
        x, grad = inputs(dtype, size, far), inputs(dtype, size, 0.0, 1)
        made = narrow(x)
        deviations, center, scale = _statistics(made, 1, EPS)
        found = _normalised(made, deviations, center, scale, size)
        value, mean, spread = torch.native_layer_norm(x, [size], None, None, EPS)
        assert inside(found, value) and inside(found, x * spread - mean * spread)
        plain = torch.ops.aten.native_layer_norm_backward(
            grad, x, [size], mean, spread, None, None, [True, False, False]
        )[0]
        back = layer_norm_backward(narrow(grad), made, [size], center, scale, None, None, [True, False, False])[0]
        assert back is not None and inside(back, plain)


@pytest.mark.parametrize("file", ["operators/normalisation.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fixed_statistics(file: str, dtype: torch.dtype) -> None:
    """Batch normalisation in evaluation mode, as PyTorch computes it and in exact arithmetic."""
    count, random = 40, np.random.default_rng(1)
    x = inputs(dtype, count, FAR[dtype])
    mean, variance = (
        torch.full((count,), FAR[dtype], dtype=dtype),
        torch.tensor(random.uniform(1, 2, count), dtype=dtype),
    )
    given = bf.Bounded(narrow(x)).requires_grad_()
    found = torch.nn.functional.batch_norm(given, mean, variance, eps=EPS)
    scales: Exact = np.array([1 / root(value + number(EPS)) for value in exact(variance)], dtype=object)
    assert holds(found, (exact(x) - exact(mean)) * scales)
    plain = torch.nn.functional.batch_norm(x, mean, variance, eps=EPS)
    scale = torch.rsqrt(variance + EPS)
    assert inside(found.set, plain) and inside(found.set, x * scale - mean * scale)


@pytest.mark.parametrize("file", ["operators/normalisation.py"])
@pytest.mark.parametrize("variance", [0.26505687832832336, 0.2679751217365265])
def test_gradients_of_fixed_statistics(file: str, variance: float) -> None:
    """``1 / sqrt(variance + eps)`` is rounded three times before it meets a gradient: these by almost two units."""
    grad, zeros, variances = torch.linspace(1, 1.03, 2000).view(-1, 1), torch.zeros(1), torch.full((1,), variance)
    given = bf.Bounded(narrow(torch.zeros_like(grad))).requires_grad_()
    found = torch.nn.functional.batch_norm(given, zeros, variances, eps=EPS)
    (back,) = torch.autograd.grad(found, given, grad)
    assert holds(back, exact(grad) / root(number(variance) + number(EPS)))
