"""Our Two-Moons are scikit-learn's, bit for bit, and the splits are those of the published code."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_moons

from fullcert import datasets
from fullcert.mistakes import Mistake


@pytest.mark.parametrize("samples", [2, 7, 200, 1001])
@pytest.mark.parametrize("noise", [0.0, 0.1, 2.5])
@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_two_moons_are_those_of_scikit_learn(samples: int, noise: float, seed: int) -> None:
    inputs, labels = make_moons(samples, noise=noise, random_state=seed)
    ours = datasets.two_moons(samples, noise, seed)
    assert np.array_equal(ours.inputs, inputs) and np.array_equal(ours.labels, labels)


def test_splits_are_drawn_one_after_the_other() -> None:
    data = datasets.load("two-moons", Path(), seed=3)
    generator = np.random.RandomState(3)
    for split, samples in ((data.train, 1000), (data.validation, 200), (data.test, 200)):
        inputs, labels = make_moons(samples, noise=0.1, random_state=generator)
        assert np.array_equal(split.inputs, inputs) and np.array_equal(split.labels, labels)


def test_an_unknown_dataset_lists_the_known_ones() -> None:
    with pytest.raises(Mistake, match="two-moons"):
        datasets.load("three-moons", Path(), seed=0)
