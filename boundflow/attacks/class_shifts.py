"""Class-wise shifts: all samples of a class are moved the same way, as an attacker without any gradient would do.

Directions are the corners of a cube, or random ones where there are too many, and the difference of the means of two
classes, both ways; the other classes stay, or move the opposite way. Labels of a class become those of another class,
and samples of a class are taken away. Under a budget the samples next to the boundary of the observed model are taken,
or random ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from .freedoms import Anything, Label, Presence
from .search import Search
from .steepest import Slopes, steepest

NAME = "class-shifts"
CORNERS = 5  # features up to which every corner is a direction
DRAWN = 16  # directions otherwise


def planned(search: Search, steps: int, restarts: int, targets: int | None) -> int:
    del steps, restarts, targets
    return len(list(slopes(search))) * (2 if _counted(search) else 1)


def run(search: Search, steps: int, restarts: int, targets: int | None) -> None:
    del steps, restarts, targets
    near = -_leads_of_training(search)
    made = slopes(search)
    while some := list(itertools.islice(made, search.size)):
        joined = Slopes(*(torch.cat([getattr(one, name) for one in some]) for name in ("x", "y", "weights")))
        search.consider(steepest(search.clauses, search.data, joined, near.expand(len(some), -1)))
        if _counted(search):
            anyone = search.random(len(some), len(near[0]))
            search.consider(steepest(search.clauses, search.data, joined, anyone))


def _counted(search: Search) -> bool:
    return any(clause.budget is not None for clause in search.clauses)


def _leads_of_training(search: Search) -> Tensor:
    """How sure the observed model is of each training sample, (1, N)."""
    trainings = search.trainings
    stacked = trainings.train(trainings.observed())
    with torch.no_grad():
        outputs = trainings.outputs(stacked, trainings.prepared.observed)[0]
    return outputs.abs().amin(1)[None] if outputs.shape[1] == 1 else _two_best(outputs)[None]


def _two_best(outputs: Tensor) -> Tensor:
    best = outputs.topk(2, dim=1).values
    return best[:, 0] - best[:, 1]


def slopes(search: Search) -> Iterator[Slopes]:
    """One gradient for each shift, which the attack then follows."""
    data, members = search.data, list(classes(search))
    zero = torch.zeros_like(data.x)
    for own in members:
        for direction in directions(search, own) if search.moves else ():
            for others in (0.0, -1.0):
                x = torch.where(own[:, None], direction, others * direction).expand_as(zero)
                yield Slopes(x[None], torch.zeros_like(data.y)[None], torch.zeros_like(data.y[:, 0])[None])
        for y in relabelled(data.y, own) if search.has(Label, Anything) or search.trainings.recipe.regression else ():
            yield Slopes(zero[None], y[None], torch.zeros_like(data.y[:, 0])[None])
        if search.has(Presence):
            yield Slopes(zero[None], torch.zeros_like(data.y)[None], own.to(data.y.dtype)[None])


def classes(search: Search) -> Iterator[Tensor]:
    """Masks over the training samples: one for each class, or one for all where targets are values."""
    y = search.data.y
    if search.trainings.recipe.regression:
        yield torch.ones(len(y), dtype=torch.bool, device=y.device)
        return
    label = y.argmax(1) if y.shape[1] > 1 else (y[:, 0] > 0.5).long()
    yield from (label == value for value in sorted(set(label.tolist())))


def directions(search: Search, own: Tensor) -> Iterator[Tensor]:
    """Slopes that samples are moved against, (F,)."""
    x = search.data.x
    if bool((~own).any()):
        difference = x[own].mean(0) - x[~own].mean(0)
        yield from (difference, -difference)
    if x.shape[1] <= CORNERS:
        for signs in itertools.product((-1.0, 1.0), repeat=x.shape[1]):
            yield torch.tensor(signs, dtype=x.dtype, device=x.device)
    else:
        yield from search.random(DRAWN, x.shape[1])


def relabelled(y: Tensor, own: Tensor) -> Iterator[Tensor]:
    """Slopes by targets under which the samples of a class get another label."""
    if y.shape[1] == 1:
        yield torch.where(own, 2 * (y[:, 0] > 0.5).to(y.dtype) - 1, 0.0)[:, None]
        return
    for other in range(y.shape[1]):
        slope = torch.zeros_like(y)
        slope[own, other] = -1.0
        yield slope
