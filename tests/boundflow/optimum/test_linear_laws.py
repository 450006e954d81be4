"""What a linearisation bounds, in exact fractions: reached by the worst dataset and the worst that its slopes miss."""

from __future__ import annotations

import pytest
import torch
from flint import fmpq, fmpq_mat

from boundflow.optimum.changes import Changes
from boundflow.optimum.inverse import Inverse
from boundflow.optimum.linearised import Gradient, Linearised
from boundflow.optimum.logit_losses import Logistic
from boundflow.optimum.many_rows import Kept, moved
from boundflow.optimum.ranges import OUTWARDS, Observed
from boundflow.optimum.training_rows import Rows
from boundflow.threats import AtMost, Labels

ROWS, WIDTH, CASES = 9, 3, 12


def exact(value: float) -> fmpq:
    return fmpq(*float(value).as_integer_ratio())


def lines(values: torch.Tensor) -> list[list[fmpq]]:
    return [[exact(value) for value in row] for row in values.tolist()]


class Problem:
    """Rows, slopes and what they miss, as floats and as fractions."""

    def __init__(self, seed: int, k: int, free: bool, points: bool = False):
        generator = torch.Generator().manual_seed(seed)

        def drawn(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        weights = drawn(ROWS).abs() + 0.1
        self.rows = Rows.of(drawn(ROWS, WIDTH - 1) * 3, weights, 0.7, True, not free)
        self.targets = (drawn(ROWS) > 0).long()
        self.changes = Changes.of(AtMost(k, Labels()), self.targets, 2)
        self.slopes, self.k = (0.05 + 0.2 * torch.rand(ROWS, generator=generator, dtype=torch.float64)), k
        middle, reach = (
            0.3 * drawn(ROWS),
            0.2 * drawn(2, ROWS).abs() * (torch.tensor([1.0, 0.0 if points else 1.0]))[:, None],
        )
        self.still = torch.stack((middle - reach[0], middle + reach[0]), 1)
        self.changed = torch.stack((middle - reach[1], middle + reach[1]), 1)
        self.gradient = Gradient(0.1 * drawn(1, WIDTH), torch.zeros(1, WIDTH, dtype=torch.float64), 0.0)
        inverse = Inverse(self.rows, self.slopes * weights)
        self.linear = Linearised(self.rows, self.changes, inverse, self.gradient, self.still, self.changed)
        self.x, (self.s,), (self.w,) = lines(self.rows.inputs), lines(inverse.slopes[None]), lines(weights[None])
        matrix = [
            [sum(s * x[p] * x[q] for s, x in zip(self.s, self.x, strict=True)) for q in range(WIDTH)]
            for p in range(WIDTH)
        ]
        for p, ridge in enumerate(lines(self.rows.ridge[None])[0]):
            matrix[p][p] += ridge
        self.matrix = fmpq_mat(matrix)

    def worst(self, asked: list[fmpq], side: int, own: int | None = None, differs: bool = False) -> fmpq:
        """The furthest that a direction goes down; ``own``: a row whose target stands, or ``differs``."""
        v = self.matrix.solve(fmpq_mat([[a] for a in asked])).entries()
        found = sum(side * a * b for a, b in zip(v, lines(self.gradient.value)[0], strict=True))
        terms = []
        for i, (x, w, still, changed) in enumerate(
            zip(self.x, self.w, lines(self.still), lines(self.changed), strict=True)
        ):
            weighted = side * w * sum(a * b for a, b in zip(v, x, strict=True))
            stands = max(weighted * e for e in still)
            found += stands
            term = max(weighted * (2 * int(self.targets[i]) - 1 + e) for e in changed) - stands
            if i != own:
                terms.append(max(term, fmpq(0)))
            elif differs:
                found += term
        count = self.k - (own is not None and differs)
        return found + sum(sorted(terms)[len(terms) - count :], fmpq(0))


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("seed", range(CASES))
def test_directions_go_no_further_and_that_far(seed: int, free: bool) -> None:
    problem = Problem(seed, 1 + seed % 3, free)
    inputs = torch.randn(6, WIDTH, generator=torch.Generator().manual_seed(seed + 100), dtype=torch.float64)
    asked = problem.linear.asked(inputs)
    for side in (1, -1):
        found = problem.linear.most(problem.linear.loss(asked, torch.tensor([side], dtype=torch.float64)))
        for bound, a in zip(found.tolist(), lines(inputs), strict=True):
            worst = problem.worst(a, side)
            assert worst <= exact(bound) <= worst + abs(worst) / 10**9 + fmpq(1, 10**9)


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("seed", range(CASES))
def test_rows_go_no_further_whether_their_target_stands_or_differs(seed: int, many: bool) -> None:
    """By chords as far as that; with directions that were kept further, for whatever slopes these were made."""
    problem = Problem(seed, 1 + seed % 2, bool(seed % 2), points=bool(seed % 3))
    observed = Observed(problem.rows, problem.changes, problem.targets.double(), Logistic(), problem.gradient.value)
    ranges = observed._swept(problem.linear)
    if many:
        other = Inverse(problem.rows, problem.slopes * problem.rows.weights * (1.0 if seed % 4 else 0.8))
        none = Gradient(torch.zeros(1, WIDTH, dtype=torch.float64), torch.zeros(1, WIDTH, dtype=torch.float64), 0.0)
        tops = observed._swept(Linearised(problem.rows, problem.changes, other, none))
        kept = Kept(other.of(problem.rows.inputs), *(ends * OUTWARDS.to(ends) for ends in tops))
        ranges = type(ranges)(*(ends * OUTWARDS.to(ends) for ends in moved(problem.linear, kept)))
    for row in range(ROWS):
        for differs, ends in ((False, ranges.still), (True, ranges.changed)):
            for side, end in ((1, -ends[row, 0]), (-1, ends[row, 1])):
                worst, bound = problem.worst(problem.x[row], side, row, differs), exact(end)
                assert worst <= bound
                assert many or bound <= worst + abs(worst) / 10**9 + fmpq(1, 10**9)
