"""What the predictions of a run lean on: training rows, columns and sources, and which rows to check first.

The library tells it by sample and by input (`boundflow/audit.py`); here it gets the names of the user: lines, ids,
columns. Rows that were checked come back as a file, and what was missing in them as values in its columns.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import boundflow as bf
from boundflow.audit import Audit
from boundflow.recorded import LABEL, PRESENCE
from boundflow.threats import Threat
from fullcert import answering, missing_cells, places, runs, tables, tasks, voting
from fullcert.encoding import Encoding, Number
from fullcert.evaluation import CHUNK
from fullcert.mistakes import Mistake
from fullcert.options import Options, read_options, resolve
from fullcert.places import Places
from fullcert.tables import Table

FORMAT = 1
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


def audited(
    run: Path,
    data: Path | None,
    budget: int,
    verified: Path | None = None,
    every: bool = False,
    source: str | None = None,
) -> dict[str, Any]:
    """The audit of a run, on its test samples or on the rows of a file, as plain data."""
    if voting.votes(run):
        raise Mistake(f"{run} is a run of --members that vote, and an audit follows the rows of one certificate")
    certificate_file = runs.existing(run, runs.CERTIFICATE)
    options = resolve({}, read_options(runs.existing(run, runs.OPTIONS)))
    certificate, subject, encoding = asked(run, certificate_file, options, data)
    where = places.of_training(options, int(certificate.record["samples"]))
    sources = source_of(where, source)
    told: dict[str, Any] = {"format": FORMAT, "run": str(run), "data": str(data) if data is not None else None}
    try:
        if verified is not None:
            before = certificate.predict(subject.inputs, threat=subject.threat, chunk=CHUNK)
            certificate, rows = checked(certificate, verified, where, encoding)
            told |= {"verified_rows": rows, "certified_before": int(before.certified.sum())}
        found = certificate.audit(subject.inputs, threat=subject.threat, budget=budget, every=every, chunk=CHUNK)
        after = certificate.predict(subject.inputs, threat=subject.threat, chunk=CHUNK)
    except bf.CrossedBounds:  # a bug of ours
        raise
    except (ValueError, bf.BoundFlowError) as error:
        raise Mistake(f"{run} cannot be audited: {error}") from None
    told |= {"samples": len(after), "certified": int(after.certified.sum()), "task": certificate.record.get("task")}
    return told | described(found, subject, where, sources)


def asked(
    run: Path, path: Path, options: Options, data: Path | None
) -> tuple[bf.Certificate, Subject, Encoding | None]:
    """The certificate, and the inputs that it is asked about."""
    encoding = answering.encoding_of(run / runs.COLUMNS) if (run / runs.COLUMNS).exists() else None
    table = None if data is None else tasks.read(options, data)
    if table is None:
        made = tasks.load(options).data
        inputs, where = made.test.inputs, places.of_tests(options, len(made.test.inputs))
        names = made.class_names or tuple(map(str, range(made.classes)))
        read = encoding or Encoding((Number("", 0.0, 1.0, ""),), answering.Target("", names))
        features = made.features
    else:
        read = encoding or answering.as_it_is(
            table, answering.certificate_shape(path), answering.classes_of(run), options
        )
        inputs, where, names, features = read.inputs(table), places.of_table(options, table), read.target.classes, None
        missing_cells.check_holes(table, read, options)
    certificate = answering.load(path, options, inputs.shape[1:], read)
    threat = answering.test_threat(options, read, encoding, inputs)
    columns = columns_of(encoding, features, int(np.prod(inputs.shape[1:])))
    target = encoding.target.name if encoding is not None else "label"
    return certificate, Subject(torch.as_tensor(inputs), threat, where, names, columns, target), encoding


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
        raise Mistake("--source names a column of the training table, which is not there any more")
    return where.table.column(name)[where.rows].astype(str)


# --- rows that were checked -----------------------------------------------------------------------------------------


def checked(
    certificate: bf.Certificate, path: Path, where: Places, encoding: Encoding | None
) -> tuple[bf.Certificate, int]:
    """The certificate where the rows in a file are as recorded, and how many they are."""
    table = tables.read(path)
    name = next((name for name in ("line", "id", "sample") if name in table.columns), None)
    if name is None:
        raise Mistake(f"{path} must have a column line, id or sample, which says the training rows that were checked")
    column = table.columns[name]
    wanted: list[Any] = column.tolist()
    if tables.is_number(column):
        if not bool((column == np.round(column)).all()):
            raise Mistake(f"{path} must hold whole numbers in the column {name}")
        wanted = [int(value) for value in wanted]
    samples = where.samples(name, wanted, path)
    cells = filled(table, samples, where, encoding)
    if cells is not None and np.isnan(cells).all():
        cells = None
    return certificate.verified(samples, cells), len(samples)


def filled(table: Table, samples: np.ndarray, where: Places, encoding: Encoding | None) -> np.ndarray | None:
    """Inputs of checked rows, with the values that the file gives for columns of numbers; NaN where it gives none."""
    numbers = [c for c in encoding.columns if isinstance(c, Number)] if encoding is not None else []
    given = [column for column in numbers if column.name in table.columns]
    if encoding is None or not given:
        return None
    cells = np.full((len(samples), sum(column.width for column in encoding.columns)), np.nan)
    for column in given:
        values = table.columns[column.name]
        if not tables.is_number(values):
            raise Mistake(f"{table.path} must hold numbers in the column {column.name!r}")
        cells[:, encoding.places(column.name)] = column.encoded(values)
    return cells


# --- words and numbers ----------------------------------------------------------------------------------------------


def described(found: Audit, subject: Subject, where: Places, sources: np.ndarray | None) -> dict[str, Any]:
    """An audit in the names of the user."""
    reach, owned = float(found.reach.sum()), float(found.owned.sum())
    listed = found.checklist
    totals = dict(zip(found.samples.tolist(), found.totals.tolist(), strict=True))
    whole = sum(totals.values()) or 1.0
    rows = [
        {**where.told(sample), "term": totals[sample], "share": totals[sample] / whole} for sample in listed.samples
    ]
    told = {
        "audited": len(found),
        "unowned_share": max(0.0, 1.0 - owned / reach) if reach else 0.0,
        "columns": by_name(found, subject) if found.names_columns else None,
        "checklist": {
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
