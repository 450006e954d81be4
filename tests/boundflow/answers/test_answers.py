"""Answers: widths, boxes in parts, leads and losses on points, never tighter than in exact rational arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from exact import ADVERSE, DTYPES, adverse, at_least, exact

import boundflow as bf
from boundflow.answers.cuts import Boxes, _halved
from boundflow.answers.prediction import Prediction, leads
from boundflow.sets.set import Set


def boxes(kind: str, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.stack([adverse(kind, (40, 3), dtype, seed + part) for part in (0, 1)]).sort(0).values


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
def test_widths(kind: str, dtype: torch.dtype) -> None:
    lower, upper = boxes(kind, dtype)
    label = torch.zeros(40, dtype=torch.int64)
    found = Prediction(label, label > 0, lower, upper).width
    assert at_least(found, (exact(upper) - exact(lower)).max(1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
def test_boxes_in_parts(kind: str, dtype: torch.dtype) -> None:
    """The rows of a part reach both of its ends, and two halves cover what was cut."""
    bounds = boxes(kind, dtype)
    made = Boxes(bounds).deviation(bounds[0], bounds[0], False)
    for end in bounds:
        assert at_least(made.generators.radius, np.abs(exact(end) - exact(made.center)))
    halves = _halved(bounds, torch.ones_like(bounds[0]))
    lower, upper = halves[:, :40], halves[:, 40:]
    assert torch.equal(lower[0], bounds[0]) and torch.equal(upper[1], bounds[1])
    assert bool((upper[0] <= lower[1]).all())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
def test_leads(kind: str, dtype: torch.dtype) -> None:
    bounds = boxes(kind, dtype)
    found, (lower, upper) = exact(leads(bf.Bounded(Set(bounds)))), map(exact, bounds)
    for label in range(3):
        others = [other for other in range(3) if other != label]
        wanted = (lower[:, [label]] - upper[:, others]).min(1)
        assert np.all(found[:, label] <= wanted)
