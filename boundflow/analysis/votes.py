"""The vote of members that were trained on parts of the data, and what it withstands: a knapsack, solved exactly.

Sample i belongs to one member alone, so who changes samples pays for every member on its own. Member j, which stands
w_j changes of its part, costs ``c_j = w_j + 1``, and nothing if it is uncertain untouched (w_j = -1). With n_c votes
for class c and the smaller class winning ties, a rival b overtakes the first class a as soon as its gains reach

    T_b = n_a - n_b + [a < b].

A member that votes a and is made to vote b gains 2, one that votes another class gains 1, one that votes b nothing;
whatever else a member is made to vote gains b no more than that, at the same cost. So the least cost of overtaking is

    min over b of  min { sum over S of c_j  :  S a set of members whose gains reach T_b },

and the vote withstands one change less. Costs and gains are whole numbers and gains are at most two for each member, so
the inner minimum is found exactly by going through the members once, with the least cost of every gain up to T_b.
Deep Partition Aggregation counts ``c_j = 1`` for every member.
"""

from __future__ import annotations

import torch
from torch import Tensor

NEVER = 2**50  # more than any sum of costs
STATES = 2**24  # numbers that are held at a time


def counted(votes: Tensor, classes: int) -> Tensor:
    """How many members vote for each class, (N, classes), from the votes (N, members)."""
    return torch.nn.functional.one_hot(votes, classes).sum(1)


def first(counts: Tensor) -> Tensor:
    """The class with the most votes, the smaller one of a tie."""
    classes = counts.shape[1]
    return (counts * classes - torch.arange(classes, device=counts.device)).argmax(1)


def withstood(votes: Tensor, stands: Tensor, classes: int) -> Tensor:
    """How many changes each vote withstands, at least; -1 if it is uncertain untouched.

    ``votes`` and ``stands`` are (N, members): what each member answers, and how many changes of its part it withstands.
    """
    if bool((stands < -1).any()):
        raise ValueError("a member withstands 0 changes or more, or -1 where it is uncertain untouched")
    size = max(1, STATES // (classes * (2 * votes.shape[1] + 2)))
    pieces = zip(torch.split(votes, size), torch.split(stands, size), strict=True)
    return torch.cat([least_cost(some, costs + 1, classes) for some, costs in pieces]) - 1


def least_cost(votes: Tensor, costs: Tensor, classes: int) -> Tensor:
    """The least sum of costs with which some rival overtakes the first class, (N,)."""
    counts = counted(votes, classes)
    winner = first(counts).unsqueeze(1)
    rivals = torch.arange(classes, device=votes.device).expand(len(votes), classes)
    needed = counts.gather(1, winner) - counts + (winner < rivals).long()
    needed = torch.where(rivals == winner, 2 * votes.shape[1] + 1, needed)  # no one overtakes itself
    most = 2 * votes.shape[1] + 1
    least = torch.full((len(votes), classes, most + 1), NEVER, dtype=torch.int64, device=votes.device)
    least[:, :, 0] = 0
    for member in range(votes.shape[1]):
        vote = votes[:, member : member + 1]
        gain = torch.where(vote == winner, 2, torch.where(vote == rivals, 0, 1))
        least = _with_one_more(least, gain, costs[:, member])
    gains = torch.arange(most + 1, device=votes.device)
    return least.masked_fill(gains < needed.unsqueeze(2), NEVER).amin((1, 2))


def _with_one_more(least: Tensor, gain: Tensor, cost: Tensor) -> Tensor:
    """The least cost of every gain (N, classes, gains) if one more member may be paid for."""
    before = torch.nn.functional.pad(least, (2, 0), value=NEVER)  # the gain cannot be less than none
    by_two, by_one = before[:, :, :-2], before[:, :, 1:-1]
    taken = torch.where(gain.unsqueeze(2) == 2, by_two, torch.where(gain.unsqueeze(2) == 1, by_one, least))
    return torch.minimum(least, taken + cost.view(-1, 1, 1))
