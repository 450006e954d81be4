"""Where logits of training rows can go and what fits of a batch are off by, in exact fractions.

Slopes between which a secant lies are given, so that a law is about what is made of them: inverses, quadratic forms,
sums over the largest rows. Optima are exact where the loss is squared.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from exact import NORMAL, Exact, at_least, exact, norm_at_least, number, product, total
from exact_optima import DOUBLE, at_most, matrix_of, one_after_the_other, rows_of, solved, some
from torch import Tensor

from boundflow.optimum.branching import Part, _distances, _Search
from boundflow.optimum.changes import Changes, Clause
from boundflow.optimum.linearised import Gradient
from boundflow.optimum.logit_bounds import Inputs
from boundflow.optimum.logit_losses import Logistic, Squared
from boundflow.optimum.ranges import Between, Observed, Ranges
from boundflow.optimum.training_rows import Rows

NOWHERE = torch.zeros(1, 2, dtype=DOUBLE)


@dataclass
class Known(Logistic):
    """A loss whose secants have slopes that are given."""

    least: Tensor
    most: Tensor
    name: str = field(default="logistic")

    def secants(self, logits, targets, low, high):
        return self.least, self.most


def flips(labels: Tensor, budget: int | None) -> Changes:
    n = len(labels)
    allowed, every = torch.ones(n, 2, dtype=torch.bool), torch.ones(n, dtype=torch.bool)
    return Changes((Clause(every, budget, allowed),), labels, 2)


def observed(rows: Rows, loss, budget: int | None = 1, weights: Tensor | None = None, gradient=None) -> Observed:
    labels = torch.arange(len(rows)) % 2
    weights = torch.zeros(1, rows.width, dtype=DOUBLE) if weights is None else weights
    found = Observed(rows, flips(labels, budget), labels.double(), loss, weights)
    if gradient is not None:
        found.__dict__["gradient"] = gradient
    return found


def inverses(rows: Rows, least: Tensor, most: Tensor) -> tuple[Exact, Exact]:
    unit = np.vectorize(number, otypes=[object])(np.eye(rows.width))
    return tuple(solved(matrix_of(rows, slopes), unit) for slopes in (least, most))  # type: ignore[return-value]


@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("spread", [0.0, 1e-12, 0.5])
@one_after_the_other
def test_inverses_between_two_others(kind: str, spread: float) -> None:
    """``|a|_E``, with what the floats of both inverses are off by, which is charged for ``H`` as well."""
    for d, ridge in ((1, 1e-3), (3, 0.7)):
        rows = rows_of(some(kind, (12, d)), ridge)
        most = some("near one", (12, 1), 3)[:, 0].abs() * 0.25
        least = most * (1 - spread)
        middle, between = Between.of(rows, least, most)
        larger, smaller = inverses(rows, least, most)
        vectors = torch.cat((torch.eye(d, dtype=DOUBLE), some("mixed sizes", (5, d), 7)))
        a, lengths = exact(vectors), vectors.square().sum(1).sqrt() * (1 + 1e-15)
        found = exact(between.norms(vectors, lengths))
        assert norm_at_least(between.norms(vectors, lengths), total(product(a, (larger - smaller) / 2) * a, 1))
        for inverse in (larger, smaller):
            assert np.all(abs(product(product(a, inverse - exact(middle)), a.T)) <= found[:, None] * found)


@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("budget", [1, 3, None])
@pytest.mark.parametrize("part", ["labels", "gradient", "both"])
@one_after_the_other
def test_secants_hold_every_move(kind: str, budget: int | None, part: str) -> None:
    """Logits of all datasets move by ``-<x, T (g + b)>``, and T is known where both slopes are the same."""
    n = 12
    for d, ridge, seed in ((1, 1e-3, 0), (3, 0.7, 1)):
        weights = some("near one", (n, 1), seed)[:, 0].abs() * (0.0 if part == "gradient" else 1.0)
        rows = rows_of(some(kind, (n, d), seed + 1), ridge, weights)
        slopes = some("near one", (n, 1), seed + 3)[:, 0].abs() * 0.2
        value = some(kind, (1, d), seed + 4) * (part != "labels")
        given = Gradient(value, value.abs() * 2.0**-40, 0.0)
        optimum = observed(rows, Known(slopes, slopes), budget, None, given)
        found = optimum.by_secants(Ranges(NOWHERE.expand(n, 2), NOWHERE.expand(n, 2)))
        inverse = inverses(rows, slopes * weights, slopes * weights)[0]
        turned = product(exact(rows.inputs), inverse)
        tilts = product(turned, exact(rows.inputs).T) * (
            exact(weights) * exact(2 * optimum.changes.targets.double() - 1)
        )
        k, pulled = n if budget is None else budget, product(turned, exact(value).T)[:, 0]
        for side in (-1, 1):  # the ends of the ranges, as moves down and up
            terms, fixed = -side * tilts, -side * pulled
            own = np.diag(terms)
            others = terms.copy()
            np.fill_diagonal(others, number(0.0))
            ordered = np.sort(np.maximum(others, number(0.0)), 1)[:, ::-1]
            ends = [exact(ranges)[:, (side + 1) // 2] * side for ranges in (found.still, found.changed)]
            assert np.all(ends[0] >= fixed + total(ordered[:, :k], 1))
            assert np.all(ends[1] >= fixed + own + total(ordered[:, : k - 1], 1))


@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("budget", [0, 1, 3, 40, 60, None])
@pytest.mark.parametrize("error", [0.0, 0.1])
@one_after_the_other
def test_the_largest_of_other_rows(kind: str, budget: int | None, error: float) -> None:
    n = 60
    optimum = observed(rows_of(torch.ones(n, 1, dtype=DOUBLE)), Logistic(), budget)
    places = torch.arange(0, n, 7)
    terms, fixed = some(kind, (n, len(places))).T.contiguous(), some(kind, (len(places), 1), 1)[:, 0]
    off = torch.full_like(fixed, error)
    stays, changed = optimum._without_own(terms, fixed, off, places)
    k = n if budget is None else budget
    exactly = exact(terms) + number(error) if error else exact(terms)
    own = exactly[np.arange(len(places)), places.numpy()]
    others = exactly.copy()
    others[np.arange(len(places)), places.numpy()] = number(0.0)
    ordered = np.sort(np.maximum(others, number(0.0)), 1)[:, ::-1]
    assert at_least(stays, exact(fixed) + total(ordered[:, :k], 1))
    assert k == 0 or at_least(changed, exact(fixed) + own + total(ordered[:, : k - 1], 1))


# --- fits of a batch --------------------------------------------------------------------------------------------------


def exact_optimum(rows: Rows, targets: Tensor) -> Exact:
    """Of squared loss."""
    pulled = total(exact(rows.weights)[:, None] * exact(targets)[:, None] * exact(rows.inputs))
    return solved(matrix_of(rows, rows.weights), pulled[:, None])[:, 0]


@pytest.mark.parametrize("kind", NORMAL)
@one_after_the_other
def test_how_far_fits_are_from_their_optimum(kind: str) -> None:
    """``|gradient| / least eigenvalue``: reached where rows have no features."""
    for d, size in ((1, 1.0), (1, 2.0**-540), (40, 1.0)):
        n = 30
        rows = rows_of(some(kind, (n, d)) * 0, 0.7)
        of_part = observed(rows, Squared())
        weights = some(kind, (d, 3), 5).T.contiguous() * size
        targets = of_part.targets.repeat(3, 1)
        hull = torch.tensor([[-torch.inf, torch.inf]], dtype=DOUBLE)
        found = _distances(of_part, weights, targets, 0.7, hull)
        assert norm_at_least(found, total(exact(weights) ** 2, 1))
        beyond = _distances(of_part, weights, targets, 0.7, hull.clamp(-1e-300, 1e-300) * 0)
        assert bool(torch.isinf(beyond).all())


def test_leads_of_fits() -> None:
    random, above = np.random.default_rng(0), 0
    for seed in range(12):
        n, d = 7, 2
        rows = rows_of(torch.tensor(random.normal(size=(n, d))), 0.7, torch.tensor(random.uniform(0.5, 2, n)))
        first = observed(rows, Squared())
        first = Observed.of(rows, first.changes, first.targets, Squared())
        center = torch.tensor(random.normal(size=(9, d)))
        radius = None if seed % 2 else torch.tensor(random.uniform(0, 1e-3, (9, d)))
        label = torch.ones(9, dtype=torch.long)
        search = _Search(first, Inputs(center, radius), label, np.inf)
        search.order = torch.arange(n)
        left = torch.zeros(9, dtype=torch.bool)
        search._fit_each(Part((), 0, 1, torch.arange(9)), first, torch.arange(9), left)
        for row in range(n):
            targets = first.targets.clone()
            targets[row] = 1 - targets[row]
            theta = exact_optimum(rows, targets)
            lead = product(exact(center), theta[:, None])[:, 0]
            if radius is not None:
                lead = lead - product(exact(radius), abs(theta)[:, None])[:, 0]
            assert at_most(search.lead, lead)
        above += int((search.lead > -10).sum())
    assert above
