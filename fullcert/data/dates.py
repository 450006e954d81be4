"""Dates as numbers: days since the first of January 1970, with a fraction where there is a time of day.

The day is fixed, so no date in the table can move another, and a tolerance of such a column is in days. What stands
first tells the order: a year of four digits, or, with points between, the day. With strokes or dashes between, and the
year last, 03/04/2024 is in March or in April, and the order is for the user to say.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

import numpy as np

from fullcert.system.mistakes import Mistake

EPOCH = datetime(1970, 1, 1)
DAY = 86_400.0  # seconds
ORDERS = ("ymd", "dmy", "mdy")
WRITTEN = re.compile(
    r"(\d{1,4})([-./])(\d{1,2})\2(\d{1,4})(?:[T ]+(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d+))?)?)?Z?", re.ASCII
)
COMPACT = re.compile(r"(\d{4})(\d{2})(\d{2})", re.ASCII)


def days(cell: str, order: str | None = None) -> float | None:
    """The date in a cell as a number; None if there is none, or if its order is not known."""
    found = WRITTEN.fullmatch(cell)
    clock: list[str | None] = []
    if order == "ymd" and (compact := COMPACT.fullmatch(cell)):
        numbers = compact.groups()
    elif found:
        first, sign, second, third, *clock = found.groups()
        numbers = (first, second, third)
        order = "ymd" if len(first) == 4 else order or ("dmy" if sign == "." else None)
    else:
        return None
    named = dict(zip(order or "", numbers, strict=False))
    if len(named.get("y", "")) != 4:
        return None
    hour, minute, second, fraction = (part or "0" for part in (*clock, None, None, None, None)[:4])
    try:
        moment = datetime(int(named["y"]), int(named["m"]), int(named["d"]), int(hour), int(minute), int(second))
    except ValueError:  # the 31st of February
        return None
    return ((moment - EPOCH).total_seconds() + float(f"0.{fraction}")) / DAY


def day_of(number: float) -> str | None:
    """The day that a number stands for, as 2024-03-01; None where it has a time of day, or is out of the calendar."""
    try:
        return str((EPOCH + timedelta(days=number)).date()) if number.is_integer() else None
    except OverflowError:
        return None


def parse_dates(given: Sequence[str]) -> dict[str, str | None]:
    """``joined`` and ``joined=dmy``."""
    found: dict[str, str | None] = {}
    for text in given:
        name, equals, order = text.rpartition("=")
        if equals and order not in ORDERS:
            raise Mistake(f"--dates must be COLUMN, or COLUMN=ymd, dmy or mdy for the order, not {text!r}")
        name = name if equals else text
        if name in found:
            raise Mistake(f"--dates {name} was given twice")
        found[name] = order if equals else None
    return found


def as_days(name: str, cells: Sequence[str], order: str | None, lines: Sequence[int]) -> np.ndarray:
    """A column of dates as numbers; an empty cell is missing."""
    found = [days(cell, order) if cell else np.nan for cell in cells]
    wrong = [place for place, value in enumerate(found) if value is None]
    if wrong:
        first, others = wrong[0], f", and {len(wrong) - 1:,} more cells" if len(wrong) > 1 else ""
        unclear = order is None and any(days(cells[first], each) is not None for each in ORDERS)
        why = f"say the order, --dates {name}=dmy or mdy" if unclear else "is no date that can be read"
        raise Mistake(f"the column {name!r} holds {cells[first]!r} in line {lines[first]}{others}: {why}")
    return np.array(found, dtype=np.float64)
