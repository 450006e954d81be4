"""What a run on zonotopes will take, before its first step, and what it does to stay within ``memory``.

Rows of samples are kept where they fit beside a piece of a batch (`needed_memory.py`), batches come in pieces that fit
(`batch_pieces.py`), and what cannot fit is refused with what would. On a CPU pieces are also not larger than it takes
to be fast: fresh memory costs more than what is computed in it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...arithmetic.tuned_numbers import FEWEST_SAMPLES, PIECE, WORTH_PIECES
from ...errors import TooLittleMemory
from ...same_program.batch_independence import samples_meet
from ...symbols.space import Symbols
from ...training.checked_inputs import TRIED, Prepared
from ...training.recipe import Recipe
from .loop_memory import own_rows
from .needed_memory import Need, Owned, Sizes, activations, sets_held


def rows_fit(prepared: Prepared, batches: Sequence[Tensor], processes: int = 1) -> bool:
    """Whether one row for each symbol of each visited sample stays within the memory, beside a piece of a batch.

    Several processes share the rows, and each of them has that memory.
    """
    return for_rows(prepared, batches, processes) <= prepared.recipe.memory


def for_rows(prepared: Prepared, batches: Sequence[Tensor], processes: int = 1) -> float:
    """The memory with which samples have rows."""
    return need_of(prepared, batches, _owned(prepared, batches, processes)).fewest


def chunk_size(prepared: Prepared, space: Symbols | None, batches: Sequence[Tensor], processes: int = 1) -> int:
    """How many samples of a batch are held at a time.

    All of them where a forward pass draws numbers or changes state, and where samples meet. What would take more than
    the memory is refused.
    """
    batch = batches[0]
    if space is None:
        return len(batch)
    need = need_of(prepared, batches, _owned(prepared, batches, processes) if space.tracks else Owned(0, 0))
    size = min(int((prepared.recipe.memory - need.state) / need.sample), fastest(need, prepared, len(batch)))
    require(need, prepared, 2, whole=False)  # before anything is tried
    whole = prepared.effects.draws or prepared.effects.changes
    if size >= len(batch) or whole or samples_meet(prepared.model, prepared.observed[batch], training=True):
        require(need, prepared, len(batch), whole=True)
        return len(batch)
    return max(2, size)


def _owned(prepared: Prepared, batches: Sequence[Tensor], processes: int) -> Owned:
    """Symbols of values that could be missing, and are not, share a row in each batch (`symbol_numbers.py`)."""
    each, missing = own_rows(prepared.threat, prepared.x, prepared.targets)
    visited = torch.cat(list(batches)).unique()  # type: ignore[no-untyped-call]
    holes = int(torch.isnan(prepared.x[visited.to(prepared.x.device)]).flatten(1).any(1).sum()) if missing else 0
    counted = (each - missing) * len(visited) + missing * min(holes + len(batches), len(visited))
    return Owned(each, -(-counted // processes))


def _sizes(prepared: Prepared, batches: Sequence[Tensor], owned: Owned) -> Sizes:
    recipe, trained = prepared.recipe, sum(p.numel() for p in prepared.model.parameters() if p.requires_grad)
    before, after = activations(prepared.model, prepared.x[batches[0][:TRIED]])
    return Sizes(
        trained=trained,
        scalars=trained * _states(recipe),
        order=min(recipe.order, 2 * len(batches)),
        owned=owned,
        before=before,
        after=after,
        batch=len(batches[0]),
        outputs=prepared.outputs,
        budget=prepared.threat.budget is not None,
        bytes=prepared.x.element_size(),
        cuda=prepared.x.is_cuda,
    )


def need_of(prepared: Prepared, batches: Sequence[Tensor], owned: Owned) -> Need:
    """What a run needs whose samples have these rows."""
    return Need.of(_sizes(prepared, batches, owned))


def fastest(need: Need, prepared: Prepared, samples: int) -> int:
    """The size of pieces that take least time, on a CPU, where a batch has tensors far beyond that."""
    if prepared.x.is_cuda or samples * need.largest <= WORTH_PIECES * PIECE:
        return samples
    return max(FEWEST_SAMPLES, int(PIECE / need.largest))


def require(need: Need, prepared: Prepared, samples: int, whole: bool) -> None:
    """Refuse a run whose memory is not enough for pieces of so many samples, before its first step."""
    memory = prepared.recipe.memory
    if need.exceeds(memory, samples):
        raise TooLittleMemory.before(
            need.state + samples * need.sample,
            memory,
            need.fitting_order(memory, samples),
            need.fitting_samples(memory) if whole else None,
        )


def _states(recipe: Recipe) -> int:
    """How many sets an optimizer holds for each parameter.

    It makes no step for this, which might be seen by the program it is a part of.
    """
    return sets_held(recipe.optimizer([nn.Parameter(torch.zeros(1))], **copy.deepcopy(recipe.optimizer_options)))
