"""What a run on zonotopes will take, before its first step, and what it does to stay within ``memory``.

With M scalars of state and K deep rows, those of samples and at most ``order`` error rows for each scalar (a step adds
two), the largest tensor of a step is the expansion (M, K), and a sample of a piece has activations over M rows:

    bytes  =  size (c M K  +  s M M  +  samples of a piece (a activations (M + own rows)  +  (e + 2 own rows) M))

with c, s, a and e copies that live at a time, as measured (`tuning.py`); before the first trained layer activations
have own rows alone. So rows of samples are kept where they fit beside a piece of a batch, batches come in pieces that
fit (`chunks.py`), and what cannot fit is refused with what would. On a CPU pieces are also not larger than it
takes to be fast: fresh memory costs more than what is computed in it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .batch_independence import samples_meet
from .bounded import Bounded
from .errors import TooLittleMemory
from .prepared import TRIED, Prepared
from .recipe import Recipe
from .rows import NO_ROWS
from .symbols import Symbols
from .tuning import (
    BYTES_OF_A_STREAM,
    COPIES_IN_A_STEP,
    COPIES_OF_AN_ACTIVATION,
    COPIES_OF_AN_ACTIVATION_CUDA,
    COPIES_OF_AN_EXCESS,
    COPIES_OF_ERROR_ROWS,
    COPIES_OF_OWNED_ROWS,
    COPIES_OF_OWNED_ROWS_CUDA,
    FEWEST_SAMPLES,
    LEAST_MEMORY,
    MEMORY_SLACK,
    MOST_MIXED,
    PIECE,
    STREAM_LINES_CUDA,
    WORTH_PIECES,
)

HELD = {torch.optim.SGD: 1, torch.optim.RMSprop: 2, torch.optim.Adagrad: 2}  # sets for each parameter, itself included


def rows_fit(prepared: Prepared, batches: Sequence[Tensor], processes: int = 1) -> bool:
    """Whether one row for each symbol of each visited sample stays within the memory, beside a piece of a batch.

    Several processes share the rows, and each of them has that memory.
    """
    return for_rows(prepared, batches, processes) <= prepared.recipe.memory


def for_rows(prepared: Prepared, batches: Sequence[Tensor], processes: int = 1) -> float:
    """The memory with which samples have rows."""
    return Need.of(prepared, batches, _owned(prepared, batches, processes)).fewest


def chunk_size(prepared: Prepared, space: Symbols | None, batches: Sequence[Tensor], processes: int = 1) -> int:
    """How many samples of a batch are held at a time.

    All of them where a forward pass draws numbers or changes state, and where samples meet. What would take more than
    the memory is refused.
    """
    batch = batches[0]
    if space is None:
        return len(batch)
    need = Need.of(prepared, batches, _owned(prepared, batches, processes) if space.tracks else Owned(0, 0))
    size = min(int((prepared.recipe.memory - need.state) / need.sample), need.fastest(prepared, len(batch)))
    need.require(prepared, 2, whole=False)  # before anything is tried
    whole = prepared.effects.draws or prepared.effects.changes
    if size >= len(batch) or whole or samples_meet(prepared.model, prepared.observed[batch], training=True):
        need.require(prepared, len(batch), whole=True)
        return len(batch)
    return max(2, size)


class Owned(NamedTuple):
    """Rows that belong to samples: of one sample, and of all that are visited and counted by one process."""

    each: int
    together: int


def _owned(prepared: Prepared, batches: Sequence[Tensor], processes: int) -> Owned:
    """Symbols of values that could be missing, and are not, share a row in each batch (`symbol_numbers.py`)."""
    threat = prepared.threat
    lifted = threat.lift(Symbols(threat), prepared.x[:1], prepared.targets[:1], [0])
    rows = max((part.form.rows for part in lifted if isinstance(part, Bounded)), key=len, default=NO_ROWS)
    each = len(rows)
    changes = [change for clause in threat.clauses for change in clause.changes]
    parts = [] if rows.batch is None else rows.batch.parts.tolist()
    missing = sum(not changes[part].has_clean_state for part in parts)
    visited = torch.cat(list(batches)).unique()  # type: ignore[no-untyped-call]
    holes = int(torch.isnan(prepared.x[visited.to(prepared.x.device)]).flatten(1).any(1).sum()) if missing else 0
    counted = (each - missing) * len(visited) + missing * min(holes + len(batches), len(visited))
    return Owned(each, -(-counted // processes))


@dataclass(frozen=True)
class Need:
    """What a run takes, in bytes: whatever the size of its pieces, and for each sample of a piece."""

    state: float
    sample: float
    copies: float  # what one more error row for each scalar takes
    order: int  # how many there can be
    largest: float  # the largest tensor of a sample

    @staticmethod
    def of(prepared: Prepared, batches: Sequence[Tensor], owned: Owned) -> Need:
        recipe, size, trained = prepared.recipe, prepared.x.element_size(), _trained(prepared.model)
        scalars = trained * _states(recipe)
        row = float(size) * scalars * scalars  # one for each scalar
        copies = COPIES_OF_ERROR_ROWS * row
        order = min(recipe.order, 2 * len(batches))
        cuda = prepared.x.is_cuda
        held = COPIES_OF_OWNED_ROWS_CUDA if cuda else COPIES_OF_OWNED_ROWS
        before, after = _activations(prepared.model, prepared.x[batches[0][:TRIED]])
        varying, rows = sum(after), trained + owned.each
        numbers = varying * rows + sum(before) * (1 + owned.each)
        activation = (COPIES_OF_AN_ACTIVATION_CUDA if cuda else COPIES_OF_AN_ACTIVATION) * numbers
        touched = COPIES_OF_AN_EXCESS * trained if prepared.threat.budget is not None else 0
        state = held * float(size) * scalars * owned.together + COPIES_IN_A_STEP * row + order * copies
        if cuda and varying > prepared.outputs:  # of hidden layers: their first factors have rows, too
            state += BYTES_OF_A_STREAM * min(STREAM_LINES_CUDA, len(batches[0]) * MOST_MIXED * owned.together)
        sample = activation + touched + 2 * owned.each * trained
        return Need(state, size * float(sample), copies, order, size * float(max(after) * rows))

    @property
    def fewest(self) -> float:
        """With pieces that are large enough not to take forever."""
        return self.state + FEWEST_SAMPLES * self.sample

    def fastest(self, prepared: Prepared, samples: int) -> int:
        """The size of pieces that take least time, on a CPU, where a batch has tensors far beyond that."""
        if prepared.x.is_cuda or samples * self.largest <= WORTH_PIECES * PIECE:
            return samples
        return max(FEWEST_SAMPLES, int(PIECE / self.largest))

    def require(self, prepared: Prepared, samples: int, whole: bool) -> None:
        """Refuse a run whose memory is not enough for pieces of so many samples, before its first step."""
        memory, needed = prepared.recipe.memory, self.state + samples * self.sample
        if needed <= MEMORY_SLACK * max(memory, LEAST_MEMORY):
            return
        order = int(self.order - (needed - memory) / self.copies) if self.copies else 0
        fewer = int((memory - self.state) / self.sample) if whole else 0
        raise TooLittleMemory.before(
            needed, memory, order if 0 < order < self.order else None, fewer if fewer > 0 else None
        )


def _states(recipe: Recipe) -> int:
    """How many sets an optimizer holds for each parameter, the parameter included; one of the user as many as Adam.

    It makes no step for this, which might be seen by the program it is a part of.
    """
    optimizer = recipe.optimizer([nn.Parameter(torch.zeros(1))], **copy.deepcopy(recipe.optimizer_options))
    held = next((count for kind, count in HELD.items() if isinstance(optimizer, kind)), 3)
    return held + sum(bool(optimizer.defaults.get(name)) for name in ("momentum", "amsgrad", "centered"))


def _trained(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _activations(model: nn.Module, x: Tensor) -> tuple[list[int], list[int]]:
    """The numbers that layers put out for one sample: those before anything that is trained, and all others.

    What comes before depends on no trained parameter (flattened images, frozen features) and has none of their rows.
    """
    watched, counts, begun = copy.deepcopy(model).eval(), ([0], [1]), False

    def see(module: nn.Module, args: object, output: object) -> None:
        nonlocal begun
        if isinstance(output, Tensor):
            begun = begun or output.requires_grad
            counts[begun].append(output.numel() // len(x))

    for module in watched.modules():
        if not list(module.children()):
            module.register_forward_hook(see)
    with torch.enable_grad():
        watched(torch.nan_to_num(x))
    return counts
