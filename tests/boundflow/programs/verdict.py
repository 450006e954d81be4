"""What became of a program: all poisoned plain runs contained, with no tolerance; a named error; or a violation.

A named error is a `bf.BoundFlowError`, or a `ValueError` that boundflow itself raised with a sentence. Anything else
that is raised names nothing a user could act on, and counts as a violation as much as a value outside its bounds.
"""

from __future__ import annotations

import traceback
import warnings
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

import boundflow as bf

from .oracle import Run
from .sets import Bounds, Ends
from .table import Program

PACKAGE = Path(bf.__file__).parent
WIDEST = 1000.0  # times what the outputs of plain runs differ by


class Verdict(NamedTuple):
    outcome: str  # contained, raised, VIOLATED
    error: str = ""  # the name of the exception
    sentence: str = ""

    @property
    def sound(self) -> bool:
        return self.outcome != "VIOLATED"

    def fits(self, expected: str) -> bool:
        wanted = {"contained": ("contained",), "raises": ("raised",), "either": ("contained", "raised")}[expected]
        return self.outcome in wanted


def judged(program: Program, domain: str) -> Verdict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runs = program.runs()  # what fails here is no legal program
        require_effect(runs)
        try:
            every = program.bounds(domain)
        except Exception as error:
            return of_error(error)
    found = [text for bounds in every for text in outside(bounds, runs)]
    if found:
        return Verdict("VIOLATED", "", "; ".join(found[:4]))
    require_tight(every, runs)
    return Verdict("contained")


def require_effect(runs: list[Run]) -> None:
    """The attacks must change the training, or the program would test nothing."""
    for name in (*runs[0].parameters, *runs[0].buffers):
        values = [{**run.parameters, **run.buffers}[name] for run in runs]
        if any(value.shape != values[0].shape or not torch.equal(value, values[0]) for value in values):
            return
    raise AssertionError("no attack has any effect on this program")


def require_tight(every: list[Bounds], runs: list[Run]) -> None:
    """Bounds must say something, or any run would be contained."""
    outputs = torch.stack([run.outputs[0] for run in runs])
    spread = float((outputs.amax(0) - outputs.amin(0)).mean())
    width = max(float((bounds.outputs[0][1] - bounds.outputs[0][0]).mean()) for bounds in every)
    assert width <= WIDEST * spread, f"bounds of width {width:.2g} test nothing where plain runs differ by {spread:.2g}"


def of_error(error: Exception) -> Verdict:
    sentence = " ".join(str(error).split())
    name = type(error).__name__
    if isinstance(error, bf.BoundFlowError) and " " in sentence:
        return Verdict("raised", name, sentence)
    if isinstance(error, ValueError) and _raised_by_boundflow(error) and " " in sentence:
        return Verdict("raised", name, sentence)
    return Verdict("VIOLATED", name, f"an error without a name: {name}: {sentence}")


def _raised_by_boundflow(error: Exception) -> bool:
    """Whether the last line of the trace is a ``raise`` of boundflow, rather than a call that failed."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return False
    return Path(frames[-1].filename).is_relative_to(PACKAGE) and (frames[-1].line or "").startswith("raise")


# --- what lies outside ------------------------------------------------------------------------------------------------


def outside(bounds: Bounds, runs: list[Run]) -> list[str]:
    """One text for everything that is not as claimed."""
    found = []
    for kind in ("parameters", "buffers"):
        for name in getattr(runs[0], kind):
            found += _tensor(
                f"{kind[:-1]} {name}", getattr(bounds, kind).get(name), [getattr(r, kind)[name] for r in runs]
            )
    found += _nominal(bounds, runs[0])
    return found + _outputs(bounds, runs) + _labels(bounds, runs)


def _tensor(what: str, ends: Ends | None, values: list[Tensor]) -> list[str]:
    if ends is None:
        return [f"{what} has no bounds"]
    lower, upper = ends
    shapes = {tuple(value.shape) for value in values}
    if shapes != {tuple(lower.shape)}:
        return [f"{what} has shape {tuple(lower.shape)}, and plain runs give {sorted(shapes)}"]
    stacked = torch.stack(values)
    bad = ~((lower <= stacked) & (stacked <= upper))
    count = int(bad.reshape(len(values), -1).any(1).sum())
    if not count:
        return []
    off = torch.maximum(lower - stacked, stacked - upper)
    widest = float((upper - lower).max())
    return [f"{what} of {count} of {len(values)} runs is outside by up to {float(off.max()):.2g} (width {widest:.2g})"]


def _nominal(bounds: Bounds, run: Run) -> list[str]:
    """The plain model of a certificate is the one that plain PyTorch trains on the observed data, bit for bit."""
    if bounds.nominal is None:
        return []
    plain = {**run.parameters, **run.buffers}
    wrong = [
        name
        for name, value in plain.items()
        if name not in bounds.nominal or not torch.equal(bounds.nominal[name], value)
    ]
    return [f"the nominal model is another than plain training gives ({', '.join(wrong)})"] if wrong else []


def _outputs(bounds: Bounds, runs: list[Run]) -> list[str]:
    """A later answer may speak of the model as it was after training, or as the evaluations before it left it."""
    found = []
    for number, ends in enumerate(bounds.outputs):
        wanted = {min(number, len(runs[0].outputs) - 1), 0}
        texts = [_tensor(f"output {number + 1}", ends, [run.outputs[which] for run in runs]) for which in wanted]
        if all(texts):
            found += texts[0]
    return found


def _labels(bounds: Bounds, runs: list[Run]) -> list[str]:
    """No plain run answers otherwise than a certified prediction."""
    if bounds.certified is None or bounds.label is None:
        return []
    wrong = 0
    for run in runs:
        outputs = run.outputs[0]
        label = (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(1)
        wrong += int((label != bounds.label)[bounds.certified].sum())
    return [f"{wrong} answers of plain runs differ from certified ones"] if wrong else []
