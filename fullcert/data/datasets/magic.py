"""MAGIC gamma telescope: showers of gamma rays (0) or of hadrons (1), from ten numbers of their image.

The recipe of Abstract Gradient Training: four fifths are training and one fifth test, stratified, by scikit-learn's
`train_test_split` with seed 42; columns are standardised by the training part, which is fixed beforehand.
"""

from pathlib import Path

import numpy as np

from fullcert.data.datasets.catalogue import About, Dataset, Split, register
from fullcert.data.datasets.sources import Copy, File, reading
from fullcert.data.datasets.splitting import standardised, stratified
from fullcert.system import unpacking

SIZE, DIGEST = 1477391, "sha256:e9314b7ebd4b4b59a3b3d65f7316663963777b16a46786877651dbbaa640b36a"
FILE = File(
    Copy("magic/magic04.data", SIZE, DIGEST),
    ("https://archive.ics.uci.edu/ml/machine-learning-databases/magic/magic04.data",),
    (Copy("magic/magic04.data.gz", SIZE, DIGEST, gzipped=True),),
)
FEATURES = ("length", "width", "size", "conc", "conc1", "asymmetry", "m3-long", "m3-trans", "alpha", "distance")
ROWS, TEST_ROWS = 19020, 3804


@register("magic", About((ROWS - TEST_ROWS, TEST_ROWS, TEST_ROWS), (len(FEATURES),), 2, "CC BY 4.0", (FILE,)))
def load_magic(folder: Path, seed: int) -> Dataset:
    """15,216 training and 3804 test samples, the same whatever the seed; the test stands in for validation."""
    table, labels = read_table(FILE.published_as("magic", folder))
    train, test = stratified(labels, TEST_ROWS, 42)
    inputs, test_inputs = standardised(table[train], table[test])
    held = Split(test_inputs, labels[test])
    return Dataset(Split(inputs, labels[train]), held, held, 2, features=FEATURES, class_names=("gamma", "hadron"))


def read_table(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The columns of numbers, and the class of each row."""
    with reading(path, "magic"):
        text = unpacking.content(path, SIZE).decode("ascii")
        rows = [line.split(",") for line in text.split()]
        if len(rows) != ROWS or {len(row) for row in rows} != {len(FEATURES) + 1}:
            raise ValueError("rows or columns are missing")
        if {row[-1] for row in rows} != {"g", "h"}:
            raise ValueError("another table")
        return np.array([row[:-1] for row in rows], dtype=np.float64), np.array([row[-1] == "h" for row in rows]) * 1
