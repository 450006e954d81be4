"""What stands in training rows, for the people who check them: the label first, then the other cells."""

from typing import Any, NamedTuple

import numpy as np

from fullcert.data.dates import day_of, parse_dates
from fullcert.data.tables import Table, as_words
from fullcert.experiment import tasks
from fullcert.experiment.options import Options
from fullcert.experiment.sample_lines import Places


class Recorded(NamedTuple):
    """The training rows of a run: those of a table as they were read, of a built-in dataset their labels alone."""

    where: Places
    options: Options
    target: str
    task: tasks.Task | None  # None where the table of the run is gone

    def of(self, sample: int) -> dict[str, str]:
        """The cells of a row by column."""
        if self.where.table is not None:
            return self._in_table(self.where.table, int(self.where.rows[sample]))
        if self.task is None or not self.task.data.classes:
            return {}
        return {self.target: self.task.class_names[int(self.task.data.train.labels[sample])]}

    def _in_table(self, table: Table, row: int) -> dict[str, str]:
        dates = parse_dates(self.options.dates)
        names = sorted((name for name, column in table.columns.items() if column.ndim == 1), key=self._is_other)
        return {name: cell(table.columns[name][row], name in dates) for name in names}

    def _is_other(self, name: str) -> bool:
        return name != self.target


def cell(value: Any, date: bool) -> str:
    """A value of a table as a word; a date as such, as far as it is a whole day."""
    (word,) = as_words(np.array([value])).tolist()
    return (day_of(float(value)) if date and word else None) or str(word)
