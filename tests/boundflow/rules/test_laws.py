"""Laws that every rule obeys, driven by the table of rules: a new rule is tested without a new test.

Inclusion is judged with zero tolerance against plain PyTorch in the same dtype, and for float32 also in float64.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rule_examples import LAWFUL, bounded_result, copied, example, outputs, wide
from sampling import SYMBOLS, Case, off_the_form, outside

import boundflow as bf
from boundflow.tensor.bounded import RULES, Rule

SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("rule", LAWFUL, ids=lambda rule: str(rule.operator).removeprefix("aten."))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("domain", ["interval", "zonotope", "own rows"])
@given(seed=SEEDS)
def test_inclusion(rule: Rule, dtype: torch.dtype, domain: str, seed: int) -> None:
    """The operator on members of the operands gives a member of the result, for the same symbols."""
    case = Case(seed, dtype, 0 if domain == "interval" else SYMBOLS, own=domain == "own rows")
    arguments = example(rule, case, dtype)
    results = bounded_result(rule, arguments)
    for draw in range(case.draws):
        members = tuple(copied(case.member(argument, draw)) for argument in arguments)
        runs = [rule.operator(*(copied(member) for member in members))]
        if dtype is torch.float32:
            runs.append(rule.operator(*(wide(member) for member in members)))
        for run in runs:
            for result, value in zip(results, outputs(run), strict=True):
                if isinstance(result, bf.Bounded):
                    assert not (why := outside(result, value)), why
                    assert not (why := off_the_form(result, value, case.xi[draw], case.all_rows)), why


@pytest.mark.parametrize("rule", LAWFUL, ids=lambda rule: str(rule.operator).removeprefix("aten."))
def test_points_give_the_plain_result(rule: Rule) -> None:
    """A set of one tensor stays as small as rounding allows, and contains what PyTorch computes."""
    case = Case(7, torch.float64, 0)

    def operand(*shape: int, **limits: float) -> bf.Bounded:
        return bf.ball(case.member(case(*shape, **limits), 0), 0.0)

    arguments = example(rule, operand, torch.float64)
    plain = tuple(argument.center.clone() if isinstance(argument, bf.Bounded) else argument for argument in arguments)
    plain = tuple(
        [part.center for part in argument]
        if isinstance(argument, list) and isinstance(argument[0], bf.Bounded)
        else argument
        for argument in plain
    )
    for result, value in zip(bounded_result(rule, arguments), outputs(rule.operator(*plain)), strict=True):
        if isinstance(result, bf.Bounded):
            assert not (why := outside(result, value)), why
            if result.dtype is not torch.bool:
                assert float((result.upper - result.lower).max()) <= 1e-8 * (1 + float(value.abs().max()))


@pytest.mark.parametrize("rule", LAWFUL, ids=lambda rule: str(rule.operator).removeprefix("aten."))
@given(seed=SEEDS)
def test_larger_operands_give_a_larger_result(rule: Rule, seed: int) -> None:
    """Monotonicity: growing every operand never shrinks the result (up to the allowance for rounding)."""

    def grown(factor: float) -> list:
        case = Case(seed, torch.float64, 0)

        def operand(*shape: int, low: float = -1.0, high: float = 1.0) -> bf.Bounded:
            made = case(*shape, low=low, high=high)
            half = (made.upper - made.lower) / 2
            return bf.ball(made.center, half * factor)

        return bounded_result(rule, example(rule, operand, torch.float64))

    for small, large in zip(grown(0.5), grown(1.0), strict=True):
        if not isinstance(small, bf.Bounded):
            continue
        if small.dtype is torch.bool:
            assert bool((large.lower <= small.lower).all()) and bool((small.upper <= large.upper).all())
        else:
            slack = 1e-12 * (1 + small.set.bounds.abs().amax(0))
            assert bool((large.lower <= small.lower + slack).all())
            assert bool((small.upper - slack <= large.upper).all())


@pytest.mark.parametrize("rule", LAWFUL, ids=lambda rule: str(rule.operator).removeprefix("aten."))
@given(seed=SEEDS)
def test_zonotopes_are_never_looser_than_intervals(rule: Rule, seed: int) -> None:
    """The reduced product: rows only ever help."""
    case = Case(seed, torch.float64, SYMBOLS)
    arguments = example(rule, case, torch.float64)

    def interval(argument: object) -> object:
        if isinstance(argument, list):
            return [interval(part) for part in argument]
        return bf.interval(argument.lower, argument.upper) if isinstance(argument, bf.Bounded) else argument

    loose = bounded_result(rule, tuple(interval(argument) for argument in arguments))
    for tight, wide_ in zip(bounded_result(rule, arguments), loose, strict=True):
        if isinstance(tight, bf.Bounded) and tight.dtype is not torch.bool:
            slack = 1e-12 * (1 + wide_.set.bounds.abs().amax(0))
            assert bool((wide_.lower - slack <= tight.lower).all())
            assert bool((tight.upper <= wide_.upper + slack).all())


# Rules without an example in the table, which tests in test_operators.py and test_tensor.py cover.
COVERED = {
    *("max_pool2d_with_indices.default", "max_pool2d_with_indices_backward.default"),
    *("native_layer_norm_backward.default", "_to_copy.default", "copy.default", "fill.Scalar", "fill.Tensor"),
    *(
        "all.default",
        "all.dim",
        "any.default",
        "any.dim",
        "isnan.default",
        "isinf.default",
        "isfinite.default",
        "zero.default",
    ),
    *("bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_not.default"),
    *("logical_and.default", "logical_or.default", "logical_not.default"),
    *("full_like.default", "zeros_like.default", "ones_like.default"),
    *("new_full.default", "new_ones.default", "new_zeros.default", "new_empty_strided.default"),
    *("rand_like.default", "randn_like.default", "rand_like.generator", "randn_like.generator"),
    *("empty_like.default", "new_empty.default"),
}

UNTESTED_BY_EXAMPLE = {
    # answers of one value, not sets
    "_local_scalar_dense.default", "argmax.default",
}  # fmt: skip


def test_every_rule_has_an_example_or_a_test_of_its_own() -> None:
    """Reflection: whoever adds a rule without an example has to name the test that covers it."""
    missing = {str(r.operator).removeprefix("aten.") for r in RULES.values() if r.example is None and r.writes is None}
    assert missing <= COVERED | UNTESTED_BY_EXAMPLE, missing - COVERED - UNTESTED_BY_EXAMPLE


def test_exact_where_exactness_is_claimed() -> None:
    """Structural operators, hulls of products and ranges of monotone functions are exact up to a few units."""
    random = np.random.default_rng(3)
    low = torch.tensor(random.normal(size=(200,)))
    x = bf.interval(low, low + torch.tensor(random.uniform(0, 2, size=(200,))))
    y = bf.interval(low.flip(0) - 1, low.flip(0) + 0.5)
    corners = torch.stack([a * b for a in (x.lower, x.upper) for b in (y.lower, y.upper)])
    for result, least, most in [
        (x * y, corners.amin(0), corners.amax(0)),
        (x + y, x.lower + y.lower, x.upper + y.upper),
        (x - y, x.lower - y.upper, x.upper - y.lower),
        (-x, -x.upper, -x.lower),
        (torch.relu(x), x.lower.relu(), x.upper.relu()),
        (torch.tanh(x), x.lower.tanh(), x.upper.tanh()),
        (torch.sigmoid(x), x.lower.sigmoid(), x.upper.sigmoid()),
        (x.sum(), x.lower.sum(), x.upper.sum()),
        (x[3:50:2], x.lower[3:50:2], x.upper[3:50:2]),
    ]:
        scale = 1e-14 * (1 + most.abs().max() + least.abs().max()) * max(1, 200 // result.numel())
        assert float((result.lower - least).abs().max()) <= scale
        assert float((result.upper - most).abs().max()) <= scale
    assert torch.equal((-x).lower, -x.upper) and torch.equal(torch.relu(x).upper, x.upper.relu())


def test_a_square_is_not_a_product() -> None:
    """x * x with one object is nonnegative; two sets that share storage are two sets."""
    storage = torch.zeros(3, dtype=torch.float64)
    x, y = bf.ball(storage, 1.0), bf.ball(storage, 1.0)
    assert float((x * x).lower.min()) == 0.0
    assert float((x * y).lower.max()) <= -1.0
