"""What was found out about a program before its first step holds in every step, or the run is refused.

    every step                             nobody has drawn from the generators of torch, numpy and Python;
                                           both optimizers have the same options
    first batch of each length, and end    nothing has changed beside what is trained: attributes, buffers, code

A forward pass is tried on a few samples (`forward_effects.py`), and may do something else with others, with more of
them, or later: draw, count, or look at what code elsewhere has counted, which both runs would share. Inside wide sets
the tripwire is silent about that. Generators are those of the process, and other threads draw from them, too: so where
numbers were drawn the pass is tried again with this very batch, which says who it was; and from then on this thread is
watched closely (`draws.py`), which costs a third of a step and is no use before.
"""

from __future__ import annotations

import ctypes
import pickle
import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import BoundFlowError, UnsupportedProgram
from ..files.training_state import Trainer
from ..operators.losses import LOSSES
from ..tensor.bounded import Bounded
from ..tensor.draws import Draws
from ..training.checked_inputs import TRIED, Prepared
from . import identity
from .forward_effects import effects

TWISTER = 2500  # bytes of the state of numpy's generator: 624 numbers and a position
OPTIMIZER = "in a step of the optimizer, so plain training and training on sets would not draw the same"


class OneProgram:
    """Follows both runs of a training: ``step`` around every step of both."""

    def __init__(self, prepared: Prepared, observed: Trainer, sets: Trainer):
        self.prepared, self.observed, self.sets = prepared, observed, sets
        self.drawn = False  # whether somebody draws from the generators of the process
        self._lengths: set[int] = set()
        self._buffers = _buffers(observed.model)

    @contextmanager
    def step(self, index: Tensor) -> Iterator[None]:
        """A step of both runs on these samples."""
        before = self._generators()
        try:
            yield
        except BoundFlowError:  # for which this may be the reason
            self._require_not_drawn(before, index)
            raise
        self._require_not_drawn(before, index)
        if self.is_new(index):
            self._lengths.add(len(index))
            self.require_as_found()

    def is_new(self, index: Tensor) -> bool:
        """Whether there was no batch of this length yet."""
        return len(index) not in self._lengths

    def optimizer_step(self) -> AbstractContextManager[None]:
        """Around a plain step of the optimizer: closely watched once somebody draws."""
        return Draws(0).over(OPTIMIZER) if self.drawn else nullcontext()

    def require_same_options(self, number: int) -> None:
        """Refuse a schedule, or an optimizer, that gave the two runs other options."""
        both = zip(*(trainer.optimizer.param_groups for trainer in (self.observed, self.sets)), strict=True)
        for plain, bounded in both:
            for name, value in plain.items():
                other = bounded.get(name)
                if _differ(value, other):
                    raise UnsupportedProgram(
                        f"{name} is {float(value):g} in plain training and {float(other):g} on sets after step "
                        f"{number}: a schedule, or an optimizer, must go by the number of the step alone, and share "
                        "nothing between two runs"
                    )

    def models(self) -> tuple[dict[str, Tensor], dict[str, object]]:
        """Both models as they are: the numbers of the plain one, and the sets of the other, which are never changed."""
        plain = {name: value.detach().clone() for name, value in self.observed.tensors().items()}
        sets = self.sets.tensors()
        return plain, {name: value.set if isinstance(value, Bounded) else value for name, value in sets.items()}

    def changed_since(self, before: tuple[dict[str, Tensor], dict[str, object]]) -> str | None:
        """The name of a tensor of either model that is not what it was, if there is one."""
        (plain, sets), (plain_now, sets_now) = before, self.models()
        for name in sorted({*plain, *plain_now}):
            if name not in plain or name not in plain_now or not _equal(plain[name], plain_now[name]):
                return name
        return next((name for name in sets_now if sets_now[name] is not sets.get(name)), None)

    def require_as_found(self) -> None:
        """Refuse a program that has changed what it was not seen to change when it was tried."""
        found: list[str] = []
        if not self.prepared.effects.changes:
            buffers = _buffers(self.observed.model)
            names = {*buffers, *self._buffers}
            found = [name for name in names if buffers.get(name) != self._buffers.get(name)]
            found += {*self.observed.changed(), *self.sets.changed()}
        if found:
            raise UnsupportedProgram(
                f"the forward pass changes {', '.join(sorted(found))}, and did not when it was tried with "
                f"{min(TRIED, len(self.prepared.x))} samples: change state in every call in training, or in none"
            )
        changed = self._changed_code()
        if changed:
            raise UnsupportedProgram(
                f"{changed} changes something outside of the model while it trains, which both runs would share: keep "
                "what counts in an attribute or a buffer of the model"
            )

    def _changed_code(self) -> str | None:
        """Which code, or what it reads, is no longer what it was; what cannot be compared is not known to change."""
        recipe, then = self.prepared.recipe, self.prepared.identity
        now = identity.of_code(self.observed.model)
        now |= {name: identity.of_value(getattr(recipe, name)) for name in ("optimizer", "schedule")}
        now["loss"] = identity.of_value((recipe.loss, LOSSES[recipe.loss]))
        known = [name for name in now if not then[name].startswith(identity.NOT_COMPARED)]
        return next((name for name in known if now[name] != then[name]), None)

    def _require_not_drawn(self, before: tuple[Any, ...], index: Tensor) -> None:
        """Refuse a forward pass that draws from a generator of the process for these samples; others may have."""
        if self._generators() == before:
            return
        self.drawn = True
        asked = effects(self.observed.model, self.prepared.observed[index], training=True)[0]
        if asked.draws and not self.prepared.effects.draws:
            raise UnsupportedProgram(
                f"the forward pass draws random numbers for a batch of {len(index)} samples, and did not when it was "
                f"tried with {min(TRIED, len(self.prepared.x))}: draw in every call in training, or in none"
            )

    def _generators(self) -> tuple[Any, ...]:
        """The generators of the process as they are: a few microseconds."""
        device = self.prepared.x.device
        of_device = torch.cuda.get_rng_state(device).numpy().tobytes() if device.type == "cuda" else b""
        own = torch.default_generator.get_state().numpy().tobytes()  # `Draws` takes numbers from elsewhere
        return own, of_device, _of_numpy(), random.getstate()


def _of_numpy() -> bytes:
    """The state of numpy's generator, read where it lies: taking it apart costs as much as a small network."""
    generator = np.random.mtrand._rand._bit_generator
    if type(generator) is np.random.MT19937:
        return ctypes.string_at(generator.ctypes.state_address, TWISTER)
    return pickle.dumps(np.random.get_state())


def _buffers(model: nn.Module) -> dict[str, str]:
    return {name: identity.of_value(value) for name, value in model.named_buffers()}


def _equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same; what is no number equals itself."""
    return one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())


def _differ(plain: Any, bounded: Any) -> bool:
    """Whether two options are numbers that are not the same."""
    numbers = [value for value in (plain, bounded) if isinstance(value, bool | int | float) or _is_number(value)]
    if len(numbers) < 2 or (plain != plain and bounded != bounded):
        return False
    return bool(plain != bounded)


def _is_number(value: object) -> bool:
    """Whether a value is a number in a tensor that need not be waited for."""
    return isinstance(value, Tensor) and not isinstance(value, Bounded) and not value.dim() and value.is_cpu
