"""What is to be decided about a table before it can be trained on: every problem of every column, all at once.

The file is read as it is: its letters, separator and decimal sign are found out first, then the words that stand for
missing values, since they make words of numbers; then every column is asked (`column_questions.py`). The answers make
the options file that `fullcert train` takes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fullcert.data import dialects, tables
from fullcert.data.column_questions import (
    FEW,
    MANY,
    SELDOM,
    Column,
    Finding,
    listed,
    marked,
    number_of,
    of_column,
    spelled,
)
from fullcert.data.decimal_signs import notation_of
from fullcert.data.dialects import SEPARATORS, UNSAID, Dialect, Said
from fullcert.system.mistakes import Mistake

SHARE = 1000  # one label in so many is proposed to be wrong


@dataclass(frozen=True)
class Inspection:
    """What was found in a table, and the options that it proposes."""

    path: Path
    rows: int
    columns: tuple[str, ...]
    findings: tuple[Finding, ...]
    options: dict[str, Any]

    @property
    def undecided(self) -> int:
        return sum(finding.undecided for finding in self.findings)


def inspected(path: Path, said: Said = UNSAID, target: str | None = None) -> Inspection:
    """Everything there is to say about the table in a file."""
    tables.check(path)
    about, dialect, cells, lines = written(path, said)
    if target is not None and target not in cells:
        raise Mistake(f"{path} has no column {target!r}: it has {tables.listed(cells)}")
    marks = [finding for name in cells for finding in marked(Column(name, cells[name], lines, dialect))]
    dialect = replace(dialect, marks=dialect.marks | {finding.entry or "" for finding in marks})
    predicted = target or likely_target(list(cells), cells)
    found, regression = of_target(Column(predicted, cells[predicted], lines, dialect))
    if target is None:
        told = Finding(predicted, "target", "no --target was given", f"{predicted!r} is predicted", decide=True)
        found = [told, *found]
    findings = [*about, *found, *marks]
    for name in cells:
        findings += of_column(Column(name, cells[name], lines, dialect)) if name != predicted else []
    findings = with_one_id(findings)
    named = {name: value for name, value in said._asdict().items() if value is not None}
    options = {"data": str(path), "target": predicted, **named, **proposal(findings)}
    options |= threat(cells[predicted], dialect, regression)
    return Inspection(path, len(lines), tuple(cells), tuple(findings), options)


def written(path: Path, said: Said) -> tuple[list[Finding], Dialect, dict[str, list[str]], Sequence[int]]:
    """How the file is written, as far as it is not the usual way, and its cells."""
    dialect = said.alone()
    if path.suffix.lower() != ".csv":
        table = tables.read(path, dialect)
        flat = {name: tables.as_words(column).tolist() for name, column in table.columns.items() if column.ndim == 1}
        return [], dialect, flat, [] if table.lines is None else table.lines.tolist()
    found, name = [], str(path)
    try:
        begin = dialects.encoding_of(path, dialect.encoding)
        if begin == "utf-8" and dialect.encoding is None and (guess := encoding_guess(path)):
            begin, dialect = guess, replace(dialect, encoding=guess)
            told = f"read as {guess}: see whether names look right"
            found.append(Finding("", "encoding", f"{name} is not UTF-8", told, "encoding", guess))
        separator = dialects.separator_of(path, begin, dialect.separator)
        cells, lines = tables.text_cells(path, dialect)
    except tables.UNREADABLE as error:
        raise Mistake(tables.unreadable(path, error)) from None
    if not lines:
        raise Mistake(f"{path} holds no rows")
    if separator != ",":
        named = next(word for word, mark in SEPARATORS.items() if mark == separator)
        found.append(Finding("", "separator", f"cells are separated by {named}", "read so"))
    notation, about = notation_of(cells, said)
    return [*found, *about], replace(dialect, decimal=notation.decimal, thousands=notation.thousands), cells, lines


# --- the target -----------------------------------------------------------------------------------------------------


def of_target(column: Column) -> tuple[list[Finding], bool]:
    """What is to be said about the column that is predicted, and whether it is a number."""
    name, found = column.name, []
    if column.missing:
        seen = f"{column.missing:,} rows have no value to learn or to test"
        found.append(Finding(name, "target", seen, "these rows are left out", "drop_unlabelled"))
    if column.is_number and len(column.counts) > 20:
        seen = f"{len(column.counts):,} different numbers"
        return [*found, Finding(name, "target", seen, "predicted as a number", "regression")], True
    if len(column.counts) < 2:
        seen = "it holds no value" if not column.counts else f"it holds {column.present[0]!r} only"
        return [*found, Finding(name, "target", seen, "name another column with --target", decide=True)], False
    if len(column.counts) > MANY:
        seen = f"{len(column.counts):,} different words"
        return [*found, Finding(name, "target", seen, "name another column with --target", decide=True)], False
    found += spelled(column)
    counts = column.in_any_case
    few = [word for word, count in counts.items() if count < FEW]
    if few:
        fewest = min(counts[word] for word in few)
        seen = f"{len(few)} classes with fewer than {FEW} rows, the smallest {fewest}: {listed(few)}"
        told = "kept; they can hardly be learnt, and a few flips can make one vanish"
        found.append(Finding(name, "few rows", seen, told, decide=SELDOM * fewest < len(column.present)))
    return found, False


def likely_target(names: Sequence[str], cells: dict[str, list[str]]) -> str:
    """The column that is predicted, where nobody says so: one that is called like it, or else the last."""
    for word in ("target", "label", "class", "y", "outcome", "income"):
        for name in names:
            if name.lower() == word:
                return name
    few = [name for name in names if 2 <= len(set(cells[name])) <= 20]
    return few[-1] if few else names[-1]


# --- the file -------------------------------------------------------------------------------------------------------


def encoding_guess(path: Path) -> str | None:
    """How letters are probably written where no mark says so, and they are not UTF-8."""
    with path.open("rb") as file:
        head = file.read(2**20)
    zeros = [head[start::2].count(0) for start in (0, 1)]
    if max(zeros) > 0.3 * len(head) / 2:
        return "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"
    return None if dialects.is_utf8(path) else "windows-1252"


def threat(target: list[str], dialect: Dialect, regression: bool) -> dict[str, Any]:
    """What an attacker could have done, to begin with: one label in a thousand, or targets off by a hundredth."""
    if not regression:
        return {"flip_labels": max(1, len(target) // SHARE)}
    values = [value for value in (number_of(cell, dialect) for cell in target) if value is not None]
    return {"target_tolerance": float(f"{(max(values) - min(values)) / 100:.1g}")}


def with_one_id(findings: Sequence[Finding]) -> list[Finding]:
    """Of several columns with ids the first is the id."""
    first = next((finding for finding in findings if finding.key == "id"), None)
    told = "left out" if first is None else f"left out, since {first.column!r} is the id"
    return [
        replace(finding, key="ignore", proposed=told) if finding.key == "id" and finding is not first else finding
        for finding in findings
    ]


def proposal(findings: Sequence[Finding]) -> dict[str, Any]:
    """The entries of an options file that the findings propose."""
    found: dict[str, Any] = {}
    for finding in findings:
        key, entry = finding.key, finding.entry
        if key in ("drop_unlabelled", "regression"):
            found[key] = True
        elif key in ("id", "encoding", "decimal", "thousands"):
            found[key] = entry
        elif key is not None and entry not in found.setdefault(key, []):
            found[key].append(entry)
    return found
