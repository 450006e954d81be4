"""Optima of poisoned data, found by an oracle of their own, lie inside: all losses, weights, intercepts, odd data."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
import torch
from refits import optimum, slope
from torch import nn

import boundflow as bf
from boundflow.optimum import ranges
from boundflow.threats import AtMost, Labels

THOROUGH = bool(os.environ.get("BOUNDFLOW_THOROUGH"))
PROBLEMS, REFITS = (400, 256) if THOROUGH else (12, 40)
LOSSES = ("squared", "logistic", "squared_hinge", "huber")


def problem(seed: int, loss: str):
    """Rows that may be nearly separable, collinear or badly scaled, targets, weights, a ridge, and test rows."""
    rng = np.random.RandomState(seed)
    n, d = rng.randint(6, 60), rng.randint(1, 6)
    x = rng.randn(n, d)
    kind = rng.randint(4)
    if kind == 1:
        x[:, -1] = x[:, 0] * (1 + 1e-9)
    if kind == 2:
        x *= 10.0 ** rng.randint(-4, 5, d)
    if kind == 3:
        x[:, 0] += 4 * np.sign(x[:, 0])
    y = x[:, 0] / (np.abs(x[:, 0]).max() + 1e-9) + 0.1 * rng.randn(n)
    y = y if loss in ("squared", "huber") else (y > 0).astype(float)
    weights = rng.choice([1.0, 0.0, 3.0, 0.3], n, p=[0.7, 0.1, 0.1, 0.1])
    weights[:2] = 1.0
    free = loss in ("squared", "logistic") and bool(rng.randint(2))
    test = np.r_[x[:3], rng.randn(4, d) * np.abs(x).max(0)]
    return rng, x, y, weights, 10.0 ** rng.uniform(-3, 0.5), free, test


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(PROBLEMS))
def test_refits_are_inside(seed: int, loss: str) -> None:
    rng, x, y, weights, l2, free, test = problem(seed, loss)
    n, k = len(x), int(rng.randint(1, 4))
    numbers = loss in ("squared", "huber")
    targets = torch.tensor(y) if numbers else torch.tensor(y).long()
    threat = AtMost(k, Labels(0.7) if numbers else Labels())
    certificate = bf.certify_optimum(
        nn.Linear(x.shape[1], 1), (torch.tensor(x), targets), threat=threat, loss=loss, l2=l2,
        penalise_bias=not free, sample_weights=weights, width=0.4,
    )  # fmt: skip
    found = certificate.predict(test)
    low, high = found.lower[:, 0].numpy(), found.upper[:, 0].numpy()
    if not np.isfinite(low).all():
        return  # nothing is claimed
    rows, asked = np.c_[x, np.ones(n)], np.c_[test, np.ones(len(test))]
    ridge = np.array([l2 * n] * x.shape[1] + [0.0 if free else l2 * n])
    coefficients = certificate.coefficients()
    for _ in range(REFITS):
        other, places = y.copy(), rng.choice(n, k, replace=False)
        other[places] = other[places] + rng.choice([-0.7, 0.7, 0.3], k) if numbers else 1 - other[places]
        theta, left = optimum(loss, rows, other, weights, ridge, 0.4)
        if left > 1e-6 * n:
            continue
        slack = 1e-7 * (1 + np.abs(asked) @ np.abs(theta))
        answers = asked @ theta
        assert (answers >= low - slack).all() and (answers <= high + slack).all()
        slack = 1e-6 * (1 + np.abs(theta))
        assert (theta >= coefficients[0][0].numpy() - slack).all() and (
            theta <= coefficients[1][0].numpy() + slack
        ).all()


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
@pytest.mark.parametrize("seed", range(PROBLEMS // 2))
def test_a_wrong_label_changes_what_its_row_counts(seed: int, loss: str) -> None:
    """Weights of classes: refits with the weights of the labels that they are given."""
    rng, x, y, own, l2, free, test = problem(seed, loss)
    n, k, tolerance = len(x), int(rng.randint(1, 3)), [0.0, 1e-3][seed % 2]
    by_class = np.array([1.0, 10.0 ** rng.uniform(-1, 1)])
    data, threat = (torch.tensor(x), torch.tensor(y).long()), AtMost(k, Labels())
    certificate = bf.certify_optimum(
        nn.Linear(x.shape[1], 1), data, threat=threat, loss=loss, l2=l2, penalise_bias=not free, sample_weights=own,
        class_weights=by_class.tolist(), tolerance=tolerance,
    )  # fmt: skip
    found = certificate.predict(test)
    low, high = found.lower[:, 0].numpy(), found.upper[:, 0].numpy()
    rows, asked = np.c_[x, np.ones(n)], np.c_[test, np.ones(len(test))]
    ridge = np.array([l2 * n] * x.shape[1] + [0.0 if free else l2 * n])
    for _ in range(REFITS if np.isfinite(low).all() else 0):
        other, places = y.copy(), rng.choice(n, k, replace=False)
        other[places] = 1 - other[places]
        theta, left = optimum(loss, rows, other, own * by_class[other.astype(int)], ridge)
        if left > 1e-6 * n:
            continue
        answers, slack = asked @ theta, 1e-7 * (1 + np.abs(asked) @ np.abs(theta))
        assert (answers >= low - slack).all() and (answers <= high + slack).all()


@pytest.mark.parametrize("loss", LOSSES[1:])
@pytest.mark.parametrize("seed", range(0, PROBLEMS, 3))
def test_refits_are_inside_where_rows_are_many(seed: int, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of very many rows come another way (`many_rows.py`), which holds for few."""
    monkeypatch.setattr(ranges, "MANY", 0)
    test_refits_are_inside(seed, loss)


def test_many_rows_are_as_certain_as_few(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.RandomState(4)
    x = rng.randn(400, 3)
    data = torch.tensor(x), torch.tensor((x[:, 0] + 0.3 * rng.randn(400) > 0).astype(int))
    options = {"threat": AtMost(2, Labels()), "loss": "logistic", "l2": 0.1}
    few = bf.certify_optimum(nn.Linear(3, 1), data, **options).predict(x[:50])
    monkeypatch.setattr(ranges, "MANY", 0)
    certificate = bf.certify_optimum(nn.Linear(3, 1), data, **options)
    monkeypatch.setattr(ranges.Observed, "by_chords", None)  # every two rows are held against each other once
    many = certificate.predict(x[:50])
    assert (many.upper - many.lower <= 1.01 * (few.upper - few.lower)).all()


@pytest.mark.parametrize("k", [1, 2])
def test_one_more_wrong_label_never_gives_less(k: int) -> None:
    _, x, y, _, _, _, test = problem(5, "logistic")
    data = torch.tensor(x), torch.tensor(y).long()
    few, more = (
        bf.certify_optimum(nn.Linear(x.shape[1], 1), data, threat=AtMost(count, Labels()), loss="logistic", l2=1.0)
        for count in (k, k + 1)
    )
    slack = 1e-9
    assert (few.predict(test).lower >= more.predict(test).lower - slack).all()


def test_bounds_of_every_budget_are_those_of_withstands() -> None:
    rng = np.random.RandomState(3)
    x = rng.randn(60, 3)
    y, test = torch.tensor((x[:, 0] + 0.3 * rng.randn(60) > 0).astype(int)), rng.randn(40, 3)
    made = {
        k: bf.certify_optimum(
            nn.Linear(3, 1), (torch.tensor(x), y), threat=AtMost(k, Labels()), loss="logistic", l2=0.3
        )
        for k in (1, 2, 4)
    }
    value = made[4].withstands(test).value
    for k in (1, 2):
        assert torch.equal(value >= k, made[k].predict(test).certified)


@pytest.mark.parametrize("expected", [None, 0.4, 30.0])  # how far rows go, as directions of many rows are made for it
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_rows_stay_in_their_ranges(loss: str, expected: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the datasets that move them most, whether their own target stands or differs."""
    if expected is not None:
        monkeypatch.setattr(ranges, "MANY", 0)
        monkeypatch.setattr(ranges, "EXPECTED", expected)
    rng = np.random.RandomState(0)
    n, k = 40, 3
    x = np.c_[rng.randn(n, 2), np.ones(n)]
    l2 = 0.12 if loss == "logistic" else 1.5
    y, ridge = (x[:, 0] + 0.5 * rng.randn(n) > 0).astype(float), np.full(3, l2 * n)
    certificate = bf.certify_optimum(
        nn.Linear(2, 1), (torch.tensor(x[:, :2]), torch.tensor(y).long()), threat=AtMost(k, Labels()), loss=loss,
        l2=l2, penalise_bias=True,
    )  # fmt: skip
    found = certificate.optima[0].ranges()
    still, changed = (ends.numpy() for ends in found)
    theta, _ = optimum(loss, x, y, np.ones(n), ridge)
    curved = slope(loss, x @ theta, y, 1.0)[1]
    made = x @ np.linalg.solve((x.T * curved) @ x + np.diag(ridge), x.T) * (1 - 2 * y)
    for row, side in itertools.product(range(0, n, 4), (-1, 1)):
        for own in (False, True):
            places = np.argsort(side * made[row] - 1e9 * (np.arange(n) == row) * (-1) ** own)[-k:]
            other = y.copy()
            other[places] = 1 - other[places]
            moved = x @ (optimum(loss, x, other, np.ones(n), ridge)[0] - theta)
            ends = np.where((other != y)[:, None], changed, still)
            assert (moved >= ends[:, 0] - 1e-9).all() and (moved <= ends[:, 1] + 1e-9).all()
