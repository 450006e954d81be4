"""Data as an attacker could have left them: intervals, rows and radii, never less than in exact rational arithmetic.

Judged by the floats that an attacker's data can be, ``fl(x + d)``, and by what was written in a text.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from exact import ADVERSE, DTYPES, NORMAL, UNIT, adverse, at_least, exact, number, total
from torch import Tensor

import boundflow as bf
from boundflow.symbols.recorded_values import Recorded
from boundflow.threats import L1, L2, AtMost, Labels, Linf, Missing, Quantised, Threat, Tolerance
from boundflow.threats.base import Change
from boundflow.threats.deviation import Diagonal

SIZES = [2.0**-30, 2.0**-13, 0.37, 3.0, 2.0**40]


def rows_of(
    change: Change, x: Tensor, raw: Tensor | None = None, budgeted: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Center, rows (one for each feature) and bounds of what a change does."""
    made = change.deviation(x, x if raw is None else raw, budgeted)
    assert isinstance(made.generators, Diagonal)
    return made.center, made.generators.radius, made.bounds


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("size", SIZES)
def test_balls(kind: str, dtype: torch.dtype, size: float) -> None:
    """Around a center, and around the end of a ball, where an end near 0 shows how the radius was rounded."""
    radii = adverse("mixed sizes", (40,), torch.float64, 1).abs() * size * (1 + 0.3 * UNIT[torch.float32])
    for center in (adverse(kind, (40,), dtype), -radii.to(dtype), radii.to(dtype)):
        made = bf.ball(center, radii)
        low, high, middle = map(exact, (made.lower, made.upper, made.form.center))
        assert np.all(low <= exact(center) - exact(radii)) and np.all(high >= exact(center) + exact(radii))
        assert at_least(made.form.radius, np.maximum(high - middle, middle - low))
    for number_given in (0.1 * size, size / 3, 0.7 * size):  # as float32 longer, longer, shorter
        for at in (number_given, -number_given):
            made = bf.ball(torch.tensor([at], dtype=dtype), number_given)
            low, high, middle = map(exact, (made.lower, made.upper, made.form.center))
            assert np.all(low <= middle - number(number_given)) and np.all(high >= middle + number(number_given))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("size", SIZES)
def test_rows_reach_the_ends_of_their_interval(kind: str, dtype: torch.dtype, size: float) -> None:
    """Of a box, of targets that are numbers, of missing values, and of a ball without rows under a budget."""
    x = adverse(kind, (30, 4), dtype)
    holes = x.clone()
    holes[::2] = float("nan")
    missing = Missing((-0.3 * size, 0.1 + 0.7 * size))
    filled = missing.stand_in(holes)
    clip = (float(x.min()), float(x.max()))
    cases = [
        rows_of(Linf(0.7 * size), x),
        rows_of(Linf(0.7 * size, clip=clip), x, budgeted=False),
        rows_of(Labels(epsilon=0.7 * size), x),
        rows_of(missing, filled, holes),
    ]
    few = AtMost(1, Linf(0.7 * size)).lift(None, x, x[:, 0], np.arange(30)).inputs
    cases.append((few.form.center, few.form.radius, few.set.bounds))
    for center, rows, bounds in cases:
        low, high, middle = exact(bounds[0]), exact(bounds[1]), exact(center)
        assert at_least(rows, np.maximum(high - middle, middle - low))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("ends", [(0.1, 0.7), (-0.7, -0.1), (1 / 3, 1 / 3)])
def test_missing_values_are_anywhere_in_their_range(dtype: torch.dtype, ends: tuple[float, float]) -> None:
    """Ends that are no float32 are between the bounds all the same."""
    holes = torch.full((2, 1), float("nan"), dtype=dtype)
    change = Missing(ends)
    low, high = exact(change.deviation(change.stand_in(holes), holes, False).bounds)
    assert np.all(low <= number(ends[0])) and np.all(high >= number(ends[1]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("change", [L1, L2])
@pytest.mark.parametrize("size", SIZES)
def test_features_that_share_a_distance(kind: str, dtype: torch.dtype, change: type[Linf], size: float) -> None:
    """No row is shorter than its amount, and the radius holds what the float of a moved value is off by."""
    x, amount = adverse(kind, (30, 4), dtype), 0.7 * size
    made = change(amount).deviation(x, x, True)
    assert isinstance(made.generators, Diagonal) and made.radius is not None
    assert at_least(made.generators.radius, number(amount))
    for part in (1.0, -1.0, 0.3, -0.7):
        move = torch.full_like(x, amount * part * 0.999)
        assert at_least(made.radius, np.abs(exact(x + move) - exact(x) - exact(move)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_many_moves_of_the_same_value(dtype: torch.dtype) -> None:
    """Each is a little more than half a unit of the value, and rounded up when it is added to it."""
    small = 1.2 * UNIT[dtype]
    threat: Threat = Linf(1.0)
    for _ in range(40):
        threat = threat & Linf(small)
    x = torch.full((1, 1), 0.001, dtype=dtype)
    form = threat.lift(bf.Symbols(threat), x, torch.zeros(1), [0]).inputs.form.dense
    moved = x + 1.0
    for _ in range(40):
        moved = moved + small
    reach = total(np.abs(exact(form.generators)))[0, 0] + exact(form.radius)[0, 0]
    assert (exact(moved) - exact(form.center))[0, 0] <= reach


def test_points_of_a_grid() -> None:
    """As many steps away as the texts say, and written in float32."""
    for steps in range(1, 60):
        for step in ("0.1", "0.7", "0.003"):
            distance = float(number(step) * steps)
            amount = Quantised(distance, float(step)).amounts(torch.zeros(1, 1, dtype=torch.float64))
            assert at_least(amount, number(float(step)) * steps + number(float(step)))
    unit = np.float32("0.1")
    for place in range(-300, 300, 7):
        first, second = np.float32(place) * unit, np.float32(place + 1) * unit
        amount = Quantised(0.01, 0.1).amounts(torch.tensor([[float(first)]]))
        assert at_least(amount, abs(number(float(first)) - number(float(second))))


@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("text", ["0.1%", "3%", "7.3%", "33.333%"])
def test_shares_of_values(kind: str, text: str) -> None:
    x = adverse(kind, (60, 1), torch.float64)
    found = Tolerance({0: text}).amounts(x)
    assert at_least(found, np.abs(exact(x)) * number(text[:-1]) / 100)


def test_symbols_of_what_was_recorded() -> None:
    random = np.random.default_rng(3)
    observed, center = random.uniform(0.5, 0.52, 600), random.uniform(-1e-3, -1e-4, 600)
    reach = np.abs(observed - center) * random.uniform(1.0001, 1.02, 600)
    low, high = map(exact, Recorded(np.arange(600), observed, center, reach).symbols())
    wanted = (exact(observed) - exact(center)) / exact(reach)
    assert np.all(low <= wanted) and np.all(wanted <= high)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [2.0**-20, 1.0, 2.0**20])
@pytest.mark.parametrize("epsilon", [1e-3, 0.3, 7.0])
def test_rows_of_shorter_moves(dtype: torch.dtype, size: float, epsilon: float) -> None:
    """The interval of a share of a move is no longer than that share, and the slack, of its row."""
    x = adverse("mixed sizes", (30, 3), dtype) * size
    _, rows, _ = rows_of(Linf(epsilon), x)
    said = Linf(epsilon).shrinks(x)
    assert said is not None and said["slack"] is not None
    for share in (2.0**-7, 0.25, 0.5, 1.0):
        _, shorter, _ = rows_of(Linf(share * epsilon), x)
        assert np.all(exact(shorter) <= (number(share) + number(said["slack"])) * exact(rows))
