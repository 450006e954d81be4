"""A small cut of the benchmark of both sides, and of poisoned trainings."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, "benchmarks")
import gap
import poisoned_trainings


def test_a_small_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.json"
    arguments = ["--case", "two-moons", "--epsilon", "0.001", "0.1", "--quick", "--device", "cpu", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", ["gap.py", *arguments])
    gap.main()
    near, far = json.loads(path.read_text())
    for found in (near, far):
        assert found["certified_accuracy"] <= found["attacked_accuracy"] <= found["nominal_accuracy"]
        assert found["samples"] == 300 and found["points"] == 60 and found["outside"] == 0
    assert near["gap"] <= 0.02 and far["attacked_accuracy"] < near["attacked_accuracy"]
    assert "certified" in capsys.readouterr().out


def test_cases_start_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["gap.py", "--case", "breast-cancer", "--k", "1", "--quick", "--device", "cpu"])
    gap.main()
    monkeypatch.setenv("BOUNDFLOW_DATA", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["gap.py", "--case", "magic", "--quick", "--device", "cpu"])
    with pytest.raises(SystemExit, match="magic"):
        gap.main()
    monkeypatch.setattr(sys, "argv", ["gap.py", "--case", "two-moons", "--epsilon", "7", "--quick", "--device", "cpu"])
    with pytest.raises(SystemExit, match="no case has such a setting"):
        gap.main()


def test_poisoned_trainings_are_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.json"
    arguments = ["--trainings", "1000", "--each", "50", "--seed", "3", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", ["poisoned_trainings.py", *arguments])
    poisoned_trainings.main()
    found = json.loads(path.read_text())
    assert found["trainings"] >= 1000 and found["violations"] == 0 and found["outside_threat"] == 0
    assert len({setting["threat"].partition("(")[0] for setting in found["by_setting"]}) >= 4
    assert "0 outside of their bounds" in capsys.readouterr().out
