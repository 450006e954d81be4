"""What can be seen of a run while it trains: the step that callbacks get, and a bar on standard error.

The bar shows the steps made, the time left, the loss, the mean width of the parameters, and how good the two models are
by now. Measuring that costs far more than drawing, so it is rationed: every two seconds at most, and on as many samples
as a tenth of the elapsed time pays for. Nothing that is measured reaches the training.
"""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO, TypeVar

import torch
from torch import Tensor, nn

from ..answers.certificate import Certificate
from ..answers.prediction import Accuracy, Prediction
from ..errors import BoundFlowError
from ..tensor.lift import Given
from ..threats import Threat

SAMPLES = 200  # of the training data are looked at where there is no validation set
TRIAL = 16  # samples of the first measurement, which tells what one costs
PIECE = 256  # samples at a time
QUIET = 2.0  # seconds before anything is shown, and between two measurements
SHARE = 0.1  # of the time may be spent on measuring
REDRAWN, LOGGED = 0.1, 10.0  # seconds between two drawings, on a terminal and elsewhere
WIDTH, LINE = 20, 120  # characters of the bar itself, and of a line in a log


Looking = TypeVar("Looking", bound=Callable[..., object])


class only_looks:
    """Mark a callback that changes nothing: steps may then be compiled, which takes each for the same program.

    ``@bf.only_looks`` above a function, or ``bf.only_looks(callback)``. Most callbacks only look; that they do is for
    their author to say, since what code changes cannot be seen from outside.
    """

    def __new__(cls, callback: Looking) -> Looking:  # type: ignore[misc]
        callback.only_looks = True  # type: ignore[attr-defined]
        return callback

    @staticmethod
    def marks(callback: object) -> bool:
        return bool(getattr(callback, "only_looks", False))


@dataclass(frozen=True)
class Step:
    """What a callback sees after each step of certified training."""

    number: int
    total: int
    loss: float  # at the center of the set
    width: float  # mean width of the parameters
    model: nn.Module
    nominal: nn.Module  # the plain model after the same step
    record: dict[str, Any] = field(default_factory=dict)  # the recipe

    def predict(self, x: Given, epsilon: Given = 0.0, *, threat: Threat | None = None) -> Prediction:
        """What the two models answer by now, as a certificate would."""
        with self._evaluated() as certificate:
            return certificate.predict(x, epsilon, threat=threat)

    def accuracy(self, x: Given, y: Given, epsilon: Given = 0.0, *, threat: Threat | None = None) -> Accuracy:
        """Nominal and certified accuracy by now. To stop or to choose a step by it is a choice made on data."""
        with self._evaluated() as certificate:
            return certificate.accuracy(x, y, epsilon, threat=threat)

    @contextmanager
    def _evaluated(self) -> Iterator[Certificate]:
        """Both models in evaluation mode, then back to what they were."""
        modes = [(module, module.training) for model in (self.model, self.nominal) for module in model.modules()]
        try:
            yield Certificate(self.model.eval(), self.nominal.eval(), self.record)
        finally:
            for module, mode in modes:
                module.training = mode


def shown(wanted: bool | None) -> bool:
    """Whether to draw a bar: as wanted, and by default where someone is looking."""
    return (sys.stderr is not None and sys.stderr.isatty()) if wanted is None else wanted


class Bar:
    """A line on standard error that follows a run: a context manager, and a callback for its steps.

    On a terminal the line is drawn over and over; elsewhere, in a log, a new one is written every few seconds. It holds
    ``piece`` samples at a time; ``first`` steps were made before.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        epsilon: Given = 0.0,
        piece: int = PIECE,
        first: int = 0,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.x, self.y, self.epsilon, self.first = x, y, epsilon, first
        self.piece = min(piece, PIECE)
        self.stream, self.clock = sys.stderr if stream is None else stream, clock
        self.terminal = self.stream is not None and self.stream.isatty()
        # in an order of its own: the first samples of a sorted dataset are all of one class
        self.order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).to(x.device)
        self.measured, self.spent = "", 0.0
        self.each: float | None = None  # seconds that measuring one sample takes
        self.step: Step | None = None
        self.length = 0  # of the line on the terminal

    def __enter__(self) -> Bar:
        self.began = self.next = self.clock()
        self.drawn: float | None = None
        return self

    def __exit__(self, *exception: object) -> None:
        if self.drawn is not None and self.step is not None:
            self._draw(self.step)
            if self.terminal:
                self.stream.write("\n")
                self.stream.flush()

    only_looks = True

    def __call__(self, step: Step) -> None:
        self.step, now = step, self.clock()
        if now - self.began < QUIET:
            return
        if now >= self.next:
            self._measure(step)
        if self.drawn is None or self.clock() - self.drawn >= (REDRAWN if self.terminal else LOGGED):
            self._draw(step)

    def void(self, number: int) -> None:
        """The bounds became void: from here on only the nominal model is trained."""
        self.measured = f"bounds void at step {number}"

    def _measure(self, step: Step) -> None:
        """How good the models are, on as many samples as the time pays for."""
        began, count = self.clock(), min(TRIAL, len(self.order))
        if self.each is not None:
            paid = int((SHARE * (began - self.began) - self.spent) / self.each)
            if paid < count:
                return
            count = min(paid, len(self.order))
        try:
            self.measured = self._quality(step, self.order[:count])
        except BoundFlowError as error:  # the run goes on: it is the bar that cannot say more
            self.measured, self.next = f"accuracy unknown: {type(error).__name__}", math.inf
            return
        ended = self.clock()
        self.next = ended if self.each is None else ended + QUIET  # the trial is followed up at once
        self.spent += ended - began
        self.each = max(ended - began, 1e-9) / count

    def _quality(self, step: Step, chosen: Tensor) -> str:
        pieces = torch.split(chosen, self.piece)
        some = "" if len(chosen) == len(self.order) else f" ({len(chosen)} samples)"
        if step.record.get("task") == "regression":
            predictions = [step.predict(self.x[piece], self.epsilon) for piece in pieces]
            widths = torch.cat([prediction.upper - prediction.lower for prediction in predictions])
            return f"output width {float(widths.mean()):.3g}{some}"
        found = [(len(piece), step.accuracy(self.x[piece], self.y[piece], self.epsilon)) for piece in pieces]
        nominal = sum(count * accuracy.nominal for count, accuracy in found) / len(chosen)
        certified = sum(count * accuracy.certified for count, accuracy in found) / len(chosen)
        return f"accuracy {nominal:.1%}, certified {certified:.1%}{some}"

    def _draw(self, step: Step) -> None:
        self.drawn = self.clock()
        left = (self.drawn - self.began) / (step.number - self.first) * (step.total - step.number)
        count, share = f"{step.number}/{step.total}", step.number / step.total
        told = [f"{_duration(left)} left", self.measured, f"loss {step.loss:.4g}", f"width {step.width:.3g}"]
        text = ", ".join(part for part in told if part)
        columns = shutil.get_terminal_size().columns - 1 if self.terminal else LINE
        space = min(WIDTH, columns - len(f"{count} [] {text}"))
        drawing = f"[{'#' * int(space * share):.<{space}}]" if space >= 5 else "-"
        line = f"{count} {drawing} {text}"
        if self.terminal:
            line = line[:columns]
            self.stream.write("\r" + line.ljust(self.length))  # over all that was there
            self.length = len(line)
        else:
            self.stream.write(line + "\n")
        self.stream.flush()


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
