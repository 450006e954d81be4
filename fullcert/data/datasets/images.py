"""Images of ten classes, all of them or two: one registration makes a family and all of its pairs.

Inputs are (N, channels, height, width) in [0, 1]. The last training samples in the published order are held out for
validation: 5000 of a whole family, 1000 of a pair. Of `mnist-1-7` the ones have label 0 and the sevens label 1.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fullcert.data.datasets.catalogue import ABOUT, DATASETS, PAIRS, About, Dataset, Split
from fullcert.system.mistakes import Mistake

Images = tuple[np.ndarray, np.ndarray]  # bytes (N, channels, height, width), and classes (N,)
Reader = Callable[[Path], tuple[Images, Images]]  # from the folder of datasets, the training and the test images
HELD, HELD_OF_PAIR = 5000, 1000


def register_images(name: str, about: About, class_names: tuple[str, ...]) -> Callable[[Reader], Reader]:
    """Make the images that the function below reads the dataset called `name`, and every pair `name-A-B` another."""

    def enter(read: Reader) -> Reader:
        def whole(folder: Path, seed: int) -> Dataset:
            return divided(name, *read(folder), HELD, class_names)

        def pair(folder: Path, classes: tuple[int, int]) -> Dataset:
            train, test = (only(images, classes) for images in read(folder))
            return divided(name, train, test, HELD_OF_PAIR, tuple(class_names[label] for label in classes))

        ABOUT[name], DATASETS[name], PAIRS[name] = about, whole, pair
        return read

    return enter


def only(images: Images, classes: tuple[int, int]) -> Images:
    """The images of two classes, labelled 0 and 1."""
    pixels, labels = images
    chosen = (labels == classes[0]) | (labels == classes[1])
    return pixels[chosen], (labels[chosen] == classes[1]).astype(np.int64)


def divided(name: str, train: Images, test: Images, held: int, class_names: tuple[str, ...]) -> Dataset:
    """The dataset with the last `held` training samples as its validation set."""
    if len(train[0]) <= held or not len(test[0]):
        raise Mistake(f"the files of {name} have too few images: check them with fullcert datasets verify {name}")
    kept, last = split(train[0][:-held], train[1][:-held]), split(train[0][-held:], train[1][-held:])
    return Dataset(kept, last, split(*test), len(class_names), class_names=class_names, valid=(0.0, 1.0))


def split(pixels: np.ndarray, labels: np.ndarray) -> Split:
    """Bytes as numbers in [0, 1]."""
    return Split(pixels / 255.0, labels.astype(np.int64))
