"""Datasets by name: `load(name, folder, seed)`. Each is one function in one file; a new file is imported here."""

# those that register themselves
from fullcert.data.datasets import bundled, cifar, components, magic, mnist, moons, pneumonia  # noqa: F401
from fullcert.data.datasets.adult import adult_columns
from fullcert.data.datasets.cars import Cars, auto_mpg
from fullcert.data.datasets.catalogue import ABOUT, DATASETS, PAIRS, About, Dataset, Split, listed, load, register
from fullcert.data.datasets.moons import two_moons
from fullcert.data.datasets.sources import Copy, File

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
