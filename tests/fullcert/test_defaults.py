"""Defaults alone certify what a newcomer tries first: a cut of `benchmarks/defaults.py`."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from defaults import SETTINGS, measure


def test_the_network_of_the_paper_is_certified_with_defaults() -> None:
    """FullCert's 2-20-1 on Two-Moons at epsilon 1e-3, for which 82.2 % were published."""
    found = measure({"dataset": "two-moons", "hidden": "20", "activation": "relu", "epsilon": 1e-3})
    assert found["certified"] >= 0.8


@pytest.mark.parametrize("epsilon", [1e-4, 1e-3, 1e-2])
def test_intervals_certify_something_with_defaults(epsilon: float) -> None:
    """They are quick, so that all of them can be tried."""
    tried: list[dict[str, Any]] = [
        setting.given
        for setting in SETTINGS
        if (setting.given["dataset"], setting.given.get("domain")) == ("two-moons", "interval")
        and setting.given["epsilon"] == epsilon
    ]
    certified: dict[str, list[float]] = {given["hidden"]: [] for given in tried}
    for given in tried:
        certified[given["hidden"]].append(measure(given)["certified"])
    assert min(certified["20"] + certified["10"]) > 0.7 and min(certified["10,10"]) > 0.4
