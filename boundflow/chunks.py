"""A batch in pieces, so that its sets fit into memory.

The gradient of a batch is the sum of the gradients of its pieces, and a sum of sets holds every sum of members. Two
things do not simply add up:

- at most k samples are touched in all pieces together, so what touched samples add (`clean_state.py`) is kept by sample
  until the last piece, and the k largest are taken then;
- plain PyTorch sums over the whole batch, so every rounding is charged for as many terms as the batch has.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from . import rounding
from .batch_independence import samples_meet
from .bounded import Bounded
from .clean_state import Excess
from .context import using
from .interval_pieces import of_all
from .prepared import TRIED, Prepared
from .ranks import Ranks
from .rules.linear import combination
from .sets import Set, as_set, concretised
from .symbols import Symbols
from .tuning import COPIES_OF_AN_ACTIVATION


def rows_fit(prepared: Prepared, batches: Sequence[Tensor], processes: int = 1) -> bool:
    """Whether one row for each symbol of each visited sample, over all trained scalars, stays within the memory.

    Several processes share the rows, and each of them has that memory.
    """
    threat, x = prepared.threat, prepared.x
    lifted = threat.lift(Symbols(threat), x[:1], prepared.targets[:1], [0])
    rows = max((len(part.form.rows) for part in lifted if isinstance(part, Bounded)), default=0)
    visited = len(torch.cat(list(batches)).unique())  # type: ignore[no-untyped-call]
    return rows * -(-visited // processes) * _trained(prepared.model) * x.element_size() <= prepared.recipe.memory


def chunk_size(prepared: Prepared, space: Symbols | None, batch: Tensor) -> int:
    """How many samples of a batch are held at a time.

    All of them where a forward pass draws numbers or changes state, and where samples meet.
    """
    if space is None or prepared.effects.draws or prepared.effects.changes:
        return len(batch)
    model, x = prepared.model, prepared.x
    elements = _activations(model, x[batch[:TRIED]])
    size = int(prepared.recipe.memory / max(1, COPIES_OF_AN_ACTIVATION * elements * _trained(model) * x.element_size()))
    if size >= len(batch) or samples_meet(model, prepared.observed[batch], training=True):
        return len(batch)
    return max(2, size)


def spread_pieces(prepared: Prepared, space: Symbols | None, batch: Tensor, ranks: Ranks | None) -> Ranks | None:
    """The processes that take a piece of each batch: those of a run on intervals whose samples do not meet."""
    alone = prepared.effects.draws or prepared.effects.changes or prepared.recipe.clip_gradients is not None
    if ranks is None or space is not None or alone:
        return None
    return None if samples_meet(prepared.model, prepared.observed[batch], training=True) else ranks


def _trained(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _activations(model: nn.Module, x: Tensor) -> int:
    """The numbers that the layers of a model put out for one sample."""
    watched, count = copy.deepcopy(model).eval(), 0

    def see(module: nn.Module, args: object, output: object) -> None:
        nonlocal count
        count += output.numel() if isinstance(output, Tensor) else 0

    for module in watched.modules():
        if not list(module.children()):
            module.register_forward_hook(see)
    with torch.no_grad():
        watched(torch.nan_to_num(x))
    return max(1, count // len(x))


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
    totals: list[Set | None] = [None] * len(parameters)
    value: Tensor | None = None
    longest = -(-sum(map(len, pieces)) // min(map(len, pieces)))  # as if every piece were as long as the batch
    with in_pieces(space, len(pieces), longest), torch.no_grad():
        for piece in pieces if ranks is None else [pieces[ranks.rank]]:
            with torch.enable_grad():
                part = backward(piece)
            gradients = [parameter.grad for parameter in parameters]
            for each, found in [(part, gradients)] if ranks is None else of_all(ranks, part, gradients):
                value = each if value is None else value + each
                for number, gradient in enumerate(found):
                    totals[number] = _sum(totals[number], gradient)
            for parameter in parameters:
                parameter.grad = None
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


def _sum(total: Set | None, gradient: Tensor | None) -> Set | None:
    """Gradients of two pieces added up, with the k worst samples of both together."""
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
    form = None
    if both.affine:
        form = excess.around(both.form) if excess.radius is not None else both.form
    both = concretised("chunks", excess.bounds(), form, both.symbols, sharp=False)
    both.excess = excess
    return both
