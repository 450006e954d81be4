"""What the predictions of a run lean on: training rows, columns and sources, and which rows to check first.

The library tells it by sample and by input (`boundflow/analysis/audit.py`); here it gets the names of the user: lines,
ids, columns. Rows that were checked come back as a file (`checked_rows.py`). Which labels are unlikely is another
question, about the rows alone (`suspects.py`), and its list stands beside: a row can be right and settle much, or be
wrong and settle nothing.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import boundflow as bf
from boundflow.analysis.audit import Audit
from boundflow.symbols.recorded_values import LABEL, PRESENCE
from boundflow.threats import Threat
from fullcert.data import suspects
from fullcert.data.dialects import UNSAID, Said
from fullcert.data.encoding import Encoding, Number
from fullcert.experiment import identity, missing_cells, runs, sample_lines, tasks
from fullcert.experiment.identity import Kept
from fullcert.experiment.sample_lines import Places
from fullcert.results import answering, voting
from fullcert.results.checked_rows import checked
from fullcert.results.evaluation import CHUNK
from fullcert.results.recorded_rows import Recorded
from fullcert.system.mistakes import Mistake

FORMAT = 1
SETTLES = "Which rows to check so that more predictions are settled?"
UNLIKELY = "Which rows have a label that is unlikely, given their other columns?"
SHOWN = 50  # predictions that a file explains one by one
NAMED = 5  # rows that are named for each of them


class Subject(NamedTuple):
    """What is asked about: inputs, under a threat, and where they stand."""

    inputs: torch.Tensor
    threat: Threat
    where: Places
    names: tuple[str, ...]  # of the classes
    features: tuple[str, ...]  # the column of the user's table that each input is made of
    target: str
    unit: float  # of a value that is predicted, in the user's own
    task: tasks.Task | None  # None where the table of the run is gone


def audited(
    run: Path,
    data: Path | None,
    budget: int,
    verified: Path | None = None,
    every: bool = False,
    source: str | None = None,
    said: Said = UNSAID,
    suspects: bool = False,
) -> dict[str, Any]:
    """The audit of a run, on its test samples or on the rows of a file, as plain data."""
    if voting.votes(run):
        raise Mistake(f"{run} is a run of --members that vote, and an audit follows the rows of one certificate")
    kept = identity.opened(run)
    options = kept.options
    certificate, subject, encoding = asked(kept, data, said)
    where = sample_lines.of_training(options, int(certificate.record["samples"]))
    sources = source_of(where, source)
    told: dict[str, Any] = {"format": FORMAT, "run": str(run), "data": None if data is None else str(data)}
    told["budget"] = budget
    recorded = Recorded(where, options, subject.target, subject.task)
    if suspects:
        told["suspects"] = suspected(subject, where, recorded, budget)
    try:
        if verified is not None:
            trained = certificate
            certificate, rows = checked(certificate, verified, where, encoding, options, said)
            before = trained.predict(subject.inputs, threat=subject.threat, chunk=CHUNK)
            told |= {"verified_rows": rows, "certified_before": int(before.certified.sum())}
        found = certificate.audit(subject.inputs, threat=subject.threat, budget=budget, every=every, chunk=CHUNK)
    except bf.CrossedBounds:  # a bug of ours
        raise
    except (ValueError, bf.BoundFlowError) as error:
        raise Mistake(f"{run} cannot be audited: {error}") from None
    told |= {"samples": found.asked, "certified": found.certain, "task": certificate.record.get("task")}
    return told | described(in_units(found, subject.unit), subject, where, sources, recorded)


def require_same(kept: Kept) -> tasks.Task | None:
    """What the run was trained on, if that is still there: the lines of another table would name other rows."""
    options = kept.options
    if options.data is not None and not Path(options.data).is_file():
        return None
    with identity.loading_again(kept):
        task = tasks.load(options)
    identity.require_now(kept, identity.of(options, task, {}), but=identity.code_of(kept))  # told when it is run
    return task


def asked(kept: Kept, data: Path | None, said: Said = UNSAID) -> tuple[answering.Made, Subject, Encoding | None]:
    """The certificate, and the inputs that it is asked about."""
    run, options = kept.run, kept.options
    path, task, columns_file = runs.existing(run, runs.CERTIFICATE), require_same(kept), run / runs.COLUMNS
    encoding = answering.encoding_of(columns_file, tasks.dialect_of(options)) if columns_file.exists() else None
    table = None if data is None else tasks.read(options, data, said)
    if table is None:
        made = (task or tasks.load(options)).data
        inputs, where = made.test.inputs, sample_lines.of_tests(options, len(made.test.inputs))
        names = made.class_names or tuple(map(str, range(made.classes)))
        read = encoding or Encoding((Number("", 0.0, 1.0, ""),), answering.Target("", names))
        features = made.features
    else:
        read = encoding or answering.as_it_is(
            table, answering.certificate_shape(path), answering.classes_of(run), options
        )
        inputs, where = read.inputs(table), sample_lines.of_table(options, table)
        names, features = read.target.classes, None
        missing_cells.check_holes(table, read, options)
    certificate = answering.load(path, kept, inputs.shape[1:], read)
    threat = answering.test_threat(options, read, encoding, inputs)
    columns = columns_of(encoding, features, int(np.prod(inputs.shape[1:])))
    target, unit = ("label", 1.0) if encoding is None else (encoding.target.name, encoding.target.scale)
    return certificate, Subject(torch.as_tensor(inputs), threat, where, names, columns, target, unit, task), encoding


def columns_of(encoding: Encoding | None, features: Sequence[str] | None, count: int) -> tuple[str, ...]:
    """The column of the user that each input is made of."""
    if encoding is not None:
        return tuple(column.name for column in encoding.columns for _ in range(column.width))
    return tuple(features) if features is not None else tuple(f"input {number}" for number in range(count))


def source_of(where: Places, name: str | None) -> np.ndarray | None:
    """What a column of the training table says about where each sample comes from."""
    if name is None:
        return None
    if where.table is None:
        raise Mistake("--source names a column of the training table, and this run has none, or its file is gone")
    return where.table.column(name)[where.rows].astype(str)


def suspected(subject: Subject, where: Places, recorded: Recorded, count: int) -> dict[str, Any]:
    """The training rows whose own label is unlikely, the most unlikely first."""
    task = subject.task
    if task is None:
        raise Mistake("--suspects looks at the training rows, and the table of this run is not there any more")
    train, encoding = task.data.train, task.encoding
    if encoding is not None and encoding.target.regression:
        target = encoding.target
        scores = suspects.of_values(train.inputs, train.labels)
        rows = [
            {
                **where.told(row),
                "value": float(train.labels[row]) * target.scale + target.center,
                "expected": float(scores.expected[row]) * target.scale + target.center,
                "deviations": float(scores.surprise[row]),
                "recorded": recorded.of(row),
            }
            for row in scores.first(count)
        ]
        return {"question": UNLIKELY, "score": suspects.DEVIATIONS, "rows": rows}
    scores = suspects.of_labels(train.inputs, train.labels, task.data.classes)
    rows = [
        {
            **where.told(row),
            "label": task.class_names[int(train.labels[row])],
            "probability": -float(scores.surprise[row]),
            "likely": task.class_names[int(scores.expected[row].argmax())],
            "recorded": recorded.of(row),
        }
        for row in scores.first(count)
    ]
    return {"question": UNLIKELY, "score": suspects.PROBABILITY, "rows": rows}


# --- words and numbers ----------------------------------------------------------------------------------------------


def in_units(found: Audit, unit: float) -> Audit:
    """The same with all lengths in the units of the user."""
    listed, lengths = found.checklist, ("margin", "reach", "owned", "terms", "totals", "by_column")
    widths = {name: getattr(listed, name) for name in ("width_before", "width_after")}
    widths = {name: None if width is None else width * unit for name, width in widths.items()}
    return replace(
        found, checklist=replace(listed, **widths), **{name: getattr(found, name) * unit for name in lengths}
    )


def described(
    found: Audit, subject: Subject, where: Places, sources: np.ndarray | None, recorded: Recorded
) -> dict[str, Any]:
    """An audit in the names of the user."""
    reach, owned = float(found.reach.sum()), float(found.owned.sum())
    listed = found.checklist
    totals = dict(zip(found.samples.tolist(), found.totals.tolist(), strict=True))
    whole = sum(totals.values()) or 1.0
    missing = listed.missing or ((),) * len(listed.samples)
    rows = [
        {**where.told(sample), "term": totals[sample], "share": totals[sample] / whole}
        | ({"missing": [name_of(column, subject) for column in columns]} if columns else {})
        | {"recorded": recorded.of(sample)}
        for sample, columns in zip(listed.samples.tolist(), missing, strict=True)
    ]
    told = {
        "audited": len(found),
        "unowned_share": max(0.0, 1.0 - owned / reach) if reach else 0.0,
        "columns": by_name(found, subject) if found.names_columns else None,
        "checklist": {
            "question": SETTLES,
            "claim": str(listed),
            "forecast": listed.forecast,
            "rows": rows,
            "settles": [subject.where.told(row) for row in listed.settles.tolist()],
            "width_before": listed.width_before,
            "width_after": listed.width_after,
        },
        "rows": [
            {**where.told(sample), "term": term, "share": term / whole}
            for sample, term in sorted(totals.items(), key=lambda pair: -pair[1])[:SHOWN]
            if term > 0
        ],
        "predictions": [prediction(found, place, subject, where) for place in range(min(SHOWN, len(found)))],
    }
    if sources is not None:
        told["sources"] = by_source(found, sources, whole)
    return told


def by_name(found: Audit, subject: Subject) -> list[dict[str, Any]]:
    """How far each column of the user alone reaches, summed over the predictions, the furthest first."""
    reaches: dict[str, float] = {}
    for column, reach in zip(found.columns.tolist(), found.by_column.sum(0).tolist(), strict=True):
        name = name_of(column, subject)
        reaches[name] = reaches.get(name, 0.0) + reach
    whole = sum(reaches.values()) or 1.0
    order = sorted(reaches.items(), key=lambda pair: -pair[1])
    return [{"column": name, "reach": reach, "share": reach / whole} for name, reach in order]


def name_of(column: int, subject: Subject) -> str:
    if column == LABEL:
        return subject.target
    if column == PRESENCE:
        return "presence of the row"
    return subject.features[column] if 0 <= column < len(subject.features) else "unknown"


def by_source(found: Audit, sources: np.ndarray, whole: float) -> list[dict[str, Any]]:
    """The terms of the rows of each source together."""
    names, which = np.unique(sources[found.samples], return_inverse=True)
    sums = np.bincount(which, found.totals, minlength=len(names))
    counts = np.bincount(which, minlength=len(names))
    order = np.argsort(-sums, kind="stable")
    return [
        {
            "source": str(names[place]),
            "rows": int(counts[place]),
            "term": float(sums[place]),
            "share": float(sums[place] / whole),
        }
        for place in order
    ]


def prediction(found: Audit, place: int, subject: Subject, where: Places) -> dict[str, Any]:
    """What one prediction leans on."""
    rival, reach = int(found.rival[place]), float(found.reach[place])
    named = [
        {**where.told(sample), "term": term}
        for sample, term in zip(found.leading[place].tolist(), found.terms[place].tolist(), strict=True)
        if term > 0
    ]
    told = subject.where.told(int(found.inputs[place]))
    told["row"] = told.pop("sample")
    if rival >= 0:
        told |= {"label": subject.names[int(found.label[place])], "rival": subject.names[rival]}
    told |= {"certified": bool(found.certified[place]), "margin": float(found.margin[place]), "reach": reach}
    return told | {"owned_share": float(found.owned[place]) / reach if reach else 0.0, "leans_on": named[:NAMED]}
