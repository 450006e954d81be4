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
from boundflow.optimum.logit_bounds import Inputs
from boundflow.optimum.ranges import Observed
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


@pytest.mark.parametrize("seed", range(8))
def test_ranges_of_a_part_hold_all_of_its_datasets(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the part above, moved by how far its own fit is from there; and every row in doubt is in some part."""
    monkeypatch.setattr(branching, "WIDTH", 3)
    monkeypatch.setattr(branching._Search, "_attack", lambda *_: None)  # which would settle what is open
    rng = np.random.RandomState(seed)
    n, d, l2 = 10, 2, 0.05
    x = rng.randn(n, d)
    y = (x[:, 0] + 0.8 * rng.randn(n) > 0).astype(int)
    y[:2] = 0, 1
    certificate = bf.certify_optimum(
        nn.Linear(d, 1), (torch.tensor(x), torch.tensor(y)), threat=AtMost(3, Labels()), loss="logistic", l2=l2,
        penalise_bias=True,
    )  # fmt: skip
    whole = certificate.optima[0]
    assert isinstance(whole, Observed)
    center = Inputs(whole.rows.asked(torch.tensor(x)))
    search = branching._Search(whole, center, torch.tensor(y), np.inf)
    others = torch.arange(1, n)
    part = branching.Part((0,), others, 2, torch.arange(n), branching.Above(whole, whole.ranges()))
    of_part = search._observed(part)
    ranges = search._ranges(part, of_part)
    assert ranges is not None
    rows, own = np.c_[x, np.ones(n)], of_part.logits[0].numpy()
    for count in range(3):
        for places in itertools.combinations(range(1, n), count):
            other = y.astype(float)
            other[[0, *places]] = 1 - other[[0, *places]]
            moved = rows @ optimum("logistic", rows, other, np.ones(n), np.full(d + 1, l2 * n))[0] - own
            for row, move in enumerate(moved):
                low, high = (ranges.changed if row in places else ranges.still)[row].tolist()
                assert low - 1e-7 <= move <= high + 1e-7, (row, places)
    parts = search._divided(part, torch.zeros(n, dtype=torch.bool))
    if parts:
        assert {row for one in parts for row in (*one.wrong[1:], *one.others.tolist())} == set(others.tolist())
        assert set(parts[-1].others.tolist()) | {one.wrong[-1] for one in parts[:-1]} == set(others.tolist())
