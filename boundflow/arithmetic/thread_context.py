"""How a run computes, in whichever thread: whether roundings are charged, and how long the sums of plain PyTorch are.

Nothing here belongs to the process. A space of symbols carries the arithmetic of its run; every rule takes it from the
sets it is given and makes it that of the thread it runs in, for as long as it runs. So two runs in two threads do not
see each other, and a backward pass that PyTorch hands to threads of its own computes as its forward pass did (a
thread-local variable alone would not reach those).
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from ..fast.processes.row_placement import Shares
    from ..fast.steps.deferred_checks import LateChecks


@dataclass(frozen=True)
class Arithmetic:
    """What a rule must know besides its operands."""

    outward: bool = True  # charge roundings; False: bounds hold in real arithmetic, up to rounding
    pieces: int = 0  # of the batch that is being summed; 0 where it comes whole
    length: int = 1  # plain PyTorch sums so many times as many terms as a piece holds
    deferred: list[Tensor] | None = field(default=None, compare=False)  # checks of a step that is being traced
    late: LateChecks | None = field(default=None, compare=False)  # checks that are read when a step is over
    shares: Shares | None = field(default=None, compare=False)  # which rows this process holds, if there are several
    together: bool = True  # bound products of deviations together (`products_of_deviations.py`)
    trial_of: float = 1.0  # so many times as much work, of which this is a trial: choices that go by work are the same
    samples_of: float = 1.0  # and so many times as many samples

    def prevails(self, other: Arithmetic) -> bool:
        """Where sets of two runs meet: one that charges roundings, and one that has rows on other processes."""
        return self.outward > other.outward or (self.shares is not None and other.shares is None)


OUTWARD = Arithmetic()


class _Thread(threading.local):
    arithmetic = OUTWARD


thread = _Thread()


class using:
    """Compute like this, in this thread: ``with using(arithmetic): ...``."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.arithmetic = arithmetic

    def __enter__(self) -> None:
        self.before, thread.arithmetic = thread.arithmetic, self.arithmetic

    def __exit__(self, *exception: object) -> None:
        thread.arithmetic = self.before


def bookkeeping() -> AbstractContextManager[object]:
    """For tables of rows and positions, which hold no numbers of sets.

    They are the same in every step that a traced one stands for, so the trace has them as constants, and may look at
    them.
    """
    if thread.arithmetic.deferred is None:
        return nullcontext()
    from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing  # takes a while to import

    apart: AbstractContextManager[object] = disable_proxy_modes_tracing()
    return apart


def keeps_by_sample() -> bool:
    """Whether sums over samples keep what touched ones add, for the pieces that are still to come."""
    return thread.arithmetic.pieces > 0
