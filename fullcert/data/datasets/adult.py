"""Adult (census income): who earns more than 50,000 dollars a year, from 14 columns of numbers and words.

The files are kept as published or gzipped. The test file starts with a line of comment and has a full stop after each
label; "?" is a category like any other.
"""

from pathlib import Path

import numpy as np

from fullcert.data.datasets.catalogue import ABOUT, About
from fullcert.data.datasets.sources import Copy, File, reading
from fullcert.system import unpacking

ADDRESS = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income"),
)
TRAIN_ROWS, TEST_ROWS = 32561, 16281
MOST = 2**23  # bytes of a file, unpacked: twice as many as the larger one has


def published(name: str, size: int, digest: str) -> File:
    """A file of Adult, which may stand there gzipped."""
    path = f"adult/{name}"
    return File(Copy(path, size, digest), (ADDRESS + name,), (Copy(path + ".gz", size, digest, gzipped=True),))


TRAIN, TEST = FILES = (
    published("adult.data", 3974305, "sha256:5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    published("adult.test", 2003153, "sha256:a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
)
ABOUT["adult"] = About((TRAIN_ROWS, 0, TEST_ROWS), (len(COLUMNS) - 1,), 2, "CC BY 4.0", FILES)


def adult_columns(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The training and the test table: columns of strings by name; `income` is "<=50K" or ">50K"."""
    train, test = (file.published_as("adult", folder) for file in FILES)
    return read_table(train, TRAIN_ROWS), read_table(test, TEST_ROWS)


def read_table(path: Path, rows: int) -> dict[str, np.ndarray]:
    """The columns of one file, which must have all of its rows."""
    with reading(path, "adult"):
        text = unpacking.content(path, MOST).decode("ascii")
        lines = [line for line in text.splitlines() if line and not line.startswith("|")]
        table = [[value.strip() for value in line.removesuffix(".").split(",")] for line in lines]
        if len(table) != rows or {len(row) for row in table} != {len(COLUMNS)}:
            raise ValueError("rows or columns are missing")
        if not {row[-1] for row in table} <= {"<=50K", ">50K"}:
            raise ValueError("another table")
    return {name: np.array(column) for name, column in zip(COLUMNS, zip(*table, strict=True), strict=True)}
