"""Questions to a column of a table: what in it must be decided before it can be an input.

A finding says what was seen, and what is proposed: a key of the options file and the entry in it. Most proposals can be
taken as they are; where the data do not decide, such as the order of day and month, and wherever a column is left out,
a person must *decide*. Where there are several ways it says what each costs.

A question is one function from a column to findings. They are asked in the order of QUESTIONS, and the first that takes
the column out of the inputs ends them.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fullcert.data import dates
from fullcert.data.dialects import Dialect, without_case

NAMES_OF_IDS = re.compile(
    r"(^|[_\W])(id|key|uuid|guid|number|nr|no|nummer|kennung)\.?$|^(id|uuid)[_\W]|[a-z]I[dD]$", re.I
)
NAMES_OF_CODES = re.compile(
    r"(^|[_\W])(zip|plz|post ?codes?|postcode|postal|postleitzahl|phone|tel|telefon|code|iban)", re.I
)
MARKS = frozenset(
    {
        *("?", "-", "--", ".", "#n/a", "n.a.", "n. a.", "k.a.", "k. a.", "(null)"),
        *("unknown", "unbekannt", "missing", "not available", "keine angabe"),
    }
)
STAND_INS = (-1.0, -9.0, -99.0, -999.0, -9999.0, 99.0, 999.0, 9999.0, 99999.0)
FEW, MANY, MOST = 10, 100, 1000  # rows of a class; categories worth a word; categories that are taken at most
SELDOM = 50  # a category is rare if it stands in less than one row of so many
LETTERS = 24  # of a cell, on average, from which words are a text


@dataclass(frozen=True)
class Finding:
    """Something about a column: what was seen, what is proposed about it, and whether a person must decide."""

    column: str
    kind: str
    seen: str
    proposed: str
    key: str | None = None  # of the options file
    entry: str | None = None
    decide: bool = False
    costs: str = ""
    others: tuple["Other", ...] = ()

    @property
    def left_out(self) -> bool:
        """Whether the proposal takes the column out of the inputs."""
        return self.key in ("ignore", "id")

    @property
    def undecided(self) -> bool:
        """Whether a person must decide: also about every column that is left out."""
        return self.decide or self.left_out


@dataclass(frozen=True)
class Other:
    """Another way than the proposed one: its entry in the options file, if it takes one, and what it costs."""

    key: str | None
    entry: str | None
    costs: str


@dataclass
class Column:
    """One column as it is written, and how much of it is numbers, dates or nothing."""

    name: str
    cells: list[str]
    lines: Sequence[int]
    dialect: Dialect
    counts: Counter[str] = field(init=False)
    present: list[str] = field(init=False)
    numbers: list[float] = field(init=False)
    words: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.present = [cell for cell in self.cells if not self.dialect.is_missing(cell)]
        self.counts = Counter(self.present)
        parsed = {cell: number_of(cell, self.dialect) for cell in self.counts}
        self.numbers = [parsed[cell] for cell in self.present if parsed[cell] is not None]  # type: ignore[misc]
        self.words = [cell for cell in self.counts if parsed[cell] is None]

    @property
    def missing(self) -> int:
        return len(self.cells) - len(self.present)

    @property
    def is_number(self) -> bool:
        return not self.words and bool(self.present)

    @property
    def whole(self) -> bool:
        """Whether all values are whole numbers."""
        return self.is_number and all(float(value).is_integer() for value in self.numbers)

    @property
    def in_any_case(self) -> Counter[str]:
        """How often each category stands there, whatever its case and blanks, by how it is written first."""
        counts: Counter[str] = Counter()
        first: dict[str, str] = {}
        for word, count in self.counts.items():
            counts[first.setdefault(without_case(word), word)] += count
        return counts

    def line_of(self, cell: str) -> int:
        return self.lines[self.cells.index(cell)]


def number_of(cell: str, dialect: Dialect) -> float | None:
    try:
        found = dialect.number(cell)
    except ValueError:
        return None
    return found if np.isfinite(found) else None


def listed(words: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(repr(word[:40]) for word in words[:most])
    return shown + (f" and {len(words) - most} more" if len(words) > most else "")


# --- questions to a column ------------------------------------------------------------------------------------------


def empty(column: Column) -> Iterator[Finding]:
    if not column.present:
        yield Finding(column.name, "missing", "no cell holds a value", "left out", "ignore", column.name)


def constant(column: Column) -> Iterator[Finding]:
    if len(column.counts) == 1 and not column.missing:
        seen = f"every row holds {column.present[0][:40]!r}"
        yield Finding(column.name, "constant", seen, "left out", "ignore", column.name)


def one_word(column: Column) -> Iterator[Finding]:
    """The same value in some rows and nothing in the others: a remark, or a box that was ticked."""
    if len(column.counts) == 1 and column.missing:
        word = column.present[0][:40]
        seen = f"{len(column.present):,} cells hold {word!r}, and {column.missing:,} are empty"
        ways = (
            Other(None, None, f"an input where an empty cell says for certain that {word!r} does not stand there"),
            Other("missing", column.name, f"an input, and answers must hold whether or not {word!r} stood there"),
        )
        others = () if column.is_number else ways
        yield Finding(column.name, "one word", seen, "left out", "ignore", column.name, others=others)


def identifying(column: Column) -> Iterator[Finding]:
    """Values that are all different name rows: words, or whole numbers in a column that is called so, or in order."""
    if len(column.counts) < max(2, 0.99 * len(column.present)) or len(column.present) < FEW or _dates(column):
        return
    named = bool(NAMES_OF_IDS.search(column.name))
    ordered = column.whole and np.all(np.diff(column.numbers) > 0) and np.ptp(column.numbers) <= 2 * len(column.numbers)
    short = not column.numbers and np.mean([len(cell) for cell in column.present]) < LETTERS
    if (named and (column.whole or short)) or ordered or (short and not any(" " in cell for cell in column.present)):
        repeated = len(column.present) - len(column.counts)
        twice = f"; {repeated} occur more than once" if repeated else ""
        seen = f"{len(column.counts):,} different values in {len(column.cells):,} rows{twice}"
        yield Finding(column.name, "id", seen, "carried with every answer, no input", "id", column.name)


def dated(column: Column) -> Iterator[Finding]:
    """Cells that are dates; the order of day and month is proposed where the data decide it."""
    orders = _dates(column)
    if not orders:
        return
    unread = {order: [cell for cell in column.counts if dates.days(cell, order) is None] for order in orders}
    order = min(orders, key=lambda each: len(unread[each]))
    ambiguous = [each for each in orders if len(unread[each]) == len(unread[order])]
    plain = all(dates.days(cell) is not None for cell in column.counts)
    entry = column.name if plain else f"{column.name}={order}"
    proposed = "days since 1970-01-01" + (
        "" if plain else f", read as {'day, month, year' if order == 'dmy' else order}"
    )
    seen = f"dates such as {column.present[0]!r}"
    if unread[order]:
        bad = listed(unread[order])
        seen += f", and {len(unread[order])} that are none: {bad} (line {column.line_of(unread[order][0])})"
        yield Finding(column.name, "date", seen, "left out until they are mended", "ignore", column.name, decide=True)
    else:
        unclear = not plain and len(ambiguous) > 1
        seen += "; day and month could be either way round" if unclear else ""
        yield Finding(column.name, "date", seen, proposed, "dates", entry, decide=unclear)


def _dates(column: Column) -> list[str]:
    """Orders in which nearly all cells are dates."""
    some = list(column.counts)[:500]
    if column.is_number and not (column.whole and all(len(cell) == 8 for cell in some)):
        return []
    orders = ("ymd",) if column.is_number else dates.ORDERS
    found = [order for order in orders if _share(some, order) >= 0.9]
    if column.is_number and found:  # 20240301, and not any number of eight digits
        years = [int(cell[:4]) for cell in some]
        return found if min(years) >= 1900 and max(years) <= 2100 else []
    return found


def _share(cells: list[str], order: str) -> float:
    return sum(dates.days(cell, order) is not None for cell in cells) / max(1, len(cells))


def mixed(column: Column) -> Iterator[Finding]:
    """Numbers with words among them."""
    others = among_numbers(column)
    if others:
        count = sum(column.counts[cell] for cell in others)
        seen = f"{len(column.numbers):,} numbers, and {count:,} cells that are none: {listed(others)} "
        seen += f"(line {column.line_of(others[0])})"
        told = "what is no number from LOW to HIGH, which are yours to say, is missing, as an empty cell is"
        yield Finding(
            *(column.name, "mixed", seen, "left out until they are mended", "ignore", column.name),
            decide=True,
            others=(Other("valid", f"{column.name}=LOW:HIGH", told),),
        )


def among_numbers(column: Column) -> list[str]:
    """The words of a column that holds numbers for the most part; the most frequent first."""
    if not column.words or len(column.numbers) < 0.5 * len(column.present):
        return []
    return sorted(column.words, key=lambda cell: -column.counts[cell])


def marked(column: Column) -> Iterator[Finding]:
    """Words that stand for nothing: those that usually do, and a few among numbers, of which a person must decide."""
    others, dated = among_numbers(column), bool(_dates(column))
    for word in column.words:
        usual = word.lower() in MARKS and len(column.counts) > 2
        if usual or (others and len(others) <= FEW // 2 and not dated):
            seen = f"{column.counts[word]:,} cells hold {word[:40]!r}" + (" among numbers" if others else "")
            told = "read as a missing value"
            yield Finding(column.name, "missing", seen, told, "missing_mark", word, decide=not usual)


def standing_in(column: Column) -> Iterator[Finding]:
    """A number far from all others that occurs often may stand for nothing: that is for a person to say."""
    if not column.whole or len(column.counts) < FEW:
        return
    values, counts = np.unique(column.numbers, return_counts=True)
    for place, beside in ((0, 1), (-1, -2)):
        value, rest = values[place], np.delete(values, place)
        apart = abs(value - values[beside]) > np.ptp(rest)
        if value in STAND_INS and apart and counts[place] >= 5:
            seen = f"{counts[place]:,} cells hold {value:g}, far from all others"
            yield Finding(
                column.name, "stand-in", seen, f'kept as a number; if not, missing_mark = ["{value:g}"]', decide=True
            )


def codes(column: Column) -> Iterator[Finding]:
    """Postcodes and the like: digits that are names."""
    zeros = column.whole and any(len(cell) > 1 and cell[0] == "0" and cell.isdigit() for cell in column.counts)
    if not column.whole or not (zeros or NAMES_OF_CODES.search(column.name)):
        return
    seen = f"{len(column.counts):,} codes such as {column.present[0]!r}" + (", with zeros in front" if zeros else "")
    if len(column.counts) > MANY:
        yield Finding(column.name, "code", seen, "left out: too many to learn from", "ignore", column.name)
    else:
        yield Finding(column.name, "code", seen, "names, not amounts", "categorical", column.name)


def texts(column: Column) -> Iterator[Finding]:
    """Words that are nearly all different, or long: no categories."""
    if column.is_number or not column.words:
        return
    different, length = len(column.counts), float(np.mean([len(cell) for cell in column.present]))
    seen = f"{different:,} different values of {length:.0f} letters on average, such as {column.present[0][:30]!r}"
    if (different > MANY and different > 0.5 * len(column.present)) or (length > LETTERS and different > MANY):
        yield Finding(column.name, "free text", seen, "left out", "ignore", column.name)
    elif different > MOST:
        yield Finding(column.name, "many categories", seen, "left out", "ignore", column.name)
    elif different > MANY:
        yield Finding(column.name, "many categories", seen, "kept: an input for each")


def spelled(column: Column) -> Iterator[Finding]:
    """Categories that differ by case or blanks alone: probably one, which was typed in several ways."""
    groups: dict[str, list[str]] = {}
    for word in column.words:
        groups.setdefault(without_case(word), []).append(word)
    several = [words for words in groups.values() if len(words) > 1]
    if several:
        first = ", ".join(f"{word[:40]!r} ({column.counts[word]:,})" for word in several[0])
        more = f"; so do {len(several) - 1} more" if len(several) > 1 else ""
        seen = f"{first} differ by case or blanks alone{more}"
        apart = Other(None, None, "categories of their own, each learnt from its own rows")
        yield Finding(
            *(column.name, "spelling", seen, "one category, in lower case", "ignore_case", column.name),
            decide=True,
            others=(apart,),
        )


def rare(column: Column) -> Iterator[Finding]:
    """Categories of a few rows: mistyped ones, or some from which hardly anything can be learnt."""
    counts = column.in_any_case
    few = sorted(
        (count, word) for word, count in counts.items() if count < FEW and SELDOM * count < len(column.present)
    )
    if few and not column.is_number and len(counts) <= MANY:
        some = listed([f"{word} ({count})" for count, word in few])
        what = "1 category has" if len(few) == 1 else f"{len(few)} categories have"
        seen = f"{what} fewer than {FEW} rows: {some}"
        told = "kept, an input each; hardly anything is learnt about them, so mend them if they are mistyped"
        yield Finding(column.name, "rare", seen, told, decide=True)


def holes(column: Column, dated: str | None) -> Iterator[Finding]:
    """Missing cells: anything in the range that is there, or any of the categories; or one value for all of them."""
    if not column.missing:
        return
    seen, values = f"{column.missing:,} of {len(column.cells):,} cells are missing", column.numbers
    share = f"{100 * column.missing / len(column.cells):.1g} %"
    costs = f"answers that do not hold for all that could have stood in these {share} of the rows stay open"
    fixed = "leaves no answer open for that, but nothing is certified about what really stood there"
    if dated is not None:
        order = dated.rpartition("=")[2] if dated != column.name else None
        values = [day for day in (dates.days(cell, order) for cell in column.counts) if day is not None]
    if column.is_number or dated is not None:
        ends = [repr(end).removesuffix(".0") for end in (min(values), max(values))]
        told = "any day from the first to the last" if dated else f"anything from {ends[0]} to {ends[1]}"
        yield Finding(
            *(column.name, "missing", seen, f"{told}, as in other rows", "missing", f"{column.name}={':'.join(ends)}"),
            costs=f"{costs}: the more, the wider the range",
            others=(Other("impute", f"{column.name}=median", fixed),),
        )
    else:
        yield Finding(
            *(column.name, "missing", seen, "any of its categories", "missing", column.name),
            costs=f"{costs}: the more, the more the categories tell",
            others=(Other("impute", f"{column.name}=mode", fixed),),
        )


QUESTIONS: tuple[Callable[[Column], Iterator[Finding]], ...] = (
    *(empty, constant, one_word, identifying, dated, mixed, standing_in, codes, texts, spelled, rare),
)


def of_column(column: Column) -> list[Finding]:
    """Everything there is to say about an input, once the marks of missing values are known."""
    found: list[Finding] = []
    for ask in QUESTIONS:
        found += ask(column)
        if any(finding.left_out for finding in found):
            return found
        if any(finding.key == "dates" for finding in found):
            break
    return [*found, *holes(column, next((finding.entry for finding in found if finding.key == "dates"), None))]
