"""Two moons: interleaving half circles with noise, drawn here, not read."""

from pathlib import Path

import numpy as np

from fullcert.data.datasets.catalogue import About, Dataset, Split, register

GENERATED = "none needed"


@register("two-moons", About((1000, 200, 200), (2,), 2, GENERATED))
def load_two_moons(folder: Path, seed: int) -> Dataset:
    """Two interleaving half circles with noise 0.1: 1000 training, 200 validation and 200 test samples.

    One generator, `numpy.random.RandomState(seed)`, draws the three splits in this order, which gives the very
    samples of the published FullCert code for the same seed.
    """
    generator = np.random.RandomState(seed)
    train, validation, test = (two_moons(samples, 0.1, generator) for samples in (1000, 200, 200))
    return Dataset(train, validation, test, classes=2, features=("x", "y"))


@register("half-moons", About((3000, 500, 500), (6,), 2, GENERATED))
def load_half_moons(folder: Path, seed: int) -> Dataset:
    """The half-moons of Abstract Gradient Training: 3000 training and 500 test samples of 6 features.

    Two moons, class 0 moved up by 0.2, features (x, x^2, x^3). The published recipe has one dataset and no validation
    set: whatever the seed, the samples are the same, and the test samples stand in for validation.
    """
    moons = two_moons(3500, 0.1, 0)
    inputs, labels = moons.inputs.copy(), moons.labels
    inputs[labels == 0, 1] += 0.2
    inputs = np.concatenate([inputs, inputs**2, inputs**3], axis=1)
    order = np.random.RandomState(42).permutation(len(inputs))  # scikit-learn's train_test_split takes the test first
    test, train = (Split(inputs[part], labels[part]) for part in (order[:500], order[500:]))
    return Dataset(train, test, test, classes=2, features=("x", "y", "x^2", "y^2", "x^3", "y^3"))


def two_moons(samples: int, noise: float, seed: int | np.random.RandomState) -> Split:
    """The same values, bit for bit, as scikit-learn's `make_moons(samples, noise=noise, random_state=seed)`."""
    generator = seed if isinstance(seed, np.random.RandomState) else np.random.RandomState(seed)
    upper, lower = samples // 2, samples - samples // 2
    upper_angle, lower_angle = np.linspace(0, np.pi, upper), np.linspace(0, np.pi, lower)
    upper_moon = np.stack([np.cos(upper_angle), np.sin(upper_angle)], axis=1)
    lower_moon = np.stack([1 - np.cos(lower_angle), 1 - np.sin(lower_angle) - 0.5], axis=1)
    inputs, labels = np.concatenate([upper_moon, lower_moon]), np.repeat([0, 1], [upper, lower])
    order = np.arange(samples)
    generator.shuffle(order)  # first the order, then the noise: scikit-learn draws in this order
    return Split(inputs[order] + generator.normal(scale=noise, size=inputs.shape), labels[order])
