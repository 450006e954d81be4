"""Masks and noise: plain numbers that are fixed beforehand, part of the recipe and not of the data.

They are drawn as plain PyTorch draws them, in the order of memory of the operand (`layout.py`), so that the same seed
gives the same numbers. Dropout is a product with a mask; noise is a plain tensor that meets a set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import rounding
from ..bounded import Bounded, replaces
from ..errors import UnsupportedOperator
from ..layout import plain_ones
from ..sets import Set


def _dropped(function: Callable[..., Tensor]) -> None:
    """A fixed mask, drawn as plain PyTorch draws it."""

    @replaces(function)
    def drop(x: Bounded, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return x
        if inplace:
            raise UnsupportedOperator("dropout in place: use inplace=False")
        mask = function(plain_ones(x), p, True)
        ends = mask.expand(2, *mask.shape)  # 1 / (1 - p) is rounded, 0 is not
        bounds = torch.where(ends == 0, ends, rounding.outward_sum(ends, ends, 1))
        return x * Bounded(Set(bounds, nonnegative=True), strides=mask.stride())


for _function in (
    torch.nn.functional.dropout,
    torch.nn.functional.dropout1d,
    torch.nn.functional.dropout2d,
    torch.nn.functional.dropout3d,
):
    _dropped(_function)


def _noise(function: Callable[..., Tensor]) -> None:
    """Random numbers in the shape and layout of a set, whatever its values are."""

    @replaces(function)
    def draw(x: Bounded, **options: Any) -> Tensor:
        return function(plain_ones(x), **options)


_noise(torch.rand_like)
_noise(torch.randn_like)
