"""Which decimal sign the numbers of a table have, and what stands between their thousands: what its columns show.

A column shows a sign if every way to write numbers that fits most of its cells has it: 12.5 shows a point, 3.774,87 a
comma and points between thousands, 1.234 shows nothing. What most columns show holds for the file. A column that can be
read in several ways is told, and where no other column shows the decimal sign, a person must decide.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fullcert.data.column_questions import Finding
from fullcert.data.dialects import PLAIN, Dialect, Said
from fullcert.data.notations import ALL, NONE, Notation, Unclear

ASKED = 1000  # different cells of a column that are looked at


@dataclass(frozen=True)
class Shown:
    """The decimal sign that a column shows, and what between thousands; None for what it leaves open."""

    decimal: str | None
    thousands: str | None


def notation_of(cells: Mapping[str, list[str]], said: Said) -> tuple[Notation, list[Finding]]:
    """How numbers are written: as said, else as columns show, else for a person to decide."""
    between = None if said.thousands == NONE else said.thousands
    fitting = [way for way in ALL if said.thousands is None or way.thousands == between]
    ways = [way for way in fitting if said.decimal in (None, way.decimal)]
    shown = [column for words in cells.values() if (column := shown_by(words, ways)) is not None]
    points, commas = (sum(column.decimal == sign for column in shown) for sign in ".,")
    decimal = said.decimal or ("," if commas > points or said.thousands == "." else ".")
    found: list[Finding] = []
    if decimal == "," and said.decimal is None:
        found.append(Finding("", "decimal sign", "numbers have a decimal comma", "read so", "decimal", ","))
    if said.thousands is not None:
        return Notation(decimal, said.thousands), found
    signs = Counter(column.thousands for column in shown if column.thousands and column.decimal in (None, decimal))
    if not signs:
        return unshown(cells, Notation(decimal), found, sure=bool(points or commas or said.decimal))
    made = Notation(decimal, signs.most_common(1)[0][0])
    name, cell = next((name, cell) for name, words in cells.items() for cell in words if made.groups(cell))
    seen, told = f"numbers such as {cell!r} in {name!r}", f"read as {made.value(cell):.15g}"
    return made, [*found, Finding("", "thousands", seen, told, "thousands", made.thousands)]


def unshown(
    cells: Mapping[str, list[str]], made: Notation, found: list[Finding], sure: bool
) -> tuple[Notation, list[Finding]]:
    """The same where no column shows what stands between thousands, but one may have it."""
    for name, words in cells.items():
        several = in_several_ways(words, Dialect(decimal=made.decimal))
        if several is None:
            continue
        way = next(iter(several.ways))  # with the decimal sign of the other columns, if there is one
        read = Notation(way.decimal, way.thousands or NONE)
        seen = f"{name!r} can be read in {len(several.ways)} ways: {several.listed}"
        told = f"read as {several.ways[way]:.15g}" + (", since other columns have that decimal sign" if sure else "")
        if read.decimal != made.decimal:
            found = [*found, Finding("", "decimal sign", seen, told, "decimal", read.decimal, decide=True)]
        return read, [*found, Finding("", "thousands", seen, told, "thousands", read.thousands, decide=not sure)]
    return made, found


def in_several_ways(words: list[str], dialect: Dialect) -> Unclear | None:
    """A column of which this dialect does not say how it is to be read."""
    numbers = all(dialect.is_missing(word) or dialect.value(word) is not None for word in set(words))
    found = dialect.unclear(words, numbers)
    return found if found is not None and len(found.ways) > 1 else None


def shown_by(words: list[str], ways: Sequence[Notation]) -> Shown | None:
    """What a column of numbers shows of the ways in which it could be written."""
    different = [word for word in dict.fromkeys(words) if not PLAIN.is_missing(word) and any(map(str.isdigit, word))]
    read = {way: sum(way.value(word) is not None for word in different[:ASKED]) for way in ways}
    most = max(read.values(), default=0)
    if not most or most <= 0.5 * len(different[:ASKED]):
        return None
    best = [way for way in ways if read[way] == most]
    plainest = [way for way in best if not way.grouped] or best
    decimals, between = {way.decimal for way in best}, {way.thousands for way in plainest}
    return Shown(decimals.pop() if len(decimals) == 1 else None, between.pop() if len(between) == 1 else None)
