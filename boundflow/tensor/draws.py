"""Random numbers of a forward pass: drawn from a generator that belongs to the run, and to no one else.

Masks and noise are part of the recipe: they follow from the seed and the number of the step. Plain PyTorch takes them
from the generator of the process, which other threads use too. So inside `Draws` every operator that draws is given a
generator of the run; plain training and training on sets draw the same numbers, since both start it from the same
seed. On a CPU they are the numbers that ``torch.manual_seed(seed)`` gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import UnsupportedProgram

aten = torch.ops.aten

BACKWARD = (
    "in the backward pass, and not those of the forward pass again: keep layers that draw (dropout, noise) outside of "
    "torch.utils.checkpoint"
)


class Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Random numbers inside come from a generator started with ``seed``, in this thread. ``used``: whether any were.

    With ``watch``, ``reseeded`` says whether somebody has set the generator of the process before drawing: the program
    then means that one, and would not get its numbers here.
    """

    def __init__(self, seed: int, watch: bool = False):
        super().__init__()  # type: ignore[no-untyped-call]
        self._before = torch.get_rng_state() if watch else None
        self.reseeded = False
        self.seed, self.used = seed, False
        self._over: str | None = None
        self._generators: dict[torch.device, torch.Generator] = {}

    @contextmanager
    def over(self, where: str = BACKWARD) -> Iterator[None]:
        """Nothing may draw inside, as in a backward pass.

        Where activations are computed again there (`torch.utils.checkpoint`), PyTorch rewinds the generator of the
        process for it and not that of the run, so the numbers would be others than in the forward pass.
        """
        self._over = where
        try:
            with self:
                yield
        finally:
            self._over = None

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self.seed)
        return self._generators[device]

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags or _draws_nothing(func, args, kwargs):
            return func(*args, **kwargs)
        if kwargs.get("generator") is not None:
            return func(*args, **kwargs)  # one of the user's own, which is part of the model
        if self._over:
            raise UnsupportedProgram(f"{func} draws random numbers {self._over}")
        if self._before is not None and not torch.equal(self._before, torch.default_generator.get_state()):
            self.reseeded = True
        self.used = True
        generator = self._generator(_device(args, kwargs))
        if func is aten.native_dropout.default:
            return _dropped(generator, *args)
        taking = _with_generator(func)
        if taking is None:
            raise UnsupportedProgram(
                f"{func} draws random numbers from the generator of the process, which other threads use too, and "
                "takes no other: use torch.nn.functional.dropout or torch.rand"
            )
        return taking(*args, **{**kwargs, "generator": generator})


def _device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
    found = next((x.device for x in args if isinstance(x, Tensor)), kwargs.get("device"))
    found = torch.device(found if found is not None else torch.get_default_device())
    return torch.device("cuda", torch.cuda.current_device()) if found.type == "cuda" and found.index is None else found


def _dropped(generator: torch.Generator, x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """PyTorch's fused dropout, which takes no generator: ``x mask / (1 - p)``, and the mask."""
    mask = torch.empty_like(x, dtype=torch.bool).bernoulli_(1 - p, generator=generator)
    return x * mask * (1 / (1 - p) if p < 1 else 0.0), mask


@lru_cache(maxsize=256)
def _with_generator(func: OpOverload) -> OpOverload | None:
    """The same operator, taking a generator."""
    names = [argument.name for argument in func._schema.arguments]
    if "generator" in names:
        return func
    for overload in func._overloadpacket.overloads():  # type: ignore[no-untyped-call]
        other: OpOverload = getattr(func._overloadpacket, overload)
        if sorted(argument.name for argument in other._schema.arguments) == sorted([*names, "generator"]):
            return other
    return None


def _draws_nothing(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Attention without dropout, say, or a layer that is not being trained."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.name in ("dropout_p", "train", "training"):
            return not kwargs.get("dropout_p", args[place] if place < len(args) else argument.default_value)
    return False
