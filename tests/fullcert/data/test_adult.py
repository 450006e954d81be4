"""Adult as a CSV of the user gives what the built-in dataset gives."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import Command, write_csv

from boundflow.files import certificate_files
from fullcert.data import datasets
from fullcert.data.datasets import adult_columns
from fullcert.data.encoding import SAME
from fullcert.experiment import tasks

DATA = Path(os.environ.get("BOUNDFLOW_DATA", "data"))
ROWS, TEST_ROWS = 3000, 2000
pytestmark = pytest.mark.skipif(not (DATA / "adult").exists(), reason="set BOUNDFLOW_DATA to a folder with Adult")


def test_adult_as_a_table_of_the_user(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = (
        {name: column[:rows] for name, column in columns.items()}
        for columns, rows in zip(adult_columns(DATA), (ROWS, TEST_ROWS), strict=True)
    )
    files = write_csv(tmp_path / "train.csv", train), write_csv(tmp_path / "test.csv", test)
    flags = ("--flip-labels", "50", "--steps", "1", "--quiet", "--json", "-")
    own = command(
        *("train", "--data", files[0], "--test-data", files[1], "--target", "income", *flags, "--out", tmp_path / "own")
    )
    assert own.code == 0 and own.err == ""
    columns = json.loads((tmp_path / "own" / "columns.json").read_text())
    assert {column["source"] for column in columns["columns"]} == {SAME} and len(columns["columns"]) == 14
    assert columns["target"]["classes"] == ["<=50K", ">50K"]
    assert (tmp_path / "own" / "report.html").stat().st_size > 10_000

    cut = ({name: np.array(column) for name, column in table.items()} for table in (train, test))
    monkeypatch.setattr(datasets, "adult_columns", lambda folder: tuple(cut))
    monkeypatch.setattr(tasks.datasets, "adult_columns", datasets.adult_columns)
    built_in = command("train", "--dataset", "adult", "--data-dir", DATA, *flags, "--out", tmp_path / "built-in")
    assert built_in.code == 0
    mine, theirs = (json.loads(result.out) for result in (own, built_in))
    assert 0.5 < mine["certified_accuracy"] <= mine["nominal_accuracy"] and mine["test_samples"] == TEST_ROWS
    others = ("dataset", "seconds", "validation_certified_accuracy", "certificate", "advice")  # advice names the files
    changes = dict.fromkeys(others)
    assert {**mine, **changes} == {**theirs, **changes}
    assert (tmp_path / "own" / "columns.json").read_bytes() == (tmp_path / "built-in" / "columns.json").read_bytes()
    held = [certificate_files.opened(tmp_path / name / "certificate.safetensors") for name in ("own", "built-in")]
    assert held[0].tensors.keys() == held[1].tensors.keys()
    assert all(torch.equal(value, held[1].tensors[name]) for name, value in held[0].tensors.items())
    about = [one.record.pop("run") for one in held]  # a file of the user is one, and options name it
    assert held[0].record == held[1].record
    assert {name for name in about[0] if about[0][name] != about[1].get(name)} == {
        "table",
        "table of test rows",
        "options",
    }
