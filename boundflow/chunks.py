"""A batch in pieces, so that its sets fit into memory.

The gradient of a batch is the sum of the gradients of its pieces, and a sum of sets holds every sum of members. Two
things do not simply add up:

- at most k samples are touched in all pieces together, so what touched samples add (`clean_state.py`) is kept by sample
  until the last piece, and the k largest are taken then;
- plain PyTorch sums over the whole batch, so every rounding is charged for as many terms as the batch has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from . import rounding
from .bounded import Bounded
from .clean_state import Excess
from .context import using
from .rules.linear import combination
from .sets import Set, as_set, concretised
from .symbols import Symbols


def pieces(index: Tensor, size: int) -> Sequence[Tensor]:
    """A batch in pieces of at most so many samples, all alike: each is charged as if all were as short as the last."""
    return torch.tensor_split(index, -(-len(index) // size))


@contextmanager
def in_pieces(space: Symbols, pieces: int, length: int) -> Iterator[None]:
    """What is summed over samples inside is a piece of a batch that has so many, and is ``length`` times as long."""
    before, space.arithmetic = space.arithmetic, replace(space.arithmetic, pieces=pieces, length=length)
    try:
        with using(space.arithmetic):
            yield
    finally:
        space.arithmetic = before


def accumulated(
    space: Symbols, model: nn.Module, pieces: Sequence[Tensor], backward: Callable[[Tensor], Tensor]
) -> Tensor:
    """Run the backward pass of every piece and leave the gradients of the whole batch; gives the loss of all."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    totals: list[Set | None] = [None] * len(parameters)
    value: Tensor | None = None
    longest = -(-sum(map(len, pieces)) // min(map(len, pieces)))  # as if every piece were as long as the batch
    once = len(torch.cat(list(pieces)).unique()) == sum(map(len, pieces))  # type: ignore[no-untyped-call]
    with in_pieces(space, len(pieces), longest), torch.no_grad():
        for piece in pieces:
            with torch.enable_grad():
                part = backward(piece)
            value = part if value is None else value + part
            for number, parameter in enumerate(parameters):
                gradient, parameter.grad = parameter.grad, None
                totals[number] = _sum(totals[number], gradient, once)
    for parameter, total in zip(parameters, totals, strict=True):
        if total is not None:
            parameter.grad = Bounded(_settled(total))
    assert value is not None
    return value


def _settled(total: Set) -> Set:
    """Gradients of all pieces, around the middle of their errors, and within what all of them together reach."""
    excess, form = total.excess, total.form if total.affine else None
    if excess is not None and excess.radius is not None and form is not None:
        form = excess.around(form)
    return concretised("chunks", total.bounds, form, total.symbols)


def _sum(total: Set | None, gradient: Tensor | None, once: bool = False) -> Set | None:
    """Gradients of two pieces added up, with the k worst samples of both; no sample comes again if ``once``."""
    if gradient is None:
        return total
    added = as_set(gradient)
    if total is None:
        return added
    both = combination("chunks", [(total, 1.0), (added, 1.0)], sharp=False)
    first, second = total.excess, added.excess
    if first is None or second is None:
        return both
    charge = rounding.gamma(2, both.dtype) * (total.form.modulus + added.form.modulus)
    excess = Excess.joined((first, second), charge)
    excess = excess.of_worst() if once else excess
    form = None
    if both.affine:
        form = excess.around(both.form) if excess.radius is not None else both.form
    both = concretised("chunks", excess.bounds(), form, both.symbols, sharp=False)
    both.excess = excess
    return both
