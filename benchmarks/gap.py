"""From both sides: certified, attacked and nominal accuracy against epsilon or k, and the gap between the first two.

    certified  <=  what is true  <=  attacked  <=  nominal          one and the same training, all choices fixed

Recipes are those of `fullcert/reproduce`: Two-Moons and MNIST 1/7 (training and test inputs move), half-moons, MAGIC
and MNIST on 32 components (Abstract Gradient Training, test inputs stay), and what the command trains by default on
Adult and breast cancer with flipped labels. Attacks look for datasets inside the exact threat and share no code with
the bounds; a certified prediction that they change is an error. Needs torch and numpy alone. Each case stands alone,
and the large ones want a GPU:

    python benchmarks/gap.py --case two-moons --json gap.json
    BOUNDFLOW_DATA=folder python benchmarks/gap.py --case mnist-32 --device cuda --targets 200
    python benchmarks/gap.py --rows docs/gap.json --page docs/gap.md           the page, from rows that were measured
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import boundflow as bf
from boundflow.attacks import ATTACKS
from fullcert.data.datasets import load
from fullcert.experiment import training
from fullcert.experiment.options import resolve
from fullcert.reproduce import agt, best
from fullcert.system.mistakes import Mistake

QUICK = {"samples": 300, "test": 60, "targets": 10, "steps": 2, "restarts": 1}
HIDDEN = 8  # units of a hidden layer at most, of a small cut
FLIPS = {"adult": (10, 50, 200), "breast-cancer": (1, 2, 3)}


@dataclass(frozen=True)
class Work:
    """One line of the table: a training, the threat to it, and test points."""

    case: str
    epsilon: float | None
    k: int | None  # None: every sample
    model: nn.Module
    data: tuple[Tensor, Tensor]
    threat: bf.threats.Threat
    recipe: bf.Recipe
    test: tuple[Tensor, Tensor]
    test_threat: bf.threats.Threat | None = None
    predict: dict[str, Any] = field(default_factory=dict)


def folder() -> Path:
    return Path(os.environ.get("BOUNDFLOW_DATA", "data"))


def of_best(case: str, options: argparse.Namespace) -> Iterator[Work]:
    """Our own recipes."""
    suite = best.CASES[case]
    data = load(suite.dataset, folder(), options.seed)
    x, y = (torch.tensor(p, device=options.device)[: options.samples] for p in (data.train.inputs, data.train.labels))
    test = tuple(torch.tensor(p, device=options.device)[: options.test] for p in (data.test.inputs, data.test.labels))
    for given in suite.settings:
        small = replace(given.recipe, hidden=min(given.recipe.hidden, HIDDEN)) if options.quick else given.recipe
        setting = replace(given, recipe=small)
        moved = setting.epsilon if setting.at_test_time else None
        yield Work(
            case,
            setting.epsilon,
            None if setting.k is None or setting.k >= len(x) else setting.k,
            best.network(setting.recipe, x.shape[1:], options.seed),
            (x, y),
            best.threat_of(setting, len(x)),
            best.program(setting.recipe, options.seed, options.device),
            (test[0], test[1]),
            bf.threats.Linf(moved) if moved else None,
            {"cuts": setting.recipe.cuts},
        )


def of_agt(case: str, options: argparse.Namespace) -> Iterator[Work]:
    """The recipes of Abstract Gradient Training."""
    asked = [attack for attack, _ in (agt.magic_attacks() if case == "magic" else agt.mnist_attacks())]
    if options.samples is not None and options.samples < asked[0].samples:
        hidden = HIDDEN if options.quick else asked[0].hidden
        asked = [attack.smaller(options.samples, hidden, options.test or 1000) for attack in asked]
    for attack in dict.fromkeys(replace(one, test=options.test or one.test) for one in asked):
        data, device = load(attack.dataset, folder(), options.seed), torch.device(options.device)
        yield Work(
            f"{case}, {attack.steps} steps",
            attack.epsilon,
            None if attack.k == attack.samples else attack.k,
            agt.network(attack, data.train.inputs.shape[1], data.classes),
            agt.tensors(data.train, attack.samples, device),
            attack.threat,
            agt.program(attack, device),
            agt.tensors(data.test, attack.test, device),
        )


def of_command(case: str, options: argparse.Namespace) -> Iterator[Work]:
    """What `fullcert train` does with flipped labels, by its own rules."""
    for flips in FLIPS[case]:
        given = {"dataset": case, "data_dir": str(folder()), "flip_labels": flips, "device": options.device}
        given["fit"] = "steps"  # which are attacked
        recipe = training.Recipe(resolve({**given, "seed": options.seed}, {}))
        x, y = (torch.as_tensor(part)[: options.samples] for part in recipe.observed())
        inputs, labels = recipe.tensors(recipe.data.test)
        threat, test = recipe.threats.training, (inputs[: options.test], labels[: options.test])
        yield Work(case, None, flips, recipe.initial, (x, y), threat, recipe.program(), test)


CASES = {
    **dict.fromkeys(("two-moons", "two-moons-tanh", "half-moons", "mnist17"), of_best),
    **dict.fromkeys(("mnist-32", "magic"), of_agt),
    **dict.fromkeys(("adult", "breast-cancer"), of_command),
}


def measure(work: Work, options: argparse.Namespace) -> dict[str, Any]:
    """Certify and attack one training."""
    began = time.perf_counter()
    certificate = bf.certify(work.model, work.data, work.recipe, threat=work.threat, progress=False)
    certified_in = time.perf_counter() - began
    found = bf.attack(
        work.model,
        work.data,
        work.recipe,
        threat=work.threat,
        test=work.test,
        test_threat=work.test_threat,
        certificate=certificate,
        attacks=options.attacks,
        steps=options.steps,
        restarts=options.restarts,
        targets=options.targets,
        seed=options.seed,
        predict_options=work.predict,
    )
    told = {name: value for name, value in found.as_data().items() if name != "by_point"}
    return {
        "case": work.case,
        "epsilon": work.epsilon,
        "k": work.k,
        "samples": len(work.data[0]),
        "void_at_step": certificate.void_at_step,
        "certified_in": certified_in,
        **told,
    }


def show(results: list[dict[str, Any]]) -> None:
    """Everything in per cent of the test points; the gap in points."""
    heads = ("epsilon", 8), ("k", 6), ("nominal", 8), ("attacked", 9), ("certified", 10), ("gap", 7)
    more = ("trainings", 10), ("seconds", 8)
    print(f"{'case':22s}" + "".join(f"{head:>{width}s}" for head, width in (*heads, *more)))
    for row in results:
        shares = [100 * row[f"{name}_accuracy"] for name in ("nominal", "attacked", "certified")]
        epsilon = "-" if row["epsilon"] is None else f"{row['epsilon']:g}"
        print(f"{row['case']:22s}{epsilon:>8s}{row['k'] or 'all':>6}", end="")
        print(f"{shares[0]:8.1f}{shares[1]:9.1f}{shares[2]:10.1f}{shares[1] - shares[2]:7.1f}", end="")
        print(f"{row['trainings']:10d}{row['seconds']:8.0f}")


PAGE = """# Certified and attacked, side by side

What no attacker can change, and what one attacker did change, for one and the same training ([how](attack.md)). The
truth lies between the two: no certificate of this training can exceed the attacked accuracy, and the gap is what better
bounds or better attacks could still gain. In per cent of the test points; *outside* are poisoned models that left their
bounds. This page is written from the rows in `gap.json`:

```sh
python benchmarks/gap.py --json docs/gap.json                       # all cases; the large ones want a GPU
python benchmarks/gap.py --rows docs/gap.json --page docs/gap.md
```

| training | epsilon | k | nominal | attacked | certified | gap | poisoned trainings | outside |
|---|---|---|---|---|---|---|---|---|
"""


def page(results: list[dict[str, Any]]) -> str:
    """The table as Markdown."""
    lines = []
    for row in results:
        epsilon = "-" if row["epsilon"] is None else f"{row['epsilon']:g}"
        nominal, attacked, certified = (100 * row[f"{name}_accuracy"] for name in ("nominal", "attacked", "certified"))
        shares = f"{nominal:.1f} | {attacked:.1f} | {certified:.1f} | {attacked - certified:.1f}"
        lines.append(
            f"| {row['case']} | {epsilon} | {row['k'] or 'all'} | {shares} | {row['trainings']} | {row['outside']} |\n"
        )
    return PAGE + "".join(lines)


def wanted(options: argparse.Namespace) -> Iterator[Work]:
    for case in options.case:
        for work in CASES[case](case, options):
            asked = (options.epsilon, work.epsilon), (options.k, work.k)
            if all(not given or value in given for given, value in asked):
                yield work


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES), help="default: all")
    parser.add_argument("--epsilon", type=float, nargs="+", help="default: all of a case")
    parser.add_argument("--k", type=int, nargs="+", help="default: all of a case")
    parser.add_argument("--samples", type=int, help="only the first training samples")
    parser.add_argument("--test", type=int, help="only the first test points")
    parser.add_argument("--targets", type=int, help="test points that are attacked one by one, the nearest first")
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help=f"a small cut: {QUICK}")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, help="file for one object a line of the table")
    parser.add_argument("--rows", type=Path, nargs="+", help="take rows from these files instead of running")
    parser.add_argument("--page", type=Path, help="write the table as Markdown to this file")
    options = parser.parse_args()
    for name, value in QUICK.items() if options.quick else ():
        setattr(options, name, value)
    return options


def main() -> None:
    options = parsed()
    results: list[dict[str, Any]] = [row for path in options.rows or () for row in json.loads(path.read_text())]
    try:
        for work in wanted(options) if not options.rows else ():
            results.append(measure(work, options))
            print(json.dumps(results[-1]), flush=True)
            if options.json:
                options.json.write_text(json.dumps(results, indent=2) + "\n")
    except Mistake as mistake:
        raise SystemExit(f"gap.py: {mistake}") from None
    if not results:
        raise SystemExit("gap.py: no case has such a setting: leave out --epsilon and --k, or see --help")
    print()
    show(results)
    if options.page:
        options.page.write_text(page(results))


if __name__ == "__main__":
    main()
