"""Gradients of the pieces of a batch on intervals, one piece on each process, sent to all of them.

    gradient of the batch  =  sum over pieces,      on every rank in the order of pieces (`batch_pieces.py`)

Intervals have no rows that another process would need, so a rank makes the whole pass of its samples by itself. What it
sends is the interval of each gradient and, under a budget, what each of its samples would add if it were touched
(`clean_state.py`): the k largest are those of all pieces together.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...sets.clean_state import Excess
from ...sets.sample_axis import Samples
from ...sets.set import Set, as_set
from ...tensor.bounded import Bounded
from .ranks import Ranks


def of_all(ranks: Ranks, loss: Tensor, gradients: Sequence[Tensor | None]) -> list[tuple[Tensor, list[Tensor | None]]]:
    """Loss and gradients of every piece, in order."""
    losses = _of_all(ranks, "loss", loss)
    every = [_of_all(ranks, f"gradient {number}", gradient) for number, gradient in enumerate(gradients)]
    pieces = []
    for rank in range(ranks.count):
        value = losses[rank]
        assert value is not None
        pieces.append((value, [found[rank] for found in every]))
    return pieces


def _of_all(ranks: Ranks, what: str, x: Tensor | None) -> list[Tensor | None]:
    """The same tensor of every rank: a set, or None where no loss depends on a parameter."""
    if x is None:
        return [None] * ranks.count
    mine = as_set(x)
    assert not mine.affine, "rows are not sent: they have a home"
    sets = [Set(bounds, None, mine.symbols) for bounds in ranks.gathered(what, mine.bounds)]
    if mine.excess is not None:
        for made, excess in zip(sets, _excesses(ranks, what, mine.excess), strict=True):
            made.excess = excess
    return [Bounded(made) for made in sets]


def _excesses(ranks: Ranks, what: str, mine: Excess) -> list[Excess]:
    """What touched samples add to the sum of every piece."""
    assert mine.radius is None and mine.more is None
    intervals = ranks.gathered(f"{what}, clean", mine.interval)
    numbers = ranks.uneven(f"{what}, samples", torch.from_numpy(mine.samples.numbers))
    beyond = ranks.uneven(f"{what}, touched", mine.beyond.transpose(0, 1))
    return [
        Excess(Samples(who.numpy(), mine.samples.budget), interval, more.transpose(0, 1))
        for who, interval, more in zip(numbers, intervals, beyond, strict=True)
    ]
