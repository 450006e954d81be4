"""How the columns of a table become the inputs of a network: numbers scaled, categories as one-hot columns.

The encoding is part of the training algorithm. It is kept with the run, and used unchanged for every later row. Its
numbers come from one of three places, and the encoding says which:

- *fixed*: the user gave them, or they come from trusted data: a choice made before training, like the seed;
- *the same for all*: no allowed dataset gives other ones, because the threat does not touch the column, or because mean
  and deviation, rounded to a coarse grid, are the same over all that the threat allows;
- *declared*: taken from the observed data as if they had been fixed beforehand. Another dataset would have given other
  numbers, and the certificate does not cover that.

For a column of which each value can move by t, in a share p of the samples: the mean moves by at most p t, and the
deviation by at most sqrt(p) t, because the deviation is a seminorm and that of the moves is at most their root mean
square. So the mean is rounded to a multiple of half the scale, the deviation to a power of two, and if both ends of
what they can be round to the same numbers, every allowed dataset gives these. A missing value stands in the middle of
its range, from where what it really was is at most half the range away. The target of a regression is scaled so too.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from sys import float_info
from typing import Any, NamedTuple

import numpy as np

from fullcert.mistakes import Mistake
from fullcert.tables import Table, is_number, listed

FIXED, SAME, DECLARED = "fixed beforehand", "the same for every allowed dataset", "declared, not covered"
MOST_CATEGORIES = 1000


@dataclass(frozen=True)
class Number:
    """A column of numbers: ``(x - center) / scale``."""

    name: str
    center: float
    scale: float
    source: str

    width = 1

    def encoded(self, column: np.ndarray) -> np.ndarray:
        return ((column - self.center) / self.scale)[:, None]


@dataclass(frozen=True)
class Words:
    """A column of categories: one-hot. A category that is not in the list is a row of zeros."""

    name: str
    values: tuple[str, ...]
    source: str

    @property
    def width(self) -> int:
        return len(self.values)

    def encoded(self, column: np.ndarray) -> np.ndarray:
        return (known_words(column, self.values)[:, None] == np.array(self.values)[None]).astype(np.float64)


@dataclass(frozen=True)
class Image:
    """An array of inputs that is used as it is."""

    name: str
    shape: tuple[int, ...]
    source: str = FIXED

    @property
    def width(self) -> int:
        return math.prod(self.shape)


Column = Number | Words | Image
KINDS: dict[str, type[Column]] = {"number": Number, "words": Words, "image": Image}


@dataclass(frozen=True)
class Target:
    """The column that is predicted: classes by name, or a number that is scaled."""

    name: str
    classes: tuple[str, ...] = ()
    center: float = 0.0
    scale: float = 1.0
    source: str = FIXED

    @property
    def regression(self) -> bool:
        return not self.classes

    def encoded(self, column: np.ndarray) -> np.ndarray:
        if self.regression:
            if not is_number(column) or np.isnan(column).any():
                raise Mistake(f"the target column {self.name!r} must hold a number in every row")
            return (column - self.center) / self.scale
        words = known_words(column, self.classes)
        unknown = sorted(set(words.tolist()) - set(self.classes))
        if unknown:
            raise Mistake(
                f"the column {self.name!r} holds {listed(unknown)}, and the classes are {listed(self.classes)}"
            )
        places = {word: place for place, word in enumerate(self.classes)}
        return np.array([places[word] for word in words], dtype=np.int64)


@dataclass(frozen=True)
class Encoding:
    """All columns, in the order of the inputs, and the target."""

    columns: tuple[Column, ...]
    target: Target

    @property
    def features(self) -> tuple[str, ...]:
        """The name of every input."""
        names: list[str] = []
        for column in self.columns:
            if isinstance(column, Words):
                names += [f"{column.name}={value}" for value in column.values]
            else:
                names += [column.name] * column.width
        return tuple(names)

    @property
    def numbers(self) -> list[int]:
        """Which inputs are numbers, and not categories."""
        return [place for c in self.columns if isinstance(c, Number) for place in self.places(c.name)]

    def places(self, name: str) -> list[int]:
        """Which inputs a column becomes."""
        begin = 0
        for column in self.columns:
            if column.name == name:
                return list(range(begin, begin + column.width))
            begin += column.width
        raise Mistake(f"there is no column {name!r} among the inputs: they are {listed(c.name for c in self.columns)}")

    def column(self, name: str) -> Column:
        self.places(name)
        return next(column for column in self.columns if column.name == name)

    def inputs(self, table: Table) -> np.ndarray:
        """The inputs of a network, (N, features); NaN where a number is missing."""
        if isinstance(self.columns[0], Image):
            values = table.column(self.columns[0].name)
            if values.shape[1:] != self.columns[0].shape:
                raise Mistake(f"{table.path} has inputs of shape {values.shape[1:]}, not {self.columns[0].shape}")
            return values
        parts = []
        for column in self.columns:
            values = table.column(column.name)
            if values.ndim > 1 or (isinstance(column, Number) and not is_number(values)):
                raise Mistake(f"the column {column.name!r} of {table.path} must hold numbers, as it did in training")
            parts.append(column.encoded(values))  # type: ignore[union-attr]
        return np.concatenate(parts, axis=1)

    def as_data(self) -> dict[str, Any]:
        names = {kind: name for name, kind in KINDS.items()}
        return {"columns": [{"kind": names[type(c)], **asdict(c)} for c in self.columns], "target": asdict(self.target)}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> "Encoding":
        columns = []
        for entry in data["columns"]:
            options = _tupled(entry)
            columns.append(KINDS[options.pop("kind")](**options))
        made = cls(tuple(columns), Target(**_tupled(data["target"])))
        if not made.columns or not all(map(_whole, (*made.columns, made.target))):
            raise ValueError("an encoding must say for every column how it is encoded")
        return made


def _tupled(entry: dict[str, Any]) -> dict[str, Any]:
    """What was written as a list is a tuple again."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}


def _whole(column: Column | Target) -> bool:
    """Whether what was read of a column is of the kind that is written."""
    names = getattr(column, "values", getattr(column, "classes", ()))
    numbers = [getattr(column, name) for name in ("center", "scale") if hasattr(column, name)]
    shape = getattr(column, "shape", ())
    return (
        isinstance(column.name, str)
        and isinstance(names, tuple)
        and all(isinstance(name, str) for name in names)
        and all(isinstance(number, int | float) and abs(number) <= float_info.max for number in numbers)
        and all(isinstance(number, float) or abs(number) < 2**53 for number in numbers)
        and isinstance(shape, tuple)
        and all(isinstance(size, int) for size in shape)
        and isinstance(getattr(column, "source", ""), str)
    )


def as_words(column: np.ndarray) -> np.ndarray:
    """Values as words: whole numbers without a point, so that 1 and 1.0 are one category."""
    if not is_number(column):
        return column
    return np.array(["" if math.isnan(v) else str(int(v)) if v.is_integer() else repr(v) for v in column.tolist()])


def known_words(column: np.ndarray, known: Sequence[str]) -> np.ndarray:
    """Values as words, written as the known ones are: a file whose cells are all numbers has lost how they were
    written, and the 1 that was 1.0 beside other words is still that category."""
    words = as_words(column)
    if not is_number(column):
        return words
    spellings: dict[float, list[str]] = {}
    for word in known:
        if (number := _as_number(word)) is not None:
            spellings.setdefault(number, []).append(word)
    for place in np.flatnonzero(~np.isin(words, known) & ~np.isnan(column)):
        found = spellings.get(float(column[place]), [])
        if len(found) > 1:
            raise Mistake(f"{words[place]} can be any of {listed(found)} here: put a word into the column beside them")
        words = words.astype(object)
        words[place] = found[0] if found else words[place]
    return words.astype(str)


def _as_number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


# --- making one ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moves:
    """What a threat can do to the table: by column how far a value moves, in what share of the samples.

    ``everywhere`` is in units of the scale. ``anything``: samples can be removed or replaced, and every statistic
    changes with them. ``missing``: the range of missing values by column. ``target`` is how far every target of a
    regression moves, and ``flips`` how many labels are wrong.
    """

    by_column: Mapping[str, float]
    everywhere: float = 0.0
    share: float = 1.0
    anything: bool = False
    missing: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    target: float = 0.0
    flips: int = 0


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
) -> Encoding:
    """The encoding of a table. Columns in ``relative`` have a tolerance in per cent: they are not centered."""
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
        values = table.columns[name]
        if not is_number(values) or name in categorical:
            if name in fixed:
                raise Mistake(f"--scale {name} is for numbers, and that column holds categories")
            columns.append(_words(name, values, moves, trusted))
        elif name in fixed:
            columns.append(Number(name, *fixed[name], FIXED))
        else:
            columns.append(_number(name, values, name in relative, moves, trusted))
    return Encoding(tuple(columns), predicted)


def _target(table: Table, name: str, regression: bool, moves: Moves, trusted: bool) -> Target:
    values = table.column(name)
    if values.ndim > 1:
        raise Mistake(f"the target {name!r} must be one value a sample, not an array of shape {values.shape[1:]}")
    words = as_words(values)
    if (words == "").any():
        raise Mistake(f"{int((words == '').sum())} rows have no value in the target column {name!r}")
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
    if trusted:
        return Words(name, found, FIXED)
    changed = moves.anything or name in moves.by_column  # epsilon moves numbers only
    return Words(name, found, DECLARED if changed else SAME)


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
