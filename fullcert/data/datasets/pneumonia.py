"""PneumoniaMNIST of MedMNIST v2: chest X-rays of children, 28 x 28 pixels, healthy (0) or with pneumonia (1)."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fullcert.data import npz
from fullcert.data.datasets.catalogue import About, Dataset, Split, register
from fullcert.data.datasets.images import split
from fullcert.data.datasets.sources import Copy, File, reading

FILE = File(
    Copy(
        "pneumoniamnist/pneumoniamnist.npz",
        4170669,
        "sha256:e1792d3f03751cb101e99f19a63b3c1941436c988665f47853417b05be250cd8",
    ),
    (
        "https://zenodo.org/records/10519652/files/pneumoniamnist.npz?download=1",
        "https://zenodo.org/records/6496656/files/pneumoniamnist.npz?download=1",
    ),
    others=(
        Copy(  # put together from public copies: the same images, the training ones in another order
            "pneumoniamnist/pneumoniamnist_reassembled.npz",
            4171077,
            "sha256:ce8250bf5debc3c389b89affcc1d9feac579b26e875a848301e9f937bb0c2eee",
        ),
    ),
)
SHAPE = (1, 28, 28)


@register("pneumonia-mnist", About((4708, 524, 624), SHAPE, 2, "CC BY 4.0", (FILE,)))
def load_pneumonia_mnist(folder: Path, seed: int) -> Dataset:
    """The published splits: 4708 training, 524 validation and 624 test images with pixels in [0, 1].

    The reassembled copy has the same images in each split, but another order in training: its runs are others.
    """
    return read_splits(FILE.published_as("pneumonia-mnist", folder))


def read_splits(path: Path) -> Dataset:
    """The splits in one archive of arrays."""
    with reading(path, "pneumonia-mnist"), path.open("rb") as file:
        arrays = dict(npz.arrays(file))
        train, validation, test = (read_split(arrays, part) for part in ("train", "val", "test"))
    return Dataset(train, validation, test, 2, class_names=("normal", "pneumonia"), valid=(0.0, 1.0))


def read_split(arrays: Mapping[str, np.ndarray], part: str) -> Split:
    """The images and labels of one split."""
    pixels, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
    if pixels.dtype != np.uint8 or not len(pixels) or not np.isin(labels, (0, 1)).all():
        raise ValueError("neither pixels in bytes nor labels of two classes")
    return split(pixels.reshape(len(pixels), *SHAPE), labels.reshape(len(pixels)))
