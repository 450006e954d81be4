"""Unary functions: on [l, u] choose a slope, ``f(x) in lambda x + mu +- delta``.

    c' = lambda c + mu        G' = lambda G        rho' = |lambda| rho + delta

The extremes of ``d(x) = f(x) - lambda x`` on [l, u] give mu and delta. Cut [l, u] at the inflections of f: on a
piece [a, b] where f is convex, the maximum of d is at a or b, and for *any* p in [a, b]

    d(x) >= d(p) + d'(p) (x - p) >= d(p) - max(0, d'(p) (p - a), -d'(p) (b - p)),

so a computed critical point p (where f'(p) = lambda) is a candidate, not a bound: the slack above is added to it.
Concave pieces likewise. With slope 0 the result is the exact range: at the ends and at the turning points; this is
the interval rule, and what the affine rule falls back to where it would be wider.

Rounding: PyTorch's f is off by a few units of ``moduli(|x|, |f(x)|)``, the sum of the moduli of the terms of the
formula it really uses (monotone in |x| and |f(x)|, and taken at their largest). A new function is one row of a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch._ops import OpOverload

from ..arithmetic import rounding
from ..arithmetic.tuned_numbers import STATES_TOGETHER
from ..errors import VoidBounds
from ..sets.sample_axis import SampleAxis
from ..sets.set import Check, Set
from ..tensor.rule_table import rule
from .states import Linear, Remainder, States

ROUNDINGS = 4  # PyTorch's elementary functions are within a few units in the last place of their terms
FLOOR = 1024  # and within this many smallest normal numbers where they underflow


def of_value(x: Tensor, y: Tensor) -> Tensor:
    """The moduli of a formula that only rounds its result."""
    return y


@dataclass(frozen=True, eq=False)
class Function:
    """A function of one variable, described well enough to bound it. ``curvature`` has one sign per piece."""

    name: str
    f: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor] | None = None
    inflections: tuple[float, ...] = ()
    curvature: tuple[int, ...] = (0,)
    turning: tuple[float, ...] = ()
    increasing: bool = True  # before the first turning point
    critical: Callable[[Tensor, int], Tensor] | None = None  # slope, piece -> where f' equals the slope
    moduli: Callable[[Tensor, Tensor], Tensor] | None = of_value  # of |x|, |f(x)|; None: f is exact
    correctly_rounded: bool = False  # then one step outwards is all that a value can be off
    extra: float = 0.0  # what PyTorch's formula is off by besides rounding
    domain: tuple[float, float] = (-math.inf, math.inf)
    keeps_sign: bool = False  # f(x) >= 0 for x >= 0
    smallest: float = -math.inf
    largest: float = math.inf


def allowance(function: Function, bounds: Tensor, image: Tensor) -> Tensor:
    """How far a floating-point value of f on the interval may be from the true one."""
    if function.moduli is None:
        return torch.zeros_like(image[0])
    largest = image.abs().amax(0)
    moduli = largest if function.moduli is of_value else function.moduli(bounds.abs().amax(0), largest)
    lost = function.extra + FLOOR * rounding.tiny(1, image.dtype)
    return moduli * rounding.gamma(ROUNDINGS, image.dtype) + lost


def range_of(function: Function, bounds: Tensor) -> Tensor:
    """The exact range: ends and turning points, then outward."""
    y = function.f(bounds)
    if function.turning:
        low, high = bounds.unbind(0)
        inside = [y[0], y[1]]
        for turn in function.turning:
            point = torch.full((), turn, dtype=bounds.dtype, device=bounds.device)
            inside.append(torch.where((low < turn) & (turn < high), function.f(point), y[0]))
        values = torch.stack(inside)
        y = torch.stack((values.amin(0), values.amax(0)))
    elif not function.increasing:
        y = y.flip(0)
    if function.moduli is None:
        return y
    y = rounding.outward(y) if function.correctly_rounded else rounding.widened(y, allowance(function, bounds, y))
    if function.smallest > -math.inf or function.largest < math.inf:
        y = y.clamp(function.smallest, function.largest)
    return y


def relaxation(function: Function, bounds: Tensor, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(lambda, mu, delta) with f(x) within delta of ``lambda x + mu`` on the interval: a chord, or a constant."""
    middle, half = rounding.middle(image)
    if function.derivative is None:
        return torch.zeros_like(middle), middle, half
    slope, mu, delta = _along_chord(function, bounds, image)
    better = delta < half  # False for NaN: then the slope is 0 and the exact range is used
    return torch.where(better, slope, 0.0), torch.where(better, mu, middle), torch.where(better, delta, half)


def _along_chord(function: Function, bounds: Tensor, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(lambda, mu, delta) with the slope of the chord; NaN or infinite where that makes no sense."""
    slope = _slope(function, bounds)
    least, most, moduli = _offsets(function, bounds, slope)
    mu = 0.5 * (most + least)
    return slope, mu, _off_the_line(function, least, most, mu, moduli, bounds, image)


def error_of_line(function: Function, bounds: Tensor, image: Tensor, slope: Tensor, mu: Tensor) -> Tensor:
    """How far f can be from a given line on another interval."""
    # |f(x) - lambda x - mu| <= |f(x) - mu| + |lambda| |x|
    crude = rounding.up(rounding.deviation(image, mu) + slope.abs() * bounds.abs().amax(0))
    if function.derivative is None:
        return crude
    least, most, moduli = _offsets(function, bounds, slope)
    fine = _off_the_line(function, least, most, mu, moduli, bounds, image)
    return torch.fmin(fine, crude)  # the other one where one is NaN


def shared_relaxation(
    function: Function, touched: tuple[Tensor, Tensor], clean: tuple[Tensor, Tensor], along: SampleAxis
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(lambda, mu, delta, clean delta): one line for touched and clean samples, and its error for both.

    The line that is best for the clean interval (most samples are left alone) or for the touched one, whichever makes
    the errors add up to less over the samples.
    """
    if touched[0].numel() > STATES_TOGETHER:
        lines = [_chord_or_constant(function, *interval) for interval in (clean, touched)]
        errors = [[error_of_line(function, *interval, *line) for interval in (clean, touched)] for line in lines]
    else:  # the same for all at once, as many numbers are as fast as few: (lines, intervals, *shape)
        bounds, image = torch.stack((clean[0], touched[0]), 1), torch.stack((clean[1], touched[1]), 1)
        slopes, offsets = _chord_or_constant(function, bounds, image)
        lines = list(zip(slopes, offsets, strict=True))
        found = error_of_line(
            function, bounds.unsqueeze(1), image.unsqueeze(1), slopes.unsqueeze(1), offsets.unsqueeze(1)
        )
        errors = [list(of_line.unbind(0)) for of_line in found.unbind(0)]
    both = [(torch.maximum(inner, outer), inner) for inner, outer in errors]
    first = along.cheaper_line(*both)
    whole = [(*line, *off) for line, off in zip(lines, both, strict=True)]
    slope, mu, delta, inner = (torch.where(first, a, b) for a, b in zip(*whole, strict=True))
    return slope, mu, delta, inner


def _chord_or_constant(function: Function, bounds: Tensor, image: Tensor) -> tuple[Tensor, Tensor]:
    """(lambda, mu): of the chord wherever that makes sense.

    A constant may be as close on the clean interval, often a single point, but touched samples go further.
    """
    middle = rounding.middle(image)[0]
    if function.derivative is None:
        return torch.zeros_like(middle), middle
    slope, mu, error = _along_chord(function, bounds, image)
    finite = error.isfinite()
    return torch.where(finite, slope, 0.0), torch.where(finite, mu, middle)


def _slope(function: Function, bounds: Tensor) -> Tensor:
    """The slope of the chord, or the derivative where the interval is too narrow for one."""
    assert function.derivative is not None
    low, high = bounds.unbind(0)
    width = high - low
    narrow = width <= math.sqrt(rounding.unit(bounds.dtype)) * (1 + low.abs() + high.abs())
    tangent = function.derivative(0.5 * low + 0.5 * high)
    slope = torch.where(narrow, tangent, (function.f(high) - function.f(low)) / width)
    return torch.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0)


def _offsets(function: Function, bounds: Tensor, slope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The least and the largest ``f(x) - slope x`` on the interval, and the moduli that were added."""
    assert function.derivative is not None
    f, derivative, dtype = function.f, function.derivative, bounds.dtype
    low, high = bounds.unbind(0)
    edges = [low, *(low.clamp_min(cut).minimum(high) for cut in function.inflections), high]
    corners = torch.stack(edges)
    values = f(corners)
    offsets = values - slope * corners
    least, most = offsets.amin(0), offsets.amax(0)
    for piece, sign in enumerate(function.curvature):
        if sign == 0:
            continue
        a, b = edges[piece], edges[piece + 1]
        p = _critical_point(function, slope, piece, a, b)
        steep = derivative(p)
        error = LINE * rounding.gamma(1, dtype) * (steep.abs() + slope.abs()) + rounding.tiny(1, dtype)
        tilt = sign * (steep - slope)
        missed = torch.maximum((tilt + error) * (p - a), (error - tilt) * (b - p)).clamp_min(0.0)
        offset = f(p) - slope * p
        if sign > 0:
            least = torch.minimum(least, offset - missed)
        else:
            most = torch.maximum(most, offset + missed)
    return least, most, slope.abs() * corners.abs().amax(0) + values.abs().amax(0)


LINE = 8  # roundings in a value of f minus its line


def _off_the_line(
    function: Function, least: Tensor, most: Tensor, mu: Tensor, moduli: Tensor, bounds: Tensor, image: Tensor
) -> Tensor:
    """How far f can be from its line: the offsets from mu, rounding included."""
    delta = torch.maximum(most - mu, mu - least)
    moduli = moduli + mu.abs()
    return rounding.up(delta + LINE * rounding.gamma(1, image.dtype) * moduli + allowance(function, bounds, image))


def _critical_point(function: Function, slope: Tensor, piece: int, a: Tensor, b: Tensor) -> Tensor:
    """A point of [a, b] near where f' equals the slope: closed form, or bisection (f' is monotone on a piece)."""
    if function.critical is not None:
        p = torch.nan_to_num(function.critical(slope, piece), nan=0.0)
        return torch.maximum(torch.minimum(p, b), a)
    assert function.derivative is not None
    sign = function.curvature[piece]
    left, right = a, b
    for _ in range(40):
        half = 0.5 * left + 0.5 * right
        before = sign * (function.derivative(half) - slope) < 0
        left, right = torch.where(before, half, left), torch.where(before, right, half)
    return 0.5 * left + 0.5 * right


def apply(function: Function, x: Set) -> Set:
    """The set of all f(x)."""
    low, high = function.domain
    if low > -math.inf or high < math.inf:
        inside = (x.bounds[0] >= low) & (x.bounds[1] <= high)
        if not bool(inside.all()):
            raise VoidBounds(
                f"{function.name}: the set reaches to {float(x.bounds[0].min()):.4g} .. "
                f"{float(x.bounds[1].max()):.4g}, outside [{low:g}, {high:g}] where the function is defined",
                x.step,
            )
        if x.clean is not None and not bool(((x.clean.bounds[0] >= low) & (x.clean.bounds[1] <= high)).all()):
            x = x.without_clean()
    over = States(x)
    images = [range_of(function, view.bounds) for (view,) in over.views]
    never_negative = function.smallest >= 0 or (function.keeps_sign and x.nonnegative)
    if not x.affine:
        remainders = [Remainder(image, None) for image in images]
        exact = function.moduli is None and function.increasing and not function.turning  # f of the ends, in order
        check = Check.NOTHING if exact else Check.EVERYTHING
        return over.result(function.name, remainders, nonnegative=never_negative, check=check)
    slope, mu, deltas = _one_line(function, over, images)
    form, charge = x.form, rounding.gamma(2, x.dtype)

    def radius(own: Tensor, delta: Tensor) -> Tensor:
        # `own` is rounded four times here, and gamma(2) charges 12 of its modulus; delta twice, and its `up` left three
        total = slope.abs() * (own + charge * form.modulus) + delta + charge * mu.abs()
        return total + rounding.tiny(2, x.dtype)

    states = zip(images, over.views, deltas, strict=True)
    remainders = [Remainder(image, radius(view.form.radius, delta)) for image, (view,), delta in states]
    moduli = form.moduli_times(slope, form.center.shape)
    linear = Linear(slope * form.center + mu, slope * form.generators, form.rows, form.along, moduli)
    # the image of tight bounds is tight: an affine form that holds it cannot do better
    return over.result(function.name, remainders, linear, nonnegative=never_negative, sharp=False)


def _one_line(function: Function, over: States[Set], images: list[Tensor]) -> tuple[Tensor, Tensor, list[Tensor]]:
    """(lambda, mu) of one line for all states, and how far the function is off it in each."""
    intervals = [(view.bounds, image) for (view,), image in zip(over.views, images, strict=True)]
    if over.found is None:
        slope, mu, delta = relaxation(function, *intervals[0])
        return slope, mu, [delta]
    touched, clean = intervals
    slope, mu, *deltas = shared_relaxation(function, touched, clean, over.found)
    return slope, mu, deltas


def function_rule(operator: OpOverload, function: Function, low: float = -3.0, high: float = 3.0) -> None:
    """One row of the table: an operator without options and its function; the laws are tested on [low, high]."""
    FUNCTION_TABLE[operator] = function
    rule(operator, example=lambda t: (t(3, 4, low=low, high=high),))(lambda x: apply(function, x))


FUNCTION_TABLE: dict[OpOverload, Function] = {}
