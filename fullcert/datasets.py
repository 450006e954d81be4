"""Datasets by name, as plain numpy arrays.

A dataset is one function with `@register(name)` above it; it takes the folder of datasets on disk and the seed
of the run, and returns its three splits. Splits and preprocessing are fixed beforehand: a threat perturbs the
values, never the split.
"""

import gzip
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fullcert.mistakes import Mistake, choose


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


@register("half-moons")
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
    return Dataset(train, test, test, classes=2)


@register("mnist-1-7")
def load_mnist_1_7(folder: Path, seed: int) -> Dataset:
    """Handwritten ones (label 0) and sevens (label 1), 784 pixels in [0, 1]; 1000 held out for validation."""
    train, test = (_digits(folder / "mnist", part, (1, 7)) for part in ("train", "t10k"))
    kept, held = (Split(train.inputs[part], train.labels[part]) for part in (slice(None, -1000), slice(-1000, None)))
    return Dataset(kept, held, test, classes=2)


def _digits(folder: Path, part: str, pair: tuple[int, int]) -> Split:
    """Two digits of MNIST, from the files as published."""
    images = _idx(folder / f"{part}-images-idx3-ubyte.gz").reshape(-1, 784)
    digits = _idx(folder / f"{part}-labels-idx1-ubyte.gz")
    chosen = (digits == pair[0]) | (digits == pair[1])
    return Split(images[chosen] / 255.0, (digits[chosen] == pair[1]).astype(np.int64))


def _idx(path: Path) -> np.ndarray:
    """An array in the IDX format: two zeros, the type (8: bytes), how many axes, their lengths, values."""
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise Mistake(f"{path} cannot be read: {error}. Point --data-dir or BOUNDFLOW_DATA at the datasets") from None
    axes = content[3] if content[:3] == b"\0\0\x08" else 0
    shape = np.frombuffer(content, ">i4", axes, 4)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
    if not axes or len(values) != np.prod(shape):
        raise Mistake(f"{path} is not an array of bytes in the IDX format, or it was cut off")
    return values.reshape(shape)


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
