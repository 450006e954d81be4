"""What a run is about: samples for training, validation and test, from a dataset or from a table of the user.

Splits and preprocessing are fixed before training. A table without a test file of its own is split by the seed: a fifth
for testing, and a tenth of the rest for validation. The split goes by row number, so no value in the table can change
it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fullcert.data import datasets, fitted_encoding, tables
from fullcert.data.datasets import Dataset, Split
from fullcert.data.dates import parse_dates
from fullcert.data.dialects import UNSAID, Dialect, Said, check_named
from fullcert.data.encoding import SCALED, Encoding, Number
from fullcert.data.fitted_encoding import Moves
from fullcert.data.tables import LARGEST, Table, as_words
from fullcert.experiment import missing_cells
from fullcert.experiment.options import Options, flag_of
from fullcert.experiment.threats import parse_ranges, parse_tolerances, valid_ranges
from fullcert.system.mistakes import Mistake

TEST, VALIDATION = 5, 10  # one in so many
FOR_TABLES = (
    *("trusted", "test_data", "target", "regression", "ignore", "categorical", "scale", "id", "dates", "missing_mark"),
    *("impute", "drop_unlabelled", "encoding", "separator", "thousands", "ignore_case", "valid"),
)


class Origin(NamedTuple):
    """Where samples stand in the file of the user: its name, the line of each, and its id where a column has one."""

    path: str
    lines: list[int]
    ids: list[str] | None

    def of(self, sample: int) -> dict[str, Any]:
        """What an answer about a sample carries."""
        return {"line": self.lines[sample], **({} if self.ids is None else {"id": self.ids[sample]})}


@dataclass(frozen=True)
class Task:
    """Data as arrays, how a table became them, trusted samples to start from, and every range of missing values."""

    data: Dataset
    encoding: Encoding | None = None
    trusted: Split | None = None
    missing: tuple[str, ...] = ()  # ranges of missing values, those taken from the observed data written out
    origins: Mapping[str, Origin] = field(default_factory=dict)  # of train, validation and test, if from a file
    unlabelled: int = 0  # rows without a target that were left out
    files: Mapping[str, str] = field(default_factory=dict)  # the sha256 of those of the user, by their option

    @property
    def regression(self) -> bool:
        return self.encoding is not None and self.encoding.target.regression

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.data.class_names or tuple(map(str, range(self.data.classes)))

    @property
    def planar(self) -> bool:
        """Whether the inputs are points of a plane, which can be drawn."""
        numbers = self.encoding is None or all(isinstance(column, Number) for column in self.encoding.columns)
        return numbers and 2 <= self.data.classes <= 10 and self.data.train.inputs.shape[1:] == (2,)


def load(options: Options) -> Task:
    """The task of a run."""
    if options.data is not None:
        check_named(Path(options.data), options.encoding)
        train = read(options, Path(options.data))
        test = read(options, Path(options.test_data)) if options.test_data is not None else None
        return from_tables(options, train, test, str(options.target))
    if options.dataset == "adult":
        train, test = (
            Table(_typed(columns, options), Path("adult")).within(valid_ranges(options))
            for columns in datasets.adult_columns(Path(options.data_dir))
        )
        return from_tables(options, train, test, "income")
    for name in FOR_TABLES:
        if getattr(options, name):
            raise Mistake(f"{flag_of(name)} goes with --data, a table of your own")
    return Task(datasets.load(options.dataset, Path(options.data_dir), options.seed))


def _typed(columns: Mapping[str, np.ndarray], options: Options) -> dict[str, np.ndarray]:
    return {name: tables.from_words(list(column), dialect_of(options), name) for name, column in columns.items()}


def dialect_of(options: Options) -> Dialect:
    """How the tables of a run are written."""
    words = frozenset([] if options.id is None else [options.id])
    marks, any_case = frozenset(options.missing_mark), frozenset(options.ignore_case)
    return Dialect(options.encoding, options.separator, options.decimal, options.thousands, marks, words, any_case)


def read(options: Options, path: Path, said: Said = UNSAID) -> Table:
    """A table of a run, with its dates as numbers; written as those of the run are, as far as nothing else is said."""
    table = tables.read(path, said.over(dialect_of(options))).within(valid_ranges(options))
    return table.with_dates(parse_dates(options.dates))


def from_tables(options: Options, train: Table, test: Table | None, target: str) -> Task:
    """Tables as arrays. What is learnt from the data for that is learnt from the training rows, or the trusted ones."""
    for name in options.ignore_case:
        train.column(name)
    all_rows = len(train) + (0 if test is None else len(test))
    if options.drop_unlabelled:
        train, test = labelled(train, target), None if test is None else labelled(test, target)
    unlabelled = all_rows - len(train) - (0 if test is None else len(test))
    parts = split_rows(options.seed, len(train), test is not None)
    if not all(len(part) for name, part in parts.items() if name == "train" or test is None):
        raise Mistake(f"{train.path} has {len(train)} rows, too few to train on and to test with")
    options = replace(options, missing=missing_cells.ranges(options, train, parts["train"]))
    trusted = read(options, Path(options.trusted)) if options.trusted is not None else None
    fitted = train if trusted is None else trusted
    seen = fitted.taken(parts["train"] if trusted is None else np.arange(len(trusted)))
    moves = _moves(options, train, len(parts["train"]))
    names = {*_left_out(options), *options.categorical, *([] if options.regression else [target])}
    train.check_clear([name for name in train.columns if name not in names])
    made = fitted_encoding.make(
        seen,
        target,
        regression=options.regression,
        ignore=_left_out(options),
        categorical=options.categorical,
        relative=_relative(options),
        fixed=_scales(options),
        moves=moves,
        trusted=trusted is not None,
        fills=missing_cells.fills(options, seen, target, moves, trusted is not None),
    )
    whole = _split(train, made, options)
    splits = {name: Split(whole.inputs[part], whole.labels[part]) for name, part in parts.items()}
    if test is not None:
        splits["test"] = _split(test, made, options)
    if not len(splits["validation"].labels):
        splits["validation"] = splits["test"]
    classes = made.target.classes
    pixels = (0.0, 1.0) if whole.inputs.ndim > 2 else None
    if pixels and not all(((split.inputs >= 0) & (split.inputs <= 1)).all() for split in splits.values()):
        raise Mistake(f"{train.path} holds images with values outside of those from 0 to 1: give bytes, or scale them")
    data = Dataset(**splits, classes=len(classes), features=made.features, class_names=classes or None, valid=pixels)
    clean = None if trusted is None else _trusted(trusted, made, options)
    origins = {name: _origin(train.taken(part), options) for name, part in parts.items()}
    if test is not None:
        origins["test"] = _origin(test, options)
    if not origins["validation"].lines:
        origins["validation"] = origins["test"]
    named = {} if train.lines is None else origins
    read_from = {"data": train, "test_data": test, "trusted": trusted}
    files = {name: table.digest for name, table in read_from.items() if table is not None and table.digest is not None}
    return Task(data, made, clean, options.missing, named, unlabelled, files)


def _left_out(options: Options) -> tuple[str, ...]:
    """Columns that are no inputs."""
    return options.ignore if options.id is None else (*options.ignore, options.id)


def labelled(table: Table, target: str) -> Table:
    """The rows that have a target."""
    known = as_words(table.column(target)) != "" if table.column(target).ndim == 1 else np.ones(len(table), dtype=bool)
    if not known.any():
        raise Mistake(f"no row of {table.path} has a value in the target column {target!r}")
    return table.taken(np.flatnonzero(known))


def _origin(table: Table, options: Options) -> Origin:
    ids = None if options.id is None else as_words(table.column(options.id)).tolist()
    return Origin(str(table.path), [] if table.lines is None else table.lines.tolist(), ids)


def split_rows(seed: int, count: int, has_test: bool) -> dict[str, np.ndarray]:
    """Which rows of a table are for training, validation and test, in the order of the samples."""
    rows = np.random.RandomState(seed).permutation(count)
    held_out = 0 if has_test else count // TEST
    validated = min(1000, count // VALIDATION) if has_test else (count - held_out) // VALIDATION
    train = rows[held_out:] if has_test else rows[held_out + validated :]
    return {"test": rows[:held_out], "validation": rows[held_out : held_out + validated], "train": np.sort(train)}


def _trusted(table: Table, made: Encoding, options: Options) -> Split:
    found = _split(table, made, options)
    if np.isnan(found.inputs).any():
        raise Mistake(f"{table.path} has missing values, and plain training on trusted data cannot take them")
    return found


def _split(table: Table, made: Encoding, options: Options) -> Split:
    inputs, labels = made.inputs(table), made.target.encoded(table.column(made.target.name))
    missing_cells.check_holes(table, made, options)
    return Split(inputs, labels)


def _relative(options: Options) -> list[str]:
    """Columns with a tolerance in per cent, of training or of test rows."""
    given = (options.tolerance, options.test_tolerance)
    return [name for tolerances in given for name in parse_tolerances(tolerances).relative]


def _scales(options: Options) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    for name, pair in parse_ranges(options.scale, "--scale", "age=40:16").items():
        if pair is None or not pair[1] > 0:
            raise Mistake(f"--scale must be COLUMN=CENTER:SCALE with a positive scale, such as {name}=40:16")
        if pair[1] < 1 / LARGEST or abs(pair[0]) > SCALED * pair[1]:
            told = f"the scale must be at least {1 / LARGEST:g}, and the center at most {SCALED:g} times as large"
            raise Mistake(f"--scale {name} is around {pair[0]:g} by {pair[1]:g}: {told}")
        found[name] = pair
    return found


def _moves(options: Options, train: Table, count: int) -> Moves:
    """How far the threat moves the columns."""
    amounts = parse_tolerances(options.tolerance)
    by_column = dict(amounts.absolute)
    for name, share in amounts.relative.items():
        column = train.column(name)
        by_column[name] = share * float(np.nanmax(np.abs(column), initial=0.0)) if tables.is_number(column) else 0.0
    by_column |= dict.fromkeys(options.any_category, float("inf"))
    share = 1.0 if options.at_most is None else min(1.0, options.at_most / count)
    return Moves(
        by_column,
        options.epsilon,
        share,
        anything=bool(options.remove or options.replace),
        missing={name: pair for name, pair in parse_ranges(options.missing, "--missing").items() if pair is not None},
        unknown=missing_cells.unknown(options, train),
        target=options.target_tolerance,
        flips=options.flip_labels,
    )
