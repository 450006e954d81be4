"""A small cut of the accuracy benchmark: the recipes that take a step or two, against what was published."""

import json
import sys

import pytest

sys.path.insert(0, "benchmarks")


@pytest.mark.parametrize("case", ["two-moons", "two-moons-relu"])
def test_the_shortest_recipe(case: str, tmp_path, monkeypatch, capsys) -> None:
    import certified_accuracy as benchmark

    path = tmp_path / "out.json"
    flags = ["--case", case, "--epsilon", "0.1", "--seeds", "0", "--device", "cpu", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", ["certified_accuracy.py", *flags])
    benchmark.main()
    (result,) = json.loads(path.read_text())
    assert result["case"] == case and result["k"] == 1000 and result["threat"] == "linf" and result["seed"] == 0
    assert benchmark.PUBLISHED[0.1] < result["certified_accuracy"] <= result["nominal_accuracy"]
    assert "published" in capsys.readouterr().out
