"""Everything that can be done, where it is little: flips, removals and categories of a few samples out of a few.

    datasets  =  sum over j <= k of  (samples choose j) * (other values)^j

Where this attack is made, what it leaves is not only an upper bound: no dataset of the threat breaks more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from .freedoms import Freedom, Label, OneOf, Presence
from .poisoned import Poisoned
from .search import Search

NAME = "enumeration"
MOST = 2048  # datasets


def planned(search: Search, steps: int, restarts: int, targets: int | None) -> int:
    """How many datasets there are; 0 where there are too many, or infinitely many."""
    del steps, restarts, targets
    freedom = _only(search)
    if freedom is None:
        return 0
    touched = torch.nonzero(freedom.touched).flatten().tolist()
    samples, values = len(touched), sum(1 for sample in touched[:1] for _ in _others(search, freedom, sample))
    budget = min(samples, search.clauses[0].budget or samples)
    total = 0
    for size in range(budget + 1):
        total += math.comb(samples, size) * values**size
        if total > MOST:
            return 0
    return total


def run(search: Search, steps: int, restarts: int, targets: int | None) -> None:
    freedom = _only(search)
    if freedom is None or not planned(search, steps, restarts, targets):
        return
    made = every(search, freedom)
    while some := list(itertools.islice(made, search.size)):
        search.consider(Poisoned.joined(some))


def _only(search: Search) -> Freedom | None:
    """The one freedom of a threat that has no more, if its values can be counted."""
    freedoms = [freedom for clause in search.clauses for freedom in clause.freedoms]
    return freedoms[0] if len(freedoms) == 1 and isinstance(freedoms[0], Label | OneOf | Presence) else None


def every(search: Search, freedom: Freedom) -> Iterator[Poisoned]:
    touched = torch.nonzero(freedom.touched).flatten().tolist()
    budget = min(len(touched), search.clauses[0].budget or len(touched))
    for size in range(budget + 1):
        for samples in itertools.combinations(touched, size):
            for values in itertools.product(*(list(_others(search, freedom, sample)) for sample in samples)):
                yield _changed(search, freedom, samples, values)


def _others(search: Search, freedom: Freedom, sample: int) -> Iterator[Tensor]:
    """The other values of one sample."""
    if isinstance(freedom, Presence):
        yield torch.zeros_like(search.data.x[0, 0])
        return
    now = search.data.x[sample, list(freedom.columns)] if isinstance(freedom, OneOf) else search.data.y[sample]
    if len(now) == 1:
        yield 1 - now
        return
    values = torch.eye(len(now), dtype=now.dtype, device=now.device)
    if isinstance(freedom, OneOf) and freedom.none:
        values = torch.cat((values, torch.zeros_like(values[:1])))
    for other in values:
        if not torch.equal(other, now):
            yield other


def _changed(search: Search, freedom: Freedom, samples: tuple[int, ...], values: tuple[Tensor, ...]) -> Poisoned:
    now = search.trainings.observed()
    x, y, weights = (part.clone() for part in (now.x, now.y, now.weights))
    for sample, value in zip(samples, values, strict=True):
        if isinstance(freedom, Presence):
            weights[0, sample] = value
        elif isinstance(freedom, OneOf):
            x[0, sample, list(freedom.columns)] = value
        else:
            y[0, sample] = value
    return Poisoned(x, y, weights)
