"""Bounds read off a form, and a center and a distance read off bounds: never less than in exact rational arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from exact import ADVERSE, DTYPES, adverse, at_least, exact, total

import boundflow as bf
from boundflow.sets.clean_state import Remainder
from boundflow.sets.forms import Form
from boundflow.sets.sample_axis import SampleAxis, Samples
from boundflow.sets.set import Set, concretised
from boundflow.symbols.rows import Rows
from boundflow.threats import Linf

SIZE = 24


def interval(kind: str, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.stack([adverse(kind, (SIZE,), dtype, seed + part) for part in (0, 1)]).sort(0).values


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("center", ADVERSE)
@pytest.mark.parametrize("scale", [0.0, 2.0**-20, 2.0**-2, 1.0])
def test_bounds_of_a_form(kind: str, center: str, dtype: torch.dtype, scale: float) -> None:
    space = bf.Symbols(Linf(0.5))
    generators, middle = adverse(kind, (3, SIZE), dtype) * scale, adverse(center, (SIZE,), dtype, 1)
    radius = adverse(kind, (SIZE,), dtype, 2).abs()
    form = Form(middle, generators, radius, space.fresh(3))
    wide = torch.full((SIZE,), 1e6, dtype=dtype)
    found = concretised("test", torch.stack((-wide, wide)), form, space).bounds
    reach = total(np.abs(exact(generators))) + exact(radius)
    assert np.all(exact(found[0]) <= exact(middle) - reach) and np.all(exact(found[1]) >= exact(middle) + reach)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("count", [1, 5])
def test_bounds_where_a_sample_was_left_alone(kind: str, dtype: torch.dtype, count: int) -> None:
    """The clean radius is another one; rows that are written out reach as far in both states."""
    space = bf.Symbols(bf.threats.AtMost(1, Linf(0.5)))
    generators, middle = adverse(kind, (count, SIZE), dtype), adverse(kind, (SIZE,), dtype, 1)
    radius, inner = (adverse(kind, (SIZE,), dtype, seed).abs() for seed in (2, 3))
    form = Form(middle, generators, radius, space.fresh(count))
    wide = torch.full((2, SIZE), 1e6, dtype=dtype) * torch.tensor([[-1.0], [1.0]], dtype=dtype)
    along = SampleAxis(-1, Samples(np.arange(SIZE), 1))
    found = concretised("test", wide, form, space, clean=Remainder(wide, inner), along=along)
    assert found.clean is not None
    for bounds, reach in ((found.bounds, radius), (found.clean.bounds, inner)):
        far = total(np.abs(exact(generators))) + exact(reach)
        assert np.all(exact(bounds[0]) <= exact(middle) - far) and np.all(exact(bounds[1]) >= exact(middle) + far)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("seed", range(6))
def test_a_ball_around_an_interval(kind: str, dtype: torch.dtype, seed: int) -> None:
    bounds = interval(kind, dtype, 2 * seed)
    form = Set(bounds).form
    for side in (0, 1):
        assert at_least(form.radius, np.abs(exact(bounds[side]) - exact(form.center)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("center", ADVERSE)
def test_the_distance_from_a_center(kind: str, center: str, dtype: torch.dtype) -> None:
    """Of the form with rows, wherever its center is; where a sample was left alone; and as users ask for it."""
    space = bf.Symbols(Linf(0.5))
    bounds, middle = interval(kind, dtype), adverse(center, (SIZE,), dtype, 1)
    rows, far = space.fresh(1), torch.full((SIZE,), 8.0, dtype=dtype)
    clean, along = Remainder(interval(kind, dtype, 5), None), SampleAxis(-1, Samples(np.arange(SIZE), 1))
    x = Set(bounds, Form(middle, far.unsqueeze(0), far, rows), space)
    form = Form(middle, far.new_empty(0, SIZE), far, Rows(rows.numbers[:0]))
    left_alone = Set(bounds, form, space, clean=clean, along=along).untouched.form.radius
    for side in (0, 1):
        distance = np.abs(exact(bounds[side]) - exact(middle))
        assert at_least(x.deviation, distance) and at_least(bf.Bounded(x).spread, distance)
        assert at_least(left_alone, np.abs(exact(clean.bounds[side]) - exact(middle)))
