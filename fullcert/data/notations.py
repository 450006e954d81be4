"""How a number is written: its decimal sign, and what stands between its thousands.

    1234.5    1,234.5    1 234.5    1'234.5        a decimal point
    1234,5    1.234,5    1 234,5    1'234,5        a decimal comma

Between thousands there are groups of three digits, and the first group begins with no zero. So 1.234 is one number with
a decimal point and another with points between thousands, while 12.5, 0.234 and 1.234,5 can be read in one way only.
`readings` says in which ways a whole column can be read: where they differ, a person has to say which it is.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from fullcert.system.mistakes import Mistake

NONE, SPACE = "none", "space"
SIGNS = {",": ",", ".": r"\.", "'": "['\u2019]", SPACE: "[ \u00a0\u202f]"}  # by the name that a flag has for them
THOUSANDS = (*SIGNS, NONE)


class Notation(NamedTuple):
    """A decimal sign, and what stands between thousands: None where nobody said, NONE where nothing does."""

    decimal: str = "."
    thousands: str | None = None

    @property
    def between(self) -> str:
        """What stands between thousands, as an expression; empty where nothing does."""
        return SIGNS.get(self.thousands or NONE, "")

    @property
    def grouped(self) -> bool:
        return bool(self.between)

    @property
    def flags(self) -> str:
        """What to type for it, whatever a run says of its own table."""
        if not self.grouped:
            return f"--decimal . --thousands {NONE}" if self.decimal == "." else "--decimal ,"
        thousands = f'"{self.thousands}"' if self.thousands == "'" else self.thousands
        return f"--decimal {self.decimal} --thousands {thousands}"

    def check(self) -> None:
        """Refuse what no number can be written with."""
        if self.decimal not in (".", ","):
            raise Mistake(f"--decimal must be . or , and not {self.decimal!r}")
        if self.thousands is not None and self.thousands not in THOUSANDS:
            raise Mistake(f"--thousands must be one of {' '.join(THOUSANDS)}, not {self.thousands!r}")
        if self.thousands == self.decimal:
            other = "," if self.decimal == "." else "."
            raise Mistake(f"--thousands {self.thousands} needs another decimal sign: add --decimal {other}")

    def groups(self, cell: str) -> bool:
        """Whether a cell is a number with its thousands apart."""
        return self.grouped and grouped(self).fullmatch(cell) is not None

    def number(self, cell: str) -> float:
        """A number as people write it: Python would take 1_000 and the digits of every script as well."""
        if self.groups(cell):
            return plain(re.sub(self.between, "", cell).replace(self.decimal, "."))
        if self.decimal == ",":
            if not COMMA.fullmatch(cell):
                raise ValueError(f"{cell!r} is not a number with a decimal comma")
            return float(cell.replace(",", "."))
        return plain(cell)

    def value(self, cell: str) -> float | None:
        """The number that stands in a cell; None where it is a word."""
        try:
            return self.number(cell)
        except ValueError:
            return None


COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?", re.ASCII)
POINTS = re.compile(r"[+-]?([1-9]\d{0,2}(\.\d{3})+|\d+)", re.ASCII)  # which can be between thousands in all of them


def plain(cell: str) -> float:
    if not cell.isascii() or "_" in cell:
        raise ValueError(f"{cell!r} is not a number")
    return float(cell)


@cache
def grouped(notation: Notation) -> re.Pattern[str]:
    """A number of more than three digits with its thousands apart."""
    decimal = SIGNS[notation.decimal]
    return re.compile(rf"[+-]?[1-9]\d{{0,2}}({notation.between}\d{{3}})+({decimal}\d+)?([eE][+-]?\d+)?", re.ASCII)


ALL = tuple(Notation(decimal, thousands) for decimal in ".," for thousands in (None, *SIGNS) if thousands != decimal)


# --- columns that can be read in several ways ---------------------------------------------------------------------


class Unclear(NamedTuple):
    """A cell of a column that is a number in other ways than it was read, and what it is in each of them."""

    cell: str
    ways: dict[Notation, float]

    def told(self, column: str) -> str:
        """What to type, in one sentence."""
        names = f"(--categorical {column} if they are names)"
        if len(self.ways) == 1:
            (way,) = self.ways
            return f"the column {column!r} holds numbers such as {self.cell!r}: give {way.flags} {names}"
        return f"the column {column!r} can be read in {len(self.ways)} ways, so say which: {self.listed} {names}"

    @property
    def listed(self) -> str:
        """What the cell is in each way."""
        return f"{self.cell!r} is " + " or ".join(f"{value:.15g} with {way.flags}" for way, value in self.ways.items())


def unclear(cells: Sequence[str], said: Notation, numbers: bool) -> Unclear | None:
    """Whether the different cells of a column can be read otherwise: as ``numbers`` they were, or as words."""
    if not numbers:
        return among(cells, [way for way in ALL if said.thousands != NONE or not way.grouped], said)
    if said != Notation() or not any("." in cell for cell in cells) or not all(map(POINTS.fullmatch, cells)):
        return None
    return among(cells, [said, Notation(",", ".")], said)


def among(cells: Sequence[str], ways: Sequence[Notation], said: Notation) -> Unclear | None:
    """The ways in which all cells are numbers, each with others than those before it; the named sign goes first."""
    different: dict[tuple[float | None, ...], Notation] = {}
    for way in sorted(readings(cells, ways), key=lambda way: way.decimal != said.decimal):
        different.setdefault(tuple(map(way.value, cells)), way)
    if not different:
        return None
    telling = [(len(set(found)), not cell.isdecimal()) for cell, *found in zip(cells, *different, strict=True)]
    place = telling.index(max(telling))
    return Unclear(cells[place], {way: values[place] for values, way in different.items()})  # type: ignore[misc]


def readings(cells: Sequence[str], ways: Sequence[Notation]) -> list[Notation]:
    """The ways in which every cell is a number."""
    left = list(ways)
    for cell in cells:
        left = [way for way in left if way.value(cell) is not None]
        if not left:
            break
    return left if cells else []
