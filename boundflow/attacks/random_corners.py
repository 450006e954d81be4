"""Random corners: datasets at the edge of the threat in random directions, with the budget spent at random."""

from __future__ import annotations

from .search import Search
from .steepest import Slopes, steepest

NAME = "random-corners"
EACH = 32  # datasets for each restart


def planned(search: Search, steps: int, restarts: int, targets: int | None) -> int:
    del search, steps, targets
    return EACH * restarts


def run(search: Search, steps: int, restarts: int, targets: int | None) -> None:
    del steps, targets
    (samples, features), outputs = search.data.x.shape, search.data.y.shape[1]
    for left in range(EACH * restarts, 0, -search.size):
        count = min(left, search.size)
        shapes = (count, samples, features), (count, samples, outputs), (count, samples)
        slopes = Slopes(*(search.random(*shape) for shape in shapes))
        search.consider(steepest(search.clauses, search.data, slopes, search.random(count, samples)))
