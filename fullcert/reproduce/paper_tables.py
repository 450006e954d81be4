"""The tables of the FullCert paper on Two-Moons: certified accuracy by epsilon, learning rate, batch size and width."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from fullcert.data.datasets import load
from fullcert.reproduce import published
from fullcert.reproduce.best import measure, setting_of
from fullcert.reproduce.experiments import Case, Outcome, Scale, experiment
from fullcert.reproduce.published import Published, Source

SEEDS = (
    *(923936036, 1841009588, 1579824767, 862396893, 1126136760),
    *(2053152965, 1650170623, 460952620, 855928699, 29318224),
)
ONE_SEED = (10123310,)
DOMAINS = ("interval", "zonotope")
QUICK_EPOCHS = {"interval": 20, "zonotope": 2}
ONE_RUN = (
    "One run of one seed, as in the paper, so a difference of a point means nothing; the published script passes an "
    "option that its program does not have, which is left out here."
)


def as_published(run: Published, seed: int, device: torch.device) -> Outcome:
    """One run of the published recipe."""
    reached = published.train(load("two-moons", Path("."), seed), run, Source(seed), device)
    return Outcome(
        100 * reached.certified, 100 * reached.nominal, {"epoch": reached.epoch, "validation": reached.curve}
    )


def ours(suite: str, epsilon: float, seed: int, device: torch.device) -> Outcome:
    """One run of a recipe of ours, on the samples that the published code draws for the same seed."""
    found = measure(suite, setting_of(suite, epsilon), seed, str(device))
    return Outcome(100 * found["certified_accuracy"], 100 * found["nominal_accuracy"])


def cases_of(
    scale: Scale,
    setting: dict[str, float | int | str],
    run: Published,
    paper: float,
    seeds: tuple[int, ...],
    quick: bool,
) -> list[Case]:
    """The published recipe in both domains."""
    cases = []
    for domain in DOMAINS:
        epochs = QUICK_EPOCHS[domain] if scale.quick else run.epochs
        perform = partial(as_published, replace(run, epochs=epochs, domain=domain))
        few = quick and (domain == "interval" or run.batch_size == 100)
        cases.append(Case(setting, domain, "paper", perform, paper, seeds, few, {"epochs": epochs}))
    return cases


@experiment(
    "epsilon",
    title="Two-Moons, every training and test input moved by epsilon",
    source="FullCert, table of perturbation radii",
    differs="Roundings are charged; best is one step of a linear layer on fixed bumps, best-relu the network of the "
    "paper with another number of steps.",
)
def epsilon(scale: Scale) -> list[Case]:
    cases = []
    for radius, paper in {1e-4: 83.9, 1e-3: 82.2, 1e-2: 71.5, 1e-1: 36.7}.items():
        setting = {"epsilon": radius}
        cases += cases_of(scale, dict(setting), Published(radius), paper, SEEDS, radius in (1e-3, 1e-2))
        for recipe, suite in (("best", "two-moons"), ("best-relu", "two-moons-relu")):
            perform = partial(ours, suite, radius)
            cases.append(Case(dict(setting), "zonotope", recipe, perform, paper, SEEDS, recipe == "best"))
    return cases


def one_table(scale: Scale, name: str, runs: dict[float | int, Published], printed: list[float]) -> list[Case]:
    """A table of single runs at epsilon 0.01, with our recipe, which has no such option, in its last line."""
    cases = []
    for number, ((value, run), paper) in enumerate(zip(runs.items(), printed, strict=True)):
        cases += cases_of(scale, {name: value}, run, paper, ONE_SEED, number < 2)
    cases.append(Case({name: "of our recipe"}, "zonotope", "best", partial(ours, "two-moons", 1e-2), None, ONE_SEED))
    return cases


@experiment(
    "learning-rate",
    title="Two-Moons, epsilon 0.01, by learning rate",
    source="FullCert, appendix, table of learning rates",
    differs=ONE_RUN,
)
def learning_rate(scale: Scale) -> list[Case]:
    runs: dict[float | int, Published] = {lr: Published(1e-2, lr=lr, epochs=500) for lr in (0.01, 0.1, 1.0, 5.0, 10.0)}
    return one_table(scale, "learning rate", runs, [71, 71, 75, 74, 72])


@experiment(
    "batch-size",
    title="Two-Moons, epsilon 0.01, by batch size",
    source="FullCert, appendix, table of batch sizes",
    differs=ONE_RUN,
)
def batch_size(scale: Scale) -> list[Case]:
    sizes = (50, 100, 500, 1000)
    runs: dict[float | int, Published] = {size: Published(1e-2, batch_size=size, epochs=1000) for size in sizes}
    return one_table(scale, "batch size", runs, [72.5, 72.5, 70.5, 70.5])


@experiment(
    "width",
    title="Two-Moons, epsilon 0.01, by hidden units",
    source="FullCert, appendix, table of hidden units",
    differs=ONE_RUN,
)
def width(scale: Scale) -> list[Case]:
    runs: dict[float | int, Published] = {units: Published(1e-2, hidden=(units,)) for units in (10, 20, 30, 40)}
    return one_table(scale, "hidden units", runs, [71.5, 72.5, 79.0, 63.0])
