"""The law of inclusion for sets as narrow as a few units in the last place: there every rounding term is needed.

Each operator runs on members in float32, and in float64 as what is exact.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_examples import LAWFUL, bounded_result, copied, example, outputs, wide
from sampling import SYMBOLS, off_the_form, outside
from tight_sampling import SubnormalCase, TightCase, TinyCase

import boundflow as bf
from boundflow.sets.forms import Form
from boundflow.sets.set import Set
from boundflow.tensor.bounded import Rule


@pytest.mark.parametrize("rule", LAWFUL, ids=lambda rule: str(rule.operator).removeprefix("aten."))
@pytest.mark.parametrize("domain", ["interval", "zonotope"])
@settings(max_examples=5)
@given(seed=st.integers(0, 2**32 - 1))
def test_inclusion_of_narrow_sets(rule: Rule, domain: str, seed: int) -> None:
    judge(rule, TightCase(seed, torch.float32, 0 if domain == "interval" else SYMBOLS))


FAMILIES = ("bilinear", "convolution", "products", "linear", "gates")
PRODUCTS = [rule for rule in LAWFUL if rule.apply.__module__.rpartition(".")[2] in FAMILIES]


@pytest.mark.parametrize("rule", PRODUCTS, ids=lambda rule: str(rule.operator).removeprefix("aten."))
@pytest.mark.parametrize("domain", ["interval", "zonotope"])
@settings(max_examples=3)
@given(seed=st.integers(0, 2**32 - 1))
def test_inclusion_where_products_underflow(rule: Rule, domain: str, seed: int) -> None:
    try:
        judge(rule, TinyCase(seed, torch.float32, 0 if domain == "interval" else SYMBOLS))
    except (bf.VoidBounds, bf.UnsafePrecision):  # a quotient by next to nothing
        return


SHARES = [rule for rule in LAWFUL if rule.apply.__module__.rpartition(".")[2] in ("linear", "pooling", "products")]


@pytest.mark.parametrize("rule", SHARES, ids=lambda rule: str(rule.operator).removeprefix("aten."))
@pytest.mark.parametrize("domain", ["interval", "zonotope"])
@settings(max_examples=4)
@given(seed=st.integers(0, 2**32 - 1))
def test_inclusion_of_subnormal_sets(rule: Rule, domain: str, seed: int) -> None:
    try:
        judge(rule, SubnormalCase(seed, torch.float32, 0 if domain == "interval" else SYMBOLS))
    except (bf.VoidBounds, bf.UnsafePrecision):  # a quotient by next to nothing
        return


def judge(rule: Rule, case: TightCase) -> None:
    """The law of inclusion for one case."""
    arguments = example(rule, case, torch.float32)
    results = bounded_result(rule, arguments)
    for draw in range(case.draws):
        members = tuple(copied(case.member(argument, draw)) for argument in arguments)
        for run in (
            rule.operator(*(copied(member) for member in members)),
            rule.operator(*(wide(member) for member in members)),
        ):
            for result, value in zip(results, outputs(run), strict=True):
                if isinstance(result, bf.Bounded):
                    assert not (why := outside(result, value)), why
                    assert not (why := off_the_form(result, value, case.xi[draw], case.all_rows)), why


@pytest.mark.parametrize("file", ["operators/gates.py"])
@pytest.mark.parametrize("kind", ["where", "gate", "tiny where", "tiny gate"])
@settings(max_examples=12)
@given(seed=st.integers(0, 2**32 - 1))
def test_choices_that_are_undecided(file: str, kind: str, seed: int) -> None:
    """Every element is one of two, or itself or nothing, and which is not known."""
    case = (TinyCase if "tiny" in kind else TightCase)(seed, torch.float32, SYMBOLS)
    a, b, doubt = case(3, 4), case(3, 4), bf.interval(-torch.ones(3, 4), torch.ones(3, 4))
    with torch.no_grad():
        gate = torch.ops.aten.threshold_backward(a, doubt, 0.0)
        result = gate if "gate" in kind else torch.where(doubt > 0, a, b)
    for draw in range(case.draws):
        chosen = torch.from_numpy(case.random.integers(0, 2, size=(3, 4)) > 0)
        first, second = case.member(a, draw), case.member(b, draw)
        value = torch.where(chosen, first, torch.zeros_like(first) if "gate" in kind else second)
        assert not (why := outside(result, value)), why
        assert not (why := off_the_form(result, value, case.xi[draw], case.all_rows)), why


@pytest.mark.parametrize("file", ["rules/contractions.py"])
@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_a_bias_to_which_products_are_added_one_by_one(file: str, domain: str) -> None:
    """Sums may be made in any order: each of many small products may be swallowed by a bias that comes first."""
    count, half = 300, 2.0**-24
    case = TightCase(0, torch.float32, 0 if domain == "interval" else SYMBOLS)
    x = bf.ball(torch.ones(1, count), 0.0)
    if domain == "zonotope":
        rows = torch.zeros(SYMBOLS, 1, count)
        form = Form(torch.ones(1, count), rows, torch.zeros(1, count), case.all_rows)
        x = bf.Bounded(Set(torch.ones(2, 1, count), form, case.symbols))
    with torch.no_grad():
        result = torch.addmm(torch.ones(1), x, torch.full((count, 1), 0.98 * half))
    for value in (torch.ones(1, 1), torch.ones(1, 1, dtype=torch.float64) + count * 0.98 * half):
        assert not (why := outside(result, value)), why
        assert not (why := off_the_form(result, value, case.xi[0], case.all_rows)), why
