"""Supports are rounded up: what is computed in float32 is never less than the same in exact arithmetic."""

from __future__ import annotations

import gc
import weakref
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

import boundflow as bf
from boundflow.sets.factors import Factors, Softened
from boundflow.sets.forms import Form
from boundflow.symbols.budgets import Kind, term
from boundflow.symbols.expansion import Expansion
from boundflow.symbols.rows import Rows
from boundflow.threats import Linf

DEEP, DERIVED, COUNT = 9, 6, 40


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rows(first: int, count: int) -> Rows:
    return Rows(np.arange(first, first + count))


def expansion() -> Expansion:
    weights = random(DERIVED, DEEP, seed=1)
    return Expansion(rows(100, DERIVED), rows(0, DEEP), weights / weights.abs().sum(1, keepdim=True))


def test_the_norm_of_a_ball() -> None:
    for width in (2, 3, 30):
        coefficients = random(COUNT, width, seed=width)
        reach, _ = term(Kind.BALL, coefficients)
        for line, found in zip(coefficients.tolist(), reach.tolist(), strict=True):
            exact = sum(Fraction(number) ** 2 for number in line)
            assert exact <= Fraction(found) ** 2 <= exact * Fraction(1.001)


def test_what_is_looked_through_says_what_it_is_off_by() -> None:
    elements, made = random(COUNT, DERIVED), expansion()
    found, error = made.expanded(elements, rows(100, DERIVED))
    off = (found.double() - elements.double() @ made.weights.double()).abs().sum(1)
    assert bool((off <= error.double()).all()) and bool((off > 0).any())


@pytest.mark.parametrize("bias", [False, True])
def test_a_product_by_its_factors_says_what_it_is_off_by(bias: bool) -> None:
    made, (count, inner, width) = expansion(), (5, 7, 8)

    def form(*shape: int, seed: int) -> Form:
        return Form(random(*shape, seed=seed), random(DERIVED, *shape, seed=seed + 1), torch.zeros(shape), rows(100, 6))

    a, b, c = form(count, inner, seed=2), form(inner, width, seed=4), form(width, seed=6)
    factors = Factors(a, b, c if bias else None)
    factors.start(made)
    found, error = factors.part(0, count)

    def deep(x: Form) -> Tensor:
        return torch.einsum("m...,mk->...k", x.generators.double(), made.weights.double())

    exact = torch.einsum("imk,mj->ijk", deep(a), b.center.double())
    exact = exact + torch.einsum("im,mjk->ijk", a.center.double(), deep(b)) + (deep(c) if bias else 0.0)
    off = (found.double() - exact.flatten(0, 1)).abs().sum(1)
    assert bool((off <= error.double()).all()) and bool((off > 0).any())


def test_a_support_is_that_of_the_expansion_that_holds_now() -> None:
    """The same rows before and after another reduction: what was sorted for the first says nothing of the second."""
    space = bf.Symbols(Linf(0.1))
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    derived, (few, many), other = space.fresh(1), (space.fresh(1), space.fresh(3)), space.fresh(1)
    kept = Form(torch.zeros(1), torch.ones(1, 1), torch.zeros(1), derived)
    beside = Form(torch.zeros(1), torch.full((2, 1), 2.0), torch.zeros(1), derived.union(other))
    for deep, reach in ((few, 0.5), (many, 1.0), (few, 0.25)):
        space.expands(optimizer, Expansion(derived, deep, torch.full((1, len(deep)), reach / len(deep))))
        assert torch.allclose(space.support(kept), torch.full((2, 1), reach))
        assert torch.allclose(space.support(beside), torch.full((2, 1), 2 * reach + 2))


def test_what_is_known_of_an_expansion_is_forgotten_with_it() -> None:
    """Deep rows are held by the expansion they are of: a support that held it would hold one more for every step."""
    space = bf.Symbols(Linf(0.1))
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    seen = []
    for _ in range(4):
        derived, deep = space.fresh(1), space.fresh(2)
        expansion = Expansion(derived, deep, torch.full((1, 2), 0.5))
        space.expands(optimizer, expansion)
        space.support(Form(torch.zeros(1), torch.ones(1, 1), torch.zeros(1), derived))
        seen.append(weakref.ref(expansion))
    del expansion
    gc.collect()
    assert [one() is None for one in seen] == [True, True, True, False]


def test_a_softmax_of_a_product_by_its_factors_says_what_it_is_off_by() -> None:
    """In float32: coefficients of ``p_c (g_c - sum_j p_j g_j)`` over the deep rows, against float64."""
    made, classes, inner = expansion(), 3, 2
    a, b = random(COUNT, inner), random(DERIVED, inner, classes, seed=2)
    center, p = random(inner, classes, seed=3), torch.softmax(random(COUNT, classes, seed=4), 1)
    zero = torch.zeros(inner, classes)
    no_rows = Form(a, a.new_zeros(0, *a.shape), torch.zeros_like(a), Rows(np.empty(0, dtype=np.int64)))
    factors = Softened(Factors(no_rows, Form(center, b, zero, rows(100, DERIVED)), None), p)
    factors.start(made)
    found, error = factors.part(0, COUNT)
    exact = torch.einsum("im,rmj,rk->ijk", a.double(), b.double(), made.weights.double())
    exact = p.double().unsqueeze(2) * (exact - torch.einsum("ij,ijk->ik", p.double(), exact).unsqueeze(1))
    off = (found.double() - exact.flatten(0, 1)).abs().sum(1)
    assert bool((off <= error.double()).all()) and bool((off > 0).any()) and bool((error < 1e-4).all())


def test_a_softmax_of_a_product_has_the_support_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds of a training by factors of the softmax, and by its rows written out: the same up to rounding."""
    x = random(40, 6).double()
    model, asked = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3)).double(), []
    recipe = bf.Recipe(loss="ce", optimizer_options={"lr": 0.3}, epochs=3, order=3)
    bounds = []
    for pays in (True, False):
        monkeypatch.setattr(Softened, "pay", lambda self, expansion, pays=pays: asked.append(pays) or pays)
        threat = bf.threats.AtMost(3, bf.threats.Labels())
        for network in (model, torch.nn.Linear(6, 3).double().requires_grad_()):
            torch.manual_seed(0)
            for parameter in network.parameters():
                torch.nn.init.uniform_(parameter, -0.4, 0.4)
            made = bf.certify(network, (x, torch.arange(40) % 3), recipe, threat=threat, progress=False)
            assert made.model is not None
            bounds.append(torch.cat([part.set.bounds.flatten() for part in made.model.parameters()]))
    assert asked
    for one, other in zip(bounds[:2], bounds[2:], strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-12)
