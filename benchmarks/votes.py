"""How many flipped labels a certified vote stands, ours against Deep Partition Aggregation with the same parts.

MNIST on 32 principal components of the training images (labels are attacked, inputs are not): the 60,000 samples go to
50 members by position, 1,200 to each, and every member is a linear model trained by full-batch gradient descent with
cross entropy. For every test image the benchmark counts how many flips, of the whole training set, cannot change the
vote: by Deep Partition Aggregation, which loses a member with its first flip, and by what members themselves withstand
(`boundflow/analysis/votes.py`). Steps and learning rate are chosen on the training part alone: the first member is
tried on samples of the second.

    BOUNDFLOW_DATA=folder-with-mnist python benchmarks/votes.py --device cuda --json votes.json
    BOUNDFLOW_DATA=folder-with-mnist python benchmarks/votes.py --members 10 --samples 12000 --test 200
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

import boundflow as bf
from boundflow.analysis.ensemble import partition
from boundflow.threats import AtMost, Labels
from fullcert.baselines import dpa
from fullcert.data.datasets import load
from fullcert.system.mistakes import Mistake

CLASSES = 10
BUDGETS = (0, 4, 16, 64)
# steps and learning rates that are tried; one step from zero is the same whatever its length
TRIED = ((1, 5.0), (2, 1.0), (2, 5.0), (3, 1.0), (3, 3.0))


def network(features: int) -> nn.Sequential:
    """A linear model that begins with zeros: no class is ahead before the first step."""
    model = nn.Sequential(nn.Linear(features, CLASSES)).double()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def recipe(steps: int, lr: float, device: str) -> dict[str, Any]:
    """Full-batch descent with the learning rate lr / (1 + t)."""
    return {
        "loss": "ce",
        "epochs": steps,
        "optimizer_options": {"lr": lr},
        "schedule": lambda optimizer: LambdaLR(optimizer, lambda step: 1 / (1 + step)),
        "device": device,
        "dtype": torch.float64,
        "order": 2,
        "memory": 2.0**33,
    }


def chosen(x: Tensor, y: Tensor, parts: list[Tensor], device: str, samples: int = 200) -> tuple[int, float, list[Any]]:
    """Steps and learning rate with which the first member withstands most, on average, where it is right.

    Measured on samples of the second member, which are training data: no test image is looked at.
    """
    first, second = parts[0], parts[1][:samples]
    tried = []
    for steps, lr in TRIED:
        member = [
            bf.certify(
                network(x.shape[1]),
                (x[first], y[first]),
                threat=AtMost(k, Labels(classes=CLASSES)),
                progress=False,
                **recipe(steps, lr, device),
            )
            for k in (4, 32)
        ]
        found = bf.withstands(member, x[second])
        right = found.label.cpu() == y[second]
        stands = float((found.value.cpu() * right).double().mean())
        tried.append((stands, float(right.double().mean()), steps, lr))
        tell(f"{steps} steps, lr {lr:g}: right {tried[-1][1]:.3f}, withstands {stands:.2f}")
    best = max(tried)
    return best[2], best[3], tried


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """The medians over the test images, and what they were measured on."""
    data = load("mnist-32", Path(os.environ.get("BOUNDFLOW_DATA", "data")), seed=0)
    x, y = (torch.as_tensor(part)[: options.samples] for part in (data.train.inputs, data.train.labels))
    x, y = x.double().reshape(len(x), -1), y.long()
    parts = partition(len(x), options.members)
    steps, lr = options.steps, options.lr
    tried: list[Any] = []
    if steps is None or lr is None:
        steps, lr, tried = chosen(x, y, parts, options.device)
    tell(f"{options.members} members of {len(parts[0])} samples, {steps} steps, lr {lr:g}")
    started = time.perf_counter()
    ensemble = bf.Ensemble.certify(
        network(x.shape[1]),
        (x, y),
        members=options.members,
        threat=AtMost(max(options.budgets), Labels(classes=CLASSES)),
        budgets=options.budgets,
        tell=lambda done, total: tell(f"trained {done} of {total}", again=True),
        **recipe(steps, lr, options.device),
    )
    trained = time.perf_counter() - started
    inputs = torch.as_tensor(data.test.inputs)[: options.test].double().reshape(-1, x.shape[1])
    truth = torch.as_tensor(data.test.labels)[: options.test].long()
    vote = ensemble.predict(inputs, tell=lambda done, total: tell(f"asked {done} of {total}", again=True))
    asked = time.perf_counter() - started - trained
    counts = dpa.counted(vote.members.T, CLASSES)
    by_members, right = dpa.certified_parts(counts), vote.label == truth
    assert torch.equal(by_members, vote.by_members), "two ways to count members"
    ours = torch.where(right, vote.withstood, -1)
    theirs = torch.where(right, by_members, -1)
    return {
        "members": options.members,
        "samples": len(x),
        "test": len(inputs),
        "steps": steps,
        "lr": lr,
        "budgets": list(options.budgets),
        "accuracy": float(right.double().mean()),
        "median_flips": int(vote.withstood.median()),
        "median_flips_dpa": int(by_members.median()),
        "median_flips_where_right": int(ours.median()),
        "median_flips_where_right_dpa": int(theirs.median()),
        "ratio": float(vote.withstood.median()) / max(1, int(by_members.median())),
        "members_withstand": float(vote.stands.double().mean()),
        "certified_at": {
            str(k): [float((some >= k).double().mean()) for some in (ours, theirs)] for k in (1, 10, 25, 50, 100, 200)
        },
        "seconds_training": round(trained, 1),
        "seconds_asking": round(asked, 1),
        "tried": [dict(zip(("withstands", "right", "steps", "lr"), one, strict=True)) for one in tried],
    }


def tell(words: str, again: bool = False) -> None:
    """A line on standard error; lines of progress overwrite each other."""
    print(
        f"\r{words}   " if again and sys.stderr.isatty() else words,
        end="" if again and sys.stderr.isatty() else "\n",
        file=sys.stderr,
        flush=True,
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--samples", type=int, default=60000, help="the first so many of the training set")
    parser.add_argument("--test", type=int, default=1000, help="the first so many test images")
    parser.add_argument("--budgets", type=lambda text: [int(k) for k in text.split(",")], default=list(BUDGETS))
    parser.add_argument("--steps", type=int, help="with --lr: nothing is chosen")
    parser.add_argument("--lr", type=float)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, help="file for the result")
    options = parser.parse_args(arguments)
    try:
        result = measured(options)
    except Mistake as mistake:
        sys.exit(f"votes.py: {mistake}")
    text = json.dumps(result, indent=1)
    if options.json:
        options.json.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
