"""Constants and conversions: sets of one tensor, and sets in another dtype.

A number that the dtype cannot hold stands for itself and for what it is rounded to.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import rounding
from ..bounded import (
    Bounded,
    Form,
    aten,
    concretised,
    point,
    rule,
)
from ..errors import UnsupportedOperator
from .structural import expand, selected


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


@rule(aten.new_empty_strided.default, example=None)
def new_empty_strided(x: Bounded, shape: Any, stride: Any, **options: Any) -> Bounded:
    """Where PyTorch puts a gradient whose order of memory is not that of its parameter, before anybody reads it."""
    return _filled(x, shape, 0.0, **options).laid_out(tuple(stride))


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
