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
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .draws import Draws
from .errors import UnsupportedProgram

NOT_STATE = frozenset(("training", "_parameters", "_buffers", "_modules"))


@dataclass(frozen=True)
class Effects:
    """Of a forward pass: whether it draws random numbers of torch, and the names of all it changes."""

    draws: bool
    changes: tuple[str, ...]


def contents(model: nn.Module, attributes_only: bool = False) -> dict[str, bytes]:
    """Everything a forward pass could change, by name, as bytes to compare."""
    found: dict[str, bytes] = {}
    for path, module in model.named_modules():
        held = attributes(module)
        if not attributes_only:
            held |= {**module._parameters, **module._buffers}
        found |= {f"{path}.{name}" if path else name: _bytes(value) for name, value in held.items()}
    return found


def attributes(module: nn.Module) -> dict[str, Any]:
    """What a module holds besides parameters, buffers, submodules and hooks."""
    return {
        name: value
        for name, value in vars(module).items()
        if name not in NOT_STATE and not name.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called"))
    }


def _bytes(value: Any) -> bytes:
    if isinstance(value, Tensor):
        try:
            return f"{value.dtype}{tuple(value.shape)}".encode() + value.detach().cpu().contiguous().numpy().tobytes()
        except Exception:  # of a kind that numpy does not know, or a set
            return repr(value.detach()).encode()
    try:
        return pickle.dumps(value)
    except Exception:  # code, which a forward pass does not change
        return repr(type(value)).encode()


def effects(model: nn.Module, x: Tensor, training: bool) -> tuple[Effects, Any]:
    """Try a forward pass on a copy, twice (a first call may be special): its effects, and what it puts out."""
    tried = copy.deepcopy(model)
    for _ in range(3):  # other threads may draw numbers, too: believe it when it happens every time
        before, generators = contents(tried), _generators()
        if not training:
            tried.eval()
        with torch.no_grad(), Draws(0) as draws:
            tried(x.clone())
            found = tried(x.clone())
        foreign = _drawn(generators)
        if foreign is None:
            break
    else:
        raise UnsupportedProgram(
            f"the forward pass {foreign}, so plain training and training on sets would not draw the same: use "
            "torch.rand or torch.randn, whose numbers follow from the seed of the recipe"
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
        foreign = "seeds the generator of torch"
    return foreign


def require_copied(model: nn.Module, copied: nn.Module) -> None:
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


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that has no value yet
        return None


def require_supported(model: nn.Module, x: Tensor) -> Effects:
    """The effects of a forward pass in training mode. Refuses state that changes where nobody trains."""
    asked = effects(model, x, training=False)[0].changes
    if asked:
        raise UnsupportedProgram(
            f"the forward pass changes {', '.join(asked)} in evaluation mode, so answers would depend on what was "
            "asked before: change state only if self.training"
        )
    return effects(model, x, training=True)[0]
