"""CIFAR-10: 50,000 training and 10,000 test images of 3 x 32 x 32 pixels, from the binary archive.

A record is a byte for the class and 3072 bytes for the pixels, channel by channel. The archive is read where it stands,
nothing is unpacked; the archive for Python holds pickles, which can run code, and is not used.
"""

import gzip
from pathlib import Path

import numpy as np

from fullcert.data.datasets.catalogue import About
from fullcert.data.datasets.images import Images, register_images
from fullcert.data.datasets.sources import files, reading
from fullcert.system.unpacking import Limited

ADDRESSES = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")
DIGEST = "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
FILES = files("cifar-10", ADDRESSES, {"cifar-10-binary.tar.gz": (170052171, DIGEST)})
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHAPE = (3, 32, 32)
RECORD = 3073  # bytes of a record
MEMBER, MOST = 10_000 * RECORD, 2**28  # bytes of a member, and of everything in the archive
TRAIN, TEST = tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"


@register_images("cifar-10", About((45000, 5000, 10000), SHAPE, 10, "none stated", FILES), CLASSES)
def read_cifar(folder: Path) -> tuple[Images, Images]:
    """Photographs of animals and vehicles."""
    path = FILES[0].published_as("cifar-10", folder)
    with reading(path, "cifar-10"):
        batches = read_batches(path)
        return images(np.concatenate([batches[name] for name in TRAIN])), images(batches[TEST])


def read_batches(path: Path) -> dict[str, np.ndarray]:
    """The records of the members we want, in one pass: links are not followed, and only files are read."""
    import tarfile

    found = {}
    wanted = {f"cifar-10-batches-bin/{name}": name for name in (*TRAIN, TEST)}
    try:
        with gzip.open(path) as file, tarfile.open(fileobj=Limited(file, MOST), mode="r|") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isreg() and member.name in wanted else None
                if content is not None:
                    records = np.frombuffer(content.read(MEMBER + 1), np.uint8)
                    found[wanted[member.name]] = records.reshape(-1, RECORD)
    except tarfile.TarError as error:
        raise ValueError(str(error)) from None
    return found


def images(records: np.ndarray) -> Images:
    """The pixels and the class of every record."""
    if records[:, 0].max(initial=0) > 9:
        raise ValueError("there are ten classes")
    return records[:, 1:].reshape(-1, *SHAPE), records[:, 0]
