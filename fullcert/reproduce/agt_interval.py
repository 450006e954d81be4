"""The interval method of Abstract Gradient Training on its half-moons, written here from its mathematics.

    6 features (x, x^2, x^3), 6-128-2 ReLU, cross-entropy, 4 full-batch steps, lr 2 / (1 + 0.6 t), test inputs clean

The k of a step are chosen anew in every step (`baselines/interval.py`); our zonotopes count them once for the run.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

import boundflow as bf
from fullcert.baselines import interval
from fullcert.data.datasets import load
from fullcert.reproduce.best import AGT, network
from fullcert.reproduce.experiments import Case, Outcome, Scale, experiment

# epsilon (0: the label is flipped instead), k, and what was published
PRINTED: tuple[tuple[float, int, float], ...] = (
    *((0.01, 200, 38.6), (0.01, 300, 12.0), (0.05, 10, 84.2), (0.2, 10, 26.0), (0.001, 3000, 86.2), (0.01, 3000, 0.0)),
    *((0.0, 1, 91.0), (0.0, 3, 70.8), (0.0, 5, 30.0), (0.0, 7, 3.2)),
)


def half_moons(epsilon: float, k: int, seed: int, device: torch.device) -> Outcome:
    """One line of the published table."""
    data = load("half-moons", Path("."), seed)
    (x, y), test = (
        (torch.tensor(part.inputs, device=device), torch.tensor(part.labels, device=device))
        for part in (data.train, data.test)
    )
    certificate = interval.certify(
        network(AGT, x.shape[1:], seed),
        (x, y),
        bf.threats.Linf(epsilon) if epsilon else bf.threats.Labels(),
        k,
        loss="ce",
        optimizer_options={"lr": AGT.lr},
        schedule=lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1 / (1 + AGT.decay * t)),
        epochs=AGT.steps,
        device=device,
    )
    accuracy = certificate.accuracy(*test)
    details = {"void_at_step": certificate.void_at_step, "not_tracked": certificate.record["not_tracked"]}
    return Outcome(100 * accuracy.certified, 100 * accuracy.nominal, details)


@experiment(
    "interval-baseline",
    title="Half-moons: intervals with k changed samples in every step, the method of Abstract Gradient Training",
    source="Abstract Gradient Training, half-moons",
    differs="Written from the mathematics of the paper on our interval domain, which takes exact hulls of products "
    "over samples (with an exact product the paper has 48.8 at k = 200, epsilon 0.01) and charges every rounding.",
)
def interval_baseline(scale: Scale) -> list[Case]:
    cases = []
    for epsilon, k, printed in PRINTED:
        setting: dict[str, float | int | str] = {"change": f"features by {epsilon:g}" if epsilon else "labels", "k": k}
        cases.append(Case(setting, "interval", "agt", partial(half_moons, epsilon, k), printed, (0,)))
    return cases
