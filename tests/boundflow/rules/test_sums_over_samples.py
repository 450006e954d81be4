"""Sums over samples of which at most k were touched: every exact sum is inside, whichever k samples they are.

All others are where they were left alone. Sets are points, or a few units wide where they are clean, so that roundings
decide; touched samples move a little further. The form is judged for symbols at 1 and at -1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from exact import DTYPES, NORMAL, Exact, adverse, exact, product, total
from torch import Tensor

import boundflow as bf
from boundflow.sets.clean_state import Remainder
from boundflow.sets.forms import Form
from boundflow.sets.sample_axis import SampleAxis, Samples
from boundflow.sets.set import Set
from boundflow.threats import AtMost, Linf

SIZE, BUDGET = 3, 2


class Touchable:
    """A tensor (samples, size) of which some samples may be touched, and its members."""

    def __init__(
        self, kind: str, dtype: torch.dtype, count: int, affine: bool, wide: float, seed: int = 0, size: int = SIZE
    ):
        self.space = bf.Symbols(AtMost(BUDGET, Linf(1.0)))
        shape = (count, size)
        center = adverse(kind, shape, dtype, seed)
        move = (center.abs() * wide).clamp_min(torch.finfo(dtype).tiny)
        self.clean, self.touched = torch.stack((center, center)), torch.stack((center - move, center + move))
        radius = 2 * move
        rows = self.space.fresh(2) if affine else None
        # rows that cancel in the center: with symbols at +-1 the form leaves it by nothing
        generators = torch.stack((center, -center)) * 2.0**-4
        form = Form(center, generators, radius, rows) if rows is not None else None
        along = SampleAxis(-2, Samples(np.arange(count), BUDGET))
        clean = Remainder(self.clean, torch.zeros_like(radius) if affine else None)
        self.set = Set(self.touched, form, self.space, clean=clean, along=along)

    def member(self, random: np.random.Generator) -> Tensor:
        """At most k samples at an end, all others as they were."""
        made = self.clean[0].clone()
        for sample in random.permutation(len(made))[:BUDGET]:
            made[sample] = self.touched[int(random.integers(2)), sample]
        return made


def inside(found: bf.Bounded, value: Exact) -> None:
    """In the bounds, and within the radius of the form, whose rows cancel where both symbols are 1."""
    low, high = map(exact, (found.lower, found.upper))
    assert np.all(low <= value) and np.all(value <= high)
    if found.affine:
        form = found.form.dense
        along = exact(form.center) + total(exact(form.generators))
        assert np.all(np.abs(value - along) <= exact(form.radius))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("count", [4, 300])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("wide", [2.0**-21, 2.0**-6])
def test_sums(kind: str, dtype: torch.dtype, count: int, affine: bool, wide: float) -> None:
    made, random = Touchable(kind, dtype, count, affine, wide), np.random.default_rng(1)
    with torch.no_grad():
        found: Any = bf.Bounded(made.set).sum(0)
    for _ in range(3):
        member = made.member(random)
        inside(found, total(exact(member)))
        one_by_one = member[0].clone()
        for row in member[1:]:
            one_by_one += row
        inside(found, exact(one_by_one))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("wide", [2.0**-21, 2.0**-6])
def test_sums_over_samples_and_features(kind: str, dtype: torch.dtype, affine: bool, wide: float) -> None:
    """What touching a sample adds is a long sum itself."""
    made, random = Touchable(kind, dtype, 4, affine, wide, size=300), np.random.default_rng(1)
    with torch.no_grad():
        found: Any = bf.Bounded(made.set).sum((0, 1))
    for _ in range(3):
        member = made.member(random)
        inside(found, total(total(exact(member))))
        inside(found, exact(member.flatten().cumsum(0)[-1]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("count", [4, 200])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("wide", [2.0**-21, 2.0**-6])
def test_products(kind: str, dtype: torch.dtype, count: int, affine: bool, wide: float) -> None:
    """``weights^T x``, as the gradient of a layer is: the plain factor has a column for every sample."""
    made, random = Touchable(kind, dtype, count, affine, wide), np.random.default_rng(1)
    weights = adverse("near one", (2, count), dtype, 3)
    with torch.no_grad():
        found: Any = torch.mm(weights, bf.Bounded(made.set))
    for _ in range(3):
        member = made.member(random)
        inside(found, product(exact(weights), exact(member)))
        inside(found, exact(weights @ member))
