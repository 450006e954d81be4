"""What a forward pass does besides putting out a result: numbers it draws, state it changes.

Certified training calls a model as often as plain training does, and compares the two. A forward pass that changes
something (a running mean, a counter, a scale set by the first batch) gives something else at every call, so such a
model must be called exactly once per step, with the whole batch, and never to try something out. Found by trying it on
copies: buffers, parameters and attributes before and after, the generators of torch, numpy and Python.
"""

from __future__ import annotations

import copy
import pickle
import random
import sys
import threading
import types
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import UnsupportedProgram
from ..tensor.draws import Draws
from ..tensor.lift import require_no_hooks
from .identity import attributes, of_value

SEEDS = "seeds the generator of torch"


@dataclass(frozen=True)
class Effects:
    """Of a forward pass: whether it draws random numbers of torch, and the names of all it changes."""

    draws: bool
    changes: tuple[str, ...]


def contents(model: nn.Module, attributes_only: bool = False) -> dict[str, str]:
    """Digests of everything a forward pass could change, by name."""
    found: dict[str, str] = {}
    for path, module in model.named_modules():
        held = attributes(module)
        if not attributes_only:
            held |= {**module._parameters, **module._buffers}
        found |= {f"{path}.{name}" if path else name: of_value(value) for name, value in held.items()}
    return found


def effects(model: nn.Module, x: Tensor, training: bool) -> tuple[Effects, Any]:
    """Try a forward pass on a copy, twice (a first call may be special): its effects, and what it puts out."""
    tried = copy.deepcopy(model)
    for _ in range(3 if threading.active_count() == 1 else 50):  # others may draw, too: believe what happens every time
        before, generators = contents(tried), _generators()
        if not training:
            tried.eval()
        with torch.no_grad(), Draws(0, watch=True) as draws:
            tried(x.clone())
            found = tried(x.clone())
        foreign = _drawn(generators) or (SEEDS if draws.reseeded else None)
        if foreign is None:
            break
    else:
        raise UnsupportedProgram(
            f"the forward pass {foreign}, so plain training and training on sets would not draw the same: use "
            "torch.rand or torch.randn, and seed nothing but a torch.Generator that the model holds"
        )
    after = contents(tried)
    changes = tuple(sorted(name for name in {*before, *after} if before.get(name) != after.get(name)))
    return Effects(draws.used, changes), found


def _generators() -> tuple[Any, Any, Tensor]:
    """The generators of the process: of numpy, of Python, of torch (whose numbers `Draws` takes from elsewhere)."""
    return np.random.get_state(), random.getstate(), torch.get_rng_state()


def _drawn(before: tuple[Any, Any, Tensor]) -> str | None:
    """What was done to the generators of the process since, if anything; they are put back."""
    foreign, now = None, _generators()
    if pickle.dumps(before[0]) != pickle.dumps(now[0]):
        np.random.set_state(before[0])
        foreign = "draws random numbers of numpy"
    if before[1] != now[1]:
        random.setstate(before[1])
        foreign = "draws random numbers of Python's random"
    if not torch.equal(before[2], now[2]):
        torch.set_rng_state(before[2])
        foreign = SEEDS
    return foreign


def _require_copied(model: nn.Module, copied: nn.Module) -> None:
    """Refuse a copy whose functions still mean the model it was copied from: it would train one and use the other."""
    own = {id(part) for part in (*model.modules(), *model.parameters(), *model.buffers())}
    for path, module in copied.named_modules():
        for name, value in vars(module).items():
            for function in value.values() if isinstance(value, dict) else (value,):
                cells = getattr(getattr(function, "func", function), "__closure__", None) or ()
                if any(id(_content(cell)) in own for cell in cells):
                    where = f"{path}.{name}" if path else name
                    raise UnsupportedProgram(
                        f"a function in {where} holds a part of the model in its closure, and in a copy of the model "
                        "it would still hold the original: write it as a method, or as a module of its own"
                    )


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # a name that has no value yet
        return None


def _require_not_compiled(model: nn.Module) -> None:
    """Refuse what `torch.compile` has taken over: it puts its own forward there at the first call."""
    compiled = getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", ())
    if any(isinstance(module, compiled) for module in model.modules()):
        raise UnsupportedProgram(
            "torch.compile has taken the model over: give certify the model itself, whose steps it compiles alone"
        )


def faithful_copy(model: nn.Module) -> nn.Module:
    """A copy that trains as the model itself would; a model of which there is none is refused.

    A copy keeps no hooks of parameters, and tensors that are one memory under two names come apart. Modules that say
    what a copy of them is may give themselves, and lifting the copy would then change the model that was given.
    """
    _require_not_compiled(model)
    require_no_hooks(model, "a copy of the model does not keep: certify would train something else")
    held = _tensors(model)
    memory = {name: _memory(tensor) for name, tensor in held.items()}
    for name, parameter in model.named_parameters():
        device, begin, end = memory[name]
        for other, (where, start, stop) in memory.items():
            if device == where and begin < stop and start < end and held[other] is not parameter:
                raise UnsupportedProgram(
                    f"{other} and the parameter {name} are one memory, which a copy of the model takes apart: certify "
                    "would train something else. Use the parameter itself, with .detach() in the forward pass"
                )
    try:
        made = copy.deepcopy(model)
    except (RuntimeError, TypeError) as error:
        raise UnsupportedProgram(
            f"the model cannot be copied, and certify trains copies of it ({error}). Weights that a hook computes can "
            "be written with torch.nn.utils.parametrizations."
        ) from error
    _require_copied(model, made)
    shared = {*map(id, held.values())} & {*map(id, _tensors(made).values())}
    if shared:
        name = next(name for name, tensor in held.items() if id(tensor) in shared)
        raise UnsupportedProgram(f"a copy of the model still holds {name} of the model itself: leave out __deepcopy__")
    return made


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters, buffers, and tensors among the attributes or in a list or dict there, by name."""
    found: dict[str, Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for path, module in model.named_modules():
        for name, value in attributes(module).items():
            held = list(value.values()) if isinstance(value, dict) else value
            for number, part in enumerate(held if isinstance(held, list | tuple) else (held,)):
                if isinstance(part, Tensor):
                    found[f"{path}.{name}[{number}]".removeprefix(".")] = part
    return found


def _memory(x: Tensor) -> tuple[torch.device, int, int]:
    """Where a tensor lies, from its first element to its last; nowhere where it has no elements to point to."""
    try:
        begin = x.data_ptr()
        last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    except RuntimeError:  # a sparse one, say
        return x.device, 0, 0
    return x.device, begin, begin + (last + 1) * x.element_size() if x.numel() else begin


def require_supported(model: nn.Module, x: Tensor) -> Effects:
    """The effects of a forward pass in training mode. Refuses state that changes, and draws, where nobody trains."""
    require_settled(model, x)
    return effects(model, x, training=True)[0]


def require_settled(model: nn.Module, x: Tensor) -> None:
    """Refuse a network that gives something else whenever it is asked."""
    asked = effects(model, x, training=False)[0]
    if asked.draws:
        raise UnsupportedProgram(
            "the forward pass draws random numbers in evaluation mode, so an answer would hold for one draw only: draw "
            "only if self.training"
        )
    if asked.changes:
        raise UnsupportedProgram(
            f"the forward pass changes {', '.join(asked.changes)} in evaluation mode, so answers would depend on what "
            "was asked before: change state only if self.training"
        )
