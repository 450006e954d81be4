"""Checkpoints: everything that changes from step to step, in one file without code.

    both models, the states of both optimizers, the space of symbols, the number of steps made

What does not change (data, recipe, initial weights) is not stored: it has to be the same when the run goes on, and a
file of any other run is refused by what it rests on (`identity.py`): data, code, attributes and options, by content.
A run of which something cannot be compared could never be known again, so nothing is written of it. Batches and masks
follow from the seed and the number of the step; the schedule is made anew and stepped as often as before. So a resumed
run gives the same certificate as one that was never stopped, bit for bit.

The state is held after each step, once every callback has seen it: a step that was cut short in a callback is made and
told again, so that no log misses one. It is written from time to time, at the end, and when an exception ends the run:
always the state of the last finished step, whatever the next one has changed by then. Holding is cheap: the inner
tensors of a set are never written to, so only plain tensors are copied; and after a reduction the generators are a
diagonal.
"""

from __future__ import annotations

import json
import os
import reprlib
import time
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ..errors import BoundFlowError, DifferentRuns
from ..same_program import identity
from ..same_program.network_probe import answers, require_same
from ..symbols.expansion import Expansion
from . import sealed_files
from .checked_content import is_count, require
from .training_state import Space, Trainer, held, restore, space_of

FORMAT = 5
WHAT = "checkpoint"
KEY = "boundflow-checkpoint"
EVERY = 60.0  # seconds


class Made(NamedTuple):
    """How far a run has come."""

    steps: int = 0
    void_at_step: int | None = None
    seconds: float = 0.0


class Checkpoint:
    """The file of one run, and the state of its last finished step. Without a path, nothing is held or written."""

    def __init__(self, path: Any, every: float, recipe: dict[str, Any], nominal: Trainer, certified: Trainer):
        if every < 0:
            raise ValueError(f"checkpoint_every must not be negative, got {every}")
        self.path, self.every = None if path is None else Path(path), every
        if self.path is not None:
            import safetensors  # noqa: F401  (if it is missing, say so before training)

            if not self.path.parent.is_dir():
                raise ValueError(f"there is no folder {self.path.parent} for the checkpoint")
        self.recipe = json.loads(json.dumps(recipe))
        if self.path is not None:
            identity.require_comparable(recipe["identity"], "leave it out, or train without a checkpoint")
        self.nominal, self.certified = nominal, certified
        self.initial = answers(nominal.model, recipe["input_shape"]) if self.path is not None else {}
        self.held: tuple[dict[str, Any], dict[str, Tensor], Space | None] | None = None
        self.whole: Expansion | None = None  # of all processes, where each has some of its rows
        self.written = time.monotonic()
        self.folder: int | None = None

    def __enter__(self) -> Checkpoint:
        if self.path is not None and os.name == "posix":  # elsewhere folders cannot be opened
            self.folder = os.open(self.path.parent, getattr(os, "O_PATH", os.O_RDONLY))
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self.write()
        finally:
            if self.folder is not None:
                os.close(self.folder)

    def hold(self, made: Made) -> None:
        """Hold on to the state after a step, and write it if the last file is old enough."""
        if self.path is None:
            return
        tensors: dict[str, Tensor] = {}
        state: dict[str, Any] = {"made": made._asdict(), "nominal": held("nominal", self.nominal, tensors)}
        space = None
        if made.void_at_step is None:
            state["certified"] = held("certified", self.certified, tensors)
            space = Space.of(space_of(self.certified.model), self.whole)
        self.held = state, tensors, space
        if time.monotonic() - self.written >= self.every:
            self.write()

    def write(self) -> None:
        """Write the state that is held, unless it has been written."""
        if self.path is None or self.held is None:
            return
        self._check_folder(self.path.parent)
        state, tensors, space = self.held
        tensors = {**tensors, **self.initial}
        if space is not None:
            tensors = {**tensors, **space.tensors()}
            state = {**state, "own": space.own, "optimizer_steps": space.steps}
        content = {"format": FORMAT, "recipe": self.recipe, "state": state}
        sealed_files.write(self.path, tensors, KEY, sealed_files.sealed(content, tensors))
        self.held, self.written = None, time.monotonic()

    def _check_folder(self, folder: Path) -> None:
        """Refuse to write into another folder of the same name, which may belong to another run by now."""
        try:
            same = self.folder is None or os.path.samestat(os.fstat(self.folder), os.stat(folder))
        except FileNotFoundError:
            same = False
        if not same:
            raise BoundFlowError(
                f"the folder {folder} of the checkpoint was removed or moved while the run wrote to it"
            )

    def resume(self) -> Made:
        """Bring both trainers to the state in the file, if there is one."""
        if self.path is None:
            raise ValueError("resume=True needs the path of a checkpoint")
        if not self.path.exists():
            return Made()
        with sealed_files.told(self.path, WHAT):
            state, tensors = self._read(self.path)
            made = _checked(state["made"], self.recipe.get("steps"))
            symbols = space_of(self.certified.model)
            restore("nominal", self.nominal, state["nominal"], tensors, symbols, made.steps)
            if made.void_at_step is None:
                same = state["nominal"]["groups"] == state["certified"]["groups"]
                require(same, "its two optimizers have other options, and make the same steps")
                Space.restore(symbols, self.certified.optimizer, tensors, state["own"], state["optimizer_steps"])
                restore("certified", self.certified, state["certified"], tensors, symbols, made.steps)
        return made

    def _read(self, path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
        tensors, text = sealed_files.read(path, KEY, WHAT)
        content = sealed_files.unsealed(path, text, tensors, (FORMAT,), "finish it with that version, or start afresh")
        then, now = content["recipe"], self.recipe
        require(isinstance(then, dict) and isinstance(content["state"], dict), "its recipe and its state are no tables")
        changed = _changed(then, now)
        if changed:
            raise DifferentRuns(
                f"{path} is a checkpoint of another run: {changed}; resume with the same data, options and code, or "
                "start afresh with another path or resume=False"
            )
        require_same(self.nominal.model, self.recipe["input_shape"], tensors, path)  # both at their initial weights
        return content["state"], tensors


def _checked(said: Any, steps: Any) -> Made:
    """How far the run of a file has come, if one can have come that far."""
    require(isinstance(said, dict) and said.keys() == set(Made._fields), "it does not say how far its run has come")
    made = Made(**said)
    last = steps if is_count(steps) else 2**63 - 1
    for number in (made.steps, 0 if made.void_at_step is None else made.void_at_step):
        require(is_count(number) and number <= last, "it has come further than its run goes")
    fits = isinstance(made.seconds, int | float) and 0 <= made.seconds < 1e12
    require(fits, "the seconds that it has taken are no number")
    return made


def _changed(then: dict[str, Any], now: dict[str, Any]) -> str:
    """What two runs differ in, with what it was and is where that can be read."""
    names = sorted(name for name in {*then, *now} - {"identity"} if then.get(name) != now.get(name))
    told = [f"{name} was {_short(then.get(name))} and is {_short(now.get(name))}" for name in names]
    said = {name.replace("_", " ") for name in names}
    require(isinstance(then.get("identity"), dict), "it does not say what its run rests on")
    hidden = [name for name in identity.differences(then["identity"], now["identity"]) if name not in said]
    return "; ".join([*told, *(f"{name} is another" for name in hidden)])


def _short(value: object) -> str:
    shortened = reprlib.Repr()
    shortened.maxstring = shortened.maxother = 60
    return shortened.repr(value)
