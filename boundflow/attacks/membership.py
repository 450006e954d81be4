"""Whether poisoned datasets are among those that a threat allows, in exact comparisons.

The difference of two floats is ``d + e`` with ``d = fl(x' - x)`` and e what d is off by, exact for all floats (Knuth):

    |x' - x| <= amount     iff     |d| < amount,  or  |d| = amount and e does not point outwards

since rounding keeps the order. In balls a sum of squares that float64 cannot decide is computed in fractions. Where
several changes move the same value their amounts are added, rounded down: then a dataset may be refused that is less
than a unit in the last place inside, and none is let in that is outside.

A sample is *explained* by the clauses whose changes can turn it into what it is. With several budgets, the cheapest
explanations of all samples must fit into all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations

import torch
from torch import Tensor

from ..threats import Threat
from .freedoms import Anything, Clause, Data, Freedom, Grid, Label, Move, OneOf, Presence, clauses_of
from .poisoned import Poisoned

UNSURE = 2.0**-48  # relative, of a float64 quotient or sum of a few terms


def contains(threat: Threat, x: Tensor, y: Tensor, poisoned: Poisoned) -> Tensor:
    """For each of the datasets, whether the threat allows it: (D,). ``y`` are targets as numbers (`poisoned.py`)."""
    data = Data.of(threat, x, y)
    return allowed(clauses_of(threat, data), data, poisoned)


def allowed(clauses: Sequence[Clause], data: Data, poisoned: Poisoned) -> Tensor:
    """The same for clauses in plain numbers."""
    free = [freedom for clause in clauses if clause.budget is None for freedom in clause.freedoms]
    counted = [clause for clause in clauses if clause.budget is not None]
    explanations = {
        some: explained([*free, *(f for number in some for f in counted[number].freedoms)], data, poisoned).cpu()
        for size in range(len(counted) + 1)
        for some in combinations(range(len(counted)), size)
    }
    budgets = [clause.budget or 0 for clause in counted]
    fits = [
        _fits([{some for some, found in explanations.items() if found[dataset, sample]} for sample in unclear], budgets)
        for dataset, unclear in enumerate(_unclear(explanations[()]))
    ]
    return torch.tensor(fits, device=data.x.device)


def _unclear(clean: Tensor) -> Iterable[list[int]]:
    """The samples of each dataset that are not as they were observed."""
    return (torch.nonzero(~row).flatten().tolist() for row in clean)


def _fits(samples: list[set[tuple[int, ...]]], budgets: Sequence[int]) -> bool:
    """Whether every sample has an explanation, and all budgets suffice: all ways to spend them, sample by sample."""
    spent = {tuple(0 for _ in budgets)}
    for explanations in samples:
        least = [some for some in explanations if not any(set(other) < set(some) for other in explanations)]
        spent = {
            tuple(count + (number in some) for number, count in enumerate(before)) for before in spent for some in least
        }
        spent = {counts for counts in spent if all(c <= budget for c, budget in zip(counts, budgets, strict=True))}
    return bool(spent)


def explained(freedoms: Sequence[Freedom], data: Data, poisoned: Poisoned) -> Tensor:
    """For each sample of each dataset, (D, N): whether these changes can turn the observed one into it."""
    full = poisoned.written_out()
    x = full.x.flatten(2)
    inputs = _inputs(freedoms, data, x)
    targets = _targets(freedoms, data, full.y)
    gone = _any(freedoms, Presence, data)
    weights = (full.weights == 1) | ((full.weights == 0) & gone)
    replaced = _any(freedoms, Anything, data) & torch.isfinite(x).all(2) & _valid(full.y, data.y) & (full.weights == 1)
    return (inputs & targets & weights) | replaced


def _any(freedoms: Sequence[Freedom], kind: type[Freedom], data: Data) -> Tensor:
    """The samples that some change of a kind touches, (N,)."""
    found = torch.zeros(len(data.x), dtype=torch.bool, device=data.x.device)
    for freedom in freedoms:
        found = found | freedom.touched if isinstance(freedom, kind) else found
    return found


# --- targets ----------------------------------------------------------------------------------------------------------


def _targets(freedoms: Sequence[Freedom], data: Data, y: Tensor) -> Tensor:
    boxes = [f for f in freedoms if isinstance(f, Move) and f.about == "targets"]
    same = _moved(boxes, [], data.y, y)
    return same | (_any(freedoms, Label, data) & _valid(y, data.y))


def _valid(y: Tensor, observed: Tensor) -> Tensor:
    """Whether targets are those of a class: one-hot, or 0 or 1; where the observed ones are values, any number."""
    if not bool(((observed == 0) | (observed == 1)).all()):
        return torch.isfinite(y).all(2)
    whole = ((y == 0) | (y == 1)).all(2)
    return whole & (y.sum(2) == 1) if y.shape[2] > 1 else whole


# --- inputs -----------------------------------------------------------------------------------------------------------


def _inputs(freedoms: Sequence[Freedom], data: Data, x: Tensor) -> Tensor:
    """Categories and points of a grid are looked at first: what they explain counts as unmoved for the rest."""
    for freedom in freedoms:
        if isinstance(freedom, OneOf):
            x = _without_category(freedom, data.x, x)
        elif isinstance(freedom, Grid):
            x = torch.where(_on_grid(freedom, data.x, x), data.x, x)
    moves = [f for f in freedoms if isinstance(f, Move) and f.about == "inputs"]
    boxes = [move for move in moves if move.kind == "box"]
    return _moved(boxes, [move for move in moves if move.kind != "box"], data.x, x)


def _without_category(freedom: OneOf, observed: Tensor, x: Tensor) -> Tensor:
    columns = list(freedom.columns)
    group = x[..., columns]
    count = group.sum(-1)
    hot = ((group == 0) | (group == 1)).all(-1) & ((count == 1) | (freedom.none & (count == 0))) & freedom.touched
    x = x.clone()
    x[..., columns] = torch.where(hot[..., None], observed[:, columns], group)
    return x


def _on_grid(grid: Grid, observed: Tensor, x: Tensor) -> Tensor:
    """Which values are points of the grid at most ``bins`` steps from the observed one."""
    here, there = (torch.round(part.double() / grid.step) for part in (observed, x))
    on = (grid.points(there, x.dtype) == x) & ((there - here).abs() <= grid.bins)
    return on & grid.features & grid.touched[:, None]


def _moved(boxes: Sequence[Move], balls: Sequence[Move], observed: Tensor, x: Tensor) -> Tensor:
    """Whether all values of a sample are within boxes and at most one ball, (D, N)."""
    same = x == observed
    if not boxes and not balls:
        return same.all(2)
    distance, error = difference(x, observed)
    alone = len(boxes) == 1 and not balls
    down, up = (boxes[0].amounts, boxes[0].amounts) if alone else _reach(boxes, observed)
    outwards = torch.where(distance > 0, error > 0, error < 0)
    limit = torch.where(distance > 0, up, down)
    within = (distance.abs() < limit) | ((distance.abs() == limit) & ~outwards)
    if alone:
        within = within & _in_range(boxes[0], x)
    within = within | same
    inside = within.all(2)
    for ball in balls:  # of which only one touches a sample
        mine = _in_ball(ball, boxes, observed, x, distance, torch.where(within, -1.0, distance.abs() - limit))
        inside = inside | (mine & ball.touched)
    return inside


def difference(x: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """``x - observed`` as the float64 nearest to it, and what that is off by: both exact."""
    first, second = x.double(), -observed.double()
    total = first + second
    part = total - first
    return total, (first - (total - part)) + (second - part)


def _in_range(move: Move, x: Tensor) -> Tensor:
    return (x.double() >= move.low) & (x.double() <= move.high)


def _reach(boxes: Sequence[Move], observed: Tensor) -> tuple[Tensor, Tensor]:
    """How far down and up several boxes move a value in all, rounded down."""
    down, up = (torch.zeros_like(observed, dtype=torch.float64) for _ in range(2))
    for box in boxes:
        to_low, to_high = _least(observed, box.low, -1), _least(box.high, observed, -1)
        down = _least(down, torch.minimum(box.amounts, to_low).clamp_min(0))
        up = _least(up, torch.minimum(box.amounts, to_high).clamp_min(0))
    return down, up


def _least(first: Tensor, second: Tensor, sign: int = 1) -> Tensor:
    """``first + sign second``, rounded down."""
    total, error = difference(first, -sign * second)
    return torch.where(error < 0, torch.nextafter(total, torch.full_like(total, -torch.inf)), total)


def _in_ball(ball: Move, boxes: Sequence[Move], observed: Tensor, x: Tensor, distance: Tensor, left: Tensor) -> Tensor:
    """Whether what boxes leave of the moves is in a ball: ``left``, up to rounding, and negative if that is nothing."""
    over = left >= 0
    valid = (~over | (_in_range(ball, x) & (ball.amounts > 0))).all(2)
    amounts = torch.where(ball.amounts > 0, ball.amounts, 1.0)
    share = left.clamp_min(0) / amounts
    unsure = torch.where(over, UNSURE * (distance.abs() / amounts + share), 0.0)
    power = 2 if ball.kind == "ball" else 1
    terms, errors = (share**2, 2 * share * unsure + unsure**2) if power == 2 else (share, unsure)
    norm, error = terms.sum(2), errors.sum(2) + UNSURE * terms.shape[2] * terms.sum(2)
    inside = valid & (norm + error <= 1)
    for dataset, sample in torch.nonzero(valid & ~inside & (norm - error <= 1)).tolist():
        inside[dataset, sample] = _exactly(ball, boxes, observed[sample], x[dataset, sample], sample, power)
    return inside


def _exactly(ball: Move, boxes: Sequence[Move], observed: Tensor, x: Tensor, sample: int, power: int) -> bool:
    """The same for one sample, in fractions."""
    total = Fraction(0)
    reaches = [_reach([box], observed[None].expand_as(box.amounts)) for box in boxes]
    for feature, (before, now) in enumerate(zip(observed.tolist(), x.tolist(), strict=True)):
        move = Fraction(now) - Fraction(before)
        boxed = sum(Fraction(float(reach[int(move > 0)][sample, feature])) for reach in reaches)
        left = max(Fraction(0), abs(move) - boxed)
        if left:
            total += (left / Fraction(float(ball.amounts[sample, feature]))) ** power
    return total <= 1
