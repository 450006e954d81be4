"""What bounds optima, in exact fractions: lengths, eigenvalues, directions, gradients, sums of rows, answers.

Every law computes the formula of a docstring with rational numbers, from the very floats that are there, and asks that
the bound lies on the right side of it. Operands are chosen so that floats lose as much as they can.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from exact import ADVERSE, NORMAL, Exact, at_least, exact, norm_at_least, number, product, total
from exact_optima import DOUBLE, at_most, definite, make, matrix_of, one_after_the_other, rows_of, some
from torch import Tensor, nn

import boundflow as bf
from boundflow.optimum import fitting
from boundflow.optimum.changes import Changes, Clause
from boundflow.optimum.inverse import Directions, Inverse
from boundflow.optimum.linearised import Asked, Gradient, Linearised, Loss, largest, largest_budget
from boundflow.optimum.logit_bounds import Answers, Direction, Inputs
from boundflow.optimum.optimum_certificate import _in_coordinates
from boundflow.optimum.squared import SquaredOptimum
from boundflow.optimum.training_rows import Rows, length, up
from boundflow.tensor.lift import ball
from boundflow.threats import AtMost, Labels

UNIT = 2.0**-53


# --- lengths and eigenvalues ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("n", [1, 7, 300])
@one_after_the_other
def test_sums_of_products_are_lengthened(kind: str, n: int) -> None:
    moduli = some(kind, (n, 40)).abs()
    one_by_one = moduli[0] * moduli[0]
    for row in moduli[1:]:
        one_by_one = one_by_one + row * row
    assert at_least(up(one_by_one, n), total(exact(moduli) ** 2))


@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("n", [1, 2, 7, 60])
@one_after_the_other
def test_lengths(kind: str, n: int) -> None:
    vectors = torch.cat([some(kind, (n, 20), seed).T for seed in range(3)])
    vectors = torch.cat((vectors, vectors.abs().sqrt(), vectors * 2.0**-500, vectors[:1] * 0))
    for found in (length(vectors), rows_of(vectors).norms):
        assert norm_at_least(found, total(exact(vectors) ** 2, 1))


@pytest.mark.parametrize("count", [3, 7, 11, 49])
@one_after_the_other
def test_the_ridge_of_a_mean_objective_is_rounded(count: int) -> None:
    """``r = n l2``: a column of zeros has that very eigenvalue, and the product is a float of it."""
    for l2 in (0.1, 0.3, 1 / 3, 0.7, 1e-3):
        rows = Rows.of(torch.zeros(count, 1, dtype=DOUBLE), None, l2 * count, False, True)
        assert number(rows.least_eigenvalue(rows.weights)) <= number(l2) * count


def rising(n: int) -> Tensor:
    """A number and many small ones, each of which is rounded up wherever it is added, alone or with others."""
    found = torch.full((n,), UNIT * (1 + 1 / 15), dtype=DOUBLE)
    found[0] = 1.0
    return found


@pytest.mark.parametrize("size", [2.0**-80, 1.0, 2.0**80])
@pytest.mark.parametrize("far", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("kind", ["rising", "one sign", "swallowed", "few"])
@one_after_the_other
def test_the_least_eigenvalue_with_a_free_intercept(kind: str, far: float, size: float) -> None:
    """Rows that are all the same reach Jensen's inequality, and a ridge far from their weights the quotient."""
    n = 3 if kind == "few" else 300
    slopes = (rising(n) if kind == "rising" else some("one sign" if kind == "few" else kind, (n, 1))[:, 0].abs()) * size
    for width in (1, 2):
        inputs = torch.full((n, width), far * (1 + 9 * UNIT), dtype=DOUBLE)
        inputs[:, -1] = 0.5
        ridge = torch.tensor([0.7] * (width - 1) + [0.0], dtype=DOUBLE)
        rows = Rows(inputs, torch.ones(n, dtype=DOUBLE), ridge, torch.full((width,), 0.5, dtype=DOUBLE))
        x, s = exact(inputs[:1]), total(exact(slopes))
        matrix = x.T * x * s + np.diag(exact(ridge))
        least = number(rows.least_eigenvalue(slopes))
        assert least >= 0 and definite(matrix - np.diag([least] * width))


@one_after_the_other
def test_the_least_eigenvalue_of_columns_apart() -> None:
    """Where the mean is 0, the ridge is an eigenvalue, however much all rows count."""
    random = np.random.default_rng(0)
    for ridge, slope in random.uniform(0.5, 1.0, (150, 2)) * (1.0, 2.0**70):
        inputs, penalty = torch.tensor([[0.0, 0.5]], dtype=DOUBLE), torch.tensor([ridge, 0.0], dtype=DOUBLE)
        rows = Rows(inputs, torch.ones(1, dtype=DOUBLE), penalty, torch.full((2,), 0.5, dtype=DOUBLE))
        assert rows.least_eigenvalue(torch.tensor([slope], dtype=DOUBLE)) <= ridge


@one_after_the_other
def test_the_mean_objective_counts_samples_or_weights() -> None:
    for kind in NORMAL:
        for size in (0.01, 1.0, 30.0):
            rows = rows_of(torch.ones(500, 1, dtype=DOUBLE), weights=some(kind, (500, 1))[:, 0].abs() * size)
            assert number(rows.count) >= max(number(500), total(exact(rows.weights)))


# --- directions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("n,d", [(1, 1), (5, 3), (40, 4)])
@one_after_the_other
def test_what_directions_leave(kind: str, n: int, d: int) -> None:
    for ridge in (1e-9, 1.0):
        rows = rows_of(some(kind, (n, d)), ridge, some("near one", (n, 1))[:, 0].abs())
        inverse = Inverse(rows, rows.weights)
        asked = torch.cat((torch.eye(d, dtype=DOUBLE), some(kind, (3, d), 5)))
        found, matrix = inverse.of(asked), matrix_of(rows, rows.weights)
        left = exact(asked) - product(exact(found.vectors), matrix)
        assert norm_at_least(found.left, total(left**2, 1))
        assert norm_at_least(found.lengths, total(exact(found.vectors) ** 2, 1))
        assert norm_at_least(inverse.moduli, np.diag(matrix))


@one_after_the_other
def test_directions_of_a_matrix_without_an_inverse() -> None:
    """The vectors are zero, so everything is left, and its squares may underflow."""
    rows = rows_of(torch.ones(2, 3, dtype=DOUBLE), 0.0)
    inverse = Inverse(rows, torch.zeros(2, dtype=DOUBLE))
    assert inverse.singular
    asked = torch.cat([some(kind, (20, 3)) * size for kind in ADVERSE for size in (1.0, 1e-160, 1e-170)])
    found = inverse.of(asked)
    assert norm_at_least(found.left, total(exact(asked) ** 2, 1))


# --- the gradient that weights leave ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("n,d", [(1, 1), (30, 5)])
@one_after_the_other
def test_logits_of_given_weights(kind: str, n: int, d: int) -> None:
    for seed in range(4):
        rows, weights = rows_of(some(kind, (d, n), seed).T.contiguous()), some(kind, (d, 2), seed + 9).T.contiguous()
        for given in (weights, weights * 2.0**-540):
            logits, error = fitting.logits_of(rows, given)
            assert at_least(error, abs(exact(logits) - product(exact(rows.inputs), exact(given).T)))


@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("n,d", [(1, 1), (3, 1), (60, 3)])
@one_after_the_other
def test_the_gradient_that_weights_leave(kind: str, n: int, d: int) -> None:
    """Of derivatives that are known, and of such that are off by so much to the side that adds most."""
    for seed, case in itertools.product(range(3), ((1, 0, 1), (1, 2.0**-52, 1), (0, 1, 1), (1, 0, 2.0**-1040))):
        known, off = case[0] * case[2], case[1]
        rows = rows_of(some(kind, (n, d), seed), 0.3, some("near one", (n, 1), seed)[:, 0].abs())
        weights, slopes = some("near one", (1, d), seed + 1) * known, some(kind, (n, 1), seed + 2) * known
        away = some(kind, (n, 1), seed + 3).abs() * off
        found = fitting.left(rows, slopes, away, weights)
        w, x = exact(rows.weights)[:, None], exact(rows.inputs)
        true = total(w * exact(slopes) * x) + exact(rows.ridge) * exact(weights)[0]
        assert at_least(found.error[0], abs(true - exact(found.value)[0]) + total(w * exact(away) * abs(x)))


@pytest.mark.parametrize("kind", NORMAL)
@one_after_the_other
def test_the_gradient_of_squared_loss(kind: str) -> None:
    for seed in range(20):
        n = 2
        rows = rows_of(some(kind, (n, 1), seed), 0.3)
        targets, given = some(kind, (n, 1), seed + 30) * 1e3, some("near one", (1, 1), seed)
        found = SquaredOptimum.of(rows, no_changes(n), targets, given).exact.gradient
        x = exact(rows.inputs)
        true = total((product(x, exact(given).T) - exact(targets)) * x) + number(0.3) * exact(given)[0]
        assert at_least(found.error, abs(exact(found.value) - true))


# --- sums over rows ---------------------------------------------------------------------------------------------------


def no_changes(n: int) -> Changes:
    return Changes((), torch.zeros(n, dtype=DOUBLE), None)


def numbers(radius: Tensor, budget: int | None) -> Changes:
    """Targets that are numbers, each off by a radius."""
    return Changes((Clause(torch.ones(len(radius), dtype=torch.bool), budget, radius=radius),), radius * 0, None)


def linear_of(
    rows: Rows, changes: Changes, missed: tuple[Tensor, Tensor] | None = None, gradient: Gradient | None = None
) -> Linearised:
    n, d = rows.inputs.shape
    none = torch.zeros(1, d, dtype=DOUBLE)
    slopes = rows.weights if missed is None else torch.zeros(n, dtype=DOUBLE)
    gradient = Gradient(none, none, 0.0) if gradient is None else gradient
    return Linearised(rows, changes, Inverse(rows, slopes), gradient, *(missed or ()))


@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("d", [1, 6])
@one_after_the_other
def test_coefficients_of_rows(kind: str, d: int) -> None:
    """``w_i <v, x_i>``, in units of ``w_i |x_i|``."""
    for seed, least in itertools.product(range(3), (1.0, 2.0**-300)):
        weights = some("near one", (20, 1), seed)[:, 0].abs() * least
        inputs = some(kind if kind in NORMAL else "mixed sizes", (d, 20), seed).T.contiguous() * least**1.9
        rows = rows_of(inputs, 1.0, weights)
        found = linear_of(rows, no_changes(20)).asked(some(kind, (d, 4), seed + 3).T.contiguous() * least**0.9)
        x, v = exact(rows.inputs), exact(found.directions.vectors)
        off = exact(found.weighted) - exact(weights) * product(v, x.T)
        unit = exact(weights) ** 2 * total(x**2, 1)
        assert np.all(exact(found.error)[:, None] ** 2 * unit >= off**2)


@pytest.mark.parametrize("kind", NORMAL)
@one_after_the_other
def test_what_rows_with_other_targets_add(kind: str) -> None:
    radius = some(kind, (200, 1))[:, 0].abs()
    missed = torch.sort(some(kind, (200, 2), 1), 1).values
    linear = linear_of(rows_of(torch.ones(200, 1, dtype=DOUBLE)), numbers(radius, 2), (missed, missed))
    for sign in (1.0, -1.0):
        low, high = linear.moves(linear.changes.clauses[0], torch.tensor([sign], dtype=DOUBLE))
        ends = exact(missed) if sign > 0 else -exact(missed)[:, ::-1]
        assert at_most(low, ends[:, 0] - exact(radius)) and at_least(high, ends[:, 1] + exact(radius))


@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("budget", [1, 3, 100, None])
@one_after_the_other
def test_sums_of_the_largest_terms(kind: str, budget: int | None) -> None:
    terms = some(kind, (200, 10)).T.contiguous().abs()
    ordered = np.sort(exact(terms), 1)[:, ::-1]
    assert at_least(largest(terms, budget), total(ordered[:, : budget or terms.shape[1]], 1))


@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("share", [2.0**-60, 1.0])
@one_after_the_other
def test_the_largest_budget_leaves_room(kind: str, share: float) -> None:
    terms = some(kind, (30, 12)).T.contiguous().abs()
    error, fixed = some(kind, (12, 1), 1)[:, 0].abs() * share, some(kind, (12, 1), 2)[:, 0]
    ordered = np.sort(exact(terms), 1)[:, ::-1]
    taken = [exact(fixed) + total(ordered[:, :k], 1) + k * exact(error) for k in range(31)]
    for k in (0, 1, 4, 30):
        exactly = np.sort(terms.numpy(), 1)[:, ::-1][:, :k]
        for step in range(-2, 3):  # floats around the room that is just enough
            room = fixed + torch.tensor(exactly.sum(1)) + k * error
            room = torch.nextafter(room, torch.full_like(room, np.inf if step > 0 else -np.inf)) if step else room
            loss = Loss(fixed, [terms], error)
            found = largest_budget(loss, terms, room, 30)
            assert all(k < 0 or taken[k][row] < number(float(room[row])) for row, k in enumerate(found.tolist()))


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", NORMAL)
@one_after_the_other
def test_what_is_left_of_a_lead(kind: str) -> None:
    value, charge, down = (some(kind, (300, 1), seed)[:, 0] for seed in range(3))
    charge, down = charge.abs(), down * 0.3
    wanted = exact(value) - exact(charge) - exact(down)
    assert at_most(Direction(value, charge, down).lower, wanted)


# --- how far an optimum is --------------------------------------------------------------------------------------------

ONE = torch.ones(1, dtype=DOUBLE)


@pytest.mark.parametrize("kind", [*NORMAL, "squares"])
@pytest.mark.parametrize("d", [1, 200])
@pytest.mark.parametrize("part", ["value", "error", "tolerance"])
@one_after_the_other
def test_a_gradient_moves_the_optimum(kind: str, d: int, part: str) -> None:
    """``|Delta| <= |g| / least eigenvalue``: with a ridge alone that is so, and reached along one column."""
    for seed, size in itertools.product(range(2), (1.0, 2.0**-560)):
        none, some_of, tolerance = torch.zeros(1, d, dtype=DOUBLE), make(kind, (1, d), seed).abs() * size, 0.0
        gradient = Gradient(*(some_of if name == part else none for name in ("value", "error")), 0.0)
        rows = rows_of(torch.zeros(1, d, dtype=DOUBLE), 0.7)
        if part == "tolerance":
            tolerance, rows = 1.0, Rows(rows.inputs, rows.weights, rows.ridge, some_of[0])
        linear = linear_of(rows, no_changes(1), None, gradient._replace(tolerance=tolerance))
        linear.inverse.least = 0.7
        squares = total(exact(some_of)[0] ** 2)
        reach, far = number(linear.reach(ONE)), number(linear.distance(ONE))
        assert reach**2 * number(0.7) >= squares
        assert far**2 * number(0.7) >= reach**2


@pytest.mark.parametrize("kind", NORMAL)
@one_after_the_other
def test_rows_move_the_optimum(kind: str) -> None:
    """Many clauses of one row each: what each can do is added up, and so is what slopes miss."""
    for missing in (False, True):
        n = 300
        radius, none = some(kind, (n, 1))[:, 0].abs(), torch.zeros(n, 2, dtype=DOUBLE)
        clauses = tuple(Clause(torch.arange(n) == row, 1, radius=radius) for row in range(0 if missing else n))
        rows = rows_of(torch.ones(n, 1, dtype=DOUBLE))
        missed = torch.stack((-radius, radius), 1) if missing else none
        linear = linear_of(rows, Changes(clauses, radius * 0, None), (missed, none))
        linear.inverse.least, linear.inverse.slopes = 1.0, torch.zeros(n, dtype=DOUBLE)
        assert number(linear.reach(ONE)) >= total(exact(radius))


@one_after_the_other
def test_rows_are_as_long_as_their_slopes_say() -> None:
    """``w |x|`` in the norm of M^-1 is at most ``w / sqrt(w m)``."""
    for kind in NORMAL:
        slopes, weights = (some(kind, (200, 1), seed)[:, 0].abs() for seed in range(2))
        linear = linear_of(rows_of(torch.ones(200, 1, dtype=DOUBLE), 1.0, weights), no_changes(200))
        linear.inverse.least, linear.inverse.slopes = 1e-300, slopes
        assert norm_at_least(linear._pulls, exact(weights) ** 2 / exact(slopes))


@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("part", ["value", "error", "tolerance"])
@pytest.mark.parametrize("d", [1, 150])
@one_after_the_other
def test_what_is_down_in_any_case(kind: str, d: int, part: str) -> None:
    """``<v, g>``, the error of g, and what the tolerance of a solver allows."""
    none = torch.zeros(1, d, dtype=DOUBLE)
    for seed, size in itertools.product(range(2), (1.0, 2.0**-560)):
        given = some(kind, (d, 1), seed + 1).T * size
        rows = rows_of(torch.zeros(1, d, dtype=DOUBLE), 0.7)
        if part == "tolerance":
            rows = Rows(rows.inputs, rows.weights, rows.ridge, given[0].abs())
        gradient = Gradient(
            given if part == "value" else none, given.abs() if part == "error" else none, float(part == "tolerance")
        )
        vectors = some(kind, (d, 12), seed + 7).T.contiguous()
        lengths = vectors.square().sum(1).sqrt() * (1 + 1e-15)
        found = linear_of(rows, no_changes(1), None, gradient).fixed(Directions(vectors, lengths, lengths * 0), ONE)
        v, g = exact(vectors), exact(given).T
        assert at_least(found, product(v, g)[:, 0] if part == "value" else product(abs(v), abs(g))[:, 0])


@one_after_the_other
def test_gradients_along_a_direction() -> None:
    for kind in NORMAL:
        value, error = some(kind, (3, 100)), some(kind, (3, 100), 1).abs()
        for of_value, of_error in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)):
            gradient = Gradient(value * of_value, error * of_error, 0.0)
            linear = linear_of(rows_of(torch.zeros(1, 100, dtype=DOUBLE)), no_changes(1), None, gradient)
            found, off = linear._along(torch.tensor([1.0, 0.0, -1.0], dtype=DOUBLE))
            g, e = exact(gradient.value), exact(gradient.error)
            assert at_least(off, abs(exact(found) - (g[0] - g[2])) + e[0] + e[2])


def asked_with(linear: Linearised, weighted: Tensor, error: float) -> Asked:
    """Coefficients as they are given, of directions that are nothing."""
    none = torch.zeros(len(weighted), 1, dtype=DOUBLE)
    off = none[:, 0] + error
    return Asked(Directions(none, none[:, 0], none[:, 0]), weighted, off, linear._missed_along(weighted, off))


def most_of(coefficients: Exact, low: Exact, high: Exact) -> Exact:
    return np.maximum(coefficients * low, coefficients * high)


@pytest.mark.parametrize("kind", [*NORMAL, "swallowed and subnormal"])
@pytest.mark.parametrize("error", [0.0, 2.0**-40, 1.0])
@one_after_the_other
def test_what_slopes_miss_is_added_up(kind: str, error: float) -> None:
    n, size = 200, 1.0
    if kind not in NORMAL:
        kind, size = "swallowed", 2.0**-1030
    missed = torch.sort(some(kind, (n, 2), 1).abs(), 1).values
    rows, weighted = rows_of(some("near one", (n, 1))), some("near one", (n, 4), 4).T.contiguous() * size
    linear = linear_of(rows, no_changes(n), (missed, missed))
    for sign in (1.0, -1.0):
        loss = linear.loss(asked_with(linear, weighted, error), torch.tensor([sign], dtype=DOUBLE))
        ends = exact(missed) if sign > 0 else -exact(missed)[:, ::-1]
        off = abs(exact(rows.inputs)[:, 0]) * number(error)
        still = [most_of(exact(weighted) + side * off, ends[:, 0], ends[:, 1]) for side in (-1, 1)]
        assert at_least(loss.fixed, total(np.maximum(*still), 1))


@pytest.mark.parametrize("kind", NORMAL)
@one_after_the_other
def test_what_rows_with_other_targets_take(kind: str) -> None:
    """Clause by clause the largest, and each of them off by its error."""
    n = 90
    radius, weighted = some(kind, (n, 1))[:, 0].abs(), some("near one", (n, 4), 4).T.contiguous()
    rows, c, r = rows_of(torch.ones(n, 1, dtype=DOUBLE)), abs(exact(weighted)), exact(radius)
    single = Changes(tuple(Clause(torch.arange(n) == row, 1, radius=radius) for row in range(n)), radius * 0, None)
    for changes, count in ((numbers(radius, 3), 3), (numbers(radius, None), n), (single, n)):
        linear = linear_of(rows, changes)
        for error in (0.0, 2.0**-40, 1.0):
            found = linear.most(linear.loss(asked_with(linear, weighted, error), ONE))
            ordered = np.sort((c + number(error) if error else c) * r, 1)[:, ::-1]
            assert at_least(found, total(ordered[:, :count], 1))


@one_after_the_other
def test_terms_that_underflow() -> None:
    for size in (2.0**-1000, 2.0**-1040, 2.0**-1070):
        weighted = some("mixed sizes", (8, 60)) * size
        rows, radius = rows_of(torch.ones(60, 1, dtype=DOUBLE)), torch.full((60,), 0.3, dtype=DOUBLE)
        linear = linear_of(rows, numbers(radius, None))
        wanted = total(abs(exact(weighted)), 1) * number(0.3)
        assert at_least(linear.most(linear.loss(asked_with(linear, weighted, 0.0), ONE)), wanted)
        missing = linear_of(rows, no_changes(60), (torch.stack((-radius, radius), 1),) * 2)
        assert at_least(missing.loss(asked_with(missing, weighted, 0.0), ONE).fixed, wanted)


# --- answers ----------------------------------------------------------------------------------------------------------


@dataclass
class Given:
    """An optimum as it is given, with a linearisation that nothing moves."""

    rows: Rows
    weights: Tensor
    linear_: Linearised

    def linear(self, budget: int | None) -> Linearised:
        return self.linear_


def answers_of(weights: Tensor, ridge: float = 0.7) -> Answers:
    rows = rows_of(torch.zeros(1, weights.shape[1], dtype=DOUBLE), ridge)
    linear = linear_of(rows, no_changes(1), None, Gradient(weights * 0, weights * 0, 0.0))
    return Answers(Given(rows, weights, linear), None)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [*NORMAL, "squares"])
@pytest.mark.parametrize("of_inputs,of_weights", [(1.0, 1.0), (2.0**-560, 1.0), (1.0, 2.0**-560)])
@one_after_the_other
def test_leads_of_points_and_boxes(kind: str, of_inputs: float, of_weights: float) -> None:
    """Of exact logits, and of those that a plain model computes, one term after the other."""
    d = 100
    center, weights = make(kind, (6, d), 0) * of_inputs, make(kind, (2, d), 1) * of_weights
    q = torch.tensor([1.0, -1.0], dtype=DOUBLE)
    a, w, plain = exact(center), exact(weights), exact(center @ weights.T)
    answers = answers_of(weights, 2.0**600)  # whose optimum does not move
    found = answers.direction(Inputs(center), answers.asked(Inputs(center)), q)
    assert at_most(found.lower, product(a, (w[0] - w[1])[:, None])[:, 0])
    assert at_most(found.lower, plain[:, 0] - plain[:, 1])
    boxes, answers = Inputs(center * 0, center.abs()), answers_of(weights * 0)
    answers._moduli[tuple(q.tolist())] = weights[0].abs()
    found = answers.direction(boxes, answers.asked(boxes), q)
    assert at_most(found.lower, -product(abs(a), abs(w[0])[:, None])[:, 0])


def test_the_gradient_of_both_logits_moves_them() -> None:
    """Given weights of 0: both logits of the optimum are large, and a plain model rounds each of them."""
    value = torch.tensor([[-0.7], [-0.7]], dtype=DOUBLE)
    rows, gradient = rows_of(torch.zeros(1, 1, dtype=DOUBLE), 0.7), Gradient(value, value * 0, 0.0)
    linear = linear_of(rows, no_changes(1), None, gradient)
    assert linear.distance(torch.tensor([1.0, -1.0], dtype=DOUBLE)) >= 2.0


def test_leads_are_no_more_than_differences_of_bounds() -> None:
    random = np.random.default_rng(0)
    x, test = (torch.tensor(random.normal(size=(n, 3))) for n in (30, 60))
    y = torch.arange(30) % 3
    found = bf.certify_optimum(nn.Linear(3, 3), (x, y), threat=AtMost(2, Labels()), l2=0.1).predict(test)
    low, high, lead = exact(found.lower), exact(found.upper), exact(found.lead)  # type: ignore[arg-type]
    label = found.lower.argmax(1).numpy()
    for c in range(3):
        others = np.delete(high, c, 1).max(1)
        assert np.all((lead[:, c] <= low[:, c] - others)[(label != c) & (found.label.numpy() != c)])


def test_boxes_of_inputs_hold_both_ends() -> None:
    random = np.random.default_rng(1)
    low = torch.tensor(random.normal(size=(500, 1)))
    moved = SimpleNamespace(lower=low, upper=low + torch.tensor(random.uniform(0, 3, (500, 1))))
    rows = Rows.of(torch.ones(2, 1, dtype=DOUBLE), None, 1.0, False, True)
    found = _in_coordinates(Given(rows, low, None), low, moved)  # type: ignore[arg-type]
    assert found.radius is not None
    for end in (moved.lower, moved.upper):
        assert at_least(found.radius, abs(exact(end) * number(float(rows.scale)) - exact(found.center)))


def test_targets_move_by_what_was_written() -> None:
    random = np.random.default_rng(2)
    targets = torch.tensor(random.normal(size=500))
    for epsilon in (0.1, 1.0, 1e-3, 7.3):
        (clause,) = Changes.of(AtMost(1, Labels(epsilon)), targets, None).clauses
        assert clause.radius is not None
        y, moved = exact(targets), exact(ball(targets, epsilon).set.bounds)
        assert at_least(clause.radius, np.maximum(y - moved[0], moved[1] - y))
        assert at_least(clause.radius, np.full(500, number(epsilon), dtype=object))
