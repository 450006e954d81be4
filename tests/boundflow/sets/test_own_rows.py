"""Affine forms: own rows written out, reach and modulus, never less than in exact rational arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from exact import ADVERSE, DTYPES, adverse, at_least, exact, total

import boundflow as bf
from boundflow.rules.structural import selected
from boundflow.sets import forms
from boundflow.sets.forms import Form, ball_form
from boundflow.sets.sample_axis import SampleAxis, Samples
from boundflow.sets.set import Set
from boundflow.symbols.rows import Rows
from boundflow.threats import Linf

SAMPLES, FEATURES = 5, 2
TAKEN = {  # functions of a tensor (2, 12), and whether all elements are there, in the same memory
    "transposed": (lambda x, lead: x.transpose(lead, lead + 1), True),
    "as it is": (lambda x, lead: x, True),
    "another shape": (lambda x, lead: x.reshape(*x.shape[:lead], 3, 8), True),
    "some": (lambda x, lead: x.narrow(lead + 1, 5, 4), False),
    "copied": (lambda x, lead: x.clone(), False),
    "several times": (lambda x, lead: x.unsqueeze(lead).expand(*x.shape[:lead], 3, 2, 12), False),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("size", [2.0**-20, 2.0**12])
def test_own_rows_written_out(kind: str, dtype: torch.dtype, twice: bool, size: float) -> None:
    """The same symbol may stand among the rows already, and a sample may occur twice."""
    space = bf.Symbols(Linf(0.5))
    samples = np.array([0, 1, 2, 3, 1 if twice else 4])
    raw = samples[:, None].repeat(FEATURES, 1).astype(np.float64)
    own = space.of_samples(samples, raw, np.zeros(FEATURES, dtype=np.int64))
    batch = own.batch
    assert batch is not None
    rows = own.union(Rows(batch.distinct.numbers[:4]))
    shape = (SAMPLES, 3)
    generators, radius = adverse(kind, (len(rows), *shape), dtype), adverse(kind, shape, dtype, 1).abs() * size
    dense = Form(torch.zeros(shape, dtype=dtype), generators, radius, rows, SampleAxis(-2, Samples.of(batch))).dense
    rest, where, features = rows.split()
    wanted = exact(torch.zeros(dense.generators.shape))
    place = {number: at for at, number in enumerate(dense.rows.numbers.tolist())}
    for at, number in zip(np.arange(len(rows))[where].tolist(), rest.numbers.tolist(), strict=True):
        wanted[place[number]] += exact(generators[at])
    for feature, at in enumerate(features.tolist()):
        for sample in range(SAMPLES):
            wanted[place[int(batch.numbers[sample, feature])], sample] += exact(generators[at, sample])
    off = total(np.abs(exact(dense.generators) - wanted))
    assert at_least(dense.radius, exact(radius) + off)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("count", [0, 1, 2, 9, 300])
@pytest.mark.parametrize("scale", [0.0, 2.0**-20, 1.0])
def test_reach_and_modulus(kind: str, dtype: torch.dtype, count: int, scale: float) -> None:
    center, radius = adverse(kind, (24,), dtype), adverse(kind, (24,), dtype, 1).abs() * scale
    form = ball_form(center, radius)
    if count:
        generators = adverse(kind, (count, 24), dtype, 2)
        form = Form(center, generators, radius, Rows(np.arange(count)))
    reach = total(np.abs(exact(form.generators))) + exact(radius)
    assert at_least(form.reach, reach)
    assert at_least(form.modulus, reach + np.abs(exact(center)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("known", [False, True], ids=["asked", "known"])
def test_elements_reach_as_far_as_where_they_were_taken_from(
    kind: str, dtype: torch.dtype, name: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice taken, and where a sample was left alone, which has a smaller radius."""
    center, generators = adverse(kind, (2, 12), dtype), adverse(kind, (9, 2, 12), dtype, 2)
    radius, passes = adverse(kind, (2, 12), dtype, 1).abs(), []
    monkeypatch.setattr(forms, "sum_of_moduli", lambda x, dim: passes.append(x) or x.abs().sum(dim))
    whole = Form(center, generators, radius, Rows(np.arange(9)))
    if known:
        assert whole.reach.shape == (2, 12)
    f, shared = TAKEN[name]
    form = selected(selected(Set(center.expand(2, 2, 12), whole), lambda x, lead: x), f).form
    assert at_least(form.reach, total(np.abs(exact(form.generators))) + exact(form.radius))
    assert whole.reach.shape == (2, 12) and len(passes) == (1 if shared or (known and name != "copied") else 2)


@pytest.mark.parametrize("numbers", [[0, 1, 2], [3, 1], [4], [0, 1, 2, 3, 4]], ids=str)
def test_rows_that_are_added_where_they_stand(numbers: list[int]) -> None:
    rows, part = Rows(np.arange(5)), Rows(np.array(numbers))
    more, generators = torch.randn(len(part), 2, 3), torch.randn(5, 2, 3)
    assert torch.equal(rows.add(generators.clone(), more, part), generators + rows.place(more, part))
    assert torch.equal(part.add(more.clone(), more, part), 2 * more)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
def test_rows_times_a_factor_reach_no_further_than_is_known(kind: str, dtype: torch.dtype) -> None:
    """As a slope or a gate multiplies them: without another look at the rows."""
    generators, factor = adverse(kind, (9, 3, 4), dtype), adverse(kind, (3, 4), dtype, 1)
    if kind == "subnormal":  # products that are rounded up, each to the smallest number
        generators, factor = (
            torch.full_like(generators, torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps),
            0.6 + 0 * factor,
        )
    form = Form(torch.zeros(3, 4, dtype=dtype), generators, torch.zeros(3, 4, dtype=dtype), Rows(np.arange(9)))
    assert form.moduli_times(factor, factor.shape) is None  # nobody has looked at them
    assert form.reach is not None
    moduli = form.moduli_times(factor, factor.shape)
    assert moduli is not None and form.moduli_times(factor, torch.Size([2, 3, 4])) is None
    multiples = Form(form.center, factor * generators, form.radius, form.rows, moduli=moduli)
    assert at_least(multiples.reach, total(np.abs(exact(factor * generators))))
    assert at_least(multiples.with_radius(form.radius + 1).reach, total(np.abs(exact(factor * generators))) + 1)
