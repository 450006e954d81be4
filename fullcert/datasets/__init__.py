"""Datasets by name: `load(name, folder, seed)`. Each is one function in one file; a new file is imported here."""

from fullcert.datasets import bundled, cifar, mnist, moons, pneumonia  # noqa: F401  (they register themselves)
from fullcert.datasets.adult import adult_columns
from fullcert.datasets.catalogue import ABOUT, DATASETS, PAIRS, About, Dataset, Split, listed, load, register
from fullcert.datasets.moons import two_moons
from fullcert.datasets.sources import Copy, File

__all__ = [
    "ABOUT",
    "DATASETS",
    "PAIRS",
    "About",
    "Copy",
    "Dataset",
    "File",
    "Split",
    "adult_columns",
    "listed",
    "load",
    "register",
    "two_moons",
]
