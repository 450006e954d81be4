"""MNIST on 32 principal components: the digits that Abstract Gradient Training was measured on.

An image x, with pixels in [0, 1], becomes V (x - m): m is the mean of the training images, and the rows of V are the 32
eigenvectors of their covariance with the largest eigenvalues, with the sign that makes the entry of largest absolute
value positive. The components are fixed beforehand: a threat to labels leaves them alone, and one to images is not
about this dataset.
"""

from pathlib import Path

import numpy as np

from fullcert.data.datasets.catalogue import About, Dataset, Split, register
from fullcert.data.datasets.mnist import MNIST_FILES, read_mnist

COMPONENTS = 32


@register("mnist-32", About((60000, 10000, 10000), (COMPONENTS,), 10, "CC BY-SA 3.0", MNIST_FILES))
def load_mnist_components(folder: Path, seed: int) -> Dataset:
    """All 60,000 training images and the 10,000 of the test, which stand in for validation."""
    (train, labels), (test, test_labels) = read_mnist(folder)
    images, test_images = (pixels.reshape(len(pixels), -1) / 255.0 for pixels in (train, test))
    mean = images.mean(axis=0)
    images -= mean
    directions = principal(images, COMPONENTS)
    held = Split((test_images - mean) @ directions.T, test_labels.astype(np.int64))
    names = tuple("0123456789")
    return Dataset(Split(images @ directions.T, labels.astype(np.int64)), held, held, 10, class_names=names)


def principal(centered: np.ndarray, count: int) -> np.ndarray:
    """The directions (count, features) of the largest variance, largest first."""
    _, vectors = np.linalg.eigh(centered.T @ centered)  # eigenvalues ascend
    directions = vectors[:, ::-1][:, :count].T
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=1, keepdims=True), axis=1)
    return directions * np.sign(largest)
