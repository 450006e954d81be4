"""Linear operators: ``f(c + G xi + rho zeta) = f(c) + f(G) xi + |f|(rho) zeta``, row by row.

Two kinds:

- *sums* with coefficients >= 0 (sum, mean, pooling) are monotone, so ``[f(l), f(u)]`` is exact;
- *combinations* ``sum_i a_i x_i`` of operands (add, sub, lerp): negative a_i swap the ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..arithmetic.thread_context import thread
from ..errors import MixedTensors, UnsupportedOperator
from ..sets.factors import Factors
from ..sets.forms import Form, PartMap
from ..sets.sample_axis import SampleAxis
from ..sets.set import Check, Set, as_set, concretised
from ..symbols.rows import NO_ROWS, Rows
from ..tensor.rule_table import aten, rule
from .operand_properties import Operand, any_affine, dims_of, nonnegative, own_axis, same_kind, value, varies
from .states import Linear, Remainder, States
from .structural import axis, selected
from .sums_over_samples import added_over_samples, summed_radius

Dims = int | Sequence[int] | None  # None, and none at all: every axis

# --- nonnegative: sums with coefficients >= 0 are monotone ----------------------------------------------------------


def summed(
    name: str,
    x: Set | Tensor,
    f: PartMap,
    terms: float,
    along: SampleAxis | None = None,
    over_samples: PartMap | None = None,
    sharp: bool = True,
    divides: bool = False,
) -> Set:
    """``f`` is linear with coefficients >= 0 and adds ``terms`` elements up: ``[f(l), f(u)]``, outward.

    ``along`` says where f leaves the samples; ``over_samples`` is f without its sum over the sample axis, which it
    puts behind the leading axes. Without either, own rows are written out before. ``divides`` if every term is divided
    before they are added up: each of them may underflow.
    """
    x = as_set(x)
    if along is None and over_samples is None:
        x = x.dense()
    if over_samples is not None:
        return added_over_samples(name, x, f, terms, over_samples)

    def remainder(view: Set) -> Remainder:
        bounds = rounding.outward_sum(f(view.bounds, 1), f(view.bounds.abs(), 1), terms)
        if divides:
            bounds = rounding.widened(bounds, torch.full_like(bounds[0], rounding.tiny(terms, x.dtype)))
        return Remainder(bounds, summed_radius(view.form.radius, x.form, f, terms) if x.affine else None)

    if not x.affine and x.clean is None:
        return concretised(name, remainder(x).bounds, None, x.symbols, x.nonnegative, check=Check.OVERFLOW)
    over = States(x, found=along if x.clean is not None else None)
    linear = None
    if x.affine:
        rows = x.form.rows
        center, generators = f(x.form.center, 0), f(x.form.generators, 1)
        linear = Linear(center, generators, rows, along if rows.batch is not None else None)
    remainders = [remainder(*view) for view in over.views]
    return over.result(name, remainders, linear, nonnegative=x.nonnegative, sharp=sharp)


def _axes(dims: Dims, x: Set | Tensor) -> list[int]:
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return list(range(x.dim()))
    return [dim % max(x.dim(), 1) for dim in ((dims,) if isinstance(dims, int) else dims)]


@rule(aten.sum.default, aten.sum.dim_IntList, example=lambda t: (t(3, 4), [0]))
def sum_(
    x: Set | Tensor,
    dims: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    sharp: bool = True,
) -> Set:
    """``sharp=False`` saves the support function where another sum follows; it is ours, not PyTorch's."""
    if x.dtype is torch.bool:
        raise UnsupportedOperator("counting conditions that are not decided has no rule: convert them with .to(dtype)")
    if dtype not in (None, x.dtype):
        raise MixedTensors(f"sum to {dtype}: convert with .to() first")
    axes = _axes(dims, x) if x.dim() else []
    if not axes:
        return selected(x, lambda tensor, lead: tensor)
    terms = math.prod(x.shape[dim] for dim in axes)
    f, along, over_samples = _reduction(x, axes, keepdim, lambda v, dims, keep: v.sum(dims, keep), 1)
    return summed("sum", x, f, terms, along, over_samples, sharp)


@rule(aten.mean.default, aten.mean.dim, example=lambda t: (t(3, 4), [1]))
def mean(x: Set | Tensor, dims: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Set:
    axes = _axes(dims, x)
    if dtype not in (None, x.dtype):
        raise MixedTensors(f"mean to {dtype}: convert with .to() first")
    if not x.dim():
        return selected(x, lambda tensor, lead: tensor)
    terms = math.prod(x.shape[dim] for dim in axes)
    f, along, over_samples = _reduction(x, axes, keepdim, lambda v, dims, keep: v.mean(dims, keep), terms)
    return summed("mean", x, f, terms + 2, along, over_samples)


def _reduction(
    x: Set | Tensor, axes: list[int], keepdim: bool, reduce: Callable[[Tensor, list[int], bool], Tensor], divisor: int
) -> tuple[PartMap, SampleAxis | None, PartMap | None]:
    """The sum or mean over some axes, and what it does to own rows."""

    def f(tensor: Tensor, lead: int) -> Tensor:
        return reduce(tensor, [dim + lead for dim in axes], keepdim)

    along = x.along if isinstance(x, Set) else None
    if along is None:
        return f, None, None
    samples = along.position + x.dim()
    if samples not in axes:
        after = [dim for dim in range(samples, x.dim()) if keepdim or dim not in axes]
        return f, along.at(-len(after)), None

    def over_samples(tensor: Tensor, lead: int) -> Tensor:
        rest = [dim + lead for dim in axes if dim != samples]
        total = tensor.sum(rest, True) if rest else tensor
        total = total.movedim(samples + lead, lead) / divisor
        kept = [1 if dim in axes else size for dim, size in enumerate(x.shape)]
        shape = kept if keepdim else [size for dim, size in enumerate(x.shape) if dim not in axes]
        return total.reshape(*total.shape[: lead + 1], *shape)

    return f, None, over_samples


@rule(aten.cumsum.default, example=lambda t: (t(3, 4), 1))
def cumsum(x: Set, dim: int, *, dtype: torch.dtype | None = None) -> Set:
    if not x.dim():
        return selected(x, lambda tensor, lead: tensor)
    return summed("cumsum", x, lambda v, lead: v.cumsum(axis(dim, v, lead)), x.shape[dim])


# --- combinations ---------------------------------------------------------------------------------------------------


def broadcast(tensor: Tensor, dims: int) -> Tensor:
    """Insert axes behind the leading one so that the tensor's own shape has ``dims`` axes."""
    if tensor.dim() == dims + 1:
        return tensor
    return tensor.reshape(tensor.shape[0], *(1,) * (dims + 1 - tensor.dim()), *tensor.shape[1:])


def as_tensor(x: Operand, like: Tensor) -> Tensor:
    """A plain operand in the dtype of a set."""
    x = value(x)
    if isinstance(x, Tensor):
        return x.to(dtype=like.dtype, device=like.device if x.dim() == 0 else None)
    return torch.full((), x, dtype=like.dtype, device=like.device)  # nobody waits for a GPU


def combination(
    name: str,
    summands: Sequence[tuple[Operand, float]],
    terms: float = 3,
    charged: Sequence[tuple[Operand, float]] | None = None,
    factors: Factors | None = None,
    sharp: bool = True,
    waits: bool = False,
) -> Set:
    """``sum_i a_i x_i``. Roundings are charged on ``charged`` where plain PyTorch sums other terms than we do.

    ``sharp=False`` saves the support function where the summands hardly share symbols, or only the form is of interest.
    ``waits`` puts it off until somebody asks.
    """
    operands: list[Operand] = [x for x, _ in summands]
    along = None
    same_kind(*operands)
    affine = any_affine(*operands)
    if affine:
        operands, along = own_axis(*operands)
        summands = [(x, a) for x, (_, a) in zip(operands, summands, strict=True)]
        if along is None and charged is not None:
            charged = [(x.dense() if isinstance(x, Set) else x, a) for x, a in charged]
    sets = [x for x in operands if isinstance(x, Set)]
    like, dims = sets[0].bounds, dims_of(*operands)
    _require_normal(summands, like.dtype)
    once = charged is None and terms <= 3 and _rounds_once(summands, like.dtype)
    coefficients = [a for _, a in summands]

    def remainder(*view: Operand) -> Remainder:
        parts = list(zip(view, coefficients, strict=True))
        bounds = _combined_bounds(parts, charged, terms, once, like, dims)
        radius = _combined_radius(parts, charged or parts, terms, like, bounds.shape[1:]) if affine else None
        return Remainder(bounds, radius)

    over = States(*operands)
    remainders = [remainder(*view) for view in over.views]
    linear = _combined(summands, sets, remainders[0].bounds.shape[1:], along) if affine else None
    never_negative = nonnegative(*operands) and all(a >= 0 for a in coefficients)
    return over.result(
        name,
        remainders,
        linear,
        nonnegative=never_negative,
        sharp=sharp,
        factors=factors,
        check=Check.OVERFLOW,
        waits=waits,
    )


def _require_normal(summands: Sequence[tuple[Operand, float]], dtype: torch.dtype) -> None:
    """Refuse coefficients and numbers that the dtype cannot hold with full precision."""
    for x, a in summands:
        if a != 1:
            rounding.require_normal(a, dtype)
        if isinstance(x, int | float):
            rounding.require_normal(x, dtype)


def _combined_bounds(
    summands: Sequence[tuple[Operand, float]],
    charged: Sequence[tuple[Operand, float]] | None,
    terms: float,
    once: bool,
    like: Tensor,
    dims: int,
) -> Tensor:
    """The interval of ``sum_i a_i x_i``, of which everything is rounded ``once``, or ``terms`` times.

    Other terms than the summands are charged at their largest, not at the end point of the same bound. They are more
    than one product, here and in the plain run: where each underflows, one step outwards is too little.
    """
    ends = [(_ends(x, a, like, dims), a) for x, a in summands]
    bounds = _accumulated(ends)
    if once:
        return rounding.outward(bounds)
    loaded = ends if charged is None else [(_moduli(x, like, dims), a) for x, a in charged]
    moduli = _accumulated([(end.abs(), abs(a)) for end, a in loaded])
    if charged is None:
        return rounding.outward_sum(bounds, moduli, terms)
    return rounding.widened(bounds, rounding.gamma(terms, like.dtype) * moduli + rounding.tiny(terms, like.dtype))


def _moduli(x: Operand, like: Tensor, dims: int) -> Tensor:
    """The largest modulus of an operand."""
    return _ends(x, 1.0, like, dims).abs().amax(0, True)


def _rounds_once(summands: Sequence[tuple[Operand, float]], dtype: torch.dtype) -> bool:
    """Two tensors added or subtracted: nothing is scaled, and no number is converted to another dtype."""
    if len(summands) != 2 or any(abs(a) != 1 for _, a in summands):
        return False
    return all(isinstance(x, Tensor | Set) and x.dtype is dtype for x, _ in summands)


def _ends(x: Operand, coefficient: float, like: Tensor, dims: int) -> Tensor:
    """Bounds of ``x`` in the order in which ``coefficient * x`` is (lower, upper)."""
    if varies(x):
        bounds = broadcast(x.bounds, dims)
        return bounds if coefficient >= 0 else bounds.flip(0)
    return as_tensor(x, like).unsqueeze(0)


def _accumulated(terms: Sequence[tuple[Tensor, float]]) -> Tensor:
    (total, coefficient), *rest = terms
    total = total if coefficient == 1 else total * coefficient
    for tensor, factor in rest:
        total = torch.add(total, tensor, alpha=factor)
    return total if total.shape[0] == 2 else total.expand(2, *total.shape[1:])


def _combined(
    summands: Sequence[tuple[Operand, float]], sets: Sequence[Set], shape: torch.Size, along: SampleAxis | None
) -> Linear:
    """The linear part of ``sum_i a_i x_i``."""
    rows = NO_ROWS
    for part in sets:
        rows = rows.union(part.form.rows) if part.affine else rows
    like, dims = sets[0].bounds, len(shape)
    center = torch.zeros(shape, dtype=like.dtype, device=like.device)
    begun = thread.arithmetic.deferred is not None  # a compiler writes no zeros that are added to
    generators = center.new_zeros(len(rows), *shape) if begun else center.new_empty(len(rows), *shape)
    for x, a in summands:
        if varies(x):
            center = torch.add(center, x.form.center, alpha=a)
            if x.affine:
                add = _add_rows if begun else _begin_rows
                add(generators, rows, broadcast(x.form.generators, dims), x.form.rows, a)
                begun = True
        else:
            center = center + a * as_tensor(x, like)
    return Linear(center, generators, rows, along)


def _begin_rows(total: Tensor, rows: Rows, first: Tensor, part: Rows, factor: float) -> None:
    """The first rows of a sum, and zeros elsewhere."""
    where = rows.positions(part, total.device)
    if not isinstance(where, slice):
        _add_rows(total.zero_(), rows, first, part, factor)
        return
    total[: where.start] = 0.0
    torch.mul(first.expand(where.stop - where.start, *total.shape[1:]), factor, out=total[where])
    total[where.stop :] = 0.0


def _add_rows(total: Tensor, rows: Rows, added: Tensor, part: Rows, factor: float) -> None:
    """Add rows where they stand among those of the total: of many rows, no copy is made."""
    where = rows.positions(part, total.device)
    if isinstance(where, slice):
        total[where].add_(added, alpha=factor)
    else:
        total.index_add_(0, where, added.expand(len(where), *total.shape[1:]), alpha=factor)


def _combined_radius(
    summands: Sequence[tuple[Operand, float]],
    charged: Sequence[tuple[Operand, float]],
    terms: float,
    like: Tensor,
    shape: torch.Size,
) -> Tensor:
    radius = torch.full(shape, rounding.tiny(1, like.dtype), dtype=like.dtype, device=like.device)
    for x, a in summands:
        if varies(x):
            radius = torch.add(radius, x.form.radius, alpha=abs(a))
    charge = rounding.gamma(terms + 2, like.dtype)  # with 12 roundings of the moduli more than ours and plain ones take
    for x, a in charged:
        moduli = x.form.modulus if varies(x) else as_tensor(x, like).abs()
        radius = torch.add(radius, moduli, alpha=abs(a) * charge)
    return radius


@rule(
    aten.add.Tensor,
    aten.add.Scalar,
    example=lambda t: (t(2, 3), t(3)),
)
def add(x: Operand, y: Operand, *, alpha: float = 1) -> Set:
    """``x + alpha y``. A sum remembers its terms once, so that ``p - lr (g + decay p)`` contracts p."""
    terms = [(x, 1.0), (y, float(alpha))]
    charged = None
    remembered = y.remembered if isinstance(y, Set) else None
    if remembered is not None and remembered.parameter is x:  # and not what an update has made of it
        decay = remembered.coefficient
        terms = [(x, 1 + alpha * decay), (remembered.rest, float(alpha))]
        charged = [(x, 1 + abs(alpha * decay)), (remembered.rest, float(alpha))]
    result = combination("add", terms, charged=charged)
    if isinstance(y, Set) and y.parameter and isinstance(x, Set):
        rest = selected(x, lambda v, lead: v.clone()) if x.exact else x  # a plain tensor may be written to
        result.remembered = Remembered(rest, y, float(alpha))
    return result


class Remembered(NamedTuple):
    """``rest + coefficient parameter``: what weight decay adds, kept until the update uses it."""

    rest: Set
    parameter: Set
    coefficient: float


@rule(aten.sub.Tensor, aten.sub.Scalar, example=lambda t: (t(2, 3), t(3)))
def sub(x: Operand, y: Operand, *, alpha: float = 1) -> Set:
    return combination("sub", [(x, 1.0), (y, -float(alpha))])


@rule(aten.rsub.Tensor, aten.rsub.Scalar, example=lambda t: (t(2, 3), 1.5))
def rsub(x: Operand, y: Operand, alpha: float = 1) -> Set:
    return combination("rsub", [(y, 1.0), (x, -float(alpha))])


@rule(aten.neg.default, example=lambda t: (t(2, 3),))
def neg(x: Set) -> Set:
    form, clean = x._form, x.clean
    if form is not None:
        form = Form(-form.center, -form.generators, form.radius, form.rows, form.along)
    if clean is not None:
        clean = Remainder(-clean.bounds.flip(0), clean.radius)
    return Set(-x.bounds.flip(0), form, x.symbols, x.exact, clean=clean, along=x.along)


@rule(aten.lerp.Scalar, example=lambda t: (t(2, 3), t(2, 3), 0.1))
def lerp(x: Operand, end: Operand, weight: float) -> Set:
    """``x + w (end - x) = (1 - w) x + w end``: one term for x, so that it contracts."""
    charged = [(x, 1 + abs(weight)), (end, float(weight))]
    return combination("lerp", [(x, 1.0 - weight), (end, float(weight))], terms=5, charged=charged)
