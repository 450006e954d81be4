"""What a step on zonotopes takes, in bytes, by the sizes of the run: of `certify` and of a loop of one's own.

With M scalars of state and K deep rows, those of samples and at most ``order`` error rows for each scalar (a step adds
two), the largest tensor of a step is the expansion (M, K), and a sample of a piece has activations over M rows:

    bytes  =  size (c M K  +  s M M  +  samples of a piece (a activations (M + own rows)  +  (e + 2 own rows) M))

with c, s, a and e copies that live at a time, as measured (`tuned_numbers.py`); before the first trained layer
activations have own rows alone.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...arithmetic.tuned_numbers import (
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
    STREAM_LINES_CUDA,
)

HELD = {torch.optim.SGD: 1, torch.optim.RMSprop: 2, torch.optim.Adagrad: 2}  # sets for each parameter, itself included


class Owned(NamedTuple):
    """Rows that belong to samples: of one sample, and of all that are visited and counted by one process."""

    each: int
    together: int


@dataclass(frozen=True)
class Sizes:
    """All that the memory of a step goes by."""

    trained: int  # scalars
    scalars: int  # of state, the trained ones included
    order: int  # error rows for each scalar
    owned: Owned
    before: list[int]  # numbers that layers put out for a sample, before anything that is trained
    after: list[int]  # and from there on
    batch: int  # samples
    outputs: int
    budget: bool
    bytes: int  # of a number
    cuda: bool


@dataclass(frozen=True)
class Need:
    """What a run takes, in bytes: whatever the size of its pieces, and for each sample of a piece."""

    state: float
    sample: float
    copies: float  # what one more error row for each scalar takes
    order: int  # how many there can be
    largest: float  # the largest tensor of a sample

    @staticmethod
    def of(run: Sizes) -> Need:
        size, owned = float(run.bytes), run.owned
        row = size * run.scalars * run.scalars  # one for each scalar
        copies = COPIES_OF_ERROR_ROWS * row
        held = COPIES_OF_OWNED_ROWS_CUDA if run.cuda else COPIES_OF_OWNED_ROWS
        varying, rows = sum(run.after), run.trained + owned.each
        numbers = varying * rows + sum(run.before) * (1 + owned.each)
        activation = (COPIES_OF_AN_ACTIVATION_CUDA if run.cuda else COPIES_OF_AN_ACTIVATION) * numbers
        touched = COPIES_OF_AN_EXCESS * run.trained if run.budget else 0
        state = held * size * run.scalars * owned.together + COPIES_IN_A_STEP * row + run.order * copies
        if run.cuda and varying > run.outputs:  # of hidden layers: their first factors have rows, too
            state += BYTES_OF_A_STREAM * min(STREAM_LINES_CUDA, run.batch * MOST_MIXED * owned.together)
        sample = activation + touched + 2 * owned.each * run.trained
        return Need(state, size * float(sample), copies, run.order, size * float(max(run.after) * rows))

    @property
    def fewest(self) -> float:
        """With pieces that are large enough not to take forever."""
        return self.state + FEWEST_SAMPLES * self.sample

    def exceeds(self, memory: float, samples: int) -> bool:
        """Whether pieces of so many samples need more than the memory, by more than the estimate may be off."""
        return self.state + samples * self.sample > MEMORY_SLACK * max(memory, LEAST_MEMORY)

    def fitting_order(self, memory: float, samples: int) -> int | None:
        """How many error rows for each scalar would fit, if fewer would."""
        needed = self.state + samples * self.sample
        order = int(self.order - (needed - memory) / self.copies) if self.copies else 0
        return order if 0 < order < self.order else None

    def fitting_samples(self, memory: float) -> int | None:
        """How many samples at a time would fit, if any."""
        fewer = int((memory - self.state) / self.sample)
        return fewer if fewer > 0 else None


def sets_held(optimizer: torch.optim.Optimizer) -> int:
    """How many sets an optimizer holds for each parameter, the parameter included; one of the user as many as Adam."""
    held = next((count for kind, count in HELD.items() if isinstance(optimizer, kind)), 3)
    return held + sum(bool(optimizer.defaults.get(name)) for name in ("momentum", "amsgrad", "centered"))


def activations(model: nn.Module, x: Tensor) -> tuple[list[int], list[int]]:
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
