"""The state of a training as plain data: numbers as tensors, everything else as JSON that refers to them by name.

A *trainer* is a model and what makes its next step. Its state are the tensors of the model and what the optimizer keeps
of each parameter: plain tensors, numbers, and sets. A set is its bounds, its center and radius, and its generators;
after a reduction these are a diagonal, of which only the diagonal is kept. What the rows stand for is kept once, with
the space of symbols.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from .bounded import Bounded, Form, ball_form
from .errors import BoundFlowError
from .expansion import Expansion
from .rows import Rows
from .symbols import Symbols


@dataclass(frozen=True)
class Trainer:
    """A model, and what makes its next step."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: Any = None

    def tensors(self) -> dict[str, Tensor]:
        return {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}

    def parameters(self) -> list[Tensor]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def skip(self, steps: int) -> None:
        """Bring the schedule to where it is after so many steps."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the optimizer itself has made no step
            for _ in range(steps if self.schedule is not None else 0):
                self.schedule.step()


def held(side: str, trainer: Trainer, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Model and optimizer as JSON data that refer to tensors by name."""
    model = {name: _entry(f"{side}/model/{name}", value, tensors) for name, value in trainer.tensors().items()}
    state = [  # pairs, and no dict: a reduction stacks the tensors in the order in which the optimizer made them
        [(key, _entry(f"{side}/optimizer/{number}/{key}", value, tensors)) for key, value in kept.items()]
        for number, kept in enumerate(trainer.optimizer.state.get(part, {}) for part in trainer.parameters())
    ]
    groups = [
        {key: option for key, option in group.items() if isinstance(option, bool | int | float)}
        for group in trainer.optimizer.param_groups
    ]
    return {"model": model, "optimizer": state, "groups": groups}


def restore(
    side: str, trainer: Trainer, said: dict[str, Any], tensors: dict[str, Tensor], symbols: Symbols, steps: int
) -> None:
    """The opposite of `held`."""
    with torch.no_grad():
        for name, target in trainer.tensors().items():
            value = _value(f"{side}/model/{name}", said["model"][name], tensors, symbols, target.device)
            if isinstance(target, Bounded):
                target._bounds, target._form, target._symbols = value._bounds, value._form, symbols
                target._exact, target._nonnegative = value._exact, value._nonnegative
            else:
                target.copy_(value)
    for number, (parameter, kept) in enumerate(zip(trainer.parameters(), said["optimizer"], strict=True)):
        for key, entry in kept:
            name = f"{side}/optimizer/{number}/{key}"
            trainer.optimizer.state[parameter][key] = _value(name, entry, tensors, symbols, parameter.device)
    trainer.skip(steps)
    for group, options in zip(trainer.optimizer.param_groups, said["groups"], strict=True):
        group.update(options)  # what the optimizer itself counts there


# --- one value ------------------------------------------------------------------------------------------------------


def _entry(name: str, value: Any, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """What a file says of a value; its numbers go into ``tensors``."""
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if not isinstance(value, Tensor):
        raise BoundFlowError(f"{name} is a {type(value).__name__}, which a checkpoint cannot hold")
    if not isinstance(value, Bounded):
        tensors[name] = value.detach().clone()
        return {"on_cpu": value.device.type == "cpu"}
    tensors[f"{name}/bounds"] = value._checked()._bounds
    entry = {"exact": value._exact, "nonnegative": value._nonnegative, "form": value._form is not None}
    if value._form is not None:
        form = value._form.dense
        tensors |= {f"{name}/center": form.center, f"{name}/radius": form.radius}
    if value.affine:
        flat = form.generators.reshape(len(form.rows), -1)
        diagonal = flat.diagonal()
        entry["diagonal"] = flat.shape[0] == flat.shape[1] and bool(flat.count_nonzero() == diagonal.count_nonzero())
        tensors[f"{name}/rows"] = torch.from_numpy(form.rows.numbers)
        tensors[f"{name}/generators"] = diagonal.clone() if entry["diagonal"] else form.generators
    return entry


def _value(name: str, entry: dict[str, Any], tensors: dict[str, Tensor], symbols: Symbols, device: torch.device) -> Any:
    """The opposite of `_entry`."""
    if "value" in entry:
        return entry["value"]
    if "on_cpu" in entry:  # optimizers keep their counters there, wherever the parameters are
        return tensors[name].to("cpu" if entry["on_cpu"] else device)
    bounds, form = tensors[f"{name}/bounds"].to(device), None
    if entry["form"]:
        center, radius = (tensors[f"{name}/{part}"].to(device) for part in ("center", "radius"))
        form = ball_form(center, radius)
        if "diagonal" in entry:
            generators, rows = tensors[f"{name}/generators"].to(device), tensors[f"{name}/rows"].numpy()
            if entry["diagonal"]:
                generators = generators.diag().view(-1, *center.shape)
            form = Form(center, generators, radius, Rows(rows))
    return Bounded(bounds, form, symbols, entry["exact"], nonnegative=entry["nonnegative"])


# --- the space of symbols -------------------------------------------------------------------------------------------


class Space(NamedTuple):
    """A space of symbols as it was: numbers that were handed out keep their meaning, so arrays need no copy."""

    owners: np.ndarray
    parts: np.ndarray
    first_row: dict[int, int]
    raw: dict[int, bytes]
    expansion: Expansion | None
    own: int
    steps: int

    @classmethod
    def of(cls, symbols: Symbols) -> Space:
        ledger = symbols._ledger
        samples = dict(ledger.first_row), dict(ledger.raw)
        return cls(*symbols._registry.all(), *samples, symbols.expansion, ledger.own, symbols.steps)

    def tensors(self) -> dict[str, Tensor]:
        """Runs of symbols with the same owner and part are written once: free symbols come by the thousand."""
        changes = (np.diff(self.owners) != 0) | (np.diff(self.parts) != 0)
        begins = np.concatenate(([0], np.flatnonzero(changes) + 1))[: len(self.owners)]
        found = {
            "lengths": np.diff(begins, append=len(self.owners)),
            "owners": self.owners[begins],
            "parts": self.parts[begins],
            "samples": np.array(list(self.first_row), dtype=np.int64),
            "first_rows": np.array(list(self.first_row.values()), dtype=np.int64),
            "raw": np.frombuffer(b"".join(self.raw[sample] for sample in self.first_row), dtype=np.uint8).copy(),
        }
        if self.expansion is not None:
            found |= {"derived": self.expansion.derived.numbers, "deep": self.expansion.deep.numbers}
        tensors = {f"symbols/{name}": torch.from_numpy(array) for name, array in found.items()}
        return tensors if self.expansion is None else {**tensors, "symbols/weights": self.expansion.weights}

    @staticmethod
    def restore(
        symbols: Symbols, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], own: int, steps: int
    ) -> None:
        """Make a space that has handed out nothing yet the one that was written."""
        found = {name.removeprefix("symbols/"): value for name, value in tensors.items() if name.startswith("symbols/")}
        weights = found.pop("weights", None)
        arrays = {name: value.numpy() for name, value in found.items()}
        symbols._registry.new(*(np.repeat(arrays[name], arrays["lengths"]) for name in ("owners", "parts")))
        samples, ledger = arrays["samples"].tolist(), symbols._ledger
        ledger.first_row = dict(zip(samples, arrays["first_rows"].tolist(), strict=True))
        lines = arrays["raw"].reshape(len(samples), -1) if samples else ()
        ledger.raw = {sample: line.tobytes() for sample, line in zip(samples, lines, strict=True)}
        ledger.own, symbols.steps, symbols.resumed_at = own, steps, steps
        if weights is not None:
            device = optimizer.param_groups[0]["params"][0].device
            deep = Expansion(Rows(arrays["derived"]), Rows(arrays["deep"]), weights.to(device))
            symbols.expands(optimizer, deep)


def space_of(model: nn.Module) -> Symbols:
    """The space of a lifted model, that of plain intervals included."""
    symbols = next(model.parameters()).symbols  # type: ignore[attr-defined]
    assert symbols is not None
    return symbols
