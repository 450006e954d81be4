"""The lemma of Neyman and Pearson under bagging and flips, against everything that can happen, enumerated."""

import itertools
import random
from fractions import Fraction

import pytest

from fullcert.baselines.bagflip import BagFlip
from fullcert.baselines.likelihood import Flip, Shifts, worst

KEEP, LABEL = Fraction(3, 4), Fraction(7, 8)
POINTS = list(itertools.product((0, 1), repeat=3))  # two features and a label
NOISE = BagFlip(bag=2, keep=0.75, keep_label=0.875)


def shown(sample, noisy, features=KEEP, label=LABEL):
    """The probability that noise makes the one of the other."""
    result = Fraction(1)
    for keep, a, b in zip((features, features, label), sample, noisy, strict=True):
        result *= keep if a == b else 1 - keep
    return result


def bags(dataset):
    """Every bag of two draws, each a sample's number and what noise showed of it, and its probability."""
    one = {(i, z): shown(s, z) / len(dataset) for i, s in enumerate(dataset) for z in POINTS}
    return {(a, b): one[a] * one[b] for a in one for b in one}


def poisoned(dataset, samples):
    """Every dataset in which at most so many samples have one feature or the label changed."""
    ways = [[s, *((*s[:j], 1 - s[j], *s[j + 1 :]) for j in range(3))] for s in dataset]
    for other in itertools.product(*ways):
        if sum(a != b for a, b in zip(dataset, other, strict=True)) <= samples:
            yield other


def learners():
    """Rules that answer class 0 or 1 from a bag: sensible, odd, and arbitrary ones; none looks at numbers."""
    choose = random.Random(0)
    table = {key: choose.random() < 0.8 for key in itertools.product(POINTS, repeat=2)}
    yield lambda bag: bag[0][1][2] == 1 or bag[1][1][2] == 1
    yield lambda bag: sum(z[2] == (z[0] ^ z[1]) for _, z in bag) > 0
    yield lambda bag: all(z != (0, 0, 0) for _, z in bag)
    yield lambda bag: table[bag[0][1], bag[1][1]]


@pytest.mark.parametrize("samples", [1, 2])
def test_no_poisoned_dataset_contradicts_the_certificate(samples):
    dataset = ((0, 1, 1), (1, 1, 1), (1, 0, 1))
    shifts = NOISE.shifts(3, {1: samples})
    observed, certificates = bags(dataset), 0
    for learner in learners():
        chosen = [bag for bag in observed if learner(bag)]
        before = sum(observed[bag] for bag in chosen)
        low, high = shifts.lowest(before), shifts.highest(before)
        certificates += low > Fraction(1, 2)
        for other in poisoned(dataset, samples):
            after = bags(other)
            assert low <= sum(after[bag] for bag in chosen) <= high
    assert samples > 1 or certificates  # it says something


def test_the_bound_is_reached():
    dataset, other = ((0, 1, 1), (1, 1, 1), (1, 0, 1)), ((0, 1, 0), (1, 1, 1), (1, 0, 0))
    before, after = bags(dataset), bags(other)
    shifts = NOISE.shifts(3, {1: 2}, features=False)
    p = q = Fraction(0)
    for bag in sorted(before, key=lambda bag: after[bag] / before[bag]):  # the most telling bags first
        p, q = p + before[bag], q + after[bag]
        assert shifts.lowest(p) == q


def test_the_worst_flip_bounds_every_mixture():
    feature, label = Flip.uniform(Fraction(3, 5), 4), Flip.uniform(Fraction(4, 5), 2)
    both = worst([feature, label])
    assert both.keep / both.swap >= max(feature.keep / feature.swap, label.keep / label.swap)

    def coordinate(flip):
        return [(flip.keep, flip.swap), (flip.swap, flip.keep), (1 - flip.keep - flip.swap,) * 2]

    bound = Shifts.of_bag(3, {1: Fraction(2, 5)}, both)
    one = [(Fraction(3, 5),) * 2]  # three untouched samples of five, one with a feature and one with a label changed
    for flip in (feature, label):
        one += [(p / 5, q / 5) for p, q in coordinate(flip) if p]
    p = q = Fraction(0)
    outcomes = []
    for draws in itertools.product(one, repeat=3):
        outcomes.append((draws[0][0] * draws[1][0] * draws[2][0], draws[0][1] * draws[1][1] * draws[2][1]))
    for mass, changed in sorted(outcomes, key=lambda each: each[1] / each[0]):
        p, q = p + mass, q + changed
        assert bound.lowest(p) <= q
    assert worst([label]) == label


def test_without_noise_it_is_bagging():
    """A bag without a touched sample is all that is left: 1 - p of the rest may be lost as well (Jia et al.)."""
    shifts = BagFlip(bag=5, keep=1.0).shifts(10, {1: 2})
    untouched = Fraction(8, 10) ** 5
    assert shifts.lowest(Fraction(9, 10)) == Fraction(9, 10) - (1 - untouched)


def test_more_samples_are_never_better():
    lows = [NOISE.shifts(50, {1: r}).lowest(Fraction(4, 5)) for r in range(6)]
    assert lows == sorted(lows, reverse=True) and lows[0] == Fraction(4, 5)
    assert NOISE.shifts(50, {2: 3}).lowest(Fraction(4, 5)) < NOISE.shifts(50, {1: 3}).lowest(Fraction(4, 5))
