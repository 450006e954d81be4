"""Auto MPG: how many miles a car goes on a gallon, from seven numbers; 398 cars of 1970 to 1982.

The recipe of Zorro: the six missing values of horsepower are the means of the ten nearest cars, four fifths are
training and one fifth test by scikit-learn's `train_test_split` with seed 1, columns are standardised by the training
part. All of that is fixed beforehand. A regression: its table is asked for by name, not by `load`.
"""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fullcert.data.datasets.catalogue import ABOUT, About
from fullcert.data.datasets.sources import Copy, File, reading
from fullcert.data.datasets.splitting import filled, shuffled, standardised
from fullcert.system import unpacking

FILE = File(
    Copy(
        "auto-mpg/auto-mpg.csv",
        18131,
        "sha256:09a282cf12c7ab4ffb517b496b0dd1a8bac6e95977178cc7832c32044c32c3f6",
    ),
    ("https://www.kaggle.com/api/v1/datasets/download/uciml/autompg-dataset/auto-mpg.csv",),
)
FEATURES = ("cylinders", "displacement", "horsepower", "weight", "acceleration", "model year", "origin")
ROWS, TEST_ROWS, NEIGHBOURS, SEED = 398, 80, 10, 1
MOST = 2**20  # bytes of the file
ABOUT["auto-mpg"] = About((ROWS - TEST_ROWS, 0, TEST_ROWS), (len(FEATURES),), 0, "CC BY 4.0", (FILE,))


@dataclass(frozen=True)
class Cars:
    """Standardised columns (N, 7), and miles per gallon (N,)."""

    inputs: np.ndarray
    miles: np.ndarray


def auto_mpg(folder: Path) -> tuple[Cars, Cars]:
    """318 training and 80 test cars."""
    table, miles = read_table(FILE.published_as("auto-mpg", folder))
    train, test = shuffled(ROWS, TEST_ROWS, SEED)
    table = filled(table, NEIGHBOURS)
    inputs, test_inputs = standardised(table[train], table[test])
    return Cars(inputs, miles[train]), Cars(test_inputs, miles[test])


def read_table(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The columns of numbers with NaN where one is missing, and the miles per gallon of each car."""
    with reading(path, "auto-mpg"):
        text = unpacking.content(path, MOST).decode("ascii")
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
        if len(rows) != ROWS:
            raise ValueError("rows are missing")
        table = [[float("nan" if row[name] == "?" else row[name]) for name in FEATURES] for row in rows]
        return np.array(table), np.array([float(row["mpg"]) for row in rows])
