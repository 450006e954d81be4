"""Tables of the user: columns by name, from CSV, Parquet or NPZ, and back.

A column is an array of numbers, or of words. Missing values are NaN in numbers and the empty word in words; everything
else that stands in a cell, "?" included unless it was named, is a value. Reading decides nothing that depends on more
than one column, and what stands in a cell depends on no other: a column is of words if one cell is, but a number among
words is written as it is where all are numbers, so that 1 and 1.0 are one category in both. How text is written is said
in `dialects.py`; every row keeps the line of the file that it stands in.
"""

import csv
import hashlib
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fullcert.data import dates, npz
from fullcert.data.dialects import PLAIN, Dialect, encoding_of, not_decoded, separator_of, without_case
from fullcert.data.notations import Unclear
from fullcert.system import unpacking
from fullcert.system.mistakes import Mistake

LARGEST = 1e150  # of a number in a table, in its units: squares are still finite
FORMULA = ("=", "+", "-", "@")  # how a cell begins that a spreadsheet takes for a formula


@dataclass(frozen=True)
class Table:
    """Columns by name, all of one length: numbers (float64) or words (str). An array of images is a column too.

    ``lines`` says where every row stands in its file: the line in which it begins, or, where a file has no lines, its
    number counted from 1. ``digest`` is the sha256 of that file. Both are None for tables that come from no file of the
    user. ``unclear`` are columns of text that can be read in other ways, too.
    """

    columns: dict[str, np.ndarray]
    path: Path
    lines: np.ndarray | None = field(default=None, compare=False)
    digest: str | None = field(default=None, compare=False)
    unclear: Mapping[str, Unclear] = field(default_factory=dict, compare=False)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def taken(self, rows: np.ndarray) -> "Table":
        """Some of the rows."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return replace(self, columns=columns, lines=None if self.lines is None else self.lines[rows])

    def with_dates(self, given: Mapping[str, str | None]) -> "Table":
        """The same with dates as numbers of days."""
        made = dict(self.columns)
        lines = (np.arange(len(self)) + 1 if self.lines is None else self.lines).tolist()
        for name, order in given.items():
            cells = self.column(name)
            if cells.ndim > 1:
                raise Mistake(f"--dates {name}: that column of {self.path} holds arrays")
            made[name] = dates.as_days(name, as_words(cells).tolist(), order, lines)  # numbers such as 20240301, too
        return replace(self, columns=made, unclear={n: found for n, found in self.unclear.items() if n not in given})

    def within(self, ranges: Mapping[str, tuple[float, float]]) -> "Table":
        """The same with numbers in these columns, missing where a cell holds none in the range of its column."""
        made = dict(self.columns)
        for name, (low, high) in ranges.items():
            cells = self.column(name)
            if cells.ndim > 1:
                raise Mistake(f"--valid {name}: that column of {self.path} holds arrays")
            numbers = np.array([PLAIN.value(word) for word in as_words(cells).tolist()], dtype=np.float64)
            made[name] = np.where((numbers >= low) & (numbers <= high), numbers, np.nan)
        return replace(self, columns=made)

    def check_clear(self, names: Sequence[str]) -> None:
        """Refuse columns whose numbers could be others, as far as nobody said how they are written."""
        for name in names:
            if name in self.unclear:
                raise Mistake(f"{self.path}: {self.unclear[name].told(name)}")

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


def as_words(column: np.ndarray) -> np.ndarray:
    """Values as words; words are written so already."""
    if column.ndim > 1:
        raise Mistake("a column holds arrays where one value a row is needed")
    return np.array(list(map(word_of, column.tolist())), dtype=str) if is_number(column) else column


def word_of(number: float) -> str:
    """A number as a word: whole ones without a point, so that 1 and 1.0 are one category."""
    return "" if math.isnan(number) else str(int(number)) if number.is_integer() else repr(number)


# --- reading ----------------------------------------------------------------------------------------------------------


UNREADABLE: tuple[type[Exception], ...] = (OSError, *unpacking.DAMAGE)


def check(path: Path) -> None:
    """Refuse a file that is not there, or of another kind, before anything is loaded to read it with."""
    if path.suffix.lower() not in READERS:
        raise Mistake(f"{path} must end with one of {', '.join(READERS)}")
    try:
        path.stat()
    except OSError as error:
        raise Mistake(f"{path} cannot be read: {error.strerror}") from None


def unreadable(path: Path, error: Exception) -> str:
    """What is said of a file that cannot be read."""
    why = " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__
    return f"{path} cannot be read: {why[:300]}"


def read(path: Path, dialect: Dialect = PLAIN) -> Table:
    """The table in a file; its ending says how it is written."""
    check(path)
    try:
        before = mark(path)
        columns, lines, unclear = READERS[path.suffix.lower()](path, dialect)
    except UNREADABLE as error:
        raise Mistake(unreadable(path, error)) from None
    if not columns or not len(next(iter(columns.values()))):
        raise Mistake(f"{path} holds no rows")
    if len(columns) > unpacking.COLUMNS:
        raise Mistake(f"{path} has {len(columns):,} columns, and at most {unpacking.COLUMNS:,} are read")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        some = ", ".join(f"{name!r} has {length}" for name, length in list(lengths.items())[:12])
        raise Mistake(f"{path} has columns of different lengths: {some}")
    large = [name for name, column in columns.items() if is_number(column) and (np.abs(column) > LARGEST).any()]
    if large:
        raise Mistake(f"{path} holds values that are infinite or too large, beyond {LARGEST:g}, in {listed(large)}")
    made = Table(columns, path, np.array(lines, dtype=np.int64), digest(path), unclear)
    if mark(path) != before:  # the digest would be that of other rows
        raise Mistake(f"{path} was written to while it was read: do it again when it is as it is to be")
    return made


def mark(path: Path) -> tuple[int, ...]:
    """What changes when a file is written, or another one takes its place."""
    try:
        found = path.stat()
    except OSError as error:
        raise Mistake(unreadable(path, error)) from None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def digest(path: Path) -> str:
    """The sha256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise Mistake(unreadable(path, error)) from None


class Read(NamedTuple):
    """The columns of a file, the line in which each row begins, and columns of text that can be read otherwise."""

    columns: dict[str, np.ndarray]
    lines: Sequence[int]
    unclear: Mapping[str, Unclear]


def read_csv(path: Path, dialect: Dialect) -> Read:
    """A header, then rows of as many cells; spaces around a cell do not count."""
    cells, lines = text_cells(path, dialect)
    columns = {name: from_words(words, dialect, name) for name, words in cells.items()}
    return Read(columns, lines, unclear(columns, cells, dialect))


def unclear(columns: Mapping[str, np.ndarray], cells: Mapping[str, list[str]], dialect: Dialect) -> dict[str, Unclear]:
    """The columns of text that can be read in other ways than they were."""
    asked = {name: words for name, words in cells.items() if name not in dialect.words}
    found = {name: dialect.unclear(words, is_number(columns[name])) for name, words in asked.items()}
    return {name: one for name, one in found.items() if one is not None}


def text_cells(path: Path, dialect: Dialect) -> tuple[dict[str, list[str]], list[int]]:
    """The cells of a file by column, as they are written, and the line in which each row begins."""
    try:
        encoding = encoding_of(path, dialect.encoding)
        numbered = rows_of(path, encoding, separator_of(path, encoding, dialect.separator))
    except UnicodeDecodeError as error:
        raise ValueError(not_decoded(path, error)) from None
    if not numbered:
        raise ValueError("it is empty")
    header = named([name.strip() for name in numbered[0][1]])
    if len(header) * len(numbered) > unpacking.VALUES:
        raise ValueError(f"it has more than {unpacking.VALUES:,} cells")
    uneven = [(line, len(row)) for line, row in numbered[1:] if len(row) != len(header)]
    if uneven:
        others = f"; so have {len(uneven) - 1:,} further lines another number" if len(uneven) > 1 else ""
        raise ValueError(f"line {uneven[0][0]} has {uneven[0][1]} cells, and the header has {len(header)}{others}")
    columns = zip(*(row for _, row in numbered[1:]), strict=True) if len(numbered) > 1 else ([] for _ in header)
    stripped = {name: [cell.strip() for cell in cells] for name, cells in zip(header, columns, strict=True)}
    return stripped, [line for line, _ in numbered[1:]]


def rows_of(path: Path, encoding: str, separator: str) -> list[tuple[int, list[str]]]:
    """The rows of a file that hold anything, each with the line in which it begins."""
    found, line = [], 1
    with path.open(newline="", encoding=encoding) as file:
        reader = csv.reader(file, delimiter=separator, skipinitialspace=separator != "\t", strict=True)
        for row in reader:
            if row and row != [""]:
                found.append((line, row))
            line = reader.line_num + 1
    return found


def named(header: list[str]) -> list[str]:
    """The names of columns, if they tell them apart."""
    if len(header) > unpacking.COLUMNS:
        raise ValueError(f"it has {len(header):,} columns, and at most {unpacking.COLUMNS:,} are read")
    if "" in header or len(set(header)) < len(header):
        raise ValueError("it must name every column, each name once")
    return header


def from_words(cells: list[str], dialect: Dialect = PLAIN, name: str = "") -> np.ndarray:
    """Numbers where every cell that holds a value is one; words otherwise, and where they are to stay as written."""
    different = {cell: "" if dialect.is_missing(cell) else cell for cell in set(cells)}
    if name not in dialect.words:
        numbers = {cell: dialect.value(word) if word else math.nan for cell, word in different.items()}
        if None not in numbers.values():
            return np.array([numbers[cell] for cell in cells], dtype=np.float64)
        different = {cell: plain_word(word, dialect) for cell, word in different.items()}
    if name in dialect.any_case:
        different = {cell: without_case(word) for cell, word in different.items()}
    longest = max(map(len, different.values()), default=0)  # to which numpy fills up all others
    if longest * len(cells) > 2 * unpacking.VALUES:
        raise ValueError(f"a word of {longest:,} characters is too long for {len(cells):,} rows")
    return np.array([different[cell] for cell in cells], dtype=str)


def plain_word(cell: str, dialect: Dialect) -> str:
    """A cell as it is written among words: a number as `word_of` writes it, and everything else as it stands there."""
    number = dialect.value(cell)
    return cell if number is None or math.isinf(number) else word_of(number)


def is_written(word: str, dialect: Dialect) -> bool:
    """Whether a category can have this name: that of a number as `word_of` writes it, or a word that is no number."""
    number = PLAIN.value(word)
    return dialect.value(word) is None or (number is not None and plain_word(word, PLAIN) == word)


def read_parquet(path: Path, dialect: Dialect) -> Read:
    try:
        from pyarrow import ArrowException, parquet
    except ModuleNotFoundError:
        raise Mistake("Parquet needs pyarrow, which is not here: pip install pyarrow") from None
    try:
        with path.open("rb") as file:  # the file alone: what its folder is called is no column
            names = parquet_words(parquet.ParquetFile(file))
            found = parquet_columns(parquet.ParquetFile(file, read_dictionary=names))
            words = {name: found[name] for name in names}
            columns = {name: from_values(values, dialect, name) for name, values in found.items()}
            return counted(columns, {name: in_text(values) for name, values in words.items()}, dialect)
    except ArrowException as error:
        raise ValueError((str(error).splitlines() or [type(error).__name__])[0]) from None


def parquet_words(file: Any) -> list[str]:
    """The columns of words, of a file that does not say that it is too large: a word is kept once for all its rows."""
    from pyarrow import types

    about = file.metadata
    claimed = about.num_rows * max(1, about.num_columns)
    if claimed > unpacking.VALUES:
        raise ValueError(f"it says that it has {claimed:,} values, and at most {unpacking.VALUES:,} are read of a file")
    if sum(about.row_group(group).total_byte_size for group in range(about.num_row_groups)) > 8 * unpacking.VALUES:
        raise ValueError(f"it unpacks to more than {8 * unpacking.VALUES:,} bytes")
    named(file.schema_arrow.names)
    kinds = {column.name: column.type for column in file.schema_arrow}
    for name, kind in kinds.items():
        if types.is_nested(kind) or types.is_fixed_size_binary(kind):
            raise ValueError(f"{name!r} holds {kind}, and a cell is a number or a word")
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return [name for name, kind in kinds.items() if any(is_text(kind) for is_text in texts)]


def parquet_columns(file: Any) -> dict[str, list[Any]]:
    """The values of a Parquet file, some thousand rows at a time: a word that is written once can be in every row."""
    columns: dict[str, list[Any]] = {name: [] for name in file.schema_arrow.names}
    size = 0
    for batch in file.iter_batches(batch_size=4096):
        for name, column in zip(columns, batch.columns, strict=True):
            words = column.dictionary.to_pylist() if hasattr(column, "dictionary") else None
            rows = (column if words is None else column.indices).to_pylist()
            values = rows if words is None else [None if row is None else words[row] for row in rows]
            size += column.nbytes + (0 if words is None else sum(len(value) for value in values if value is not None))
            if size > 8 * unpacking.VALUES:
                raise ValueError(f"it unpacks to more than {8 * unpacking.VALUES:,} bytes")
            columns[name] += values
    return columns


def counted(columns: dict[str, np.ndarray], text: Mapping[str, list[str]], dialect: Dialect) -> Read:
    """Columns of a file without lines, some of them from text, whose rows are numbered from 1."""
    lines = range(1, 1 + max(map(len, columns.values()), default=0))
    return Read(columns, lines, unclear(columns, text, dialect))


def in_text(values: list[Any]) -> list[str]:
    """Values as they would stand in a file of text."""
    return ["" if value is None else str(value).strip() for value in values]


def from_values(values: list[Any], dialect: Dialect = PLAIN, name: str = "") -> np.ndarray:
    """A column of Python values; None is missing."""
    if name not in dialect.words and all(value is None or isinstance(value, int | float | Decimal) for value in values):
        return without_marks([np.nan if value is None else float(value) for value in values], dialect)
    return from_words(in_text(values), dialect, name)


def without_marks(numbers: Any, dialect: Dialect) -> np.ndarray:
    """Numbers as float64, NaN where one is a mark for a missing value."""
    found = np.array(numbers, dtype=np.float64)
    return np.where(np.isin(found, list(dialect.marked)), np.nan, found) if dialect.marked else found


def read_npz(path: Path, dialect: Dialect) -> Read:
    """Arrays by name, without pickled objects. A matrix is split into columns; images stay whole.

    Bytes are pixels and become numbers from 0 to 1, by a division that is fixed beforehand.
    """
    columns: dict[str, np.ndarray] = {}
    text: dict[str, list[str]] = {}
    with path.open("rb") as file:
        for name, array in npz.arrays(file):
            made = columns_of(name, array, dialect)
            if array.ndim == 1 and array.dtype.kind in "US":
                text[name] = in_text(array.astype(str).tolist())
            if not columns.keys().isdisjoint(made):
                raise ValueError(f"it has two columns called {next(n for n in made if n in columns)!r}")
            columns |= made
            if len(columns) > unpacking.COLUMNS:
                raise ValueError(f"it has more than {unpacking.COLUMNS:,} columns")
    return counted(columns, text, dialect)


def columns_of(name: str, array: np.ndarray, dialect: Dialect) -> dict[str, np.ndarray]:
    """What an array of an archive is in a table."""
    if array.ndim == 0:
        raise ValueError(f"{name} is a single value, not an array of samples")
    if array.dtype.kind not in "fiub":
        if array.ndim > 1 or array.dtype.kind not in "US":
            raise ValueError(f"{name} must hold numbers, or one word a sample")
        return {name: from_words([str(value).strip() for value in array.astype(str)], dialect, name)}
    if array.ndim == 2 and array.shape[1] > unpacking.COLUMNS:
        raise ValueError(f"{name} has {array.shape[1]:,} columns, and at most {unpacking.COLUMNS:,} are read")
    if array.ndim == 2:
        return {f"{name}{number}": values for number, values in enumerate(without_marks(array.T, dialect))}
    if array.dtype == np.uint8 and array.ndim > 2:
        return {name: array / 255.0}
    return {name: without_marks(array, dialect) if array.ndim == 1 else array.astype(np.float64)}


READERS: dict[str, Callable[[Path, Dialect], Read]] = {
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
        PLAIN.number(word)
    except ValueError:
        return True
    return False


def as_parquet(columns: Mapping[str, list[Any]]) -> bytes:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise Mistake("Parquet needs pyarrow, which is not here: pip install pyarrow") from None
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
