"""What an attacker does with a gradient: the change that lowers the margin most, to first order, inside the threat.

    min over moves of  <gradient, move>       box     to the end against the sign of each coordinate
                                              ball    against the gradient, scaled to the amounts
                                              cross   all of it in the coordinate that is steepest
                                              classes, categories, presence: the best of the few there are

Under a budget the k samples with the largest gains are changed. Floats are rounded so that they stay inside the exact
threat (`membership.py`): a value that rounding carried out is moved back towards the observed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .freedoms import Anything, Clause, Data, Freedom, Grid, Label, Move, OneOf, Presence
from .membership import difference, explained
from .poisoned import Poisoned

SHORT = 1 - 2.0**-40  # of the radius of a ball: what float64 decides by itself is cheaper to check
BACK = (2.0**-50, 2.0**-40, 2.0**-30, 2.0**-22, 2.0**-20, 2.0**-16, 1.0)  # shares of a move that are given up in turn


@dataclass(frozen=True)
class Slopes:
    """Gradients of D margins: by flat inputs (D, N, F), targets (D, N, T) and weights (D, N)."""

    x: Tensor
    y: Tensor
    weights: Tensor

    def __neg__(self) -> Slopes:
        return Slopes(-self.x, -self.y, -self.weights)


@dataclass
class Reply:
    """The best change of one freedom: new values of what it is about, and by how much the margin falls, (D, N)."""

    gain: Tensor
    x: Tensor | None = None
    y: Tensor | None = None
    weights: Tensor | None = None


def observed(data: Data) -> Poisoned:
    """The dataset as it is."""
    weights = torch.ones(len(data.x), dtype=data.x.dtype, device=data.x.device)
    return Poisoned(data.x.view(1, len(data.x), *data.shape), data.y.unsqueeze(0), weights.unsqueeze(0))


def steepest(
    clauses: Sequence[Clause],
    data: Data,
    slopes: Slopes,
    priority: Tensor | None = None,
    taken: dict[int, Tensor] | None = None,
) -> Poisoned:
    """The best allowed dataset for each of the gradients.

    ``priority`` (D, N), if given, says instead of the gains which samples a budget is spent on. ``taken`` are samples
    (D, N) of clauses with a budget, by their place: exactly these are changed by them.
    """
    replies, chosen = [], []
    for place, clause in enumerate(clauses):
        mine = [best(freedom, data, slopes) for freedom in clause.freedoms]
        gain = torch.stack([reply.gain for reply in mine]).sum(0)
        if clause.budget is None:
            who = torch.ones_like(gain, dtype=torch.bool)
        elif taken is not None and place in taken:
            who = taken[place]
        else:
            who = largest(gain, priority, clause.budget)
        replies += mine
        chosen += [who] * len(mine)
    return inside(clauses, data, _together(data, replies, chosen, len(slopes.x)), chosen)


def largest(gain: Tensor, priority: Tensor | None, budget: int) -> Tensor:
    """The k samples with the largest positive gain, or those of the highest priority that gain anything."""
    order = torch.where(gain > 0, gain if priority is None else priority, -torch.inf)
    top = order.topk(min(budget, order.shape[1]), dim=1)
    found = torch.zeros_like(order, dtype=torch.bool).scatter(1, top.indices, top.values > -torch.inf)
    return found


def _together(data: Data, replies: list[Reply], chosen: list[Tensor], count: int) -> Poisoned:
    """All replies at once: where two of them move the same value, their moves add up."""
    x, y = data.x[None], data.y[None]  # there once as long as nothing changes them
    weights = torch.ones(count, len(data.x), dtype=data.x.dtype, device=data.x.device)
    for reply, who in zip(replies, chosen, strict=True):
        if reply.x is not None:
            moved = torch.where(x == data.x, reply.x, (x.double() + (reply.x.double() - data.x.double())).to(x.dtype))
            x = torch.where(who[..., None], moved, x)
        if reply.y is not None:
            y = torch.where(who[..., None], reply.y, y)
        if reply.weights is not None:
            weights = torch.where(who, reply.weights, weights)
    return Poisoned(_shaped(x, data), y, weights)


def inside(clauses: Sequence[Clause], data: Data, poisoned: Poisoned, chosen: list[Tensor]) -> Poisoned:
    """The same datasets, with the moves of samples that rounding carried outside shortened until they are inside."""
    x = poisoned.x.flatten(2)
    for share in BACK:
        outside = ~_explained(clauses, data, Poisoned(_shaped(x, data), poisoned.y, poisoned.weights), chosen)
        if not bool(outside.any()):
            break
        shorter = (data.x.double() + (x.double() - data.x.double()) * (1 - share)).to(x.dtype)
        shorter = torch.where(shorter == x, torch.nextafter(x, data.x.expand_as(x)), shorter)
        x = torch.where(outside[..., None], data.x if share == 1.0 else shorter, x)
    return Poisoned(_shaped(x, data), poisoned.y, poisoned.weights)


def _shaped(x: Tensor, data: Data) -> Tensor:
    return x.reshape(*x.shape[:2], *data.shape)


def _explained(clauses: Sequence[Clause], data: Data, poisoned: Poisoned, chosen: list[Tensor]) -> Tensor:
    """Whether each sample is what the clauses that chose it can make of it, (D, N)."""
    free = [freedom for clause in clauses if clause.budget is None for freedom in clause.freedoms]
    result = explained(free, data, poisoned)
    places, place = [], 0
    for clause in clauses:
        places += [place] if clause.budget is not None else []
        place += len(clause.freedoms)
    counted = [clause for clause in clauses if clause.budget is not None]
    for code in range(1, 2 ** len(counted)):
        mine = [number for number in range(len(counted)) if code >> number & 1]
        who = torch.ones_like(result)
        for number in range(len(counted)):
            who = who & (chosen[places[number]] == (number in mine))
        if bool((who & ~result).any()):
            both = explained([*free, *(f for number in mine for f in counted[number].freedoms)], data, poisoned)
            result = result | (who & both)
    return result


# --- the best change of one freedom -----------------------------------------------------------------------------------


def best(freedom: Freedom, data: Data, slopes: Slopes) -> Reply:
    """What lowers the margin most, and by how much; samples that the freedom does not touch gain nothing."""
    reply = _best(freedom, data, slopes)
    reply.gain = torch.where(freedom.touched, reply.gain, 0.0).clamp_min(0)
    for name, before in (("x", data.x), ("y", data.y)):
        values = getattr(reply, name)
        if values is not None:
            setattr(reply, name, torch.where(freedom.touched[:, None], values, before))
    if reply.weights is not None:
        reply.weights = torch.where(freedom.touched, reply.weights, 1.0)
    return reply


def _best(freedom: Freedom, data: Data, slopes: Slopes) -> Reply:
    if isinstance(freedom, Move):
        return _best_move(freedom, data, slopes)
    if isinstance(freedom, Grid):
        return _best_point(freedom, data, slopes.x)
    if isinstance(freedom, OneOf):
        return _best_category(freedom, data, slopes.x)
    if isinstance(freedom, Label):
        gain, y = _best_class(data.y, slopes.y)
        return Reply(gain, y=y)
    if isinstance(freedom, Presence):
        return Reply(slopes.weights, weights=torch.where(slopes.weights > 0, 0.0, torch.ones_like(slopes.weights)))
    assert isinstance(freedom, Anything)
    moved = torch.where(slopes.x > 0, freedom.low, torch.where(slopes.x < 0, freedom.high, data.x))
    gain, y = _best_class(data.y, slopes.y)
    return Reply(gain + _fall(slopes.x, moved, data.x), moved, y)


def _fall(slope: Tensor, moved: Tensor, before: Tensor) -> Tensor:
    return (slope * (before - moved)).sum(-1)


def _best_move(move: Move, data: Data, slopes: Slopes) -> Reply:
    before, slope = (data.x, slopes.x) if move.about == "inputs" else (data.y, slopes.y)
    if move.kind == "box":
        moved = torch.where(slope > 0, _end(move, before, -1), torch.where(slope < 0, _end(move, before, 1), before))
    else:
        moved = _within_range(move, before, before.double() - _longest(move, slope))
    fall = _fall(slope, moved, before)
    return Reply(fall, x=moved) if move.about == "inputs" else Reply(fall, y=moved)


def _longest(move: Move, slope: Tensor) -> Tensor:
    """The move of a ball along a slope, in float64."""
    steep = slope.double() * move.amounts
    if move.kind == "ball":
        length = steep.norm(dim=-1, keepdim=True)
        return torch.where(length > 0, move.amounts * steep / length, 0.0) * SHORT
    place = steep.abs().argmax(-1, keepdim=True)
    return torch.zeros_like(steep).scatter(-1, place, (steep.sign() * move.amounts).gather(-1, place))


def _end(move: Move, before: Tensor, sign: int) -> Tensor:
    """The lowest or highest allowed value."""
    return _within_range(move, before, before.double() + sign * move.amounts)


def _within_range(move: Move, before: Tensor, wanted: Tensor) -> Tensor:
    """Values of the dtype of the data in the valid range, and no further from the observed ones than wanted."""
    clipped = torch.minimum(torch.maximum(wanted, move.low), move.high)
    found = clipped.to(before.dtype)
    distance, error = difference(found, before)
    outwards = torch.where(distance > 0, error > 0, error < 0)
    beyond = (distance.abs() > move.amounts) | ((distance.abs() == move.amounts) & outwards)
    beyond = beyond | (found.double() < move.low) | (found.double() > move.high)
    return torch.where(beyond, torch.nextafter(found, before.expand_as(found)), found)


def _best_point(grid: Grid, data: Data, slope: Tensor) -> Reply:
    """The farthest point of the grid against the slope that is in the valid range."""
    here = torch.round(data.x.double() / grid.step)
    there = (here - slope.sign() * grid.bins).clamp(grid.low / grid.step, grid.high / grid.step)
    moved = grid.points(torch.where(there > here, there.floor(), there.ceil()), data.x.dtype)
    moved = torch.where(grid.features & (slope != 0), moved, data.x)
    return Reply(_fall(slope, moved, data.x), x=moved)


def _best_category(freedom: OneOf, data: Data, slope: Tensor) -> Reply:
    columns = list(freedom.columns)
    before, steep = data.x[:, columns], slope[..., columns]
    if freedom.none:  # none of them is one more, along which nothing rises or falls
        before = torch.cat((before, 1 - before.sum(1, keepdim=True)), 1)
        steep = torch.cat((steep, torch.zeros_like(steep[..., :1])), -1)
    gain, hot = _best_class(before, steep)
    moved = data.x.expand(slope.shape).clone()
    moved[..., columns] = hot[..., : len(columns)]
    return Reply(gain, x=moved)


def _best_class(before: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """The class that lowers the margin most, as one-hot vectors or one column, and by how much."""
    if before.shape[-1] == 1:
        gain = (slope * (2 * before - 1))[..., 0]
        return gain, torch.where(gain[..., None] > 0, 1 - before, before)
    now = (slope * before).sum(-1, keepdim=True)
    least, place = slope.min(-1, keepdim=True)
    hot = torch.zeros_like(slope).scatter(-1, place, 1.0)
    return (now - least)[..., 0], torch.where(least < now, hot, before.expand_as(slope))
