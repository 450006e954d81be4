"""Elementwise products and quotients: bilinear, with the exact hull of the four corners as interval.

``x * x`` with one and the same object is a square: with d = x - c, ``x^2 = c^2 + 2 c d + d^2`` and d^2 >= 0.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..errors import VoidBounds
from ..rules.bilinear import Product, linear_product, radius_of_product
from ..rules.linear import as_tensor, broadcast, combination
from ..rules.operand_properties import (
    Operand,
    Part,
    any_affine,
    dims_of,
    nonnegative,
    own_axis,
    plain,
    reference,
    same_kind,
    symbols_of,
    varies,
)
from ..rules.states import Linear, Remainder, States
from ..sets.set import Set, as_set
from ..tensor.rule_table import aten, rule
from .constants import to_copy


def hull(corners: Tensor, dims: int | tuple[int, ...] = 0) -> Tensor:
    """(smallest, largest) over the corner axes, stacked."""
    return torch.stack((corners.amin(dims), corners.amax(dims)))


def _elementwise(a: Operand, b: Operand, f: Product) -> Tensor:
    """The exact hull of f over two intervals: f is monotone in each operand, so the corners suffice."""
    dims = dims_of(a, b)
    if varies(a) and varies(b):
        return hull(f(broadcast(a.bounds, dims).unsqueeze(1), broadcast(b.bounds, dims).unsqueeze(0)), (0, 1))
    like = reference(a, b).bounds
    if isinstance(b, Set) and plain(a):
        return hull(f(as_tensor(a, like).unsqueeze(0), broadcast(b.bounds, dims)))
    return hull(f(broadcast(like, dims), as_tensor(b, like).unsqueeze(0)))  # a is the set


def _rounded(raw: Tensor, a: Operand, b: Operand) -> Tensor:
    """Rounding is monotone: one step outwards holds every plain result, unless an operand was converted first."""
    if all(isinstance(x, Tensor | Set) and x.dtype is raw.dtype for x in (a, b)):
        return rounding.outward(raw)
    return rounding.outward_sum(raw, raw.abs(), 1)


def as_float(x: Part, other: Operand) -> Part:
    """A condition counts as 0 or 1 in a product."""
    if isinstance(x, Set) and x.dtype is torch.bool:
        real = other.dtype if isinstance(other, Tensor | Set) and other.is_floating_point() else None
        return to_copy(x, dtype=real or torch.get_default_dtype())
    return x


@rule(aten.mul.Tensor, aten.mul.Scalar, example=lambda t: (t(2, 3), t(3)))
def mul(a: Operand, b: Operand) -> Set:
    return product(a, b)


def product(a: Operand, b: Operand, sharp: bool = True) -> Set:
    """``a b``. Operands that share no symbols are chosen independently: the hull of the corners is all there is."""
    if isinstance(a, Set) and isinstance(b, Set) and a.dtype is b.dtype is torch.bool:
        dims = max(a.dim(), b.dim())  # true times true is true
        return Set(broadcast(a.bounds, dims) & broadcast(b.bounds, dims), None, symbols_of(a, b))
    if isinstance(a, Set) and a is b:
        return square(a)
    a, b = as_float(a, b), as_float(b, a)
    same_kind(a, b)
    if isinstance(a, Set) and isinstance(b, int | float):
        return scaled(a, float(b))
    if isinstance(b, Set) and isinstance(a, int | float):
        return scaled(b, float(a))
    sharp = sharp and all(isinstance(x, Set) and x.affine for x in (a, b))

    def interval(x: Operand, y: Operand) -> Tensor:
        return _rounded(_elementwise(x, y, torch.mul), x, y)

    return _bilinear("mul", a, b, interval, nonnegative(a, b), sharp)


def _bilinear(
    name: str,
    a: Operand,
    b: Operand,
    interval: Callable[..., Tensor],
    never_negative: bool,
    sharp: bool,
    *others: Operand,
) -> Set:
    """``a b`` as an affine form, with an interval of its own, which may ask for other operands, in every state."""
    if not any_affine(a, b):
        over = States(a, b, *others)
        remainders = [Remainder(interval(*view), None) for view in over.views]
        return over.result(name, remainders, nonnegative=never_negative)
    (a, b), along = own_axis(a, b)
    over = States(a, b, *others)
    dims = dims_of(a, b)

    def left(rows: Tensor, y: Tensor) -> Tensor:
        return broadcast(rows, dims) * y

    def right(x: Tensor, rows: Tensor) -> Tensor:
        return x * broadcast(rows, dims)

    linear = linear_product(a, b, torch.mul, left, right, along)
    radii = [radius_of_product(x, y, torch.mul, 1) for x, y, *_ in over.views]
    remainders = [Remainder(interval(*view), radius) for view, radius in zip(over.views, radii, strict=True)]
    return over.result(name, remainders, linear, nonnegative=never_negative, sharp=sharp)


def scaled(x: Set, factor: float) -> Set:
    """``factor x`` for a number."""
    rounding.require_normal(factor, x.dtype)

    def interval(x: Set, factor: float) -> Tensor:
        raw = (x.bounds if factor >= 0 else x.bounds.flip(0)) * factor
        return rounding.outward_sum(raw, raw.abs(), 1)

    return _bilinear("mul", x, factor, interval, nonnegative(x, factor), False)


def quotient(x: Set, divisor: float) -> Set:
    """``x / divisor`` for a number other than zero."""
    rounding.require_normal(divisor, x.dtype)

    def interval(x: Set, inverse: Operand) -> Tensor:
        raw = (x.bounds if divisor > 0 else x.bounds.flip(0)) / divisor
        return rounding.outward_sum(raw, raw.abs(), 1)

    inverse: Operand = _reciprocal_ball(divisor, x) if x.affine else divisor  # which an interval does not ask for
    return _bilinear("div", x, inverse, interval, nonnegative(x, divisor), False)


def square(x: Set) -> Set:
    """``x^2``: with d = x - c, ``x^2 = c^2 + 2 c d + d^2`` and d^2 lies in [0, s^2], not in [-s^2, s^2].

    That holds in every state with its own s, and around one middle of d^2 for all of them (`States.middle`).
    """
    over = States(x)
    intervals = [_square_interval(view.bounds) for (view,) in over.views]
    if not x.affine:
        return over.result("square", [Remainder(interval, None) for interval in intervals], nonnegative=True)
    f, charge = x.form, rounding.gamma(2 * len(over.views), x.dtype)
    middle, off = over.middle([_times_itself(view.deviation) for (view,) in over.views])

    def radius(view: Set, off: Tensor) -> Tensor:
        # of 12 roundings of the squared modulus, center, rows, this sum and the plain run take four
        total = off + 2 * f.center.abs() * view.form.radius + charge * f.modulus * f.modulus
        return total + rounding.tiny(2, x.dtype)

    radii = [radius(view, distance) for (view,), distance in zip(over.views, off, strict=True)]
    remainders = [Remainder(interval, radius) for interval, radius in zip(intervals, radii, strict=True)]
    linear = Linear(f.center * f.center + middle, 2 * f.center * f.generators, f.rows, f.along)
    return over.result("square", remainders, linear, nonnegative=True)


def _times_itself(x: Tensor) -> Tensor:
    return x * x  # of a power, PyTorch's own square, it is not known how a compiler rounds it


def _square_interval(bounds: Tensor) -> Tensor:
    smallest, largest = hull(bounds * bounds)
    straddles = (bounds[0] < 0) & (bounds[1] > 0)
    ends = torch.stack((torch.where(straddles, 0.0, smallest), largest))
    return rounding.outward_sum(ends, ends, 1)


def without_zero(x: Set, what: str) -> Set:
    """A divisor, which is never zero; where it may be for samples that were left alone, that state is forgotten."""
    low, high = x.bounds.unbind(0)
    if not bool(((low > 0) | (high < 0)).all()):
        raise VoidBounds(f"{what}: the divisor may be zero, so the quotient is unbounded", x.step)
    if x.clean is not None and not bool(((x.clean.bounds[0] > 0) | (x.clean.bounds[1] < 0)).all()):
        return x.without_clean()
    return x


@rule(aten.div.Tensor, aten.div.Scalar, example=lambda t: (t(2, 3), t(3, low=0.5, high=3)))
def div(a: Set | Tensor, b: Operand) -> Set:
    a, b = as_float(a, b), as_float(b, a)
    if isinstance(a, Set) and isinstance(b, int | float) and b:
        return quotient(a, float(b))
    same_kind(a, b)
    if varies(b):
        b = without_zero(b, "div")
    else:
        a = as_set(a)
        if bool((as_tensor(b, a.bounds) == 0).any()):
            raise VoidBounds("div: division by zero", a.step)
    inverse = _reciprocal_ball(b, as_set(a))
    if isinstance(b, Set) and b.affine:
        from .functions import reciprocal

        inverse = reciprocal(b)

    def interval(a: Operand, inverse: Operand, b: Operand) -> Tensor:
        return _rounded(_elementwise(a, b, torch.div), a, b)

    return _bilinear("div", a, inverse, interval, nonnegative(a, b), True, b)


def _reciprocal_ball(b: Operand, like: Set) -> Set:
    """1 / b as an interval: for a number or plain tensor it still rounds."""
    ends = 1.0 / (b.bounds.flip(0) if isinstance(b, Set) else as_tensor(b, like.bounds).unsqueeze(0))
    ends = ends.expand(2, *ends.shape[1:])
    return Set(rounding.outward_sum(ends, ends.abs(), 2))


@rule(
    aten.addcmul.default,
    example=lambda t: (
        t(2, 3),
        t(2, 3),
        t(3),
    ),
)
def addcmul(x: Operand, a: Operand, b: Operand, *, value: float = 1) -> Set:
    """``x + value a b``."""
    return combination("addcmul", [(x, 1.0), (mul(a, b), float(value))], terms=5)


@rule(aten.addcdiv.default, example=lambda t: (t(2, 3), t(2, 3), t(3, low=0.5, high=3)))
def addcdiv(x: Operand, a: Set | Tensor, b: Operand, *, value: float = 1) -> Set:
    return combination("addcdiv", [(x, 1.0), (div(a, b), float(value))], terms=5)
