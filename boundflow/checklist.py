"""A short list of samples whose checking settles predictions: a greedy choice.

An element (the lead of a class over a rival) whose bound is d below 0 is settled once checking has taken more than d
off its reach. With the terms t_1 >= t_2 >= ... of the samples that are not chosen yet, checking the r largest takes off

    gain_r = (t_1 + ... + t_k) - (t_(r+1) + ... + t_(r+k))     at most k samples touched
    gain_r = t_1 + ... + t_r                                   all of them

so every element needs a number of further samples, and a prediction that of its worst rival. The prediction that needs
the fewest is settled first, and its samples are shared by all. The samples with the largest terms in all are the other
choice; the one that settles more is taken. Only a choice: what is certain afterwards is answered again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Elements(NamedTuple):
    """Undecided elements: of which prediction, how far below 0, and their largest terms and whose they are, sorted."""

    prediction: np.ndarray  # (n)
    deficit: np.ndarray  # (n), not negative
    terms: np.ndarray  # (n, L), descending
    owners: np.ndarray  # (n, L), places among all owners
    budget: int | None


def gains(elements: Elements, chosen: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """What checking r = 0 .. most further samples takes off the reach of each element; and these samples, in order."""
    taken = chosen[elements.owners]
    order = np.argsort(taken, axis=1, kind="stable")  # what is chosen already goes to the end
    terms = np.where(np.take_along_axis(taken, order, 1), 0.0, np.take_along_axis(elements.terms, order, 1))
    sums = np.concatenate((np.zeros((len(terms), 1)), np.cumsum(terms, 1)), 1)
    last, r = terms.shape[1], np.arange(most + 1)
    if elements.budget is None:
        found = (elements.terms * taken).sum(1, keepdims=True) + sums[:, np.minimum(r, last)]
    else:
        before = elements.terms[:, : elements.budget].sum(1, keepdims=True)
        found = before - (sums[:, np.minimum(r + elements.budget, last)] - sums[:, np.minimum(r, last)])
    return found, np.take_along_axis(elements.owners, order, 1)


def settled(elements: Elements, chosen: np.ndarray) -> np.ndarray:
    """Predictions that a choice settles, as far as terms say."""
    enough = gains(elements, chosen, 0)[0][:, 0] > elements.deficit
    return np.setdiff1d(elements.prediction, elements.prediction[~enough])


def choice(elements: Elements, totals: np.ndarray, budget: int) -> np.ndarray:
    """At most ``budget`` owners, by their places, in the order in which they were chosen."""
    if not len(elements.deficit) or not budget:
        return np.empty(0, dtype=np.int64)
    largest = np.argsort(-totals, kind="stable")[:budget]
    largest = largest[totals[largest] > 0]
    cheapest = _cheapest_first(elements, len(totals), budget)
    several = [settled(elements, np.isin(np.arange(len(totals)), places)) for places in (cheapest, largest)]
    return cheapest if len(cheapest) and len(several[0]) >= len(several[1]) else largest


def _cheapest_first(elements: Elements, owners: int, budget: int) -> np.ndarray:
    """Settle the prediction that needs the fewest further samples, and again, while the budget lasts."""
    chosen = np.zeros(owners, dtype=bool)
    order: list[int] = []
    distinct, which = np.unique(elements.prediction, return_inverse=True)
    while len(order) < budget:
        left = budget - len(order)
        found, candidates = gains(elements, chosen, left)
        reached = found > elements.deficit[:, None]
        needs = np.where(reached.any(1), reached.argmax(1), left + 1)
        of_prediction = np.zeros(len(distinct), dtype=np.int64)
        np.maximum.at(of_prediction, which, needs)
        open_ones = np.flatnonzero((of_prediction > 0) & (of_prediction <= left))
        new: list[int] = []
        for prediction in open_ones[np.argsort(of_prediction[open_ones], kind="stable")]:
            mine = np.flatnonzero(which == prediction)
            new = list(dict.fromkeys(place for e in mine for place in candidates[e, : needs[e]].tolist()))
            if len(new) <= left:
                break
            new = []
        if not new:
            break
        order += new
        chosen[new] = True
    return np.array(order, dtype=np.int64)
