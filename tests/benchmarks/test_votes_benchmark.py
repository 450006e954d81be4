"""A small cut of the benchmark on votes."""

import json
import sys
from pathlib import Path

import pytest
from data_at_hand import needs

sys.path.insert(0, "benchmarks")
import votes as benchmark


@needs("mnist")
def test_a_small_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.json"
    flags = ["--members", "3", "--samples", "300", "--test", "20", "--budgets", "0,2", "--json", str(path)]
    benchmark.main([*flags, "--steps", "1", "--lr", "5"])
    found = json.loads(path.read_text())
    assert found["median_flips"] >= found["median_flips_dpa"] and found["tried"] == []
    assert json.loads(capsys.readouterr().out) == found


def test_without_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOUNDFLOW_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match="votes.py: "):
        benchmark.main(["--steps", "1", "--lr", "5"])
