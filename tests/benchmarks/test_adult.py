"""A small cut of the benchmark on Adult."""

import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, "benchmarks")
import adult as benchmark


@pytest.mark.skipif("BOUNDFLOW_DATA" not in os.environ, reason="set BOUNDFLOW_DATA to a folder with Adult")
def test_a_small_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.json"
    monkeypatch.setattr(sys, "argv", ["adult.py", "--rows", "800", "--steps", "1", "--json", str(path)])
    benchmark.main()
    flips, tolerances, missing = json.loads(path.read_text())
    assert flips["case"] == "flips" and tolerances["case"] == "tolerances" and flips["test_samples"] == 800
    assert missing["case"] == "missing" and "MissingCategory" in missing["threat"]
    for found in (flips, tolerances, missing):
        assert 0 < found["certified_accuracy"] <= found["nominal_accuracy"] and found["nominal_accuracy"] > 0.7
        assert found["declared"] == []
    shown = capsys.readouterr().out
    assert "flips" in shown and "tolerances" in shown and "certified" in shown


def test_without_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("BOUNDFLOW_DATA", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["adult.py"])
    with pytest.raises(SystemExit) as left:
        benchmark.main()
    assert left.value.code == 2 and "adult" in capsys.readouterr().err


def test_a_mistake_of_the_command_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    train = tmp_path / "train.csv"
    train.write_text("age,income\n30,much\n")
    with pytest.raises(SystemExit) as left:
        benchmark.measure("flips", train, tmp_path / "absent.csv", 1, tmp_path / "run")
    assert left.value.code == 2 and "absent.csv" in capfd.readouterr().err
