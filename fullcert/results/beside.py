"""What stands beside the certificate of a run: whose it is, and whether it can be.

    evaluation.json   what the report shows            curve.json    what answers withstand
    metrics.json      the result of the run            attack.json   what attacks found
                                                       audit.json    what abstained predictions lean on

Each names the sha256 of the certificate that it is about. One of another certificate is refused, and so is one that
contradicts the certificate or the evaluation: another number of samples, shares that are none, more changes than the
sets were made for, a broken prediction that is certified. That finds files that were mixed up. Whoever forges numbers
that fit is found out by a signature, or by training again (`signing.py`, `verifying.py`).
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any

from fullcert.experiment import runs
from fullcert.results import constant_answer, manifest
from fullcert.system.mistakes import Mistake
from fullcert.system.unpacking import DAMAGE, parsed_json

ABOUT = "certificate"  # the name under which a file says what it is about
RECORD = "boundflow"  # the metadata of a certificate that hold its record
EDGE = 100  # one in so many answers may be another on another machine
TINY = 1e-9  # what means over seeds are rounded by
# what writes each of them anew
WRITERS = {
    runs.METRICS: "fullcert train --overwrite --out RUN",
    runs.CURVE: "fullcert certify RUN --withstands",
    runs.ATTACK: "fullcert attack RUN",
    runs.AUDIT: "fullcert audit RUN --report",
}

Data = dict[str, Any]


class Unfit(ValueError):
    """What a file says cannot be of this run; the message says why."""


def write(run: Path, name: str, data: Data) -> Data:
    """Write a file beside the certificate of a run, which it names from now on."""
    about = {**data, ABOUT: Beside(run).identity}
    text = runs.as_line if name in (runs.EVALUATION, runs.AUDIT) else runs.as_json
    runs.write(run / name, text(about).encode())
    return about


class Beside:
    """A run with what stands beside its certificate; each file is looked at when it is asked for."""

    def __init__(self, run: Path) -> None:
        self.run = run

    @property
    def votes(self) -> bool:
        """Whether its certificates are those of members."""
        return not (self.run / runs.CERTIFICATE).is_file() and (self.run / runs.MEMBERS / runs.LISTED).is_file()

    @cached_property
    def identity(self) -> str | None:
        """The sha256 of its certificate, or of the list of those of its members; None where there is none."""
        if (self.run / runs.CERTIFICATE).is_file():
            return manifest.entry(self.run / runs.CERTIFICATE).sha256
        if not self.votes:
            return None
        listed = [self.run / runs.MEMBERS / runs.LISTED, *runs.certificates(self.run)]
        told = "".join(f"{manifest.entry(path).sha256}  {path.name}\n" for path in listed)
        return hashlib.sha256(told.encode()).hexdigest()

    @cached_property
    def record(self) -> Data:
        """What its certificate, or that of its first member, says of itself; without tensors, and without torch."""
        from safetensors import SafetensorError, safe_open

        if self.identity is None:
            return {}
        broken: tuple[type[Exception], ...] = (OSError, SafetensorError, *DAMAGE)
        path = next(iter(runs.certificates(self.run)), self.run / runs.MEMBERS)
        try:
            with safe_open(str(path), framework="numpy") as file:
                return dict(parsed_json((file.metadata() or {})[RECORD]))
        except broken:
            raise Mistake(f"the certificate {path} is damaged: fullcert verify {self.run} says how") from None

    @cached_property
    def evaluation(self) -> Data:
        """Its evaluation, if that is about its certificate; one of an earlier version does not say so."""
        found = runs.read_json(runs.existing(self.run, runs.EVALUATION))
        if found.get(ABOUT) is not None and self.identity not in (None, found[ABOUT]):
            raise Mistake(f"{runs.EVALUATION} in {self.run} is about another certificate than the one beside it")
        with self.of_this_run(runs.EVALUATION):
            check_evaluation(found, self.record)
        return found

    def read(self, name: str) -> Data:
        """Another file beside the certificate."""
        return self.fitting(name, runs.read_json(self.run / name))

    def fitting(self, name: str, found: Data) -> Data:
        """What was read from a file, if it is about the certificate of this run."""
        again = f"{WRITERS[name].replace('RUN', str(self.run))} makes it again"
        if found.get(ABOUT) is None:
            raise Mistake(f"{name} in {self.run} does not say which certificate it is about: {again}")
        if found[ABOUT] != (self.identity or self.evaluation.get(ABOUT)):
            raise Mistake(f"{name} in {self.run} is about another certificate than the one beside it: {again}")
        with self.of_this_run(name):
            CHECKS[name](found, self)
        return found

    def found(self) -> dict[str, Data]:
        """What was found out about the run afterwards, by the names of its sections in the report."""
        if (self.run / runs.VIOLATION).exists():
            raise Mistake(f"{runs.VIOLATION} in {self.run} is a dataset that an attack found to refute its certificate")
        return {section: self.read(name) for section, name in runs.BESIDE.items() if (self.run / name).is_file()}

    @contextmanager
    def of_this_run(self, name: str) -> Iterator[None]:
        """What a file cannot say of this run, as one sentence."""
        try:
            yield
        except DAMAGE as error:
            what = "not of this run, or damaged" if isinstance(error, Unfit) else "damaged or of another version"
            raise Mistake(f"{name} in {self.run} is {what}: {' '.join(str(error).split())}") from None

    def most(self, unit: str) -> float:
        """The largest threat that the run can say something about: so many samples, or so far."""
        if self.votes:
            return float(runs.read_json(self.run / runs.MEMBERS / runs.LISTED)["samples"])
        if self.record.get("way") == "optimum":  # one fit answers for every number of labels
            return float(self.record["samples"])
        clauses = self.record["clauses"]
        if unit == "k":
            return float(max((clause["budget"] or 0 for clause in clauses), default=0))
        moves = [change["shrinks"] for clause in clauses for change in clause["changes"] if change["shrinks"]]
        radii = [move["epsilon"] for move in moves if move["epsilon"] is not None]
        return 1.0 if unit == "share" else max(radii, default=0.0)


# --- what can be ------------------------------------------------------------------------------------------------------


def require(condition: bool, why: str) -> None:
    if not condition:
        raise Unfit(why)


def require_shares(*values: float) -> None:
    require(all(0.0 <= value <= 1.0 + TINY for value in values), "a share is not between 0 and 1")


def require_near(here: float, there: float, samples: int, what: str) -> None:
    """Two shares of the same answers; at their edges another machine may round to another one."""
    require(abs(here - there) * samples <= 1.0 + samples / EDGE, f"its {what} is not that of the evaluation")


def require_format(evaluation: Data) -> None:
    found, known = evaluation["format"], runs.EVALUATION_FORMAT
    if found != known:
        raise ValueError(f"an evaluation of format {found} cannot be shown, only of format {known}")


def check_evaluation(found: Data, record: Data) -> None:
    """The headline is that of its samples, and of a run of this certificate."""
    require_format(found)
    headline, rows, left_out = found["headline"], found["samples"], found["samples_left_out"]
    samples, certified = headline["samples"], headline["certified"]
    require(samples == len(rows) + left_out, "its headline is of another number of samples than it lists")
    require(0 <= certified <= samples, "it has more certified predictions than samples")
    require(not certified or headline["void_at_step"] is None, "something is certified, and its bounds became void")
    if record:
        require(headline["void_at_step"] == record.get("void_at_step"), "its bounds became void at another step")
        require(found["task"] == record.get("task", found["task"]), "it is about another task than the certificate")
    if not left_out:
        counted = sum(row["certified"] is True for row in rows)
        require(certified == counted, "its headline counts otherwise than it lists")
    if not left_out and found["task"] == "classification":
        right = sum(row["certified"] is True and row["label"] == row["true"] for row in rows)
        for name, count in (("certified_accuracy", right), ("certified_robustness", certified)):
            alike = abs(headline[name] * samples - count) < 0.5
            require(alike, f"the {name.replace('_', ' ')} of its headline is not that of what it lists")


def check_metrics(found: Data, beside: Beside) -> None:
    """The numbers of the evaluation, of the training that the certificate is of."""
    evaluation, record = beside.evaluation, beside.record
    for name, value in evaluation["headline"].items():
        if name not in ("samples", "certified"):
            require(found.get(name) == value, f"its {name.replace('_', ' ')} is not that of the evaluation")
    beats = constant_answer.beats(evaluation["headline"])
    require(
        found.get("beats_constant_answer", beats) == beats,
        "its word on the constant answer is not that of the evaluation",
    )
    require(found["test_samples"] == evaluation["headline"]["samples"], "it is about another number of test samples")
    require(found.get("advice", []) == evaluation.get("advice", []), "its advice is not that of the evaluation")
    for name in ("steps", "seed", "domain", *(() if beside.votes else ("threat",))):
        require(found[name] == record.get(name, found[name]), f"its {name} is not that of the certificate")


def check_curve(found: Data, beside: Beside) -> None:
    """Shares that fall as the threat grows, up to that of the sets; there they are those of the run."""
    headline, points = beside.evaluation["headline"], found["points"]
    samples, nominal = headline["samples"], found["nominal_accuracy"]
    require(found["samples"] == samples, "it is about another number of test samples")
    values = [point["value"] for point in points]
    require(all(isfinite(value) and value >= 0 for value in values), "a size of the threat is no number")
    require(sorted(set(values)) == values, "its sizes of the threat are not in order")
    require_shares(nominal)
    certified, robust = ([point[f"certified_{name}"] for point in points] for name in ("accuracy", "robustness"))
    attacked = [point["attacked_accuracy"] for point in points if "attacked_accuracy" in point]
    for line in (certified, robust, attacked):
        require_shares(*line)
        require(falls(line), "an accuracy rises with the threat")
    for point in points:
        limits = (point["certified_robustness"], point.get("attacked_accuracy", 1.0), nominal)
        fits = point["certified_accuracy"] <= min(limits) + TINY
        require(fits, "more is certified and right than is certified, is right, or is left by attacks")
    if beside.record and values:
        most = beside.most(found["unit"])
        require(values[-1] <= most, f"the sets of this run say nothing beyond {most:g}")
        if values[-1] == most and not beside.votes and found.get("seeds", 1) == 1:
            require_near(certified[-1], headline["certified_accuracy"], samples, "certified accuracy")
    if found.get("seeds", 1) == 1:
        require_near(nominal, headline["nominal_accuracy"], samples, "nominal accuracy")


def falls(line: Sequence[float]) -> bool:
    return all(after <= before + TINY for before, after in zip(line, line[1:], strict=False))


def check_attack(found: Data, beside: Beside) -> None:
    """Every test sample is in one state, and none is broken that is certified."""
    evaluation, states = beside.evaluation, found["states"]
    headline, rows = evaluation["headline"], evaluation["samples"]
    samples, kinds = headline["samples"], [point["state"] for point in found["by_point"]]
    require(found["points"] == samples == len(kinds), "it is about another number of test samples")
    counted = {kind: kinds.count(kind) for kind in ("certified", "undecided", "broken")}
    require(states == counted, "it counts otherwise than it lists")
    broken = [row for row, kind in zip(rows, kinds, strict=False) if kind == "broken"]
    require(not any(row["certified"] for row in broken), "it has broken a prediction that is certified")
    if evaluation["task"] == "classification" and samples:
        require_shares(found["attacked_accuracy"], found["nominal_accuracy"])
        require_near(found["nominal_accuracy"], headline["nominal_accuracy"], samples, "nominal accuracy")
        here, there = states["certified"] / samples, headline["certified"] / samples
        require_near(here, there, samples, "number of certified predictions")


def check_audit(found: Data, beside: Beside) -> None:
    """It explains some of the test samples, by rows of the training data."""
    headline, rows = beside.evaluation["headline"], found["checklist"]["rows"]
    unlikely = found.get("suspects", {"rows": []})["rows"]
    samples, before = headline["samples"], found.get("certified_before", found["certified"])
    require(found["data"] is None and found["samples"] == samples, "it is about another number of test samples")
    require(0 <= found["audited"] <= samples, "it explains more predictions than there are")
    require(before <= found["certified"] <= samples, "rows that were checked took predictions away")
    require(len(rows) <= found["budget"] >= len(unlikely), "it lists more rows than were to be checked")
    require_shares(found["unowned_share"], *(row["share"] for row in (*rows, *(found["columns"] or ()))))
    require_shares(*(row["probability"] for row in unlikely if "probability" in row))
    if samples:
        here, there = before / samples, headline["certified"] / samples
        require_near(here, there, samples, "number of certified predictions")


CHECKS: dict[str, Callable[[Data, Beside], None]] = {
    runs.METRICS: check_metrics,
    runs.CURVE: check_curve,
    runs.ATTACK: check_attack,
    runs.AUDIT: check_audit,
}
