"""Unary functions judged by ball arithmetic: the range and the relaxation ``lambda x + mu +- delta`` hold everywhere.

The oracle evaluates each function with python-flint at 200 bits from its definition, not with our code.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from boundflow import rounding
from boundflow.operators import functions, slopes
from boundflow.rules import unary
from boundflow.rules.unary import Function

flint = pytest.importorskip("flint")
arb = flint.arb
flint.ctx.prec = 200


def _logistic(x):
    return 1 / (1 + (-x).exp())


def _density(x):
    return (-x * x / 2).exp() / (2 * arb.pi()).sqrt()


def _cumulative(x):
    return (-x / arb(2).sqrt()).erfc() / 2


def _elu(x, alpha=1.3, scale=1.1, inner=0.8):
    return arb(scale) * x if x >= 0 else arb(scale) * arb(alpha) * (arb(inner) * x).expm1()


def _elu_slope(x, alpha=1.3, scale=1.1, inner=0.8):
    return arb(scale) if x > 0 else arb(scale) * arb(alpha) * arb(inner) * (arb(inner) * x).exp()


# function, oracle in ball arithmetic, the same in plain PyTorch (with every formula it may use), smallest, largest
CASES = {
    "tanh": (functions.TANH, lambda x: x.tanh(), [torch.tanh], -1e30, 1e30),
    "sigmoid": (functions.SIGMOID, _logistic, [torch.sigmoid], -1e30, 1e30),
    "relu": (functions.RELU, lambda x: x if x > 0 else arb(0), [torch.relu], -1e30, 1e30),
    "exp": (functions.EXP, lambda x: x.exp(), [torch.exp], -200, 80),
    "log": (functions.LOG, lambda x: x.log(), [torch.log], 1e-30, 1e30),
    "sqrt": (functions.SQRT, lambda x: x.sqrt(), [torch.sqrt], 0, 1e30),
    "rsqrt": (functions.RSQRT, lambda x: x.rsqrt(), [torch.rsqrt], 1e-20, 1e20),
    "reciprocal": (functions.RECIPROCAL, lambda x: 1 / x, [torch.reciprocal], 1e-15, 1e15),
    "log1p": (unary.FUNCTION_TABLE[torch.ops.aten.log1p.default], lambda x: x.log1p(), [torch.log1p], -0.99, 1e30),
    "expm1": (unary.FUNCTION_TABLE[torch.ops.aten.expm1.default], lambda x: x.expm1(), [torch.expm1], -200, 80),
    "abs": (functions.ABS, abs, [torch.abs], -1e30, 1e30),
    "gelu": (functions.GELU, lambda x: x * _cumulative(x), [F.gelu], -40, 1e9),
    "gelu'": (
        functions.GELU_DERIVATIVE,
        lambda x: _cumulative(x) + x * _density(x),
        [lambda x: torch.ops.aten.gelu_backward(torch.ones_like(x), x)],
        -40,
        1e9,
    ),
    "silu": (functions.SILU, lambda x: x * _logistic(x), [F.silu], -80, 1e9),
    "silu'": (
        functions.SILU_DERIVATIVE,
        lambda x: _logistic(x) * (1 + x * (1 - _logistic(x))),
        [lambda x: torch.ops.aten.silu_backward(torch.ones_like(x), x)],
        -80,
        1e9,
    ),
    "leaky_relu": (
        functions.leaky(0.1),
        lambda x: x if x > 0 else x * arb(0.1),
        [lambda x: F.leaky_relu(x, 0.1)],
        -1e9,
        1e9,
    ),
    "clamp": (
        functions.clamped(-0.7, 0.4),
        lambda x: min(max(x, arb(-0.7)), arb(0.4)),
        [lambda x: x.clamp(-0.7, 0.4)],
        -9,
        9,
    ),
    "softplus": (
        functions.softplus_function(1.0, 20.0),
        lambda x: x.exp().log1p() if x < 50 else x + (-x).exp().log1p(),
        [F.softplus],
        -80,
        1e9,
    ),
    "softplus beta": (
        functions.softplus_function(1.5, 20.0),
        lambda x: (arb(1.5) * x).exp().log1p() / 1.5,
        [lambda x: F.softplus(x, 1.5)],
        -50,
        50,
    ),
    "softplus'": (
        functions.softplus_slope(1.5, 20.0),
        lambda x: _logistic(arb(1.5) * x),
        [lambda x: torch.ops.aten.softplus_backward(torch.ones_like(x), x, 1.5, 20.0)],
        -50,
        1e9,
    ),
    "elu": (functions.elu_function(1.3, 1.1, 0.8), _elu, [lambda x: torch.ops.aten.elu(x, 1.3, 1.1, 0.8)], -80, 1e9),
    "elu'": (
        functions.elu_slope(1.3, 1.1, 0.8),
        _elu_slope,
        [lambda x: torch.ops.aten.elu_backward(torch.ones_like(x), 1.3, 1.1, 0.8, False, x)],
        -80,
        1e9,
    ),
    "1 - y^2": (slopes.ONE_MINUS_SQUARE, lambda x: 1 - x * x, [lambda y: 1 - y * y], -1, 1),
    "y (1 - y)": (slopes.SIGMOID_SLOPE, lambda x: x * (1 - x), [lambda y: y * (1 - y), lambda y: (1 - y) * y], 0, 1),
    "x^3": (functions._whole_power(3), lambda x: x**3, [lambda x: x**3, lambda x: x * x * x], -1e5, 1e5),
    "x^4": (functions._whole_power(4), lambda x: x**4, [lambda x: x**4], -1e5, 1e5),
}


def _intervals(low: float, high: float, dtype: torch.dtype) -> torch.Tensor:
    """Narrow, wide, huge, one unit wide, of width zero, and at zero: the places where relaxations go wrong."""
    random = np.random.default_rng(17)
    modest_low, modest_high = max(low, -12.0), min(high, 12.0)
    ends = random.uniform(modest_low, modest_high, size=(60, 2))
    narrow = random.uniform(modest_low, modest_high, size=(40, 1)) + 10.0 ** random.uniform(-12, -1, size=(40, 2))
    special = [[low, high], [low, 0.5 * (modest_low + modest_high)], [modest_high, high], [modest_low, modest_high]]
    if low <= 0 <= high:
        special += [[0.0, high], [low, 0.0], [0.0, 0.0], [0.0, 1e-30], [0.0, modest_high]]
    stacked = np.clip(np.sort(np.concatenate((ends, narrow, np.array(special))), 1), low, high)
    bounds = torch.tensor(stacked.T.copy(), dtype=dtype)
    one_unit = torch.nextafter(bounds[0, :20], torch.tensor(math.inf, dtype=dtype))
    bounds = torch.cat((bounds, torch.stack((bounds[0, :20], one_unit)), bounds[:1, :20].expand(2, 20)), 1)
    return bounds.clamp(torch.tensor(low, dtype=dtype), torch.tensor(high, dtype=dtype))


def _points(bounds: torch.Tensor) -> torch.Tensor:
    weights = torch.tensor([0.0, 1.0, 0.5, 0.01, 0.99, 1e-6, 0.3, 0.77], dtype=bounds.dtype).unsqueeze(1)
    low, high = bounds
    return torch.maximum(torch.minimum(low * (1 - weights) + high * weights, high), low)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_against_ball_arithmetic(name: str, dtype: torch.dtype) -> None:
    function, oracle, plain, low, high = CASES[name]
    bounds = _intervals(float(low), float(high), dtype)
    image = unary.range_of(function, bounds)
    slope, offset, error = unary.relaxation(function, bounds, image)
    for points in _points(bounds):
        values = [formula(points) for formula in plain]
        for i, x in enumerate(points.tolist()):
            exact = oracle(arb(x))
            candidates = [exact, *(arb(value[i].item()) for value in values)]
            line = arb(slope[i].item()) * arb(x) + arb(offset[i].item())
            delta = arb(error[i].item())
            for candidate in candidates:
                where = f"{name} at {x!r} in {bounds[:, i].tolist()}"
                assert not candidate < arb(image[0, i].item()), f"{where}: {candidate} below {image[0, i].item()!r}"
                assert not candidate > arb(image[1, i].item()), f"{where}: {candidate} above {image[1, i].item()!r}"
                assert not abs(candidate - line) > delta, f"{where}: {candidate} is not within {delta} of {line}"


@pytest.mark.parametrize("name", CASES)
def test_relaxations_are_second_order(name: str) -> None:
    """Halving a small interval quarters the error of a smooth function: the relaxation follows the slope."""
    function = CASES[name][0]
    if function.derivative is None or 0 in function.curvature:
        pytest.skip("not smooth: the error at a kink is first order")
    middle = 0.8
    errors = []
    for half in (0.02, 0.01):
        bounds = torch.tensor([[middle - half], [middle + half]], dtype=torch.float64)
        with rounding.nearest():
            errors.append(float(unary.relaxation(function, bounds, unary.range_of(function, bounds))[2]))
    assert errors[1] < 0.3 * errors[0]


@pytest.mark.parametrize("candidate", [-50.0, -0.3, 0.0, 0.4, 50.0])
def test_a_critical_point_is_a_candidate_not_a_bound(candidate: float) -> None:
    """However wrong the computed critical point is, what it misses is paid for, on convex and on concave pieces."""
    wrong = dataclasses.replace(functions.TANH, critical=lambda slope, piece: torch.full_like(slope, candidate))
    bounds = torch.tensor([[-2.0, -1.0, 0.2, -2.0, -0.5], [-0.1, 1.5, 2.5, 0.1, 0.4]], dtype=torch.float64)
    slope, offset, error = unary.relaxation(wrong, bounds, unary.range_of(wrong, bounds))
    for weight in torch.linspace(0, 1, 101, dtype=torch.float64):
        x = bounds[0] * (1 - weight) + bounds[1] * weight
        assert bool(((torch.tanh(x) - slope * x - offset).abs() <= error).all())


def test_every_function_of_the_table_is_judged() -> None:
    judged = {id(case[0]) for case in CASES.values()}
    unjudged = [function.name for function in unary.FUNCTION_TABLE.values() if id(function) not in judged]
    assert unjudged == ["sign", "sign"]  # sign has no rounding and no slope


def test_named_traps() -> None:
    """float32 relaxations on [0, 1e9], gelu at -9, softplus at 20.1: silently wrong without their allowances."""
    for function, oracle in ((functions.SIGMOID, _logistic), (functions.TANH, lambda x: x.tanh())):
        bounds = torch.tensor([[0.0], [1e9]])
        slope, offset, error = unary.relaxation(function, bounds, unary.range_of(function, bounds))
        for x in (0.0, 0.1, 1.0, 5.0, 20.0, 1e9):
            line = arb(slope.item()) * arb(x) + arb(offset.item())
            assert not abs(oracle(arb(x)) - line) > arb(error.item())
    for x, function, plain, oracle in [
        (-9.0, functions.GELU, F.gelu, lambda x: x * _cumulative(x)),
        (20.1, functions.softplus_function(1.0, 20.0), F.softplus, lambda x: x.exp().log1p()),
    ]:
        for dtype in (torch.float32, torch.float64):
            point = torch.tensor([x], dtype=dtype)
            image = unary.range_of(function, torch.stack((point, point)))
            for value in (oracle(arb(point.item())), arb(plain(point).item())):
                assert arb(image[0].item()) <= value <= arb(image[1].item())


def test_a_function_needs_only_its_row() -> None:
    """Bisection finds critical points where no closed form is given."""
    row = Function("softplus without closed form", F.softplus, torch.sigmoid, (), (1,), moduli=lambda x, y: y * (2 + x))
    given = functions.softplus_function(1.0, 40.0)
    bounds = torch.tensor([[-2.0, 0.5], [1.0, 3.0]], dtype=torch.float64)
    for function in (row, given):
        assert unary.relaxation(function, bounds, unary.range_of(function, bounds))[2].max() < 0.2
    ours, theirs = (unary.relaxation(f, bounds, unary.range_of(f, bounds))[2] for f in (row, given))
    assert torch.allclose(ours, theirs, rtol=1e-6)
