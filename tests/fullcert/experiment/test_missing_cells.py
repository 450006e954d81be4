"""Missing cells: any category of their column, or one value that is filled in; dates as numbers."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import Command, people, sentence, write_csv

from fullcert.data import dates
from fullcert.data.dialects import Dialect
from fullcert.data.encoding import DECLARED, FIXED, SAME, Number, Words
from fullcert.data.tables import Table, read
from fullcert.experiment import threats
from fullcert.experiment.options import Options
from fullcert.experiment.tasks import load
from fullcert.experiment.training import Recipe
from fullcert.system.mistakes import Mistake

SHORT = ("--target", "income", "--ignore", "pay", "--flip-labels", "1", "--quiet")


@pytest.fixture
def holes(tmp_path: Path) -> Path:
    columns = people(90)
    for row in range(0, 90, 9):
        columns["town"][row], columns["age"][row + 1] = "?", ""
    return write_csv(tmp_path / "holes.csv", columns)


def options(path: Path, **given: Any) -> Options:
    chosen = {"data": str(path), "target": "income", "ignore": ("pay",), "missing_mark": ("?",), "epochs": 2}
    return Options(
        **{"hidden": "none", "lr": 0.5, "batch_size": 0, "momentum": 0.0, "init_scale": 0.0, **chosen, **given}
    )


def test_a_missing_category_may_be_any_of_them(holes: Path) -> None:
    recipe = Recipe(options(holes, missing=("town", "age=20:70")))
    town = recipe.task.encoding.column("town")
    assert isinstance(town, Words) and town.unknown and town.values == ("north", "south", "west")
    assert town.source == SAME
    certificate = recipe.certify([])
    rows, labels = recipe.data.train.inputs, recipe.data.train.labels
    places = recipe.task.encoding.places("town")
    random = np.random.RandomState(0)
    assert np.isnan(rows[:, places]).all(1).sum() > 3
    for _ in range(5):  # plain training on what could have stood there ends inside the set
        filled = rows.copy()
        for row in np.flatnonzero(np.isnan(rows[:, places[0]])):
            filled[row, places] = np.eye(3)[random.randint(3)]
        age = recipe.task.encoding.column("age")
        draws = (random.choice([20, 70], len(rows)) - age.center) / age.scale
        filled[:, 0] = np.where(np.isnan(filled[:, 0]), draws, filled[:, 0])
        model = torch.nn.Sequential(torch.nn.Linear(rows.shape[1], 1)).double()
        for parameter in model.parameters():
            torch.nn.init.zeros_(parameter)
        x, y = torch.tensor(filled), torch.tensor(labels).double()[:, None]
        for _ in range(2):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x), y)
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                    parameter -= 0.5 * gradient
        for mine, theirs in zip(model.parameters(), certificate.model.parameters(), strict=True):
            assert bool((theirs.lower <= mine).all() and (mine <= theirs.upper).all())


def test_new_rows_with_unknown_categories_are_answered(command: Command, holes: Path, tmp_path: Path) -> None:
    flags = ("--missing-mark", "?", "--missing", "town", "--missing", "age=20:70", "--out", tmp_path / "run")
    assert command("train", "--data", holes, *SHORT, *flags).code == 0
    new = write_csv(tmp_path / "new.csv", {"age": [40, ""], "hours": [59, 11], "town": ["?", "?"]})
    told = json.loads(command("certify", tmp_path / "run", new, "--json", "-", "--quiet").out)
    assert "town by any category of the training rows" in told["threat"]["training"] and len(told["rows"]) == 2
    whole = {"age": [40] * 3, "hours": [59] * 3, "town": ["north", "south", "west"]}
    each = json.loads(
        command("certify", tmp_path / "run", write_csv(tmp_path / "each.csv", whole), "--json", "-", "--quiet").out
    )
    assert all(
        told["rows"][0]["lower"] <= row["lower"] <= row["upper"] <= told["rows"][0]["upper"] for row in each["rows"]
    )


@pytest.mark.parametrize(
    ("how", "value"),
    [
        ("age=median", None),
        ("age=mean", None),
        ("age=45", 45.0),
        ("median", None),
        ("town=mode", None),
        ("town=west", "west"),
    ],
)
def test_one_value_is_filled_in(holes: Path, how: str, value: float | str | None) -> None:
    name = "age" if how == "median" else how.partition("=")[0]
    other = () if name == "age" else ("age",)
    made = load(options(holes, impute=(how,), flip_labels=1, missing=other)).encoding.column(name)
    assert isinstance(made, Number | Words) and made.fill_source == (SAME if value is None else FIXED)
    assert value is None or made.fill == value


def test_a_value_that_cannot_be_filled_in_is_told(holes: Path) -> None:
    with pytest.raises(Mistake, match="--impute income: that column is predicted; --drop-unlabelled"):
        load(options(holes, impute=("income=mode", "age=median"), flip_labels=1))
    columns = people(30)
    columns["age"][4] = "?"
    marked = write_csv(holes.parent / "marked.csv", columns)
    with pytest.raises(
        Mistake, match=r"that column holds '\?': if it stands for a missing value, say --missing-mark \?"
    ):
        load(options(marked, impute=("age=median",), missing_mark=(), flip_labels=1))


def test_a_value_from_data_inside_the_threat_is_declared(command: Command, holes: Path, tmp_path: Path) -> None:
    made = load(options(holes, impute=("age=mean",), tolerance=("age=1",))).encoding.column("age")
    assert made.fill_source == DECLARED and made.source == DECLARED
    flags = ("--tolerance", "age=1", "--impute", "age=median", "--impute", "town=mode", "--missing-mark", "?")
    assert command("train", "--data", holes, *SHORT, *flags, "--out", tmp_path / "run").code == 0
    evaluation = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    said = [words for name, words in evaluation["details"][2][1] if name == "missing cells"]
    assert any(DECLARED in words and "age: " in words for words in said)
    assert any(SAME in words and "town: " in words for words in said)
    assert command("certify", tmp_path / "run", holes, "--quiet").code == 0


# --- dates, decimal commas and lines --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "order", "days"),
    [
        ("1970-01-02", None, 1.0),
        ("2.1.1970", None, 1.0),
        ("01/02/1970", "mdy", 1.0),
        ("02/01/1970", "dmy", 1.0),
        ("02/01/1970", None, None),
        ("19700102", "ymd", 1.0),
        ("1970-01-02T12:00:00Z", None, 1.5),
        ("1969-12-31 06:00", None, -0.75),
        ("31.02.1970", None, None),
        ("1.1.70", None, None),
        ("north", None, None),
    ],
)
def test_dates_are_days(cell: str, order: str | None, days: float | None) -> None:
    assert dates.days(cell, order) == days


def test_missing_dates_are_told_as_dates() -> None:
    """A claim about days 19783 to 19843 said nothing to its readers; part of a day stays a number."""
    for text in ("1969-12-31", "1970-01-02", "2024-02-29"):
        assert dates.day_of(float(dates.days(text) or 0)) == text
    assert [dates.day_of(number) for number in (0.5, 1e9, -1e9, math.inf)] == [None] * 4
    options = Options(data="t.csv", target="y", dates=("since=dmy",), missing=("since=19783:19843.5", "age=17:90"))
    words = threats.training_words(options, 100, table=True)
    assert words.endswith("since by anything from 2024-03-01 to 19843.5 and age by anything from 17 to 90")


def test_dates_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("when,code\n1970-01-03,19700102\n\n,19700103\n")
    table = read(tmp_path / "t.csv")
    made = table.with_dates({"when": None, "code": "ymd"})
    assert made.columns["when"][0] == 2.0 and math.isnan(made.columns["when"][1])
    assert made.columns["code"].tolist() == [1.0, 2.0] and made.lines.tolist() == [2, 4]
    (tmp_path / "t.csv").write_text("when\n01/02/2024\n")
    with pytest.raises(Mistake, match=r"'01/02/2024' in line 2: say the order, --dates when=dmy or mdy"):
        read(tmp_path / "t.csv").with_dates({"when": None})


def test_dates_of_a_table_without_lines() -> None:
    """As one that is no text: its rows are counted."""
    cells = np.array(["1970-01-03", "01/02/2024"])
    table, first = (Table({"when": cells[:count]}, Path("t.parquet")) for count in (2, 1))
    assert first.with_dates({"when": None}).column("when").tolist() == [2.0]
    with pytest.raises(Mistake, match=r"'01/02/2024' in line 2: say the order"):
        table.with_dates({"when": None})


def test_decimal_commas_are_asked_for(command: Command, tmp_path: Path) -> None:
    columns = people(60)
    columns["hours"] = [f"{hours},5" for hours in columns["hours"]]
    path = write_csv(tmp_path / "t.csv", columns)
    said = command("train", "--data", path, *SHORT).err
    assert "--decimal ," in said and "--categorical hours" in said
    assert read(path, Dialect(decimal=",")).columns["hours"][0] == int(columns["hours"][0][:-2]) + 0.5


def test_ids_stay_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,x\n007,1\n008,2\n")
    assert read(tmp_path / "t.csv", Dialect(words=frozenset({"id"}))).columns["id"].tolist() == ["007", "008"]


# --- numbers that can stand in a column -----------------------------------------------------------------------------


def test_what_is_no_number_in_the_range_is_missing(command: Command, tmp_path: Path) -> None:
    """A word or a number out of range made categories of the column, or a range that nothing can be in."""
    columns = people(60)
    clean = [*columns["hours"]]
    dirty = {3: "1a0", 7: "999", 11: "-5", 20: "??"}
    columns["hours"] = [dirty.get(row, hours) for row, hours in enumerate(clean)]
    path = write_csv(tmp_path / "t.csv", columns)
    table = read(path).within({"hours": (10, 60)})
    expected = [math.nan if row in dirty else float(hours) for row, hours in enumerate(clean)]
    assert np.array_equal(table.columns["hours"], expected, equal_nan=True)
    flags = ("--data", path, *SHORT, "--valid", "hours=10:60")
    assert "missing values in 'hours' (4)" in command("train", *flags).err
    run = tmp_path / "run"
    assert command("train", *flags, "--missing", "hours", "--out", run, "--quiet").code == 0
    assert 'missing = ["hours=10.0:' in (run / "options.toml").read_text()
    rows = {name: cells[3:5] for name, cells in columns.items()}
    result = command("certify", run, write_csv(tmp_path / "rows.csv", rows), "--json", "-", "--quiet")
    first, second = json.loads(result.out)["rows"]
    assert first["upper"] - first["lower"] > second["upper"] - second["lower"]  # unknown in a new row, too
    for words, said in (("hours=60:10", "LOW:HIGH"), ("hours", "LOW:HIGH"), ("wage=1:2", "no column 'wage'")):
        assert said in command("train", "--data", path, *SHORT, "--valid", words).err
    assert "is for numbers" in command("train", *flags, "--categorical", "hours").err


@pytest.mark.parametrize(
    ("how", "amount", "share"),
    [({"tolerance": ("hours=30",)}, 30, 0), ({"tolerance": ("hours=80%",)}, 0, 0.8), ({"epsilon": 1.5}, 24, 0)],
    ids=["units", "share", "epsilon"],
)
def test_what_is_moved_stays_in_its_valid_range(
    how: dict[str, Any], amount: float, share: float, tmp_path: Path
) -> None:
    """Beyond it a cell is read as missing, so the claim "moved hours by up to 30" was not true of such a file.

    Trained on files whose hours were moved to the ends, as the command reads them, the plain model is in the set.
    """
    columns = people(60)
    columns["hours"] = np.clip([float(cell) for cell in columns["hours"]], 10, 60).tolist()
    given = {"valid": ("hours=10:60",), "scale": ("hours=0:16", "age=32:32"), "steps": 2, **how}
    recipe = Recipe(options(write_csv(tmp_path / "t.csv", columns), **given))
    assert "(hours within 10 to 60) in every training sample" in recipe.threats.training_words
    wide = Recipe(options(tmp_path / "t.csv", **{**given, "valid": ()}))
    assert "within" not in wide.threats.training_words
    certificate, loose = recipe.certify([]), wide.certify([])
    [place] = recipe.task.encoding.places("hours")
    weights = [next(one.model.parameters()).set.bounds[:, 0, place] for one in (certificate, loose)]
    assert weights[0][1] - weights[0][0] < weights[1][1] - weights[1][0]
    hours = np.array(columns["hours"])
    for direction in (-1, 1, np.where(np.arange(60) % 2, 1, -1)):
        poisoned = {**columns, "hours": np.clip(hours + direction * (amount + share * hours), 10, 60).tolist()}
        plain = Recipe(options(write_csv(tmp_path / "p.csv", poisoned), **{**given, "tolerance": (), "epsilon": 0.0}))
        found = plain.certify([])
        for inside, one in zip(certificate.model.parameters(), found.nominal.parameters(), strict=True):
            assert bool(((inside.set.bounds[0] <= one) & (one <= inside.set.bounds[1])).all())


def test_what_cannot_stay_in_its_valid_range_is_refused(command: Command, tmp_path: Path) -> None:
    columns = people(60)
    columns["hours"][3] = ""
    flags = ("--data", write_csv(tmp_path / "t.csv", columns), *SHORT, "--valid", "hours=0:100")
    for filled in (("--missing", "hours=0:120"), ("--impute", "hours=300")):
        said = sentence(command("train", *flags, *filled, "--tolerance", "hours=1"))
        assert f"{filled[0]} hours fills cells" in said and "--valid hours=0:100 excludes" in said
        run = tmp_path / filled[0].strip("-")  # where nothing is moved, it may have been anything
        assert command("train", *flags, *filled, "--out", run).code == 0 and (run / "report.html").is_file()
    pay = ("--target", "pay", "--regression", "--ignore", "hours", "--valid", "pay=0:100", "--target-tolerance", "1")
    assert "--valid pay" in sentence(command("train", "--data", tmp_path / "t.csv", *pay, "--quiet"))
