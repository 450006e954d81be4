"""What a run is about: samples for training, validation and test, from a dataset or from a table of the user.

Splits and preprocessing are fixed before training. A table without a test file of its own is split by the seed: a fifth
for testing, and a tenth of the rest for validation. The split goes by row number, so no value in the table can change
it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fullcert import datasets, encoding, tables
from fullcert.datasets import Dataset, Split
from fullcert.encoding import Encoding, Moves, Number
from fullcert.mistakes import Mistake
from fullcert.options import Options, flag_of
from fullcert.tables import Table
from fullcert.threats import parse_ranges, parse_tolerances

TEST, VALIDATION = 5, 10  # one in so many


@dataclass(frozen=True)
class Task:
    """Data as arrays, how a table became them, trusted samples to start from, and every range of missing values."""

    data: Dataset
    encoding: Encoding | None = None
    trusted: Split | None = None
    missing: tuple[str, ...] = ()  # ranges of missing values, those taken from the observed data written out

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
        train = tables.read(Path(options.data))
        test = tables.read(Path(options.test_data)) if options.test_data is not None else None
        return from_tables(options, train, test, str(options.target))
    if options.dataset == "adult":
        train, test = (
            Table(_typed(columns), Path("adult")) for columns in datasets.adult_columns(Path(options.data_dir))
        )
        return from_tables(options, train, test, "income")
    for name in ("trusted", "test_data", "target", "regression", "ignore", "categorical", "scale"):
        if getattr(options, name):
            raise Mistake(f"{flag_of(name)} goes with --data, a table of your own")
    return Task(datasets.load(options.dataset, Path(options.data_dir), options.seed))


def _typed(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: tables.from_words(list(column)) for name, column in columns.items()}


def from_tables(options: Options, train: Table, test: Table | None, target: str) -> Task:
    """Tables as arrays. What is learnt from the data for that is learnt from the training rows, or the trusted ones."""
    parts = split_rows(options.seed, len(train), test is not None)
    if not all(len(part) for name, part in parts.items() if name == "train" or test is None):
        raise Mistake(f"{train.path} has {len(train)} rows, too few to train on and to test with")
    options = replace(options, missing=_ranges(options, train, parts["train"]))
    trusted = tables.read(Path(options.trusted)) if options.trusted is not None else None
    fitted = train if trusted is None else trusted
    seen = parts["train"] if trusted is None else np.arange(len(trusted))
    made = encoding.make(
        Table({name: column[seen] for name, column in fitted.columns.items()}, fitted.path),
        target,
        regression=options.regression,
        ignore=options.ignore,
        categorical=options.categorical,
        relative=_relative(options),
        fixed=_scales(options),
        moves=_moves(options, train, len(parts["train"])),
        trusted=trusted is not None,
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
    return Task(data, made, None if trusted is None else _trusted(trusted, made, options), options.missing)


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
    check_holes(table, made, options)
    return Split(inputs, labels)


def check_holes(table: Table, made: Encoding, options: Options) -> None:
    """Refuse missing values of which nobody said what they can be."""
    allowed = parse_ranges(options.missing, "--missing")
    names = [column.name for column in made.columns if isinstance(column, Number) and column.name not in allowed]
    holes = {name: int(np.isnan(table.column(name)).sum()) for name in names}
    found = [name for name in names if holes[name]]
    if found:
        where = ", ".join(f"{name!r} ({holes[name]})" for name in found)
        raise Mistake(
            f"{table.path} has missing values in {where}: say in training what they can be with --missing "
            f"{found[0]}=LOW:HIGH (without a range: the observed one), or leave the column out with --ignore {found[0]}"
        )


def _ranges(options: Options, train: Table, rows: np.ndarray) -> tuple[str, ...]:
    """Ranges of missing values, with that of the training rows where a column stands alone."""
    found = []
    for name, given in parse_ranges(options.missing, "--missing").items():
        column = train.column(name)
        if given is None and tables.is_number(column) and not np.isnan(column[rows]).all():
            given = float(np.nanmin(column[rows])), float(np.nanmax(column[rows]))
        found.append(name if given is None else f"{name}={min(given)!r}:{max(given)!r}")
    return tuple(found)


def _relative(options: Options) -> list[str]:
    """Columns with a tolerance in per cent, of training or of test rows."""
    given = (options.tolerance, options.test_tolerance)
    return [name for tolerances in given for name in parse_tolerances(tolerances).relative]


def _scales(options: Options) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    for name, pair in parse_ranges(options.scale, "--scale", "age=40:16").items():
        if pair is None or not pair[1] > 0:
            raise Mistake(f"--scale must be COLUMN=CENTER:SCALE with a positive scale, such as {name}=40:16")
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
        target=options.target_tolerance,
        flips=options.flip_labels,
    )
