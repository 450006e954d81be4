"""Linear operators: ``f(c + G xi + rho zeta) = f(c) + f(G) xi + |f|(rho) zeta``, row by row.

Three kinds, from exact to rounded:

- *structural* operators pick and place elements (view, transpose, index, cat ...): no arithmetic, no rounding;
- *nonnegative* operators sum with coefficients >= 0 (sum, mean, pooling): monotone, so ``[f(l), f(u)]`` is exact;
- *combinations* ``sum_i a_i x_i`` of operands (add, sub, lerp): negative a_i swap the ends.

Every function here takes ``lead``: how many leading axes (bounds or generator rows) stand before the tensor's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import rounding
from ..bounded import (
    Bounded,
    Form,
    as_set,
    aten,
    ball_form,
    concretised,
    nonnegative,
    own_axis,
    plain,
    point,
    replaces,
    rule,
    same_kind,
    symbols_of,
    value,
)
from ..errors import MixedTensors, PlainTarget, Undecided, UnsupportedOperator
from ..symbols import NO_ROWS

# --- structural: the same selection of elements from center, radius, bounds and every row ---------------------------


def map_form(form: Form | None, f: Callable[[Tensor, int], Tensor]) -> Form | None:
    """Apply an exact linear function to every part of an affine form."""
    if form is None:
        return None
    center, radius = f(form.center, 0), f(form.radius, 0)
    if not len(form.rows):
        return ball_form(center, radius)
    axis = None
    if form.rows.batch is not None:
        axis = _moved_axis(form, f)
        if axis is None:
            form = form.dense
    return Form(center, f(form.generators, 1), radius, form.rows, axis)


def _moved_axis(form: Form, f: Callable[[Tensor, int], Tensor]) -> int | None:
    """Where a structural function puts the sample axis, if it keeps the samples in order: ask it about positions."""
    assert form.rows.batch is not None and form.axis is not None
    size, device = len(form.rows.batch), form.center.device
    if size < 2:
        return None
    positions = torch.arange(1, size + 1, device=device)  # counted from one: a zero is something else put there
    shape = [1] * form.center.dim()
    shape[form.axis] = size
    moved = f(positions.view(shape).expand(form.center.shape), 0)
    for axis in range(-moved.dim(), 0):
        if moved.shape[axis] == size:
            line = [1] * moved.dim()
            line[axis] = size
            if bool((moved == positions.view(line)).all()):
                return axis
    return None


def selected(x: Any, f: Callable[[Tensor, int], Tensor]) -> Bounded:
    """A set whose elements are elements of ``x``, or zero."""
    x = as_set(x)
    form = map_form(x._form, f)
    return Bounded(f(x._bounds, 1), form, x._symbols, x._exact, nonnegative=x._nonnegative)


def structural(*operators: Any, example: Callable[..., tuple] | None) -> Callable[[Callable], Callable]:
    """Register ``f(tensor, lead, *arguments)`` as the rule of structural operators."""

    def register(f: Callable) -> Callable:
        @rule(*operators, example=example)
        def apply(x: Bounded, *args: Any, **kwargs: Any) -> Bounded:
            return selected(x, lambda tensor, lead: f(tensor, lead, *args, **kwargs))

        return f

    return register


def axis(dim: int, tensor: Tensor, lead: int, extra: int = 0) -> int:
    """A dimension of the tensor, counted behind the leading axes."""
    return lead + (dim % max(tensor.dim() - lead + extra, 1))


@structural(aten.view.default, aten._unsafe_view.default, aten.reshape.default, example=lambda t: (t(2, 6), [3, 4]))
def view(tensor: Tensor, lead: int, shape: Sequence[int]) -> Tensor:
    if -1 in shape:
        own = math.prod(tensor.shape[lead:])
        known = -math.prod(shape)
        shape = [own // known if size == -1 else size for size in shape]
    return tensor.reshape((*tensor.shape[:lead], *shape))


@structural(aten.t.default, example=lambda t: (t(2, 3),))
def t(tensor: Tensor, lead: int) -> Tensor:
    return tensor.transpose(lead, lead + 1) if tensor.dim() - lead == 2 else tensor


@structural(aten.transpose.int, example=lambda t: (t(2, 3, 2), 0, -1))
def transpose(tensor: Tensor, lead: int, first: int, second: int) -> Tensor:
    return tensor.transpose(axis(first, tensor, lead), axis(second, tensor, lead))


@structural(aten.permute.default, example=lambda t: (t(2, 3, 2), [2, 0, -2]))
def permute(tensor: Tensor, lead: int, dims: Sequence[int]) -> Tensor:
    return tensor.permute(*range(lead), *(axis(dim, tensor, lead) for dim in dims))


@structural(aten.unsqueeze.default, example=lambda t: (t(2, 3), -2))
def unsqueeze(tensor: Tensor, lead: int, dim: int) -> Tensor:
    return tensor.unsqueeze(axis(dim, tensor, lead, extra=1))


@structural(aten.squeeze.default, example=lambda t: (t(1, 3, 1),))
def squeeze(tensor: Tensor, lead: int) -> Tensor:
    return tensor.reshape((*tensor.shape[:lead], *(size for size in tensor.shape[lead:] if size != 1)))


@structural(aten.squeeze.dim, example=lambda t: (t(2, 1, 3), 1))
@structural(aten.squeeze.dims, example=lambda t: (t(2, 1, 3, 1), [1, -1]))
def squeeze_dims(tensor: Tensor, lead: int, dims: int | Sequence[int]) -> Tensor:
    dims = (dims,) if isinstance(dims, int) else dims
    return tensor.squeeze(tuple(axis(dim, tensor, lead) for dim in dims))


@structural(aten.expand.default, example=lambda t: (t(3, 1), [2, -1, 4]))
def expand(tensor: Tensor, lead: int, shape: Sequence[int], implicit: bool = False) -> Tensor:
    own = tensor.shape[lead:]
    padded = tensor.reshape((*tensor.shape[:lead], *(1,) * (len(shape) - len(own)), *own))
    return padded.expand((*tensor.shape[:lead], *shape))


@structural(aten.select.int, example=lambda t: (t(2, 3), -1, 1))
def select(tensor: Tensor, lead: int, dim: int, index: int) -> Tensor:
    return tensor.select(axis(dim, tensor, lead), index)


@structural(aten.slice.Tensor, example=lambda t: (t(2, 5), 1, 0, 4, 2))
def slice_(tensor: Tensor, lead: int, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    return aten.slice.Tensor(tensor, axis(dim, tensor, lead), start, end, step)


@structural(aten.detach.default, aten.alias.default, aten.lift_fresh.default, example=lambda t: (t(2),))
def detach(tensor: Tensor, lead: int) -> Tensor:
    return tensor


@structural(aten.clone.default, aten.contiguous.default, example=lambda t: (t(2, 3),))
def clone(tensor: Tensor, lead: int, memory_format: Any = None) -> Tensor:
    return tensor  # inner tensors are never written to, so a copy may share them


def positional(*operators: Any, example: Callable[..., tuple]) -> None:
    """Register operators that only pick elements: run them on the positions, then gather those."""
    for operator in operators:

        @rule(operator, example=example)
        def apply(x: Bounded, *args: Any, _operator: Any = operator, **kwargs: Any) -> Any:
            picked = _operator(_numbers(x), *decided(args), **kwargs)
            if isinstance(picked, list | tuple):
                return [_picked(x, part) for part in picked]
            return _picked(x, picked)


def decided(index: Any) -> Any:
    """An index in which every condition has one answer, as a plain one."""
    if isinstance(index, list | tuple):
        return type(index)(decided(part) for part in index)
    if not isinstance(index, Bounded):
        return index
    low, high = index._bounds.unbind(0)
    if not bool((low == high).all()):
        raise Undecided("this index is not the same for every tensor in the set: use torch.where or masked_fill")
    return low


def _picked(x: Any, positions: Tensor) -> Bounded:
    return selected(x, lambda tensor, lead: gathered(tensor, lead, positions))


def gathered(tensor: Tensor, lead: int, positions: Tensor) -> Tensor:
    return tensor.flatten(lead)[..., positions] if tensor.dim() > lead else tensor.unsqueeze(-1)[..., positions]


positional(aten.index.Tensor, example=lambda t: (t(3, 4), [torch.tensor([2, 0]), torch.tensor([1, 3])]))
positional(aten.index_select.default, example=lambda t: (t(3, 4), 1, torch.tensor([2, 0, 2])))
positional(aten.gather.default, example=lambda t: (t(3, 4), 1, torch.tensor([[2], [0], [1]])))
positional(aten.embedding.default, example=lambda t: (t(5, 3), torch.tensor([4, 0, 4])))
positional(aten.flip.default, example=lambda t: (t(2, 3), [1]))
positional(aten.roll.default, example=lambda t: (t(2, 3), [1], [1]))
positional(aten.repeat.default, example=lambda t: (t(2, 3), [2, 1]))
positional(aten.unbind.int, example=lambda t: (t(2, 3), 1))
positional(aten.split.Tensor, example=lambda t: (t(5, 2), 2))
positional(aten.split_with_sizes.default, example=lambda t: (t(5, 2), [2, 3]))
positional(aten.diagonal.default, example=lambda t: (t(3, 3),))
positional(aten.unfold.default, example=lambda t: (t(2, 5), 1, 3, 2))


def _common_axis(sets: Sequence[Bounded]) -> int | None:
    """The sample axis of parts that are put side by side, if they agree on it."""
    forms = [part.form for part in sets if part.affine and part.form.rows.batch is not None]
    agree = all(form.rows.batch is forms[0].rows.batch and form.axis == forms[0].axis for form in forms)
    return forms[0].axis if forms and agree else None


@rule(aten.cat.default, example=lambda t: ([t(2, 3), t(1, 3)], 0))
def cat(parts: Sequence[Any], dim: int = 0) -> Bounded:
    """Rows are first padded to common rows; a plain part has zero rows."""
    same_kind(*parts)
    kept = [part for part in parts if not (part.dim() == 1 and part.shape[0] == 0)]
    reference = next(part for part in kept if isinstance(part, Bounded))
    sets = [part if isinstance(part, Bounded) else point(part.to(reference.dtype)) for part in kept]
    dim = dim % reference.dim()
    axis = _common_axis(sets)
    if axis is None or axis + reference.dim() == dim:
        sets, axis = [part.dense() for part in sets], None
    bounds = torch.cat([part._bounds for part in sets], dim + 1)
    form = None
    if any(part.affine for part in sets):
        rows = NO_ROWS
        for part in sets:
            rows = rows.union(part.form.rows)
        form = Form(
            torch.cat([part.form.center for part in sets], dim),
            torch.cat([rows.place(part.form.generators, part.form.rows) for part in sets], dim + 1),
            torch.cat([part.form.radius for part in sets], dim),
            rows,
            axis,
        )
    return Bounded(bounds, form, symbols_of(*sets), all(part._exact for part in sets))


@rule(aten.stack.default, example=lambda t: ([t(2, 3), t(2, 3)], -1))
def stack(parts: Sequence[Any], dim: int = 0) -> Bounded:
    dim = dim % (parts[0].dim() + 1)

    def widened(part: Any) -> Any:
        if isinstance(part, Bounded):
            return selected(part, lambda tensor, lead: unsqueeze(tensor, lead, dim))
        return part.unsqueeze(dim)

    return cat([widened(part) for part in parts], dim)


# --- nonnegative: sums with coefficients >= 0 are monotone ----------------------------------------------------------


def summed(
    name: str,
    x: Any,
    f: Callable[[Tensor, int], Tensor],
    terms: float,
    axis: int | None = None,
    over_samples: Callable[[Tensor], Tensor] | None = None,
) -> Bounded:
    """``f`` is linear with coefficients >= 0 and adds ``terms`` elements up: ``[f(l), f(u)]``, outward.

    ``axis`` says where f leaves the sample axis; ``over_samples`` is f without its sum over the sample axis, which it
    puts first. Without either, own rows are written out before.
    """
    x = as_set(x)
    if axis is None and over_samples is None:
        x = x.dense()
    bounds = rounding.outward_sum(f(x._bounds, 1), f(x._bounds.abs(), 1), terms)
    form = None
    if x.affine:
        radius = f(x.form.radius + rounding.gamma(terms, x.dtype) * x.form.modulus, 0)
        radius = rounding.up(radius) + rounding.tiny(terms, x.dtype)
        generators, rows = x.form.generators, x.form.rows
        if over_samples is not None and rows.batch is not None:
            rest, where, own = rows.split()
            apart = rows.batch.written_out(over_samples(generators[own.to(x.device)]))
            kept = f(generators[where.to(x.device)], 1)
            rows, batch = rest.union(rows.batch.distinct), rows.batch
            generators = rows.place(kept, rest) + rows.place(apart, batch.distinct)
        else:
            generators = f(generators, 1)
        form = Form(f(x.form.center, 0), generators, radius, rows, axis if rows.batch is not None else None)
    return concretised(name, bounds, form, x._symbols, x._nonnegative)


def _axes(dims: Any, x: Tensor) -> list[int]:
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return list(range(x.dim()))
    return [dim % max(x.dim(), 1) for dim in ((dims,) if isinstance(dims, int) else dims)]


@rule(aten.sum.default, aten.sum.dim_IntList, example=lambda t: (t(3, 4), [0]))
def sum_(x: Bounded, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Bounded:
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
def mean(x: Bounded, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Bounded:
    axes = _axes(dims, x)
    if dtype not in (None, x.dtype):
        raise MixedTensors(f"mean to {dtype}: convert with .to() first")
    if not x.dim():
        return selected(x, lambda tensor, lead: tensor)
    terms = math.prod(x.shape[dim] for dim in axes)
    f, options = _reduction(x, axes, keepdim, lambda v, dims, keep: v.mean(dims, keep), terms)
    return summed("mean", x, f, terms + 2, **options)


def _reduction(x: Bounded, axes: list[int], keepdim: bool, reduce: Callable, divisor: int) -> tuple[Callable, dict]:
    """The sum or mean over some axes, and what it does to own rows."""

    def f(tensor: Tensor, lead: int) -> Tensor:
        return reduce(tensor, [dim + lead for dim in axes], keepdim)

    if not x.affine or x.form.rows.batch is None:
        return f, {}
    assert x.form.axis is not None
    samples = x.form.axis + x.dim()
    if samples not in axes:
        after = [dim for dim in range(samples, x.dim()) if keepdim or dim not in axes]
        return f, {"axis": -len(after)}

    def over_samples(own: Tensor) -> Tensor:
        rest = [dim + 1 for dim in axes if dim != samples]
        total = own.sum(rest, True) if rest else own
        total = total.movedim(samples + 1, 1) / divisor
        kept = [1 if dim in axes else size for dim, size in enumerate(x.shape)]
        shape = kept if keepdim else [size for dim, size in enumerate(x.shape) if dim not in axes]
        return total.reshape(*total.shape[:2], *shape)

    return f, {"over_samples": over_samples}


@rule(aten.cumsum.default, example=lambda t: (t(3, 4), 1))
def cumsum(x: Bounded, dim: int, *, dtype: Any = None) -> Bounded:
    return summed("cumsum", x, lambda v, lead: v.cumsum(axis(dim, v, lead)), x.shape[dim])


@rule(aten.select_backward.default, example=lambda t: (t(2, 4), [2, 3, 4], 1, -1))
def select_backward(grad: Bounded, sizes: Sequence[int], dim: int, index: int) -> Bounded:
    def f(tensor: Tensor, lead: int) -> Tensor:
        out = tensor.new_zeros(*tensor.shape[:lead], *sizes)
        out.select(lead + dim % len(sizes), index).copy_(tensor)
        return out

    return selected(grad, f)


@rule(aten.slice_backward.default, example=lambda t: (t(2, 2), [2, 5], 1, 0, 4, 2))
def slice_backward(grad: Bounded, sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Bounded:
    def f(tensor: Tensor, lead: int) -> Tensor:
        out = tensor.new_zeros(*tensor.shape[:lead], *sizes)
        aten.slice.Tensor(out, lead + dim % len(sizes), start, end, step).copy_(tensor)
        return out

    return selected(grad, f)


@rule(aten.constant_pad_nd.default, example=lambda t: (t(2, 3), [1, -1, 0, 2]))
def constant_pad_nd(x: Bounded, pad: Sequence[int], fill: float = 0) -> Bounded:
    if fill:
        raise UnsupportedOperator("padding of a set with a value other than 0: use torch.cat with a full tensor")
    return selected(x, lambda tensor, lead: aten.constant_pad_nd.default(tensor, pad))


def _scattered(name: str, base: Bounded, positions: Tensor, source: Any) -> Bounded:
    """``base`` with ``source`` added at ``positions``, which may repeat."""
    size = base.numel()

    def place(tensor: Tensor, lead: int) -> Tensor:
        flat = tensor.new_zeros(*tensor.shape[:lead], size)
        flat.index_add_(lead, positions.flatten(), tensor.reshape(*tensor.shape[:lead], -1))
        return flat.view(*tensor.shape[:lead], *base.shape)

    most = int(torch.bincount(positions.flatten(), minlength=1).max()) if positions.numel() else 1
    source = source if isinstance(source, Bounded) else point(source.to(base.dtype))
    added = summed(name, source, place, most)
    return combination(name, [(base, 1.0), (added, 1.0)], terms=most + 1)


def _numbers(x: Tensor) -> Tensor:
    return torch.arange(x.numel(), device=x.device).view(x.shape)


@rule(
    aten.embedding_dense_backward.default,
    example=lambda t: (t(4, 3), torch.tensor([4, 0, 4, 1]), 5, -1, False),
)
def embedding_dense_backward(grad: Bounded, index: Tensor, count: int, padding: int, by_frequency: bool) -> Bounded:
    if by_frequency:
        raise UnsupportedOperator("embedding with scale_grad_by_freq=True has no rule")
    kept = (index != padding).unsqueeze(-1).to(grad.dtype) if padding >= 0 else None
    width = grad.shape[-1]

    def f(tensor: Tensor, lead: int) -> Tensor:
        tensor = tensor if kept is None else tensor * kept
        out = tensor.new_zeros(*tensor.shape[:lead], count, width)
        return out.index_add_(lead, index.flatten(), tensor.reshape(*tensor.shape[:lead], -1, width))

    return summed("embedding_backward", grad, f, index.numel())


@rule(
    aten.index_put.default,
    example=lambda t: (t(3, 4), [torch.tensor([2, 0, 2])], t(3, 4), True),
)
def index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Bounded:
    x = as_set(x)
    positions = aten.index.Tensor(_numbers(x), decided(indices))
    if isinstance(values, Bounded):
        values = selected(values, lambda tensor, lead: expand(tensor, lead, positions.shape))
    else:
        values = constant(values, x.dtype, x.device)
        values = selected(values, lambda tensor, lead: expand(tensor, lead, positions.shape))
    if accumulate:
        return _scattered("index_put", x, positions, values)
    flat = positions.flatten()
    if flat.unique().numel() != flat.numel():
        raise UnsupportedOperator("index_put writes one element twice: the result would depend on the order")

    def place(tensor: Tensor, lead: int) -> Tensor:
        out = tensor.new_zeros(*tensor.shape[:lead], x.numel())
        out[..., flat] = tensor.reshape(*tensor.shape[:lead], -1)
        return out.view(*tensor.shape[:lead], *x.shape)

    written = torch.zeros(x.numel(), dtype=torch.bool, device=x.device)
    written[flat] = True
    return chosen(written.view(x.shape), selected(values, place), x)


def chosen(mask: Tensor, a: Bounded, b: Bounded) -> Bounded:
    """Elements of ``a`` where a plain mask is true, of ``b`` elsewhere: exact."""
    (a, b), axis = own_axis(a, b)
    bounds = torch.where(mask, a._bounds, b._bounds)
    form = None
    if a.affine or b.affine:
        rows = a.form.rows.union(b.form.rows)
        form = Form(
            torch.where(mask, a.form.center, b.form.center),
            torch.where(mask, rows.place(a.form.generators, a.form.rows), rows.place(b.form.generators, b.form.rows)),
            torch.where(mask, a.form.radius, b.form.radius),
            rows,
            axis,
        )
    return Bounded(bounds, form, symbols_of(a, b))


@rule(aten.scatter_add.default, example=lambda t: (t(3, 4), 1, torch.tensor([[2, 0], [1, 1], [3, 3]]), t(3, 2)))
def scatter_add(x: Bounded, dim: int, index: Tensor, source: Any) -> Bounded:
    positions = _numbers(x).gather(dim, index)
    corner = tuple(slice(0, size) for size in index.shape)
    if isinstance(source, Bounded):
        source = selected(source, lambda tensor, lead: tensor[(slice(None),) * lead + corner])
    else:
        source = source[corner]
    return _scattered("scatter_add", x, positions, source)


@rule(aten.unfold_backward.default, example=lambda t: (t(2, 2, 3), [2, 5], 1, 3, 2))
def unfold_backward(grad: Bounded, sizes: Sequence[int], dim: int, size: int, step: int) -> Bounded:
    target = new_zeros(grad, sizes)
    return _scattered("unfold_backward", target, _numbers(target).unfold(dim, size, step), grad)


@replaces(torch.Tensor.__setitem__)
def assign(x: Any, index: Any, number: Any) -> None:
    """``x[index] = number``: written to x itself, where PyTorch would write through a view of it."""
    if not isinstance(x, Bounded):
        raise PlainTarget("x[index] = set would store a set in a plain tensor: make x bounded, or use torch.where")
    positions = _numbers(x)[decided(index)]
    placed = constant(number, x.dtype, x.device).expand(positions.shape).reshape(-1)
    x.copy_(x.reshape(-1).index_put((positions.flatten(),), placed).view(x.shape))


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


def constant(x: Any, dtype: torch.dtype, device: torch.device) -> Bounded:
    """A plain operand as a set: itself and, where converting it rounds, its neighbours.

    PyTorch turns numbers into 0-dimensional tensors before we see them, so of those only whole ones are exact.
    """
    if isinstance(x, Bounded):
        return x
    made = x.to(dtype) if isinstance(x, Tensor) else torch.tensor(x, dtype=dtype, device=device)
    if isinstance(x, Tensor):
        exact = x.dtype is dtype and (x.dim() > 0 or float(x).is_integer())
    else:
        exact = made.item() == x
    if exact:
        return point(made.clone())
    return Bounded(rounding.outward(torch.stack((made, made))))


def combination(
    name: str,
    summands: Sequence[tuple[Any, float]],
    terms: float = 3,
    charged: Sequence[tuple[Any, float]] | None = None,
) -> Bounded:
    """``sum_i a_i x_i``. Roundings are charged on ``charged`` where plain PyTorch sums other terms than we do."""
    operands, axis = own_axis(*(x for x, _ in summands))
    same_kind(*operands)
    if axis is None and charged is not None:
        charged = [(x.dense() if isinstance(x, Bounded) else x, a) for x, a in charged]
    summands = [(x, a) for x, (_, a) in zip(operands, summands, strict=True)]
    sets = [x for x in operands if isinstance(x, Bounded)]
    like, dims = sets[0]._bounds, max(x.dim() for x in operands if isinstance(x, Tensor))
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
    form = None
    if any(x.affine for x in sets):
        form = _combined_form(summands, charged or summands, terms, sets, bounds.shape[1:], axis)
    never_negative = nonnegative(*operands) and all(a >= 0 for _, a in summands)
    return concretised(name, bounds, form, symbols_of(*sets), never_negative)


def _rounds_once(summands: Sequence[tuple[Any, float]], dtype: torch.dtype) -> bool:
    """Two tensors added or subtracted: nothing is scaled, and no number is converted to another dtype."""
    same = all(isinstance(x, Tensor) and x.dtype is dtype for x, _ in summands)
    return same and len(summands) == 2 and all(abs(a) == 1 for _, a in summands)


def _ends(x: Any, coefficient: float, like: Tensor, dims: int) -> Tensor:
    """Bounds of ``x`` in the order in which ``coefficient * x`` is (lower, upper)."""
    if plain(x):
        return as_tensor(x, like).unsqueeze(0)
    bounds = broadcast(x._bounds, dims)
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
    sets: Sequence[Bounded],
    shape: torch.Size,
    axis: int | None,
) -> Form:
    rows = NO_ROWS
    for x in sets:
        rows = rows.union(x.form.rows)
    like, dims = sets[0]._bounds, len(shape)
    center = torch.zeros(shape, dtype=like.dtype, device=like.device)
    radius = torch.full(shape, rounding.tiny(1, like.dtype), dtype=like.dtype, device=like.device)
    generators = center.new_zeros(len(rows), *shape)
    for x, a in summands:
        if plain(x):
            center = center + a * as_tensor(x, like)
        else:
            center = torch.add(center, x.form.center, alpha=a)
            radius = torch.add(radius, x.form.radius, alpha=abs(a))
            if x.affine:
                placed = broadcast(rows.place(x.form.generators, x.form.rows), dims)
                generators.add_(placed, alpha=a)
    charge = rounding.gamma(terms + 2, like.dtype)
    for x, a in charged:
        moduli = as_tensor(x, like).abs() if plain(x) else x.form.modulus
        radius = torch.add(radius, moduli, alpha=abs(a) * charge)
    return Form(center, generators, rounding.up(radius), rows, axis)


@rule(
    aten.add.Tensor,
    aten.add.Scalar,
    example=lambda t: (t(2, 3), t(3)),
)
def add(x: Any, y: Any, *, alpha: float = 1) -> Bounded:
    """``x + alpha y``. A sum remembers its terms once, so that ``p - lr (g + decay p)`` contracts p."""
    terms = [(x, 1.0), (y, float(alpha))]
    charged = None
    remembered = getattr(y, "_sum", None)
    if remembered is not None and remembered.still_holds(x):
        decay = remembered.coefficient
        terms = [(x, 1 + alpha * decay), (remembered.rest, float(alpha))]
        charged = [(x, 1 + abs(alpha * decay)), (remembered.rest, float(alpha))]
    result = combination("add", terms, charged=charged)
    if isinstance(y, Bounded) and y.is_leaf and y.requires_grad and isinstance(x, Bounded):
        result._sum = Remembered(x, y, float(alpha))
    return result


class Remembered:
    """``rest + coefficient parameter``: what weight decay adds, kept until the update uses it."""

    def __init__(self, rest: Bounded, parameter: Bounded, coefficient: float):
        self.rest, self.parameter, self.coefficient = rest, parameter, coefficient
        self.versions = rest._version, parameter._version

    def still_holds(self, parameter: Any) -> bool:
        return parameter is self.parameter and self.versions == (self.rest._version, parameter._version)


@rule(aten.sub.Tensor, aten.sub.Scalar, example=lambda t: (t(2, 3), t(3)))
def sub(x: Any, y: Any, *, alpha: float = 1) -> Bounded:
    return combination("sub", [(x, 1.0), (y, -float(alpha))])


@rule(aten.rsub.Tensor, aten.rsub.Scalar, example=lambda t: (t(2, 3), 1.5))
def rsub(x: Any, y: Any, alpha: float = 1) -> Bounded:
    return combination("rsub", [(y, 1.0), (x, -float(alpha))])


@rule(aten.neg.default, example=lambda t: (t(2, 3),))
def neg(x: Bounded) -> Bounded:
    form = x._form
    if form is not None:
        form = Form(-form.center, -form.generators, form.radius, form.rows, form.axis)
    return Bounded(-x._bounds.flip(0), form, x._symbols, x._exact)


@rule(aten.lerp.Scalar, example=lambda t: (t(2, 3), t(2, 3), 0.1))
def lerp(x: Any, end: Any, weight: float) -> Bounded:
    """``x + w (end - x) = (1 - w) x + w end``: one term for x, so that it contracts."""
    charged = [(x, 1 + abs(weight)), (end, float(weight))]
    return combination("lerp", [(x, 1.0 - weight), (end, float(weight))], terms=5, charged=charged)


# --- constants and conversions --------------------------------------------------------------------------------------


def _filled(x: Bounded, shape: Any, fill: float, dtype: Any = None, device: Any = None, **options: Any) -> Bounded:
    """A set of one tensor: what optimizers keep their state in."""
    dtype = dtype or (x.dtype if x.dtype is not torch.bool else torch.get_default_dtype())
    number = constant(float(fill), dtype, device or x.device)
    bounds = number._bounds.view(2, *(1,) * len(shape)).expand(2, *shape)
    return Bounded(bounds, None, x._symbols, number._exact, nonnegative=fill >= 0)


@rule(aten.zeros_like.default, example=None)
def zeros_like(x: Bounded, **options: Any) -> Bounded:
    return _filled(x, x.shape, 0.0, **options)


@rule(aten.ones_like.default, example=None)
def ones_like(x: Bounded, **options: Any) -> Bounded:
    return _filled(x, x.shape, 1.0, **options)


@rule(aten.full_like.default, example=None)
def full_like(x: Bounded, fill: float, **options: Any) -> Bounded:
    return _filled(x, x.shape, fill, **options)


@rule(aten.new_zeros.default, example=None)
def new_zeros(x: Bounded, shape: Any, **options: Any) -> Bounded:
    return _filled(x, shape, 0.0, **options)


@rule(aten.new_ones.default, example=None)
def new_ones(x: Bounded, shape: Any, **options: Any) -> Bounded:
    return _filled(x, shape, 1.0, **options)


@rule(aten.new_full.default, example=None)
def new_full(x: Bounded, shape: Any, fill: float, **options: Any) -> Bounded:
    return _filled(x, shape, fill, **options)


@rule(aten.zero.default, example=None)
def zero(x: Bounded) -> Bounded:
    return _filled(x, x.shape, 0.0)


@rule(aten.fill.Scalar, aten.fill.Tensor, example=None)
def fill(x: Bounded, number: Any) -> Bounded:
    return selected(constant(number, x.dtype, x.device), lambda tensor, lead: expand(tensor, lead, x.shape))


@rule(aten.copy.default, example=None)
def copy(x: Bounded, source: Any, non_blocking: bool = False) -> Bounded:
    """``x.copy_(source)``: the set of the source, in the dtype and on the device of the target."""
    if not isinstance(source, Bounded):
        source = constant(source.detach().to(x.device).clone(), x.dtype, x.device)
    else:
        source = to_copy(source, dtype=x.dtype, device=x.device)
    return selected(source, lambda tensor, lead: expand(tensor, lead, x.shape))


@rule(aten._to_copy.default, example=None)
def to_copy(x: Bounded, *, dtype: Any = None, device: Any = None, **options: Any) -> Bounded:
    """Conversion to a narrower dtype rounds once, outwards; to a wider one it is exact."""
    dtype = dtype or x.dtype
    if x.dtype is torch.bool and dtype is not torch.bool:
        rounding.unit(dtype)
        return Bounded(x._bounds.to(dtype=dtype, device=device), None, x._symbols, nonnegative=True)
    if dtype is torch.bool:
        if x.dtype is not torch.bool:
            raise UnsupportedOperator("a set as a condition: say x != 0")
    else:
        rounding.unit(dtype)

    def convert(tensor: Tensor, lead: int) -> Tensor:
        return tensor.to(dtype=dtype, device=device)

    if dtype is x.dtype or dtype is torch.float64:
        return selected(x, convert)
    bounds = rounding.outward(convert(x._bounds, 1))
    form = None
    if x.affine:
        charge = rounding.gamma(1, dtype) * x.form.modulus
        radius = rounding.up(convert(rounding.up(x.form.radius + charge), 0)) + rounding.tiny(1, dtype)
        form = Form(convert(x.form.center, 0), convert(x.form.generators, 1), radius, x.form.rows, x.form.axis)
    return concretised("to", bounds, form, x._symbols)
