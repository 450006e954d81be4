"""`fullcert certify --withstands`: what answers withstand, the curve of a test set, and the curve in the report."""

import json
import re
from pathlib import Path

import pytest
import torch
from commands import Command, people, run_main, sentence, write_csv

import boundflow as bf
from fullcert.report.charts import Chart
from fullcert.report.page import stepped, withstood_chart

INCOME = ("--target", "income", "--ignore", "pay", "--steps", "3")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("rows") / "rows.csv", people(30, seed=1))


@pytest.fixture(scope="module")
def run(table: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("flips") / "run"
    flags = ("--data", table, *INCOME, "--test-data", rows, "--flip-labels", "3", "--quiet", "--out", out)
    assert run_main("train", *flags) == 0
    return out


def test_every_row_says_what_it_withstands(command: Command, run: Path, rows: Path, tmp_path: Path) -> None:
    result = command("certify", run, rows, "--withstands", "--json", "-", "--quiet")
    told = json.loads(result.out)
    assert told["withstands"]["unit"] == "k" and told["withstands"]["most"] == 3
    for row in told["rows"]:
        assert row["certified"] == (row["withstands"] == 3)
        assert row["withstands"] is None or 0 <= row["withstands"] <= 3
    shown = command("certify", run, rows, "--withstands", "--out", tmp_path / "answers.csv")
    assert shown.code == 0 and "withstand" in shown.out
    assert "withstands" in (tmp_path / "answers.csv").read_text().splitlines()[0]


def test_the_test_set_of_the_run_gives_a_curve_for_its_report(command: Command, run: Path) -> None:
    told = json.loads(command("certify", run, "--withstands", "--json", "-", "--quiet").out)
    metrics = json.loads((run / "metrics.json").read_text())
    points = {point["value"]: point["certified_accuracy"] for point in told["curve"]["points"]}
    assert points[max(points)] == pytest.approx(metrics["certified_accuracy"]) if max(points) == 3 else points
    assert told["curve"]["nominal_accuracy"] == pytest.approx(metrics["nominal_accuracy"])
    assert json.loads((run / "curve.json").read_text()) == told["curve"]
    assert {"row", "line", "label", "withstands", "true"} == told["rows"][0].keys()
    assert "What the predictions withstand" not in (run / "report.html").read_text()
    assert command("report", run).code == 0
    page = (run / "report.html").read_text()
    assert "What the predictions withstand" in page and "changed training samples" in page
    shown = command("certify", run, "--withstands")
    assert "certified accuracy" in shown.out and "draws it" in shown.out


def test_a_damaged_curve_is_told(command: Command, run: Path) -> None:
    before = (run / "curve.json").read_text() if (run / "curve.json").exists() else None
    for text in ("[]", '{"points": [{}], "unit": "k"}', '{"points": [{"value": "x"}], "unit": "y"}'):
        (run / "curve.json").write_text(text)
        assert "curve.json" in sentence(command("report", run))
    (run / "curve.json").unlink()
    if before is not None:
        (run / "curve.json").write_text(before)


def test_radii_of_a_run(command: Command, tmp_path: Path) -> None:
    flags = ("--dataset", "two-moons", "--batch-size", "0", "--epochs", "1", "--hidden", "3", "--order", "2")
    assert run_main("train", *flags, "--quiet", "--out", tmp_path / "moons") == 0
    told = json.loads(command("certify", tmp_path / "moons", "--withstands", "--json", "-", "--quiet").out)
    assert told["withstands"]["unit"] == "epsilon" and told["withstands"]["most"] == 1e-3
    refused = sentence(command("certify", tmp_path / "moons", "--withstands", "--over", "k", "--quiet"))
    assert "no budget" in refused


def test_mistakes_are_one_sentence(command: Command, run: Path, rows: Path, tmp_path: Path) -> None:
    assert "give the rows" in sentence(command("certify", run))
    assert "give both" in sentence(command("certify", run, rows, "--over", "k"))
    assert "not samples" in sentence(command("certify", run, rows, "--withstands", "--over", "samples"))
    assert "radius that shrinks" in sentence(
        command("certify", run, rows, "--withstands", "--over", "epsilon", "--quiet")
    )
    assert "no run at" in sentence(command("certify", tmp_path / "none", "--withstands", "--quiet"))
    for flags in (("--cuts", "3"), ("--epsilon", "0.1"), ("--tolerance", "none")):
        assert f"{flags[0]} is about rows of a file" in sentence(command("certify", run, "--withstands", *flags))
    out = tmp_path / "interval"
    flags = ("--dataset", "iris", "--flip-labels", "1", "--domain", "interval", "--steps", "1", "--quiet")
    assert run_main("train", *flags, "--out", out) == 0
    assert "not tracked" in sentence(command("certify", out, "--withstands", "--quiet"))
    assert "--withstands" in command("certify", "--help").out


def test_a_table_that_has_changed_is_noticed(command: Command, tmp_path: Path) -> None:
    data = write_csv(tmp_path / "people.csv", people())
    flags = ("--data", data, *INCOME, "--flip-labels", "1", "--quiet", "--out", tmp_path / "run")
    assert run_main("train", *flags) == 0
    changed = people()
    changed["age"] = [10 * age for age in changed["age"]]
    write_csv(data, changed)
    assert "was trained with another" in sentence(command("certify", tmp_path / "run", "--withstands", "--quiet"))


def picture(chart: Chart, kind: str) -> list[tuple[str, float]]:
    """The strokes of a line: along the axis (H), down (V), or straight to a point (L)."""
    found = re.search(rf'<path class="line {kind}" d="M[^A-Z]*([^"]*)"', chart.svg)
    assert found is not None
    return [(stroke, float(number)) for stroke, number in re.findall(r"([HVL])([0-9.]+)", found[1])]


def test_between_two_numbers_of_samples_the_next_larger_one_counts() -> None:
    assert stepped([(0, 0.9), (3, 0.5), (4, 0.1)]) == [(0, 0.9), (1, 0.5), (3, 0.5), (4, 0.1)]


@pytest.mark.parametrize("unit", ["epsilon", "share"])
def test_nothing_is_drawn_between_two_values_that_is_not_known(unit: str) -> None:
    """From one value to the next certified accuracy is that at the next, and what attacks left is that of the last."""
    shares = {"certified_accuracy": (0.9, 0.5, 0.1), "attacked_accuracy": (0.9, 0.8, 0.3)}
    points = [
        {"value": value, **{name: each[place] for name, each in shares.items()}}
        for place, value in enumerate((0, 3, 4))
    ]
    chart = withstood_chart({"unit": unit, "points": points, "nominal_accuracy": 1.0, "samples": 10})
    assert chart is not None
    assert [stroke for stroke, _ in picture(chart, "certified")] == ["V", "H", "V", "H"]
    assert [stroke for stroke, _ in picture(chart, "attacked")] == ["H", "V", "H", "V"]
    assert [row.cells[1] for row in chart.rows] == ["90.0 %", "50.0 %", "10.0 %"]


def test_the_command_says_what_the_library_says(run: Path) -> None:
    from fullcert.results.withstood_answers import Tested, of_test_set

    test = Tested(run)
    certificate = bf.load(run / "certificate.safetensors")
    assert torch.equal(of_test_set(test).value, certificate.withstands(test.x).value)
