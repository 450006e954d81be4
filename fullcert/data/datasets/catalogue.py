"""Datasets by name, as plain numpy arrays.

A dataset is one function with `@register(name, about)` above it; it takes the folder of datasets on disk and the seed
of the run, and returns its three splits. A family of images with ten classes has its pairs of classes too: `mnist-1-7`
is the ones and sevens of `mnist`. Splits and preprocessing are fixed beforehand: a threat perturbs the values, never
the split.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fullcert.data.datasets.sources import File
from fullcert.system.mistakes import Mistake


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
    features: tuple[str, ...] | None = None  # names of the columns
    class_names: tuple[str, ...] | None = None
    valid: tuple[float, float] | None = None  # the range of values an input can have


@dataclass(frozen=True)
class About:
    """What is known of a dataset without loading it."""

    samples: tuple[int, int, int]  # training, validation, test
    shape: tuple[int, ...]
    classes: int  # 0: numbers are predicted
    licence: str
    files: tuple[File, ...] = ()
    package: str | None = None  # whose copy of the data is read


Loader = Callable[[Path, int], Dataset]
PairLoader = Callable[[Path, tuple[int, int]], Dataset]
DATASETS: dict[str, Loader] = {}
PAIRS: dict[str, PairLoader] = {}  # families whose pairs of classes are datasets too
ABOUT: dict[str, About] = {}


def register(name: str, about: About | None = None) -> Callable[[Loader], Loader]:
    """Make the function below the dataset called `name`."""

    def enter(loader: Loader) -> Loader:
        DATASETS[name] = loader
        if about is not None:
            ABOUT[name] = about
        return loader

    return enter


def load(name: str, folder: Path, seed: int) -> Dataset:
    """The dataset called `name`."""
    if name in DATASETS:
        return DATASETS[name](folder, seed)
    if name in ABOUT and not ABOUT[name].classes:
        table = ABOUT[name].files[0].path(folder)
        raise Mistake(f"{name} has numbers to predict, not classes: give its table, with --data {table} and --target")
    family, pair = pair_of(name)
    return PAIRS[family](folder, pair)


def pair_of(name: str) -> tuple[str, tuple[int, int]]:
    """A family and two of its classes: `mnist-1-7` is ("mnist", (1, 7))."""
    found = re.fullmatch(r"(.+)-([0-9])-([0-9])", name)
    if not found or found[1] not in PAIRS:
        known = (one for one, about in ABOUT.items() if about.classes)
        names = ", ".join(sorted({*DATASETS, *known, *(f"{family}-A-B" for family in PAIRS)}))
        raise Mistake(f"there is no dataset called {name!r}: choose one of {names} (A and B: two classes from 0 to 9)")
    if found[2] == found[3]:
        raise Mistake(f"{name!r} names one class twice: choose two classes, such as {found[1]}-1-7")
    return found[1], (int(found[2]), int(found[3]))


def listed(name: str) -> str:
    """Under which name a dataset is listed: a pair of classes is part of its family."""
    return name if name in ABOUT else pair_of(name)[0]
