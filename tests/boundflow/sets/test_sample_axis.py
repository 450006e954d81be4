"""The sample axis: one object that says whose samples a set holds, and moves with its elements."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import boundflow as bf
from boundflow.sets.sample_axis import SampleAxis, Samples
from boundflow.threats import AtMost, Linf

SAMPLES = Samples(np.arange(3), 1)
VALUES = torch.zeros(3, 4, dtype=torch.float64)
MOVES = {
    "transposed": (lambda x, lead: x.transpose(lead, lead + 1), -1),
    "one more axis behind": (lambda x, lead: x.unsqueeze(-1), -3),
    "one more axis before": (lambda x, lead: x.unsqueeze(lead), -2),
    "columns turned round": (lambda x, lead: x.flip(-1), -2),
    "samples turned round": (lambda x, lead: x.flip(lead), None),
    "one sample left out": (lambda x, lead: x.narrow(lead, 0, 2), None),
    "samples and columns merged": (lambda x, lead: x.flatten(lead), None),
}


@pytest.mark.parametrize("name", MOVES)
def test_a_function_is_asked_where_it_puts_the_samples(name: str) -> None:
    f, position = MOVES[name]
    moved = SampleAxis(-2, SAMPLES).moved(VALUES, f)
    assert (moved.position if moved is not None else None) == position
    assert moved is None or moved.samples is SAMPLES


def test_equal_numbers_are_not_the_same_samples() -> None:
    """Sample 1 of another dataset, or under another budget, is somebody else."""
    assert SampleAxis(-2, SAMPLES) == SampleAxis(-2, SAMPLES)
    assert SampleAxis(-2, SAMPLES) != SampleAxis(-1, SAMPLES)
    assert SampleAxis(-2, SAMPLES) != SampleAxis(-2, Samples(np.arange(3), 1))


def test_a_batch_that_is_lifted_again_holds_the_same_samples() -> None:
    space = bf.Symbols(AtMost(1, Linf(0.1)))
    first, second, other = (
        space.lift(VALUES + i, torch.zeros(3), torch.arange(3) + begin)[0].set for i, begin in ((0, 0), (0, 0), (1, 3))
    )
    assert first.along == second.along and first.along != other.along
    assert (bf.Bounded(first) - bf.Bounded(second)).set.clean is not None
    assert (bf.Bounded(first) - bf.Bounded(other)).set.along is None


def test_own_rows_and_clean_state_move_together() -> None:
    space = bf.Symbols(AtMost(1, Linf(0.1)))
    lifted = space.lift(VALUES, torch.zeros(3), torch.arange(3))[0]
    turned = lifted.t().set
    assert turned.along is not None and turned.along.position == turned.form.axis == -1
    assert turned.clean is not None and turned.clean.bounds.shape[1:] == turned.shape
    assert lifted.flip(0).set.along is None
