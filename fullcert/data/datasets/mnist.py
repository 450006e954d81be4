"""MNIST and Fashion-MNIST: 28 x 28 pixels, 60,000 training and 10,000 test images, in the IDX format.

An IDX file is gzipped: two zeros, the type (8: bytes), how many axes, their lengths as big-endian integers, values.
"""

import math
from pathlib import Path

import numpy as np

from fullcert.data.datasets.catalogue import About
from fullcert.data.datasets.images import Images, register_images
from fullcert.data.datasets.sources import File, files, reading
from fullcert.system import unpacking

# the two mirrors first: the publisher's own page often refuses
MNIST_ADDRESSES = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "http://yann.lecun.com/exdb/mnist/",
)
FASHION_ADDRESSES = (
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
)
TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"
MNIST_FILES = files(
    "mnist",
    MNIST_ADDRESSES,
    {
        TRAIN_IMAGES: (9912422, "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        TRAIN_LABELS: (28881, "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        TEST_IMAGES: (1648877, "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        TEST_LABELS: (4542, "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    },
)
FASHION_FILES = files(
    "fashion-mnist",
    FASHION_ADDRESSES,
    {
        TRAIN_IMAGES: (26421880, "sha256:3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        TRAIN_LABELS: (29515, "sha256:a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        TEST_IMAGES: (4422102, "sha256:346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        TEST_LABELS: (5148, "sha256:67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    },
)
CLOTHES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
SAMPLES, SHAPE = (55000, 5000, 10000), (1, 28, 28)
MOST = 16 + 60_000 * 28 * 28  # bytes of the largest file, unpacked


@register_images("mnist", About(SAMPLES, SHAPE, 10, "CC BY-SA 3.0", MNIST_FILES), tuple("0123456789"))
def read_mnist(folder: Path) -> tuple[Images, Images]:
    """Handwritten digits."""
    return read_images("mnist", MNIST_FILES, folder)


@register_images("fashion-mnist", About(SAMPLES, SHAPE, 10, "MIT", FASHION_FILES), CLOTHES)
def read_fashion_mnist(folder: Path) -> tuple[Images, Images]:
    """Pictures of clothes."""
    return read_images("fashion-mnist", FASHION_FILES, folder)


def read_images(dataset: str, sources: tuple[File, ...], folder: Path) -> tuple[Images, Images]:
    """The training and the test images, from files in this order: images, labels, images, labels."""
    train_images, train_labels, test_images, test_labels = (source.published_as(dataset, folder) for source in sources)
    return (
        read_part(train_images, train_labels, dataset),
        read_part(test_images, test_labels, dataset),
    )


def read_part(images: Path, labels: Path, dataset: str) -> Images:
    """Images with one channel, and the class of each."""
    pixels, classes = read_idx(images, dataset), read_idx(labels, dataset)
    with reading(images, dataset):
        if pixels.shape[1:] != SHAPE[1:]:
            raise ValueError("images of another size")
    with reading(labels, dataset):
        if classes.shape != pixels.shape[:1] or classes.max(initial=0) > 9:
            raise ValueError("labels of other images")
    return pixels[:, None], classes


def read_idx(path: Path, dataset: str) -> np.ndarray:
    """The array of bytes in a gzipped IDX file."""
    with reading(path, dataset):
        content = unpacking.content(path, MOST)
        if content[:3] != b"\0\0\x08" or len(content) < 4:
            raise ValueError("not an array of bytes in the IDX format")
        axes = content[3]
        shape = [int(length) for length in np.frombuffer(content, ">u4", axes, 4)]
        values = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
        if math.prod(shape) != len(values) or not axes:
            raise ValueError("cut off")
        return values.reshape(shape)
