"""Tables of the user: columns by name, from CSV, Parquet or NPZ, and back.

A column is an array of numbers, or of words. Missing values are NaN in numbers and the empty word in words; everything
else that stands in a cell, "?" included, is a value. Reading decides nothing that depends on more than one column.
"""

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fullcert import npz, unpacking
from fullcert.mistakes import Mistake

MISSING = frozenset({"", "nan", "na", "n/a", "null", "none"})  # cells that hold no value, whatever their case
FORMULA = ("=", "+", "-", "@")  # how a cell begins that a spreadsheet takes for a formula


@dataclass(frozen=True)
class Table:
    """Columns by name, all of one length: numbers (float64) or words (str). An array of images is a column too."""

    columns: dict[str, np.ndarray]
    path: Path

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def column(self, name: str) -> np.ndarray:
        if name not in self.columns:
            raise Mistake(f"{self.path} has no column {name!r}: it has {listed(self.columns)}")
        return self.columns[name]


def listed(names: Any) -> str:
    """Some names, for a sentence."""
    names = list(names)
    return ", ".join(map(repr, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def is_number(column: np.ndarray) -> bool:
    return column.dtype.kind == "f"


# --- reading ----------------------------------------------------------------------------------------------------------


UNREADABLE: tuple[type[Exception], ...] = (OSError, *unpacking.DAMAGE)


def read(path: Path) -> Table:
    """The table in a file; its ending says how it is written."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise Mistake(f"{path} must end with one of {', '.join(READERS)}")
    try:
        columns = reader(path)
    except UNREADABLE as error:
        why = " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__
        raise Mistake(f"{path} cannot be read: {why[:300]}") from None
    if not columns or not len(next(iter(columns.values()))):
        raise Mistake(f"{path} holds no rows")
    if len(columns) > unpacking.COLUMNS:
        raise Mistake(f"{path} has {len(columns):,} columns, and at most {unpacking.COLUMNS:,} are read")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        some = ", ".join(f"{name!r} has {length}" for name, length in list(lengths.items())[:12])
        raise Mistake(f"{path} has columns of different lengths: {some}")
    infinite = [name for name, column in columns.items() if is_number(column) and np.isinf(column).any()]
    if infinite:
        raise Mistake(f"{path} holds infinite values, which no network can take, in {listed(infinite)}")
    return Table(columns, path)


def read_csv(path: Path) -> dict[str, np.ndarray]:
    """A header, then rows of as many cells; spaces around a cell do not count."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file, skipinitialspace=True, strict=True) if row and row != [""]]
    if not rows:
        raise ValueError("it is empty")
    header = named([name.strip() for name in rows[0]])
    if len(header) * len(rows) > unpacking.VALUES:
        raise ValueError(f"it has more than {unpacking.VALUES:,} cells")
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise ValueError(f"its columns must be separated by commas, and its header is {header[0]!r}")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise ValueError(f"row {number} has {len(row)} cells, and the header has {len(header)}")
    columns = zip(*rows[1:], strict=True) if len(rows) > 1 else ([] for _ in header)
    return {name: from_words([cell.strip() for cell in cells]) for name, cells in zip(header, columns, strict=True)}


def named(header: list[str]) -> list[str]:
    """The names of columns, if they tell them apart."""
    if len(header) > unpacking.COLUMNS:
        raise ValueError(f"it has {len(header):,} columns, and at most {unpacking.COLUMNS:,} are read")
    if "" in header or len(set(header)) < len(header):
        raise ValueError("it must name every column, each name once")
    return header


def from_words(cells: list[str]) -> np.ndarray:
    """Numbers where every cell that holds a value is one; words otherwise."""
    present = ["" if cell.lower() in MISSING else cell for cell in cells]
    try:
        return np.array([numeral(cell) if cell else np.nan for cell in present], dtype=np.float64)
    except ValueError:
        longest = max(map(len, present), default=0)  # to which numpy fills up all others
        if longest * len(present) > 2 * unpacking.VALUES:
            raise ValueError(f"a word of {longest:,} characters is too long for {len(present):,} rows") from None
        return np.array(present)


def numeral(cell: str) -> float:
    """A number as people write it: Python would take 1_000 and the digits of every script as well."""
    if not cell.isascii() or "_" in cell:
        raise ValueError(f"{cell!r} is not a number")
    return float(cell)


def read_parquet(path: Path) -> dict[str, np.ndarray]:
    try:
        from pyarrow import ArrowException, parquet
    except ModuleNotFoundError:
        raise Mistake("Parquet needs pyarrow, which is not here: pip install 'boundflow[tables]'") from None
    try:
        with path.open("rb") as file:  # the file alone: what its folder is called is no column
            return {name: from_values(values) for name, values in parquet_columns(parquet.ParquetFile(file)).items()}
    except ArrowException as error:
        raise ValueError((str(error).splitlines() or [type(error).__name__])[0]) from None


def parquet_columns(file: Any) -> dict[str, list[Any]]:
    """The values of a Parquet file, some thousand rows at a time: a word that is written once can be in every row."""
    claimed = file.metadata.num_rows * max(1, file.metadata.num_columns)
    if claimed > unpacking.VALUES:
        raise ValueError(f"it says that it has {claimed:,} values, and at most {unpacking.VALUES:,} are read of a file")
    columns: dict[str, list[Any]] = {name: [] for name in named(file.schema_arrow.names)}
    size = 0
    for batch in file.iter_batches(batch_size=4096):
        size += batch.nbytes
        if size > 8 * unpacking.VALUES:
            raise ValueError(f"it unpacks to more than {8 * unpacking.VALUES:,} bytes")
        for name, column in zip(columns, batch.columns, strict=True):
            columns[name] += column.to_pylist()
    return columns


def from_values(values: list[Any]) -> np.ndarray:
    """A column of Python values; None is missing."""
    if all(value is None or isinstance(value, int | float) for value in values):
        return np.array([np.nan if value is None else float(value) for value in values], dtype=np.float64)
    return from_words(["" if value is None else str(value).strip() for value in values])


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Arrays by name, without pickled objects. A matrix is split into columns; images stay whole.

    Bytes are pixels and become numbers from 0 to 1, by a division that is fixed beforehand.
    """
    columns: dict[str, np.ndarray] = {}
    with path.open("rb") as file:
        for name, array in npz.arrays(file):
            made = columns_of(name, array)
            if not columns.keys().isdisjoint(made):
                raise ValueError(f"it has two columns called {next(n for n in made if n in columns)!r}")
            columns |= made
    return columns


def columns_of(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """What an array of an archive is in a table."""
    if array.ndim == 0:
        raise ValueError(f"{name} is a single value, not an array of samples")
    if array.dtype.kind not in "fiub":
        if array.ndim > 1 or array.dtype.kind not in "US":
            raise ValueError(f"{name} must hold numbers, or one word a sample")
        return {name: from_words([str(value).strip() for value in array.astype(str)])}
    if array.ndim == 2 and array.shape[1] > unpacking.COLUMNS:
        raise ValueError(f"{name} has {array.shape[1]:,} columns, and at most {unpacking.COLUMNS:,} are read")
    if array.ndim == 2:
        return {f"{name}{number}": values for number, values in enumerate(array.T.astype(np.float64))}
    if array.dtype == np.uint8 and array.ndim > 2:
        return {name: array / 255.0}
    return {name: array.astype(np.float64)}


READERS: dict[str, Callable[[Path], dict[str, np.ndarray]]] = {
    ".csv": read_csv,
    ".parquet": read_parquet,
    ".npz": read_npz,
}


# --- writing ----------------------------------------------------------------------------------------------------------


def written(columns: Mapping[str, list[Any]], ending: str) -> bytes:
    """The content of a file with this ending."""
    if ending not in WRITERS:
        raise Mistake(f"results are written as {', '.join(WRITERS)}, not {ending!r}")
    return WRITERS[ending](columns)


def as_csv(columns: Mapping[str, list[Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_cell, columns))
    writer.writerows(zip(*(map(_cell, values) for values in columns.values()), strict=True))
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    """A value as it stands in a CSV file; a word that a spreadsheet would take for a formula gets a ' before it."""
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value).lower()
    return f"'{value}" if isinstance(value, str) and _is_formula(value) else value


def _is_formula(word: str) -> bool:
    """Whether a spreadsheet would compute what stands there: -1 is a number, -1+cmd is not."""
    if not word.lstrip().startswith(FORMULA):
        return False
    try:
        numeral(word)
    except ValueError:
        return True
    return False


def as_parquet(columns: Mapping[str, list[Any]]) -> bytes:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise Mistake("Parquet needs pyarrow, which is not here: pip install 'boundflow[tables]'") from None
    stream = io.BytesIO()
    parquet.write_table(pyarrow.table(dict(columns)), stream)
    return stream.getvalue()


def by_row(columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Columns as rows."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def as_json(columns: Mapping[str, list[Any]]) -> bytes:
    return (json.dumps(by_row(columns), indent=1, allow_nan=False) + "\n").encode()


WRITERS: dict[str, Callable[[Mapping[str, list[Any]]], bytes]] = {
    ".csv": as_csv,
    ".parquet": as_parquet,
    ".json": as_json,
}
