"""Branching ends in certainty either way: against the optimum of every allowed dataset."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
import torch
from refits import optimum
from torch import nn

import boundflow as bf
from boundflow.optimum import branching
from boundflow.threats import AtMost, Labels

PROBLEMS = 60 if os.environ.get("BOUNDFLOW_THOROUGH") else 6


@pytest.mark.parametrize("seed", range(PROBLEMS))
def test_every_prediction_is_certain_or_changed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branching, "WIDTH", 1 + 2 * (seed % 2))  # there are few rows, and many parts
    rng = np.random.RandomState(seed)
    n, d, k, free = 12, int(rng.randint(1, 4)), int(rng.randint(1, 4)), bool(seed % 2)
    x, test = rng.randn(n, d), rng.randn(12, d)
    y = (x[:, 0] + 0.8 * rng.randn(n) > 0).astype(int)
    y[:2] = 0, 1
    l2 = 10.0 ** rng.uniform(-2, 0)
    certificate = bf.certify_optimum(
        nn.Linear(d, 1), (torch.tensor(x), torch.tensor(y)), threat=AtMost(k, Labels()), loss="logistic", l2=l2,
        penalise_bias=not free,
    )  # fmt: skip
    found = certificate.changeable(test, seconds=60)
    rows, asked = np.c_[x, np.ones(n)], np.c_[test, np.ones(len(test))]
    ridge = np.array([l2 * n] * d + [0.0 if free else l2 * n])
    label = (certificate.nominal(torch.tensor(test))[:, 0] > 0).numpy()
    least = np.full(len(test), np.inf)
    for count in range(k + 1):
        for places in itertools.combinations(range(n), count):
            other = y.astype(float)
            other[list(places)] = 1 - other[list(places)]
            if free and other.min() == other.max():
                continue  # no optimum
            logits = asked @ optimum("logistic", rows, other, np.ones(n), ridge)[0]
            least = np.minimum(least, np.where(label, logits, -logits))
    certain, changed = (found.lead > 0).numpy(), found.changed.numpy()
    assert not (certain & (least < -1e-7)).any() and not (changed & (least > 1e-7)).any()
    if not free:
        clear = np.abs(least) > 1e-6
        assert found.ended and (certain | changed)[clear].all()
    assert (found.lead.numpy()[certain] <= least[certain] + 1e-7).all()


def test_no_lead_is_above_that_of_the_observed_labels() -> None:
    """Where every row in doubt can only raise a lead, the worst dataset is the observed one."""
    rng = np.random.RandomState(0)
    x, test = rng.randn(30, 2), np.stack(np.meshgrid(*[np.linspace(-0.5, 0.5, 15)] * 2), -1).reshape(-1, 2)
    y = (x[:, 0] + 0.7 * rng.randn(30) > 0).astype(int)
    doubt = np.flatnonzero((y == 0) & (x @ [0.15, 0.1] > 0)).tolist()
    certificate = bf.certify_optimum(
        nn.Linear(2, 1), (torch.tensor(x), torch.tensor(y)), threat=AtMost(1, Labels().on(samples=doubt)),
        loss="logistic", l2=0.02,
    )  # fmt: skip
    found, observed = certificate.changeable(test), certificate.nominal(torch.tensor(test))[:, 0].abs()
    open_to_chords = ~certificate.predict(test).certified
    assert bool((open_to_chords & (found.lead > 0)).any())
    assert bool((found.lead <= observed + 1e-6).all())
