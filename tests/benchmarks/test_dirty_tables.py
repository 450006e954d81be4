"""Trained on a dirty table: what is settled is what a training on the clean one answers."""

import json
import sys
from pathlib import Path

import pytest
import torch
from data_at_hand import DATA, needs

sys.path.insert(0, "benchmarks")
import dirty_tables as benchmark


@needs("dirty-tables")
def test_no_settled_prediction_differs_on_the_clean_table() -> None:
    """With all that is really wrong as the budget, and with the missing cells of the clean table filled in anyhow."""
    pair = benchmark.read(DATA / "dirty-tables")
    assert pair.labels == 14 and pair.silent_rows == 115 and len(pair.test[0]) == 135
    x, _ = pair.test
    settled = benchmark.trained(pair.dirty, benchmark.threat(pair.labels, rows=pair.silent_rows), 1).predict(x)
    assert settled.certified.double().mean() > 0.5
    inputs, labels = pair.clean
    others = 0
    for value in benchmark.RANGE:
        filled = torch.where(torch.isnan(inputs), value, inputs)
        clean = benchmark.trained((filled, labels), benchmark.threat(), 1).predict(x)
        differ = settled.label != clean.label
        assert not (differ & settled.certified).any()
        others += int(differ.sum())
    assert others > 0  # of those that are open


@needs("dirty-tables")
def test_every_row_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.json"
    monkeypatch.setattr(benchmark, "STEPS", (1,))
    monkeypatch.setattr(benchmark, "AIRFOIL_STEPS", ())
    monkeypatch.setattr(sys, "argv", ["dirty_tables.py", "--data-dir", str(DATA), "--json", str(path)])
    benchmark.main()
    rows = json.loads(path.read_text())
    assert [row["settled_that_differ"] for row in rows] == [0] * 5
    assert rows[0]["settled"] > rows[1]["settled"] > rows[2]["settled"] > 0 == rows[4]["settled"]
    assert rows[3]["settled"] > 0.5
    assert "304 unknown cells, 14 wrong labels" in capsys.readouterr().out


@needs("dirty-tables")
def test_answers_of_the_clean_airfoils_lie_within_the_bounds() -> None:
    """In a regression nothing is certain, so the bounds themselves are compared."""
    pair = benchmark.read_airfoils(DATA / "dirty-tables")
    assert int(torch.isnan(pair.dirty[0]).sum()) == 556 and pair.silent == [12, 8, 0, 20, 0] and pair.labels == 0
    unit = (-1.0, 1.0)
    silent = benchmark.threat(silent=pair.silent, clip=unit, ends=unit)
    rows = [benchmark.row_of_airfoils(pair, "", against, 1) for against in (benchmark.threat(ends=unit), silent)]
    assert [row["outside"] for row in rows] == [0, 0] and 0 < rows[0]["width"] < rows[1]["width"] < 5


def test_no_row_on_the_page_has_a_settled_answer_that_differs() -> None:
    found = json.loads((Path(__file__).parents[2] / "docs" / "figures" / "dirty-and-clean.json").read_text())
    assert len(found) == 26 and sum(row.get("settled_that_differ", 0) + row.get("outside", 0) for row in found) == 0


@pytest.mark.parametrize("cell", ["", "33", "1a0", "0", "11", "?", "\u0663", "5.5"])
def test_what_is_no_measurement_is_unknown(cell: str) -> None:
    assert benchmark.measured(cell) != benchmark.measured(cell)
    assert benchmark.measured("10") == pytest.approx(1.5)
