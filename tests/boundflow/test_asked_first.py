"""What is kept after somebody has asked for it says the same to whoever asks next, whatever the first one was about."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn

import boundflow as bf
from boundflow import rounding
from boundflow.bounded import Bounded
from boundflow.rules import gates
from boundflow.tripwire import Tripwire

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
