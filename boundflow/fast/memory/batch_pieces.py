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
from functools import reduce

import torch
from torch import Tensor, nn

from ...arithmetic import rounding
from ...arithmetic.thread_context import using
from ...rules.linear import combination
from ...same_program.batch_independence import samples_meet
from ...sets.clean_state import Excess
from ...sets.set import Set, as_set, concretised
from ...symbols.space import Symbols
from ...tensor.bounded import Bounded
from ...training.checked_inputs import Prepared
from ..processes.interval_pieces import of_all
from ..processes.ranks import Ranks


def pieces(index: Tensor, size: int) -> Sequence[Tensor]:
    """A batch in pieces of at most so many samples, all alike: each is charged as if all were as short as the last."""
    return torch.tensor_split(index, -(-len(index) // size))


def spread_pieces(prepared: Prepared, space: Symbols | None, batch: Tensor, ranks: Ranks | None) -> Ranks | None:
    """The processes that take a piece of each batch: those of a run on intervals whose samples do not meet."""
    alone = prepared.effects.draws or prepared.effects.changes or prepared.recipe.clip_gradients is not None
    if ranks is None or space is not None or alone:
        return None
    return None if samples_meet(prepared.model, prepared.observed[batch], training=True) else ranks


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
    space: Symbols,
    model: nn.Module,
    pieces: Sequence[Tensor],
    backward: Callable[[Tensor], Tensor],
    ranks: Ranks | None = None,
) -> Tensor:
    """Run the backward pass of every piece and leave the gradients of the whole batch; gives the loss of all.

    Intervals can do that on several processes, one for each piece (`interval_pieces.py`).
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    totals: list[_Sums] = [[] for _ in parameters]
    values: _Sums = []
    longest = -(-sum(map(len, pieces)) // min(map(len, pieces)))  # as if every piece were as long as the batch
    once = len(torch.cat(list(pieces)).unique()) == sum(map(len, pieces))  # type: ignore[no-untyped-call]
    with in_pieces(space, len(pieces), longest), torch.no_grad():
        for piece in pieces if ranks is None else [pieces[ranks.rank]]:
            with torch.enable_grad():
                part = backward(piece)
            gradients = [parameter.grad for parameter in parameters]
            for each, found in [(part, gradients)] if ranks is None else of_all(ranks, part, gradients):
                _add(values, each)
                for sums, gradient in zip(totals, found, strict=True):
                    if gradient is not None:
                        _add(sums, gradient, once)
            for parameter in parameters:
                parameter.grad = None
        whole = [_all(sums, once) if sums else None for sums in totals]
        value = _all(values)
    for parameter, total in zip(parameters, whole, strict=True):
        if total is not None:
            parameter.grad = Bounded(_settled(total))
    return Bounded(_settled(value))


_Sums = list[tuple[int, Set]]  # of 2^n pieces each, the most first


def _add(sums: _Sums, piece: Tensor, once: bool = False) -> None:
    """One more piece. Sums of as many pieces are joined, so a row is moved as often as pieces double, not for each."""
    added, doubled = as_set(piece), 0
    while sums and sums[-1][0] == doubled:
        added, doubled = _sum(sums.pop()[1], added, once), doubled + 1
    sums.append((doubled, added))


def _all(sums: _Sums, once: bool = False) -> Set:
    return reduce(lambda last, first: _sum(first, last, once), (part for _, part in reversed(sums)))


def _settled(total: Set) -> Set:
    """Gradients of all pieces, around the middle of their errors, and within what all of them together reach."""
    excess, form = total.excess, total.form if total.affine else None
    if excess is not None and excess.radius is not None and form is not None:
        form = excess.around(form)
    return concretised("chunks", total.bounds, form, total.symbols)


def _sum(total: Set, added: Set, once: bool = False) -> Set:
    """Gradients of some pieces added up, with the k worst samples of all; no sample comes again if ``once``."""
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
