"""Which datasets a threat allows: exact comparisons, against definitions in fractions and poisons made elsewhere."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import poisons
import pytest
import torch
from threat_cases import THREATS, observed
from torch import Tensor

import boundflow as bf
from boundflow.attacks import Poisoned, contains
from boundflow.attacks.freedoms import Data, clauses_of
from boundflow.attacks.membership import allowed, difference
from boundflow.attacks.steepest import Slopes, steepest

T = bf.threats
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def targets(y: Tensor, task: str, dtype: torch.dtype) -> Tensor:
    return torch.nn.functional.one_hot(y, 3).to(dtype) if task == "ce" else y.to(dtype).reshape(-1, 1)


def of(x: Tensor, y: Tensor | None = None, weights: Tensor | None = None) -> Poisoned:
    y = torch.zeros(len(x), 1, dtype=x.dtype) if y is None else y
    weights = torch.ones(len(x), dtype=x.dtype) if weights is None else weights
    return Poisoned(x[None], y[None], weights[None])


def inside(threat: T.Threat, x: Tensor, moved: Tensor) -> bool:
    return bool(contains(threat, x, torch.zeros(len(x), 1, dtype=x.dtype), of(moved)))


def steps(x: Tensor, towards: float, count: int) -> Tensor:
    for _ in range(count):
        x = torch.nextafter(x, torch.full_like(x, towards))
    return x


def within(threat: T.Linf, x: Tensor, moved: Tensor) -> bool:
    """The definition, in fractions."""
    moves = [Fraction(b) - Fraction(a) for a, b in zip(x.flatten().tolist(), moved.flatten().tolist(), strict=True)]
    shares = [abs(move) / Fraction(float(threat.epsilon)) for move in moves]
    if threat.clip is not None and not all(threat.clip[0] <= value <= threat.clip[1] for value in moved.flatten()):
        return all(move == 0 for move in moves)
    if isinstance(threat, T.L2):
        return sum(share**2 for share in shares) <= 1
    return (sum(shares) if isinstance(threat, T.L1) else max(shares)) <= 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["Linf", "L2", "L1"])
def test_balls_are_decided_as_fractions_decide_them(kind: str, dtype: str) -> None:
    random, found = np.random.default_rng(3), set()
    for number in range(300):
        threat = getattr(T, kind)(float(random.choice([0.1, 0.25, 1e-3])), clip=(-2, 2) if number % 3 == 0 else None)
        x = torch.tensor(random.normal(size=(1, 3)).clip(-2, 2), dtype=DTYPES[dtype])
        direction = random.normal(size=(1, 3))
        norm = {"Linf": np.abs(direction).max(), "L2": np.sqrt((direction**2).sum()), "L1": np.abs(direction).sum()}
        moved = (x.double() + float(threat.epsilon) * torch.tensor(direction / norm[kind])).to(x.dtype)
        moved = steps(moved, float(random.choice([-9, 9])), int(random.integers(0, 3)))  # next to the edge
        found.add(within(threat, x, moved))
        assert inside(threat, x, moved) == within(threat, x, moved)
    assert found == {True, False}


def test_a_difference_is_exact() -> None:
    random = np.random.default_rng(0)
    a, b = (torch.tensor(random.normal(size=500) * 10.0 ** random.integers(-12, 4, 500)) for _ in range(2))
    total, error = difference(a, b)
    for parts in zip(a.tolist(), b.tolist(), total.tolist(), error.tolist(), strict=True):
        first, second, rounded, off = map(Fraction, parts)
        assert first - second == rounded + off


def test_the_edge_and_one_float_beyond() -> None:
    x = torch.tensor([[0.5, 0.25]], dtype=torch.float64)
    edge = x + 0.125
    assert inside(T.Linf(0.125), x, edge) and not inside(T.Linf(0.125), x, steps(edge, 9.0, 1))
    assert not inside(T.Linf(0.125, clip=(0, 0.5)), x, edge)
    assert inside(T.Linf(0.125).on(features=[0]), x, torch.tensor([[0.625, 0.25]], dtype=torch.float64))
    assert not inside(T.Linf(0.125).on(features=[0]), x, edge)


def test_a_share_is_of_the_observed_value() -> None:
    x = torch.tensor([[10.0, -4.0]])
    threat = T.Tolerance({0: 1.0, 1: "25%"})
    assert inside(threat, x, torch.tensor([[11.0, -4.5]])) and not inside(threat, x, torch.tensor([[11.0, -5.5]]))
    assert not inside(threat, x, torch.tensor([[11.5, -4.0]]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_share_is_decided_as_fractions_decide_it(dtype: str) -> None:
    random, found = np.random.default_rng(5), set()
    for _ in range(300):
        x = torch.tensor(random.normal(size=(1, 1)), dtype=DTYPES[dtype])
        edge = (x.double() + 0.03 * x.double().abs() * float(random.choice([-1, 1]))).to(x.dtype)
        moved = steps(edge, float(random.choice([-9, 9])), int(random.integers(0, 3)))
        before, now = Fraction(float(x)), Fraction(float(moved))
        found.add(abs(now - before) <= Fraction(3.0 / 100) * abs(before))
        assert inside(T.Tolerance({0: "3%"}), x, moved) == (abs(now - before) <= Fraction(3.0 / 100) * abs(before))
    assert found == {True, False}


def test_boxes_add_up_and_leave_the_rest_to_a_ball() -> None:
    x = torch.zeros(1, 2)
    both = T.Linf(0.25) & T.Linf(0.5).on(features=[0])
    assert inside(both, x, torch.tensor([[0.75, 0.25]])) and not inside(both, x, torch.tensor([[0.75, 0.5]]))
    ball = T.Linf(0.25) & T.L2(1.25)
    assert inside(ball, x, torch.tensor([[1.0, 1.25]])) and not inside(ball, x, torch.tensor([[1.25, 1.25]]))
    with pytest.raises(ValueError, match="two balls"):
        inside(T.L1(0.1) & T.L2(0.1), x, x)


def test_missing_values_are_in_their_range() -> None:
    x = torch.tensor([[float("nan"), 2.0]])
    threat = T.Missing([[-1.0, 1.0], [0.0, 5.0]])
    assert inside(threat, x, torch.tensor([[-1.0, 2.0]])) and not inside(threat, x, torch.tensor([[1.5, 2.0]]))
    assert not inside(threat, x, torch.tensor([[0.0, 3.0]]))  # what was observed stays


def test_a_missing_category_is_one_of_its_column() -> None:
    nan = float("nan")
    x = torch.tensor([[nan, nan, nan, nan], [0.0, 1.0, 0.0, 0.5]])
    threat = T.MissingCategory([0, 1, 2]) & T.Missing([-1.0, 1.0]).on(features=[3])
    for group in ([1.0, 0.0, 0.0], [0.0, 0.0, 1.0]):
        assert inside(threat, x, torch.tensor([[*group, 1.0], [0.0, 1.0, 0.0, 0.5]]))
    for wrong in ([0.5, 0.5, 0.0, 1.0], [1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0]):
        assert not inside(threat, x, torch.tensor([wrong, [0.0, 1.0, 0.0, 0.5]]))
    known = torch.tensor([[1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.5]])  # what was observed stays
    assert not inside(threat, x, known)


def test_categories_and_grids() -> None:
    x = torch.tensor([[0.0, 1.0, 0.0, 0.25]])
    threat = T.Categories([[0, 1, 2]])
    assert inside(threat, x, torch.tensor([[1.0, 0.0, 0.0, 0.25]]))
    for wrong in ([0.5, 0.5, 0.0, 0.25], [1.0, 1.0, 0.0, 0.25], [1.0, 0.0, 0.0, 0.5]):
        assert not inside(threat, x, torch.tensor([wrong]))
    none = torch.tensor([[0.0, 0.0, 0.0, 0.25]])
    assert not inside(threat, x, none) and inside(T.Category([0, 1, 2], unknown=True), x, none)
    assert inside(T.Category([0, 1, 2], unknown=True), none, x), "a row of zeros may have been any"
    assert not inside(T.Category([0, 1, 2], unknown=True), x, torch.tensor([[0.0, 0.0, 0.0, 0.5]]))
    grid = T.Quantised(0.1, 0.125, clip=(0, 1)).on(features=[3])
    assert inside(grid, x, torch.tensor([[0.0, 1.0, 0.0, 0.375]]))
    assert not inside(grid, x, torch.tensor([[0.0, 1.0, 0.0, 0.3]]))
    assert not inside(grid, x, torch.tensor([[0.0, 1.0, 0.0, 0.5]]))


def test_labels_removals_and_replacements_are_counted() -> None:
    x, y = torch.zeros(4, 2), torch.tensor([[0.0], [1.0], [1.0], [0.0]])
    two = torch.tensor([[1.0], [0.0], [1.0], [0.0]])
    gone = torch.tensor([1.0, 1.0, 1.0, 0.0])
    for k, expected in ((2, True), (1, False)):
        assert bool(contains(T.AtMost(k, T.Labels()), x, y, of(x, two))) == expected
    assert not bool(contains(T.AtMost(3, T.Labels()), x, y, of(x, two / 2)))  # half a label is none
    assert bool(contains(T.AtMost(1, T.Removal()), x, y, of(x, y, gone)))
    assert not bool(contains(T.AtMost(1, T.Removal()), x, y, of(x, y, gone / 2)))
    assert not bool(contains(T.AtMost(2, T.Labels()), x, y, of(x, y, gone)))
    other = x.clone()
    other[2] = 1e6
    assert bool(contains(T.AtMost(1, T.Replacement()), x, y, of(other, y)))
    assert not bool(contains(T.AtMost(1, T.Replacement()), x, y, of(torch.full_like(x, torch.nan), y)))
    assert not bool(contains(T.Removal().on(samples=[0]), x, y, of(x, y, gone)))


def test_two_budgets_are_spent_together() -> None:
    """Each of three samples moved a little: one by either budget, so two and one suffice, and one and one do not."""
    x, y = torch.zeros(3, 1), torch.zeros(3, 1)
    moved = torch.full_like(x, 0.125)
    for first, second, expected in ((2, 1, True), (1, 2, True), (1, 1, False)):
        threat = T.AtMost(first, T.Linf(0.25)) & T.AtMost(second, T.Linf(0.5))
        assert bool(contains(threat, x, y, of(moved))) == expected
    far = torch.tensor([[0.75], [0.0], [0.0]])  # a sample that both changes touched
    assert bool(contains(T.AtMost(1, T.Linf(0.25)) & T.AtMost(1, T.Linf(0.5)), x, y, of(far)))


# in float32 these are rounded after they were made, and then a little outside
FINE = {"l2", "l1", "l2 of a few", "l1 of a few", "targets", "targets of a few"}


@pytest.mark.parametrize("name", THREATS)
def test_poisons_made_elsewhere_are_inside(name: str) -> None:
    threat, poison, task, change = THREATS[name]
    dtype = torch.float64 if name in FINE else torch.float32
    data = observed(task, dtype) if change is None else change(observed(task, dtype))
    y = targets(data.y, task, dtype)
    random = np.random.default_rng(1)
    for _ in range(5):
        made: poisons.Data = poison(data, random)
        x = threat.observed(made.x)
        assert bool(contains(threat, data.x, y, of(x, targets(made.y, task, dtype), made.weights)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", THREATS)
def test_what_attacks_make_is_inside_and_at_the_edge(name: str, dtype: str) -> None:
    threat, _, task, change = THREATS[name]
    raw = observed(task, DTYPES[dtype]) if change is None else change(observed(task, DTYPES[dtype]))
    y = targets(raw.y, task, DTYPES[dtype])
    data = Data.of(threat, raw.x, y)
    clauses = clauses_of(threat, data)
    random = torch.Generator().manual_seed(0)
    shapes = (20, *data.x.shape), (20, *y.shape), (20, len(y))
    slopes = Slopes(*(torch.randn(*shape, generator=random, dtype=torch.float64).to(y.dtype) for shape in shapes))
    made = steepest(clauses, data, slopes)
    assert bool(allowed(clauses, data, made).all())
    full = made.written_out()
    changed = (full.x.flatten(2) != data.x).any(2) | (full.y != y).any(2) | (full.weights != 1)
    assert bool(changed.any(1).all())  # none of them is the observed dataset
