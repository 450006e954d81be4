"""Linear operators: ``f(c + G xi + rho zeta) = f(c) + f(G) xi + |f|(rho) zeta``, row by row.

Two kinds:

- *sums* with coefficients >= 0 (sum, mean, pooling) are monotone, so ``[f(l), f(u)]`` is exact;
- *combinations* ``sum_i a_i x_i`` of operands (add, sub, lerp): negative a_i swap the ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import rounding
from ..bounded import aten, rule
from ..clean import Clean, Excess, OwnRows, Samples, without_own
from ..context import keeps_by_sample
from ..errors import MixedTensors, UnsupportedOperator
from ..factors import Factors
from ..forms import Form
from ..rows import NO_ROWS
from ..sets import (
    Set,
    as_set,
    concretised,
    nonnegative,
    own_axis,
    plain,
    same_kind,
    sample_axis,
    samples_of,
    symbols_of,
    value,
)
from .structural import axis, selected

# --- nonnegative: sums with coefficients >= 0 are monotone ----------------------------------------------------------


def summed(
    name: str,
    x: Any,
    f: Callable[[Tensor, int], Tensor],
    terms: float,
    axis: int | None = None,
    over_samples: Callable[[Tensor, int], Tensor] | None = None,
) -> Set:
    """``f`` is linear with coefficients >= 0 and adds ``terms`` elements up: ``[f(l), f(u)]``, outward.

    ``axis`` says where f leaves the sample axis; ``over_samples`` is f without its sum over the sample axis, which it
    puts behind the leading axes. Without either, own rows are written out before.
    """
    x = as_set(x)
    if axis is None and over_samples is None:
        x = x.dense()
    excess = None
    if x.clean is not None and over_samples is not None:
        excess = _worst_sum(x, over_samples, terms)
        bounds = excess.bounds()
    else:
        bounds = rounding.outward_sum(f(x.bounds, 1), f(x.bounds.abs(), 1), terms)
    form, clean = None, None
    if x.clean is not None and axis is not None:
        inner = rounding.outward_sum(f(x.clean.bounds, 1), f(x.clean.bounds.abs(), 1), terms)
        clean = Clean(inner, None, axis, x.clean.samples)
    if x.affine:

        def radius(own: Tensor, g: Callable[[Tensor, int], Tensor]) -> Tensor:
            total = g(own + rounding.gamma(terms, x.dtype) * x.form.modulus, 0)
            return rounding.up(total) + rounding.tiny(terms, x.dtype)

        generators, rows, error, own = x.form.generators, x.form.rows, radius(x.form.radius, f), None
        if over_samples is not None and rows.batch is not None:
            samples = x.clean.samples if x.clean is not None else None
            terms_of_rows = over_samples(generators[rows.split()[2].to(x.device)], 1)
            own = OwnRows.of(rows.batch, terms_of_rows, x.symbols.table, samples)
        by_sample = x.clean is not None and x.clean.radius is not None
        if by_sample and excess is not None and over_samples is not None:
            more = over_samples(rounding.up(x.form.radius - x.clean.radius).clamp_min(0.0), 0)
            more = more * (1 + rounding.gamma(terms, x.dtype))
            excess.radius = radius(x.clean.radius, f)
            touched, inner = over_samples(x.bounds, 1), over_samples(x.clean.bounds, 1)
            excess.more = without_own(touched, inner, more, own, over_samples(_moduli(x), 0), terms)
        elif by_sample and clean is not None:
            clean = Clean(clean.bounds, radius(x.clean.radius, f), clean.axis, clean.samples)
        if own is not None:
            rest, where, _ = rows.split()
            apart = rows.batch.written_out(own.rows)
            kept = f(generators[where.to(x.device)], 1)
            rows, batch = rest.union(rows.batch.distinct), rows.batch
            generators = rows.place(kept, rest) + rows.place(apart, batch.distinct)
        else:
            generators = f(generators, 1)
        form = Form(f(x.form.center, 0), generators, error, rows, axis if rows.batch is not None else None)
        form = excess.around(form) if excess is not None and excess.radius is not None else form
    total = concretised(name, bounds, form, x.symbols, x.nonnegative, clean)
    total.excess = excess if keeps_by_sample() else None
    return total


def _moduli(x: Set) -> Tensor:
    """The largest modulus of every element, touched or clean."""
    assert x.clean is not None
    return torch.maximum(x.bounds.abs(), x.clean.bounds.abs()).amax(0)


def _worst_sum(x: Set, over_samples: Callable[[Tensor, int], Tensor], terms: float) -> Excess:
    """A sum over samples of which at most k are touched: the clean sum, and what touching each of them adds."""
    assert x.clean is not None
    touched, clean = over_samples(x.bounds, 1), over_samples(x.clean.bounds, 1)
    # the moduli at their largest: the roundings of every member, and ours of the clean sum
    moduli = over_samples(_moduli(x), 0).sum(0)
    interval = rounding.outward_sum(clean.sum(1), moduli, 2 * terms + 2)
    beyond = torch.stack((clean[0] - touched[0], touched[1] - clean[1])).clamp_min(0.0)
    return Excess(x.clean.samples, interval, beyond * (1 + rounding.gamma(terms, x.dtype)))


def _axes(dims: Any, x: Set) -> list[int]:
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return list(range(x.dim()))
    return [dim % max(x.dim(), 1) for dim in ((dims,) if isinstance(dims, int) else dims)]


@rule(aten.sum.default, aten.sum.dim_IntList, example=lambda t: (t(3, 4), [0]))
def sum_(x: Set, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Set:
    if x.dtype is torch.bool:
        raise UnsupportedOperator("counting conditions that are not decided has no rule: convert them with .to(dtype)")
    if dtype not in (None, x.dtype):
        raise MixedTensors(f"sum to {dtype}: convert with .to() first")
    axes = _axes(dims, x) if x.dim() else []
    if not axes:
        return selected(x, lambda tensor, lead: tensor)
    terms = math.prod(x.shape[dim] for dim in axes)
    f, options = _reduction(x, axes, keepdim, lambda v, dims, keep: v.sum(dims, keep), 1)
    return summed("sum", x, f, terms, **options)


@rule(aten.mean.default, aten.mean.dim, example=lambda t: (t(3, 4), [1]))
def mean(x: Set, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Set:
    axes = _axes(dims, x)
    if dtype not in (None, x.dtype):
        raise MixedTensors(f"mean to {dtype}: convert with .to() first")
    if not x.dim():
        return selected(x, lambda tensor, lead: tensor)
    terms = math.prod(x.shape[dim] for dim in axes)
    f, options = _reduction(x, axes, keepdim, lambda v, dims, keep: v.mean(dims, keep), terms)
    return summed("mean", x, f, terms + 2, **options)


def _reduction(x: Set, axes: list[int], keepdim: bool, reduce: Callable, divisor: int) -> tuple[Callable, dict]:
    """The sum or mean over some axes, and what it does to own rows."""

    def f(tensor: Tensor, lead: int) -> Tensor:
        return reduce(tensor, [dim + lead for dim in axes], keepdim)

    found = sample_axis(x)
    if found is None:
        return f, {}
    samples = found + x.dim()
    if samples not in axes:
        after = [dim for dim in range(samples, x.dim()) if keepdim or dim not in axes]
        return f, {"axis": -len(after)}

    def over_samples(tensor: Tensor, lead: int) -> Tensor:
        rest = [dim + lead for dim in axes if dim != samples]
        total = tensor.sum(rest, True) if rest else tensor
        total = total.movedim(samples + lead, lead) / divisor
        kept = [1 if dim in axes else size for dim, size in enumerate(x.shape)]
        shape = kept if keepdim else [size for dim, size in enumerate(x.shape) if dim not in axes]
        return total.reshape(*total.shape[: lead + 1], *shape)

    return f, {"over_samples": over_samples}


@rule(aten.cumsum.default, example=lambda t: (t(3, 4), 1))
def cumsum(x: Set, dim: int, *, dtype: Any = None) -> Set:
    return summed("cumsum", x, lambda v, lead: v.cumsum(axis(dim, v, lead)), x.shape[dim])


# --- combinations ---------------------------------------------------------------------------------------------------


def broadcast(tensor: Tensor, dims: int) -> Tensor:
    """Insert axes behind the leading one so that the tensor's own shape has ``dims`` axes."""
    if tensor.dim() == dims + 1:
        return tensor
    return tensor.reshape(tensor.shape[0], *(1,) * (dims + 1 - tensor.dim()), *tensor.shape[1:])


def as_tensor(x: Any, like: Tensor) -> Tensor:
    """A plain operand in the dtype of a set."""
    x = value(x)
    if isinstance(x, Tensor):
        return x.to(dtype=like.dtype, device=like.device if x.dim() == 0 else None)
    return torch.tensor(x, dtype=like.dtype, device=like.device)


def combination(
    name: str,
    summands: Sequence[tuple[Any, float]],
    terms: float = 3,
    charged: Sequence[tuple[Any, float]] | None = None,
    factors: Factors | None = None,
    sharp: bool = True,
) -> Set:
    """``sum_i a_i x_i``. Roundings are charged on ``charged`` where plain PyTorch sums other terms than we do.

    ``sharp=False`` saves the support function where the summands hardly share symbols, or only the form is of interest.
    """
    operands, axis = own_axis(*(x for x, _ in summands))
    same_kind(*operands)
    if axis is None and charged is not None:
        charged = [(x.dense() if isinstance(x, Set) else x, a) for x, a in charged]
    summands = [(x, a) for x, (_, a) in zip(operands, summands, strict=True)]
    sets = [x for x in operands if isinstance(x, Set)]
    like, dims = sets[0].bounds, max(x.dim() for x in operands if isinstance(x, Tensor | Set))
    for x, a in summands:
        rounding.require_normal(a, like.dtype)
        if isinstance(x, int | float):
            rounding.require_normal(x, like.dtype)
    ends = [(_ends(x, a, like, dims), a) for x, a in summands]
    bounds = _accumulated(ends)
    if charged is None and terms <= 3 and _rounds_once(summands, like.dtype):
        bounds = rounding.outward(bounds)
    else:
        # other terms than the summands are charged at their largest, not at the end point of the same bound
        loaded = ends if charged is None else [(_ends(x, 1.0, like, dims).abs().amax(0, True), a) for x, a in charged]
        bounds = rounding.outward_sum(bounds, _accumulated([(end.abs(), abs(a)) for end, a in loaded]), terms)
    form, clean = None, None
    if any(x.affine for x in sets):
        form = _combined_form(summands, charged or summands, terms, sets, bounds.shape[1:], axis)
    found = samples_of(*operands)
    if found is not None:
        clean = _combined_clean(summands, charged or summands, terms, bounds.shape[1:], form, found)
    never_negative = nonnegative(*operands) and all(a >= 0 for _, a in summands)
    return concretised(name, bounds, form, symbols_of(*sets), never_negative, clean, sharp, factors)


def _combined_clean(
    summands: Sequence[tuple[Any, float]],
    charged: Sequence[tuple[Any, float]],
    terms: float,
    shape: torch.Size,
    form: Form | None,
    found: tuple[Samples, int],
) -> Clean:
    """The same combination of what the operands are where their own sample was left alone."""
    within = [(x.untouched if isinstance(x, Set) else x, a) for x, a in summands]
    like = next(x for x, _ in within if isinstance(x, Set)).bounds
    ends = [(_ends(x, a, like, len(shape)), a) for x, a in within]
    loaded = [(_ends(x, 1.0, like, len(shape)).abs().amax(0, True), a) for x, a in charged]
    moduli = _accumulated([(end.abs(), abs(a)) for end, a in loaded])
    bounds = rounding.outward_sum(_accumulated(ends), moduli, terms).expand(2, *shape)
    radius = _combined_radius(within, charged, terms, like, shape) if form is not None else None
    samples, axis = found
    return Clean(bounds, radius, axis, samples)


def _rounds_once(summands: Sequence[tuple[Any, float]], dtype: torch.dtype) -> bool:
    """Two tensors added or subtracted: nothing is scaled, and no number is converted to another dtype."""
    same = all(isinstance(x, Tensor | Set) and x.dtype is dtype for x, _ in summands)
    return same and len(summands) == 2 and all(abs(a) == 1 for _, a in summands)


def _ends(x: Any, coefficient: float, like: Tensor, dims: int) -> Tensor:
    """Bounds of ``x`` in the order in which ``coefficient * x`` is (lower, upper)."""
    if plain(x):
        return as_tensor(x, like).unsqueeze(0)
    bounds = broadcast(x.bounds, dims)
    return bounds if coefficient >= 0 else bounds.flip(0)


def _accumulated(terms: Sequence[tuple[Tensor, float]]) -> Tensor:
    (total, coefficient), *rest = terms
    total = total if coefficient == 1 else total * coefficient
    for tensor, factor in rest:
        total = torch.add(total, tensor, alpha=factor)
    return total if total.shape[0] == 2 else total.expand(2, *total.shape[1:])


def _combined_form(
    summands: Sequence[tuple[Any, float]],
    charged: Sequence[tuple[Any, float]],
    terms: float,
    sets: Sequence[Set],
    shape: torch.Size,
    axis: int | None,
) -> Form:
    rows = NO_ROWS
    for x in sets:
        rows = rows.union(x.form.rows)
    like, dims = sets[0].bounds, len(shape)
    center = torch.zeros(shape, dtype=like.dtype, device=like.device)
    generators = center.new_zeros(len(rows), *shape)
    for x, a in summands:
        if plain(x):
            center = center + a * as_tensor(x, like)
        else:
            center = torch.add(center, x.form.center, alpha=a)
            if x.affine:
                placed = broadcast(rows.place(x.form.generators, x.form.rows), dims)
                generators.add_(placed, alpha=a)
    return Form(center, generators, _combined_radius(summands, charged, terms, like, shape), rows, axis)


def _combined_radius(
    summands: Sequence[tuple[Any, float]],
    charged: Sequence[tuple[Any, float]],
    terms: float,
    like: Tensor,
    shape: torch.Size,
) -> Tensor:
    radius = torch.full(shape, rounding.tiny(1, like.dtype), dtype=like.dtype, device=like.device)
    for x, a in summands:
        if not plain(x):
            radius = torch.add(radius, x.form.radius, alpha=abs(a))
    charge = rounding.gamma(terms + 2, like.dtype)
    for x, a in charged:
        moduli = as_tensor(x, like).abs() if plain(x) else x.form.modulus
        radius = torch.add(radius, moduli, alpha=abs(a) * charge)
    return rounding.up(radius)


@rule(
    aten.add.Tensor,
    aten.add.Scalar,
    example=lambda t: (t(2, 3), t(3)),
)
def add(x: Any, y: Any, *, alpha: float = 1) -> Set:
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
        result.remembered = Remembered(x, y, float(alpha))
    return result


class Remembered(NamedTuple):
    """``rest + coefficient parameter``: what weight decay adds, kept until the update uses it."""

    rest: Set
    parameter: Set
    coefficient: float


@rule(aten.sub.Tensor, aten.sub.Scalar, example=lambda t: (t(2, 3), t(3)))
def sub(x: Any, y: Any, *, alpha: float = 1) -> Set:
    return combination("sub", [(x, 1.0), (y, -float(alpha))])


@rule(aten.rsub.Tensor, aten.rsub.Scalar, example=lambda t: (t(2, 3), 1.5))
def rsub(x: Any, y: Any, alpha: float = 1) -> Set:
    return combination("rsub", [(y, 1.0), (x, -float(alpha))])


@rule(aten.neg.default, example=lambda t: (t(2, 3),))
def neg(x: Set) -> Set:
    form, clean = x._form, x.clean
    if form is not None:
        form = Form(-form.center, -form.generators, form.radius, form.rows, form.axis)
    if clean is not None:
        clean = Clean(-clean.bounds.flip(0), clean.radius, clean.axis, clean.samples)
    return Set(-x.bounds.flip(0), form, x.symbols, x.exact, clean=clean)


@rule(aten.lerp.Scalar, example=lambda t: (t(2, 3), t(2, 3), 0.1))
def lerp(x: Any, end: Any, weight: float) -> Set:
    """``x + w (end - x) = (1 - w) x + w end``: one term for x, so that it contracts."""
    charged = [(x, 1 + abs(weight)), (end, float(weight))]
    return combination("lerp", [(x, 1.0 - weight), (end, float(weight))], terms=5, charged=charged)
