"""Checks of bounds that are read at the end of a step, on a GPU.

Every rule checks that its bounds are in order and finite. On a GPU each look at a number waits for all work that was
begun, several hundred times in a step. So in a step of `certify` the two numbers that a check looks at stay on the
device until the step is over, and nothing is claimed before they were read: bounds that are void or crossed raise then,
with the name of the first operator that made some. What follows from them meanwhile is thrown away.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...arithmetic.thread_context import using
from ...errors import CrossedBounds, VoidBounds

if TYPE_CHECKING:
    from ...symbols.space import Symbols


class LateChecks:
    """The smallest and the largest width of the bounds of every operator, still to be looked at."""

    def __init__(self) -> None:
        self.names: list[tuple[str, int | None]] = []
        self.widths: list[Tensor] = []
        self.over = False  # whoever comes later is checked at once

    def hold(self, operator: str, step: int | None, least: Tensor, most: Tensor) -> None:
        self.names.append((operator, step))
        self.widths.append(torch.stack((least, most)).double())

    def read(self) -> None:
        """Raise for the first operator whose bounds are void or crossed."""
        self.over = True
        if not self.widths:
            return
        for (operator, step), (least, most) in zip(self.names, torch.stack(self.widths).tolist(), strict=True):
            require_order(operator, step, least, most)


def require_order(operator: str, step: int | None, least: float, most: float, which: str = "some") -> None:
    """Raise unless the smallest width is not negative and the largest finite; NaN is neither."""
    if least >= 0 and most < math.inf:
        return
    when = f" after {step} optimizer steps" if step is not None else ""
    if least < 0:
        raise CrossedBounds(
            f"{operator}: {which} lower bounds exceed their upper bounds{when}; no sound rule can give an empty set. "
            "Please report this with the program that led to it."
        )
    raise VoidBounds(
        f"{operator}: {which} bounds are infinite{when}: "
        "the set has blown up and says nothing any more. Use a smaller radius, fewer or smaller steps, or zonotopes.",
        step,
    )


@contextmanager
def checked_at_the_end(space: Symbols, device: torch.device) -> Iterator[None]:
    """Inside, checks of sets of this space are held; they are read when it is over, before any other error is told."""
    if device.type != "cuda" or space.arithmetic.deferred is not None:
        yield
        return
    checks, before = LateChecks(), space.arithmetic
    space.arithmetic = replace(before, late=checks)
    try:
        with using(space.arithmetic):
            yield
    except Exception:
        checks.read()
        raise
    finally:
        space.arithmetic, checks.over = before, True
    checks.read()
