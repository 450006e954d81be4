"""Missing cells: what they can be, or what stands in for them.

    --missing age=17:90      anything in the range: a set, which the certificate covers
    --missing workclass      any of the categories that the column has
    --impute age=median      one value for all of them, which says nothing about what stood there

A value to fill in comes from the user or from trusted data (fixed beforehand), or from the training rows: then it is
the same for every allowed dataset if the threat leaves the column alone, and declared otherwise. The report says which.
"""

from collections.abc import Sequence

import numpy as np

from fullcert.data.dialects import PLAIN, Dialect, without_case
from fullcert.data.encoding import DECLARED, FIXED, SAME, Encoding, Number, Words
from fullcert.data.fitted_encoding import Fill, Moves
from fullcert.data.tables import LARGEST, Table, as_words, is_number, listed, plain_word
from fullcert.experiment.options import Options
from fullcert.experiment.threats import parse_ranges
from fullcert.system.mistakes import Mistake

STATISTICS = ("median", "mean", "mode")


def check_holes(table: Table, made: Encoding, options: Options) -> None:
    """Refuse missing numbers of which nobody said what they can be."""
    allowed = parse_ranges(options.missing, "--missing")
    numbers = [column for column in made.columns if isinstance(column, Number) and column.fill is None]
    names = [column.name for column in numbers if column.name not in allowed]
    holes = {name: int(np.isnan(table.column(name)).sum()) for name in names}
    found = [name for name in names if holes[name]]
    if found:
        where = ", ".join(f"{name!r} ({holes[name]})" for name in found)
        raise Mistake(
            f"{table.path} has missing values in {where}: say in training what they can be with --missing "
            f"{found[0]}=LOW:HIGH (without a range: the observed one), fill them with --impute {found[0]}=median, or "
            f"leave the column out with --ignore {found[0]}; fullcert inspect {table.path} lists all there is to decide"
        )


def ranges(options: Options, train: Table, rows: np.ndarray) -> tuple[str, ...]:
    """Ranges of missing values, with that of the training rows where a column stands alone; categories have none."""
    found = []
    for name, given in parse_ranges(options.missing, "--missing").items():
        column = train.column(name)
        number = is_number(column) and name not in options.categorical
        if given is None and number and not np.isnan(column[rows]).all():
            given = float(np.nanmin(column[rows])), float(np.nanmax(column[rows]))
        found.append(name if given is None else f"{name}={min(given)!r}:{max(given)!r}")
    return tuple(found)


def unknown(options: Options, train: Table) -> frozenset[str]:
    """Columns of categories whose missing cells may be any of them."""
    named = parse_ranges(options.missing, "--missing")
    return frozenset(n for n in named if not is_number(train.column(n)) or n in options.categorical)


# --- one value for all of them ------------------------------------------------------------------------------------


def parse_fills(given: Sequence[str]) -> tuple[dict[str, str], str | None]:
    """``age=median`` and ``town=north`` by column, and the statistic for all others, if there is one."""
    by_column: dict[str, str] = {}
    for_others = None
    for text in given:
        name, equals, value = text.partition("=")
        if not equals and text not in STATISTICS:
            raise Mistake(f"--impute must be COLUMN=VALUE, or one of {', '.join(STATISTICS)}, not {text!r}")
        if name in by_column or (not equals and for_others is not None):
            raise Mistake(f"--impute {name} was given twice")
        if equals:
            by_column[name] = value.strip()
        else:
            for_others = text
    return by_column, for_others


def fills(options: Options, seen: Table, target: str, moves: Moves, trusted: bool) -> dict[str, Fill]:
    """What stands in for missing values, from the rows that are learnt from."""
    by_column, for_others = parse_fills(options.impute)
    ranged = parse_ranges(options.missing, "--missing")
    if target in by_column:
        raise Mistake(f"--impute {target}: that column is predicted; --drop-unlabelled leaves out rows without a value")
    both = [name for name in by_column if name in ranged]
    if both:
        raise Mistake(f"--impute {both[0]} puts one value there, and --missing {both[0]} any: use one of them")
    left_out = {target, options.id, *options.ignore, *ranged, *by_column}
    for name in [*seen.columns] if for_others is not None else []:
        column, words = seen.columns[name], _is_words(seen, name, options)
        known = column.ndim == 1 and bool((as_words(column) != "").any())
        if name not in left_out and known and (for_others == "mode" or not words):
            by_column[name] = str(for_others)
    return {name: _fill(options, seen, name, how, moves, trusted) for name, how in by_column.items()}


def _is_words(table: Table, name: str, options: Options) -> bool:
    return not is_number(table.column(name)) or name in options.categorical


def _fill(options: Options, seen: Table, name: str, how: str, moves: Moves, trusted: bool) -> Fill:
    words = _is_words(seen, name, options)
    column = as_words(seen.column(name)) if words else seen.column(name)
    present = column[column != ""] if words else column[~np.isnan(column)]
    if how not in STATISTICS:
        how = plain_word(how, Dialect(decimal=options.decimal, thousands=options.thousands))
        how = without_case(how) if name in options.ignore_case else how
        return Fill(_given(name, how, words, present), FIXED)
    if words and how != "mode":
        odd = [word for word in dict.fromkeys(present.tolist()) if PLAIN.value(word) is None]
        if odd and len(odd) < 3 and name not in options.categorical:
            advice = f"{odd[0]!r}: if it stands for a missing value, say --missing-mark {odd[0]}"
            raise Mistake(f"--impute {name}={how} is for numbers, and that column holds {advice}")
        raise Mistake(f"--impute {name}={how} is for numbers, and that column holds categories: use mode or a category")
    if not len(present):
        raise Mistake(f"--impute {name}={how}: the training rows hold no value from which it could be taken")
    source = FIXED if trusted else DECLARED if moves.touches(name, number=not words) else SAME
    return Fill(STATISTIC[how](present), source)


def _most_frequent(present: np.ndarray) -> float | str:
    values, counts = np.unique(present, return_counts=True)
    chosen: float | str = values[counts.argmax()].item()
    return chosen


STATISTIC = {
    "median": lambda present: float(np.median(present)),
    "mean": lambda present: float(present.mean()),
    "mode": _most_frequent,
}


def _given(name: str, value: str, words: bool, present: np.ndarray) -> float | str:
    """A value of the user, as one of the column."""
    if words:
        if value not in present:
            some = listed(sorted(set(present.tolist())))
            raise Mistake(f"--impute {name}={value}: that is none of its categories, which are {some}")
        return value
    try:
        number = float(value)
    except ValueError:
        number = np.nan
    if not abs(number) <= LARGEST:
        raise Mistake(f"--impute {name}={value}: that column holds numbers; give one, or median, mean or mode")
    return number


def told(made: Encoding) -> dict[str, list[str]]:
    """What stands in for missing values, by where it comes from: "age: 38"."""
    found: dict[str, list[str]] = {}
    for column in made.columns:
        if isinstance(column, Number | Words) and column.fill is not None:
            value = column.fill if isinstance(column.fill, str) else f"{column.fill:g}"
            found.setdefault(column.fill_source, []).append(f"{column.name}: {value}")
    return found
