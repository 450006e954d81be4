"""Dropout is a product with a mask that is fixed beforehand: part of the recipe, not of the data."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .. import rounding
from ..bounded import (
    Bounded,
    replaces,
)
from ..errors import UnsupportedOperator


def _dropped(function: Callable[..., Tensor]) -> None:
    """A fixed mask, drawn as plain PyTorch draws it, so that the same seed gives the same mask."""

    @replaces(function)
    def drop(x: Bounded, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return x
        if inplace:
            raise UnsupportedOperator("dropout in place: use inplace=False")
        mask = function(torch.ones(x.shape, dtype=x.dtype, device=x.device), p, True)
        ends = mask.expand(2, *mask.shape)  # 1 / (1 - p) is rounded, 0 is not
        return x * Bounded(torch.where(ends == 0, ends, rounding.outward_sum(ends, ends, 1)), nonnegative=True)


for _function in (
    torch.nn.functional.dropout,
    torch.nn.functional.dropout1d,
    torch.nn.functional.dropout2d,
    torch.nn.functional.dropout3d,
):
    _dropped(_function)
