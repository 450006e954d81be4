"""States: what a set is where its own sample was left alone is kept only as long as it is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import boundflow as bf
from boundflow.rules.operand_properties import samples_of
from boundflow.rules.states import States
from boundflow.sets.clean_state import Remainder
from boundflow.sets.forms import Form
from boundflow.sets.sample_axis import SampleAxis, Samples
from boundflow.sets.set import Set
from boundflow.threats import AtMost, Linf

SAMPLES = Samples(np.arange(3), 1)


def interval(low: float, high: float) -> Tensor:
    return torch.tensor([low, high], dtype=torch.float64).view(2, 1, 1).expand(2, 3, 1)


def known(touched: tuple[float, float], clean: tuple[float, float]) -> bf.Bounded:
    """Three samples, each in ``touched``, and in ``clean`` where it was left alone.

    The second may reach further: the parameters have seen the sample, and what it does to both may cancel.
    """
    along = SampleAxis(-2, SAMPLES)
    return bf.Bounded(Set(interval(*touched), clean=Remainder(interval(*clean), None), along=along))


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


# Each of four samples by two features: the state of samples that were left alone is kept, and holds what it should.
KEPT = {
    "square": torch.square,
    "maximum with a constant": lambda x: torch.maximum(x, torch.tensor(0.1, dtype=x.dtype).expand(2)),
    "maximum of two sets": lambda x: torch.maximum(x, 0.3 - x),
    "minimum": lambda x: torch.minimum(x, -0.5 * x),
    "largest entry": lambda x: torch.amax(torch.cat((x, 0.2 - x), 1), 1, keepdim=True),
    "log_softmax": lambda x: torch.log_softmax(torch.cat((x, 2 * x), 1), 1),
    "division": lambda x: x / (2 + torch.tanh(x)),
    "cat": lambda x: torch.cat((x, x.tanh()), 1),
    "average pooling": lambda x: torch.nn.functional.avg_pool2d(x.view(4, 1, 1, 2), (1, 2)),
    "largest of a window": lambda x: torch.nn.functional.max_pool2d(x.view(4, 1, 1, 2), (1, 2)),
    "where": lambda x: torch.where(torch.tensor([True, False]), x, x.tanh()),
}


def budgeted(domain: str, epsilon: float = 0.4) -> tuple[bf.Bounded, Tensor]:
    """Four samples of which one may be moved, and what was observed."""
    observed = torch.tensor([[-0.3, 0.2], [0.05, -0.05], [0.9, -1.1], [0.0, 0.4]], dtype=torch.float64)
    space = bf.Symbols(AtMost(1, Linf(epsilon)))
    lifted = space.lift(observed, torch.zeros(4), torch.arange(4))[0]
    if domain == "interval":
        held = lifted.set
        clean = Remainder(held.clean.bounds, None)
        lifted = bf.Bounded(Set(held.bounds, None, space, clean=clean, along=held.along))
    return lifted, observed


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_the_clean_state_is_kept_and_holds_the_samples_as_observed(name: str, domain: str) -> None:
    """Parameters are fixed here, so what is clean is one value, off the center by the clean radius at most."""
    lifted, observed = budgeted(domain)
    result, value = KEPT[name](lifted), KEPT[name](observed)
    clean = result.set.clean
    assert clean is not None, "forgotten"
    assert bool(((clean.bounds[0] <= value) & (value <= clean.bounds[1])).all())
    widths = clean.bounds[1] - clean.bounds[0]
    assert bool((widths < 1e-9).all()), "as narrow as what was observed"
    if clean.radius is not None:
        assert bool(((value - result.form.center).abs() <= clean.radius).all())


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_touched_samples_stay_inside_where_a_clean_state_is_kept(name: str, domain: str) -> None:
    """Every sample moved, at corners and between: inside the interval, and within the radius of the rows."""
    lifted, observed = budgeted(domain)
    result = KEPT[name](lifted)
    for first in torch.linspace(-1, 1, 9, dtype=torch.float64):
        for second in torch.linspace(-1, 1, 9, dtype=torch.float64):
            symbols = torch.stack((first, second))
            value = KEPT[name](observed + 0.4 * (1 - 1e-12) * symbols)
            assert bool(result.contains(value).all())
            if result.affine:
                own = result.set.form.generators[result.set.form.rows.split()[2]]
                linear = result.form.center + torch.einsum("f,f...->...", symbols, own)
                assert bool(((value - linear).abs() <= result.form.radius + 1e-11).all())


@pytest.mark.parametrize("name", ["square", "maximum of two sets", "largest entry", "log_softmax"])
@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_a_sum_over_samples_adds_one_touched_sample_alone(name: str, domain: str) -> None:
    """The sum moves by what the worst of four samples adds, not by four times that; and it holds every dataset."""
    lifted, observed = budgeted(domain)
    total = KEPT[name](lifted).sum(0)
    alone = bf.Bounded(KEPT[name](lifted).set.without_clean()).sum(0)
    assert bool(((total.upper - total.lower) < (alone.upper - alone.lower)).all())
    for sample in range(4):
        for corner in ([-0.4, -0.4], [-0.4, 0.4], [0.4, -0.4], [0.4, 0.4], [0.15, -0.2]):
            moved = observed.clone()
            moved[sample] += torch.tensor(corner, dtype=torch.float64) * (1 - 1e-12)
            assert bool(total.contains(KEPT[name](moved).sum(0)).all())


@pytest.mark.parametrize("seed", range(4))
def test_one_middle_for_all_states_holds_each(seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    lengths = list(torch.rand(2, 3, 5, dtype=torch.float64, generator=random))
    over = States(known((0.0, 1.0), (0.0, 0.5)).set)
    middle, off = over.middle(lengths)
    for length, distance in zip(lengths, off, strict=True):
        for share in torch.linspace(0, 1, 11, dtype=torch.float64):
            assert bool(((share * length - middle).abs() <= distance).all())


def test_the_logarithm_of_softmax_needs_no_center_inside_its_interval() -> None:
    """Its error is bounded by the probabilities at the value alone, since it is concave in the logits."""
    random = torch.Generator().manual_seed(0)
    space = bf.Symbols(Linf(1.0))
    rows = space.fresh(1)
    for scale in (1.0, 5.0):
        center, move = scale * torch.randn(2, 200, 4, dtype=torch.float64, generator=random)
        logits = center + move
        form = Form(center, move.unsqueeze(0), torch.zeros_like(center), rows)
        narrow = bf.Bounded(Set(torch.stack((logits - 1e-6, logits + 1e-6)), form, space))
        result, value = torch.log_softmax(narrow, 1), torch.log_softmax(logits, 1)
        assert bool(result.contains(value).all())
        assert bool(((value - result.center - result.generators[0]).abs() <= result.radius).all())
