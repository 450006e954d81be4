"""Datasets by name: `load(name, folder, seed)`. Each is one function in one file; a new file is imported here."""

# those that register themselves
from fullcert.datasets import bundled, cifar, components, magic, mnist, moons, pneumonia  # noqa: F401
from fullcert.datasets.adult import adult_columns
from fullcert.datasets.cars import Cars, auto_mpg
from fullcert.datasets.catalogue import ABOUT, DATASETS, PAIRS, About, Dataset, Split, listed, load, register
from fullcert.datasets.moons import two_moons
from fullcert.datasets.sources import Copy, File

__all__ = [
    "ABOUT",
    "DATASETS",
    "PAIRS",
    "About",
    "Cars",
    "Copy",
    "Dataset",
    "File",
    "Split",
    "adult_columns",
    "auto_mpg",
    "listed",
    "load",
    "register",
    "two_moons",
]
