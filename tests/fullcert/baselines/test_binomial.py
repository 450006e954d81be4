"""Clopper-Pearson bounds, against tails added up in fractions."""

from fractions import Fraction
from math import comb

import pytest

from fullcert.baselines.binomial import GRID, lower, upper


def tail(successes: int, trials: int, p: Fraction) -> Fraction:
    return sum((comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(successes, trials + 1)), Fraction(0))


@pytest.mark.parametrize("trials", [1, 7, 20])
@pytest.mark.parametrize("alpha", [Fraction(1, 1000), Fraction(1, 20)])
def test_the_bound_is_the_last_point_of_the_grid_with_a_small_tail(trials, alpha):
    assert lower(0, trials, alpha) == 0 and upper(trials, trials, alpha) == 1
    for successes in range(1, trials + 1):
        bound = lower(successes, trials, alpha)
        assert tail(successes, trials, bound) <= alpha
        assert tail(successes, trials, bound + Fraction(2, GRID)) > alpha  # and no looser than the grid


def test_too_large_a_bound_is_as_rare_as_claimed():
    trials, alpha = 12, Fraction(1, 50)
    for step in range(1, 100):
        p = Fraction(step, 100)
        wrong = [k for k in range(trials + 1) if lower(k, trials, alpha) > p]
        assert sum(comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in wrong) <= alpha


def test_bad_counts_are_refused():
    with pytest.raises(ValueError, match="counts from 0 to 3"):
        lower(4, 3, Fraction(1, 10))
