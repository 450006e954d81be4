"""What the certificate of a run says of new rows: the label of each, whether it is certified, bounds and margin."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import boundflow as bf
from boundflow import rounding
from boundflow.optimum.load_either_way import input_shape
from boundflow.threats import Threat
from fullcert.data import tables
from fullcert.data.dialects import PLAIN, UNSAID, Dialect, Said
from fullcert.data.encoding import Encoding, Image, Number, Target, Words
from fullcert.data.tables import as_words
from fullcert.experiment import identity, missing_cells, runs, tasks, threats
from fullcert.experiment.identity import Kept
from fullcert.experiment.losses import outputs
from fullcert.experiment.options import Options
from fullcert.experiment.training import DTYPES
from fullcert.networks import models
from fullcert.networks.probabilities import LOGISTIC, probabilities
from fullcert.results import voting
from fullcert.results.evaluation import CHUNK, Made
from fullcert.system.mistakes import Mistake, choose


class Answers(NamedTuple):
    """Columns of the answers, one entry a row; and what they hold against, in the words of the report."""

    rows: dict[str, list[Any]]
    threat: dict[str, str]
    void_at_step: int | None
    unknown: dict[str, int]  # in how many rows a column holds a category that training did not have


class Asked(NamedTuple):
    """A run that is asked about rows: what answers, the rows as inputs, what they could have been, and their table."""

    certificate: Made
    x: torch.Tensor
    threat: Threat
    words: dict[str, str]
    encoding: Encoding
    table: tables.Table
    ensemble: bf.Ensemble | None = None  # whose first member the certificate is
    id: str | None = None  # the column that names rows

    def found(self, data: Path, cuts: int) -> bf.Prediction:
        with refused(f"{data} cannot be certified"):
            return self.certificate.predict(self.x, threat=self.threat, cuts=cuts, chunk=CHUNK)

    def withstood(self, over: str | None) -> bf.Withstood:
        """For each row the largest threat at which its answer is certain."""
        with refused("what the answers withstand cannot be said"):
            if self.ensemble is not None:
                return self.ensemble.withstands(self.x, threat=self.threat, chunk=CHUNK)
            return self.certificate.withstands(self.x, threat=self.threat, over=over, chunk=CHUNK)


@contextmanager
def refused(what: str) -> Iterator[None]:
    """What cannot be answered, as one sentence."""
    try:
        yield
    except bf.CrossedBounds:  # a bug of ours
        raise
    except (ValueError, bf.BoundFlowError) as error:
        raise Mistake(f"{what}: {error}") from None


def answers(
    run: Path,
    data: Path,
    epsilon: float | None,
    tolerance: Sequence[str] | None,
    cuts: int = 0,
    said: Said = UNSAID,
) -> Answers:
    """What the certificate of a run says of the rows in a file."""
    return told(asked(run, data, epsilon, tolerance, said), data, cuts)


def told(question: Asked, data: Path, cuts: int) -> Answers:
    """The answers to a question."""
    certificate, encoding, table = question.certificate, question.encoding, question.table
    if question.ensemble is not None:
        return Answers(by_vote(question, data), question.words, None, unknown(encoding, table))
    found = question.found(data, cuts)
    if not encoding.target.regression and int(found.label.max()) >= len(encoding.target.classes):
        many = len(encoding.target.classes)
        raise Mistake(f"the certificate has more classes than the {many} that the run names")
    rows = columns(found, encoding.target, table, question.id)
    place = list(rows).index("certified") + 1
    marked: dict[str, list[Any]] = {**unseen(encoding, table), **likely(question)}
    rows = dict([*list(rows.items())[:place], *marked.items(), *list(rows.items())[place:]])
    return Answers(rows, question.words, certificate.void_at_step, unknown(encoding, table))


def likely(question: Asked) -> dict[str, list[float | None]]:
    """How likely each class is for the plain model, where it was trained to say so."""
    certificate, classes = question.certificate, question.encoding.target.classes
    if not classes or certificate.record["loss"] not in LOGISTIC:
        return {}
    reference = next(certificate.nominal.parameters())
    x = question.x.to(reference.device, reference.dtype)
    with torch.no_grad():
        outputs = [certificate.nominal(question.threat.observed(part).clone()) for part in x.split(CHUNK)]
    shares = probabilities(torch.cat(outputs).double())
    return {f"probability_{name}": _finite(shares[:, place]) for place, name in enumerate(classes)}


def by_vote(question: Asked, data: Path) -> dict[str, list[Any]]:
    """What the members of a run answer together: the label, how many vote for it, and how many changes it withstands.

    Certified against the budget of the run, the largest that its members were trained for.
    """
    ensemble, target = question.ensemble, question.encoding.target
    assert ensemble is not None
    k = max(clause["budget"] for one in ensemble.members[0] for clause in one.record["clauses"])
    with refused(f"{data} cannot be certified"):
        vote = ensemble.predict(question.x, threat=question.threat, chunk=CHUNK)
    rows: dict[str, list[Any]] = {
        **standing_in(question.table, question.id, len(question.table)),
        "label": [target.classes[int(label)] for label in vote.label],
        "certified": vote.certified(k).tolist(),
        **unseen(question.encoding, question.table),
        "votes": (vote.members == vote.label.unsqueeze(1)).sum(1).tolist(),
        "withstands": [None if value < 0 else value for value in vote.withstood.tolist()],
    }
    if target.name in question.table.columns:
        rows["true"] = _classes(question.table.columns[target.name], target)
    return rows


def asked(run: Path, data: Path, epsilon: float | None, tolerance: Sequence[str] | None, said: Said = UNSAID) -> Asked:
    """The certificate of a run, and the rows in a file as it takes them."""
    kept = identity.opened(run)
    certificate_file, options = voting.certificate_of(run), kept.options
    table = tasks.read(options, data, said)
    if (run / runs.COLUMNS).exists():
        encoding = encoding_of(run / runs.COLUMNS, tasks.dialect_of(options))
    else:
        encoding = as_it_is(table, certificate_shape(certificate_file), classes_of(run), options)
    inputs = encoding.inputs(table)
    missing_cells.check_holes(table, encoding, options)
    certificate = load(certificate_file, kept, inputs.shape[1:], encoding)
    options = asked_about(options, epsilon, tolerance)
    # neither a built-in dataset nor images have columns by name
    named = encoding if encoding.columns[0].source and inputs.ndim == 2 else None
    ensemble = voting.opened(run, certificate.nominal if ":" in options.model else None)
    samples = certificate.record["samples"] if ensemble is None else ensemble.samples
    words = {
        "training": threats.training_words(options, samples, named is not None),
        "test": threats.test_words(options, named is not None),
    }
    threat = test_threat(options, encoding, named, inputs)
    return Asked(certificate, torch.as_tensor(inputs), threat, words, encoding, table, ensemble, options.id)


def unknown(encoding: Encoding, table: tables.Table) -> dict[str, int]:
    """Columns with categories that training did not have, which count as none, and in how many rows."""
    found = {name: int(rows.sum()) for name, rows in new_categories(encoding, table).items()}
    return {name: count for name, count in found.items() if count}


def new_categories(encoding: Encoding, table: tables.Table) -> dict[str, np.ndarray]:
    """By column of categories, the rows with one that training did not have."""
    named = [column for column in encoding.columns if isinstance(column, Words)]
    return {column.name: ~np.isin(as_words(table.column(column.name)), ["", *column.values]) for column in named}


def unseen(encoding: Encoding, table: tables.Table) -> dict[str, list[str]]:
    """A mark on rows with categories that training did not have: the columns in which they stand."""
    found = new_categories(encoding, table)
    if not found:
        return {}
    return {"unseen": [", ".join(name for name in found if found[name][row]) for row in range(len(table))]}


def encoding_of(path: Path, dialect: Dialect = PLAIN) -> Encoding:
    """How columns became inputs; names of categories must be those that cells are read as."""
    try:
        made = Encoding.from_data(runs.read_json(path))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise Mistake(f"{path} is damaged: it does not say how columns become inputs") from None
    for column in (*made.columns, made.target):
        for name in getattr(column, "values", getattr(column, "classes", ())):
            if not tables.is_written(name, dialect):
                raise Mistake(
                    f"{path} has {name!r} in the column {column.name!r}, which is read as "
                    f"{tables.plain_word(name, dialect)!r} since another version: train again"
                )
    return made


def load(path: Path, kept: Kept, shape: tuple[int, ...], encoding: Encoding) -> Made:
    """The certificate; a network from a file of the user is made again to hold it, if the file is as it was."""
    model, options = None, kept.options
    if ":" in options.model:
        identity.require_code(kept)
        classes = len(encoding.target.classes)
        model = models.build(options, shape, outputs(options.loss, classes))
    try:
        certificate = bf.load(path, model)
        known = tuple(certificate.record["input_shape"])
    except bf.BoundFlowError as error:
        raise Mistake(" ".join(str(error).split())) from None
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError) as error:
        raise Mistake(f"the certificate {path} is damaged: {' '.join(str(error).split())}") from None
    if known != tuple(shape):
        raise Mistake(f"{path} is about inputs of shape {known}, not {tuple(shape)}")
    return certificate


def certificate_shape(path: Path) -> tuple[int, ...]:
    """The shape of the inputs, from the record alone: the network may be one that only the user's file makes."""
    try:
        return input_shape(path)
    except bf.BoundFlowError as error:
        raise Mistake(str(error)) from None


def classes_of(run: Path) -> tuple[str, ...]:
    """The names of the classes of a run on a built-in dataset."""
    path = runs.existing(run, runs.EVALUATION)
    classes = runs.read_json(path).get("classes")
    if not isinstance(classes, list) or len(classes) < 2 or not all(isinstance(name, str) for name in classes):
        raise Mistake(f"{path} is damaged: it does not name the classes")
    return tuple(classes)


def as_it_is(table: tables.Table, shape: tuple[int, ...], classes: tuple[str, ...], options: Options) -> Encoding:
    """The inputs of a run on a built-in dataset: as many columns of numbers, in order, or one array."""
    numbers = [name for name, column in table.columns.items() if tables.is_number(column) and column.ndim == 1]
    target = next((name for name, column in table.columns.items() if name in TARGETS and column.ndim == 1), "")
    if target in numbers and len(shape) == 1 and len(numbers) <= shape[0]:
        target = ""  # a plane has a y, too
    if target and not set(as_words(table.columns[target]).tolist()) <= set(classes):
        classes = tuple(map(str, range(len(classes))))  # labels by number
    if len(shape) > 1:
        fitting = [name for name, column in table.columns.items() if column.shape[1:] == shape]
        if len(fitting) != 1:
            raise Mistake(f"{table.path} must hold one array of inputs of shape {shape}, as {options.dataset} does")
        return Encoding((Image(fitting[0], shape),), Target(target, classes))
    numbers = [name for name in numbers if name != target]
    if len(numbers) != shape[0]:
        raise Mistake(
            f"{table.path} must hold {shape[0]} columns of numbers, as {options.dataset} does, not {len(numbers)}"
        )
    return Encoding(tuple(Number(name, 0.0, 1.0, "") for name in numbers), Target(target, classes))


TARGETS = ("y", "label", "target", "class")


def asked_about(options: Options, epsilon: float | None, tolerance: Sequence[str] | None) -> Options:
    """What could have been done to the new rows: as in the run, unless the command says otherwise."""
    if epsilon is not None and not 0 <= epsilon < inf:
        raise Mistake(f"--epsilon must be a finite number of at least 0, not {epsilon:g}")
    return replace(
        options,
        test_epsilon=options.test_epsilon if epsilon is None else epsilon,
        test_tolerance=options.test_tolerance if tolerance is None else tuple(tolerance),
    )


def test_threat(options: Options, encoding: Encoding, named: Encoding | None, inputs: np.ndarray) -> Threat:
    """The same as a threat to the inputs."""
    valid = (0.0, 1.0) if inputs.ndim > 2 else None
    unit = torch.finfo(choose("dtype", options.dtype, DTYPES)).eps
    subject = threats.Subject(inputs, named, len(encoding.target.classes), valid, unit, threats.largest(inputs))
    return threats.of_test_inputs(options, subject)


def columns(found: bf.Prediction, target: Target, table: tables.Table, id: str | None = None) -> dict[str, list[Any]]:
    """The answers as columns, in the units of the user: bounds and widths are rounded outwards."""
    bounds = rounding.affine_image(torch.stack((found.lower, found.upper)), target.scale, target.center)
    lower, upper = bounds
    rows = standing_in(table, id, len(found.label))
    if target.regression:
        rows["value"] = _finite(found.label.double().reshape(-1) * target.scale + target.center)
        rows["certified"] = found.certified.tolist()
        rows["width"] = _finite(rounding.width(bounds).amax(1))
    else:
        rows["label"] = [target.classes[int(label)] for label in found.label]
        rows["certified"] = found.certified.tolist()
        rows["margin"] = _finite(found.margin)
    for output in range(lower.shape[1]):
        suffix = f"_{output}" if lower.shape[1] > 1 else ""
        rows[f"lower{suffix}"], rows[f"upper{suffix}"] = _finite(lower[:, output]), _finite(upper[:, output])
    if target.name in table.columns:
        true = table.columns[target.name]
        rows["true"] = _numbers(true, target) if target.regression else _classes(true, target)
    return rows


def standing_in(table: tables.Table, id: str | None, count: int) -> dict[str, list[Any]]:
    """The number of every row, its line in the file, and what the column of ids calls it where the file has one."""
    rows: dict[str, list[Any]] = {"row": list(range(count))}
    if table.lines is not None:
        rows["line"] = table.lines.tolist()
    if id is not None and id in table.columns:
        rows["id"] = as_words(table.columns[id]).tolist()
    return rows


def _classes(true: np.ndarray, target: Target) -> list[str | None]:
    """The classes that the rows have; a row that has none is to be predicted, and no mistake."""
    words = as_words(true)
    named = np.flatnonzero(words != "")
    found: list[str | None] = [None] * len(words)
    for row, number in zip(named, target.encoded(true[named]), strict=True):
        found[row] = target.classes[number]
    return found


def _numbers(true: np.ndarray, target: Target) -> list[float | None]:
    if not tables.is_number(true):
        raise Mistake(f"the target column {target.name!r} must hold numbers, as it did in training")
    return [None if np.isnan(value) else value for value in true.tolist()]


def _finite(values: torch.Tensor) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.tolist()]


def summary(rows: dict[str, list[Any]]) -> dict[str, Any]:
    """How many rows there are, how many are certified, and how many of those are right where that is known."""
    told: dict[str, Any] = {"samples": len(rows["row"]), "certified": sum(rows["certified"])}
    if "width" in rows and None not in rows["width"]:
        told["mean_width"] = float(rounding.upper_mean(torch.tensor(rows["width"], dtype=torch.float64)))
    answered = (
        zip(rows["label"], rows["true"], rows["certified"], strict=True) if {"true", "label"} <= set(rows) else ()
    )
    pairs = [answer for answer in answered if answer[1] is not None]
    if pairs:
        told["accuracy"] = sum(label == true for label, true, _ in pairs) / len(pairs)
        told["certified_accuracy"] = sum(label == true and sure for label, true, sure in pairs) / len(pairs)
    return told
