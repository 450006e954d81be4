"""What can be measured: one function under `@case(...)` in any file of this package, which `load` finds.

    ratio  =  best time with bounds  /  best time of plain PyTorch,   both taking turns in one run

Noise can only make a time longer, so the best of several is taken. Bounds are those that a user gets: roundings are
charged and the tripwire is on.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from fullcert.system.mistakes import Mistake, choose

SOMETIMES = ("certified", "details", "training_milliseconds", "forecast_milliseconds")


@dataclass(frozen=True)
class Measured:
    """What a case has found. A step, or a whole training, takes so many milliseconds; what is not known is None."""

    milliseconds: float | None
    plain_milliseconds: float | None = None
    peak_bytes: int | None = None  # above what was there before
    certified: float | None = None  # accuracy in per cent
    training_milliseconds: float | None = None  # without the test set; on a processor, of all threads by its clock
    forecast_milliseconds: float | None = None  # of the same, told before the first step
    details: dict[str, Any] = field(default_factory=dict)  # of JSON

    def as_data(self, case: str) -> dict[str, Any]:
        """The object that is written: what not every case has is there where it is known."""
        known = self.milliseconds is not None and self.plain_milliseconds
        ratio = self.milliseconds / self.plain_milliseconds if known else None  # type: ignore[operator]
        found = {"case": case, "ratio": ratio, **asdict(self)}
        return {key: value for key, value in found.items() if key not in SOMETIMES or value}


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    name: str
    title: str
    run: Callable[[torch.device], Measured]
    device: str = "cpu"  # where it is measured: cpu, or cuda
    quick: bool = False  # whether it takes seconds rather than minutes

    def check(self) -> None:
        """Refuse a case that this machine cannot run."""
        if self.device == "cuda" and not torch.cuda.is_available():
            raise Mistake(f"{self.name} needs a GPU, and there is none here")


CASES: dict[str, Case] = {}


def case(name: str, title: str, **fields: Any) -> Callable[[Callable[[torch.device], Measured]], Any]:
    """Register the function that measures a case."""

    def register(run: Callable[[torch.device], Measured]) -> Callable[[torch.device], Measured]:
        CASES[name] = Case(name, title, run, **fields)
        return run

    return register


def load() -> dict[str, Case]:
    """All cases, in the order of their files."""
    package = importlib.import_module("fullcert.bench")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name != "__main__":
            importlib.import_module(f"fullcert.bench.{module.name}")
    return dict(CASES)


def wanted(names: list[str]) -> list[Case]:
    """The cases that were asked for; of all cases, those that are quick and that this machine can run."""
    table = load()
    if not names:
        return [one for one in table.values() if one.quick and (one.device == "cpu" or torch.cuda.is_available())]
    found = [choose("case", name, table) for name in names]
    for one in found:
        one.check()
    return found
