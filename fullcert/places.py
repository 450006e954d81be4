"""Where samples stand in the files of the user: the line of each, and its id where a column names one.

A sample is known by its number among the training or test samples. A table of the user is split by the seed
(`tasks.split_rows`), so its rows are found again; samples of a built-in dataset have nothing but their number.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fullcert import tables, tasks
from fullcert.mistakes import Mistake
from fullcert.options import Options
from fullcert.tables import Table


@dataclass(frozen=True)
class Places:
    """The rows of a table that samples are, in their order, and the line of every row of its file."""

    rows: np.ndarray
    lines: np.ndarray | None = None
    ids: np.ndarray | None = None
    table: Table | None = None

    def told(self, sample: int) -> dict[str, Any]:
        """What is known of where a sample stands."""
        found: dict[str, Any] = {"sample": int(sample)}
        if self.lines is not None:
            found["line"] = int(self.lines[self.rows[sample]])
        if self.ids is not None:
            value = self.ids[self.rows[sample]]
            found["id"] = int(value) if isinstance(value, float) and value.is_integer() else value
        return found

    def samples(self, name: str, wanted: list[Any], what: Path) -> np.ndarray:
        """The samples that stand on these lines, have these ids or numbers."""
        known = {self.told(sample)[name]: sample for sample in range(len(self.rows))} if self._has(name) else {}
        missing = [value for value in wanted if value not in known]
        if missing:
            raise Mistake(f"{what} names the {name} {missing[0]}, and no training row has it")
        return np.array([known[value] for value in wanted], dtype=np.int64)

    def _has(self, name: str) -> bool:
        return (
            name == "sample" or (name == "line" and self.lines is not None) or (name == "id" and self.ids is not None)
        )


def of_training(options: Options, count: int) -> Places:
    """Where the training samples of a run stand; only their numbers, where the table is not there any more."""
    table = _table(options.data)
    if table is None:
        return Places(np.arange(count))
    rows = tasks.split_rows(options.seed, len(table), options.test_data is not None)["train"]
    return (
        Places(rows, line_numbers(table), _ids(options, table), table)
        if len(rows) == count
        else Places(np.arange(count))
    )


def of_tests(options: Options, count: int) -> Places:
    """Where the test samples of a run stand."""
    table = _table(options.test_data or options.data)
    if table is None:
        return Places(np.arange(count))
    rows = np.arange(len(table))
    if options.test_data is None:
        rows = tasks.split_rows(options.seed, len(table), False)["test"]
    return (
        Places(rows, line_numbers(table), _ids(options, table), table)
        if len(rows) == count
        else Places(np.arange(count))
    )


def of_table(options: Options, table: Table) -> Places:
    """Where the rows of a new table stand."""
    return Places(np.arange(len(table)), line_numbers(table), _ids(options, table), table)


def _table(path: str | None) -> Table | None:
    return tables.read(Path(path)) if path is not None and Path(path).is_file() else None


def _ids(options: Options, table: Table) -> np.ndarray | None:
    name = getattr(options, "id", None)
    return table.columns[name] if name in table.columns else None


def line_numbers(table: Table) -> np.ndarray | None:
    """On which line of its file each row begins, counted from 1; the position in a file without lines."""
    if table.path.suffix.lower() != ".csv":
        return np.arange(1, len(table) + 1)
    found, last = [], 0
    try:
        with table.path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, skipinitialspace=True)
            for row in reader:
                if row and row != [""]:
                    found.append(last + 1)
                last = reader.line_num
    except (OSError, UnicodeDecodeError, csv.Error):
        return None
    return np.array(found[1:]) if len(found) == len(table) + 1 else None
