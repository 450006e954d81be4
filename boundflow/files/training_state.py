"""The state of a training as plain data: numbers as tensors, everything else as JSON that refers to them by name.

A *trainer* is a model and what makes its next step. Its state are the tensors of the model, the attributes that its
forward pass has changed, and what the optimizer keeps of each parameter: plain tensors, numbers, and sets
(`codec.py`). What rows stand for is kept once, with the space of symbols.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import BoundFlowError
from ..same_program.digests import NOT_ATTRIBUTES
from ..same_program.forward_effects import contents
from ..same_program.identity import attributes, of_value
from ..symbols.expansion import Expansion
from ..symbols.recorded_values import NO_COLUMN, Recorded
from ..symbols.rows import Rows
from ..symbols.space import Symbols
from ..symbols.symbol_numbers import NOBODY
from ..tensor.bounded import Bounded
from . import codec
from .checked_content import check_space, require

# attributes of every optimizer: state and numbers of groups are written down, schedules and hooks are made anew
KNOWN = frozenset(("state", "param_groups", "defaults", "step", "_opt_called", "_warned_capturable_if_run_uncaptured"))


@dataclass(frozen=True)
class Trainer:
    """A model, and what makes its next step."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: Any = None
    initial: dict[str, str] = field(default_factory=dict)  # the attributes as they were, to tell which have changed
    beside: dict[str, str] = field(default_factory=dict)  # and what else the optimizer kept

    def __post_init__(self) -> None:
        self.initial.update(contents(self.model, attributes_only=True))
        self.beside.update(self._beside())

    def _beside(self) -> dict[str, str]:
        """What the optimizer keeps where no file looks for it: attributes, options that are no numbers, other state."""
        optimizer, mine = self.optimizer, set(map(id, self.parameters()))
        held: dict[str, Any] = {
            name: kept for name, kept in vars(optimizer).items() if name not in KNOWN and "hooks" not in name
        }
        held["state"] = [(key, kept) for key, kept in optimizer.state.items() if id(key) not in mine]
        if self.schedule is None:  # or the schedule, made anew, writes them again
            for number, group in enumerate(optimizer.param_groups):
                numbers = ("params", *(key for key, option in group.items() if isinstance(option, bool | int | float)))
                held[f"group {number}"] = {key: option for key, option in group.items() if key not in numbers}
        return {name: of_value(value) for name, value in held.items()}

    def require_nothing_beside(self) -> None:
        """Refuse to write down a training whose optimizer keeps something that the file would not hold."""
        now = self._beside()
        changed = sorted(name for name in {*now, *self.beside} if now.get(name) != self.beside.get(name))
        if changed:
            raise BoundFlowError(
                f"{type(self.optimizer).__name__} changes its {', '.join(changed)} while it trains, which a checkpoint "
                "does not hold: keep numbers in optimizer.state of a parameter, or in param_groups"
            )

    def tensors(self) -> dict[str, Tensor]:
        return {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}

    def changed(self) -> dict[str, Any]:
        """Attributes of modules that are not what they were, by name: what a forward pass keeps outside buffers."""
        return changed_attributes(self.model, self.initial)

    def parameters(self) -> list[Tensor]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def step(self) -> None:
        """The next step, and that of the schedule."""
        self.optimizer.step()
        if self.schedule is not None:
            self.schedule.step()

    def skip(self, steps: int) -> None:
        """Bring the schedule to where it is after so many steps."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the optimizer itself has made no step
            for _ in range(steps if self.schedule is not None else 0):
                self.schedule.step()


def changed_attributes(model: nn.Module, initial: dict[str, str]) -> dict[str, Any]:
    """Attributes of modules that are not what they were, by name."""
    found = {}
    for path, module in model.named_modules():
        for name, value in attributes(module).items():
            found[f"{path}.{name}" if path else name] = value
    now = contents(model, attributes_only=True)
    return {name: value for name, value in found.items() if initial.get(name) != now[name]}


def held(side: str, trainer: Trainer, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Model and optimizer as JSON data that refer to tensors by name."""
    trainer.require_nothing_beside()
    model = {name: entry(f"{side}/model/{name}", value, tensors) for name, value in trainer.tensors().items()}
    kept = {name: entry(f"{side}/attributes/{name}", value, tensors) for name, value in trainer.changed().items()}
    state = [  # pairs, and no dict: a reduction stacks the tensors in the order in which the optimizer made them
        [(key, entry(f"{side}/optimizer/{number}/{key}", value, tensors)) for key, value in kept.items()]
        for number, kept in enumerate(trainer.optimizer.state.get(part, {}) for part in trainer.parameters())
    ]
    groups = [
        {key: option for key, option in group.items() if isinstance(option, bool | int | float)}
        for group in trainer.optimizer.param_groups
    ]
    gone = sorted(trainer.initial.keys() - contents(trainer.model, attributes_only=True).keys())
    return {"model": model, "attributes": kept, "gone": gone, "optimizer": state, "groups": groups}


def restore(
    side: str, trainer: Trainer, said: dict[str, Any], tensors: dict[str, Tensor], symbols: Symbols, steps: int
) -> None:
    """The opposite of `held`."""
    device, targets = trainer.parameters()[0].device, trainer.tensors()
    with torch.no_grad():
        for name, said_of in said["model"].items():
            target = targets.pop(name, None)
            value = made(f"{side}/model/{name}", said_of, tensors, symbols, device if target is None else target.device)
            if isinstance(target, nn.Parameter | Bounded):
                same = isinstance(value, Tensor) and value.shape == target.shape and value.dtype is target.dtype
                fits = same and isinstance(value, Bounded) == isinstance(target, Bounded)
                require(fits, f"{name} is not of the kind and shape that it has in the model")
            if isinstance(target, Bounded):
                value.set.parameter, target.set = target.set.parameter, value.set
            elif isinstance(value, Bounded) or target is None or target.shape != value.shape:
                _register(trainer.model, name, value)  # a buffer that a forward pass has made, or made a set
            else:
                target.copy_(value)
    for name in targets:
        _register(trainer.model, name, None)
    for name, said_of in said["attributes"].items():
        check_kept(name)
        assign(trainer.model, name, made(f"{side}/attributes/{name}", said_of, tensors, symbols, device))
    for name in said["gone"]:
        require(name in trainer.initial, f"{name}, which is said to be gone, was never there")
        path, _, last = name.rpartition(".")
        delattr(trainer.model.get_submodule(path), last)
    for number, (parameter, kept) in enumerate(zip(trainer.parameters(), said["optimizer"], strict=True)):
        for key, said_of in kept:
            name = f"{side}/optimizer/{number}/{key}"
            trainer.optimizer.state[parameter][key] = made(name, said_of, tensors, symbols, parameter.device)
    trainer.skip(steps)
    for group, options in zip(trainer.optimizer.param_groups, said["groups"], strict=True):
        both = [*options.values(), *(group[key] for key in options if key in group)]
        numbers = all(isinstance(option, float) or (isinstance(option, int) and abs(option) < 2**63) for option in both)
        require(numbers, "an option of its optimizer is no number")
        group.update(options)  # what the optimizer itself counts there


def _register(model: nn.Module, name: str, value: Tensor | None) -> None:
    """Set a buffer by its name, one that the module did not have before included."""
    path, _, last = name.rpartition(".")
    module = model.get_submodule(path)
    setattr(module, last, value) if last in module._buffers else module.register_buffer(last, value)


def check_kept(name: str) -> None:
    """Refuse a name under which no forward pass keeps anything: a file says what is set, and must not set code."""
    last = name.rpartition(".")[2]
    fits = last.isidentifier() and not last.startswith("__") and last not in NOT_ATTRIBUTES
    require(fits, f"{name} is no name of what a model keeps")


def assign(model: nn.Module, name: str, value: object) -> None:
    """Set a buffer or an attribute of a module by its name."""
    path, _, last = name.rpartition(".")
    setattr(model.get_submodule(path), last, value)


# --- one value ------------------------------------------------------------------------------------------------------


def entry(name: str, value: object, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """What a file says of a value; its numbers go into ``tensors``."""
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if isinstance(value, Bounded):
        parts, flags = codec.pack(value)
        tensors |= codec.named(name, parts)
        return {"set": flags}
    if not isinstance(value, Tensor):
        raise BoundFlowError(
            f"{name} is a {type(value).__name__}, which a file without code cannot hold: keep it in a tensor"
        )
    tensors[name] = value.detach().clone()
    return {"on_cpu": value.device.type == "cpu"}


def made(
    name: str,
    said: dict[str, Any],
    tensors: dict[str, Tensor],
    symbols: Symbols | None,
    device: torch.device | str | None,
) -> Any:
    """The opposite of `entry`."""
    if "value" in said:
        require(said["value"] is None or isinstance(said["value"], bool | int | float | str), f"{name} is no value")
        return said["value"]
    if "set" in said:
        return codec.read(name, tensors, said["set"], symbols, device)
    require(name in tensors, f"there is no tensor {name}")
    return tensors[name].to("cpu" if said["on_cpu"] else device)  # optimizers keep their counters on the CPU


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
    columns: np.ndarray  # of the symbols that belong to a sample
    recorded: Recorded

    @classmethod
    def of(cls, symbols: Symbols, expansion: Expansion | None = None) -> Space:
        """Of a space; with an ``expansion`` in place of its own, where that has the rows of one process alone."""
        ledger = symbols._ledger
        samples = dict(ledger.first_row), dict(ledger.raw)
        owners, parts = symbols._registry.all()
        owned = np.flatnonzero(owners != NOBODY)
        meaning = symbols.columns(symbols._registry.first + owned), Recorded.joined(ledger.recorded)
        return cls(owners, parts, *samples, expansion or symbols.expansion, ledger.own, symbols.steps, *meaning)

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
        found |= {"columns": self.columns, "recorded": self.recorded.numbers}
        found |= {"values": np.stack((self.recorded.observed, self.recorded.center, self.recorded.reach))}
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
        check_space(found, weights, symbols, own, steps)
        arrays = {name: value.numpy() for name, value in found.items()}
        owners, parts = (np.repeat(arrays[name], arrays["lengths"]) for name in ("owners", "parts"))
        columns, symbols.says_what_is_recorded = np.full(len(owners), NO_COLUMN), "columns" in arrays
        if symbols.says_what_is_recorded:
            columns[owners != NOBODY] = arrays["columns"]
            symbols._ledger.recorded = [Recorded(arrays["recorded"], *arrays["values"])]
        symbols._registry.new(owners, parts, columns=columns)
        samples, ledger = arrays["samples"].tolist(), symbols._ledger
        ledger.first_row = dict(zip(samples, arrays["first_rows"].tolist(), strict=True))
        lines = arrays["raw"].reshape(len(samples), -1) if samples else ()
        ledger.raw = {sample: line.tobytes() for sample, line in zip(samples, lines, strict=True)}
        ledger.own, symbols.steps, symbols.resumed_at = own, steps, steps
        if weights is not None:
            device = optimizer.param_groups[0]["params"][0].device
            for name in ("derived", "deep"):
                require(symbols.knows(arrays[name]), f"its {name} symbols are not all known")
            deep = Expansion(Rows(arrays["derived"]), Rows(arrays["deep"]), weights.to(device))
            symbols.expands(optimizer, deep)


def space_of(model: nn.Module) -> Symbols:
    """The space of a lifted model, that of plain intervals included."""
    symbols: Symbols | None = next(model.parameters()).symbols  # type: ignore[attr-defined]
    assert symbols is not None
    return symbols
