"""CIFAR-10: 50,000 training and 10,000 test images of 3 x 32 x 32 pixels, from the binary archive.

A record is a byte for the class and 3072 bytes for the pixels, channel by channel. The archive is read where it stands,
nothing is unpacked; the archive for Python holds pickles, which can run code, and is not used.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fullcert.datasets.catalogue import About
from fullcert.datasets.images import Images, register_images
from fullcert.datasets.sources import files, reading

if TYPE_CHECKING:
    from tarfile import TarFile

ADDRESSES = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")
DIGEST = "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
FILES = files("cifar-10", ADDRESSES, {"cifar-10-binary.tar.gz": (170052171, DIGEST)})
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHAPE = (3, 32, 32)
RECORD, MOST = 3073, 10_000 * 3073  # bytes of a record, and of the largest member


@register_images("cifar-10", About((45000, 5000, 10000), SHAPE, 10, "none stated", FILES), CLASSES)
def read_cifar(folder: Path) -> tuple[Images, Images]:
    """Photographs of animals and vehicles."""
    import tarfile

    path = FILES[0].path(folder)
    with reading(path, "cifar-10", tarfile.TarError, KeyError), tarfile.open(path, "r:gz") as archive:
        train = [read_batch(archive, f"data_batch_{number}.bin") for number in range(1, 6)]
        test = read_batch(archive, "test_batch.bin")
        return images(np.concatenate(train)), images(test)


def read_batch(archive: "TarFile", name: str) -> np.ndarray:
    """The records of a member of the archive."""
    file = archive.extractfile(f"cifar-10-batches-bin/{name}")
    if file is None:
        raise ValueError("not a file")
    return np.frombuffer(file.read(MOST + 1), np.uint8).reshape(-1, RECORD)


def images(records: np.ndarray) -> Images:
    """The pixels and the class of every record."""
    if records[:, 0].max(initial=0) > 9:
        raise ValueError("there are ten classes")
    return records[:, 1:].reshape(-1, *SHAPE), records[:, 0]
