"""The rows that the page on wrong labels takes its figures from."""

import csv
import json
import sys
from pathlib import Path

sys.path.insert(0, "benchmarks")
import wrong_labels as benchmark

ROWS = Path(__file__).parents[2] / "docs" / "figures" / "wrong-labels.json"


def test_a_row_has_numbers_in_place_of_long_lists() -> None:
    found = {"rows": [1, 2], "checklist": {"rows": [3], "claim": "words"}, "columns": [{"share": 0.5}]}
    assert benchmark.short(found) == {**found, "rows": 2, "checklist": {"rows": 1, "claim": "words"}}


def test_missing_cells_are_filled_in_where_they_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "fill.csv"
    path.write_text('line,missing,workclass,occupation\n7,"workclass, occupation",,\n9,occupation,,\n')
    benchmark.fill(path)
    first, second = csv.DictReader(path.read_text().splitlines())
    assert first["workclass"] == "Private" and first["occupation"] == second["occupation"] == "Prof-specialty"
    assert second["workclass"] == ""


def test_the_rows_are_those_of_one_run_of_all_commands() -> None:
    rows = json.loads(ROWS.read_text())
    cases = {row["case"]: row for row in rows}
    assert [*cases] == ["sweep", "curve", "attack", "audit", "unknown", "fill", "filled"]
    assert cases["audit"]["certified"] == cases["attack"]["states"]["certified"]
    assert cases["fill"]["certified"] == cases["filled"]["certified_before"] <= cases["filled"]["certified"]
    certified = [row["certified_accuracy"] for row in rows if row["case"] == "curve"]
    assert certified == sorted(certified, reverse=True) and certified[0] == cases["sweep"]["nominal_accuracy"]
