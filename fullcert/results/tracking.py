"""A run in TensorBoard: a callback for `bf.certify` that writes what can be seen of every step.

    with TensorBoard("runs/moons", validation=(x, y), epsilon=0.001) as board:
        bf.certify(..., callbacks=[board])

Nothing that is written reaches the training. Choosing a step by looking at it is a choice made on data.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

import boundflow as bf
from boundflow.threats import Threat
from fullcert.system.mistakes import Mistake

EVERY = 10  # steps between two measurements on the validation set


class TensorBoard:
    """Writes loss, width, seconds and width by layer at every step, the accuracies at every `every`-th and the last.

    ``validation`` are inputs and targets, of which every feature may have moved by ``epsilon``, or which may have been
    changed by ``threat``; for regression the mean width of the outputs is written in place of accuracies. Where another
    callback measures already, ``measured`` gives what it found at this step, by the names to write it under.
    """

    def __init__(
        self,
        folder: str | Path,
        validation: tuple[Any, Any] | None = None,
        epsilon: Any = 0.0,
        every: int = EVERY,
        clock: Callable[[], float] = time.perf_counter,
        threat: Threat | None = None,
        measured: Callable[[], Mapping[str, float]] | None = None,
    ) -> None:
        if every < 1:
            raise Mistake(f"the accuracy must be measured every 1 or more steps, not every {every}")
        self.folder, self.validation, self.epsilon = Path(folder), validation, epsilon
        self.every, self.clock, self.threat, self.measured = every, clock, threat, measured
        self._make = _writer()
        self._writer: Any = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Mistake(f"cannot make the folder {folder}: {error.strerror}") from None
        self._before = clock()

    def __enter__(self) -> "TensorBoard":
        self._before = self.clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    only_looks = True  # changes nothing in the run, so steps may be compiled

    def __call__(self, step: bf.Step) -> None:
        seconds = self.clock() - self._before
        if self._writer is None:  # what an interrupted run wrote from this step on is replaced
            self._writer = self._make(str(self.folder), purge_step=step.number)
        scalars = {"loss": step.loss, "width/all": step.width, "seconds per step": seconds}
        scalars |= {f"width/{name}": width for name, width in widths(step.model).items()}
        if self.measured is not None:
            scalars |= self.measured()
        elif self.validation is not None and (step.number % self.every == 0 or step.number == step.total):
            scalars |= self._measured(step, *self.validation)
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step.number, double_precision=True)
        self._before = self.clock()  # the time that measuring and writing took is not the step's

    def close(self) -> None:
        """Write what is left and close the file; a board that saw no step leaves none."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _measured(self, step: bf.Step, x: Any, y: Any) -> dict[str, float]:
        try:
            if step.record.get("task") == "regression":
                found = step.predict(x, self.epsilon, threat=self.threat)
                return {"output width": float((found.upper - found.lower).mean())}
            accuracy = step.accuracy(x, y, self.epsilon, threat=self.threat)
        except bf.VoidBounds:  # the training may still go on
            return {}
        return {"accuracy/nominal": accuracy.nominal, "accuracy/certified": accuracy.certified}


def widths(model: nn.Module) -> dict[str, float]:
    """The mean width of the parameters of every layer."""
    found: dict[str, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if isinstance(parameter, bf.Bounded):
            layer = name.rpartition(".")[0] or name
            found.setdefault(layer, []).append((parameter.upper - parameter.lower).flatten())
    return {layer: float(torch.cat(parts).mean()) for layer, parts in found.items()}


def _writer() -> Callable[..., Any]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise Mistake("TensorBoard is not here: pip install tensorboard") from None
    return SummaryWriter
