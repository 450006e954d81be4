"""Structural operators pick and place elements: the same selection from center, radius, bounds and every row.

No arithmetic, no rounding: exact. Every function here takes ``lead``: how many leading axes (bounds or generator rows)
stand before the tensor's own. Own rows stay own where the samples stay in order; the operator itself is asked where it
puts the positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._ops import OpOverload

from ..arithmetic.thread_context import thread
from ..errors import Undecided, UnsupportedOperator
from ..sets.clean_state import Remainder
from ..sets.forms import Form, PartMap, ball_form
from ..sets.sample_axis import SampleAxis
from ..sets.set import Set, as_set
from ..symbols.rows import NO_ROWS
from ..tensor.rule_table import Example, aten, rule
from .operand_properties import has_own_rows, only_touched, own_axis, same_kind
from .states import Linear, States

Structural = TypeVar("Structural", bound=Callable[..., Tensor])  # f(tensor, lead, *arguments)


def map_form(form: Form | None, f: PartMap, along: SampleAxis | None) -> Form | None:
    """Apply an exact linear function to every part of an affine form; ``along`` is where it leaves the samples."""
    if form is None:
        return None
    center, radius = f(form.center, 0), f(form.radius, 0)
    if not len(form.rows):
        return ball_form(center, radius)
    form = form.dense if along is None else form
    generators, along = f(form.generators, 1), along if form.along is not None else None
    return Form(center, generators, radius, form.rows, along, (form, f) if _reaches_alike(form, generators) else None)


def _reaches_alike(form: Form, generators: Tensor) -> bool:
    """Whether to ask a form how far its elements reach: it has them in the same memory, and all are asked for.

    Or it knows. Some of them alone may take less than all.
    """
    if thread.arithmetic.deferred is not None or _memory(generators) != _memory(form.generators):
        return False
    return generators.numel() == form.generators.numel() or form.knows_reach


def _memory(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def selected(x: Set | Tensor, f: PartMap) -> Set:
    """A set whose elements are elements of ``x``, or zero."""
    x = as_set(x)
    if x._form is None and x.along is None and x.excess is None:
        return Set(f(x.bounds, 1), None, x.symbols, x.exact, x.nonnegative)
    along = x.along.moved(x.bounds[0], f) if x.along is not None else None
    clean = None
    if x.clean is not None and along is not None:
        clean = Remainder(f(x.clean.bounds, 1), f(x.clean.radius, 0) if x.clean.radius is not None else None)
    form = map_form(x._form, f, along)
    made = Set(f(x.bounds, 1), form, x.symbols, x.exact, x.nonnegative, clean, along)
    made.excess = x.excess.mapped(f) if x.excess is not None else None
    if x.product is not None and _same_elements(x.bounds, made.bounds):  # as `detach` and a move to the same place are
        made.product = x.product
    return made


def _same_elements(x: Tensor, y: Tensor) -> bool:
    return x.data_ptr() == y.data_ptr() and x.shape == y.shape and x.stride() == y.stride()


def structural(*operators: OpOverload, example: Example | None) -> Callable[[Structural], Structural]:
    """Register ``f(tensor, lead, *arguments)`` as the rule of structural operators."""

    def register(f: Structural) -> Structural:
        @rule(*operators, example=example)
        def apply(x: Set, *args: Any, **kwargs: Any) -> Set:
            return selected(x, (lambda tensor, lead: f(tensor, lead, *args, **kwargs)) if args or kwargs else f)

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
def slice_(
    tensor: Tensor, lead: int, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    part: Tensor = aten.slice.Tensor(tensor, axis(dim, tensor, lead), start, end, step)
    return part


@structural(aten.detach.default, aten.alias.default, aten.lift_fresh.default, example=lambda t: (t(2),))
def detach(tensor: Tensor, lead: int) -> Tensor:
    return tensor


@structural(aten.clone.default, aten.contiguous.default, example=lambda t: (t(2, 3),))
def clone(tensor: Tensor, lead: int, memory_format: torch.memory_format | None = None) -> Tensor:
    return tensor  # inner tensors are never written to, so a copy may share them


def positional(*operators: OpOverload, example: Example) -> None:
    """Register operators that only pick elements: run them on the positions, then gather those."""
    for operator in operators:

        @rule(operator, example=example)
        def apply(x: Set, *args: Any, _operator: OpOverload = operator, **kwargs: Any) -> Set | list[Set]:
            picked = _operator(numbered(x), *decided(args), **kwargs)
            if isinstance(picked, list | tuple):
                return [_picked(x, part) for part in picked]
            return _picked(x, picked)


def decided(index: Any) -> Any:
    """An index in which every condition has one answer, as a plain one."""
    if isinstance(index, list | tuple):
        return type(index)(decided(part) for part in index)
    if not isinstance(index, Set):
        return index
    low, high = index.bounds.unbind(0)
    if not bool((low == high).all()):
        raise Undecided("this index is not the same for every tensor in the set: use torch.where or masked_fill")
    return low


def _picked(x: Set, positions: Tensor) -> Set:
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


def _common_axis(marked: Sequence[Set], dim: int) -> SampleAxis | None:
    """The samples of parts that are put side by side, if they agree on them, and not along the samples."""
    if not marked or any(part.along != marked[0].along for part in marked):
        return None
    along = marked[0].along
    return along if along is not None and along.position + marked[0].dim() != dim else None


def _side_by_side(parts: Sequence[Set | Tensor]) -> list[Set]:
    """Parts as sets; whole numbers have the dtype of the sets that they meet."""
    dtype = next(part.dtype for part in parts if isinstance(part, Set))
    sets = [as_set(part if part.is_floating_point() or isinstance(part, Set) else part.to(dtype)) for part in parts]
    same_kind(*sets)
    return sets


@rule(aten.cat.default, example=lambda t: ([t(2, 3), t(1, 3)], 0))
def cat(parts: Sequence[Set | Tensor], dim: int = 0) -> Set:
    """Rows are first padded to common rows; a part without rows has zeros."""
    sets = [part for part in _side_by_side(parts) if not (part.dim() == 1 and part.shape[0] == 0)]
    dim = dim % sets[0].dim()
    marked = [part for part in sets if has_own_rows(part)]
    along = _common_axis(marked, dim)
    if marked and along is None:
        sets = [part.dense() for part in sets]
    affine = any(part.affine for part in sets)

    def remainder(*view: Set) -> Remainder:
        bounds = torch.cat([part.bounds for part in view], dim + 1)
        return Remainder(bounds, torch.cat([part.form.radius for part in view], dim) if affine else None)

    known = [] if any(only_touched(part) for part in sets) else [part for part in sets if part.clean is not None]
    over = States(*sets, found=_common_axis(known, dim))
    linear = None
    if affine:
        rows = NO_ROWS
        for part in sets:
            rows = rows.union(part.form.rows)
        center = torch.cat([part.form.center for part in sets], dim)
        placed = [rows.place(part.form.generators, part.form.rows) for part in sets]
        linear = Linear(center, torch.cat(placed, dim + 1), rows, along)
    result = over.result("cat", [remainder(*view) for view in over.views], linear, sharp=False)
    result.exact = all(part.exact for part in sets)
    return result


@rule(aten.stack.default, example=lambda t: ([t(2, 3), t(2, 3)], -1))
def stack(parts: Sequence[Set | Tensor], dim: int = 0) -> Set:
    dim = dim % (parts[0].dim() + 1)
    sets = _side_by_side(parts)
    return cat([selected(part, lambda tensor, lead: unsqueeze(tensor, lead, dim)) for part in sets], dim)


# --- among zeros, or among elements of another tensor ---


@rule(aten.select_backward.default, example=lambda t: (t(2, 4), [2, 3, 4], 1, -1))
def select_backward(grad: Set, sizes: Sequence[int], dim: int, index: int) -> Set:
    def f(tensor: Tensor, lead: int) -> Tensor:
        out = tensor.new_zeros(*tensor.shape[:lead], *sizes)
        out.select(lead + dim % len(sizes), index).copy_(tensor)
        return out

    return selected(grad, f)


@rule(aten.slice_backward.default, example=lambda t: (t(2, 2), [2, 5], 1, 0, 4, 2))
def slice_backward(grad: Set, sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Set:
    def f(tensor: Tensor, lead: int) -> Tensor:
        out = tensor.new_zeros(*tensor.shape[:lead], *sizes)
        aten.slice.Tensor(out, lead + dim % len(sizes), start, end, step).copy_(tensor)
        return out

    return selected(grad, f)


@rule(aten.constant_pad_nd.default, example=lambda t: (t(2, 3), [1, -1, 0, 2]))
def constant_pad_nd(x: Set, pad: Sequence[int], fill: float = 0) -> Set:
    if fill:
        raise UnsupportedOperator("padding of a set with a value other than 0: use torch.cat with a full tensor")
    return selected(x, lambda tensor, lead: aten.constant_pad_nd.default(tensor, pad))


def numbered(x: Set | Tensor) -> Tensor:
    return torch.arange(x.numel(), device=x.device).view(x.shape)


def chosen(mask: Tensor, a: Set, b: Set) -> Set:
    """Elements of ``a`` where a plain mask is true, of ``b`` elsewhere: exact."""
    (a, b), along = own_axis(a, b)
    affine = a.affine or b.affine

    def remainder(a: Set, b: Set) -> Remainder:
        radius = torch.where(mask, a.form.radius, b.form.radius) if affine else None
        return Remainder(torch.where(mask, a.bounds, b.bounds), radius)

    over = States(a, b)
    linear = None
    if affine:
        rows = a.form.rows.union(b.form.rows)
        placed = [rows.place(x.form.generators, x.form.rows) for x in (a, b)]
        linear = Linear(
            torch.where(mask, a.form.center, b.form.center), torch.where(mask, placed[0], placed[1]), rows, along
        )
    return over.result("index_put", [remainder(*view) for view in over.views], linear, sharp=False)
