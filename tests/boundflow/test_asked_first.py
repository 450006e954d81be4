"""What is kept after somebody has asked for it says the same to whoever asks next, whatever the first one was about."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import boundflow as bf
from boundflow import rounding
from boundflow.operators import gates
from boundflow.same_program.tripwire import Tripwire
from boundflow.tensor.bounded import Bounded

COMPARISONS = [torch.gt, torch.ge, torch.lt, torch.le, torch.eq, torch.ne]


@pytest.mark.parametrize("compare", COMPARISONS, ids=lambda function: function.__name__)
def test_a_comparison_with_a_number_is_the_same_after_one_without_roundings(compare: Callable[..., Bounded]) -> None:
    """1/10 is no float, so it stands for its neighbours too, where roundings are charged."""
    near = torch.tensor(0.1)
    points = torch.stack((near, near.nextafter(torch.tensor(1.0)), near.nextafter(torch.tensor(0.0))))

    def answer() -> Tensor:
        return compare(bf.interval(points, points), 0.1).set.bounds

    gates._number.cache_clear()
    alone = answer()
    gates._number.cache_clear()
    with rounding.nearest():
        answer()
    assert torch.equal(answer(), alone) and not torch.equal(alone[0], alone[1])


def test_the_ball_of_an_interval_holds_it_whoever_asked_first() -> None:
    """In rational numbers: a ball that was made where roundings are not charged is kept with the set."""
    for dtype in (torch.float32, torch.float64):
        ends = torch.randn(2, 400, generator=torch.Generator().manual_seed(0), dtype=dtype)
        lower, upper = ends.amin(0), ends.amax(0)
        box = bf.interval(lower, upper)
        with rounding.nearest():
            assert box.center.shape == lower.shape
        values = zip(*(x.tolist() for x in (lower, upper, box.center, box.radius)), strict=True)
        for low, high, center, radius in (tuple(map(Fraction, numbers)) for numbers in values):
            assert center - radius <= low and high <= center + radius


def test_a_buffer_in_the_place_of_another_is_compared_even_at_its_address() -> None:
    """Memory that was freed is given out again, as a rule at once: its address says nothing of what is there now."""
    plain, sets = nn.Linear(2, 1), nn.Linear(2, 1)
    for model in (plain, sets):
        model.register_buffer("count", torch.zeros(3))
    bf.lift(sets)
    wire = Tripwire(plain, sets, outward=True)
    sets.count = None
    sets.count = torch.ones(3)
    with pytest.raises(bf.OutsideBounds, match="count"):
        wire._check_plain_state(1)


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor], ids=["array", "tensor"])
@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_data_that_are_written_to_while_a_run_reads_them(domain: str, kind: Callable[..., Any]) -> None:
    """By a callback here; another thread could as well. The record names the data as they were given."""
    x = np.random.default_rng(0).normal(size=(20, 2))
    recipe = {"loss": "bce", "domain": domain, "epochs": 4, "optimizer_options": {"lr": 0.1}, "progress": False}

    def trained(write: bool) -> bf.Certificate:
        data = kind(x.copy()), kind((x[:, 0] > 0).astype(float))
        weights = torch.ones(20, dtype=torch.float64)

        def spoil(step: bf.Step) -> None:
            if write:
                for part in (*data, weights):
                    part[:] = 7.0

        torch.manual_seed(0)
        model = nn.Linear(2, 1).double()
        return bf.certify(
            model, data, threat=bf.threats.Linf(0.01), callbacks=[spoil], sample_weights=weights, **recipe
        )

    left_alone, written_to = trained(False), trained(True)
    assert torch.equal(left_alone.nominal.weight, written_to.nominal.weight)
    assert torch.equal(left_alone.model.weight.set.bounds, written_to.model.weight.set.bounds)


def test_a_threat_keeps_what_it_was_given() -> None:
    """It looked at these numbers when it was made: none of them is negative."""
    epsilon, ranges, mask = (
        torch.full((2,), 0.1, dtype=torch.float64),
        np.array([[0.0, 1.0]] * 2),
        np.array([True, False]),
    )
    threats = [bf.threats.Linf(epsilon), bf.threats.Missing(ranges), bf.threats.Linf(0.1).on(features=mask)]
    before = [repr(threat) for threat in threats]
    epsilon.fill_(-1.0)
    ranges[:] = ranges[:, ::-1].copy()
    mask[:] = True
    assert [repr(threat) for threat in threats] == before


class Quiet(bf.threats.AtMost):
    """Says less of itself than it is."""

    def __repr__(self) -> str:
        return "Quiet()"


def test_a_threat_is_known_by_what_it_is_and_not_by_what_it_says() -> None:
    """Five samples of one would be counted against the budget of the other."""
    one, five = (Quiet(k, bf.threats.Labels()) for k in (1, 5))
    symbols = bf.Symbols(bf.threats.Linf(0.1))
    first, second = symbols.declare(one), symbols.declare(five)
    assert first != second and symbols.budgets == [None, 1, 5]
    assert symbols.declare(Quiet(5, bf.threats.Labels())) == second, "and the same one is"
