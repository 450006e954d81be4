"""FullCert's comparison with BagFlip (its Fig. 4), with partition aggregation and our own certificate on the same axes.

Two-Moons against epsilon: every feature of every training and test input moves by at most epsilon. MNIST 1/7 against R:
of at most R % of the training images one pixel (of the binary image) or the label was changed; test images are clean.
Bags, noise, parts, bins and features were chosen on validation samples.
"""

from __future__ import annotations

import os
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import boundflow as bf
from fullcert.baselines import dpa
from fullcert.baselines.bagflip import BagFlip, certified
from fullcert.baselines.cells import Cells
from fullcert.baselines.ensembles import Learner
from fullcert.data.datasets import Split, load
from fullcert.networks.layers import Bumps
from fullcert.reproduce.experiments import Case, Outcome, Scale, experiment
from fullcert.reproduce.one_change import CenteredEdges, OneChange
from fullcert.reproduce.paper_tables import QUICK_EPOCHS, SEEDS, as_published, ours
from fullcert.reproduce.published import Published

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALPHA = 0.001  # that any certificate of a test set is wrong
MODELS, QUICK_MODELS = 1000, 200
CELLS = Cells((-1.5, -1.0), (2.5, 1.5), bins=12)
MOON_BAGS = {"bagflip": BagFlip(20, 0.9, categories=CELLS.bins), "bagging": BagFlip(20, 1.0, categories=CELLS.bins)}
MOON_PARTS = 100
DIGIT_BAGS = {"bagflip": BagFlip(20, 0.85), "bagflip-100": BagFlip(100, 0.9)}  # 100: the bags of the BagFlip paper
DIGIT_PARTS = 2400
PERCENT = (0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0)
QUICK_SAMPLES, QUICK_POINTS = 1000, 100  # of our own certificate, in a quick run


def tensors(split: Split, device: torch.device) -> tuple[Tensor, Tensor]:
    return torch.tensor(split.inputs, device=device), torch.tensor(split.labels, device=device)


def of_zeros(front: nn.Module, features: int) -> nn.Sequential:
    """A linear layer of zeros, without a bias, behind fixed features."""
    head = nn.Linear(features, 2, bias=False).double()
    nn.init.zeros_(head.weight)
    return nn.Sequential(front, head)


# --- Two-Moons ------------------------------------------------------------------------------------------------------


def moon_learner(device: torch.device) -> Learner:
    bumps = Bumps(CELLS.low, CELLS.high, spacing=0.3, width=0.25)
    return Learner(of_zeros(bumps, len(bumps.centers)).to(device), steps=1, lr=1.0)


def moon_outcome(votes: Tensor, safe: Tensor, test: tuple[Tensor, Tensor], epsilon: float) -> Outcome:
    """How many test inputs meet nothing but safe cells of their label, from the votes in every cell."""
    x, y = test
    answers = torch.nn.functional.one_hot(dpa.first(votes), votes.shape[1]).bool()
    holds = CELLS.holds(y, answers & safe.unsqueeze(1), x, epsilon)
    right = CELLS.holds(y, answers, x, 0.0)
    return Outcome(100 * holds.double().mean().item(), 100 * right.double().mean().item())


def moons_by_bags(name: str, epsilon: float, models: int, seed: int, device: torch.device) -> Outcome:
    """BagFlip on cells: samples count as changed by as many features as can leave their bin."""
    data, noise, cells = load("two-moons", Path("."), seed), MOON_BAGS[name], CELLS.all(device)
    x, y = tensors(data.train, device)
    votes = noise.votes(moon_learner(device), (CELLS.of(x), y), cells, models, seed, encoded=CELLS.middle)
    changed = CELLS.changed(x, epsilon)
    touched = {number: int((changed == number).sum()) for number in (1, 2)}
    safe = certified(votes, noise.shifts(len(x), touched, labels=False), ALPHA)
    return moon_outcome(votes, safe, tensors(data.test, device), epsilon)


def moons_by_parts(epsilon: float, seed: int, device: torch.device) -> Outcome:
    """Partition aggregation on cells: a part is touched if one of its samples can leave its cell."""
    data, cells = load("two-moons", Path("."), seed), CELLS.all(device)
    x, y = tensors(data.train, device)
    parts = dpa.Partition.by_position(len(x), MOON_PARTS)
    votes = parts.votes(moon_learner(device), CELLS.middle(CELLS.of(x)), y, CELLS.middle(cells), 2)
    moved = (CELLS.changed(x, epsilon) > 0).nonzero()[:, 0] % MOON_PARTS
    safe = dpa.certified_parts(votes) >= len(moved.unique())
    return moon_outcome(votes, safe, tensors(data.test, device), epsilon)


# --- MNIST 1/7 ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def digits(device: torch.device) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Binary images (n, 1, 28, 28) of ones and sevens, for training and test."""
    data = load("mnist-1-7", Path(os.environ.get("BOUNDFLOW_DATA", ".")), 0)
    (x, y), (test_x, test_y) = tensors(data.train, device), tensors(data.test, device)
    return ((x > 0.5).long(), y), ((test_x > 0.5).long(), test_y)


def digit_learner(device: torch.device, steps: int, lr: float) -> Learner:
    return Learner(of_zeros(nn.Flatten(), 784).float().to(device), steps, lr)


@lru_cache(maxsize=4)  # one ensemble answers for all R
def digit_votes(name: str, models: int, seed: int, device: torch.device) -> Tensor:
    train, (test_x, _) = digits(device)
    return DIGIT_BAGS[name].votes(digit_learner(device, 40, 0.05), train, test_x, models, seed)


def outcome(votes: Tensor, safe: Tensor, labels: Tensor) -> Outcome:
    right = dpa.first(votes) == labels
    return Outcome(100 * (right & safe).double().mean().item(), 100 * right.double().mean().item())


def digits_by_bags(name: str, percent: float, models: int, seed: int, device: torch.device) -> Outcome:
    (x, _), (_, labels) = digits(device)
    votes = digit_votes(name, models, seed, device)
    shifts = DIGIT_BAGS[name].shifts(len(x), {1: budget(percent, len(x))})
    return outcome(votes, certified(votes, shifts, ALPHA), labels)


@lru_cache(maxsize=4)
def part_votes(parts: int, seed: int, device: torch.device) -> Tensor:
    """Of partition aggregation by position, after an order that the seed fixes beforehand."""
    (x, y), (test_x, _) = digits(device)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).to(device)
    learner = digit_learner(device, 30, 0.1)
    return dpa.Partition.by_position(len(x), parts).votes(learner, x[order].float(), y[order], test_x.float(), 2)


def digits_by_parts(percent: float, seed: int, device: torch.device) -> Outcome:
    (x, _), (_, labels) = digits(device)
    votes = part_votes(DIGIT_PARTS, seed, device)
    return outcome(votes, dpa.certified_parts(votes) >= budget(percent, len(x)), labels)


def digits_by_sets(percent: float, samples: int | None, points: int | None, seed: int, device: torch.device) -> Outcome:
    """Our own certificate: one step of logistic regression on edges, `OneChange` of at most R % of the samples."""
    (x, y), (test_x, labels) = digits(device)
    edges = CenteredEdges().to(device)
    x, y, test_x, labels = edges(x[:samples].double()), y[:samples], edges(test_x[:points].double()), labels[:points]
    head = nn.Linear(x.shape[1], 1, bias=False).double()
    nn.init.zeros_(head.weight)
    certificate = bf.certify(
        head,
        (x * (2 * y - 1).unsqueeze(1), torch.ones_like(y)),
        threat=bf.threats.AtMost(budget(percent, len(x)), OneChange(edges.reach())),
        loss="bce",
        optimizer_options={"lr": 1.0},
        order=1,
        memory=2.0**34,
        device=device,
    )
    accuracy = certificate.accuracy(test_x, labels)
    return Outcome(100 * accuracy.certified, 100 * accuracy.nominal, {"not_tracked": certificate.record["not_tracked"]})


def budget(percent: float, samples: int) -> int:
    """R % of the samples, as a whole number."""
    return int(percent * samples / 100)


# --- experiments ----------------------------------------------------------------------------------------------------


def curves(rows: list[dict[str, Any]], figure: Figure) -> None:
    """A line for every method, against epsilon or R."""
    axes, name = figure.add_subplot(), next(iter(rows[0]["setting"]))
    for number, series in enumerate(dict.fromkeys((row["recipe"], row["domain"]) for row in rows)):
        group = [row for row in rows if (row["recipe"], row["domain"]) == series]
        label = {"best": "FullCert, ours", "paper": "FullCert, as published"}.get(series[0], series[0])
        x, y, spread = (
            [row["setting"][name] if key == name else row[key] for row in group] for key in (name, "mean", "std")
        )
        axes.errorbar(x, y, yerr=spread, marker="os^vDx"[number % 6], capsize=2, label=label)
    if name == "epsilon":
        axes.set_xscale("log")
    axes.set(xlabel=name, ylabel="certified accuracy (%)", ylim=(0, 102))
    figure.legend(loc="outside lower center", ncols=3, frameon=False)


@experiment(
    "bagflip-moons",
    title="Two-Moons, every training and test input moved by epsilon: FullCert, BagFlip, partitions",
    source="FullCert, Fig. 4 (left)",
    differs="BagFlip and partition aggregation get features in 12 bins, and only the samples that a move by epsilon "
    "can take out of their bin count as changed, which favours them (if all samples count, R = 100 %, they certify "
    "nothing); BagFlip holds for its smoothed classifier with confidence 99.9 % for all cells at once, the others hold "
    "without exception; bagging is BagFlip without noise.",
    draw=curves,
)
def moons(scale: Scale) -> list[Case]:
    models, epochs = QUICK_MODELS if scale.quick else MODELS, QUICK_EPOCHS["interval"] if scale.quick else 200
    cases = []
    for epsilon, paper in {1e-4: 83.9, 1e-3: 82.2, 1e-2: 71.5, 1e-1: 36.7}.items():
        setting: dict[str, float | int | str] = {"epsilon": epsilon}
        cases.append(Case(setting, "zonotope", "best", partial(ours, "two-moons", epsilon), paper, SEEDS[:5]))
        run = partial(as_published, Published(epsilon, epochs=epochs))
        cases.append(Case(setting, "interval", "paper", run, paper, SEEDS[:5], epsilon >= 1e-2, {"epochs": epochs}))
        for name in MOON_BAGS:
            run = partial(moons_by_bags, name, epsilon, models)
            cases.append(Case(setting, "-", name, run, None, SEEDS[:5], fixed={"models": models}))
        cases.append(Case(setting, "-", "dpa", partial(moons_by_parts, epsilon), None, SEEDS[:5]))
    return cases


@experiment(
    "bagflip-mnist",
    title="MNIST 1/7, one pixel or the label of R % of the training images changed (FL1)",
    source="FullCert, Fig. 4 (right)",
    differs="Images are binary for all methods; BagFlip (bags and noise chosen on validation; bagflip-100 has the bags "
    "of its paper) holds for its smoothed classifier with confidence 99.9 % for the whole test set; partition "
    "aggregation holds against more: R % of the images may be replaced by anything; ours is deterministic and trains "
    "one step of logistic regression on fixed edge features, not the network of the paper.",
    draw=curves,
    gpu=True,
)
def mnist(scale: Scale) -> list[Case]:
    models = QUICK_MODELS if scale.quick else MODELS
    samples, points = (QUICK_SAMPLES, QUICK_POINTS) if scale.quick else (None, None)
    cases = []
    for percent in PERCENT:
        setting: dict[str, float | int | str] = {"R (%)": percent}
        quick = percent in (1.0, 5.0)
        fixed = {} if samples is None else {"samples": samples, "points": points}
        ours = partial(digits_by_sets, percent, samples, points)
        cases.append(Case(setting, "zonotope", "best", ours, None, (0,), quick, fixed))
        for name in DIGIT_BAGS:
            run = partial(digits_by_bags, name, percent, models)
            cases.append(Case(setting, "-", name, run, None, (0, 1, 2), quick, {"models": models}))
        cases.append(Case(setting, "-", "dpa", partial(digits_by_parts, percent), None, (0, 1, 2), quick))
    return cases
