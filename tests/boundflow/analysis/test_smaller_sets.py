"""Sets that are asked about less: verified samples, shorter moves, smaller budgets. Never less than exact arithmetic.

Every question is about fixed symbols, so what a set holds afterwards is compared with the exact value of the form.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from exact import ADVERSE, DTYPES, NORMAL, Exact, adverse, at_least, exact, number, product, total
from exact_support import exact_support
from symbol_rooms import Room, spaces
from torch import Tensor, nn

import boundflow as bf
from boundflow.analysis.largest_budgets import largest_budgets
from boundflow.analysis.smaller_threats import with_share
from boundflow.analysis.verified_rows import Fixed, _moved, with_fixed
from boundflow.sets.forms import Form
from boundflow.sets.set import Set
from boundflow.symbols.rows import Rows
from boundflow.threats import AtMost, Labels, Linf

SIZE = 12


def wide(form: Form) -> Tensor:
    far = 8 * form.modulus + torch.finfo(form.center.dtype).tiny * 64
    return torch.stack((-far, far))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("count", [1, 3, 60])
@pytest.mark.parametrize("size", [0.0, 1.0, 2.0**12])
@pytest.mark.parametrize("known", [0.3, 2.0**-12, 2.0**-26])
def test_symbols_with_a_value(kind: str, dtype: torch.dtype, count: int, size: float, known: float) -> None:
    """The exact value, with every symbol at either end of its bounds, lies around the new center."""
    center, rows = adverse(kind, (SIZE,), dtype), adverse(kind, (count, SIZE), dtype, 1)
    radius, error = (adverse(kind, (SIZE,), dtype, seed).abs() * size for seed in (2, 3))
    middle = adverse("near one", (count,), torch.float64, 4) * known
    values = torch.stack((middle, middle * (1 + 2.0**-52))).sort(0).values
    moved, found = _moved(Form(center, rows, radius, Rows(np.arange(count))), rows, values, 0 * error)
    for end in values:
        value = exact(center) + total(exact(rows) * exact(end)[:, None])
        assert at_least(found, np.abs(value - exact(moved)) + exact(radius))
    moved, both = _moved(Form(center, rows, radius, Rows(np.arange(count))), rows, values, error)
    assert at_least(both, np.abs(value - exact(moved)) + exact(radius) + exact(error))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("size", [2.0**-30, 2.0**-24, 2.0**-3, 1.0])
def test_a_set_of_which_every_symbol_is_known(kind: str, dtype: torch.dtype, size: float) -> None:
    """Symbols at 0 leave the center and its radius, whose interval is rounded outwards."""
    space = bf.Symbols(Linf(0.5))
    center, radius = adverse(kind, (SIZE, 1), dtype), adverse("mixed sizes", (SIZE, 1), dtype, 1).abs() * size
    rows = space.fresh(1)
    form = Form(center, torch.ones(1, SIZE, 1, dtype=dtype), radius, rows)
    model = nn.Linear(1, SIZE, bias=False).to(dtype)
    bf.lift(model, space)
    model.weight.set = Set(wide(form), form, space)  # type: ignore[attr-defined]
    made = with_fixed(model, space, Fixed(rows.numbers, torch.zeros(2, 1, dtype=torch.float64), [])).weight
    low, high = exact(made.set.bounds)  # type: ignore[attr-defined]
    assert np.all(low <= exact(center) - exact(radius)) and np.all(high >= exact(center) + exact(radius))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("size", [2.0**-12, 2.0**-4, 1.0])
@pytest.mark.parametrize("wide_before", [0.0, 1.0])
def test_rows_of_a_smaller_threat(kind: str, dtype: torch.dtype, size: float, wide_before: float) -> None:
    """Off by no more than the radius has grown, also where that is less than a unit of it."""
    space = bf.Symbols(Linf(0.5))
    own = space.of_samples(np.arange(5), np.zeros((5, 1)), np.zeros(1, dtype=np.int64)).batch
    assert own is not None
    rows = Rows(own.distinct.numbers)
    generators = adverse(kind, (5, SIZE, 1), dtype) * size
    radius = adverse("near one", (SIZE, 1), dtype, 1).abs() * wide_before
    form = Form(torch.zeros(SIZE, 1, dtype=dtype), generators, radius, rows)
    model = nn.Linear(1, SIZE, bias=False).to(dtype)
    bf.lift(model, space)
    model.weight.set = Set(wide(form), form, space)  # type: ignore[attr-defined]
    for level in (1, 7, 33, 99):
        made = with_share(model, [0], level / 100).weight.form  # type: ignore[attr-defined]
        off = total(np.abs(exact(made.generators) - exact(generators) * number(level) / 100))
        assert at_least(made.radius, exact(radius) + off)


def worst(values: Exact, budget: int) -> Exact:
    """The sum of the largest terms downwards of one-sided symbols, one a sample."""
    return total(np.sort(np.maximum(-values, 0), 0)[::-1][:budget])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("size", [0.0, 2.0**-24, 1.0, 2.0**12])
@pytest.mark.parametrize("free", [0, 3])
def test_the_largest_budget(kind: str, dtype: torch.dtype, size: float, free: int) -> None:
    """A center no larger than what a budget reaches is never certain at that budget."""
    samples, space = 60, bf.Symbols(AtMost(60, Labels()))
    own = space.of_samples(np.arange(samples), np.zeros((samples, 1)), np.zeros(1, dtype=np.int64)).batch
    assert own is not None
    rows = Rows(np.concatenate((own.distinct.numbers, space.fresh(free).numbers)))
    values = -adverse(kind, (samples, SIZE), dtype).abs()
    generators = torch.cat((values, adverse(kind, (free, SIZE), dtype, 1) * size))
    radius = adverse(kind, (SIZE,), dtype, 2).abs() * size
    beside = total(np.abs(exact(generators[samples:]))) + exact(radius)
    for budget in (0, 1, 2, 7, samples):
        wanted = worst(exact(values), budget) + beside
        center = torch.tensor([float(Fraction(int(value.p), int(value.q))) for value in wanted], dtype=dtype)
        center = torch.where(torch.tensor(exact(center) > wanted), torch.nextafter(center, 0 * center), center)
        assert np.all(exact(center) <= wanted)
        form = Form(center, generators, radius, rows)
        found = largest_budgets(bf.Bounded(Set(wide(form), form, space)), 0, samples)
        assert bool((found < budget).all())


def below(value: Any, dtype: torch.dtype) -> float:
    """The next number of this dtype that is not above an exact one."""
    near = torch.tensor(float(Fraction(int(value.p), int(value.q))), dtype=dtype)
    return float(torch.nextafter(near, near - 1) if number(float(near)) > value else near)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["one sign", "cancelling", "mixed sizes"])
@pytest.mark.parametrize("name", [name for name, threat in spaces().items() if threat.budget is not None])
def test_the_largest_budget_through_derived_symbols(name: str, kind: str, dtype: torch.dtype) -> None:
    """Coefficients over deep symbols are sums of products, which cancel: what these are off by is among the reach."""
    derived = 60
    room = Room(spaces()[name], kind, dtype, derived)
    space, clause = room.space, next(n for n, budget in enumerate(room.space.budgets) if budget is not None)
    rows = Rows(np.concatenate((room.derived.numbers, room.deep.numbers)))
    of_derived = adverse(kind, (derived, 4), dtype, 2).abs() * (1 - 2 * (torch.arange(derived) % 2))[:, None]
    generators = torch.cat((of_derived, adverse(kind, (len(room.deep), 4), dtype, 3) * 2.0**-40))
    radius, most = adverse(kind, (4,), dtype, 4).abs() * 2.0**-40, space.budgets[clause]
    assert room.weights is not None and most is not None
    coefficients = product(exact(generators[:derived]).T, room.weights) + exact(generators[derived:]).T
    for budget in range(most + 1):
        space.budgets[clause] = budget
        reach = [exact_support(space, room.deep.numbers, values)[0] for values in coefficients]
        space.budgets[clause] = most
        center = [below(one + lost, dtype) for one, lost in zip(reach, exact(radius), strict=True)]
        form = Form(torch.tensor(center, dtype=dtype), generators, radius, rows)
        found = largest_budgets(bf.Bounded(Set(wide(form), form, space)), clause, most)
        assert bool((found < budget).all()), budget
