"""Runs that are fitted to the optimum: trained, asked, verified and read again as others are, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import Command, run_main, write_csv
from sklearn.datasets import load_breast_cancer

from fullcert.experiment import runs
from fullcert.experiment.options import resolve
from fullcert.results import beside


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = load_breast_cancer()
    columns = {name.replace(" ", "_"): data.data[:150, place] for place, name in enumerate(data.feature_names[:6])}
    columns["kind"] = data.target_names[data.target[:150]]
    return write_csv(tmp_path_factory.mktemp("table") / "tumours.csv", {k: list(v) for k, v in columns.items()})


@pytest.fixture(scope="module")
def run(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    words = ("--data", table, "--target", "kind", "--flip-labels", "3", "--out", out, "--quiet")
    assert run_main("train", *words) == 0
    return out


def test_tables_with_wrong_labels_are_fitted_to_the_optimum(run: Path) -> None:
    metrics, evaluation = json.loads((run / runs.METRICS).read_text()), json.loads((run / runs.EVALUATION).read_text())
    assert metrics["fit"] == "optimum" and metrics["certified_accuracy"] > 0.7
    said = dict(pair for part, pairs in evaluation["details"] for pair in pairs)
    assert said["fit"].startswith("to the optimum") and "every solver that reaches the optimum" in said["solver"]
    assert 'fit = "optimum"' in (run / runs.OPTIONS).read_text()
    assert "every solver that reaches the optimum" in (run / runs.REPORT).read_text()


def test_every_question_is_answered(run: Path, table: Path, command: Command, tmp_path: Path) -> None:
    answers = json.loads(command("certify", run, table, "--withstands", "--json", "-", "--quiet").out)
    assert len(answers["rows"]) == 150 and answers["withstands"]["unit"] == "k"
    assert all((row["withstands"] or 0) >= 3 for row in answers["rows"] if row["certified"])
    curve = json.loads(command("certify", run, "--withstands", "--json", "-", "--quiet").out)["curve"]
    assert curve["points"][0]["certified_accuracy"] >= curve["points"][-1]["certified_accuracy"]
    audit = json.loads(command("audit", run, "--budget", "5", "--json", "-", "--quiet").out)
    assert audit["columns"] is not None
    checked = write_csv(tmp_path / "checked.csv", {"line": [2, 3, 5]})
    again = json.loads(command("audit", run, "--verified", checked, "--json", "-", "--quiet").out)
    assert again["certified"] >= audit["certified"]
    command("report", run)
    checks = json.loads(command("verify", run, "--rerun", "--json", "-", "--quiet").out)["checks"]
    assert {check["check"] for check in checks if check["result"] == "held"} >= {"network", "results", "rerun", "parts"}
    for words in (("attack", run), ("certify", run, table, "--epsilon", "0.1"), ("certify", run, table, "--cuts", "2")):
        refused = command(*words)
        assert refused.code == 2 and refused.err.count("\n") < 5 and "aten" not in refused.err
    assert beside.Beside(run).most("k") == json.loads((run / runs.EVALUATION).read_text())["subject"]["training"]


def test_another_table_is_refused(run: Path, table: Path, command: Command) -> None:
    content = table.read_text()
    table.write_text(content.replace("malignant", "benign", 1))
    try:
        assert "was trained with another" in command("certify", run, "--withstands").err
    finally:
        table.write_text(content)


def test_coefficients_say_what_their_signs_withstand(table: Path, command: Command, tmp_path: Path) -> None:
    words = ("--data", table, "--target", "kind", "--flip-labels", "3", "--features", "none", "--out", tmp_path / "run")
    command("train", *words, "--quiet")
    rows = json.loads((tmp_path / "run" / runs.EVALUATION).read_text())["features"]["rows"]
    assert len(rows) == 6 and all(row["lower"] <= row["plain"] <= row["upper"] for row in rows)
    certain = [row["lower"] > 0 or row["upper"] < 0 for row in rows]
    assert certain == [row["withstands"] >= 3 for row in rows] and any(certain)
    assert "wrong labels its sign withstands" in (tmp_path / "run" / runs.REPORT).read_text()


def test_numbers_as_targets(command: Command, tmp_path: Path) -> None:
    x = np.random.RandomState(0).rand(80, 3)
    columns = {"a": list(x[:, 0]), "b": list(100 * x[:, 1]), "y": list(x @ [1.0, 2.0, 0.0])}
    table = write_csv(tmp_path / "numbers.csv", columns)
    words = ("--data", table, "--target", "y", "--regression", "--target-tolerance", "0.1")
    told = json.loads(command("train", *words, "--quiet", "--json", "-").out)
    assert told["fit"] == "optimum" and told["mean_absolute_error"] < told["median_mean_absolute_error"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--flip-labels", "1", "--fit", "optimum", "--epochs", "3"), "leave out --epochs"),
        (("--flip-labels", "1", "--fit", "steps", "--l2", "1"), "--l2 is for --fit optimum"),
        (("--epsilon", "0.1", "--fit", "optimum"), "--flip-labels or --target-tolerance alone"),
        (("--flip-labels", "1", "--features", "cubic"), "none, kernel, or random:"),
        (("--flip-labels", "1", "--fit", "fast"), "--fit must be one of"),
    ],
)
def test_what_is_refused(table: Path, words: tuple[str, ...], sentence: str, command: Command) -> None:
    assert sentence in command("train", "--data", table, "--target", "kind", *words).err


def test_whoever_names_steps_gets_steps(table: Path, command: Command, tmp_path: Path) -> None:
    words = ("--data", table, "--target", "kind", "--flip-labels", "1", "--quiet", "--json", "-")
    assert "fit" not in json.loads(command("train", *words, "--epochs", "1").out)
    (tmp_path / "old.toml").write_text("epochs = 2\nlr = 0.5\n")
    assert json.loads(command("train", *words, "--config", tmp_path / "old.toml").out)["steps"] == 2


@pytest.mark.parametrize(("name", "way"), [("digits", "auto"), ("mnist-1-7", "auto"), ("breast-cancer", "optimum")])
def test_built_in_images_are_trained_step_by_step(name: str, way: str) -> None:
    assert resolve({"dataset": name, "flip_labels": 1}, {}).fit == way


def test_the_report_says_what_holds_at_an_optimum(run: Path) -> None:
    page = (run / "report.html").read_text()
    assert "every solver reaches" in page and "initial weights" not in page and "not complete" not in page
    assert "could not decide" not in page and "allowed data that change it" in page
