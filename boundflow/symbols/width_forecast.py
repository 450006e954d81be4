"""How sets widen from step to step, and from where on they will say nothing if that goes on.

After t steps the widest parameter is known up to w(t), in units of 1 and its size. Where sets contract, or only add up
what each step does, ln w(t) gains about as much from t / 4 to t / 2 as from t / 2 to t. Where each step multiplies
widths, it gains twice as much, and widths reach W after

    t  +  (t / 2) ln(W / w(t)) / ln(w(t) / w(t / 2))      steps.

That is a forecast and no bound: it is said once, as a warning, and changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch import Tensor

NARROW, LOST = 0.1, 10.0  # widths below which sets still say much, and from which on no prediction has been certain
FASTER = 1.6  # times as much as in the first half: on the way from 1, where widths add up, to 2, where they multiply
FEWEST = 8  # steps: what the first ones do says little
AHEAD = 8  # times as many steps as were made: further ahead nothing is said of a loop whose end is not known
EVERY = 64  # steps, and after 1, 2, 4, ...: looking at widths takes a moment
INSTEAD = "a smaller threat or learning rate, larger batches, SGD in place of Adam, or zonotopes in place of intervals"


class Growth:
    """The widths of a run that has ``total`` steps, if that is known."""

    def __init__(self, total: int | None = None):
        self.total, self.told = total, False
        self.widths: dict[int, float] = {}  # after so many steps

    def asks(self, steps: int) -> bool:
        """Whether widths after so many steps are to be looked at."""
        return not self.told and (steps & (steps - 1) == 0 or steps % EVERY == 0)

    def after(self, steps: int, bounds: Iterable[Tensor]) -> str | None:
        """What is to be said once about the bounds of all parameters after so many steps, if anything."""
        others = self.widths.get(steps, 0.0)  # the parameters of another optimizer
        self.widths[steps] = max([others, *(_width(each) for each in bounds if each.numel())])
        width, lost = self.widths[steps], self._lost(steps)
        if lost is None or steps == self.total:
            return None
        self.told, of = True, "" if self.total is None else f" of {self.total:,}"
        if width >= LOST:
            return f"after step {steps:,}{of} the sets have blown up and will certify nothing. {self.instead()}"
        return (
            f"the sets widen {self._factor(steps):.3g}-fold a step: if that goes on, they will have blown up after "
            f"about {lost:,} steps{of} and will certify nothing. {self.instead()}"
        )

    def void(self, step: int) -> str:
        """What is to be said where the bounds of a step are infinite."""
        self.told = True
        return (
            f"the bounds became void at step {step:,} of {self.total:,}: nothing is certified, and what is left trains "
            f"the plain model alone. {self.instead()}"
        )

    def instead(self) -> str:
        """What would hold, by the steps that were seen."""
        steps = max(self.widths, default=0)
        few = max((step for step, width in self.widths.items() if width <= NARROW), default=0)
        if few and few == steps and self._lost(steps) is not None:
            few = self._reaches(steps, NARROW)
        if not few:
            return f"Not even the first step would hold: try {INSTEAD}."
        return f"About {few:,} step{'s' * (few != 1)} would hold, and maybe more with {INSTEAD}."

    def _lost(self, steps: int) -> int | None:
        """After how many steps sets say nothing, where that is before the end."""
        if self.widths[steps] >= LOST:
            return steps
        before, first = self.widths.get(steps // 2), self.widths.get(steps // 4)
        if steps < FEWEST or before is None or first is None or not 0 < first < before < self.widths[steps]:
            return None
        if math.log(self.widths[steps] / before) < FASTER * math.log(before / first):
            return None
        lost = self._reaches(steps, LOST)
        return lost if lost < (AHEAD * steps if self.total is None else self.total) else None

    def _factor(self, steps: int) -> float:
        return float((self.widths[steps] / self.widths[steps // 2]) ** (1 / (steps - steps // 2)))

    def _reaches(self, steps: int, width: float) -> int:
        """After how many steps widths are so large, if they go on as between the last two looks."""
        return steps + int(math.log(width / self.widths[steps]) / math.log(self._factor(steps)))


def _width(bounds: Tensor) -> float:
    """How far a parameter is unknown, in units of 1 and its size; infinite where it is not known at all."""
    lower, upper = bounds.detach().unbind(0)
    width = float((upper - lower).max()) / (1.0 + float((0.5 * lower + 0.5 * upper).abs().max()))
    return width if math.isfinite(width) else math.inf
