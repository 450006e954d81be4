"""Datasets by name, as plain numpy arrays.

A dataset is one function with `@register(name)` above it; it takes the folder of datasets on disk and the seed
of the run, and returns its three splits. Splits and preprocessing are fixed beforehand: a threat perturbs the
values, never the split.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fullcert.mistakes import choose


@dataclass(frozen=True)
class Split:
    """Samples and their labels: inputs (N, ...) in float64, labels (N,) counted from 0."""

    inputs: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class Dataset:
    """Training, validation and test samples of one task."""

    train: Split
    validation: Split
    test: Split
    classes: int


Loader = Callable[[Path, int], Dataset]
DATASETS: dict[str, Loader] = {}


def register(name: str) -> Callable[[Loader], Loader]:
    """Make the function below the dataset called `name`."""

    def enter(loader: Loader) -> Loader:
        DATASETS[name] = loader
        return loader

    return enter


def load(name: str, folder: Path, seed: int) -> Dataset:
    """The dataset called `name`."""
    return choose("dataset", name, DATASETS)(folder, seed)


@register("two-moons")
def load_two_moons(folder: Path, seed: int) -> Dataset:
    """Two interleaving half circles with noise 0.1: 1000 training, 200 validation and 200 test samples.

    One generator, `numpy.random.RandomState(seed)`, draws the three splits in this order, which gives the very
    samples of the published FullCert code for the same seed.
    """
    generator = np.random.RandomState(seed)
    train, validation, test = (two_moons(samples, 0.1, generator) for samples in (1000, 200, 200))
    return Dataset(train, validation, test, classes=2)


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
