"""How a table of text is written: its letters, what stands between its cells, its decimal sign, its word for nothing.

    letters     a byte order mark says it (UTF-8, UTF-16, UTF-32); otherwise UTF-8, or what was named
    separator   that of , ; tab | which splits the header into the most cells; the first of them if several do
    decimal     a point, unless a comma was named: 1,5 could be one and a half, or two numbers, or a name
    thousands   nothing stands between them, unless a sign was named (`notations.py`)
    nothing     an empty cell, and the words of MISSING; further marks, such as ?, are to be named

The first two are read off the beginning of the file, and the others are for the user to say; `fullcert inspect` finds
out what to say. Nothing is read off other rows: what stands in a cell does not depend on cells that somebody may have
changed. A file of new rows, which nobody trains on, may be UTF-8 although another encoding was named.
"""

import codecs
import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

from fullcert.data.notations import Notation, Unclear, unclear
from fullcert.system.mistakes import Mistake

MISSING = frozenset({"", "nan", "na", "n/a", "null", "none"})  # cells that hold no value, whatever their case
SEPARATORS = {",": ",", ";": ";", "tab": "\t", "|": "|"}  # by the name that a flag has for it
HEAD = 2**16  # bytes from which the separator is read
BYTE_ORDER = {  # the longer mark first: that of UTF-16 begins that of UTF-32
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


@dataclass(frozen=True)
class Dialect:
    """What was said about how a table is written.

    ``words`` are columns that stay as they are written, such as ids. In ``any_case`` are those in which categories that
    differ by case or blanks alone are one.
    """

    encoding: str | None = None
    separator: str | None = None
    decimal: str = "."
    thousands: str | None = None
    marks: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    any_case: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.encoding is not None:
            check_encoding(self.encoding)
        if self.separator is not None and self.separator not in (*SEPARATORS, "\t"):
            raise Mistake(f"--separator must be one of {' '.join(SEPARATORS)}, not {self.separator!r}")
        self.notation.check()

    def is_missing(self, cell: str) -> bool:
        return cell in self.marks or cell.lower() in MISSING or bool(self.marked and self.value(cell) in self.marked)

    @cached_property
    def marked(self) -> frozenset[float]:
        """The marks that are numbers, however they are written: where -999 is none, -999.0 is none either."""
        return frozenset(value for value in map(self.value, self.marks) if value is not None)

    @cached_property
    def notation(self) -> Notation:
        """How numbers are written."""
        return Notation(self.decimal, self.thousands)

    def value(self, cell: str) -> float | None:
        """The number that stands in a cell; None where it is a word."""
        return self.notation.value(cell)

    def number(self, cell: str) -> float:
        """The number that stands in a cell; a ValueError where it is a word."""
        return self.notation.number(cell)

    def unclear(self, cells: Sequence[str], numbers: bool) -> Unclear | None:
        """Whether a column that was read as ``numbers`` or as words can be read otherwise."""
        different = [cell for cell in dict.fromkeys(cells) if not self.is_missing(cell)]
        return unclear(different, self.notation, numbers)


class Said(NamedTuple):
    """What a command says about how a file is written; None where it is written as other files of the run."""

    encoding: str | None = None
    separator: str | None = None
    decimal: str | None = None
    thousands: str | None = None

    def over(self, dialect: Dialect) -> Dialect:
        """The dialect of a run as far as nothing else was said; what stands between thousands goes with its sign."""
        said = {name: value for name, value in self._asdict().items() if value is not None}
        if "decimal" in said and said["decimal"] != dialect.decimal:
            said.setdefault("thousands", None)
        return replace(dialect, **said)

    def alone(self) -> Dialect:
        """The dialect of a file of no run; refused if it is none, before anything is loaded."""
        return self.over(Dialect(decimal="," if self.thousands == "." else "."))


UNSAID = Said()
PLAIN = Dialect()


def without_case(word: str) -> str:
    """A category in lower case, with one space for all blanks between its words."""
    return " ".join(word.split()).lower()


def check_encoding(name: str) -> None:
    """Refuse what is no way to write letters."""
    try:
        "".encode(name)  # which refuses codecs that are not about text
    except (LookupError, ValueError, UnicodeError):
        raise Mistake(f"--encoding {name}: there is no such encoding; windows-1252 is one") from None


def encoding_of(path: Path, named: str | None) -> str:
    """How the letters of a file are written, as far as its first bytes and what was named say it."""
    with path.open("rb") as file:
        begin = file.read(4)
    for mark, name in BYTE_ORDER.items():
        if begin.startswith(mark):
            return name
    if named is None or wide(named) or is_ascii(path):
        return named or "utf-8"
    return "utf-8" if is_utf8(path) else named


def wide(encoding: str) -> bool:
    """Whether letters take two or four bytes each, which may look like UTF-8."""
    return codecs.lookup(encoding).name.startswith(("utf-16", "utf-32"))


def check_named(path: Path, named: str | None) -> None:
    """Refuse a named encoding for a file that would be read otherwise: one changed cell could make it valid UTF-8."""
    if named is None:
        return
    check_encoding(named)
    if codecs.lookup(named).name == "utf-8":
        return
    try:
        if encoding_of(path, named) == "utf-8":
            raise Mistake(f"{path} is UTF-8, and --encoding says {named}: leave that out")
    except OSError:  # which is told where it is read
        return


def is_ascii(path: Path) -> bool:
    """Whether a file holds bytes below 128 alone."""
    with path.open("rb") as file:
        return all(piece.isascii() for piece in iter(partial(file.read, 2**20), b""))


def is_utf8(path: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        try:
            while piece := file.read(2**20):
                decoder.decode(piece)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def separator_of(path: Path, encoding: str, named: str | None) -> str:
    """What stands between the cells of a file."""
    if named is not None:
        return SEPARATORS.get(named, named)
    with path.open(newline="", encoding=encoding) as file:
        lines = file.read(HEAD).splitlines()
    header = next((line for line in lines if line.strip()), "")
    return max(SEPARATORS.values(), key=lambda mark: len(cells(header, mark)))


def cells(line: str, separator: str) -> list[str]:
    """The cells of one line; what is wrong with its quotes is told when it is read."""
    try:
        return next(csv.reader([line], delimiter=separator, skipinitialspace=separator != "\t"), [])
    except csv.Error:
        return []


def not_decoded(path: Path, error: UnicodeDecodeError) -> str:
    """What is said of a file whose letters are written otherwise."""
    return (
        f"it is not {error.encoding.upper()}: name its encoding, such as --encoding windows-1252, or see what "
        f"fullcert inspect {path} finds"
    )
