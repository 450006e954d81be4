"""How much of a test set is certified, for fixed recipes and several seeds.

Two-Moons and MNIST 1/7: every feature of every training *and* test input may move by epsilon. Half-moons: the recipe of
Abstract Gradient Training, where the attacker moves the features of at most k training samples, or flips k labels.
Rounding is on. Recipes (architecture, learning rate, number of steps) were chosen on validation sets and are the same
for all seeds; the published half-moons recipe has one dataset and one seed. Needs torch and numpy alone:

    python benchmarks/certified_accuracy.py --case two-moons --epsilon 0.001 --seeds 0 1 2 --json out.json
    python benchmarks/certified_accuracy.py --case half-moons --threat labels --k 5
    BOUNDFLOW_DATA=folder-with-mnist python benchmarks/certified_accuracy.py --case mnist17
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from fullcert.reproduce.best import AGT, CASES, FULLCERT, Setting, measure
from fullcert.system.mistakes import Mistake

__all__ = ["AGT", "CASES", "FULLCERT", "Setting", "measure"]  # what tests use besides


def chosen(options: argparse.Namespace) -> Iterator[tuple[str, Setting, int]]:
    """Every case, setting and seed that was asked for."""
    for name in options.case or CASES:
        case = CASES[name]
        for setting in case.settings:
            wanted = (options.threat, setting.threat), (options.epsilon, setting.epsilon), (options.k, setting.k)
            if all(not asked or value in asked for asked, value in wanted):
                yield from ((name, setting, seed) for seed in (options.seeds[:1] if case.one_seed else options.seeds))


def show(results: list[dict[str, Any]]) -> None:
    """Means over seeds, beside what was published."""
    heads = ("epsilon", 8), ("k", 5), ("seeds", 5), ("nominal", 8), ("certified", 9), ("published", 9), ("seconds", 8)
    print(f"{'case':16s} {'threat':6s} " + " ".join(f"{head:>{width}s}" for head, width in heads))
    keys = ("case", "threat", "epsilon", "k")
    for line in dict.fromkeys(tuple(result[key] for key in keys) for result in results):
        group = [result for result in results if tuple(result[key] for key in keys) == line]
        nominal, certified, seconds = (
            sum(result[key] for result in group) / len(group)
            for key in ("nominal_accuracy", "certified_accuracy", "seconds")
        )
        case, threat, epsilon, k = line
        published = group[0]["published"]
        print(
            f"{case:16s} {threat:6s} {'-' if epsilon is None else f'{epsilon:g}':>8s} {k:5d} {len(group):5d} "
            f"{100 * nominal:8.1f} {100 * certified:9.2f} "
            f"{'-' if published is None else f'{100 * published:.1f}':>9s} {seconds:8.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=list(CASES), nargs="*", help="default: all")
    parser.add_argument("--threat", choices=["linf", "labels"], nargs="*", help="default: all of a case")
    parser.add_argument("--epsilon", type=float, nargs="*", help="default: all of a case")
    parser.add_argument("--k", type=int, nargs="*", help="default: all of a case")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--split", choices=["test", "validation"], default="test")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", help="write one object per case, setting and seed to this file")
    options = parser.parse_args()
    work = list(chosen(options))
    if not work:
        parser.error("no case has such a setting: see --help, or leave out --threat, --epsilon and --k")
    results = []
    for name, setting, seed in work:
        try:
            results.append(measure(name, setting, seed, options.device, options.split))
        except Mistake as error:
            parser.error(str(error))
        print(json.dumps(results[-1]), flush=True)
    print()
    show(results)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
