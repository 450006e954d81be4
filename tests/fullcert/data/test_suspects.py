"""Rows whose own label is unlikely: scores are those of fits without the row, and find planted wrong labels."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from commands import Command, people, run_main, sentence, write_csv
from data_at_hand import needs
from messy import messy_cells
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fullcert.data import suspects
from fullcert.experiment import tasks
from fullcert.experiment.options import resolve

ROWS, WRONG = 5000, 58


def planted(labels: np.ndarray, seed: int, count: int = WRONG) -> tuple[np.ndarray, np.ndarray]:
    """Labels of two classes of which so many are wrong, and which."""
    wrong = np.random.RandomState(seed + 100).choice(len(labels), count, replace=False)
    made = labels.copy()
    made[wrong] = 1 - made[wrong]
    return made, wrong


def found_by_cross_validation(inputs: np.ndarray, labels: np.ndarray, wrong: np.ndarray, parts: int = 10) -> int:
    """How many wrong labels are among the first by the share that fits, each without a part, give to the label."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    shares = cross_val_predict(model, np.nan_to_num(inputs), labels, cv=parts, method="predict_proba")
    own = shares[np.arange(len(labels)), labels]
    return len(np.intersect1d(np.argsort(own, kind="stable")[: len(wrong)], wrong))


def customers(folder: Path, seed: int) -> tuple[np.ndarray, np.ndarray]:
    cells = messy_cells(ROWS, seed)
    cells["bezahlt"] = [cell or "ja" for cell in cells["bezahlt"]]
    numbers = ("Einkommen", "Schulden")
    table = {
        name: [c.replace(",", ".") for c in column] if name in numbers else column for name, column in cells.items()
    }
    given = {"data": str(write_csv(folder / "t.csv", table)), "target": "bezahlt", "id": "Kundennummer"}
    left_out, dates = ("PLZ", "Bemerkung", "Mandant"), ("Kunde seit",)
    options = resolve(
        {**given, "ignore": left_out, "dates": dates, "missing": ("Einkommen", "Alter", "Kunde seit")}, {}
    )
    encoding, read = tasks.load(options).encoding, tasks.read(options, Path(given["data"]))
    assert encoding is not None
    return encoding.inputs(read), encoding.target.encoded(read.column("bezahlt"))


@pytest.mark.parametrize("seed", [1, 2, 3])  # all draws, and those of Adult: benchmarks/suspects.py
def test_planted_wrong_labels_are_found_as_often_as_by_cross_validation(seed: int, tmp_path: Path) -> None:
    inputs, labels = customers(tmp_path, seed)
    made, wrong = planted(labels, seed)
    found = len(np.intersect1d(suspects.of_labels(inputs, made, 2).first(WRONG), wrong))
    assert found >= found_by_cross_validation(inputs, made, wrong) > WRONG / 2


@needs("adult")
def test_planted_wrong_labels_of_adult_too() -> None:
    from data_at_hand import DATA

    train = tasks.load(resolve({"dataset": "adult", "data_dir": str(DATA)}, {})).data.train
    made, wrong = planted(train.labels[:ROWS], 0)
    found = len(np.intersect1d(suspects.of_labels(train.inputs[:ROWS], made, 2).first(WRONG), wrong))
    assert found >= found_by_cross_validation(train.inputs[:ROWS], made, wrong) > WRONG / 4


def test_a_score_is_that_of_a_fit_without_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """One Newton step from the fit of all rows is near the fit of all others, and far from that of all."""
    random = np.random.RandomState(0)
    inputs = random.randn(80, 4)
    labels = (inputs @ [2.0, -1.0, 0.5, 0.0] + random.randn(80) > 0).astype(np.int64)
    monkeypatch.setattr(suspects, "ROUNDS", 1)  # all rows weigh alike
    x, y, ones = suspects.features(inputs), labels.astype(float), np.ones(80)
    scores = suspects.of_labels(inputs, labels, 2).expected[:, 1]
    among = suspects.sigmoid(x @ suspects.fitted(x, y, ones))
    for row in range(0, 80, 4):
        others = np.delete(np.arange(80), row)
        alone = suspects.sigmoid(x[row] @ suspects.fitted(x[others], y[others], ones[others]))
        assert abs(scores[row] - alone) <= 0.01 + 0.2 * abs(among[row] - alone), row


def test_labels_that_are_likely_to_be_wrong_weigh_less() -> None:
    shares = np.array([0.999, 0.9, 0.5, 0.01, 1e-6])
    weights = suspects.right(shares)
    assert (np.diff(weights) < 0).all() and weights[0] > 0.99 and weights[-1] < 0.01
    assert 1 - weights.mean() == pytest.approx(float((1 - weights).mean()))
    assert suspects.right(np.full(100, 0.9)).min() > 0.99  # where nothing is suspicious


def test_the_fit_is_that_of_scikit_learn() -> None:
    random = np.random.RandomState(1)
    inputs, labels = random.randn(200, 3), random.randint(0, 2, 200)
    labels[inputs[:, 0] > 0.5] = 1
    x = suspects.features(inputs)
    theirs = LogisticRegression(C=1.0 / suspects.PENALTY, tol=1e-10, max_iter=1000).fit(x[:, :-1], labels)
    mine = suspects.fitted(x, labels.astype(float), np.ones(200))
    np.testing.assert_allclose(mine, [*theirs.coef_[0], *theirs.intercept_], atol=1e-4)


def test_the_deviation_of_a_value_is_that_of_a_regression_without_the_row() -> None:
    random = np.random.RandomState(2)
    inputs = random.randn(60, 3)
    values = inputs @ [1.0, 2.0, 0.0] + 0.1 * random.randn(60)
    values[17] += 5
    scores, x = suspects.of_values(inputs, values), suspects.features(inputs)
    assert scores.first(1) == [17] and scores.surprise[17] > 5
    for row in (0, 17, 59):
        others = np.delete(np.arange(60), row)
        coefficients = suspects.inverse(x[others], np.ones(59)) @ x[others].T @ values[others]
        assert scores.expected[row] == pytest.approx(x[row] @ coefficients, rel=1e-9)


def test_several_classes_missing_cells_and_many_inputs() -> None:
    random = np.random.RandomState(3)
    inputs = random.randn(300, 120)
    labels = np.argmax(inputs[:, :3], 1)
    inputs[::7, 5] = np.nan
    made, leads = labels.copy(), np.sort(inputs[:, :3], 1)
    sure = int(np.argmax(leads[:, 2] - leads[:, 1]))
    made[sure] = (labels[sure] + 1) % 3
    assert suspects.of_labels(inputs[:, :8], made, 3).first(1) == [sure]
    scores = suspects.of_labels(inputs, made, 3)  # as their first hundred principal components
    np.testing.assert_allclose(scores.expected.sum(1), 1)
    assert scores.expected.shape == (300, 3) and np.isfinite(scores.surprise).all()
    again = suspects.of_labels(inputs.copy(), made, 3)
    assert np.array_equal(again.surprise, scores.surprise)  # nothing is drawn
    separable = suspects.of_labels(np.arange(20.0)[:, None], (np.arange(20) > 9).astype(np.int64), 2)
    assert np.isfinite(separable.surprise).all()


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on people of whom five labels of training rows were exchanged."""
    folder = tmp_path_factory.mktemp("suspects")
    table = {"id": [f"P{row:03d}" for row in range(300)], **people(300)}
    write_csv(folder / "right.csv", table)
    for row in (3, 50, 77, 130, 222):
        table["income"][row] = {"much": "little", "little": "much"}[table["income"][row]]
    path = write_csv(folder / "people.csv", table)
    flags = ("--target", "income", "--id", "id", "--flip-labels", "5", "--steps", "4", "--quiet")
    assert run_main("train", "--data", path, *flags, "--out", folder / "run") == 0
    return folder / "run"


def test_both_lists_say_which_question_they_answer(command: Command, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "check.csv"
    result = command("audit", run, "--budget", "12", "--suspects", "--json", "-", "--quiet")
    told = json.loads(result.out)
    settles, unlikely = (told[name]["question"] for name in ("checklist", "suspects"))
    assert "settled" in settles and "unlikely" in unlikely
    shown = command("audit", run, "--budget", "12", "--suspects").out.splitlines()
    for question in (settles, unlikely):
        line = shown.index(question)
        assert shown[line + 1].startswith("┏")  # the list follows
    assert "Northcutt" in told["suspects"]["score"] and "Northcutt" in " ".join(shown)
    assert command("audit", run, "--budget", "12", "--suspects", "--out", out, "--report", "--quiet").code == 0
    page = (run / "report.html").read_text()
    assert page.index(settles) < page.index("Training rows to check")
    assert page.index(unlikely) < page.index("Training rows with unlikely labels")
    table = people(300)
    for file in (out, tmp_path / "check-suspects.csv"):
        rows = list(csv.DictReader(file.read_text().splitlines()))
        assert rows and [row["rank"] for row in rows] == [str(1 + place) for place in range(len(rows))]
        for row in rows:
            place = int(row["line"]) - 2
            assert (
                row["id"] == row["recorded id"] == f"P{place:03d}" and int(row["recorded age"]) == table["age"][place]
            )
            assert row["recorded income"] in ("much", "little")
    wrong = {place + 2 for place in (3, 50, 77, 130, 222)}
    training = {row["line"] for row in told["suspects"]["rows"]}
    listed = {int(row["line"]) for row in rows}
    assert listed == training and len(listed & wrong) >= 3
    for row in told["suspects"]["rows"]:
        assert row["label"] == row["recorded"]["income"] and 0 <= row["probability"] <= 1
        assert (row["likely"] != row["label"]) is (row["probability"] < 0.5)
    verified = command("audit", run, "--verified", out, "--json", "-", "--quiet")  # it can be given back as it is
    assert verified.code == 0 and json.loads(verified.out)["verified_rows"] == len(told["checklist"]["rows"])
    assert "suspects" not in json.loads(verified.out)


def test_suspects_of_numbers_and_of_built_in_datasets(command: Command, tmp_path: Path) -> None:
    table = people(120)
    table["pay"][40] = 90.0
    path = write_csv(tmp_path / "people.csv", table)
    flags = ("--target", "pay", "--regression", "--target-tolerance", "0.1", "--steps", "2", "--quiet")
    assert run_main("train", "--data", path, *flags, "--out", tmp_path / "run") == 0
    result = command("audit", tmp_path / "run", "--budget", "5", "--suspects", "--json", "-", "--quiet")
    audit = json.loads(result.out)
    reach = [prediction["reach"] for prediction in audit["predictions"]]  # in units of the table, as the widths are
    assert len(reach) == audit["audited"] and np.mean(reach) == pytest.approx(audit["checklist"]["width_before"])
    told = audit["suspects"]
    first = told["rows"][0]
    assert first["line"] == 42 and first["value"] == pytest.approx(90) and first["deviations"] > 5
    assert abs(first["expected"]) < 20 and "Cook" in told["score"]
    given = {"data": str(path), "target": "pay", "regression": True, "target_tolerance": 0.1}
    train = tasks.load(resolve(given, {})).data.train
    scores = suspects.of_values(train.inputs, train.labels)
    pay = np.array([row["value"] for row in told["rows"]])
    scale, center = np.polyfit(train.labels[scores.first(5)], pay, 1)  # from what is trained on to the table
    assert scale != pytest.approx(1, abs=0.2)
    assert [row["expected"] for row in told["rows"]] == pytest.approx(scores.expected[scores.first(5)] * scale + center)
    assert run_main("train", "--dataset", "iris", "--flip-labels", "1", "--quiet", "--out", tmp_path / "iris") == 0
    result = command("audit", tmp_path / "iris", "--budget", "3", "--suspects", "--json", "-", "--quiet")
    for row in json.loads(result.out)["suspects"]["rows"]:
        assert row["recorded"] == {"label": row["label"]} and row["label"] in ("setosa", "versicolor", "virginica")
    result = command("audit", tmp_path / "iris", "--budget", "3", "--suspects")
    assert result.code == 0 and "versicolor" in result.out
    rows = write_csv(tmp_path / "rows.csv", people(5))
    path.unlink()
    assert "not there any more" in sentence(command("audit", tmp_path / "run", rows, "--suspects"))
