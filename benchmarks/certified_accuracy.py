"""How much of a test set is certified, for fixed recipes and several seeds.

Every feature of every training *and* test input may move by epsilon; rounding is on. Recipes (architecture, learning
rate, number of steps) were chosen on validation sets and are the same for all seeds. Needs torch and numpy alone:

    python benchmarks/certified_accuracy.py --case two-moons --epsilon 0.001 --seeds 0 1 2 --json out.json
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import boundflow as bf
from fullcert.datasets import load


@dataclass(frozen=True)
class Recipe:
    """A network 2-hidden-1 and how it is trained, on all samples at once."""

    hidden: int
    steps: int
    lr: float
    momentum: float = 0.0
    activation: type[nn.Module] = nn.Tanh
    first_scale: float = 1.0  # the first layer's initial values are multiplied by this
    head_scale: float = 1.0  # the last layer's
    frozen: bool = False  # the first layer keeps its initial values
    order: int = 20


# case -> epsilon -> recipe; published certified accuracies (FullCert, GCPR 2024) beside them
RECIPES = {
    "two-moons": {
        1e-4: Recipe(16, 40, 0.5, 0.9, first_scale=6),
        1e-3: Recipe(16, 40, 0.5, 0.9, first_scale=6),
        1e-2: Recipe(100, 50, 0.02, 0.9, first_scale=12, frozen=True, order=60),
        1e-1: Recipe(20, 1, 1.0, first_scale=2, head_scale=0),
    },
    "two-moons-relu": {  # the network of the paper, 2-20-1
        1e-4: Recipe(20, 64, 0.5, activation=nn.ReLU, head_scale=0.3, order=40),
        1e-3: Recipe(20, 42, 0.5, activation=nn.ReLU, order=40),
        1e-2: Recipe(20, 20, 0.5, activation=nn.ReLU, head_scale=0.3, order=40),
        1e-1: Recipe(20, 2, 1.0, activation=nn.ReLU, head_scale=0.3),
    },
}
PUBLISHED = {1e-4: 0.839, 1e-3: 0.822, 1e-2: 0.715, 1e-1: 0.367}


def measure(case: str, epsilon: float, seed: int, device: str) -> dict[str, Any]:
    """One seed: draw the data, train, certify the test set."""
    recipe = RECIPES[case][epsilon]
    data = load("two-moons", Path(), seed)
    (x, y), (test_x, test_y) = (
        (torch.tensor(split.inputs, device=device), torch.tensor(split.labels, device=device))
        for split in (data.train, data.test)
    )
    torch.manual_seed(seed)
    layers = nn.Linear(2, recipe.hidden), recipe.activation(), nn.Linear(recipe.hidden, 1)
    model = nn.Sequential(*layers).double()
    with torch.no_grad():
        for layer, scale in ((model[0], recipe.first_scale), (model[2], recipe.head_scale)):
            for parameter in layer.parameters():
                parameter.mul_(scale)
    model[0].requires_grad_(not recipe.frozen)
    started = time.perf_counter()
    certificate = bf.certify(
        model,
        (x, y),
        threat=bf.threats.Linf(epsilon),
        loss="bce",
        optimizer_options={"lr": recipe.lr, "momentum": recipe.momentum},
        epochs=recipe.steps,
        order=recipe.order,
        device=device,
    )
    accuracy = certificate.accuracy(test_x, test_y, epsilon=epsilon)
    return {
        "case": case,
        "epsilon": epsilon,
        "k": len(x),
        "threat": "linf",
        "seed": seed,
        "certified_accuracy": accuracy.certified,
        "nominal_accuracy": accuracy.nominal,
        "seconds": time.perf_counter() - started,
    }


def show(results: list[dict[str, Any]]) -> None:
    """Means over seeds, beside what was published."""
    heads = ("epsilon", 8), ("seeds", 5), ("nominal", 8), ("certified", 9), ("published", 9), ("seconds", 8)
    print(f"{'case':16s} " + " ".join(f"{head:>{width}s}" for head, width in heads))
    for case, epsilon in dict.fromkeys((result["case"], result["epsilon"]) for result in results):
        group = [result for result in results if (result["case"], result["epsilon"]) == (case, epsilon)]
        nominal, certified, seconds = (
            sum(result[key] for result in group) / len(group)
            for key in ("nominal_accuracy", "certified_accuracy", "seconds")
        )
        row = f"{case:16s} {epsilon:8g} {len(group):5d} {100 * nominal:8.1f} {100 * certified:9.1f}"
        print(f"{row} {100 * PUBLISHED[epsilon]:9.1f} {seconds:8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=list(RECIPES), nargs="*", default=list(RECIPES))
    parser.add_argument("--epsilon", type=float, nargs="*", default=list(PUBLISHED), choices=list(PUBLISHED))
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", help="write one object per case, epsilon and seed to this file")
    options = parser.parse_args()
    results = []
    for case in options.case:
        for epsilon in options.epsilon:
            for seed in options.seeds:
                results.append(measure(case, epsilon, seed, options.device))
                print(json.dumps(results[-1]), flush=True)
    print()
    show(results)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
