"""Clopper-Pearson bounds of a probability from counts, exact.

    lower(s, N, alpha) = the largest p with  P[ Bin(N, p) >= s ] <= alpha,      upper(s, N) = 1 - lower(N - s, N)

If the true probability were below ``lower``, seeing s or more would have a chance of at most alpha. The tail grows with
p, so every p below the largest one is a bound as well: a float search finds a place on the grid of 2^-24, and whole
numbers decide whether the tail there is at most alpha. No rounding enters what is returned.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

GRID = 2**24


@cache
def lower(successes: int, trials: int, alpha: Fraction) -> Fraction:
    """A lower bound of the probability that holds with confidence 1 - alpha."""
    if not 0 <= successes <= trials or not 0 < alpha < 1:
        raise ValueError(f"{successes} of {trials} at alpha {alpha}: counts from 0 to {trials}, alpha between 0 and 1")
    if successes == 0:
        return Fraction(0)
    place = int(_guess(successes, trials, math.log(alpha.numerator) - math.log(alpha.denominator)) * GRID)
    while place > 0 and not tail_at_most(successes, trials, place, alpha):
        place -= 1
    return Fraction(place, GRID)


def upper(successes: int, trials: int, alpha: Fraction) -> Fraction:
    """An upper bound of the probability that holds with confidence 1 - alpha."""
    return 1 - lower(trials - successes, trials, alpha)


def tail_at_most(successes: int, trials: int, place: int, alpha: Fraction) -> bool:
    """Whether P[ Bin(trials, place / GRID) >= successes ] <= alpha, in whole numbers."""
    hit, miss = place, GRID - place
    if miss == 0:
        return False
    term = math.comb(trials, successes) * hit**successes * miss ** (trials - successes)
    total = term
    for count in range(successes, trials):
        term = term * (hit * (trials - count)) // (miss * (count + 1))  # a whole number again: the next term
        total += term
    return total * alpha.denominator <= alpha.numerator * GRID**trials


def _guess(successes: int, trials: int, log_alpha: float) -> float:
    """Where the tail is about alpha, by bisection on its logarithm."""
    coefficients = [
        math.lgamma(trials + 1) - math.lgamma(count + 1) - math.lgamma(trials - count + 1)
        for count in range(successes, trials + 1)
    ]
    low, high = 0.0, successes / trials
    for _ in range(40):
        middle = (low + high) / 2
        hit, miss = math.log(middle), math.log1p(-middle)
        logs = [c + (successes + i) * hit + (trials - successes - i) * miss for i, c in enumerate(coefficients)]
        largest = max(logs)
        small = largest + math.log(sum(math.exp(each - largest) for each in logs)) <= log_alpha
        low, high = (middle, high) if small else (low, middle)
    return low
