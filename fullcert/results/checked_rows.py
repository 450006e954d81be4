"""Training rows that somebody has checked, as a file: their lines, ids or numbers, and what was missing in them.

A row stands in the column line, id or sample. A column of the table itself fills in what was missing there; an empty
cell leaves it open. Rows that proved wrong are taken out of the file.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import boundflow as bf
from fullcert.data import tables
from fullcert.data.dates import parse_dates
from fullcert.data.dialects import UNSAID, Said
from fullcert.data.encoding import Encoding, Number, Words
from fullcert.data.tables import Table, as_words
from fullcert.experiment import tasks
from fullcert.experiment.options import Options
from fullcert.experiment.sample_lines import Places
from fullcert.results.answering import Made
from fullcert.system.mistakes import Mistake


def checked(
    certificate: Made,
    path: Path,
    where: Places,
    encoding: Encoding | None,
    options: Options,
    said: Said = UNSAID,
) -> tuple[Made, int]:
    """The certificate where the rows in a file are as recorded, and how many they are."""
    table = read(path, encoding, options, said)
    name = next((name for name in ("line", "id", "sample") if name in table.columns), None)
    if name is None:
        raise Mistake(f"{path} must have a column line, id or sample, which says the training rows that were checked")
    column = table.columns[name]
    wanted: list[Any] = as_words(column).tolist() if name == "id" else column.tolist()
    if name != "id" and tables.is_number(column):
        if not bool((column == np.round(column)).all()):
            raise Mistake(f"{path} must hold whole numbers in the column {name}")
        wanted = [int(value) for value in wanted]
    samples = where.samples(name, wanted, path)
    cells = filled(table, encoding) if isinstance(certificate, bf.Certificate) else None
    if cells is not None and np.isnan(cells).all():
        cells = None
    return certificate.verified(samples, cells), len(samples)


def read(path: Path, encoding: Encoding | None, options: Options, said: Said = UNSAID) -> Table:
    """The file as `fullcert audit --out` writes it, or as the table of the run is written: by a program of the user."""
    theirs = replace(tasks.dialect_of(options), separator=None, words=frozenset(["id"]))  # an id of 007 is not 7
    dates = parse_dates(options.dates)
    if said != UNSAID:
        return _with_dates(tables.read(path, said.over(theirs)), dates)
    numbers = [c.name for c in encoding.columns if isinstance(c, Number)] if encoding is not None else []
    try:
        table = tables.read(path, replace(theirs, encoding=None, decimal=".", thousands=None))
    except Mistake:
        if theirs.encoding is None:
            raise
    else:
        named = [name for name in numbers if name in table.columns and name not in dates]
        if all(_holds_numbers(table, name) for name in named):
            if theirs.decimal == ",":  # somebody may have typed 1.234 as their table has it
                table.check_clear(named)
            return _with_dates(table, dates)
    return _with_dates(tables.read(path, theirs), dates)


def _with_dates(table: Table, dates: dict[str, str | None]) -> Table:
    return table.with_dates({name: order for name, order in dates.items() if name in table.columns})


def _holds_numbers(table: Table, name: str) -> bool:
    """Whether a column holds numbers, or nothing at all."""
    return tables.is_number(table.columns[name]) or bool((as_words(table.columns[name]) == "").all())


def filled(table: Table, encoding: Encoding | None) -> np.ndarray | None:
    """Inputs of checked rows, with the values that the file gives for columns of the table; NaN where it gives none."""
    named = [] if encoding is None else [c for c in encoding.columns if c.name in table.columns]
    given = [column for column in named if isinstance(column, Number | Words)]
    if encoding is None or not given:
        return None
    cells = np.full((len(table), sum(column.width for column in encoding.columns)), np.nan)
    for column in given:
        cells[:, encoding.places(column.name)] = written(table, column)
    return cells


def written(table: Table, column: Number | Words) -> np.ndarray:
    """The cells of one column as inputs; NaN where they are empty."""
    values = table.columns[column.name]
    words = as_words(values)
    empty = words == ""
    if isinstance(column, Number):
        if not _holds_numbers(table, column.name):
            raise Mistake(f"{table.path} must hold numbers in the column {column.name!r}")
        values = values if tables.is_number(values) else np.full(len(values), np.nan)
        return np.where(empty[:, None], np.nan, column.encoded(values))
    others = sorted(set(words[~empty].tolist()) - set(column.values))
    if others:
        known = tables.listed(column.values)
        raise Mistake(f"{table.path} fills {column.name!r} with {tables.listed(others)}, and training had {known}")
    return np.where(empty[:, None], np.nan, column.encoded(values))
