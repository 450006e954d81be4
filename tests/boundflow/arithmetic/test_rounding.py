"""`rounding.py` itself: what each function promises, in exact rational arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from exact import ADVERSE, DTYPES, NORMAL, UNIT, adverse, at_least, exact, number, total

from boundflow import rounding
from boundflow.arithmetic.thread_context import OUTWARD, using

SIZE = 200


def pair(kind: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return adverse(kind, (SIZE,), dtype, 1), adverse(kind, (SIZE,), dtype, 2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("scale", [1.0, 2.0**-13])
def test_one_and_two_operations(kind: str, dtype: torch.dtype, scale: float) -> None:
    x, y = pair(kind, dtype)
    y = y * scale
    a, b = exact(x), exact(y)
    assert at_least(rounding.up(x.abs() + y.abs()), np.abs(a) + np.abs(b))
    assert at_least(rounding.up((x - y).abs()), np.abs(a - b))
    assert at_least(rounding.away(x - y).abs(), np.abs(a - b))
    if kind in NORMAL:
        assert at_least(rounding.up((x * y).abs() + x.abs()), np.abs(a * b) + np.abs(a))
        assert at_least(rounding.up((x * y).abs()), np.abs(a * b))
    both = torch.stack((x, y)).sort(0).values
    low, high = exact(both)
    assert at_least(rounding.width(both), high - low)
    center, radius = rounding.middle(both)
    assert np.all(exact(center) - exact(radius) <= low) and np.all(exact(center) + exact(radius) >= high)
    assert at_least(rounding.deviation(both, x * 0.3), np.maximum(high - exact(x * 0.3), exact(x * 0.3) - low))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("scale", [1.0, 2.0**-13, 2.0**-24])
def test_bounds_are_moved_outwards(kind: str, dtype: torch.dtype, scale: float) -> None:
    x, y = pair(kind, dtype)
    amount = y.abs() * scale
    a, far = exact(x), exact(amount)
    for low, high in (rounding.around(x, amount), rounding.widened(torch.stack((x, x)), amount)):
        assert np.all(exact(low) <= a - far) and np.all(exact(high) >= a + far)
    if kind in NORMAL:
        sums = rounding.outward(torch.stack((x - amount, x + amount)))
        assert np.all(exact(sums[0]) <= a - far) and np.all(exact(sums[1]) >= a + far)
        for far_away in (0.1 * scale, 1 / 3, 0.7):  # as float32 longer, longer, shorter
            low, high = rounding.around_by(x, far_away)
            at_zero = torch.tensor([-far_away, far_away], dtype=dtype)  # an end near 0 shows how the number was rounded
            ends = exact(rounding.around_by(at_zero, far_away))
            assert np.all(ends[0] <= exact(at_zero) - number(far_away))
            assert np.all(ends[1] >= exact(at_zero) + number(far_away))
            assert np.all(exact(low) <= a - number(far_away)) and np.all(exact(high) >= a + number(far_away))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
def test_steps_outwards_as_a_compiler_makes_them(kind: str, dtype: torch.dtype) -> None:
    x = torch.cat((adverse(kind, (SIZE,), dtype), torch.zeros(1, dtype=dtype)))
    bounds = torch.stack((x, x))
    with using(replace(OUTWARD, deferred=[])):
        low, high = rounding.outward(bounds)
    wanted = rounding.outward(bounds)
    assert bool((low <= wanted[0]).all()) and bool((high >= wanted[1]).all())


@pytest.mark.parametrize(
    ("x", "center", "times"),
    [((0.5, 0.52), -1e-3, (1.0001, 1.02)), ((0.98, 0.999), 1e-4, (1.9, 1.9999)), ((-1, 1), 1, (1, 9))],
)
def test_symbols_of_recorded_values(x: Any, center: float, times: Any) -> None:
    """``(x - center) / reach`` is between its bounds, where the difference or the quotient rounds by most of a unit."""
    random = np.random.default_rng(3)
    x, center = (torch.from_numpy(random.uniform(*ends, 600)) for ends in (x, sorted((center / 10, center))))
    reach = (x - center).abs() * torch.from_numpy(random.uniform(*times, 600))
    low, high = map(exact, rounding.quotient_of_move(x, center, reach))
    wanted = (exact(x) - exact(center)) / exact(reach)
    assert np.all(low <= wanted) and np.all(wanted <= high)
    assert np.all(low >= -1) and np.all(high <= 1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("level", [0, 1, 7, 33, 99, 100])
def test_shorter_rows(kind: str, dtype: torch.dtype, level: int) -> None:
    """Off by what is said, from rows times a factor that is a quotient and a sum, though it was rounded."""
    rows, slack = adverse(kind, (9, 24), dtype), 0.1 * UNIT[dtype]
    scaled, lost = rounding.shorter(rows, min(1.0, level / 100 + slack))
    factor = min(number(1.0), number(level) / 100 + number(slack))
    assert at_least(lost, total(np.abs(exact(scaled) - exact(rows) * factor)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("count", [2, 3, 300])
def test_sums_in_any_order(kind: str, dtype: torch.dtype, count: int) -> None:
    """The exact sum, the sum one after the other, and the sum backwards."""
    x = adverse(kind, (count, 24), dtype)
    summed = x.sum(0)
    low, high = rounding.outward_sum(torch.stack((summed, summed)), x.abs().sum(0), count)
    forward, backward = x[0].clone(), x[-1].clone()
    for row in x[1:]:
        forward += row
    for row in x.flip(0)[1:]:
        backward += row
    for value in (total(exact(x)), exact(forward), exact(backward)):
        assert np.all(exact(low) <= value) and np.all(exact(high) >= value)
    assert number(rounding.largest_of_sums(x.abs().sum(0), count)) >= max(total(np.abs(exact(x))))
    if kind == "subnormal":  # a mean of what is reported, where nothing is as small
        return
    doubled = adverse(kind, (count, 24), torch.float64).abs()
    assert at_least(rounding.upper_mean(doubled), total(exact(doubled.flatten())) / doubled.numel())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_products_that_underflow(dtype: torch.dtype) -> None:
    """``tiny(n)`` is at least what n products lose, on both sides: less than the smallest normal number each."""
    tiny = torch.finfo(dtype).tiny
    x = adverse("near one", (40,), dtype, 1) * tiny * 2.0**-4
    product = x * 0.37  # its relative error is anything, and the charge of its modulus is 0
    low, high = rounding.outward_sum(torch.stack((product, product)), product.abs(), 1)
    wanted = exact(x) * exact(torch.tensor(0.37, dtype=dtype))
    assert np.all(exact(low) <= wanted) and np.all(exact(high) >= wanted)
    for count in (1, 5, 100):
        assert rounding.tiny(count, dtype) >= 2 * count * tiny


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("scale", [1.0, 2.0**-20])
def test_moves_of_data(kind: str, dtype: torch.dtype, scale: float) -> None:
    x, y = pair(kind, dtype)
    amounts = y.abs() * scale
    error = exact(rounding.of_moves(x, amounts))
    for part in (1.0, -1.0, 0.3, -0.7):
        move = amounts * part
        assert np.all(error >= np.abs(exact(x + move) - exact(x) - exact(move)))
    tiny = torch.full_like(x, torch.finfo(dtype).tiny * 3)
    assert bool((rounding.of_moves(tiny, tiny) >= torch.finfo(dtype).tiny * 2.0**-20).all())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("text", ["0.1", "3", "7.3", "33.333"])
def test_a_share_that_was_read_in_per_cent(kind: str, dtype: torch.dtype, text: str) -> None:
    x, _ = pair(kind, dtype)
    share = float(text) / 100
    assert at_least(rounding.share_of(x, share), np.abs(exact(x)) * number(text) / 100)
    smallest = torch.tensor([5e-324, 1e-323])
    assert at_least(rounding.share_of(smallest.double(), share), exact(smallest.double()) * number(text) / 100)


def test_whole_steps() -> None:
    """As many steps fit as the texts say, though the floats say less."""
    for steps in range(1, 200):
        for step in ("0.1", "0.01", "0.7", "0.003"):
            distance = float(number(step) * steps)
            assert rounding.whole_steps(distance, float(step)) >= steps


@pytest.mark.parametrize("step", ["0.1", "0.01", "0.0039215686"])
def test_values_of_a_grid(step: str) -> None:
    """Two values that were written in float32 are no further apart than their distance and what is added to it."""
    unit = np.float32(step)
    for place in range(-300, 300, 7):
        for moved in (1, -3):
            first, second = np.float32(place) * unit, np.float32(place + moved) * unit
            distance = float(number(step) * abs(moved))
            allowed = rounding.of_grid(torch.tensor([float(first)]), distance)
            apart = abs(number(float(first)) - number(float(second)))
            assert number(distance) + exact(allowed)[0] >= apart


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scaled_moves(dtype: torch.dtype) -> None:
    """A value and a moved one, both scaled in floats: no further apart than a scaled move."""
    spacing, random = torch.finfo(dtype).eps, np.random.default_rng(1)
    values = torch.tensor(random.uniform(-100, 100, 400), dtype=torch.float64)
    center, scale, move = 13.7, 3.3, 1e-5
    scaled = ((values - center) / scale).to(dtype)
    moved = ((values + move - center) / scale).to(dtype)
    largest, offset = float(values.abs().max()) / scale, center / scale
    allowed = rounding.scaled_move(move / scale, largest, offset, spacing)
    assert np.all(np.abs(exact(moved) - exact(scaled)) <= number(allowed))
    assert rounding.scaled_move(0.0, 1.0, 1.0, spacing) >= 8 * spacing
    assert rounding.scaled_share(0.1, spacing) >= 0.1 * (1 + 4 * spacing) + 4 * spacing


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize(("scale", "shift"), [(0.1, 0.3), (-3.7, 1e-9), (1.0, 1 / 3), (7.0, 0.0), (1e-310, 0.0)])
def test_units_of_the_user(kind: str, dtype: torch.dtype, scale: float, shift: float) -> None:
    x, _ = pair(kind, dtype)
    low, high = rounding.affine_image(torch.stack((x, x)), scale, shift)
    image = exact(x) * number(scale) + number(shift)
    assert np.all(exact(low) <= image) and np.all(exact(high) >= image)
    if abs(scale) > 1e-300:
        before = x.double() * scale + shift
        back = (before - shift) / scale
        low, high = rounding.before_scaling(back, scale, shift)
        assert np.all(exact(low) <= exact(before)) and np.all(exact(high) >= exact(before))


@pytest.mark.parametrize(("scale", "shift"), [(0.1, 0.3), (3.7, -1 / 3), (1.0, 7.7), (1.0000003, 1.0000001)])
def test_numbers_that_are_small_beside_their_shift(scale: float, shift: float) -> None:
    """Centering rounds by a unit of the shift, which is many of the number."""
    before = torch.from_numpy(np.random.default_rng(5).uniform(-1e-6, 1e-6, 3000))
    low, high = rounding.before_scaling((before - shift) / scale, scale, shift)
    assert np.all(exact(low) <= exact(before)) and np.all(exact(high) >= exact(before))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gamma_is_more_than_so_many_roundings(dtype: torch.dtype) -> None:
    """``(1 + u)^n - 1`` for the n roundings of a plain run and as many of ours."""
    unit = number(UNIT[dtype])
    for count in (1, 2, 10, 1000):
        assert number(rounding.gamma(count, dtype)) >= (1 + unit) ** (2 * count + 7) - 1
