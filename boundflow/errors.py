"""The named ways in which BoundFlow refuses to give a wrong answer.

Every exception says what happened, where, and what to do about it. Nothing is ever logged and forgotten.
"""

from __future__ import annotations


class BoundFlowError(RuntimeError):
    """Base of all exceptions raised by BoundFlow."""


class UnsupportedOperator(BoundFlowError, NotImplementedError):
    """An operator, or an option of one, has no sound rule."""


class VoidBounds(BoundFlowError):
    """A bound is infinite or NaN: the set says nothing any more."""

    at_step: int | None = None  # of a certified training, where it is noticed some steps later

    def __init__(self, message: str, step: int | None = None):
        super().__init__(message)
        self.step = step


class CrossedBounds(BoundFlowError):
    """A lower bound exceeds its upper bound: the set is empty, which no sound computation can produce."""


class Undecided(BoundFlowError):
    """A question with one answer (`bool`, `item`, `argmax`) was asked of a set that allows several."""


class MixedSymbols(BoundFlowError):
    """Tensors of two different symbol spaces met: their generator rows do not mean the same thing."""


class MixedTensors(BoundFlowError, ValueError):
    """Tensors of different dtype or device met, or of a dtype that has no bounds.

    Not a TypeError: Python's operators would swallow that and report "unsupported operand" instead.
    """


class StaleAlias(BoundFlowError):
    """A tensor was changed in place under another name (a view, `detach()`, `.data`)."""


class PlainTarget(BoundFlowError):
    """An in-place operator would have to store a set in a plain tensor."""


class UnsafePrecision(BoundFlowError):
    """A global flag makes PyTorch compute with less precision than the rounding rules assume."""


class UnsupportedProgram(BoundFlowError):
    """A program does what plain training and training on sets could not do alike, such as drawing numbers of numpy."""


class OutsideBounds(BoundFlowError):
    """A plain run left the set that must hold it: the two did not execute the same program, or a rule is wrong."""


class LostRank(BoundFlowError):
    """A process of a training on several devices has ended, does not answer, or does something else than the others."""


class SpreadRows(BoundFlowError):
    """Bounds were asked of a training on several processes while it goes on: none of them has all rows."""


class Violation(BoundFlowError):
    """An attack found a dataset inside the threat whose model the certificate excludes: a bound is wrong.

    ``evidence`` holds what is needed to see it again: the attack, the poisoned dataset, the trained parameters, and
    the test point or the tensor that is outside.
    """

    def __init__(self, message: str, evidence: dict[str, object]):
        super().__init__(message)
        self.evidence = evidence


class WrongContent(BoundFlowError):
    """A file holds what no run could have written, or asks for more than fits: it is refused before it is used."""


class NoSmallerThreat(BoundFlowError):
    """A set cannot be asked about a smaller threat than the one it was made for: that would not be sound."""


class DifferentRuns(BoundFlowError):
    """Certificates that speak of different trainings cannot be combined: each is about a model of its own."""


class TooLittleMemory(BoundFlowError, MemoryError):
    """A run would take more than the memory it was promised, or the machine has no more.

    ``needed`` bytes, an ``order`` and a ``batch_size`` that would fit are there where they are known.
    """

    needed: float | None = None
    order: int | None = None
    batch_size: int | None = None

    @classmethod
    def before(cls, needed: float, memory: float, order: int | None, batch_size: int | None) -> TooLittleMemory:
        """Of a run that has not begun."""
        fits = [f"memory={1.1 * needed:.2g}"]
        fits += [f"order={order}"] if order is not None else []
        fits += [f"batch_size={batch_size}"] if batch_size is not None else []
        made = cls(
            f"zonotopes of this run would take {needed / 1e6:,.0f} MB and memory is {memory / 1e6:,.0f} MB: "
            f"{' or '.join(fits)} would fit, and domain='interval' takes a few times what plain training does"
        )
        made.needed, made.order, made.batch_size = needed, order, batch_size
        return made

    @classmethod
    def in_a_loop(
        cls, needed: float, memory: float, order: int | None, batch_size: int | None, untracked: int | None
    ) -> TooLittleMemory:
        """Of a step of a loop of one's own that has not begun; ``untracked`` samples fit where these have no rows."""
        fits = [f"Symbols(memory={1.1 * needed:.2g})"]
        fits += [f"order={order}"] if order is not None else []
        fits += [f"batches of {batch_size} samples"] if batch_size is not None else []
        fits += [f"tracks=False in batches of {untracked}, which gives samples no rows,"] if untracked else []
        made = cls(
            f"zonotopes of this loop would take {needed / 1e6:,.0f} MB and memory is {memory / 1e6:,.0f} MB: "
            f"{' or '.join(fits)} would fit, and intervals (bf.lift(model), without symbols) take far less"
        )
        made.needed, made.order, made.batch_size = needed, order, batch_size
        return made


class WideBounds(UserWarning):
    """Sets say nothing any more, or will not where they go on to widen as they do: said once for each run."""
