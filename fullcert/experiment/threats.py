"""What the options say an attacker could have done: as threats of `boundflow`, and in plain words.

For a table, tolerances and ranges are in the units of their column, as they stand in the file; the inputs of the
network are scaled, so they are scaled too, and widened by what scaling a moved value can be off by. `--epsilon` is in
units of the scaled columns there, and moves numbers only: a category does not move, it is another one or it is not.
No number leaves what --valid says can stand in its column: beyond it the cell would be read as missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from boundflow import rounding
from boundflow.operators.losses import LOSSES
from boundflow.threats import (
    AtMost,
    Category,
    Labels,
    Linf,
    Missing,
    MissingCategory,
    Removal,
    Replacement,
    Threat,
    Tolerance,
)
from fullcert.data.dates import day_of, parse_dates
from fullcert.data.encoding import SCALED, Encoding, Number, Target, Words, scaled
from fullcert.data.tables import LARGEST
from fullcert.experiment.options import Options
from fullcert.system.mistakes import Mistake

Ranges = dict[str, tuple[float, float]]  # by column, in its units
CLEAN = Linf(0.0)
LEAST = 1e-30  # the least scaled move: less is nothing beside the roundings of float32


def changes_labels_alone(threat: Threat) -> bool:
    """Whether labels or targets may differ, and nothing else."""
    return {change.about for change in threat.changes} == {"targets"}


class Threats(NamedTuple):
    """The threat to the training data and to a test input, and how each is told: "No one who ... could have ..."."""

    training: Threat
    test: Threat
    training_words: str
    test_words: str


class Amounts(NamedTuple):
    """Tolerances by column: in its units, or as a share of the value."""

    absolute: dict[str, float]
    relative: dict[str, float]

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.absolute, *self.relative)


@dataclass(frozen=True)
class Subject:
    """What is threatened: the inputs, how a table became them, the task, and the precision of the run.

    ``reach`` is the largest modulus of every input, and ``target_reach`` that of a target, in any row that is asked
    about: it bounds what scaling a value can be off by.
    """

    inputs: np.ndarray
    encoding: Encoding | None
    classes: int  # 0 for regression
    valid: tuple[float, float] | None
    unit: float  # the distance from 1 to the next number of the run's precision
    reach: np.ndarray
    target_reach: float = 0.0


def largest(*inputs: np.ndarray) -> np.ndarray:
    """The largest modulus of every input over some rows; what is missing has none."""
    return np.max([np.nan_to_num(np.abs(rows)).max(axis=0, initial=0.0) for rows in inputs], axis=0)


def build(options: Options, subject: Subject) -> Threats:
    """Both threats of a run."""
    count, table = len(subject.inputs), subject.encoding is not None and subject.inputs.ndim == 2
    features = _features(options, subject, options.epsilon, options.tolerance, options.any_category)
    if options.at_most is not None:
        if not features:
            raise Mistake(
                "--at-most counts samples with changed features: give --epsilon, --tolerance or --any-category"
            )
        _within(options.at_most, count, "--at-most")
        features = [AtMost(options.at_most, _all(features))]
    others = [make(options, subject) for make in (_flipped, _taken_out, _exchanged, _filled_in)]
    training = _all([*features, *(threat for threat in others if threat is not None)])
    words = training_words(options, count, table), test_words(options, table)
    return Threats(training, of_test_inputs(options, subject), *words)


def of_test_inputs(options: Options, subject: Subject) -> Threat:
    """The threat to test inputs; missing values there are as unknown as in training."""
    moved = _features(options, subject, options.test_epsilon, options.test_tolerance, ())
    missing = _filled_in(options, subject)
    return _all([*moved, *([missing] if missing is not None else [])])


def _all(threats: Sequence[Threat]) -> Threat:
    """All threats at once."""
    if not threats:
        return CLEAN
    together = threats[0]
    for threat in threats[1:]:
        together = together & threat
    return together


def _within(number: int, count: int, flag: str) -> None:
    if number > count:
        raise Mistake(f"{flag} {number} exceeds the {count} training samples")


# --- features -----------------------------------------------------------------------------------------------------


def _features(
    options: Options, subject: Subject, epsilon: float, tolerance: Sequence[str], any_category: Sequence[str]
) -> list[Threat]:
    """Changes of the features."""
    threats: list[Threat] = [moved(subject, epsilon, options)] if epsilon else []
    if tolerance:
        threats.append(_tolerance(subject, _table(subject, "--tolerance"), parse_tolerances(tolerance), options))
    for name in any_category:
        encoding = _table(subject, "--any-category")
        if not isinstance(encoding.column(name), Words):
            raise Mistake(f"--any-category {name}: that column holds numbers; name it with --categorical too")
        if name in parse_ranges(options.missing, "--missing"):
            raise Mistake(f"--any-category {name} and --missing {name} are two threats to one column: use one of them")
        threats.append(Category(_categories(name, encoding, "--any-category"), unknown=True))
    return threats


def _categories(name: str, encoding: Encoding, flag: str) -> list[int]:
    """The inputs of a column of categories that has any."""
    places = encoding.places(name)
    if not places:
        raise Mistake(f"{flag} {name}: the training rows hold no category that it could be")
    return places


def moved(subject: Subject, epsilon: float, options: Options) -> Threat:
    """Every number moved; one-hot columns stay."""
    if subject.encoding is None or subject.inputs.ndim != 2:
        return Linf(epsilon, clip=subject.valid)
    numbers = [column for column in subject.encoding.columns if isinstance(column, Number)]
    if not numbers:
        raise Mistake("--epsilon moves numbers, and this table has none: use --any-category or --flip-labels")
    amounts = np.zeros(subject.inputs.shape[1])
    for column in numbers:
        [place] = subject.encoding.places(column.name)
        offset = abs(column.center) / column.scale  # a number that was moved is written, and read again
        amounts[place] = rounding.scaled_move(epsilon, float(subject.reach[place]), offset, subject.unit)
    kept = _kept(subject, subject.encoding, options)
    free = [place for place in subject.encoding.numbers if place not in kept]
    threats: list[Threat] = [Linf(amounts).on(features=free)] if free else []
    return _all(threats + [Linf(amounts, clip=ends).on(features=[place]) for place, ends in kept.items()])


def _tolerance(subject: Subject, encoding: Encoding, amounts: Amounts, options: Options) -> Threat:
    moves: dict[int, Any] = {}
    for name in amounts.names:
        column, (place, *others) = encoding.column(name), encoding.places(name)
        if others or not isinstance(column, Number):
            raise Mistake(f"--tolerance {name}: that column holds categories; use --any-category {name}")
        if name in amounts.relative:
            if column.center:
                raise Mistake(
                    f"--tolerance {name} in per cent is a share of the value, and the column is scaled around "
                    f"{column.center:g}: train with --scale {name}=0:{column.scale:g}, or give it in its units"
                )
            moves[place] = f"{100 * rounding.scaled_share(amounts.relative[name], subject.unit):.17g}%"
        else:
            moves[place] = _scaled(amounts.absolute[name], column, float(subject.reach[place]), subject.unit)
    kept = _kept(subject, encoding, options, amounts.names)
    free = {place: move for place, move in moves.items() if place not in kept}
    threats: list[Threat] = [Tolerance(free)] if free else []
    return _all(threats + [Tolerance({p: moves[p]}, clip=ends).on(features=[p]) for p, ends in kept.items()])


def _kept(
    subject: Subject, encoding: Encoding, options: Options, names: Sequence[str] | None = None
) -> dict[int, tuple[float, float]]:
    """The ends of each input of a number that --valid keeps in a range, of these columns or of all.

    What is moved must stand in its range to begin with, and a missing cell, too, wherever it may stand.
    """
    kept, missing = {}, parse_ranges(options.missing, "--missing")
    for name, (low, high) in valid_ranges(options).items():
        column = next((column for column in encoding.columns if column.name == name), None)
        if not isinstance(column, Number) or (names is not None and name not in names):
            continue
        [place] = encoding.places(name)
        first, last = _ends((low, high), column, subject.unit)
        cells, lost = subject.inputs[:, place], missing.get(name) or (low, high)
        if bool(((cells < first) | (cells > last)).any()) or min(lost) < low or max(lost) > high:
            flag = "--missing" if name in missing else "--impute"
            told = f"--valid {name}={told_number(low)}:{told_number(high)}"
            raise Mistake(
                f"{flag} {name} fills cells with numbers that {told} excludes, and the column is moved: narrow it"
            )
        kept[place] = first, last
    return kept


def _ends(pair: tuple[float, float], column: Number, unit: float) -> tuple[float, float]:
    """A range of a column among the scaled values, widened by what scaling can be off by."""
    low, high = sorted(scaled(column, np.array(pair)).tolist())
    off = _scaled(0.0, column, max(abs(low), abs(high)), unit)
    return low - off, high + off


def _scaled(move: float, column: Number | Target, largest: float, unit: float) -> float:
    """A move in the units of a column as one of the scaled values, which are at most ``largest``."""
    if move and not LEAST <= move / column.scale <= SCALED:
        raise Mistake(
            f"the column {column.name!r} is moved by {move:g}, and is scaled by {column.scale:g}: what is not 0 must "
            f"be from {LEAST:g} to {SCALED:g} once it is scaled"
        )
    return rounding.scaled_move(move / column.scale, largest, abs(column.center) / column.scale, unit)


def _table(subject: Subject, flag: str) -> Encoding:
    if subject.encoding is None or subject.inputs.ndim != 2:
        raise Mistake(f"{flag} names columns of a table: give one with --data, or use --dataset adult")
    return subject.encoding


def parse_tolerances(tolerances: Sequence[str]) -> Amounts:
    """``age=1`` and ``income=5%``."""
    amounts = Amounts({}, {})
    for text in tolerances:
        name, equals, amount = text.rpartition("=")
        share = amount.strip().endswith("%")
        try:
            number = float(amount.strip().removesuffix("%")) / (100 if share else 1)
        except ValueError:
            number = -1.0
        if not equals or not 0 <= number <= LARGEST:
            raise Mistake(f"--tolerance must be COLUMN=AMOUNT or COLUMN=5%, such as age=1, not {text!r}")
        if share and number and not LEAST <= number <= SCALED:
            raise Mistake(f"--tolerance {name} in per cent must be 0%, or from {100 * LEAST:g} to {100 * SCALED:g}%")
        if name in amounts.names:
            raise Mistake(f"--tolerance {name} was given twice")
        (amounts.relative if share else amounts.absolute)[name] = number
    return amounts


def parse_ranges(ranges: Sequence[str], flag: str, example: str = "age=17:90") -> dict[str, tuple[float, float] | None]:
    """``age=17:90``; a name alone has no numbers."""
    found: dict[str, tuple[float, float] | None] = {}
    for text in ranges:
        name, equals, pair = text.rpartition("=") if "=" in text else (text, "", "")
        if name in found:
            raise Mistake(f"{flag} {name} was given twice")
        if not equals:
            found[name] = None
            continue
        try:
            first, second = (float(part) for part in pair.split(":"))
            if not (abs(first) <= LARGEST and abs(second) <= LARGEST):
                raise ValueError
        except ValueError:
            told = f"{flag} must be COLUMN=NUMBER:NUMBER, such as {example}, with numbers up to {LARGEST:g}"
            raise Mistake(f"{told}, not {text!r}") from None
        found[name] = first, second
    return found


def valid_ranges(options: Options) -> Ranges:
    """The numbers that can stand in a column, where that was said."""
    found: Ranges = {}
    for name, pair in parse_ranges(options.valid, "--valid").items():
        if pair is None or pair[0] > pair[1]:
            raise Mistake(f"--valid must be COLUMN=LOW:HIGH, such as {name}=17:90")
        if name in parse_dates(options.dates) or name in options.categorical or name == options.id:
            raise Mistake(f"--valid {name} is for numbers, and that column holds dates, categories or ids")
        found[name] = pair
    return found


# --- labels, presence, missing values -----------------------------------------------------------------------------


def _flipped(options: Options, subject: Subject) -> Threat | None:
    if subject.classes == 0:
        if options.flip_labels:
            raise Mistake("--flip-labels is for classes; for --regression use --target-tolerance")
        if not options.target_tolerance:
            return None
        target = _table(subject, "--target-tolerance").target
        if target.name in valid_ranges(options):
            raise Mistake(
                f"--target-tolerance could move a target out of --valid {target.name}, where its row has none: "
                "leave out one of them"
            )
        return Labels(epsilon=_scaled(options.target_tolerance, target, subject.target_reach, subject.unit))
    if options.target_tolerance:
        raise Mistake("--target-tolerance is for --regression; for classes use --flip-labels")
    if not options.flip_labels:
        return None
    if options.loss == "mse":
        raise Mistake("--flip-labels goes with the losses bce, ce and hinge")
    _within(options.flip_labels, len(subject.inputs), "--flip-labels")
    return AtMost(
        options.flip_labels, Labels(classes=subject.classes if LOSSES[options.loss].outputs == "classes" else None)
    )


def _taken_out(options: Options, subject: Subject) -> Threat | None:
    _within(options.remove, len(subject.inputs), "--remove")
    return AtMost(options.remove, Removal()) if options.remove else None


def _exchanged(options: Options, subject: Subject) -> Threat | None:
    _within(options.replace, len(subject.inputs), "--replace")
    return AtMost(options.replace, Replacement()) if options.replace else None


def _filled_in(options: Options, subject: Subject) -> Threat | None:
    """Missing numbers, anything in their range, and missing categories, any of them."""
    if not options.missing:
        return None
    encoding = _table(subject, "--missing")
    ranges, numbers, unknown = np.zeros((subject.inputs.shape[1], 2)), [], []
    for name, given in parse_ranges(options.missing, "--missing").items():
        column, places = encoding.column(name), encoding.places(name)
        if isinstance(column, Words):
            if given is not None:
                raise Mistake(f"--missing {name}: a missing category may be any of them: give no range")
            unknown.append(MissingCategory(_categories(name, encoding, "--missing")))
            continue
        if given is None or not isinstance(column, Number):
            raise Mistake(f"--missing {name}: the training rows hold no value from which a range could be taken")
        ranges[places[0]] = _ends(given, column, subject.unit)
        numbers += places
    # holes in the inputs of categories are not for a range to fill
    return _all([*unknown, *([Missing(ranges).on(features=numbers)] if numbers else [])])


# --- words --------------------------------------------------------------------------------------------------------


def training_words(options: Options, count: int, table: bool) -> str:
    """What was done to ``count`` training samples, of a table or not: "No one who ... could have ..."."""
    deeds = _deeds(options, options.epsilon, options.tolerance, options.any_category, table)
    where = " in every training sample"
    if options.at_most is not None:
        where = f" in at most {options.at_most:,} of the {count:,} training samples"
        where = f",{where} altogether" if len(deeds) > 1 else where  # one budget for all deeds, not one for each
    told = [_joined(deeds) + where] if deeds else []
    if options.target_tolerance:
        told.append(f"moved every training target by up to {told_number(options.target_tolerance)}")
    if options.flip_labels:
        told.append(f"flipped at most {options.flip_labels:,} of the {count:,} training labels")
    if options.remove:
        told.append(f"slipped in at most {options.remove:,} of the {count:,} training samples")
    if options.replace:
        told.append(f"replaced at most {options.replace:,} of the {count:,} training samples by anything")
    if options.missing:
        known = "the trusted rows" if options.trusted is not None else "the training rows"
        told.append(
            f"filled in the missing values of {_joined([_told_range(m, known, options) for m in options.missing])}"
        )
    return _joined(told) or "changed nothing"


def test_words(options: Options, table: bool) -> str:
    """What was done to a test input; nothing if it is as it was."""
    deeds = _deeds(options, options.test_epsilon, options.test_tolerance, (), table)
    return f"{_joined(deeds)} in the test input" if deeds else ""


def _deeds(
    options: Options, epsilon: float, tolerance: Sequence[str], any_category: Sequence[str], table: bool
) -> list[str]:
    told, others = [], {options.target, *options.ignore}
    within = {
        name: f"{name} within {told_number(low)} to {told_number(high)}"
        for name, (low, high) in valid_ranges(options).items()
        if name not in others
    }
    if epsilon:
        what = "every number, in units of its column's scale," if table else "every feature"
        told.append(f"moved {what} by up to {told_number(epsilon)}{_kept_words([*within.values()])}")
    if tolerance:
        amounts = parse_tolerances(tolerance)
        phrases = [f"{name} by up to {told_number(amount)}" for name, amount in amounts.absolute.items()]
        phrases += [f"{name} by up to {100 * share:.15g} %" for name, share in amounts.relative.items()]
        kept = [within[name] for name in amounts.names if name in within]
        told.append(f"moved {_joined(phrases)}{_kept_words(kept)}")
    if any_category:
        told.append(f"put any category into {_joined(list(any_category))}")
    return told


def _kept_words(within: list[str]) -> str:
    return f" ({_joined(within)})" if within else ""


def _told_range(missing: str, known: str, options: Options) -> str:
    name, equals, pair = missing.rpartition("=")
    if not equals:
        return f"{missing} by any category of {known}"
    ends = list(map(float, pair.split(":")))
    told = [day_of(end) if name in parse_dates(options.dates) else None for end in ends]
    first, last = (day or told_number(end) for day, end in zip(told, ends, strict=True))
    return f"{name} by anything from {first} to {last}"


def _joined(phrases: list[str]) -> str:
    return phrases[0] if len(phrases) == 1 else ", ".join(phrases[:-1]) + " and " + phrases[-1] if phrases else ""


def told_number(number: float) -> str:
    """As it was written: fewer digits could claim more than is covered."""
    short = f"{number:.15g}"
    return short if float(short) == number else repr(number)
