"""BagFlip as a whole: what its noise does, and its certificates against the true smoothed classifier."""

import itertools
from fractions import Fraction

import torch
from torch import nn

from fullcert.baselines.bagflip import BagFlip, certified
from fullcert.baselines.ensembles import Learner


def linear(features: int) -> nn.Linear:
    network = nn.Linear(features, 2).double()
    for parameter in network.parameters():
        nn.init.zeros_(parameter)
    return network


LEARNER = Learner(linear(2), steps=3, lr=1.0)


def test_noise_has_the_probabilities_it_claims():
    noise = BagFlip(bag=200, keep=0.6, categories=4, classes=3, keep_label=0.8)
    x, y = torch.full((5, 2), 1), torch.full((5,), 2)
    bags, labels = noise.bags(x, y, 200, torch.Generator().manual_seed(0))
    assert bags.shape == (200, 200, 2) and labels.shape == (200, 200)
    shares = torch.bincount(bags.flatten(), minlength=4) / bags.numel()
    assert torch.allclose(shares, torch.tensor([0.4 / 3, 0.6, 0.4 / 3, 0.4 / 3]), atol=0.01)
    assert torch.allclose(torch.bincount(labels.flatten()) / labels.numel(), torch.tensor([0.1, 0.1, 0.8]), atol=0.01)


class Even:
    """Whatever the probabilities were, an attacker can make both classes as likely as each other."""

    def lowest(self, probability):
        return Fraction(1, 2)

    def highest(self, probability):
        return Fraction(1, 2)


def test_a_tie_is_not_certified():
    assert not certified(torch.tensor([[1000, 0], [0, 1000]]), Even()).any()


def smoothed(x, y, noise, points):
    """The true probability of class 1 at every point: every bag of two draws, weighted."""
    categories = list(itertools.product((0, 1), repeat=3))
    one = {}
    for sample in torch.cat((x, y.unsqueeze(1)), 1).tolist():
        for shown in categories:
            kept = sum(a == b for a, b in zip(sample, shown, strict=True))
            one[shown] = one.get(shown, 0.0) + noise.keep**kept * (1 - noise.keep) ** (3 - kept) / len(x)
    bags = torch.tensor(list(itertools.product(categories, repeat=2)))
    weights = torch.tensor([one[a] * one[b] for a, b in itertools.product(categories, repeat=2)], dtype=torch.float64)
    answers = LEARNER.answers(LEARNER.fit(bags[..., :2].double(), bags[..., 2]), points.double())
    return weights @ answers.double()


def test_certificates_hold_for_every_poisoned_dataset():
    x, y = torch.tensor([[1, 0], [0, 1], [1, 1], [1, 0], [0, 0], [1, 1]]), torch.tensor([1, 1, 1, 1, 0, 1])
    points, noise = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]), BagFlip(bag=2, keep=0.95)
    votes = noise.votes(LEARNER, (x, y), points, models=1000, encoded=torch.Tensor.double)
    truth = smoothed(x, y, noise, points)
    assert torch.allclose(votes[:, 1] / 1000, truth.float(), atol=0.06)
    safe, label = certified(votes, noise.shifts(6, {1: 1})), votes.argmax(1)
    assert safe.any()
    for i, j in itertools.product(range(6), range(3)):  # one feature or the label of one sample
        data = torch.cat((x, y.unsqueeze(1)), 1)
        data[i, j] = 1 - data[i, j]
        after = smoothed(data[:, :2], data[:, 2], noise, points)
        assert torch.equal((after > 0.5).long()[safe], label[safe])


def test_votes_do_not_depend_on_how_many_are_trained_at_a_time():
    x, y = torch.tensor([[1, 0], [0, 1], [1, 1]]), torch.tensor([1, 0, 1])
    bags, labels = BagFlip(bag=4, keep=0.9).bags(x, y, 6, torch.Generator().manual_seed(1))
    together = LEARNER.fit(bags.double(), labels)
    for number in range(6):
        alone = LEARNER.fit(bags[number : number + 1].double(), labels[number : number + 1])
        assert torch.allclose(together["weight"][number], alone["weight"][0])


def test_three_classes_need_both_bounds():
    noise = BagFlip(bag=5, keep=0.9, classes=3)
    votes = torch.tensor([[900, 60, 40], [520, 470, 10], [1000, 0, 0]])
    assert certified(votes, noise.shifts(1000, {1: 2})).tolist() == [True, False, True]
    assert noise.flip().keep / noise.flip().swap == max(
        noise.flip(labels=False).keep / noise.flip(labels=False).swap,
        noise.flip(features=False).keep / noise.flip(features=False).swap,
    )
    assert not certified(votes, noise.shifts(1000, {1: 1000})).any()
    assert Fraction(noise.keep) == noise.flip(labels=False).keep
