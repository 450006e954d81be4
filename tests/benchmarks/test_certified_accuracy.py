"""A small cut of every case of the accuracy benchmark, against what was published."""

import dataclasses
import json
import os
import sys

import pytest

sys.path.insert(0, "benchmarks")
import certified_accuracy as benchmark


@pytest.mark.parametrize("case", ["two-moons", "two-moons-tanh", "two-moons-relu"])
def test_the_shortest_recipe(case: str, tmp_path, monkeypatch, capsys) -> None:
    path = tmp_path / "out.json"
    flags = ["--case", case, "--epsilon", "0.1", "--seeds", "0", "--device", "cpu", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", ["certified_accuracy.py", *flags])
    benchmark.main()
    (result,) = json.loads(path.read_text())
    assert result["case"] == case and result["k"] == 1000 and result["threat"] == "linf" and result["seed"] == 0
    assert benchmark.FULLCERT[0.1] < result["certified_accuracy"] <= result["nominal_accuracy"]
    assert "published" in capsys.readouterr().out


def test_bumps_certify_almost_all_of_two_moons() -> None:
    (setting,) = (setting for setting in benchmark.CASES["two-moons"].settings if setting.epsilon == 1e-2)
    result = benchmark.measure("two-moons", setting, 0, "cpu")
    assert result["certified_accuracy"] > 0.98


@pytest.mark.parametrize(("threat", "epsilon", "k"), [("labels", None, 1), ("linf", 0.01, 20), ("linf", 0.01, 300)])
def test_half_moons(threat: str, epsilon: float | None, k: int) -> None:
    """Two steps of a narrow network on 300 samples, where the published recipe has four of 128 units on 3000."""
    recipe = dataclasses.replace(benchmark.AGT, hidden=8, steps=2, order=2)
    setting = benchmark.Setting(threat, epsilon, k, recipe, at_test_time=False)
    result = benchmark.measure("half-moons", setting, 0, "cpu", samples=300)
    assert result["k"] == k and result["threat"] == threat
    assert result["nominal_accuracy"] - 0.06 < result["certified_accuracy"] <= result["nominal_accuracy"]


@pytest.mark.skipif("BOUNDFLOW_DATA" not in os.environ, reason="set BOUNDFLOW_DATA to a folder with MNIST")
@pytest.mark.parametrize(("epsilon", "least"), [(1e-2, 0.85), (1e-3, 0.95)])
def test_mnist17(epsilon: float, least: float) -> None:
    """A few steps of a network with three hidden units, without rows for the samples."""
    (setting,) = (setting for setting in benchmark.CASES["mnist17"].settings if setting.epsilon == epsilon)
    recipe = dataclasses.replace(setting.recipe, hidden=3, steps=min(setting.recipe.steps, 3))
    result = benchmark.measure("mnist17", dataclasses.replace(setting, recipe=recipe), 0, "cpu")
    assert result["certified_accuracy"] > least


def test_a_setting_that_no_case_has(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["certified_accuracy.py", "--case", "two-moons", "--epsilon", "0.5"])
    with pytest.raises(SystemExit) as left:
        benchmark.main()
    assert left.value.code == 2 and "no case has such a setting" in capsys.readouterr().err
