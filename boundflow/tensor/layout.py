"""The memory layout of a set is that of the plain tensor it stands for.

Random numbers are drawn in the order of memory, so a mask for a transposed tensor is another one than for a contiguous
tensor of the same shape; and `reshape` and `contiguous` copy or not by the strides. So a set has the strides that plain
PyTorch would give the result. Results of contiguous operands are contiguous; for all others, and for views, PyTorch
itself is asked, on tensors without data. What it answers depends on shapes and strides alone and is remembered. (How a
convolution lays out its result depends on the library that computes it, so there it is asked on tensors with data.)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_map

aten = torch.ops.aten

# a matrix product fills a contiguous matrix, whatever its factors look like
CONTIGUOUS = frozenset((aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default, aten.mv.default))
# these give what they are given
SAME = frozenset((aten.detach.default, aten.alias.default))
# and this one is told the strides
LAYING_OUT = frozenset((aten.new_empty_strided.default,))
# of a contiguous tensor, these views are contiguous
IN_ORDER = frozenset((aten.view.default, aten._unsafe_view.default, aten.unsqueeze.default))
WITH_DATA = frozenset((aten.convolution.default, aten.convolution_backward.default))
Strides = tuple[int, ...] | None  # None: contiguous
Operands = tuple[Any, ...]
Options = dict[str, Any]
Layout = Callable[[OpOverload, Operands, Options], tuple[Strides, ...]]

_answers: dict[Hashable, tuple[Strides, ...]] = {}
_MOST = 4096


def layout_of(func: OpOverload) -> Layout:
    """How an operator lays its results out: a function of its operands that gives the strides of each result.

    No strides at all say that every result is contiguous. What a table can say need not be asked.
    """
    if func in CONTIGUOUS:
        return _contiguous
    if func in SAME:
        return _same
    if func is aten.t.default:
        return _transposed
    if func is aten.expand.default:
        return _expanded
    return _asked_once if (func.is_view and func not in IN_ORDER) or func in LAYING_OUT else by_operands


def _contiguous(func: OpOverload, args: Operands, kwargs: Options) -> tuple[Strides, ...]:
    return ()


def _same(func: OpOverload, args: Operands, kwargs: Options) -> tuple[Strides, ...]:
    return () if args[0].is_contiguous() else (args[0].stride(),)


def _transposed(func: OpOverload, args: Operands, kwargs: Options) -> tuple[Strides, ...]:
    return (args[0].stride()[::-1],)


def _expanded(func: OpOverload, args: Operands, kwargs: Options) -> tuple[Strides, ...]:
    """A number that is repeated, as in the backward pass of a mean, takes no step in memory along any axis."""
    return ((0,) * len(args[1]),) if not args[0].dim() else _asked_once(func, args, kwargs)


def by_operands(func: OpOverload, args: Operands, kwargs: Options) -> tuple[Strides, ...]:
    """Contiguous, as all operands are; asked where one is not, or where another order is wanted."""
    if kwargs and kwargs.get("memory_format") not in (None, torch.preserve_format):
        return _asked_once(func, args, kwargs)
    for operand in args:
        for x in operand if isinstance(operand, list | tuple) else (operand,):
            if isinstance(x, Tensor) and not x.is_contiguous():
                return _asked_once(func, args, kwargs)
    return ()


def _asked_once(func: OpOverload, args: Operands, kwargs: Options) -> tuple[Strides, ...]:
    """What PyTorch answers, which is remembered."""
    try:
        key = id(func), _key(args), _key(tuple(kwargs.items()))  # one object for each operator, which is slow to hash
        found = _answers.get(key)
    except TypeError:
        return _asked(func, args, kwargs)
    if found is None:
        found = _asked(func, args, kwargs)
        if len(_answers) >= _MOST:
            _answers.clear()
        _answers[key] = found
    return found


def _key(operands: object) -> Hashable:
    """Whatever the layout can depend on."""
    if isinstance(operands, Tensor):
        return operands.shape, operands.stride(), operands.dtype, operands.is_cuda
    if isinstance(operands, list | tuple):
        return tuple(_key(operand) for operand in operands)
    return operands


def _asked(func: OpOverload, args: Operands, kwargs: Options) -> tuple[Strides, ...]:
    """What PyTorch does to tensors without data; contiguous where that needs the data, as picking by a mask does."""

    def without_data(x: Any) -> Any:
        if isinstance(x, Tensor):
            device = x.device if func in WITH_DATA else "meta"
            return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device)
        return torch.device("meta") if isinstance(x, torch.device) else x

    try:
        made = func(*tree_map(without_data, args), **tree_map(without_data, kwargs))
    except (RuntimeError, NotImplementedError, ValueError):
        return ()
    results = made if isinstance(made, list | tuple) else (made,)
    return tuple(_unless_contiguous(x) if isinstance(x, Tensor) else None for x in results)


def _unless_contiguous(x: Tensor) -> Strides:
    return None if x.is_contiguous() else x.stride()


def plain_ones(x: Tensor) -> Tensor:
    """A plain tensor of ones, laid out as ``x`` is: what random numbers for ``x`` are drawn for."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0
    return torch.ones(reach, dtype=x.dtype, device=x.device).as_strided(x.shape, x.stride())


def of(plain: Tensor) -> Strides:
    """The order of memory that PyTorch gives to results made from a plain tensor; None: contiguous."""
    return None if plain.is_contiguous() else torch.empty_like(plain, device="meta").stride()
