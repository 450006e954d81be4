"""Where samples stand in the files of the user: the line of each, and its id where a column names one.

A sample is known by its number among the training or test samples. A table of the user is split by the seed
(`tasks.split_rows`), so its rows are found again; samples of a built-in dataset have nothing but their number.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fullcert.data.tables import Table
from fullcert.experiment import tasks
from fullcert.experiment.options import Options
from fullcert.system.mistakes import Mistake


@dataclass(frozen=True)
class Places:
    """The rows of a table that samples are, in their order, and the line of every row of its file.

    Without a table they are a range, which takes no memory however many samples a file says that there were.
    """

    rows: np.ndarray | range
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
        if name == "sample":
            known = {sample: [sample] for sample in wanted if sample in range(len(self.rows))}
        else:
            known = self._known(name)
        for value in wanted:
            if value not in known:
                raise Mistake(f"{what} names the {name} {value}, and no training row has it")
            if len(known[value]) > 1:
                raise Mistake(
                    f"{what} names the {name} {value}, which {len(known[value])} training rows have: say lines"
                )
        return np.array([known[value][0] for value in wanted], dtype=np.int64)

    def _known(self, name: str) -> dict[Any, list[int]]:
        """Samples by their line or id, which several can have."""
        found: dict[Any, list[int]] = {}
        if (self.lines if name == "line" else self.ids) is not None:
            for sample in range(len(self.rows)):
                place = self.told(sample)[name]
                found.setdefault(str(place) if name == "id" else place, []).append(sample)
        return found


def of_training(options: Options, count: int) -> Places:
    """Where the training samples of a run stand; only their numbers, where the table is not there any more."""
    table = _table(options, options.data)
    if table is None:
        return Places(range(count))
    rows = tasks.split_rows(options.seed, len(table), options.test_data is not None)["train"]
    return Places(rows, table.lines, _ids(options, table), table) if len(rows) == count else Places(range(count))


def of_tests(options: Options, count: int) -> Places:
    """Where the test samples of a run stand."""
    table = _table(options, options.test_data or options.data)
    if table is None:
        return Places(range(count))
    rows = np.arange(len(table))
    if options.test_data is None:
        rows = tasks.split_rows(options.seed, len(table), False)["test"]
    return Places(rows, table.lines, _ids(options, table), table) if len(rows) == count else Places(range(count))


def of_table(options: Options, table: Table) -> Places:
    """Where the rows of a new table stand."""
    return Places(np.arange(len(table)), table.lines, _ids(options, table), table)


def _table(options: Options, path: str | None) -> Table | None:
    """A table of the run as it was split: without the rows that have no target, where those were left out."""
    if path is None or not Path(path).is_file():
        return None
    table = tasks.read(options, Path(path))
    return tasks.labelled(table, options.target) if options.drop_unlabelled and options.target else table


def _ids(options: Options, table: Table) -> np.ndarray | None:
    return None if options.id not in table.columns else table.columns[options.id]
