"""Poisoned trainings in plain PyTorch over random small settings, each held against the certified bounds.

A setting is drawn at random: data, network, loss, optimizer, schedule, batches, threat, budget, domain and dtype. It is
certified once; then thousands of datasets that its threat allows (corners, one direction for all, random points, the
budget spent at random) are trained, mapped over their parameters. Every final parameter and every output for training
inputs must lie between the bounds, with no tolerance. The datasets come from `boundflow.attacks`, which shares nothing
with the bounds, and each is checked to be inside the exact threat. Needs torch and numpy alone:

    python benchmarks/poisoned_trainings.py --trainings 100000 --json out.json
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import boundflow as bf
from boundflow.attacks import Poisoned
from boundflow.attacks.freedoms import Clause, Data, clauses_of
from boundflow.attacks.membership import allowed
from boundflow.attacks.steepest import Slopes, steepest
from boundflow.attacks.trainings import Trainings
from boundflow.training.checked_inputs import Prepared

T = bf.threats
EACH = 1000  # poisoned datasets for a setting
ACTIVATIONS = (nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.SiLU, nn.GELU, nn.ELU)
Random = np.random.Generator


def network(random: Random, features: int, outputs: int) -> nn.Module:
    layers: list[nn.Module] = []
    width = features
    for _ in range(random.integers(0, 3)):
        hidden = int(random.integers(1, 6))
        layers += [nn.Linear(width, hidden, bias=bool(random.random() < 0.8))]
        layers += [nn.LayerNorm(hidden, eps=0.5)] if random.random() < 0.1 and hidden > 1 else []
        layers += [ACTIVATIONS[int(random.integers(len(ACTIVATIONS)))]()]
        width = hidden
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def optimizer(random: Random) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    lr, decay = float(random.choice([0.02, 0.1, 0.3])), float(random.choice([0.0, 0.0, 0.1]))
    momentum = float(random.choice([0.0, 0.5, 0.9]))
    kind = random.integers(0, 8)
    if kind <= 5:
        nesterov = bool(momentum > 0 and random.random() < 0.3)
        return torch.optim.SGD, {"lr": lr, "momentum": momentum, "weight_decay": decay, "nesterov": nesterov}
    if kind == 6:
        return torch.optim.AdamW, {"lr": 0.05 * lr, "weight_decay": decay}
    return torch.optim.RMSprop, {"lr": 0.02 * lr, "momentum": momentum}


def threat(random: Random, loss: str, samples: int) -> T.Threat:
    """One change or several, of all samples or of a few."""
    epsilon = float(10.0 ** random.uniform(-4, -1.5))
    kind = int(random.integers(0, 10))
    share: dict[int, float | str] = {0: epsilon, 1: "1%"}
    moves: list[T.Change] = [T.Linf(epsilon), T.L2(epsilon), T.L1(epsilon), T.Tolerance(share)]
    labels = T.Labels(epsilon) if loss == "mse" else T.Labels()
    k = int(random.integers(1, 4))
    move = moves[int(random.integers(len(moves)))]
    if kind <= 3:
        return moves[kind]
    if kind == 4:
        return T.AtMost(k, move)
    if kind == 5:
        return T.AtMost(k, labels)
    if kind == 6:
        return T.AtMost(k, T.Removal())
    if kind == 7:
        return T.AtMost(k, move & labels)
    if kind == 8:
        return move & T.AtMost(k, T.Removal())
    return T.Linf(epsilon).on(samples=random.permutation(samples)[: samples // 2])


def drawn(number: int, seed: int) -> tuple[nn.Module, tuple[Tensor, Tensor], T.Threat, bf.Recipe]:
    """A setting by its number."""
    random = np.random.default_rng([seed, number])
    dtype = (torch.float64, torch.float32)[number % 2]
    features, samples = int(random.integers(2, 5)), int(random.integers(4, 17))
    loss = str(random.choice(["bce", "ce", "mse", "hinge"]))
    outputs = int(random.integers(2, 4)) if loss == "ce" else 1
    torch.manual_seed(int(random.integers(2**31)))
    model = network(random, features, outputs).to(dtype)
    x = torch.tensor(random.normal(size=(samples, features)), dtype=dtype)
    y = torch.tensor(random.integers(0, max(2, outputs), size=samples))
    made, options = optimizer(random)
    decay = float(random.choice([0.0, 0.5]))
    recipe = bf.Recipe(
        loss=loss,
        optimizer=made,
        optimizer_options=options,
        schedule=(lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda t: 1 / (1 + decay * t))) if decay else None,
        epochs=3,
        steps=int(random.integers(1, 7)),
        batch_size=None if random.random() < 0.4 else int(random.integers(2, samples + 1)),
        seed=number,
        domain=str(random.choice(["interval", "zonotope"])),
        order=int(random.integers(1, 5)),
        compile=False,
    )
    targets = y.to(dtype) if loss == "mse" else y
    return model, (x, targets), threat(random, loss, samples), recipe


def datasets(clauses: tuple[Clause, ...], data: Data, count: int, random: Random) -> Poisoned:
    """So many datasets at the edge of the threat or inside it, with its budgets spent at random."""

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(random.normal(size=shape)).to(data.x.dtype)

    (samples, features), targets = data.x.shape, data.y.shape[1]
    slopes = [normal(count, samples, features), normal(count, samples, targets), normal(count, samples)]
    third = count // 3
    slopes[0][:third] = normal(third, 1, features)  # one direction for all samples
    sign = 2.0 * (data.y[:, :1] > 0.5).to(data.x.dtype) - 1
    slopes[0][third : 2 * third] = normal(third, 1, features) * sign  # one class against the others
    return steepest(clauses, data, Slopes(*slopes), normal(count, samples))


def held_against(certificate: bf.Certificate, trainings: Trainings, poisoned: Poisoned) -> int:
    """How many of the trainings left the bounds."""
    stacked = trainings.train(poisoned)
    outside = torch.zeros(poisoned.count, dtype=torch.bool)
    assert certificate.model is not None
    for name, value in certificate.model.named_parameters():
        within = (stacked[name] >= value.lower) & (stacked[name] <= value.upper)  # type: ignore[attr-defined]
        outside |= ~within.flatten(1).all(1)
    found = certificate.predict(trainings.prepared.observed)
    with torch.no_grad():
        outputs = trainings.outputs(stacked, trainings.prepared.observed)
    outside |= ~((outputs >= found.lower) & (outputs <= found.upper)).flatten(1).all(1)
    return int(outside.sum())


def setting(number: int, seed: int, each: int) -> dict[str, Any]:
    """Certify one setting, and train its poisoned datasets."""
    model, data, attacker, recipe = drawn(number, seed)
    told = {"setting": number, "threat": repr(attacker), "loss": recipe.loss, "domain": recipe.domain}
    told |= {"optimizer": recipe.optimizer.__name__, "dtype": str(data[0].dtype).removeprefix("torch.")}
    certificate = bf.certify(model, data, recipe, threat=attacker, progress=False)
    if certificate.model is None:
        return {**told, "void": True, "trainings": 0, "outside_threat": 0, "violations": 0}
    trainings = Trainings(Prepared(model, data, attacker, recipe))
    observed = Data.of(attacker, trainings.prepared.x, trainings.targets())
    clauses = clauses_of(attacker, observed)
    poisoned = datasets(clauses, observed, each, np.random.default_rng([seed, number, 1]))
    inside = allowed(clauses, observed, poisoned)
    poisoned = poisoned.pick(torch.nonzero(inside).flatten())
    violations = held_against(certificate, trainings, poisoned) if poisoned.count else 0
    counts = {"trainings": int(inside.sum()), "outside_threat": int((~inside).sum()), "violations": violations}
    return {**told, "void": False, **counts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainings", type=int, default=100_000, help="how many at least (default: 100,000)")
    parser.add_argument("--each", type=int, default=EACH, help="poisoned datasets for a setting")
    parser.add_argument("--seed", type=int, default=0, help="of all draws")
    parser.add_argument("--json", type=Path, help="file for the settings and counts")
    options = parser.parse_args()
    if options.trainings < 1 or options.each < 1:
        parser.error("--trainings and --each must be at least 1")
    results: list[dict[str, Any]] = []
    began, made = time.perf_counter(), 0
    while made < options.trainings:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.append(setting(len(results), options.seed, options.each))
        made += results[-1]["trainings"]
        if results[-1]["violations"]:
            print(f"VIOLATION: {results[-1]}", flush=True)
        if len(results) % 10 == 0:
            print(f"{made:,} trainings in {time.perf_counter() - began:.0f} s", flush=True)
    totals = {name: sum(found[name] for found in results) for name in ("trainings", "outside_threat", "violations")}
    totals |= {"settings": len(results), "void": sum(found["void"] for found in results)}
    totals["seconds"] = round(time.perf_counter() - began, 1)
    print(f"{totals['trainings']:,} poisoned trainings in {totals['settings']} settings", end="")
    print(f" ({totals['void']} of them void): ", end="")
    print(f"{totals['violations']} outside of their bounds, {totals['outside_threat']} datasets left out, ", end="")
    print(f"{totals['seconds']} s")
    for name in ("domain", "dtype", "loss", "optimizer"):
        print(f"{name}: {dict(Counter(found[name] for found in results))}")
    if options.json:
        options.json.write_text(json.dumps({**totals, "by_setting": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
