"""Squared loss against every allowed dataset: what is certain, what can be changed, and what predictions withstand."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
import torch
from torch import nn

import boundflow as bf
from boundflow.threats import AtMost, Labels

PROBLEMS = 400 if os.environ.get("BOUNDFLOW_THOROUGH") else 40
TIE = 1e-9  # leads that differ by less are the same to within roundings


def least_leads(x, y, test, label, classes, ridge, weights, bias, k):
    """The smallest lead of the labels over every rival, (test, classes), over all datasets with k other labels."""
    rows = np.c_[x, np.ones(len(x))] if bias else x
    asked = np.c_[test, np.ones(len(test))] if bias else test
    penalty = np.diag([ridge] * x.shape[1] + [0.0] * bias)
    made = np.linalg.solve((rows.T * weights) @ rows + penalty, rows.T * weights)
    least = np.full((len(test), classes), np.inf)
    for places in itertools.combinations(range(len(x)), k):
        for labels in itertools.product(range(classes), repeat=k):
            other = y.copy()
            other[list(places)] = labels
            logits = asked @ made @ np.eye(classes)[other]
            least = np.minimum(least, logits[np.arange(len(test)), label][:, None] - logits)
    least[np.arange(len(test)), label] = np.inf
    return least


@pytest.mark.parametrize("seed", range(PROBLEMS))
def test_certain_changeable_and_withstood_are_exact(seed: int) -> None:
    rng = np.random.RandomState(seed)
    n, d, classes, k = rng.randint(5, 8), rng.randint(1, 4), rng.randint(2, 5), rng.randint(1, 4)
    k = min(k, 2 if classes > 2 else 3)
    x, test = rng.randn(n, d) * 10.0 ** rng.randint(-2, 3, d), rng.randn(6, d)
    y, weights, bias = rng.randint(classes, size=n), rng.choice([1.0, 0.5, 2.0], n), bool(rng.randint(2))
    l2 = 10.0 ** rng.uniform(-3, 0)
    head = nn.Linear(d, classes, bias=bias).double()
    certificate = bf.certify_optimum(
        head, (torch.tensor(x), torch.tensor(y)), threat=AtMost(k, Labels()), l2=l2, sample_weights=weights
    )
    answers, withstood = certificate.predict(test), certificate.withstands(test)
    label = certificate.nominal(torch.tensor(test)).argmax(1).numpy()
    true = np.full(len(test), k)
    for count in range(k, 0, -1):
        least = least_leads(x, y, test, label, classes, l2 * n, weights, bias, count).min(1)
        if count == k:
            clear = np.abs(least) > TIE
            assert (answers.certified.numpy() == (least > 0))[clear].all()
        true = np.where(least < -TIE, count - 1, true)
        clear &= np.abs(least) > TIE
    assert (np.minimum(withstood.value.numpy(), k) == true)[clear].all()


def test_targets_that_are_numbers() -> None:
    rng = np.random.RandomState(0)
    x, y, test = rng.randn(9, 2), rng.randn(9), rng.randn(5, 2)
    certificate = bf.certify_optimum(
        nn.Linear(2, 1), (torch.tensor(x), torch.tensor(y)), threat=AtMost(2, Labels(0.5)), l2=0.1
    )
    rows, asked = np.c_[x, np.ones(9)], np.c_[test, np.ones(5)]
    made = asked @ np.linalg.solve(rows.T @ rows + np.diag([0.9, 0.9, 0]), rows.T)
    reach = 0.5 * np.sort(np.abs(made), 1)[:, -2:].sum(1)
    found = certificate.predict(test)
    np.testing.assert_allclose(found.lower[:, 0], made @ y - reach, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.upper[:, 0], made @ y + reach, rtol=0, atol=1e-12)
    assert (found.lower[:, 0].numpy() <= made @ y - reach).all() and (
        found.upper[:, 0].numpy() >= made @ y + reach
    ).all()


def test_verified_labels_are_left_alone() -> None:
    rng = np.random.RandomState(1)
    x, y, test = rng.randn(8, 2), rng.randint(2, size=8), rng.randn(20, 2)
    data = torch.tensor(x), torch.tensor(y)
    certificate = bf.certify_optimum(nn.Linear(2, 2), data, threat=AtMost(2, Labels()), l2=0.1)
    only = bf.certify_optimum(nn.Linear(2, 2), data, threat=AtMost(2, Labels().on(samples=[0, 3, 5])), l2=0.1)
    found = certificate.verified([1, 2, 4, 6, 7]).predict(test)
    assert torch.equal(found.lead, only.predict(test).lead)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a mask over 3 samples"):
        certificate.verified(np.array([True, False, True]))
    with pytest.raises(ValueError, match="a mask is of truths"):
        certificate.verified([0, 1, 1])
    assert certificate.record["identity"]["data"] == only.record["identity"]["data"]
