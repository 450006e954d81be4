"""Deep Partition Aggregation: certificates against members that are trained again on what an attacker left."""

import itertools

import pytest
import torch
from torch import nn

from fullcert.baselines.dpa import Partition, certified_parts, first
from fullcert.baselines.ensembles import Learner


def test_votes_against_every_outcome():
    """The number is exact: so many touched parts never change the vote, one more can."""
    for votes in itertools.product(range(5), repeat=3):
        row = torch.tensor([votes])
        winner, parts = int(first(row)), int(certified_parts(row))
        assert winner == max(range(3), key=lambda each: (votes[each], -each))
        for touched in (parts, parts + 1):
            after = [(votes[winner] - touched, votes[b] + touched, b) for b in range(3) if b != winner]
            stays = all(own > other or (own == other and winner < b) for own, other, b in after)
            assert stays == (touched == parts)


@pytest.fixture
def case():
    generator = torch.Generator().manual_seed(3)
    y = torch.arange(18) // 2 % 2
    x = torch.randn(18, 2, generator=generator, dtype=torch.float64) + 4.0 * y.unsqueeze(1) - 2.0
    network = nn.Linear(2, 2).double()
    for parameter in network.parameters():
        nn.init.zeros_(parameter)
    return Learner(network, steps=5, lr=0.5), x, y, torch.tensor([[-2.0, -2.0], [2.0, 2.0], [0.1, 0.0]]).double()


def test_removed_samples(case):
    """All ways to take out one or two of the samples, members trained again."""
    learner, x, y, points = case
    votes = Partition.by_content(x, 7, length=6).votes(learner, x, y, points, 2)
    parts = certified_parts(votes)
    assert parts.max() >= 2
    for removed in (1, 2):
        for gone in itertools.combinations(range(len(x)), removed):
            left = torch.tensor([i for i in range(len(x)) if i not in gone])
            after = Partition.by_content(x[left], 7, length=6).votes(learner, x[left], y[left], points, 2)
            assert torch.equal(first(after)[parts >= removed], first(votes)[parts >= removed])


def test_changed_samples_in_their_place(case):
    learner, x, y, points = case
    votes = Partition.by_position(len(x), 7).votes(learner, x, y, points, 2)
    parts = certified_parts(votes)
    assert parts.max() >= 1
    for sample in range(len(x)):
        other, labels = x.clone(), y.clone()
        other[sample], labels[sample] = 100.0 * (1 - 2 * labels[sample]), 1 - labels[sample]
        after = Partition.by_position(len(x), 7).votes(learner, other, labels, points, 2)
        assert (after - votes).abs().sum(1).max() <= 2  # one member at most
        assert torch.equal(first(after)[parts >= 1], first(votes)[parts >= 1])


def test_parts_by_content_do_not_depend_on_the_order(case):
    learner, x, y, points = case
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    votes = Partition.by_content(x, 3).votes(learner, x, y, points, 2)
    assert torch.equal(votes, Partition.by_content(x[order], 3).votes(learner, x[order], y[order], points, 2))


def test_an_empty_part_has_the_model_that_nothing_was_taught(case):
    learner, x, y, points = case
    votes = Partition.by_position(2, 5).votes(learner, x[:2], y[:2], points, 2)
    assert torch.equal(votes.sum(1), torch.full((3,), 5))
    assert (votes[:, 0] >= 3).all()  # a network of zeros answers the first class
