"""Masks and noise: plain numbers that are fixed beforehand, part of the recipe and not of the data.

They are drawn as plain PyTorch draws them, in the order of memory of the operand (`layout.py`), so that the same seed
gives the same numbers. Dropout is a product with a mask; noise is a plain tensor that meets a set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from ..arithmetic import rounding
from ..errors import UnsupportedOperator
from ..sets.set import Set
from ..tensor.bounded import Bounded
from ..tensor.layout import plain_ones
from ..tensor.rule_table import aten, replaces, rule


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


def _noise(*operators: OpOverload) -> None:
    """Random numbers in the shape and layout of a set, whatever its values are."""
    for operator in operators:

        @rule(operator, example=None, of_tensors=True)
        def draw(x: Bounded, *args: Any, _operator: OpOverload = operator, **kwargs: Any) -> Tensor:
            drawn: Tensor = _operator(plain_ones(x), *args, **kwargs)
            return drawn


# the empty ones are what PyTorch fills with a mask, where dropout is called inside of another function (attention)
_noise(aten.rand_like.default, aten.randn_like.default, aten.empty_like.default)
for _packet in (aten.rand_like, aten.randn_like):
    if "generator" in _packet.overloads():  # type: ignore[no-untyped-call]
        _noise(_packet.generator)


@rule(aten.new_empty.default, example=None)
def new_empty(
    x: Set,
    shape: Sequence[int],
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    **options: object,
) -> Tensor:
    """What the mask of whole channels is drawn into."""
    return torch.empty(shape, dtype=dtype or x.dtype, device=device or x.device)
