"""Hypergradients: the margin differentiated through all steps of training, by every value of the training data.

    data(j + 1) = the best dataset of the threat against  d margin / d data  at data(j)

First against the mean margin of all test points, and of those of each class; then against one test point after the
other, each with a dataset of its own. Where a step made the margin larger the next one goes half the way (a step of
Frank and Wolfe, which stays inside as long as there is no budget). Restarts begin at random corners.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .poisoned import Poisoned
from .search import Search
from .steepest import Slopes, inside, steepest
from .trainings import Parameters

NAME = "hypergradients"


def planned(search: Search, steps: int, restarts: int, targets: int | None) -> int:
    """How many trainings it will take, at most."""
    points = len(search.points) if targets is None else min(targets, len(search.points))
    return steps * restarts * (points + len(groups(search)))


def run(search: Search, steps: int, restarts: int, targets: int | None) -> None:
    means = groups(search)
    for restart in range(restarts):
        follow(search, steps, restart > 0, len(means), lambda stacked, which: mean(search, stacked, means, which))
        points = search.left(again=restart > 0)[:targets]
        for chunk in torch.split(points, search.size_of_slopes):
            chunk = chunk[~search.broken[chunk]]  # an attack on another point may have broken it meanwhile
            if len(chunk):
                one_by_one(search, steps, restart > 0, chunk)


def one_by_one(search: Search, steps: int, anywhere: bool, points: Tensor) -> None:
    """A dataset for each of the points."""
    follow(
        search,
        steps,
        anywhere,
        len(points),
        lambda stacked, which: search.points.own(stacked, points[which]),
        points,
    )


def groups(search: Search) -> list[Tensor]:
    """Masks over the test points: all of them, and those of each label."""
    everything = torch.ones_like(search.broken)
    if search.points.regression:
        return [everything]
    known = sorted(set(search.points.label.tolist()))
    labels = [search.points.label == label for label in known]
    return [everything, *labels] if len(labels) > 1 else [everything]


def mean(search: Search, stacked: Parameters, masks: list[Tensor], which: Tensor) -> Tensor:
    """The mean lead of each group of points that are not broken yet, (D,)."""
    leads = search.points.leads(search.trainings.outputs(stacked, search.points.x))
    wanted = torch.stack([masks[number] & ~search.broken for number in which.tolist()])
    return (leads * wanted).sum(1) / wanted.sum(1).clamp_min(1)


def follow(
    search: Search,
    steps: int,
    anywhere: bool,
    count: int,
    margin: Callable[[Parameters, Tensor], Tensor],
    points: Tensor | None = None,
) -> None:
    """So many datasets, each following its own gradient: ``margin`` gives those of some of them."""
    current = beginning(search, count, anywhere)
    before = torch.full((count,), torch.inf, dtype=search.lead.dtype, device=search.lead.device)
    going = torch.arange(count, device=search.lead.device)
    for _ in range(steps):
        slopes = slopes_of(search, current, margin, going)
        corner = steepest(search.clauses, search.data, slopes)
        leads = search.consider(corner)
        now = leads.mean(1) if points is None else leads.gather(1, points[going][:, None])[:, 0]
        current = _next(search, current, corner, now < before[going])
        before[going] = torch.minimum(now, before[going])
        if points is not None:
            keep = ~search.broken[points[going]]
            current, going = current.pick(torch.nonzero(keep).flatten()), going[keep]
            if not len(going):
                break


def beginning(search: Search, count: int, anywhere: bool) -> Poisoned:
    """The observed data, or random corners."""
    if not anywhere:
        now = search.trainings.observed()
        return Poisoned(now.x, now.y, now.weights.repeat(count, 1))
    (samples, features), targets = search.data.x.shape, search.data.y.shape[1]
    shapes = (count, samples, features), (count, samples, targets), (count, samples)
    return steepest(search.clauses, search.data, Slopes(*(search.random(*shape) for shape in shapes)))


def slopes_of(
    search: Search, current: Poisoned, margin: Callable[[Parameters, Tensor], Tensor], going: Tensor
) -> Slopes:
    """The gradients of all datasets, as many at a time as fit into memory."""
    found = []
    for begin in range(0, len(going), search.size_of_slopes):
        part = slice(begin, begin + search.size_of_slopes)

        def of_part(stacked: Parameters, part: slice = part) -> Tensor:
            return margin(stacked, going[part])

        found.append(search.trainings.slopes(current.pick(part), of_part, search.moves)[0])
    if len(found) == 1:
        return found[0]
    return Slopes(*(torch.cat([getattr(slopes, name) for slopes in found]) for name in ("x", "y", "weights")))


def _next(search: Search, current: Poisoned, corner: Poisoned, better: Tensor) -> Poisoned:
    """The corner where it was better, and else half the way to it; under a budget always the corner."""
    if any(clause.budget is not None for clause in search.clauses) or bool(better.all()):
        return corner
    half = current.x + (corner.x - current.x) / 2
    keep = better.view(-1, *(1,) * (half.dim() - 1))
    mixed = Poisoned(torch.where(keep, corner.x, half), corner.y, corner.weights)
    everyone = torch.ones(corner.weights.shape, dtype=torch.bool, device=half.device)
    freedoms = sum(len(clause.freedoms) for clause in search.clauses)
    return inside(search.clauses, search.data, mixed, [everyone] * freedoms)
