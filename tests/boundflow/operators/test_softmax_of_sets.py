"""Softmax and its logarithm: values of high precision are inside, where nothing but roundings is in doubt."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
import torch
from exact import DTYPES, Exact, number
from exact_sets import affine, cancelling_rows, holds, narrow, symbols
from torch import Tensor

from boundflow.operators.softmax import log_softmax_last, softmax_last
from boundflow.sets.forms import Form
from boundflow.sets.set import Set

DIGITS = 60


def probabilities(logits: Tensor, logarithm: bool) -> Exact:
    """With 60 digits, row by row."""

    def line(values: list[float]) -> list[Any]:
        powers = [Decimal(value).exp() for value in values]
        shares = [power / sum(powers) for power in powers]
        return [number(str(share.ln() if logarithm else share)) for share in shares]

    with localcontext() as context:
        context.prec = DIGITS
        return np.array([line(row) for row in logits.double().tolist()], dtype=object)


@pytest.mark.parametrize("file", ["operators/softmax.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("far", [0.0, 2.0**10, 2.0**20])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_rows_that_reach_far(file: str, classes: int, far: float, dtype: torch.dtype) -> None:
    """Slopes times rows that cancel, which are far larger than the interval is wide."""
    logits = torch.tensor(np.random.default_rng(classes).uniform(-2, 2, size=(20, classes)), dtype=dtype)
    x = affine(symbols(), logits, cancelling_rows((20, classes), dtype, far))
    for operand in (x, narrow(logits)):
        assert holds(softmax_last(operand), probabilities(logits, False))
        assert holds(log_softmax_last(operand), probabilities(logits, True))


@pytest.mark.parametrize("file", ["operators/softmax.py"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_that_underflow(file: str, classes: int, dtype: torch.dtype) -> None:
    """A fast exponential says 0 where its result is no normal number: so may a plain run."""
    gap = 87.7 if dtype is torch.float32 else 709.0
    logits = torch.zeros(1, classes, dtype=dtype)
    logits[0, 0] = -gap
    wanted = probabilities(logits, False)
    flushed = wanted.copy()
    flushed[0, 0] = number(0)
    for operand in (narrow(logits), affine(symbols(), logits, cancelling_rows((1, classes), dtype, 0.0))):
        assert holds(softmax_last(operand), wanted) and holds(softmax_last(operand), flushed)


@pytest.mark.parametrize("spread", [1e-3, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("classes", [3, 10])
def test_logits_far_from_their_center(classes: int, spread: float) -> None:
    """Every vertex of a box of logits, and random points: their probabilities are inside form and interval."""
    generator = torch.Generator().manual_seed(classes)
    center = 3 * torch.randn(classes, generator=generator, dtype=torch.float64)
    corners = torch.cat(
        (torch.eye(classes), -torch.eye(classes), torch.randn(200, classes, generator=generator).sign())
    )
    corners = torch.cat((corners, 2 * torch.rand(200, classes, generator=generator) - 1)).double()
    space = symbols()
    rows = space.fresh(classes)
    for far in (spread, spread * torch.rand(classes, generator=generator, dtype=torch.float64)):
        generators = (far * torch.eye(classes, dtype=torch.float64)).unsqueeze(1)
        form = Form(center.unsqueeze(0), generators, torch.zeros(1, classes, dtype=torch.float64), rows)
        reach = far * torch.ones(1, classes, dtype=torch.float64)
        x = Set(torch.stack((form.center - reach, form.center + reach)), form, space)
        p = softmax_last(x)
        found = torch.softmax(center + corners * far, -1)
        linear = p.form.center + torch.einsum("sk,knc->snc", corners, p.form.generators).squeeze(1)
        assert bool(((found - linear).abs() <= p.form.radius).all())
        assert bool((found >= p.bounds[0]).all()) and bool((found <= p.bounds[1]).all())


@pytest.mark.parametrize("classes", [3, 10])
def test_errors_of_small_moves_are_not_much_longer_than_they_must_be(classes: int) -> None:
    """The radius is at most three times what points of the box really are off the tangent by."""
    generator = torch.Generator().manual_seed(classes)
    center, far, space = torch.randn(classes, generator=generator, dtype=torch.float64), 1e-3, symbols()
    generators = (far * torch.eye(classes, dtype=torch.float64)).unsqueeze(1)
    form = Form(center.unsqueeze(0), generators, torch.zeros(1, classes, dtype=torch.float64), space.fresh(classes))
    p = softmax_last(Set(torch.stack((form.center - far, form.center + far)), form, space))
    corners = torch.randn(4000, classes, generator=generator).sign().double()
    linear = torch.einsum("sk,knc->snc", corners, p.form.generators).squeeze(1)
    off = torch.softmax(center + corners * far, -1) - torch.softmax(center, -1) - linear
    assert bool((2 * p.form.radius <= 3 * (off.amax(0) - off.amin(0))).all())
