"""Operators whose members cannot be drawn from a generic example: pooling, normalisation, logic, conversions.

Each test draws members of the operands and checks inclusion with zero tolerance, as the laws do.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from sampling import SYMBOLS, Case, off_the_form, outside

import boundflow as bf

SEEDS = st.integers(0, 2**32 - 1)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
DOMAINS = pytest.mark.parametrize("rows", [0, SYMBOLS], ids=["interval", "zonotope"])
SAMPLED = pytest.mark.parametrize("rows", [0, SYMBOLS, -SYMBOLS], ids=["interval", "zonotope", "own rows"])


def holds(case: Case, function, *operands) -> None:
    """``function`` and its gradient with respect to every operand, on sets and on members."""
    sets = [operand.detach().requires_grad_() for operand in operands]
    result = function(*sets)
    result.sum().backward()
    results = [result.detach(), *(operand.grad for operand in sets)]
    for draw in range(case.draws):
        for dtype in dict.fromkeys((case.dtype, torch.float64)):
            members = [
                case.member(operand, draw).detach().to(dtype, copy=True).requires_grad_() for operand in operands
            ]
            value = function(*members)
            value.sum().backward()
            for bounded, plain in zip(results, [value.detach(), *(member.grad for member in members)], strict=True):
                assert not (why := outside(bounded, plain)), why
                assert not (why := off_the_form(bounded, plain, case.xi[draw], case.all_rows)), why


MODULES = {
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "max_pool2d_overlapping": lambda x: F.max_pool2d(x, 3, 1),
    "max_pool2d_padded": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max_pool2d_dilated": lambda x: F.max_pool2d(x, 2, 1, 0, 2),
    "max_pool2d_ceil": lambda x: F.max_pool2d(x, 2, 2, 0, 1, True),
    "max_pool2d_ceil_padded": lambda x: F.max_pool2d(x, 3, 3, 1, 1, True),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "avg_pool2d_options": lambda x: F.avg_pool2d(x, 3, 2, 1, True, False),
    "avg_pool2d_divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, (2, 3)),
    "adaptive_avg_pool2d_one": lambda x: F.adaptive_avg_pool2d(x, 1),
    "layer_norm": lambda x: F.layer_norm(x, (5,), eps=0.01),
    "layer_norm_two_axes": lambda x: F.layer_norm(x, (4, 5), eps=0.01),
    "batch_norm": lambda x: F.batch_norm(
        x, x.new_tensor([0.3, -0.2]) if not isinstance(x, bf.Bounded) else torch.tensor([0.3, -0.2], dtype=x.dtype),
        torch.tensor([0.7, 1.3], dtype=x.dtype),
    ),
    "softmax": lambda x: torch.softmax(x, -1),
    "softmax_two": lambda x: torch.softmax(x[..., :2], -1),
    "softmax_first_axis": lambda x: torch.softmax(x, 1),
    "log_softmax": lambda x: torch.log_softmax(3 * x, -1),
    "logsumexp": lambda x: -torch.log_softmax(x, -1)[..., 0],
    "amax": lambda x: torch.amax(x, (1, 3)),
    "amax_all": lambda x: x.amax(),
    "amin": lambda x: x.amin(-1, keepdim=True),
    "maximum": lambda x: torch.maximum(x, -x + 0.25),
    "minimum": lambda x: torch.minimum(x, 0.5 * x),
    "norm": lambda x: torch.linalg.vector_norm(x + 3, dim=-1),
    "norm_one": lambda x: x.norm(p=1, dim=-1),
    "normalize": lambda x: F.normalize(x + 3, dim=-1),
    "clamp": lambda x: x.clamp(-0.3, 0.4),
    "abs": lambda x: x.abs(),
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.25),
    "relu6": lambda x: F.relu6(8 * x),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.7),
    "elu": lambda x: F.elu(x, 1.7),
    "softsign": F.softsign,
    "power": lambda x: x**3 + x**4,
    "quotient": lambda x: x / (x * x + 1),
    "reciprocal": lambda x: 1 / (x + 3),
    "indexing": lambda x: x[:, 1, ::2, [0, 3]] + x[:, 0, 1:3, 2:4],
    "boolean_index": lambda x: x[..., torch.tensor([True, False, True, True, False])],
    "padding": lambda x: F.pad(x, (1, 2, 0, 1)),
    "concatenation": lambda x: torch.cat((x, 2 * x.flip(-1)), 1).roll(1, 2),
    "stacking": lambda x: torch.stack(x.unbind(-1)[:3], 1),
    "splitting": lambda x: x.split(2, -1)[0] * x.chunk(2, -1)[0][..., :2],
    "gathering": lambda x: x.gather(-1, torch.tensor([[[[0, 4]] * 4] * 2] * 2)),
    "einsum": lambda x: torch.einsum("nchw,nchv->nwv", x, x),
    "matmul": lambda x: x @ x.transpose(-1, -2),
    "cumsum": lambda x: x.cumsum(-1),
    "where": lambda x: torch.where(x > 0.1, 2 * x, -x),
    "masked_fill": lambda x: x.masked_fill(torch.eye(4, 5, dtype=torch.bool), 0.5),
    "repeat": lambda x: x.repeat(1, 2, 1, 1),
    "unfold": lambda x: x.unfold(-1, 3, 1),
    "mean_and_variance": lambda x: (x - x.mean(-1, keepdim=True)).square().mean(-1),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
@DTYPES
@SAMPLED
@given(seed=SEEDS)
def test_function_and_gradient(name: str, dtype: torch.dtype, rows: int, seed: int) -> None:
    case = Case(seed, dtype, abs(rows), draws=8, own=rows < 0)
    holds(case, MODULES[name], case(2, 2, 4, 5))


@DTYPES
@DOMAINS
@pytest.mark.parametrize("shape", [(4,), (2, 4)], ids=str)
@given(seed=SEEDS)
def test_layer_norm_with_weights(dtype: torch.dtype, rows: int, shape: tuple, seed: int) -> None:
    case = Case(seed, dtype, rows, draws=8)
    holds(case, lambda x, w, b: F.layer_norm(x, shape, w, b, 0.01), case(3, 2, 4), case(*shape), case(*shape))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("geometry", [(1, 0, 1), (2, 1, 1), (1, 2, 2)], ids=str)
@DTYPES
@SAMPLED
def test_convolutions(dtype: torch.dtype, rows: int, geometry: tuple, groups: int) -> None:
    stride, padding, dilation = geometry
    case = Case(11, dtype, abs(rows), draws=8, own=rows < 0)

    def conv2d(x, w, b):
        return F.conv2d(x, w, b, stride, padding, dilation, groups)

    def conv1d(x, w):
        return F.conv1d(x, w, None, stride, padding, dilation, groups)

    holds(case, conv2d, case(2, 2, 5, 6), case(4, 2 // groups, 3, 2), case(4))
    holds(case, conv1d, case(2, 2, 7), case(2, 2 // groups, 3))


def test_layer_norm_of_badly_conditioned_input() -> None:
    """A large mean: one-pass, two-pass and Welford variances differ in float32, and all of them are inside."""
    torch.manual_seed(0)
    x = 1000 + torch.randn(50, 16)
    result = F.layer_norm(bf.ball(x, 0.0), (16,))
    assert bool(result.contains(F.layer_norm(x, (16,))).all())
    wide = F.layer_norm(x.double(), (16,))
    assert bool(((result.lower.double() <= wide) & (wide <= result.upper.double())).all())


def test_logic_is_three_valued() -> None:
    x = bf.interval(torch.tensor([-1.0, 1.0, -3.0]), torch.tensor([2.0, 2.0, -1.0]))
    positive = x > 0
    assert positive.lower.tolist() == [False, True, False] and positive.upper.tolist() == [True, True, False]
    negated = ~positive
    assert negated.lower.tolist() == [False, False, True] and negated.upper.tolist() == [True, False, True]
    both, either = positive & (x < 3), positive | (x < -2)
    assert both.upper.tolist() == [True, True, False] and either.lower.tolist() == [False, True, False]
    assert torch.logical_not(positive).upper.tolist() == [True, False, True]
    assert torch.logical_and(positive, positive).lower.tolist() == [False, True, False]
    assert torch.logical_or(positive, positive).upper.tolist() == [True, True, False]
    assert bool((x < 5).all()) and bool((x[1:] > 0).any()) and not bool((x > 5).any(0))
    assert bool((x < 5).all(0)) and not bool(torch.isnan(x).any()) and not bool(torch.isinf(x).any())
    with pytest.raises(bf.Undecided):
        bool(positive[:2].all())
    with pytest.raises(bf.UnsupportedOperator):
        positive.sum()


@DTYPES
@DOMAINS
def test_largest_modulus(dtype: torch.dtype, rows: int) -> None:
    case = Case(2, dtype, rows)
    x = case(2, 3, 4)
    result = torch.linalg.vector_norm(x, math.inf, dim=(1, 2))
    for draw in range(case.draws):
        value = torch.linalg.vector_norm(case.member(x, draw), math.inf, dim=(1, 2))
        assert not (why := outside(result, value)), why
        assert not (why := off_the_form(result, value, case.xi[draw], case.all_rows)), why


def test_factories_give_points() -> None:
    x = bf.ball(torch.zeros(2, 3), 1.0)
    for made, number in [
        (torch.zeros_like(x), 0.0),
        (torch.ones_like(x), 1.0),
        (torch.full_like(x, 2.5), 2.5),
        (x.new_zeros(4), 0.0),
        (x.new_ones(4, 1), 1.0),
        (x.new_full((2,), 3.0), 3.0),
    ]:
        assert isinstance(made, bf.Bounded) and made.dtype is x.dtype
        assert bool((made.lower == number).all()) and bool((made.upper == number).all())
    with torch.no_grad():
        x.fill_(2.0)
        assert bool((x.lower == 2).all()) and bool((x.upper == 2).all())
        x.fill_(torch.tensor(1.0))
        assert bool((x.lower == 1).all())
        x.zero_()
        assert bool((x.upper == 0).all())


def test_conversions_round_outwards() -> None:
    x = bf.interval(torch.tensor([0.1, -0.3], dtype=torch.float64), torch.tensor([0.1, 0.7], dtype=torch.float64))
    narrow = x.to(torch.float32)
    assert narrow.dtype is torch.float32
    assert bool((narrow.lower.double() <= x.lower).all()) and bool((x.upper <= narrow.upper.double()).all())
    back = narrow.double()
    assert torch.equal(back.lower, narrow.lower.double())
    case = Case(5, torch.float64, SYMBOLS)
    y = case(3, 4) * 0.1
    for draw in range(case.draws):
        value = (0.1 * case.member(case.keep[0], draw)).to(torch.float32)
        assert not (why := outside(y.to(torch.float32), value)), why
        assert not (why := off_the_form(y.to(torch.float32), value, case.xi[draw], case.all_rows)), why
    target = bf.ball(torch.zeros(2), 0.0)
    with torch.no_grad():
        target.copy_(x)
        assert bool((target.lower.double() <= x.lower).all())
        target.copy_(torch.tensor([0.1, 0.2], dtype=torch.float64))
        assert bool((target.lower.double() < 0.1).all() or target.lower[0].double() <= 0.1)


def test_argmax_is_given_only_when_it_is_one_answer() -> None:
    x = bf.interval(torch.tensor([[0.0, 2.0], [5.0, 1.0]]), torch.tensor([[1.0, 3.0], [6.0, 2.0]]))
    assert x.argmax(1).tolist() == [1, 0] and x.argmax().item() == 2
    assert x.argmax(1, keepdim=True).shape == (2, 1)
    with pytest.raises(bf.Undecided):
        bf.ball(torch.tensor([1.0, 1.1]), 0.2).argmax()


@given(seed=SEEDS)
def test_matrix_products_against_ball_arithmetic(seed: int) -> None:
    """Real-arithmetic results, judged by python-flint, and members at the corners."""
    flint = pytest.importorskip("flint")
    random = np.random.default_rng(seed)
    for dtype in (torch.float32, torch.float64):
        scale = 10.0 ** random.integers(-6, 6)
        a = torch.tensor(random.normal(size=(3, 5)) * scale, dtype=dtype)
        b = torch.tensor(random.normal(size=(5, 2)) - 1000, dtype=dtype)
        radius = float(10.0 ** random.integers(-9, -2))
        sets = bf.ball(a, radius * scale), bf.ball(b, radius)
        products = sets[0] @ sets[1]
        for _ in range(4):
            corner = [torch.where(torch.rand(s.shape) < 0.5, s.lower, s.upper) for s in sets]
            exact = [flint.fmpq_mat(*x.shape, [_rational(v) for v in x.flatten().tolist()]) for x in corner]
            product = exact[0] * exact[1]
            for i in range(3):
                for j in range(2):
                    assert _rational(float(products.lower[i, j])) <= product[i, j]
                    assert product[i, j] <= _rational(float(products.upper[i, j]))
            assert bool(products.contains(corner[0] @ corner[1]).all())


def _rational(x: float):
    import flint

    numerator, denominator = x.as_integer_ratio()
    return flint.fmpq(numerator, denominator)
