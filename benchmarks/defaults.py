"""What a newcomer gets with defaults alone, beside the best recipe we know for the same network and threat.

Each setting is what `fullcert train` is called with: a dataset, a network, a domain and an epsilon; how it is trained
goes by the rules of `fullcert/experiment/recipes.py`. The best recipes were found on validation sets, for one epsilon
each. No setting may certify nothing where its best recipe certifies more than half.

    python benchmarks/defaults.py --json out.json
    BOUNDFLOW_DATA=folder-with-mnist python benchmarks/defaults.py --dataset mnist-1-7 --best
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fullcert.experiment.options import resolve
from fullcert.experiment.training import Recipe
from fullcert.results.evaluation import on_test


@dataclass(frozen=True)
class Setting:
    """The options that a newcomer gives, and those of the best recipe on top of them."""

    given: dict[str, Any]
    best: dict[str, Any] = field(default_factory=dict)  # nothing: none was looked for

    @property
    def name(self) -> str:
        return " ".join(
            str(self.given.get(key, "-")) for key in ("dataset", "domain", "hidden", "activation", "epsilon")
        )


def _recipe(steps: int, lr: float, momentum: float, batch_size: int, init_scale: float, order: int) -> dict[str, Any]:
    return {
        **{"epochs": steps, "steps": steps, "lr": lr, "momentum": momentum, "batch_size": batch_size},
        **{"init_scale": init_scale, "order": order},
    }


def _settings() -> Iterator[Setting]:
    best = {
        ("20", "relu", 1e-4): _recipe(60, 0.1, 0.9, 100, 4.0, 5),
        ("20", "relu", 1e-3): _recipe(50, 0.2, 0.5, 100, 4.0, 5),
        ("20", "tanh", 1e-3): _recipe(40, 0.3, 0.9, 100, 8.0, 5),
        ("10", "tanh", 1e-3): _recipe(40, 0.3, 0.9, 100, 8.0, 5),
        ("10,10", "relu", 1e-3): _recipe(16, 0.1, 0.9, 100, 4.0, 5),
        ("10,10", "tanh", 1e-3): _recipe(40, 0.1, 0.9, 100, 4.0, 5),
        ("10,10", "tanh", 1e-2): _recipe(16, 0.3, 0.0, 100, 8.0, 5),
    }
    for epsilon in (1e-4, 1e-3, 1e-2):
        yield Setting({"dataset": "two-moons", "epsilon": epsilon})
        for hidden in ("20", "10", "10,10"):
            for activation in ("relu", "tanh"):
                network = {"dataset": "two-moons", "hidden": hidden, "activation": activation, "epsilon": epsilon}
                yield Setting(network, best.get((hidden, activation, epsilon), {}))
                yield Setting({**network, "domain": "interval"})
    for epsilon in (1e-4, 1e-3, 1e-2):
        for activation in ("relu", "tanh"):
            network = {"dataset": "mnist-1-7", "hidden": "10", "activation": activation, "epsilon": epsilon}
            yield Setting({**network, "domain": "interval"})
            yield Setting(network)


SETTINGS = tuple(_settings())


def measure(given: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """The rule that was used, accuracies on the test set, and how long training and answering took, of one run."""
    folder = os.environ.get("BOUNDFLOW_DATA", "data")
    recipe = Recipe(resolve({**given, "seed": seed, "data_dir": folder}, {}))
    started = time.perf_counter()
    found = on_test(recipe, recipe.certify([])).accuracies()
    accuracies = {name: found[f"{name}_accuracy"] for name in ("nominal", "certified")}
    return {"rule": recipe.rule["rule"], **accuracies, "seconds": time.perf_counter() - started}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", nargs="*", help="default: all")
    parser.add_argument("--domain", nargs="*", help="default: all")
    parser.add_argument("--epsilon", type=float, nargs="*", help="default: all")
    parser.add_argument("--best", action="store_true", help="run the best recipe, too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write one object per setting to this file")
    asked = parser.parse_args()
    results = []
    heads = f"{'nominal':>7s} {'certified':>9s} {'best':>5s} {'seconds':>7s}"
    print(f"{'dataset domain hidden activation epsilon':44s} {heads}  rule")
    for setting in SETTINGS:
        wanted = ((name, getattr(asked, name)) for name in ("dataset", "domain", "epsilon"))
        if not all(not values or setting.given.get(name, "zonotope") in values for name, values in wanted):
            continue
        found: dict[str, Any] = {"given": setting.given, **measure(setting.given, asked.seed)}
        best = None
        if setting.best and asked.best:
            best = measure({**setting.given, **setting.best}, asked.seed)["certified"]
        results.append({**found, "best": best})
        told = "-" if best is None else f"{100 * best:.1f}"
        numbers = f"{100 * found['nominal']:7.1f} {100 * found['certified']:9.1f} {told:>5s} {found['seconds']:7.1f}"
        print(f"{setting.name:44s} {numbers}  {found['rule']}", flush=True)
        if asked.json:
            asked.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
