"""Elements added or written at given positions: the backward passes of indexing, and indexed assignment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import PlainTarget, UnsupportedOperator
from ..rules.linear import combination, summed
from ..rules.structural import chosen, decided, expand, numbered, selected
from ..sets.set import Set, as_set
from ..tensor.bounded import Bounded, unwrapped
from ..tensor.rule_table import aten, replaces, rule
from .constants import constant, new_zeros


def scattered(name: str, base: Set, positions: Tensor, source: Set) -> Set:
    """``base`` with ``source`` added at ``positions``, which may repeat."""
    size = base.numel()

    def place(tensor: Tensor, lead: int) -> Tensor:
        flat = tensor.new_zeros(*tensor.shape[:lead], size)
        flat.index_add_(lead, positions.flatten(), tensor.reshape(*tensor.shape[:lead], -1))
        return flat.view(*tensor.shape[:lead], *base.shape)

    most = int(torch.bincount(positions.flatten(), minlength=1).max()) if positions.numel() else 1
    added = summed(name, source, place, most)
    return combination(name, [(base, 1.0), (added, 1.0)], terms=most + 1)


@rule(
    aten.embedding_dense_backward.default,
    example=lambda t: (t(4, 3), torch.tensor([4, 0, 4, 1]), 5, -1, False),
)
def embedding_dense_backward(grad: Set, index: Tensor, count: int, padding: int, by_frequency: bool) -> Set:
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
def index_put(
    x: Set | Tensor, indices: Sequence[Set | Tensor | None], values: Set | Tensor, accumulate: bool = False
) -> Set:
    x = as_set(x)
    positions = aten.index.Tensor(numbered(x), decided(indices))
    written = constant(values, x.dtype, x.device)
    source = selected(written, lambda tensor, lead: expand(tensor, lead, positions.shape))
    if accumulate:
        return scattered("index_put", x, positions, source)
    flat = positions.flatten()
    if flat.unique().numel() != flat.numel():
        raise UnsupportedOperator("index_put writes one element twice: the result would depend on the order")

    def place(tensor: Tensor, lead: int) -> Tensor:
        out = tensor.new_zeros(*tensor.shape[:lead], x.numel())
        out[..., flat] = tensor.reshape(*tensor.shape[:lead], -1)
        return out.view(*tensor.shape[:lead], *x.shape)

    mask = torch.zeros(x.numel(), dtype=torch.bool, device=x.device)
    mask[flat] = True
    return chosen(mask.view(x.shape), selected(source, place), x)


@rule(aten.scatter_add.default, example=lambda t: (t(3, 4), 1, torch.tensor([[2, 0], [1, 1], [3, 3]]), t(3, 2)))
def scatter_add(x: Set, dim: int, index: Tensor, source: Set) -> Set:
    positions = numbered(x).gather(dim, index)
    corner = tuple(slice(0, size) for size in index.shape)
    part = selected(source, lambda tensor, lead: tensor[(slice(None),) * lead + corner])
    return scattered("scatter_add", x, positions, part)


@rule(aten.unfold_backward.default, example=lambda t: (t(2, 2, 3), [2, 5], 1, 3, 2))
def unfold_backward(grad: Set, sizes: Sequence[int], dim: int, size: int, step: int) -> Set:
    target = new_zeros(grad, sizes)
    return scattered("unfold_backward", target, numbered(target).unfold(dim, size, step), grad)


@replaces(torch.Tensor.__setitem__)
def assign(x: Tensor, index: Any, number: Tensor | float) -> None:
    """``x[index] = number``: written to x itself, where PyTorch would write through a view of it."""
    if not isinstance(x, Bounded):
        raise PlainTarget("x[index] = set would store a set in a plain tensor: make x bounded, or use torch.where")
    positions = numbered(x)[decided(unwrapped(index))]
    if isinstance(number, Tensor) and number.requires_grad:  # itself, so that its gradient is not lost
        source = number.to(x.dtype).reshape(number.shape or (1,))
    else:
        source = number if isinstance(number, Bounded) else Bounded(constant(number, x.dtype, x.device))
    while source.dim() > positions.dim() and source.shape[0] == 1:  # as PyTorch allows
        source = source.squeeze(0)
    placed = source.expand(positions.shape).reshape(-1)
    x.copy_(x.reshape(-1).index_put((positions.flatten(),), placed).view(x.shape))
