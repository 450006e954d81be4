"""Where logits of training rows can go and what fits of a batch are off by, in exact fractions.

Slopes between which a secant lies are given, so that a law is about what is made of them: inverses, quadratic forms,
sums over the largest rows. Optima are exact where the loss is squared.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from unittest import mock

import numpy as np
import pytest
import torch
from exact import NORMAL, Exact, at_least, exact, norm_at_least, number, product, total
from exact_optima import (
    DOUBLE,
    at_most,
    bend,
    make,
    matrix_of,
    one_after_the_other,
    rows_of,
    solved,
    some,
    with_many_bits,
)
from torch import Tensor

from boundflow.optimum import branching
from boundflow.optimum.branching import Fits, _distances, _Search
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


@pytest.mark.parametrize("part,size", [("error", 1.0), ("error", 2.0**-541), ("tolerance", 1.0)])
@one_after_the_other
def test_secants_of_a_gradient_that_is_not_known(part: str, size: float) -> None:
    """Rows that do not count leave the ridge alone, and a gradient along a row moves its logit furthest."""
    long, none = make("squares", (1, 120)), torch.zeros(1, 120, dtype=DOUBLE)
    rows = Rows(long, torch.zeros(1, dtype=DOUBLE), torch.full((120,), 0.7, dtype=DOUBLE), long[0])
    given = Gradient(none, long * size, 0.0) if part == "error" else Gradient(none, none, 1.0)
    optimum = observed(rows, Known(torch.ones(1, dtype=DOUBLE), torch.ones(1, dtype=DOUBLE)), 1, None, given)
    found = optimum.by_secants(Ranges(NOWHERE, NOWHERE))
    furthest = total(exact(long)[0] * exact(long * size)[0]) / number(0.7)
    assert at_least(found.still[:, 1], furthest) and at_most(found.still[:, 0], -furthest)


@pytest.mark.parametrize("size", [1.0, 2.0**-541])
@one_after_the_other
def test_secants_at_the_ends_of_their_slopes(size: float) -> None:
    for d, seed in ((1, 0), (3, 1), (3, 2)):
        rows, most = rows_of(some("mixed sizes", (8, d), seed), 0.3), some("near one", (8, 1), seed)[:, 0].abs()
        value = some("near one", (1, d), seed + 1) * size
        optimum = observed(rows, Known(most * 1e-3, most), 1, None, Gradient(value, value * 0, 0.0))
        found = optimum.by_secants(Ranges(NOWHERE.expand(8, 2), NOWHERE.expand(8, 2)))
        for inverse in inverses(rows, most * 1e-3, most * 0.25):
            moved = -product(product(exact(rows.inputs), inverse), exact(value).T)[:, 0]
            assert at_most(found.still[:, 0], moved) and at_least(found.still[:, 1], moved)


@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("budget", [0, 1, 3, 40, 60, None])
@pytest.mark.parametrize("error,size", [(0.0, 1.0), (0.1, 1.0), (0.0, 2.0**-30)])
@one_after_the_other
def test_the_largest_of_other_rows(kind: str, budget: int | None, error: float, size: float) -> None:
    n = 60
    optimum = observed(rows_of(torch.ones(n, 1, dtype=DOUBLE)), Logistic(), budget)
    places = torch.arange(0, n, 7)
    terms, fixed = some(kind, (n, len(places))).T.contiguous() * size, some(kind, (len(places), 1), 1)[:, 0]
    off = torch.full_like(fixed, error)
    mine = terms.gather(1, places[:, None])[:, 0]
    stays, changed = optimum._without_own(terms.clamp_min(0.0), mine, fixed, off, places)
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


EVERYWHERE = torch.tensor([[-torch.inf, torch.inf]], dtype=DOUBLE)


def distances(rows: Rows, weights: Tensor, targets: Tensor, least: float, tolerance: float = 0.0) -> Tensor:
    of_part = replace(observed(rows, Squared()), tolerance=tolerance)
    return _distances(of_part, Fits.of(of_part, weights, targets.expand(len(weights), len(rows))), least, EVERYWHERE)


@one_after_the_other
def test_how_far_fits_are_from_their_optimum() -> None:
    """``|gradient| / least eigenvalue``, and the tolerance of solvers, where that is reached."""
    bare, long = rows_of(torch.zeros(3, 200, dtype=DOUBLE), 0.7), make("squares", (1, 200))
    none = torch.zeros(3, dtype=DOUBLE)
    for weights in (long, long * 2.0**-540):
        assert norm_at_least(distances(bare, weights, none, 0.7), total(exact(weights) ** 2, 1))
    scaled = Rows(bare.inputs, bare.weights, bare.ridge, long[0])
    idle = distances(scaled, long * 0, none, 0.5, 0.3)
    assert norm_at_least(idle * 0.5, total((3 * number(0.3) * exact(long)) ** 2, 1))
    of_part = observed(bare, Squared())
    assert bool(torch.isinf(_distances(of_part, Fits.of(of_part, long, none[None]), 0.7, NOWHERE)).all())


@one_after_the_other
def test_the_gradient_of_fits() -> None:
    """Of logits that cancel, and of rows that are swallowed one after the other."""
    many, two = torch.full((1500, 1), 1.9 * 2.0**-53, dtype=DOUBLE), torch.full((1, 1), 2.0, dtype=DOUBLE)
    many[0] = 1.0
    opposite = torch.tensor([[1e8, -1e8]], dtype=DOUBLE)
    near = [(make("near one", (4, 2), s).abs(), opposite * make("near one", (1, 2), s + 20).abs()) for s in range(8)]
    for inputs, weights in ((many, two), *near):
        rows, targets = rows_of(inputs, 2.0**-20), -torch.ones(len(inputs), dtype=DOUBLE)
        slopes = product(exact(inputs), exact(weights).T)[:, 0] + 1
        gradient = total(slopes[:, None] * exact(inputs)) + number(2.0**-20) * exact(weights)[0]
        assert norm_at_least(distances(rows, weights, targets, 1.0), np.array([total(gradient**2)]))


def leads(weights: Tensor, off: Tensor, center: Tensor, radius: Tensor | None) -> Tensor:
    """What branching makes of fits that are off by so much."""
    m, rows = len(center), rows_of(torch.zeros(2, weights.shape[1], dtype=DOUBLE))
    label = torch.ones(m, dtype=torch.long)
    search = _Search(observed(rows, Squared()), Inputs(center, radius), label, np.inf)
    with mock.patch.object(branching, "_distances", lambda *_: off):
        targets, points = torch.zeros(1, 2, dtype=DOUBLE), torch.arange(m)
        lead, around = search._leads(search.observed, weights, targets, (1.0, EVERYWHERE), points)[:2]
    return (lead - around)[:, 0]


@pytest.mark.parametrize("kind", [*NORMAL, "squares"])
@pytest.mark.parametrize("size", [1.0, 2.0**-560])
@one_after_the_other
def test_leads_of_fits(kind: str, size: float) -> None:
    d, none = 150, torch.zeros(1, dtype=DOUBLE)
    center, weights = make(kind, (6, d), 0) * size, make(kind, (1, d), 1)
    w, a = exact(weights)[0], exact(center)
    for wide, long in ((center, weights), (center / size, weights * size)):
        exactly = product(exact(wide), exact(long).T)[:, 0]
        assert at_most(leads(long, none, wide, None), exactly)
    radius = center.abs()
    assert at_most(leads(weights, none, center * 0, radius), -product(abs(a), abs(w)[:, None])[:, 0])
    found = leads(weights * 0, none + 0.3, center, None)
    assert bool((found <= 0).all()) and norm_at_least(-found, number(0.3) ** 2 * total(a**2, 1))


@with_many_bits
def test_slopes_between_the_optima_of_a_part() -> None:
    """With a free intercept alone, the least eigenvalue is the least slope, and moves may be far."""
    for far in (0.3, 30.7, 290.3, 333.3, 411.7, 590.1):

        @dataclass(frozen=True)
        class Moved(Observed):
            def ranges(self, far: float = far) -> Ranges:
                ends = torch.tensor([[-0.1, far]], dtype=DOUBLE)
                return Ranges(ends, ends)

        column = torch.full((1, 1), 0.5, dtype=DOUBLE)
        rows = Rows(column, torch.ones(1, dtype=DOUBLE), torch.zeros(1, dtype=DOUBLE), column[0])
        first = observed(rows, Logistic())
        least, hull = _Search._least(Moved(*(getattr(first, f.name) for f in fields(first))))
        assert float(hull[0, 1]) > far
        assert bool(number(least) <= bend(number(float(hull[0, 1]))) / 4)
