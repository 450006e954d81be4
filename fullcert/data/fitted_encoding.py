"""How an encoding is learnt from the rows of a table, and whether every allowed dataset would have given the same.

For a column of which each value can move by t, in a share p of the samples: the mean moves by at most p t, and the
deviation by at most sqrt(p) t, because the deviation is a seminorm and that of the moves is at most their root mean
square. So the mean is rounded to a multiple of half the scale, the deviation to a power of two, and if both ends of
what they can be round to the same numbers, every allowed dataset gives these. A missing value stands in the middle of
its range, from where what it really was is at most half the range away. The target of a regression is scaled so too.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from fullcert.data.encoding import DECLARED, FIXED, SAME, SCALED, Column, Encoding, Image, Number, Target, Words
from fullcert.data.tables import Table, as_words, is_number, listed
from fullcert.system.mistakes import Mistake

MOST_CATEGORIES = 1000


@dataclass(frozen=True)
class Moves:
    """What a threat can do to the table: by column how far a value moves, in what share of the samples.

    ``everywhere`` is in units of the scale. ``anything``: samples can be removed or replaced, and every statistic
    changes with them. ``missing``: the range of missing values by column, and ``unknown`` the columns whose missing
    cells may be any category. ``target`` is how far every target of a regression moves, and ``flips`` how many labels
    are wrong.
    """

    by_column: Mapping[str, float]
    everywhere: float = 0.0
    share: float = 1.0
    anything: bool = False
    missing: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    target: float = 0.0
    flips: int = 0

    def touches(self, name: str, number: bool) -> bool:
        """Whether a value that stands in the column may have been another."""
        return self.anything or self.by_column.get(name, 0.0) > 0 or (number and self.everywhere > 0)


class Fill(NamedTuple):
    """What stands in for the missing values of a column, and where it comes from."""

    value: float | str
    source: str


def make(
    table: Table,
    target: str,
    *,
    regression: bool,
    ignore: Sequence[str] = (),
    categorical: Sequence[str] = (),
    relative: Sequence[str] = (),
    fixed: Mapping[str, tuple[float, float]],
    moves: Moves,
    trusted: bool = False,
    fills: Mapping[str, Fill] | None = None,
) -> Encoding:
    """The encoding of a table. Columns in ``relative`` have a tolerance in per cent: they are not centered."""
    fills = fills or {}
    for name in (target, *ignore, *categorical, *relative, *fixed):
        table.column(name)
    names = [name for name in table.columns if name != target and name not in ignore]
    if not names:
        raise Mistake(f"{table.path} has no column besides {target!r} to predict it from")
    predicted = _target(table, target, regression, moves, trusted)
    arrays = [name for name in names if table.columns[name].ndim > 1]
    if arrays:
        if len(names) > 1:
            raise Mistake(f"{table.path} holds the arrays {listed(names)}: leave out all but one with --ignore")
        return Encoding((Image(arrays[0], table.columns[arrays[0]].shape[1:]),), predicted)
    columns: list[Column] = []
    for name in names:
        values, fill = table.columns[name], fills.get(name)
        filled: tuple[Any, str] = (None, "") if fill is None else (fill.value, fill.source)
        if not is_number(values) or name in categorical:
            if name in fixed:
                raise Mistake(f"--scale {name} is for numbers, and that column holds categories")
            if name not in categorical:
                table.check_clear([name])
            columns.append(replace(_words(name, values, moves, trusted), fill=filled[0], fill_source=filled[1]))
        elif name in fixed:
            columns.append(Number(name, *fixed[name], FIXED, *filled))
        else:
            if fill is not None:
                values = np.where(np.isnan(values), fill.value, values)
            made = _number(name, values, name in relative, moves, trusted)
            source = DECLARED if fill is not None and fill.source == DECLARED else made.source
            columns.append(replace(made, source=source, fill=filled[0], fill_source=filled[1]))
    return Encoding(tuple(columns), predicted)


def _target(table: Table, name: str, regression: bool, moves: Moves, trusted: bool) -> Target:
    values = table.column(name)
    if values.ndim > 1:
        raise Mistake(f"the target {name!r} must be one value a sample, not an array of shape {values.shape[1:]}")
    words = as_words(values)
    if (words == "").any():
        missing = int((words == "").sum())
        raise Mistake(
            f"{missing:,} row{' has' if missing == 1 else 's have'} no value in the target column {name!r}: leave such "
            f"rows out with --drop-unlabelled; fullcert inspect {table.path} lists all there is to decide"
        )
    if regression:
        if not is_number(values):
            raise Mistake(f"--regression needs numbers in the target column {name!r}")
        reach = _anything if moves.anything else Reach().further(moves.target, 1.0)
        center, scale, source = _scaling(name, values, False, reach, trusted)
        return Target(name, center=center, scale=scale, source=source)
    classes, samples = np.unique(words, return_counts=True)
    if len(classes) < 2:
        raise Mistake(f"the target column {name!r} holds one class only, {classes[0]!r}")
    if len(classes) > MOST_CATEGORIES // 10 or (len(classes) > 20 and 2 * len(classes) > len(values)):
        raise Mistake(f"the target column {name!r} holds {len(classes)} different values: is this --regression?")
    lasting = not moves.anything and samples.min() > moves.flips  # no class can vanish
    source = FIXED if trusted else SAME if lasting else DECLARED
    return Target(name, tuple(classes.tolist()), source=source)


def _words(name: str, values: np.ndarray, moves: Moves, trusted: bool) -> Words:
    found = tuple(sorted(set(map(str, as_words(values))) - {""}))
    if len(found) > MOST_CATEGORIES:
        raise Mistake(f"the column {name!r} holds {len(found)} categories: leave it out with --ignore {name}")
    unknown = name in moves.unknown
    if trusted:
        return Words(name, found, FIXED, unknown=unknown)
    changed = moves.anything or name in moves.by_column  # epsilon moves numbers only
    return Words(name, found, DECLARED if changed else SAME, unknown=unknown)


def _number(name: str, values: np.ndarray, relative: bool, moves: Moves, trusted: bool) -> Number:
    holes = np.isnan(values)
    if holes.all():
        raise Mistake(f"the column {name!r} holds no value at all: leave it out with --ignore {name}")
    reach = _anything if moves.anything else Reach()
    if name in moves.missing and not trusted:
        low, high = moves.missing[name]
        values = np.where(holes, low / 2 + high / 2, values)
        reach = reach.further((high - low) / 2, float(holes.mean()), touched=True)
    values = values[~np.isnan(values)]
    move = moves.by_column.get(name, 0.0)
    if moves.everywhere:
        move += moves.everywhere * _power_of_two(_spread(name, values, relative))
    return Number(name, *_scaling(name, values, relative, reach.further(move, moves.share), trusted))


class Reach(NamedTuple):
    """How far the mean of a column and its deviation can move, and whether the threat is about them at all."""

    mean: float = 0.0
    deviation: float = 0.0
    touched: bool = False

    def further(self, move: float, share: float, touched: bool = False) -> "Reach":
        """Values moved in a share of the samples."""
        moved = self.touched or touched or move > 0
        return Reach(self.mean + share * move, self.deviation + math.sqrt(share) * move, moved)


_anything = Reach(math.inf, math.inf, touched=True)


def _spread(name: str, values: np.ndarray, relative: bool) -> float:
    """The deviation from the mean, or from zero."""
    with np.errstate(over="ignore", invalid="ignore"):
        spread = float(np.sqrt((values**2).mean())) if relative else float(values.std())
    if not math.isfinite(spread):
        raise Mistake(f"the column {name!r} holds values that are infinite or too large to be scaled")
    return spread


def _scaling(name: str, values: np.ndarray, relative: bool, reach: Reach, trusted: bool) -> tuple[float, float, str]:
    """Center, scale and source of numbers that are all known."""
    deviation = _spread(name, values, relative)
    mean = 0.0 if relative else float(values.mean())
    if abs(mean) > SCALED * (deviation or 1.0):
        raise Mistake(
            f"the column {name!r} holds values around {mean:g} whose deviation is {deviation:g}, which is lost among "
            f"roundings: write it in other units, or leave it out with --ignore {name}"
        )
    if trusted or not reach.touched:
        return mean, deviation or 1.0, FIXED if trusted else SAME
    center, scale, sure = rounded(mean, deviation, reach)
    return 0.0 if relative else center, scale, SAME if sure else DECLARED


def rounded(mean: float, deviation: float, reach: Reach) -> tuple[float, float, bool]:
    """Center and scale on the coarse grid, and whether every allowed dataset gives the same."""
    scale = _power_of_two(deviation)
    center = _on_grid(mean, scale)
    slack = 1e-9 * (abs(mean) + deviation + 1)  # both are computed in floating point
    least, most = deviation - reach.deviation - slack, deviation + reach.deviation + slack
    if not math.isfinite(most) or least <= 0 or not _power_of_two(least) == scale == _power_of_two(most):
        return center, scale, False
    ends = {_on_grid(mean + side * (reach.mean + slack), scale) for side in (-1, 1)}
    return center, scale, ends == {center}


def _power_of_two(deviation: float) -> float:
    return 2.0 ** round(math.log2(deviation)) if deviation > 0 else 1.0


def _on_grid(mean: float, scale: float) -> float:
    return round(2 * mean / scale) * scale / 2
