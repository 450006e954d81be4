"""A short list of samples whose checking settles predictions: a greedy choice.

An element (the lead of a class over a rival) whose bound is d below 0 is settled once checking has taken more than d
off its reach. Checking the set V takes off, in every clause with the terms t_i and at most k samples touched,

    gain(V) = sum of the k largest t_i  -  sum of the k largest t_i of samples not in V          (all of them: k = n)

Every element has candidates, those first whose checking alone takes off most, and needs so many of them. A prediction
needs as many as its worst rival; the prediction that needs the fewest is settled first, and its samples are shared by
all. The samples with the largest terms in all are the other choice, and the one that settles more is taken. Only a
choice: what is certain afterwards is answered again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

MOST = 400  # predictions that are weighed against each other: those that need least


class ClauseTerms(NamedTuple):
    """The largest terms of every element in one clause, descending, and whose they are, both (n, L)."""

    terms: np.ndarray
    owners: np.ndarray  # places among all owners
    budget: int | None

    def left(self, rank: np.ndarray, r: int) -> np.ndarray:
        """The reach of every element once the owners with a rank below r are checked."""
        stays = np.take_along_axis(rank, self.owners, 1) >= r
        if self.budget is not None:
            stays &= np.cumsum(stays, 1) <= self.budget
        found: np.ndarray = (self.terms * stays).sum(1)
        return found


class Elements(NamedTuple):
    """Undecided elements: of which prediction each is, how far below 0, its terms by clause, and its candidates."""

    prediction: np.ndarray  # (n)
    deficit: np.ndarray  # (n), not negative
    clauses: tuple[ClauseTerms, ...]
    candidates: np.ndarray  # (n, C), places among all owners, the best first

    def of(self, held: np.ndarray) -> Elements:
        clauses = tuple(ClauseTerms(part.terms[held], part.owners[held], part.budget) for part in self.clauses)
        return Elements(self.prediction[held], self.deficit[held], clauses, self.candidates[held])


def gains(elements: Elements, chosen: np.ndarray, most: int) -> np.ndarray:
    """What checking what is chosen and the first r = 0 .. most further candidates takes off each element, (n, r)."""
    rank = ranks(elements, chosen)
    untouched = np.full_like(rank, most + 1)
    before = sum(part.left(untouched, 0) for part in elements.clauses)
    found = [before - sum(part.left(rank, r) for part in elements.clauses) for r in range(most + 1)]
    return np.stack(found, 1)


def ranks(elements: Elements, chosen: np.ndarray) -> np.ndarray:
    """The place of every owner among the candidates of each element, (n, owners): -1 if it is chosen already."""
    rank = np.full((len(elements.deficit), len(chosen)), np.iinfo(np.int32).max, dtype=np.int32)
    places = np.cumsum(~chosen[elements.candidates], 1, dtype=np.int32) - 1
    np.put_along_axis(rank, elements.candidates, places, 1)
    rank[:, chosen] = -1
    return rank


def settled(elements: Elements, chosen: np.ndarray) -> np.ndarray:
    """Predictions that a choice settles, as far as terms say."""
    enough = gains(elements, chosen, 0)[:, 0] > elements.deficit
    return np.setdiff1d(elements.prediction, elements.prediction[~enough])


def choice(elements: Elements, totals: np.ndarray, budget: int) -> np.ndarray:
    """At most ``budget`` owners, by their places, in the order in which they were chosen."""
    if not len(elements.deficit) or not budget:
        return np.empty(0, dtype=np.int64)
    elements = _nearest(elements)
    largest = np.argsort(-totals, kind="stable")[:budget]
    largest = largest[totals[largest] > 0]
    cheapest = _cheapest_first(elements, len(totals), budget)
    several = [settled(elements, np.isin(np.arange(len(totals)), places)) for places in (cheapest, largest)]
    return cheapest if len(cheapest) and len(several[0]) >= len(several[1]) else largest


def _nearest(elements: Elements) -> Elements:
    """The elements of the predictions that need least, as a share of what all samples could give."""
    whole = sum(part.left(np.zeros((len(part.terms), part.owners.max() + 1)), 0) for part in elements.clauses)
    distinct, which = np.unique(elements.prediction, return_inverse=True)
    need, share = np.zeros(len(distinct)), np.full(len(which), np.inf)  # what samples cannot give, they never settle
    np.divide(elements.deficit, whole, out=share, where=np.greater(whole, 0), dtype=np.float64)
    np.maximum.at(need, which, share)
    return elements.of(np.isin(which, np.argsort(need, kind="stable")[:MOST]))


def _cheapest_first(elements: Elements, owners: int, budget: int) -> np.ndarray:
    """Settle the prediction that needs the fewest further samples, and again, while the budget lasts."""
    chosen = np.zeros(owners, dtype=bool)
    order: list[int] = []
    distinct, which = np.unique(elements.prediction, return_inverse=True)
    while len(order) < budget:
        left = budget - len(order)
        reached = gains(elements, chosen, left) > elements.deficit[:, None]
        needs = np.where(reached.any(1), reached.argmax(1), left + 1)
        of_prediction = np.zeros(len(distinct), dtype=np.int64)
        np.maximum.at(of_prediction, which, needs)
        open_ones = np.flatnonzero((of_prediction > 0) & (of_prediction <= left))
        new: list[int] = []
        for prediction in open_ones[np.argsort(of_prediction[open_ones], kind="stable")]:
            mine = np.flatnonzero(which == prediction)
            new = _together(elements.candidates, chosen, mine, needs)
            if len(new) <= left:
                break
            new = []
        if not new:
            break
        order += new
        chosen[new] = True
    return np.array(order, dtype=np.int64)


def _together(candidates: np.ndarray, chosen: np.ndarray, mine: np.ndarray, needs: np.ndarray) -> list[int]:
    """The candidates that the elements of one prediction need, each once."""
    found = (place for e in mine for place in candidates[e][~chosen[candidates[e]]][: needs[e]].tolist())
    return list(dict.fromkeys(found))
