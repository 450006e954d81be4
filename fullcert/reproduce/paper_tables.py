"""The tables of the FullCert paper on Two-Moons: certified accuracy against epsilon, learning rate, batch size, width."""

from functools import partial
from pathlib import Path

import torch

from fullcert.datasets import load
from fullcert.reproduce import published
from fullcert.reproduce.experiments import Case, Outcome, Scale, experiment
from fullcert.reproduce.published import Published

SEEDS = (
    *(923936036, 1841009588, 1579824767, 862396893, 1126136760),
    *(2053152965, 1650170623, 460952620, 855928699, 29318224),
)
DOMAINS = ("interval", "zonotope")
QUICK_EPOCHS = 20


def as_published(run: Published, seed: int, device: torch.device) -> Outcome:
    """One run of the published recipe."""
    generator = torch.Generator().manual_seed(seed)
    reached = published.train(load("two-moons", Path("."), seed), run, generator, device)
    details = {"epoch": reached.epoch, "validation": reached.curve}
    return Outcome(100 * reached.certified, 100 * reached.nominal, details)


@experiment(
    "epsilon",
    title="Two-Moons, every training and test input moved by epsilon",
    source="FullCert, table of perturbation radii",
    differs="Rounding errors are charged, which the published code leaves out.",
)
def epsilon(scale: Scale) -> list[Case]:
    printed = {1e-4: 83.9, 1e-3: 82.2, 1e-2: 71.5, 1e-1: 36.7}
    cases = []
    for radius, paper in printed.items():
        for domain in DOMAINS:
            epochs = QUICK_EPOCHS if scale.quick else 200
            run = partial(as_published, Published(radius, epochs=epochs, domain=domain))
            fixed = {"epochs": epochs}
            cases.append(Case({"epsilon": radius}, domain, "paper", run, paper, SEEDS, radius >= 1e-3, fixed))
    return cases
