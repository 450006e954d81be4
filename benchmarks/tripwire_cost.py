"""What the tripwire costs: certified steps with it and without it, taking turns within one run.

The ratio is of the best times, which noise can only raise. Needs torch and numpy alone:

    python benchmarks/tripwire_cost.py --domain interval --json out.json
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import boundflow as bf
from boundflow.tripwire import Tripwire

EPSILON = 1e-6  # small, so that no bound blows up while the clock runs


def main() -> None:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    x = torch.randn(arguments.batch, 2, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).float()
    step = Tripwire.step
    times: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(arguments.repeats):
        for name, method in (("with", step), ("without", lambda wire, number: None)):
            Tripwire.step = method  # type: ignore[method-assign]
            times[name].append(milliseconds(arguments, x, y))
    best = {name: min(values) for name, values in times.items()}
    row = {**best, "cost": best["with"] / best["without"] - 1, "domain": arguments.domain}
    print(
        f"{arguments.domain}: {best['with']:.3f} ms a step with, {best['without']:.3f} ms without: {row['cost']:+.2%}"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(row, indent=2) + "\n")


def milliseconds(arguments: argparse.Namespace, x: Tensor, y: Tensor) -> float:
    """The mean time of a step of both runs, without what comes before the first."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Linear(20, 1))
    began: list[float] = []

    def look(step: bf.Step) -> None:
        began.append(time.perf_counter())

    recipe = bf.Recipe(loss="bce", optimizer_options={"lr": 1e-4}, epochs=arguments.steps, domain=arguments.domain)
    bf.certify(
        model,
        (x, y),
        recipe,
        threat=bf.threats.Linf(EPSILON),
        device=arguments.device,
        callbacks=[look],
        progress=False,
    )
    return 1e3 * (began[-1] - began[0]) / (len(began) - 1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--domain", choices=["interval", "zonotope"], default="interval")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="write the row to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
