"""The memory layout of a set is that of the plain tensor it stands for.

Random numbers are drawn in the order of memory, so a mask for a transposed tensor is another one than for a contiguous
tensor of the same shape; and `reshape` and `contiguous` copy or not by the strides. So a set has the strides that plain
PyTorch would give the result. Results of contiguous operands are contiguous; for all others, and for views, PyTorch
itself is asked, on tensors without data. What it answers depends on shapes and strides alone and is remembered. (How a
convolution lays out its result depends on the library that computes it, so there it is asked on tensors with data.)
"""

from __future__ import annotations

from collections.abc import Hashable
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
WITH_DATA = frozenset((aten.convolution.default, aten.convolution_backward.default))
Strides = tuple[int, ...] | None

_answers: dict[Hashable, tuple[Strides, ...]] = {}
_MOST = 4096


def kind(func: OpOverload) -> str:
    """How an operator lays its results out: what a table can say of it, so that the rest need not be asked."""
    if func in CONTIGUOUS:
        return "contiguous"
    if func in SAME:
        return "same"
    if func is aten.t.default:
        return "transposed"
    return "asked" if func.is_view or func in LAYING_OUT else "by operands"


def strides(kind: str, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Strides, ...] | None:
    """The strides of every result of an operator; None: all results are contiguous."""
    if kind == "contiguous":
        return None
    if kind == "same":
        return None if args[0].is_contiguous() else (args[0].stride(),)
    if kind == "transposed":
        return (args[0].stride()[::-1],)
    if kind == "by operands" and kwargs.get("memory_format") in (None, torch.preserve_format):
        for operand in args:
            if isinstance(operand, Tensor):
                if not operand.is_contiguous():
                    break
            elif isinstance(operand, list | tuple) and any(isinstance(x, Tensor) for x in operand):
                if not all(x.is_contiguous() for x in operand if isinstance(x, Tensor)):
                    break
        else:
            return None
    try:
        key = func, _key(args), _key(tuple(kwargs.items()))
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


def _asked(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Strides, ...]:
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
