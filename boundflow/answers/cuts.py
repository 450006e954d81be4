"""Answers for an input in parts: its box cut in halves until every part is decided.

    an answer is certified on a box  if  it is certified on parts that cover the box

Proof: every allowed input lies in one of the parts, which are closed and share the point they were cut at. The error of
a relaxation shrinks with the square of a part's width, so a few cuts are often enough where inputs have few features.

A part that is decided is not cut again. An input is given up as soon as the plain model answers something else in the
middle of a part: then no cuts can certify this answer on the box. (A ball or a category may still have it, as its box
holds more than what is allowed: what was known before the cuts is kept.) A part is cut across the feature that matters
most to the plain model: its slope, and some of the mean slope so that none is forgotten, times the width of the part.

Parts of several inputs are asked about side by side, so the network must treat the inputs of a batch one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..threats import Change, Deviation, Diagonal

Answer = tuple[Tensor, Tensor, Tensor]  # lower and upper ends of the outputs, lower bounds on the lead of each class


def middles(bounds: Tensor) -> Tensor:
    """A point of each box near its middle: halves are added, as the sum of two large ends would overflow."""
    low, high = bounds
    return torch.clamp(0.5 * low + 0.5 * high, low, high)


class Boxes(Change):
    """Every input anywhere in a box of its own, (2, inputs, *shape)."""

    def __init__(self, bounds: Tensor):
        self.bounds = bounds

    def __repr__(self) -> str:
        return f"Boxes({self.bounds.shape[1]} inputs)"

    def deviation(self, values: Tensor, raw: Tensor, budgeted: bool) -> Deviation:
        middle = middles(self.bounds)
        radius = torch.where(self.bounds[0] < self.bounds[1], rounding.deviation(self.bounds, middle), 0.0)
        return Deviation(middle, Diagonal(radius, (radius > 0).any(0)), self.bounds)


@dataclass
class Parts:
    """Parts of the boxes of several inputs, and what is known on each of them."""

    bounds: Tensor  # (2, parts, *shape)
    owner: Tensor  # the number of the input each belongs to
    lower: Tensor
    upper: Tensor
    leads: Tensor

    def __getitem__(self, chosen: Tensor) -> Parts:
        return Parts(self.bounds[:, chosen], *(x[chosen] for x in (self.owner, self.lower, self.upper, self.leads)))

    def __add__(self, other: Parts) -> Parts:
        pairs = ((getattr(x, name) for x in (self, other)) for name in ("owner", "lower", "upper", "leads"))
        return Parts(torch.cat((self.bounds, other.bounds), 1), *(torch.cat(list(pair)) for pair in pairs))

    def of_inputs(self, first: Answer) -> Answer:
        """The answers for whole inputs: the worst of their parts, or what was known before if that is better."""

        def reduced(values: Tensor, best: Tensor, how: str, start: float) -> Tensor:
            index = self.owner.unsqueeze(1).expand_as(values)
            return torch.full_like(best, start).scatter_reduce_(0, index, values, how)

        lower = reduced(self.lower, first[0], "amin", torch.inf)
        upper = reduced(self.upper, first[1], "amax", -torch.inf)
        leads = reduced(self.leads, first[2], "amin", torch.inf)
        return torch.maximum(lower, first[0]), torch.minimum(upper, first[1]), torch.maximum(leads, first[2])


def in_parts(
    first: Answer,
    boxes: Tensor,
    cuts: int,
    answer: Callable[[Tensor], Answer],
    slopes: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
) -> Answer:
    """Better answers for inputs in boxes, each cut at most ``cuts`` times over: into ``2 ** cuts`` parts at most.

    ``answer(boxes)`` asks the set of models; ``slopes(points, inputs)`` gives the gradient of the plain model at points
    and whether it answers as it does for the whole input. A part is decided if a class leads on all of it.
    """
    inputs = torch.arange(boxes.shape[1], device=boxes.device)
    parts = Parts(boxes, inputs, *first)
    hopeless = torch.zeros(len(inputs), dtype=torch.bool, device=boxes.device)
    for _ in range(cuts):
        wide = (parts.bounds[0] < parts.bounds[1]).flatten(1).any(1)
        undecided = (~(parts.leads > 0).any(1) & wide & ~hopeless[parts.owner]).nonzero()[:, 0]
        if not len(undecided):
            break
        cut = parts[undecided]
        gradient, agrees = slopes(middles(cut.bounds), cut.owner)
        hopeless[cut.owner[~agrees]] = True
        going_on = ~hopeless[cut.owner]
        kept = torch.ones(len(parts.owner), dtype=torch.bool, device=boxes.device)
        kept[undecided[going_on]] = False
        parts, cut = parts[kept], cut[going_on]
        if len(cut.owner):
            halves = _halved(cut.bounds, gradient[going_on])
            lower, upper, leads = answer(halves)
            twice = cut.owner.repeat(2)
            # what holds for a part holds for its halves
            lower = torch.maximum(lower, cut.lower.repeat(2, 1))
            upper = torch.minimum(upper, cut.upper.repeat(2, 1))
            parts = parts + Parts(halves, twice, lower, upper, torch.maximum(leads, cut.leads.repeat(2, 1)))
    return parts.of_inputs(first)


def _halved(bounds: Tensor, gradient: Tensor) -> Tensor:
    """Boxes cut in halves across the feature that matters most: the lower halves, then the upper ones."""
    low, high = bounds.flatten(2).clone()
    width, slope = high - low, gradient.flatten(1).abs().nan_to_num(0.0, 0.0, 0.0)
    score = (slope + slope.mean(1, keepdim=True)) * width
    score = torch.where(score.amax(1, keepdim=True) > 0, score, width)
    chosen = score.argmax(1, keepdim=True)
    at = middles(torch.stack((low, high))).gather(1, chosen)
    lower = torch.stack((low, high.scatter(1, chosen, at)))
    upper = torch.stack((low.scatter(1, chosen, at), high))
    return torch.cat((lower, upper), 1).view(2, -1, *bounds.shape[2:])
