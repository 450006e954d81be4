"""How the columns of a table become the inputs of a network: numbers scaled, categories as one-hot columns.

The encoding is part of the training algorithm. It is kept with the run, and used unchanged for every later row. Its
numbers come from one of three places, and the encoding says which:

- *fixed*: the user gave them, or they come from trusted data: a choice made before training, like the seed;
- *the same for all*: no allowed dataset gives other ones, because the threat does not touch the column, or because mean
  and deviation, rounded to a coarse grid, are the same over all that the threat allows;
- *declared*: taken from the observed data as if they had been fixed beforehand. Another dataset would have given other
  numbers, and the certificate does not cover that.

How they are found is in `fitted_encoding.py`. A missing cell stays NaN for a threat to fill in, in a column of
categories all of its inputs; or it is filled with one value, which is part of the encoding and has a source of its own.
"""

import math
from dataclasses import asdict, dataclass
from sys import float_info
from typing import Any

import numpy as np

from fullcert.data.tables import Table, as_words, is_number, listed
from fullcert.system.mistakes import Mistake

SCALED = 1e15  # the largest input or target: beyond, little but roundings is computed
FIXED, SAME, DECLARED = "fixed beforehand", "the same for every allowed dataset", "declared, not covered"


@dataclass(frozen=True)
class Number:
    """A column of numbers: ``(x - center) / scale``."""

    name: str
    center: float
    scale: float
    source: str
    fill: float | None = None  # what stands in for a missing value, and where that comes from
    fill_source: str = ""

    width = 1

    def encoded(self, column: np.ndarray) -> np.ndarray:
        if self.fill is not None:
            column = np.where(np.isnan(column), self.fill, column)
        return scaled(self, column)[:, None]


def scaled(column: "Number | Target", values: np.ndarray) -> np.ndarray:
    """Numbers as inputs or targets."""
    found = (values - column.center) / column.scale
    largest = float(np.nanmax(np.abs(found), initial=0.0))
    if largest > SCALED:
        advice = f"use another --scale {column.name}=..." if isinstance(column, Number) else "write it in other units"
        raise Mistake(
            f"the column {column.name!r} has values of {largest:g} once it is scaled around {column.center:g} by "
            f"{column.scale:g}, and at most {SCALED:g} can be computed with: {advice}"
        )
    return found


@dataclass(frozen=True)
class Words:
    """A column of categories: one-hot. A category that is not in the list is a row of zeros.

    So is an empty cell, unless it is filled, or ``unknown``: NaN, which a threat makes any of the categories. Numbers
    among them are named as `tables.word_of` writes them.
    """

    name: str
    values: tuple[str, ...]
    source: str
    fill: str | None = None
    fill_source: str = ""
    unknown: bool = False

    @property
    def width(self) -> int:
        return len(self.values)

    def encoded(self, column: np.ndarray) -> np.ndarray:
        words = as_words(column)
        if self.fill is not None:
            words = np.where(words == "", self.fill, words)
        hot = (words[:, None] == np.array(self.values)[None]).astype(np.float64)
        if self.unknown:
            hot[words == ""] = np.nan
        return hot


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
            return scaled(self, column)
        words = as_words(column)
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
            if isinstance(column, Number) and not is_number(values):
                table.check_clear([column.name])
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
        and _filled(column)
    )


def _filled(column: Column | Target) -> bool:
    """Whether what stands in for missing values is of the kind of the column."""
    fill, kind = getattr(column, "fill", None), str if isinstance(column, Words) else int | float
    fits = fill is None or (isinstance(fill, kind) and (isinstance(fill, str) or abs(fill) <= float_info.max))
    flags = getattr(column, "unknown", False), getattr(column, "fill_source", "")
    return fits and isinstance(flags[0], bool) and isinstance(flags[1], str)
