"""What an attacker can make of a probability under bagging and flipping noise: the lemma of Neyman and Pearson, exact.

A coordinate (a feature with finitely many categories, or the label) is shown as it is with probability ``keep`` and as
each other category with probability ``swap``. Where the attacker changed a coordinate from u to v, noise shows

                         u       v       anything else
    from observed data   keep    swap    1 - keep - swap
    from poisoned data   swap    keep    1 - keep - swap

so the likelihood ratio is (keep / swap)^delta, with delta = 1, -1 or 0. A bag of e draws multiplies the ratios: its
delta is the sum over draws and changed coordinates, where a draw hits a changed sample with probability r / n. With
P(delta) the distribution from the observed data, that from poisoned data is P(-delta). An event with probability p or
more on observed data keeps at least

    lowest(p) = sum over delta, from the largest on, of P(-delta), as long as the P(delta) add up to no more than p,

the last one in part; no test of that size does worse. One number, delta, is enough, since ratios of draws differ by
nothing else; so the classes can be added up without a relaxation, in whole numbers over one denominator.

The bag is taken to show which sample each draw came from. A learner that does not look at it is a function of less,
which only helps it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property


@dataclass(frozen=True)
class Flip:
    """Noise on one coordinate: probabilities of its own category, and of each other one."""

    keep: Fraction
    swap: Fraction

    def __post_init__(self) -> None:
        if not 0 <= self.swap <= self.keep or self.keep + self.swap > 1:
            raise ValueError(f"a category is kept as often as it becomes another or more: {self.keep}, {self.swap}")

    @classmethod
    def uniform(cls, keep: float | Fraction, categories: int) -> Flip:
        """Kept, or else any other category alike."""
        return cls(Fraction(keep), (1 - Fraction(keep)) / (categories - 1))


def worst(flips: Iterable[Flip]) -> Flip:
    """A flip under which the attacker sees at least as much as under each of these.

    Of two symmetric pairs of distributions the one with ``max(0, keep - t swap)`` larger for every t >= 1 tells more
    (Blackwell), and so do products of it. These are lines that end at t = keep / swap: the largest difference at
    t = 1 and the largest ratio give a line above all.
    """
    found = list(flips)
    if any(flip.swap == 0 for flip in found):  # no noise on some coordinate: its old value and its new are told apart
        return Flip(Fraction(1), Fraction(0))
    ratio = max(flip.keep / flip.swap for flip in found)
    difference = max(flip.keep - flip.swap for flip in found)
    if ratio == 1:
        return found[0]
    swap = difference / (ratio - 1)
    return Flip(ratio * swap, swap)


@dataclass(frozen=True)
class Shifts:
    """How often each delta occurs in a bag from observed data: ``masses[delta + largest] / total``."""

    masses: tuple[int, ...]
    total: int

    @classmethod
    def of_bag(cls, draws: int, shares: Mapping[int, Fraction], flip: Flip) -> Shifts:
        """Of a bag, where ``shares[s]`` of the samples have s changed coordinates, and the rest none."""
        untouched = 1 - sum(shares.values(), Fraction(0))
        if untouched < 0 or any(share < 0 or changed < 0 for changed, share in shares.items()):
            raise ValueError(f"shares of the samples that add up to at most one, not {dict(shares)}")
        largest = max(shares, default=0)
        one = [Fraction(0)] * (2 * largest + 1)
        one[largest] = untouched
        coordinate = [flip.swap, 1 - flip.keep - flip.swap, flip.keep]
        for changed, share in shares.items():
            for delta, probability in enumerate(_power(coordinate, changed), start=-changed):
                one[largest + delta] += share * probability
        denominator = math.lcm(*(probability.denominator for probability in one))
        whole = [int(probability * denominator) for probability in one]
        return cls(tuple(_power(whole, draws)), denominator**draws)

    @cached_property
    def _sums(self) -> list[tuple[int, int]]:
        """What is added up from the largest delta on: mass from observed and from poisoned data."""
        sums, observed, poisoned = [(0, 0)], 0, 0
        for mass, mirrored in zip(reversed(self.masses), self.masses, strict=True):
            observed, poisoned = observed + mass, poisoned + mirrored
            sums.append((observed, poisoned))
        return sums

    def lowest(self, probability: Fraction | float) -> Fraction:
        """The least probability after the attack of an event with at least this probability before it."""
        wanted = min(max(Fraction(probability), Fraction(0)), Fraction(1)) * self.total
        for (before, kept), (after, more) in zip(self._sums, self._sums[1:], strict=False):
            if wanted <= after:
                part = (wanted - before) / (after - before) * (more - kept) if after > before else Fraction(0)
                return (kept + part) / self.total
        raise AssertionError("the masses add up to one")

    def highest(self, probability: Fraction | float) -> Fraction:
        """The largest probability after the attack of an event with at most this probability before it."""
        return 1 - self.lowest(1 - Fraction(probability))


def _power(polynomial: list, exponent: int) -> list:
    """A polynomial to a power, by squares."""
    result, square = [1], polynomial
    while exponent:
        if exponent & 1:
            result = _product(result, square)
        exponent >>= 1
        if exponent:
            square = _product(square, square)
    return result


def _product(first: list, second: list) -> list:
    result = [0] * (len(first) + len(second) - 1)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            result[i + j] += a * b
    return result
