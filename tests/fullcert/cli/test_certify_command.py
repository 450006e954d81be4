"""`fullcert certify`: the certificate of a run, asked about new rows."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Command, people, run_main, sentence, write_csv

from boundflow.files.certificate_files import FORMAT
from fullcert.data.tables import read
from fullcert.report.claims import claim

INCOME = ("--target", "income", "--ignore", "pay")
TEST = people(30, seed=1)


def trained(folder: Path, *arguments: object) -> Path:
    assert run_main("train", *arguments, "--quiet", "--out", folder / "run") == 0
    return folder / "run"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("rows") / "rows.csv", TEST)


@pytest.fixture(scope="module")
def run(table: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with tolerances in two units, tested on the rows."""
    threat = ("--tolerance", "age=0.5", "--tolerance", "hours=1%", "--flip-labels", "1", "--steps", "3")
    return trained(tmp_path_factory.mktemp("tolerant"), "--data", table, *INCOME, "--test-data", rows, *threat)


@pytest.fixture(scope="module")
def regression(table: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = ("--data", table, "--target", "pay", "--ignore", "income", "--regression", "--test-data", rows)
    return trained(tmp_path_factory.mktemp("regression"), *flags, "--target-tolerance", "0.01")


@pytest.fixture(scope="module")
def moons(tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = ("--dataset", "two-moons", "--batch-size", "0", "--epochs", "1", "--hidden", "3", "--order", "2")
    return trained(tmp_path_factory.mktemp("moons"), *flags)


def asked(command: Command, *arguments: object) -> dict[str, Any]:
    result = command("certify", *arguments, "--json", "-", "--quiet")
    assert result.code == 0 and result.err == "", result
    return json.loads(result.out)


def unwrapped(shown: str) -> str:
    return " ".join(shown.split())


# --- answers --------------------------------------------------------------------------------------------------


def test_answers_agree_with_the_evaluation_of_the_run(command: Command, run: Path, rows: Path) -> None:
    answer = asked(command, run, rows)
    evaluation = json.loads((run / "evaluation.json").read_text())
    assert answer["samples"] == 30 and answer["certified"] == evaluation["headline"]["certified"] > 0
    assert answer["certified_accuracy"] == evaluation["headline"]["certified_accuracy"]
    assert answer["accuracy"] == evaluation["headline"]["nominal_accuracy"]
    for mine, theirs in zip(answer["rows"], evaluation["samples"], strict=True):
        assert all(mine[key] == theirs[key] for key in ("row", "label", "true", "certified"))
        bounds = (mine["margin"], mine["lower"], mine["upper"])
        assert bounds == pytest.approx((theirs["margin"], *theirs["lower"], *theirs["upper"]), rel=1e-9)


def test_regression_agrees_too(command: Command, regression: Path, rows: Path) -> None:
    answer = asked(command, regression, rows)
    for mine, theirs in zip(
        answer["rows"], json.loads((regression / "evaluation.json").read_text())["samples"], strict=True
    ):
        assert mine["value"] == pytest.approx(theirs["label"], rel=1e-12)
        assert mine["lower"] == pytest.approx(theirs["lower"][0], rel=1e-12)
        assert mine["lower"] <= mine["value"] <= mine["upper"] and mine["certified"]
        assert mine["true"] == pytest.approx(theirs["true"], rel=1e-12)
    assert "accuracy" not in answer


def test_answers_say_what_they_hold_against_in_the_words_of_the_report(
    command: Command, run: Path, regression: Path, moons: Path, rows: Path, tmp_path: Path
) -> None:
    points = write_csv(tmp_path / "points.csv", {"a": [0.1, 0.2], "b": [0.3, 0.4]})
    for made, data in ((run, rows), (regression, rows), (moons, points)):
        evaluation, answer = json.loads((made / "evaluation.json").read_text()), asked(command, made, data)
        assert answer["threat"] == {key: evaluation["threat"][key] for key in ("training", "test")}
        if data == rows:
            assert answer["claim"] == claim(evaluation)
    moved = asked(command, run, rows, "--tolerance", "age=2", "--epsilon", "0.01")
    assert "moved age by up to 2 in the test input" in moved["threat"]["test"] and "0.01" in moved["claim"]
    assert "hours by up to 1 %" in moved["threat"]["training"] and "hours" not in moved["threat"]["test"]


def test_rows_that_are_taken_as_they_are_are_told(command: Command, run: Path, rows: Path) -> None:
    words = "The rows themselves are taken as they are."
    assert words in unwrapped(command("certify", run, rows, "--tolerance", "none").out)
    assert words not in unwrapped(command("certify", run, rows).out)
    assert asked(command, run, rows, "--tolerance", "none")["threat"]["test"] == ""


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".json"])
def test_files_of_answers(command: Command, run: Path, rows: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"answers{ending}"
    result = command("certify", run, rows, "--out", out)
    assert result.code == 0 and f"answers: {out}" in result.out and "of 30 predictions" in unwrapped(result.out)
    expected = asked(command, run, rows)["rows"]
    if ending == ".json":
        assert json.loads(out.read_text()) == expected
        return
    columns = read(out).columns
    assert list(columns) == list(expected[0])
    assert columns["label"].tolist() == [row["label"] for row in expected]
    assert columns["lower"].tolist() == [row["lower"] for row in expected]
    yes = "true" if ending == ".csv" else 1.0
    assert [value == yes for value in columns["certified"].tolist()] == [row["certified"] for row in expected]


def test_without_the_target_column(command: Command, run: Path, rows: Path, tmp_path: Path) -> None:
    unlabelled = write_csv(tmp_path / "new.csv", {name: TEST[name] for name in ("town", "hours", "age")})
    answer = asked(command, run, unlabelled)
    assert "accuracy" not in answer and "true" not in answer["rows"][0]
    labelled = asked(command, run, rows)["rows"]
    assert [row["label"] for row in answer["rows"]] == [row["label"] for row in labelled]
    assert [row["lower"] for row in answer["rows"]] == [row["lower"] for row in labelled]


def test_other_threats_to_the_rows(command: Command, run: Path, rows: Path) -> None:
    as_trained = asked(command, run, rows)["rows"]
    same = asked(command, run, rows, "--tolerance", "age=0.5", "--tolerance", "hours=1%")["rows"]
    exact = asked(command, run, rows, "--tolerance", "none", "--epsilon", "0")["rows"]
    wider = asked(command, run, rows, "--tolerance", "age=5", "--tolerance", "hours=10%")["rows"]
    both = asked(command, run, rows, "--epsilon", "0.1")["rows"]
    assert same == as_trained
    for inner, middle, outer, more in zip(exact, as_trained, wider, both, strict=True):
        assert outer["lower"] < middle["lower"] < inner["lower"] <= inner["upper"] < middle["upper"] < outer["upper"]
        assert more["lower"] < middle["lower"] and middle["upper"] < more["upper"]


def test_a_share_of_a_centered_column_is_refused(command: Command, run: Path, rows: Path) -> None:
    """A share of what is left after centering is not a share of the value."""
    said = sentence(command("certify", run, rows, "--quiet", "--tolerance", "age=1%"))
    assert "--tolerance age" in said and "share of the value" in said


def test_missing_values_have_the_range_of_training(command: Command, tmp_path: Path) -> None:
    columns = people()
    columns["age"][5] = ""
    table = write_csv(tmp_path / "holes.csv", columns)
    made = trained(tmp_path, "--data", table, *INCOME, "--missing", "age", "--steps", "2")
    low, high = (edge([a for a in columns["age"] if a != ""]) for edge in (min, max))
    one = write_csv(tmp_path / "one.csv", {"age": [""], "hours": [30], "town": ["north"]})
    (hole,) = asked(command, made, one)["rows"]
    ends = write_csv(tmp_path / "ends.csv", {"age": [low, high], "hours": [30, 30], "town": ["north"] * 2})
    values = asked(command, made, ends)["rows"]
    training = json.loads((made / "evaluation.json").read_text())
    assert training["threat"]["training"].startswith("filled in the missing values of age")
    # the ends may be in a row that is left out for testing; and a product of sets is a little wider than its ends
    span = values[1]["upper"] - values[0]["lower"]
    assert values[0]["lower"] - 0.05 * span <= hole["lower"] and hole["upper"] <= values[1]["upper"] + 0.05 * span
    assert hole["upper"] - hole["lower"] > 0.5 * span


def test_a_table_is_shown(command: Command, run: Path, rows: Path) -> None:
    result = command("certify", run, rows)
    assert result.code == 0 and "much" in result.out and "and 10 more rows" in result.out
    assert json.loads((run / "evaluation.json").read_text())["threat"]["training"] in unwrapped(result.out)


def test_a_category_that_training_did_not_have_is_told(command: Command, run: Path, tmp_path: Path) -> None:
    new = {"age": [30, 40, 50], "hours": [30, 31, 32], "town": ["nroth", "north", ""]}
    table = write_csv(tmp_path / "new.csv", new)
    assert "Note: 1 row has a category in town that training did not have" in unwrapped(
        command("certify", run, table).out
    )
    assert asked(command, run, table)["unknown_categories"] == {"town": 1}


def test_a_table_of_many_classes_fits(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    columns = people(60)
    table = write_csv(tmp_path / "towns.csv", columns)
    flags = ("--data", table, "--target", "town", "--ignore", "income", "--flip-labels", "1", "--steps", "1")
    shown = command("certify", trained(tmp_path, *flags), table).out
    assert "…" not in shown and "margin" in shown and "lower_0" not in shown
    assert "and 40 more rows and the bounds of every output: use --out FILE" in unwrapped(shown)


def test_classes_with_brackets_are_shown_as_they_are(command: Command, tmp_path: Path) -> None:
    columns = people()
    columns["income"] = [{"much": "[/bold]", "little": "[red]"}[word] for word in columns["income"]]
    table = write_csv(tmp_path / "[red]people.csv", columns)
    flags = ("--data", table, *INCOME, "--flip-labels", "1", "--steps", "1", "--out", tmp_path / "[red]run")
    assert "[red]people.csv" in command("train", *flags).out
    result = command("certify", tmp_path / "[red]run", table)
    assert result.code == 0 and "[/bold]" in result.out and "[red]" in result.out


# --- built-in datasets ----------------------------------------------------------------------------------------


def test_a_run_on_a_built_in_dataset(command: Command, moons: Path, tmp_path: Path) -> None:
    from fullcert.data.datasets import load

    test = load("two-moons", Path("data"), 0).test
    evaluation = json.loads((moons / "evaluation.json").read_text())
    columns = {"a": test.inputs[:, 0].tolist(), "b": test.inputs[:, 1].tolist()}
    unlabelled = asked(command, moons, write_csv(tmp_path / "rows.csv", columns))
    labelled = asked(command, moons, write_csv(tmp_path / "label.csv", {"label": test.labels.tolist(), **columns}))
    assert labelled["certified_accuracy"] == evaluation["headline"]["certified_accuracy"]
    for answer in (unlabelled["rows"], labelled["rows"]):
        assert [row["label"] for row in answer] == [sample["label"] for sample in evaluation["samples"]]
        assert [row["certified"] for row in answer] == [sample["certified"] for sample in evaluation["samples"]]
    np.savez(tmp_path / "rows.npz", x=test.inputs)
    archived = asked(command, moons, tmp_path / "rows.npz")["rows"]  # whose rows are counted from 1; a CSV has a header
    assert [row | {"line": row["line"] + 1} for row in archived] == unlabelled["rows"]
    plane = write_csv(tmp_path / "plane.csv", {"x": columns["a"], "y": columns["b"]})
    assert asked(command, moons, plane)["rows"] == unlabelled["rows"]


def test_cuts_are_asked_of_the_certificate(
    command: Command, moons: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import boundflow as bf

    asked_for, predict = [], bf.Certificate.predict

    def recorded(*args: Any, cuts: int = 0, **options: Any) -> bf.Prediction:
        asked_for.append(cuts)
        return predict(*args, cuts=cuts, **options)

    monkeypatch.setattr(bf.Certificate, "predict", recorded)
    rows = write_csv(tmp_path / "rows.csv", {"a": [0.0, 1.0], "b": [0.5, 0.0]})
    assert asked(command, moons, rows, "--cuts", "4")["samples"] == asked(command, moons, rows)["samples"] == 2
    assert asked_for == [4, 0]


def test_names_of_classes_of_a_built_in_dataset(command: Command, tmp_path: Path) -> None:
    from fullcert.data.datasets import load

    made = trained(tmp_path, "--dataset", "breast-cancer", "--steps", "1", "--domain", "interval", "--epsilon", "1e-4")
    data = load("breast-cancer", Path("data"), 0)
    columns = {f"f{number}": column.tolist() for number, column in enumerate(data.test.inputs.T)}
    assert data.class_names == ("malignant", "benign"), "in an order of their own"
    evaluation = json.loads((made / "evaluation.json").read_text())
    for labels in ([data.class_names[label] for label in data.test.labels], data.test.labels.tolist()):
        answer = asked(command, made, write_csv(tmp_path / "rows.csv", {**columns, "class": labels}))
        assert answer["certified_accuracy"] == evaluation["headline"]["certified_accuracy"]
        assert {row["true"] for row in answer["rows"]} == set(map(str, labels))


# --- mistakes -------------------------------------------------------------------------------------------------


def refused(command: Command, *arguments: object) -> str:
    return sentence(command("certify", *arguments, "--quiet"))


def test_rows_that_do_not_fit(command: Command, run: Path, regression: Path, moons: Path, tmp_path: Path) -> None:
    def file(**columns: list[Any]) -> Path:
        return write_csv(tmp_path / "rows.csv", columns)

    good: dict[str, list[Any]] = {"age": [30], "hours": [40], "town": ["north"]}
    assert "no column 'town'" in refused(command, run, file(age=[30], hours=[40]))
    assert "must hold numbers" in refused(command, run, file(**{**good, "age": ["old"]}))
    assert "missing values" in refused(command, run, file(**{**good, "age": [""]}, pay=[1]))
    assert "'some'" in refused(command, run, file(**good, income=["some"]))
    assert "'pay'" in refused(command, regression, file(**good, pay=["lots"]))
    assert asked(command, regression, file(**good, pay=[""]))["rows"][0]["true"] is None
    assert "no rows" in refused(command, run, file(**{name: [] for name in good}))
    assert "2 columns of numbers" in refused(command, moons, file(a=[1], b=[2], c=[3]))
    assert "2 columns of numbers" in refused(command, moons, file(a=[1]))
    assert "holds 'maybe'" in refused(command, moons, file(a=[1], b=[2], label=["maybe"]))
    assert "infinite" in refused(command, run, file(**{**good, "age": ["inf"]}))
    assert asked(command, run, file(**{**good, "town": ["nowhere"]}))["samples"] == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--epsilon", "-1"), "--epsilon must be"),
        (("--epsilon", "nan"), "--epsilon must be"),
        (("--tolerance", "age"), "such as age=1"),
        (("--tolerance", "wage=1"), "'wage'"),
        (("--tolerance", "town=1"), "holds categories"),
        (("--cuts", "17"), "--cuts"),
        (("--out", "answers.txt"), "'.txt'"),
        (("--out", "absent/answers.csv"), "absent"),
        (("--json", "absent/answers.json"), "absent"),
        (("--out", "a" * 300 + ".csv"), "cannot write"),
    ],
)
def test_wrong_flags(command: Command, run: Path, rows: Path, flags: tuple[str, str], words: str) -> None:
    assert words in refused(command, run, rows, *flags)


def test_tolerances_are_for_tables(command: Command, moons: Path, tmp_path: Path) -> None:
    rows = write_csv(tmp_path / "rows.csv", {"a": [1], "b": [2]})
    assert "names columns of a table" in refused(command, moons, rows, "--tolerance", "a=1")


def test_runs_that_are_none(command: Command, run: Path, rows: Path, tmp_path: Path) -> None:
    assert "there is no run" in refused(command, tmp_path / "absent", rows)
    assert "absent.csv" in refused(command, run, tmp_path / "absent.csv")
    assert "not the folder of a finished run" in refused(command, tmp_path, rows)
    assert "there is no run" in refused(command, rows, rows)


def copied(run: Path, folder: Path) -> Path:
    shutil.copytree(run, folder / "copy")
    return folder / "copy"


def test_damaged_certificates(command: Command, run: Path, moons: Path, rows: Path, tmp_path: Path) -> None:
    other = copied(run, tmp_path)
    file = other / "certificate.safetensors"
    whole = file.read_bytes()
    text, version = whole.decode("latin1"), f'\\"format\\": {FORMAT}'
    damaged = {
        "cut off": whole[: len(whole) // 2],
        "empty": b"",
        "not a certificate": b"PK" + whole,
        "no record": whole.replace(b'"boundflow":"{', b'"boundflux":"{', 1),
        "another version": text.replace(version, version[:-1] + "9").encode("latin1"),
        "no JSON": text.replace(version, version.replace(":", ";")).encode("latin1"),
        "other kind of part": text.replace('\\"parts\\": [[', '\\"parts\\": [[7').encode("latin1"),
        "other shape": text.replace('\\"input_shape\\": [5]', '\\"input_shape\\": [6]').encode("latin1"),
        "other layers": text.replace("Linear", "Lineal").encode("latin1"),
        "the certificate of another run": (moons / "certificate.safetensors").read_bytes(),
    }
    for what, content in damaged.items():
        assert content != whole, what
        file.write_bytes(content)
        said = refused(command, other, rows)
        assert what != "another version" or "written by another version" in said


def test_damaged_encodings_and_options(command: Command, run: Path, rows: Path, tmp_path: Path) -> None:
    other = copied(run, tmp_path)
    columns = other / "columns.json"
    data = json.loads(columns.read_text())
    damaged: list[Any] = [[], {}, {**data, "columns": []}, {**data, "columns": [7]}, {**data, "target": []}]
    damaged += [{**data, "columns": [{**data["columns"][0], change: None}]} for change in data["columns"][0]]
    damaged += [
        {**data, "columns": [{**data["columns"][0], "kind": "sound"}]},
        {**data, "columns": data["columns"][:1]},
    ]
    damaged += [{**data, "target": {**data["target"], "classes": 3}}, {**data, "target": {**data["target"], "name": 3}}]
    for content in damaged:
        columns.write_text(json.dumps(content))
        refused(command, other, rows)
    columns.write_text("{")
    assert "is damaged" in refused(command, other, rows)
    shutil.copy(run / "columns.json", columns)
    (other / "options.toml").write_text("colour = 1")
    assert "'colour'" in refused(command, other, rows)


def test_a_void_certificate_certifies_nothing(command: Command, table: Path, rows: Path, tmp_path: Path) -> None:
    flags = ("--data", table, *INCOME, "--domain", "interval", "--epsilon", "1", "--lr", "1e9", "--activation", "relu")
    made = trained(tmp_path, *flags, "--hidden", "3", "--epochs", "60", "--momentum", "0.9")
    assert "void_at_step" in json.loads((made / "metrics.json").read_text())
    answer = asked(command, made, rows)
    assert answer["claim"].startswith("Nothing is certified: the bounds became void at step")
    assert answer["certified"] == 0 and all(row["lower"] is None and row["margin"] is None for row in answer["rows"])
    for ending in (".csv", ".parquet", ".json"):
        assert command("certify", made, rows, "--quiet", "--out", tmp_path / f"answers{ending}").code == 0
    assert np.isnan(read(tmp_path / "answers.csv").columns["margin"]).all()


def test_answers_have_probabilities_of_the_classes_by_name(
    command: Command, run: Path, regression: Path, rows: Path, tmp_path: Path
) -> None:
    """Those of the plain model; a loss without logits has none, and neither has a number."""
    for answer in asked(command, run, rows)["rows"]:
        shares = {name: value for name, value in answer.items() if name.startswith("probability_")}
        assert list(shares) == ["probability_little", "probability_much"]
        assert (
            sum(shares.values()) == pytest.approx(1) and max(shares, key=shares.get) == f"probability_{answer['label']}"
        )
        lower, upper = (1 / (1 + np.exp(-answer[side])) for side in ("lower", "upper"))
        assert lower - 1e-12 <= shares["probability_much"] <= upper + 1e-12
    several = trained(tmp_path, "--data", rows, "--target", "town", "--ignore", "income", "--steps", "2")
    (first, *_) = asked(command, several, rows)["rows"]
    assert sum(first[f"probability_{town}"] for town in ("north", "south", "west")) == pytest.approx(1)
    assert not [name for name in asked(command, regression, rows)["rows"][0] if name.startswith("probability")]
    shutil.rmtree(several)
    hinge = trained(tmp_path, "--data", rows, *INCOME, "--loss", "hinge", "--steps", "1")
    assert not [name for name in asked(command, hinge, rows)["rows"][0] if name.startswith("probability")]


def test_rows_with_categories_that_training_did_not_have_are_marked(
    command: Command, run: Path, tmp_path: Path
) -> None:
    table = write_csv(
        tmp_path / "new.csv", {"age": [30, 40, 50], "hours": [30, 31, 32], "town": ["nroth", "north", ""]}
    )
    out = tmp_path / "answers.csv"
    told = unwrapped(command("certify", run, table, "--out", out).out)
    assert "The column unseen marks it." in told
    with out.open(newline="") as file:
        assert [row["unseen"] for row in csv.DictReader(file)] == ["town", "", ""]
