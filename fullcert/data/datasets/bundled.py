"""Small datasets that scikit-learn brings along; nothing is downloaded.

They have no order of their own, so one fixed permutation, the same for every run, puts three fifths into training, one
fifth into validation and one into the test. The columns of breast-cancer and iris are scaled so that the training
samples span [0, 1]; the scale is fixed beforehand, as the split is, and a threat perturbs scaled values.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fullcert.data.datasets.catalogue import About, Dataset, Split, register
from fullcert.system.mistakes import Mistake

LICENCE = "CC BY 4.0"


@register("breast-cancer", About((341, 114, 114), (30,), 2, LICENCE, package="sklearn"))
def load_breast_cancer(folder: Path, seed: int) -> Dataset:
    """Breast Cancer Wisconsin: 30 measurements of cells, malignant (0) or benign (1); 341, 114 and 114 samples."""
    return table(bundled("load_breast_cancer"))


@register("iris", About((90, 30, 30), (4,), 3, LICENCE, package="sklearn"))
def load_iris(folder: Path, seed: int) -> Dataset:
    """Fisher's irises: lengths and widths of sepals and petals, three species; 90, 30 and 30 samples."""
    return table(bundled("load_iris"))


@register("digits", About((1079, 359, 359), (1, 8, 8), 10, LICENCE, package="sklearn"))
def load_digits(folder: Path, seed: int) -> Dataset:
    """Handwritten digits of 8 x 8 pixels, 17 shades of grey in [0, 1]; 1079, 359 and 359 samples."""
    bunch = bundled("load_digits")
    parts = divided(bunch.images[:, None] / 16.0, bunch.target)
    return Dataset(*parts, classes=10, class_names=tuple("0123456789"), valid=(0.0, 1.0))


def bundled(name: str) -> Any:
    """What one of scikit-learn's functions loads."""
    try:
        from sklearn import datasets
    except ModuleNotFoundError:
        raise Mistake("this dataset is part of scikit-learn, which is not here: pip install scikit-learn") from None
    load: Callable[[], Any] = getattr(datasets, name)
    return load()


def table(bunch: Any) -> Dataset:
    """A table of numbers with its columns scaled."""
    train, validation, test = divided(bunch.data, bunch.target)
    low, high = train.inputs.min(axis=0), train.inputs.max(axis=0)
    parts = [Split((part.inputs - low) / (high - low), part.labels) for part in (train, validation, test)]
    names = tuple(map(str, bunch.target_names))
    features = tuple(map(str, bunch.feature_names))
    return Dataset(parts[0], parts[1], parts[2], len(names), features=features, class_names=names)


def divided(inputs: np.ndarray, labels: np.ndarray) -> tuple[Split, Split, Split]:
    """Training, validation and test samples, by one permutation whatever the seed of the run."""
    order, fifth = np.random.RandomState(0).permutation(len(inputs)), len(inputs) // 5 + (len(inputs) % 5 > 2)
    test, validation, train = np.split(order, [fifth, 2 * fifth])
    first, second, third = (Split(inputs[part], labels[part].astype(np.int64)) for part in (train, validation, test))
    return first, second, third
