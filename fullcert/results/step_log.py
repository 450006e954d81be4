"""What a run writes down while it trains: a line of JSON for each step, with accuracies where there was time for them.

Accuracies are measured on some of the validation samples, at evenly spread steps, and in a share of the time. Nothing
in training depends on them.
"""

import json
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from torch import Tensor

import boundflow as bf
from boundflow.threats import Threat
from fullcert.experiment import runs
from fullcert.system import unpacking
from fullcert.system.mistakes import Mistake

SAMPLES, MEASURED, SHARE = 200, 25, 0.15  # samples looked at, how often, and in what share of the time


class StepLog:
    """A callback that keeps the steps of a run and appends each to a file, if there is one."""

    def __init__(
        self,
        path: Path | None,
        validation: tuple[Tensor, Tensor],
        threat: Threat,
        resume: bool = False,
        run: str = "",
    ):
        """``run`` says which run the steps are of: of those that are there, no others are taken over."""
        self.path, self.threat, self.run = path, threat, run
        self.x, self.y = (part[:SAMPLES] for part in validation)
        there = path is not None and resume and path.exists()
        self.steps: list[dict[str, Any]] = read_steps(path, run) if path is not None and there else []
        self.file: TextIO | None = None
        self.spent = 0.0
        self.latest: dict[str, float] = {}  # accuracies, and those of the last step alone
        self.measured: dict[str, float] = {}

    def __enter__(self) -> "StepLog":
        self.began = time.perf_counter() - (self.steps[-1]["seconds"] if self.steps else 0.0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.file is not None:
            with suppress(OSError):  # what could not be written was told when it was tried
                self.file.close()

    only_looks = True  # changes nothing in the run, so steps may be compiled

    def __call__(self, step: bf.Step) -> None:
        self.steps = [line for line in self.steps if line["step"] < step.number]  # what a resumed run makes again
        seconds = time.perf_counter() - self.began
        line = {"step": step.number, "loss": step.loss, "width": step.width, "seconds": seconds}
        self.measured = self._measured(step, seconds)
        self.steps.append({**line, **self.measured})
        if self.path is not None:
            self._append(self.path)

    def _append(self, path: Path) -> None:
        """Add the last step to the file, which holds the steps before it whatever happens."""
        try:
            if self.file is None:
                runs.write(path, "".join(map(self._line, self.steps[:-1])).encode())
                self.file = path.open("a")
            self.file.write(self._line(self.steps[-1]))
            self.file.flush()
        except OSError as error:
            raise Mistake(f"cannot write {path}: {error.strerror}") from None

    def _line(self, step: dict[str, Any]) -> str:
        return json.dumps({**step, "run": self.run}) + "\n"

    def _measured(self, step: bf.Step, seconds: float) -> dict[str, float]:
        every = max(1, step.total // MEASURED)
        due = step.number % every == 0 or step.number == step.total
        if not due or self.spent > SHARE * seconds + 1.0 or step.record.get("task") == "regression":
            return {}
        began = time.perf_counter()
        try:
            found = step.accuracy(self.x, self.y, threat=self.threat)
        except (bf.VoidBounds, bf.SpreadRows):
            return {}
        self.spent += time.perf_counter() - began
        self.latest = {"nominal_accuracy": found.nominal, "certified_accuracy": found.certified}
        return self.latest


def read_steps(path: Path, run: str = "") -> list[dict[str, Any]]:
    """The steps of a run in a file; a last line that was cut off is left out."""
    steps = []
    for line in unpacking.content(path, unpacking.JSON).splitlines():
        try:
            step = unpacking.parsed_json(line)
        except ValueError:
            break
        if not isinstance(step, dict) or not all(_is_number(step.get(name)) for name in ("step", "seconds")):
            break
        if step.pop("run", None) != run:
            break
        steps.append(step)
    return steps


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
