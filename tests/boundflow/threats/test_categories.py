"""Categories of some samples only: from a source that is not trusted, with a budget and without."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from membership import left_alone

import boundflow as bf
from boundflow.tensor.bounded import Bounded

T = bf.threats
GROUPS, SAMPLES = [[0, 1], [2, 3, 4]], 6
UNTRUSTED = [1, 4]


def table() -> tuple[torch.Tensor, torch.Tensor]:
    first, second = torch.arange(SAMPLES) % 2, torch.arange(SAMPLES) % 3
    x = torch.cat((F.one_hot(first, 2), F.one_hot(second, 3)), 1).double()
    return x, (first * second % 2).double()


def put(x: torch.Tensor, sample: int, first: int, second: int) -> torch.Tensor:
    """Another category in each group of a sample."""
    changed = x.clone()
    changed[sample] = torch.cat((F.one_hot(torch.tensor(first), 2), F.one_hot(torch.tensor(second), 3)))
    return changed


def test_samples_that_are_not_named_keep_their_categories() -> None:
    x, y = table()
    for samples in (UNTRUSTED, np.isin(np.arange(SAMPLES), UNTRUSTED)):
        threat = T.Categories(GROUPS).on(samples=samples)
        inputs = threat.lift(bf.Symbols(threat), x, y, torch.arange(SAMPLES)).inputs
        assert isinstance(inputs, Bounded)
        others = [sample for sample in range(SAMPLES) if sample not in UNTRUSTED]
        assert torch.equal(inputs.lower[others], x[others]) and torch.equal(inputs.upper[others], x[others])
        assert not bool(inputs.lower[UNTRUSTED].any()) and bool((inputs.upper[UNTRUSTED] == 1).all())
        assert not bool(inputs.form.generators[:, others].any())


def test_a_restriction_of_a_restriction_and_its_record() -> None:
    threat = T.Categories(GROUPS).on(samples=[1, 2]).on(samples=[2, 3])
    assert repr(threat) == "Categories([[0, 1], [2, 3, 4]]).on(samples=[2])"
    assert T.Categories(GROUPS).changes[0].samples is None, "the threat that was restricted stays as it was"
    assert repr(T.AtMost(1, threat)) == f"AtMost(1, {threat!r})"


def test_features_of_categories_are_refused() -> None:
    with pytest.raises(ValueError, match="choose groups"):
        T.Categories(GROUPS).on(features=[0])


def test_samples_that_are_not_there_are_refused() -> None:
    x, y = table()
    with pytest.raises(ValueError, match="samples up to 9"):
        T.Categories(GROUPS).on(samples=[9]).check(x, y)


def test_columns_are_counted_from_zero() -> None:
    with pytest.raises(ValueError, match="counted from 0"):
        T.Categories([[-1, 0]])


@pytest.mark.parametrize("budget", [None, 1], ids=["all of them", "one of them"])
@pytest.mark.parametrize("domain", ["zonotope", "interval"])
def test_poisoned_trainings_stay_inside(domain: str, budget: int | None) -> None:
    """Every pair of categories of the untrusted samples, and every one alone, against plain PyTorch."""
    x, y = table()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    threat: T.Threat = T.Categories(GROUPS).on(samples=UNTRUSTED)
    if budget is not None:
        threat = T.AtMost(budget, threat)
        inputs = threat.lift(bf.Symbols(threat), x, y, torch.arange(SAMPLES)).inputs
        assert isinstance(inputs, Bounded) and left_alone(inputs, x)
    options = {"loss": "bce", "epochs": 3, "optimizer_options": {"lr": 0.5}, "domain": domain}
    found = bf.certify(model, (x, y), threat=threat, **options).model
    assert found is not None
    pairs = list(itertools.product(range(2), range(3)))
    datasets = [put(x, sample, *pair) for sample in UNTRUSTED for pair in pairs]
    if budget is None:
        datasets += [put(put(x, 1, *one), 4, *other) for one, other in itertools.product(pairs, pairs)]
    for dataset in datasets:
        plain = copy.deepcopy(model)
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(plain(dataset)[:, 0], y).backward()
            optimizer.step()
        for parameter, value in zip(found.parameters(), plain.parameters(), strict=True):
            assert isinstance(parameter, Bounded) and bool(parameter.contains(value.detach()).all())
