"""Optima of poisoned data, enclosed in ball arithmetic, lie inside without any tolerance.

An optimum is a zero of the gradient f. With an approximate inverse C of its derivative at a float t, and a box T around
t, the map ``t - C f(t) + (I - C f'(T)) (T - t)`` (Krawczyk) that goes into T proves that there is one, and where.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from refits import optimum
from torch import nn

import boundflow as bf
from boundflow.threats import AtMost, Labels

flint = pytest.importorskip("flint")
arb, arb_mat = flint.arb, flint.arb_mat
THOROUGH = bool(os.environ.get("BOUNDFLOW_THOROUGH"))
PROBLEMS, REFITS = (40, 5) if THOROUGH else (2, 3)
LOSSES = ("squared", "logistic", "squared_hinge")
BOX = 1e-6


def numbers(values: np.ndarray):
    return arb_mat([[arb(float(value)) for value in row] for row in np.atleast_2d(values)])


def psi(loss: str, z, y: float):
    """The derivative of the loss by the logit, and an enclosure of the derivative of that."""
    if loss == "squared":
        return z - y, arb(1)
    if loss == "logistic":
        p = 1 / (1 + (-z).exp())
        return p - y, p * (1 - p)
    s = 2 * y - 1
    gap = 1 - s * z
    if gap > 0:
        return -s * gap, arb(1)
    return (arb(0), arb(0)) if gap < 0 else (-s * gap.max(arb(0)), arb(0.5, 0.5))


def gradient(loss: str, x, y: np.ndarray, ridge, theta):
    """Of the objective times the number of rows, and its derivative."""
    d = x.ncols()
    slopes = [psi(loss, z, float(y[i])) for i, z in enumerate((x * theta).entries())]
    weighted = arb_mat([[slopes[i][1] * x[i, j] for j in range(d)] for i in range(x.nrows())])
    first = x.transpose() * arb_mat([[value] for value, _ in slopes])
    penalty = arb_mat([[ridge[i] if i == j else arb(0) for j in range(d)] for i in range(d)])
    return first + penalty * theta, x.transpose() * weighted + penalty


def enclosed(loss: str, x, y: np.ndarray, ridge, theta: np.ndarray):
    """Balls that hold the optimum, from floats that are near it; None where that is not proven."""
    d = len(theta)
    near = numbers(theta[:, None])
    for _ in range(3):  # as near as the precision lets it come
        value, derivative = gradient(loss, x, y, ridge, near)
        near = arb_mat([[entry.mid()] for entry in (near - derivative.mid().solve(value)).entries()])
    value, derivative = gradient(loss, x, y, ridge, near)
    inverse = arb_mat(derivative.mid().inv().tolist()).mid()
    for radius in (1e-25, BOX):
        apart = arb_mat([[arb(0, radius)] for _ in range(d)])
        _, over = gradient(loss, x, y, ridge, near + apart)
        unit = arb_mat([[arb(int(i == j)) for j in range(d)] for i in range(d)])
        found = (unit - inverse * over) * apart - inverse * value
        if all(abs(entry) < radius for entry in found.entries()):
            return near + found
    return None


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(PROBLEMS))
def test_enclosed_optima_are_inside(seed: int, loss: str) -> None:
    flint.ctx.prec = 200
    rng = np.random.RandomState(seed)
    n, d, k = rng.randint(8, 25), rng.randint(1, 4), rng.randint(1, 3)
    x, free = rng.randn(n, d) * 10.0 ** rng.randint(-1, 2, d), bool(rng.randint(2)) and loss != "squared_hinge"
    y, l2 = (x[:, 0] + 0.5 * rng.randn(n) * np.abs(x[:, 0]).mean() > 0).astype(int), 10.0 ** rng.uniform(-1.5, 0.5)
    y[:2] = 0, 1
    test = rng.randn(4, d) * np.abs(x).max(0)
    certificate = bf.certify_optimum(
        nn.Linear(d, 2 if loss == "squared" else 1), (torch.tensor(x), torch.tensor(y)), threat=AtMost(k, Labels()),
        loss=loss, l2=l2, penalise_bias=not free,
    )  # fmt: skip
    found = certificate.predict(test)
    low, high = (bound[:, -1].tolist() for bound in (found.lower, found.upper))
    if not np.isfinite(low).all():
        return  # nothing is claimed
    rows, asked = numbers(np.c_[x, np.ones(n)]), numbers(np.c_[test, np.ones(len(test))])
    ridge = [arb(l2) * n] * d + [arb(0) if free else arb(l2) * n]
    floats = np.array([l2 * n] * d + [0.0 if free else l2 * n])
    for _ in range(REFITS):
        other, places = y.copy(), rng.choice(n, k, replace=False)
        other[places] = 1 - other[places]
        if free and other.min() == other.max():
            continue
        theta, _ = optimum(loss, np.c_[x, np.ones(n)], other.astype(float), np.ones(n), floats)
        balls = enclosed(loss, rows, other, ridge, theta)
        assert balls is not None
        for lower, upper, answer in zip(low, high, (asked * balls).entries(), strict=True):
            assert answer >= lower and answer <= upper
