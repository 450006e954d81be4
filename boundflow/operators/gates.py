"""Gates and conditions: three-valued truth.

A comparison of sets is a bounded tensor of dtype bool: ``lower`` is "certainly true", ``upper`` is "possibly true".
``z > 0`` is certain if l > 0, impossible if u <= 0, and otherwise undecided. Certainty is asked for and
impossibility is asked for, so NaN, which fails every comparison, decides nothing.

    where(condition, a, b) = a where certain, b where impossible, the hull of both where undecided

A ReLU passes ``grad * step(z)`` with step 0, 1, or undecided: 1/2 +- 1/2 as an affine form.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..arithmetic.thread_context import Arithmetic, thread, using
from ..rules.linear import broadcast, combination
from ..rules.operand_properties import Operand, nonnegative, own_axis, plain, same_kind, samples_of, symbols_of, value
from ..rules.states import Linear, Remainder, States
from ..sets.sample_axis import SampleAxis
from ..sets.set import Check, Set, as_set
from ..tensor.rule_table import aten, rule
from .constants import constant
from .products import hull, mul

# --- comparisons ----------------------------------------------------------------------------------------------------


def _ends(x: Operand, other: Set | Tensor) -> tuple[Tensor, Tensor]:
    """(lower, upper) of an operand; a number that the dtype does not hold stands for its neighbours too."""
    if isinstance(x, int | float):
        x = _number(float(x), other.dtype, other.device, thread.arithmetic.outward)
    return (x.bounds[0], x.bounds[1]) if isinstance(x, Set) else (x, x)


@lru_cache(maxsize=256)
def _number(x: float, dtype: torch.dtype, device: torch.device, outward: bool) -> Set:
    """A number as a set, which comparisons only read; what it stands for depends on whether roundings are charged."""
    with using(Arithmetic(outward)):
        return constant(x, dtype, device)


def _condition(certain: Tensor, impossible: Tensor, *operands: Operand) -> Set:
    return Set(torch.stack((certain, ~impossible)), None, symbols_of(*operands))


@rule(aten.gt.Scalar, aten.gt.Tensor, example=lambda t: (t(3, 4), t(4)), in_place=False)
def gt(x: Set | Tensor, y: Operand) -> Set:
    (xl, xu), (yl, yu) = _ends(x, x), _ends(y, x)
    return _condition(xl > yu, xu <= yl, x, y)


@rule(aten.lt.Scalar, aten.lt.Tensor, example=lambda t: (t(3, 4), t(4)), in_place=False)
def lt(x: Set | Tensor, y: Operand) -> Set:
    (xl, xu), (yl, yu) = _ends(x, x), _ends(y, x)
    return _condition(xu < yl, xl >= yu, x, y)


@rule(aten.ge.Scalar, aten.ge.Tensor, example=lambda t: (t(3, 4), t(4)), in_place=False)
def ge(x: Set | Tensor, y: Operand) -> Set:
    (xl, xu), (yl, yu) = _ends(x, x), _ends(y, x)
    return _condition(xl >= yu, xu < yl, x, y)


@rule(aten.le.Scalar, aten.le.Tensor, example=lambda t: (t(3, 4), t(4)), in_place=False)
def le(x: Set | Tensor, y: Operand) -> Set:
    (xl, xu), (yl, yu) = _ends(x, x), _ends(y, x)
    return _condition(xu <= yl, xl > yu, x, y)


@rule(aten.eq.Scalar, aten.eq.Tensor, example=lambda t: (t(3, 4), t(4)), in_place=False)
def eq(x: Set | Tensor, y: Operand) -> Set:
    if isinstance(x, Set) and x is y:  # whatever it is, it is no NaN
        return Set(torch.ones_like(x.bounds, dtype=torch.bool), None, x.symbols)
    (xl, xu), (yl, yu) = _ends(x, x), _ends(y, x)
    return _condition((xl == xu) & (yl == yu) & (xl == yl), (xu < yl) | (yu < xl), x, y)


@rule(aten.ne.Scalar, aten.ne.Tensor, example=lambda t: (t(3, 4), t(4)), in_place=False)
def ne(x: Set | Tensor, y: Operand) -> Set:
    return logical_not(eq(x, y))


@rule(aten.isnan.default, aten.isinf.default, example=None)
def isnan(x: Set) -> Tensor:
    """Never: a set with an infinite or NaN bound raises when it is made."""
    return torch.zeros(x.shape, dtype=torch.bool, device=x.device)


# --- logic: and, or are monotone; not swaps the ends ----------------------------------------------------------------


def _truth(x: Set | Tensor, dims: int) -> Tensor:
    """(certainly, possibly) true; a number is true where it is not zero."""
    if isinstance(x, Set):
        return broadcast(x.bounds if x.dtype is torch.bool else ne(x, 0.0).bounds, dims)
    return broadcast(x.to(torch.bool).expand(2, *x.shape), dims)


@rule(aten.logical_and.default, aten.bitwise_and.Tensor, example=None)
def logical_and(x: Set | Tensor, y: Set | Tensor) -> Set:
    dims = max(x.dim(), y.dim())
    return Set(_truth(x, dims) & _truth(y, dims), None, symbols_of(x, y))


@rule(aten.logical_or.default, aten.bitwise_or.Tensor, example=None)
def logical_or(x: Set | Tensor, y: Set | Tensor) -> Set:
    dims = max(x.dim(), y.dim())
    return Set(_truth(x, dims) | _truth(y, dims), None, symbols_of(x, y))


@rule(aten.logical_not.default, aten.bitwise_not.default, example=None)
def logical_not(x: Set) -> Set:
    return Set(~_truth(x, x.dim()).flip(0), None, x.symbols)


@rule(aten.all.default, aten.all.dim, example=None)
def all_(x: Set, dim: int | None = None, keepdim: bool = False) -> Set:
    truth = _truth(x, x.dim())
    reduced = truth.flatten(1).all(1) if dim is None else truth.all(dim % x.dim() + 1, keepdim)
    return Set(reduced, None, x.symbols)


@rule(aten.any.default, aten.any.dim, example=None)
def any_(x: Set, dim: int | None = None, keepdim: bool = False) -> Set:
    truth = _truth(x, x.dim())
    reduced = truth.flatten(1).any(1) if dim is None else truth.any(dim % x.dim() + 1, keepdim)
    return Set(reduced, None, x.symbols)


@rule(aten.isfinite.default, example=None)
def isfinite(x: Set) -> Tensor:
    """Always: a set with an infinite or NaN bound raises when it is made."""
    return torch.ones(x.shape, dtype=torch.bool, device=x.device)


# --- where ----------------------------------------------------------------------------------------------------------


@rule(
    aten.where.self,
    aten.where.ScalarOther,
    aten.where.ScalarSelf,
    example=lambda t: (torch.tensor([[True], [False]]), t(2, 3), t(3)),
)
def where(condition: Set | Tensor, a: Operand, b: Operand) -> Set:
    same_kind(a, b)
    (a, b), along = own_axis(*_as_sets(condition, a, b), beside=condition)
    kept = condition.dim() <= max(a.dim(), b.dim())
    if along is not None and not kept:
        a, b, along = a.dense(), b.dense(), None
    dims = max(condition.dim(), a.dim(), b.dim())
    certain, possible = _truth(condition, dims)
    undecided = possible & ~certain
    affine = a.affine or b.affine

    def remainder(a: Set, b: Set) -> Remainder:
        (al, au), (bl, bu) = broadcast(a.bounds, dims), broadcast(b.bounds, dims)
        low = torch.where(certain, al, torch.where(undecided, torch.minimum(al, bl), bl))
        high = torch.where(certain, au, torch.where(undecided, torch.maximum(au, bu), bu))
        return Remainder(torch.stack((low, high)), _where_radius(certain, undecided, a, b) if affine else None)

    # a condition on sets may be decided otherwise where a sample was left alone
    over = States(a, b, found=samples_of(a, b, condition) if kept and not isinstance(condition, Set) else None)
    linear = _where_linear(certain, undecided, a, b, dims, along) if affine else None
    result = over.result("where", [remainder(*view) for view in over.views], linear, nonnegative=nonnegative(a, b))
    result.symbols = symbols_of(condition, a, b)
    return result


def _as_sets(condition: Set | Tensor, a: Operand, b: Operand) -> tuple[Set, Set]:
    kinds = [x for x in (a, b) if isinstance(x, Tensor | Set) and x.is_floating_point()]
    kinds.sort(key=lambda x: x.dim() == 0 and not isinstance(x, Set))  # a 0-dimensional tensor adapts
    dtype = kinds[0].dtype if kinds else torch.get_default_dtype()

    return constant(a, dtype, condition.device), constant(b, dtype, condition.device)


def _where_linear(certain: Tensor, undecided: Tensor, a: Set, b: Set, dims: int, along: SampleAxis | None) -> Linear:
    """Where undecided: the middle of the two forms."""
    rows = a.form.rows.union(b.form.rows)
    rows_a, rows_b = (broadcast(rows.place(x.form.generators, x.form.rows), dims) for x in (a, b))
    center = _choice(certain, undecided, a.form.center, b.form.center, 0.5 * (a.form.center + b.form.center))
    return Linear(center, _choice(certain, undecided, rows_a, rows_b, 0.5 * (rows_a + rows_b)), rows, along)


def _where_radius(certain: Tensor, undecided: Tensor, a: Set, b: Set) -> Tensor:
    """Where undecided: half the distance of the two.

    ``x in {a, b}`` is ``(a + b)/2 +- (a - b)/2``, and |a - b|/2 is at most half the largest distance of the bounds.
    """
    distance = combination("where", [(a, 1.0), (b, -1.0)])
    half, charge = 0.5 * distance.bounds.abs().amax(0), rounding.gamma(3, a.dtype)
    # of 14 roundings of both moduli, centers and rows take one, and this sum, which is less than they are, four
    extra = half + 0.5 * (a.form.radius + b.form.radius) + charge * (a.form.modulus + b.form.modulus)
    between = extra + rounding.tiny(2, a.dtype)
    return _choice(certain, undecided, a.form.radius, b.form.radius, between)


def _choice(certain: Tensor, undecided: Tensor, x: Tensor, y: Tensor, between: Tensor) -> Tensor:
    return torch.where(certain, x, torch.where(undecided, between, y))


@rule(
    aten.masked_fill.Scalar,
    aten.masked_fill.Tensor,
    example=lambda t: (t(2, 3), torch.tensor([[True], [False]]), 0.5),
)
def masked_fill(x: Set | Tensor, mask: Set | Tensor, fill: Operand) -> Set:
    fill = value(fill) if plain(fill) else fill
    x = as_set(x)
    return where(mask, constant(fill, x.dtype, x.device), x)


# --- gates in backward passes ---------------------------------------------------------------------------------------


def gated(grad: Set | Tensor, condition: Set, x: Set | Tensor | None = None, clean_condition: Set | None = None) -> Set:
    """``grad`` where the gate is open, 0 where it is shut, all between where undecided. Exact: nothing rounds.

    With c + d the gradient and g the gate, ``g (c + d) = f (c + d) + (g - f) (c + d)`` for a factor f (0, 1, or 1/2
    where the gate is undecided), and |g - f| is the doubt. ``clean_condition`` is the gate where the own sample of x
    was left alone; the factor is best for it or for touched samples, whichever adds up to less over the samples.
    """
    grad = as_set(grad)
    over = States(grad, found=samples_of(grad, x, condition))
    gates = [condition.bounds.to(grad.dtype)]
    if over.found is not None:
        gates.append((condition if clean_condition is None else clean_condition).bounds.to(grad.dtype))
    intervals = [_gate_bounds(view.bounds, gate) for (view,), gate in zip(over.views, gates, strict=True)]
    if not grad.affine:
        return _gate_result(over, [Remainder(interval, None) for interval in intervals], None, condition)
    factor, radii = _best_factor(over, gates)
    center, form = (factor * grad.form.center).expand(intervals[0].shape[1:]), grad.form
    moduli = form.moduli_times(factor, center.shape)
    linear = Linear(center, factor * form.generators, form.rows, form.along, moduli)
    remainders = [Remainder(interval, radius) for interval, radius in zip(intervals, radii, strict=True)]
    return _gate_result(over, remainders, linear, condition)


def _gate_result(over: States[Set], remainders: list[Remainder], linear: Linear | None, condition: Set) -> Set:
    # decided gates keep or clear the bounds, and an undecided one takes the hull with 0: no form does better
    check = Check.EVERYTHING if over.operands[0].exact else Check.NOTHING  # nobody has looked at a plain gradient
    result = over.result("gate", remainders, linear, sharp=False, check=check)
    result.symbols = symbols_of(result, condition)
    return result


def _best_factor(over: States[Set], gates: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """One factor for all states, and the radius it leaves in each: of the gate that makes errors add up to less."""

    def radii(factor: Tensor) -> list[Tensor]:
        found = []
        for (view,), gate in zip(over.views, gates, strict=True):
            doubt = torch.maximum(gate[1] - factor, factor - gate[0])
            modulus = view.deviation + view.form.center.abs()  # rounded once, and the sum with it: `up` pays for both
            radius = rounding.up(factor * view.form.radius + doubt * modulus) + rounding.tiny(1, view.dtype)
            found.append(radius)
        return [torch.maximum(*found), found[1]] if len(found) > 1 else found

    factors = [0.5 * (gate[1] + gate[0]) for gate in reversed(gates)]  # the clean one first
    if over.found is None:
        return factors[0], radii(factors[0])
    (touched, clean), (other_touched, other_clean) = map(radii, factors)
    first = over.found.cheaper_line((touched, clean), (other_touched, other_clean))
    chosen = [torch.where(first, touched, other_touched), torch.where(first, clean, other_clean)]
    return torch.where(first, factors[0], factors[1]), chosen


def _gate_bounds(bounds: Tensor, shut_open: Tensor) -> Tensor:
    product = bounds.clamp_min(0.0).mul(shut_open)
    return torch.addcmul(product, bounds.clamp_max(0.0), shut_open.flip(0))


@rule(aten.threshold_backward.default, example=lambda t: (t(3, 4), t(3, 4), 0))
def threshold_backward(grad: Set | Tensor, x: Set | Tensor, threshold: float) -> Set:
    return _gated_by(grad, x, lambda z: gt(z, threshold))


@rule(aten.leaky_relu_backward.default, example=lambda t: (t(3, 4), t(3, 4), 0.1, False))
def leaky_relu_backward(grad: Set | Tensor, x: Set | Tensor, slope: float, is_result: bool) -> Set:
    """The gate of the result is that of the argument as long as the slope is positive."""
    open_, shut = torch.tensor([1.0, slope], dtype=grad.dtype, device=grad.device)
    ends = torch.where(gt(x, 0.0).bounds, open_, shut)
    return mul(grad, Set(rounding.outward_sum(hull(ends), hull(ends).abs(), 1), None, symbols_of(x)))


@rule(aten.hardtanh_backward.default, example=lambda t: (t(3, 4), t(3, 4), -0.7, 0.4))
def hardtanh_backward(grad: Set | Tensor, x: Set | Tensor, low: float, high: float) -> Set:
    return _gated_by(grad, x, lambda z: logical_and(gt(z, low), lt(z, high)))


def _gated_by(grad: Set | Tensor, x: Set | Tensor, condition: Callable[[Set | Tensor], Set]) -> Set:
    clean_condition = condition(x.untouched) if isinstance(x, Set) and x.clean is not None else None
    return gated(grad, condition(x), x, clean_condition)
