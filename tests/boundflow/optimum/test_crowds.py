"""Rows of which some classes alone are possible, such as those of a crowd: against every dataset that they allow."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
import torch
from refits import optimum
from torch import nn

import boundflow as bf
from boundflow.threats import AtMost, Labels

CROWDS = 400 if os.environ.get("BOUNDFLOW_THOROUGH") else 30
TIE = 1e-9  # leads that differ by less are the same to within roundings
X, Y = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64), torch.arange(6) % 3


def crowd(rng, classes: int):
    """Inputs, labels, test inputs, which classes each row can have, and which rows are in doubt."""
    n, d = rng.randint(5, 8), rng.randint(1, 4)
    x, test, y = rng.randn(n, d), rng.randn(8, d), rng.randint(classes, size=n)
    among = rng.rand(n, classes) < 0.4
    among[np.arange(n), y] = True
    doubted = np.flatnonzero(rng.rand(n) < 0.8) if rng.randint(2) else np.arange(n)
    return x, y, test, among, doubted


def datasets(y, among, doubted, k):
    """All labels that differ from y in at most k of the rows in doubt, each within its own classes."""
    choices = [np.flatnonzero(among[i]) if i in doubted else y[i : i + 1] for i in range(len(y))]
    found = np.array(list(itertools.product(*choices)))
    return found if k is None else found[(found != y).sum(1) <= k]


def threat_of(among, doubted, k):
    labels = Labels(among=among).on(samples=doubted)
    return labels if k is None else AtMost(k, labels)


@pytest.mark.parametrize("seed", range(CROWDS))
def test_crowds_are_exact_for_every_ridge(seed: int) -> None:
    """Squared loss: certain exactly where all datasets and ridges agree, and what is withstood is the true number."""
    rng = np.random.RandomState(seed)
    classes = rng.randint(2, 5)
    x, y, test, among, doubted = crowd(rng, classes)
    k = [None, 1, 2, 3][rng.randint(4)]
    grid = sorted(10.0 ** rng.uniform(-2, 0, rng.randint(1, 4)))
    certificate = bf.certify_optimum(
        nn.Linear(x.shape[1], classes), (torch.tensor(x), torch.tensor(y)), threat=threat_of(among, doubted, k), l2=grid
    )
    label = certificate.nominal(torch.tensor(test)).argmax(1).numpy()
    rows, asked = np.c_[x, np.ones(len(x))], np.c_[test, np.ones(len(test))]
    others = datasets(y, among, doubted, k)
    wrong, least = (others != y).sum(1), np.full((len(others), len(test)), np.inf)
    for ridge in grid:
        penalty = np.diag([ridge * len(x)] * x.shape[1] + [0.0])
        made = asked @ np.linalg.solve(rows.T @ rows + penalty, rows.T)
        logits = np.einsum("ti,sic->stc", made, np.eye(classes)[others])
        lead = np.take_along_axis(logits, label[None, :, None], 2) - logits
        lead[:, np.arange(len(test)), label] = np.inf
        least = np.minimum(least, lead.min(2))
    clear = np.abs(least).min(0) > TIE
    assert (certificate.predict(test).certified.numpy() == (least > 0).all(0))[clear].all()
    if k is not None and len(doubted):
        most = min(k, int(wrong.max()))
        fewest = np.where(least <= 0, wrong[:, None], most + 1).min(0) - 1
        assert (np.minimum(certificate.withstands(test).value.numpy(), most) == fewest)[clear].all()


@pytest.mark.parametrize("seed", range(60 if os.environ.get("BOUNDFLOW_THOROUGH") else 6))
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_optima_of_every_dataset_of_a_crowd_are_inside(seed: int, loss: str) -> None:
    """Two classes, a grid of ridges: and with one ridge, branching ends in certainty either way."""
    rng = np.random.RandomState(seed)
    x, y, test, among, doubted = crowd(rng, 2)
    k = [None, 1, 2][seed % 3]
    grid = [0.1, 0.7] if seed % 2 else [0.2]
    data, threat = (torch.tensor(x), torch.tensor(y)), threat_of(among, doubted, k)
    certificate = bf.certify_optimum(
        nn.Linear(x.shape[1], 1), data, threat=threat, loss=loss, l2=grid, penalise_bias=True
    )
    found, label = certificate.predict(test), (certificate.nominal(torch.tensor(test))[:, 0] > 0).numpy()
    rows, asked = np.c_[x, np.ones(len(x))], np.c_[test, np.ones(len(test))]
    logits = np.array([
        asked @ optimum(loss, rows, other.astype(float), np.ones(len(x)), np.full(rows.shape[1], ridge * len(x)))[0]
        for ridge in grid for other in datasets(y, among, doubted, k)
    ])  # fmt: skip
    assert (found.lower[:, 0].numpy() <= logits.min(0) + 1e-7).all()
    assert (found.upper[:, 0].numpy() >= logits.max(0) - 1e-7).all()
    if loss == "logistic" and k is not None and len(grid) == 1:
        ended = certificate.changeable(test)
        least = np.where(label, logits, -logits).min(0)
        assert ended.ended
        assert ((ended.lead > 0).numpy() == (least > 0))[np.abs(least) > 1e-6].all()
        assert (ended.changed.numpy() == (least < 0))[np.abs(least) > 1e-6].all()


def test_a_crowd_is_written_as_python() -> None:
    labels = Labels(among=[[0, 2], [1], [0, 1, 2]])
    assert repr(labels) == "Labels(classes=3, among=[[0, 2], [1], [0, 1, 2]])"
    assert repr(eval(repr(labels.on(samples=[0, 2])))) == repr(labels.on(samples=[0, 2]))
    truths = np.array([[True, False, True], [False, True, False], [True, True, True]])
    assert repr(Labels(among=truths)) == repr(Labels(among=torch.tensor(truths))) == repr(labels)


REFUSED = {
    "numbers and classes": (lambda: Labels(0.1, among=[[0]]), ValueError, "give one of them"),
    "numbers instead of truths": (lambda: Labels(among=np.ones((3, 2))), ValueError, "a truth for each"),
    "truths in lists": (lambda: Labels(among=[[True, False]]), ValueError, "whole numbers"),
    "nothing allowed": (lambda: Labels(among=[[0], []]), ValueError, "no class for sample 1"),
    "other classes": (lambda: Labels(classes=2, among=[[0, 2]]), ValueError, "classes is 2"),
    "the label not among them": (lambda: at_the_optimum([[0, 1]] * 6), ValueError, "sample 2 has the label 2"),
    "too few samples": (lambda: at_the_optimum([[0, 1, 2]] * 5), ValueError, "5 samples, and there are 6"),
    "step by step": (
        lambda: AtMost(1, Labels(among=[[0, 1, 2]] * 6)).check(X, Y), bf.BoundFlowError, "certify_optimum"
    ),
}  # fmt: skip


def at_the_optimum(among):
    return bf.certify_optimum(nn.Linear(2, 3), (X, Y), threat=Labels(classes=3, among=among), l2=0.1)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str) -> None:
    made, error, words = REFUSED[name]
    with pytest.raises(error, match=words) as refused:
        made()
    assert "\n" not in str(refused.value)
