"""Constants and conversions: sets of one tensor, and sets in another dtype.

A number that the dtype cannot hold stands for itself and for what it is rounded to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..errors import UnsupportedOperator
from ..rules.operand_properties import Operand
from ..rules.structural import expand, selected
from ..sets.forms import Form
from ..sets.set import Set, concretised, point
from ..tensor.rule_table import aten, rule


def constant(x: Operand, dtype: torch.dtype, device: torch.device) -> Set:
    """A plain operand as a set: itself and, where converting it rounds, its neighbours.

    PyTorch turns numbers into 0-dimensional tensors before we see them, so of those only whole ones are exact.
    """
    if isinstance(x, Set):
        return x
    made = x.to(dtype) if isinstance(x, Tensor) else torch.full((), x, dtype=dtype, device=device)
    if isinstance(x, Tensor):
        exact = x.dtype is dtype and (x.dim() > 0 or float(x).is_integer())
    else:
        # small whole numbers are in every dtype; others are asked of the processor, so that nobody waits for a GPU
        exact = (float(x).is_integer() and abs(x) < 256) or torch.tensor(x, dtype=dtype).item() == x
    if exact:
        return point(made.clone() if isinstance(x, Tensor) else made)
    return Set(rounding.outward(torch.stack((made, made))))


def _filled(
    x: Set,
    shape: Sequence[int],
    fill: float,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    **options: object,
) -> Set:
    """A set of one tensor: what optimizers keep their state in."""
    dtype = dtype or (x.dtype if x.dtype is not torch.bool else torch.get_default_dtype())
    number = constant(float(fill), dtype, device or x.device)
    bounds = number.bounds.view(2, *(1,) * len(shape)).expand(2, *shape)
    return Set(bounds, None, x.symbols, number.exact, nonnegative=fill >= 0)


@rule(aten.zeros_like.default, example=None)
def zeros_like(x: Set, **options: Any) -> Set:
    return _filled(x, x.shape, 0.0, **options)


@rule(aten.ones_like.default, example=None)
def ones_like(x: Set, **options: Any) -> Set:
    return _filled(x, x.shape, 1.0, **options)


@rule(aten.full_like.default, example=None)
def full_like(x: Set, fill: float, **options: Any) -> Set:
    return _filled(x, x.shape, fill, **options)


@rule(aten.new_zeros.default, example=None)
def new_zeros(x: Set, shape: Sequence[int], **options: Any) -> Set:
    return _filled(x, shape, 0.0, **options)


@rule(aten.new_empty_strided.default, example=None)
def new_empty_strided(x: Set, shape: Sequence[int], strides: Sequence[int], **options: Any) -> Set:
    """What autograd copies a gradient into that is not laid out as its parameter."""
    return _filled(x, shape, 0.0, **options)


@rule(aten.new_ones.default, example=None)
def new_ones(x: Set, shape: Sequence[int], **options: Any) -> Set:
    return _filled(x, shape, 1.0, **options)


@rule(aten.new_full.default, example=None)
def new_full(x: Set, shape: Sequence[int], fill: float, **options: Any) -> Set:
    return _filled(x, shape, fill, **options)


@rule(aten.zero.default, example=None)
def zero(x: Set) -> Set:
    return _filled(x, x.shape, 0.0)


@rule(aten.fill.Scalar, aten.fill.Tensor, example=None)
def fill(x: Set, number: Operand) -> Set:
    return selected(constant(number, x.dtype, x.device), lambda tensor, lead: expand(tensor, lead, x.shape))


@rule(aten.copy.default, example=None)
def copy(x: Set, source: Set | Tensor, non_blocking: bool = False) -> Set:
    """``x.copy_(source)``: the set of the source, in the dtype and on the device of the target."""
    made = constant(source.detach().to(x.device), x.dtype, x.device) if isinstance(source, Tensor) else source
    source = to_copy(made, dtype=x.dtype, device=x.device)
    if source.exact:  # its memory may be that of a plain tensor, which may be written to
        source = selected(source, lambda tensor, lead: tensor.clone())
    return selected(source, lambda tensor, lead: expand(tensor, lead, x.shape))


@rule(aten._to_copy.default, example=None)
def to_copy(x: Set, *, dtype: torch.dtype | None = None, device: torch.device | None = None, **options: object) -> Set:
    """Conversion to a narrower dtype rounds once, outwards; to a wider one it is exact."""
    dtype = dtype or x.dtype
    if x.dtype is torch.bool and dtype is not torch.bool:
        rounding.unit(dtype)
        return Set(x.bounds.to(dtype=dtype, device=device), None, x.symbols, nonnegative=True)
    if dtype is torch.bool:
        if x.dtype is not torch.bool:
            raise UnsupportedOperator("a set as a condition: say x != 0")
    else:
        rounding.unit(dtype)

    def convert(tensor: Tensor, lead: int) -> Tensor:
        return tensor.to(dtype=dtype, device=device)

    if dtype is x.dtype or dtype is torch.float64:
        return selected(x, convert)
    bounds = rounding.outward(convert(x.bounds, 1))
    form = None
    if x.affine:
        charge = rounding.gamma(1, dtype) * x.form.modulus
        # of ten roundings of the modulus, center, rows, radius and the plain run take one each
        radius = convert(x.form.radius + charge, 0) + rounding.tiny(1, dtype)
        form = Form(convert(x.form.center, 0), convert(x.form.generators, 1), radius, x.form.rows, x.form.along)
    return concretised("to", bounds, form, x.symbols)
