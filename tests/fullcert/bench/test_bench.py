"""`fullcert bench` and `python -m fullcert.bench`: what they measure, write and refuse."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import boundflow as bf
from fullcert.bench import cases, measuring, running, steps
from fullcert.bench.__main__ import main
from fullcert.bench.cases import Case, Measured, load
from fullcert.bench.growth import slope
from fullcert.bench.page import write
from fullcert.bench.whole_trainings import mixed_table
from fullcert.system.mistakes import Mistake

EXTRAS = ("typer", "rich", "matplotlib", "scipy", "sklearn", "hypothesis", "jinja2", "safetensors")
NEEDED = {"interval-2-20-1-cpu", "interval-784-10-10-1-cpu", "interval-784-512-512-1-cpu", "interval-2-20-1-gpu"} | {
    "interval-784-10-10-1-gpu",
    "interval-4096-gpu",
    "zonotope-2-20-1-cpu",
    "zonotope-2-20-1-gpu",
    "head-512",
    "digits",
    "growth",
}


def fake(device: torch.device) -> Measured:
    return Measured(3.0, 2.0, 4_000_000, certified=90.0)


@pytest.fixture
def one_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "CASES", {"fake": Case("fake", "nothing at all", fake, quick=True)})


def test_every_case_has_a_name_and_a_title() -> None:
    table = load()
    assert table.keys() >= NEEDED and all(one.title for one in table.values())


@pytest.mark.usefixtures("one_case")
def test_rows_have_the_promised_fields(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    assert main(["--case", "fake", "--json", str(path)]) == 0
    (row,) = json.loads(path.read_text())
    assert row["case"] == "fake" and row["ratio"] == 1.5 and row["certified"] == 90.0
    assert row.keys() >= {"milliseconds", "plain_milliseconds", "peak_bytes", "machine"}


@pytest.mark.usefixtures("one_case")
def test_the_page_is_written_from_rows(tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    running.Request(["fake"], str(tmp_path / "bench" / "here.json")).perform(lambda now: None)
    write(tmp_path / "bench.md")
    text = (tmp_path / "bench.md").read_text()
    assert "## here" in text and "| fake | 1.5 | 3 | 2 | 4 | 90 |  |  | nothing at all |" in text


@pytest.mark.usefixtures("one_case")
def test_a_page_says_of_each_row_where_it_was_measured(tmp_path: Path) -> None:
    """It names one machine for a file: rows of two in it would be told as those of the first."""
    (tmp_path / "bench").mkdir()
    here = tmp_path / "bench" / "here.json"
    running.Request(["fake"], str(here)).perform(lambda now: None)
    rows = json.loads(here.read_text())
    here.write_text(json.dumps([*rows, {**rows[0], "machine": {**rows[0]["machine"], "processor": "another"}}]))
    with pytest.raises(Mistake, match="rows of several machines or versions: write a file for each"):
        write(tmp_path / "bench.md")


def test_unknown_cases_and_missing_devices_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--case", "nonsense"]) == 2
    if not torch.cuda.is_available():
        assert main(["--case", "interval-4096-gpu"]) == 2
        assert "needs a GPU" in capsys.readouterr().err


def test_a_step_with_bounds_and_a_plain_one_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "BLOCK", 1e-3)
    monkeypatch.setattr(measuring, "ROUNDS", 1)
    for domain in ("interval", "zonotope"):
        found = steps.measured(bf.Recipe(domain=domain, compile=False), (2, 3, 1), 5, torch.device("cpu"))
        assert found.milliseconds and found.plain_milliseconds and found.milliseconds > found.plain_milliseconds


def test_the_power_of_a_power_law_is_found() -> None:
    assert slope([1.0, 2.0, 4.0], [3.0, 12.0, 48.0]) == pytest.approx(2.0)


def test_the_table_has_eight_columns_and_three_classes() -> None:
    lines = mixed_table(60).splitlines()
    assert len(lines) == 61 and all(line.count(",") == 8 for line in lines)
    assert {line.rpartition(",")[2] for line in lines[1:]} == {"class0", "class1", "class2"}


def test_it_needs_torch_and_numpy_alone() -> None:
    hide = f"import sys, runpy; sys.modules.update(dict.fromkeys({EXTRAS!r}))"
    program = f"{hide}; sys.argv[1:] = ['--list']; runpy.run_module('fullcert.bench', run_name='__main__')"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "interval-4096-gpu" in result.stdout
