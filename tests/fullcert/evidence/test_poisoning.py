"""Datasets that `fullcert verify --trainings` draws: what a threat allows, all of it, and nothing else.

What is drawn is judged by the words of the threat, exactly: every number that moved is a fraction.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from boundflow.threats import (
    L1,
    AtMost,
    Category,
    Labels,
    Linf,
    Missing,
    MissingCategory,
    Removal,
    Replacement,
    Threat,
    Tolerance,
)
from fullcert.evidence.poisoning import Data, NotDrawn, member

ROWS, NOTHING = 12, float("nan")
HOT = torch.eye(3, dtype=torch.float64)


def samples() -> Tensor:
    """Two numbers of different size, and three columns of a category."""
    pick = np.random.default_rng(0)
    numbers = torch.from_numpy(pick.normal(size=(ROWS, 2)) * [1.0, 100.0])
    return torch.cat((numbers, HOT[torch.from_numpy(pick.integers(0, 3, ROWS))]), 1)


def drawn(threat: Threat, x: Tensor, y: Tensor, classes: int, draws: int = 200) -> list[Data]:
    pick = np.random.default_rng(1)
    return [member(threat, x, y, classes, pick) for _ in range(draws)]


def moves(before: Tensor, after: Tensor) -> list[Fraction]:
    pairs = zip(before.flatten().tolist(), after.flatten().tolist(), strict=True)
    return [Fraction(new) - Fraction(old) for old, new in pairs]


def touched(before: Tensor, after: Tensor) -> int:
    return int((before != after).reshape(len(before), -1).any(1).sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_move_as_far_as_they_may_and_no_further(dtype: torch.dtype) -> None:
    x, y = samples().to(dtype), torch.zeros(ROWS, dtype=torch.int64)
    amounts = torch.tensor([0.1, 7.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    threats = {
        Linf(0.1).on(features=[0]): [0.1, 0, 0, 0, 0],
        Linf(amounts.tolist()): amounts.tolist(),
        Tolerance({0: 0.1, 1: "5%"}): [0.1, Fraction("0.05"), 0, 0, 0],
    }
    for threat, limits in threats.items():
        found = [moves(x, data.inputs) for data in drawn(threat, x, y, 2)]
        for column, limit in enumerate(limits):
            sizes = [abs(Fraction(value)) for value in x[:, column].tolist()]
            share = isinstance(limit, Fraction)  # whose product with the value is rounded up
            most = [limit * size * (1 + Fraction(1, 2**46)) if share else Fraction(limit) for size in sizes]
            for row in range(ROWS):
                seen = [data[row * 5 + column] for data in found]
                slack = most[row] * Fraction(1, 10**5) + Fraction(sizes[row]) / 2**20 * bool(limit)
                assert -most[row] <= min(seen) <= -most[row] + slack, "no further, and as far"
                assert most[row] - slack <= max(seen) <= most[row]
                assert not limit or len(set(seen)) > 20, "and in between"


def test_what_is_moved_stays_valid_and_others_stay_as_they_are() -> None:
    x, y = torch.tensor([[0.0], [0.05], [0.5], [1.0], [1.5]]).double(), torch.zeros(5, dtype=torch.int64)
    found = torch.stack([data.inputs for data in drawn(Linf(0.1, clip=(0.0, 1.0)), x, y, 2)])
    low, high = found.amin(0)[:, 0].tolist(), found.amax(0)[:, 0].tolist()
    assert low == pytest.approx([0.0, 0.0, 0.4, 0.9, 1.5]) and high == pytest.approx([0.1, 0.15, 0.6, 1.0, 1.5])
    chosen = np.array([True, False, True, False, False])
    found = torch.stack([data.inputs for data in drawn(Linf(0.1).on(samples=chosen), x, y, 2)])
    assert (found.amax(0) != x)[:, 0].tolist() == chosen.tolist()


CHANGES: dict[str, tuple[Threat, Callable[[Tensor, Tensor, Data], int]]] = {
    "moved": (Linf(0.1), lambda x, y, data: touched(x, data.inputs)),
    "flipped": (Labels(classes=3), lambda x, y, data: touched(y, data.targets)),
    "removed": (Removal(), lambda x, y, data: int((~data.there).sum())),
    "replaced": (Replacement(), lambda x, y, data: touched(x, data.inputs)),
    "another": (Category([2, 3, 4]), lambda x, y, data: touched(x, data.inputs)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_budget_counts_samples(name: str) -> None:
    """At most so many are touched, any of them, and as many as that."""
    x, y = samples(), torch.arange(ROWS) % 3
    change, count = CHANGES[name]
    found = drawn(AtMost(3, change), x, y, 3)
    counts = [count(x, y, data) for data in found]
    assert max(counts) == 3 and min(counts) >= (0 if name in ("another", "replaced") else 3)
    ever = torch.stack([(data.inputs != x).any(1) | (data.targets != y) | ~data.there for data in found]).any(0)
    assert bool(ever.all())
    for data in found:
        assert data.there.all() or name == "removed"
        assert torch.equal(data.targets, y) or name in ("flipped", "replaced")
        assert touched(x, data.inputs) == 0 or name not in ("flipped", "removed")
    labels = torch.stack([data.targets for data in found])
    assert all(len(set(column)) == (3 if name in ("flipped", "replaced") else 1) for column in labels.T.tolist())


def test_labels_become_any_other_and_targets_move() -> None:
    x, y = samples(), torch.arange(ROWS) % 3
    found = torch.stack([data.targets for data in drawn(Labels(classes=3), x, y, 3)])
    assert bool((found != y).all()) and all(len(set(column)) == 2 for column in found.T.tolist())
    assert 0 <= int(found.min()) and int(found.max()) == 2
    for dtype in (torch.float32, torch.float64):
        values = torch.linspace(-1000, 1000, ROWS, dtype=dtype)
        all_moves = [moves(values, data.targets) for data in drawn(Labels(epsilon=0.3), x, values, 0)]
        for seen in zip(*all_moves, strict=True):
            assert -Fraction(0.3) <= min(seen) < -Fraction(0.299) and Fraction(0.299) < max(seen) <= Fraction(0.3)


def test_missing_numbers_are_anywhere_in_their_range() -> None:
    x, y = samples(), torch.zeros(ROWS, dtype=torch.int64)
    x[::3, 0] = x[::4, 1] = NOTHING
    holes = torch.isnan(x)
    ranges = torch.tensor([[5.0, 6.0], [-20.0, -10.0], [0, 0], [0, 0], [0, 0]])
    found = torch.stack([data.inputs for data in drawn(Missing(ranges).on(features=[0, 1]), x, y, 2)])
    assert torch.equal(found[:, ~holes], x[~holes].expand(len(found), -1)), "what is there stays"
    for column, (low, high) in enumerate(ranges[:2].tolist()):
        filled = found[:, holes[:, column], column]
        assert torch.equal(filled.amin(0), torch.full_like(filled[0], low))
        assert torch.equal(filled.amax(0), torch.full_like(filled[0], high))
        assert len(filled.unique()) > 100, "and in between"
    found = torch.stack([data.inputs for data in drawn(Missing((5.0, 6.0)).on(features=[0]), x, y, 2)])
    assert torch.equal(found[:, :, 0].isnan().any(0), torch.zeros(ROWS, dtype=torch.bool))
    assert torch.equal(found[:, :, 1].isnan().all(0), holes[:, 1]), "a hole that nobody spoke of stays one"


def test_what_is_filled_in_is_moved_too() -> None:
    x, y = torch.tensor([[NOTHING], [2.0]]).double(), torch.zeros(2, dtype=torch.int64)
    found = torch.stack([data.inputs for data in drawn(Missing((5.0, 6.0)) & Linf(0.5), x, y, 2)])[:, 0, 0]
    assert 4.5 <= found.min() < 4.51 and 6.49 < found.max() <= 6.5


@pytest.mark.parametrize("unknown", [False, True])
def test_categories_are_drawn_from_all_there_are(unknown: bool) -> None:
    x, y = samples(), torch.zeros(ROWS, dtype=torch.int64)
    rows = {tuple(row) for row in HOT.tolist()} | ({(0.0, 0.0, 0.0)} if unknown else set())
    found = torch.stack([data.inputs for data in drawn(Category([2, 3, 4], unknown=unknown), x, y, 2)])
    assert torch.equal(found[..., :2], x[:, :2].expand(len(found), -1, -1)), "numbers stay"
    for sample in range(ROWS):
        assert {tuple(row) for row in found[:, sample, 2:].tolist()} == rows
    x[::4, 2:] = NOTHING
    found = torch.stack([data.inputs for data in drawn(MissingCategory([2, 3, 4]), x, y, 2)])
    known = {tuple(row) for row in HOT.tolist()}
    for sample in range(ROWS):
        seen = {tuple(row) for row in found[:, sample, 2:].tolist()}
        assert seen == (known if sample % 4 == 0 else {tuple(x[sample, 2:].tolist())})


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(NotDrawn, match="L1"):
        drawn(L1(0.1), samples(), torch.zeros(ROWS), 2, 1)
