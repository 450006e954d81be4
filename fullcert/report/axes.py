"""An axis: which round numbers to label, and where a value lies between its two ends.

A linear axis is labelled at multiples of 1, 2 or 5 times a power of ten, a logarithmic one at powers of ten. Values
that span decades get a logarithmic axis; a zero among them, which has no logarithm, gets a place of its own before the
others.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fullcert.system import numbers_as_text

SPAN = 50.0  # the largest value over the smallest from which on an axis is logarithmic
LIMIT = 1e300  # further out differences would overflow
LEAST = 1e-300  # nearer to each other a step between two values would be no number
ZERO = 0.14  # of the axis lies between zero and the smallest value on a logarithmic axis


@dataclass(frozen=True)
class Axis:
    """The two ends after `transform`, and the values that are labelled, with their labels."""

    low: float
    high: float
    transform: Callable[[float], float]
    ticks: tuple[tuple[float, str], ...]

    def place(self, value: float) -> float:
        """Where a value lies: 0 at the low end, 1 at the high end."""
        share = (self.transform(clamped(value)) - self.low) / (self.high - self.low)
        return min(max(share, 0.0), 1.0)


def axis_for(values: Iterable[float], **options: Any) -> Axis:
    """The axis that suits the values: logarithmic if they span decades."""
    values = [clamped(value) for value in values] or [0.0, 1.0]
    positive = [value for value in values if value > 0]
    if positive and min(values) >= 0 and max(positive) / SPAN >= min(positive):
        return logarithmic(min(positive), max(positive), zero=min(values) == 0)
    return linear(min(values), max(values), **options)


def linear(
    low: float,
    high: float,
    *,
    parts: int = 5,
    within: tuple[float, float] = (-LIMIT, LIMIT),
    label: Callable[[float], str] | None = None,
    whole: bool = False,
) -> Axis:
    """An axis whose ends are round numbers around low and high, but not outside of `within`; or whole numbers alone."""
    if high - low <= max(1e-9 * max(abs(low), abs(high)), LEAST):  # one value: room on both sides
        room = 0.1 * abs(high) if abs(high) > LEAST else 0.5
        low, high = low - room, high + room
    low, high = max(low, within[0]), min(high, within[1])
    step = max(round_step((high - low) / parts), 1.0 if whole else 0.0)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    values = (index * step for index in range(first, last + 1))
    ticks = tuple((value, label(value) if label else tick_label(value, step)) for value in values)
    return Axis(first * step, last * step, float, ticks)


def logarithmic(low: float, high: float, *, zero: bool = False, parts: int = 5) -> Axis:
    """An axis of decades from low to high; with `zero`, zero has a place before low."""
    start, end = math.log10(low), math.log10(high)
    gap = ZERO * (end - start) if zero else 0.0
    first, last = math.ceil(start - 1e-9), math.floor(end + 1e-9)
    step = max(1, math.ceil(round_step((last - first) / parts))) if last > first else 1
    ticks = [(10.0**exponent, exponent) for exponent in range(first, last + 1, step)]
    plain = all(-3 <= exponent <= 4 for _, exponent in ticks)
    names = [
        (value, numbers_as_text.number(value) if plain else numbers_as_text.power(exponent))
        for value, exponent in ticks
    ]
    if len(names) < 2:
        between = [factor * 10.0**exponent for exponent in range(first - 1, last + 1) for factor in (2, 5)]
        names += [(value, numbers_as_text.number(value)) for value in between if low <= value <= high]
    if zero:
        names.append((0.0, "0"))
    return Axis(start - gap, end, lambda value: math.log10(value) if value > 0 else start - gap, tuple(sorted(names)))


def round_step(rough: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is not below the rough step."""
    if rough <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= rough * (1 - 1e-9))


def tick_label(value: float, step: float) -> str:
    """The value with as many decimals as the step has."""
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    if decimals > 5 or abs(value) >= 1e6:
        return numbers_as_text.number(0.0 if abs(value) < step / 2 else value)
    text = f"{value:.{decimals}f}"
    return text.replace("-", "−") if float(text) else f"{0:.{decimals}f}"


def clamped(value: float) -> float:
    """The value, or the furthest one that can be drawn."""
    return min(max(float(value), -LIMIT), LIMIT)
