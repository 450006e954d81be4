"""States: what a set is where its own sample was left alone is kept only as long as it is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import boundflow as bf
from boundflow.clean_state import Clean, Samples
from boundflow.operands import samples_of
from boundflow.sets import Set
from boundflow.states import States
from boundflow.threats import AtMost, Linf

SAMPLES = Samples(np.arange(3), 1)


def interval(low: float, high: float) -> Tensor:
    return torch.tensor([low, high], dtype=torch.float64).view(2, 1, 1).expand(2, 3, 1)


def known(touched: tuple[float, float], clean: tuple[float, float]) -> bf.Bounded:
    """Three samples, each in ``touched``, and in ``clean`` where it was left alone.

    The second may reach further: the parameters have seen the sample, and what it does to both may cancel.
    """
    return bf.Bounded(Set(interval(*touched), clean=Clean(interval(*clean), None, -2, SAMPLES)))


def clean_holds(result: Any, value: float) -> bool:
    """Whether a value of a sample that was left alone is among those of the result, or nothing is said of it."""
    clean = result.set.clean
    return clean is None or bool(((clean.bounds[0] <= value) & (value <= clean.bounds[1])).all())


def test_every_state_sees_its_own_operands() -> None:
    """A sum is 1 larger than its operand, touched or not."""
    total = known((-5.0, 5.0), (0.0, 1.0)) + 1.0
    assert torch.allclose(total.set.bounds, interval(-4.0, 6.0))
    assert total.set.clean is not None and torch.allclose(total.set.clean.bounds, interval(1.0, 2.0))
    touched, clean = States(total.set, 2.0).views
    assert touched[0] is total.set and clean[0].bounds is total.set.clean.bounds and touched[1] == clean[1] == 2.0


def test_a_condition_on_sets_may_be_decided_otherwise_where_a_sample_was_left_alone() -> None:
    x, first, second = known((1.0, 2.0), (-1.0, 2.0)), known((3.0, 4.0), (3.0, 3.0)), known((5.0, 6.0), (5.0, 5.0))
    chosen = torch.where(x > 0, first, second)
    assert torch.equal(chosen.set.bounds, interval(3.0, 4.0))
    assert clean_holds(chosen, 3.0) and clean_holds(chosen, 5.0)
    decided = torch.where(torch.tensor([[True], [False], [True]]), first, second)
    assert decided.set.clean is not None and decided.set.clean.bounds[:, 1, 0].tolist() == [5.0, 5.0]


@pytest.mark.parametrize("divide", [torch.div, lambda a, b: a.addcdiv(a, b)], ids=["div", "addcdiv"])
def test_a_divisor_that_may_be_zero_where_a_sample_was_left_alone(divide: Any) -> None:
    """The ends of such a quotient say nothing of its values: the divisor is then taken as it is."""
    numerator, divisor = known((1.0, 2.0), (1.0, 1.0)), known((1.0, 2.0), (-1.0, 2.0))
    quotient = divide(numerator, divisor)
    assert bool(torch.isfinite(quotient.set.bounds).all())
    offset = 0.0 if divide is torch.div else 1.0
    assert all(clean_holds(quotient, offset + 1.0 / number) for number in (1.0, 1.2, 2.0))


def test_own_rows_without_a_clean_state_are_not_clean() -> None:
    """What a set without a second state is where a sample was left alone, its own rows say, which are not zero."""
    threat = AtMost(1, Linf(1.0))
    space, x = bf.Symbols(threat), torch.zeros(3, 2, dtype=torch.float64)
    lifted = space.lift(x, torch.zeros(3), torch.arange(3))[0].set
    alone = lifted.without_clean()
    assert samples_of(lifted, lifted) is not None and samples_of(lifted, alone) is None
    total = bf.Bounded(lifted) + bf.Bounded(alone)
    assert total.set.clean is None
