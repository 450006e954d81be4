"""What a claim rests on, as named digests: two things are the same only if all of these are.

    of_tensors(*tensors)              sha256 of dtype, shape and bytes, in this order
    of_value(value)                   sha256 of the content of anything: numbers, text, arrays, objects, and code
    of_program(model, recipe, ...)    {part: digest} of a training, written into certificates and checkpoints
    differences(then, now)            the parts that are not the same, in words
    require_same(then, now, ...)      refuses in one sentence that names them

Nothing is compared by its name, its type or its text (`repr` leaves out the middle of a large tensor). What cannot be
read has ``cannot be compared: ...`` in place of a digest, and differs from everything, itself included: so does a part
that was not recorded, as in a file of an earlier version.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .digests import NOT_COMPARED, attributes, hooks, of_tensors, of_value
from .errors import DifferentRuns
from .version import __version__

__all__ = ["attributes", "differences", "of_model", "of_program", "of_tensors", "of_value", "require_same"]

Identity = dict[str, str]
# fields of a recipe that are no part of it: where it runs, and what the data and the parameters say themselves
BESIDE = frozenset(("device", "dtype"))


def versions() -> dict[str, str]:
    """What computes."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {
        "boundflow": __version__,
        "torch": str(torch.__version__),
        "numpy": str(np.__version__),
        "python": python,
    }


def of_model(model: nn.Module) -> Identity:
    """Everything of a network but the numbers that are trained."""
    modules = dict(model.named_modules(remove_duplicate=False))
    trained = {name: value for name, value in model.named_parameters(remove_duplicate=False) if value.requires_grad}
    frozen = {name: value for name, value in model.named_parameters(remove_duplicate=False) if name not in trained}
    buffers = dict(model.named_buffers(remove_duplicate=False))
    first = {id(value): name for name, value in reversed([*frozen.items(), *trained.items(), *modules.items()])}
    tied = {name: first[id(value)] for part in (trained, frozen, modules) for name, value in part.items()}
    shapes = {name: (tuple(value.shape), str(value.dtype)) for name, value in trained.items()}
    kept = {name: sorted(module._non_persistent_buffers_set) for name, module in modules.items()}
    found = {
        "structure of the model": of_value((list(modules), shapes, list(frozen), list(buffers), tied, kept)),
        "code of the model": of_value([type(module) for module in modules.values()]),
        "frozen parameters": of_tensors(*frozen.values()),
        "buffers": of_tensors(*buffers.values()),
        "modes of the model": of_value([module.training for module in modules.values()]),
        "hooks of the model": of_value([hooks(module) for module in modules.values()]),
    }
    for name, module in modules.items():
        held = {key: value for key, value in sorted(attributes(module).items()) if key not in PYTORCHS}
        if held:
            found[f"attributes of {name or 'the model'}"] = of_value(held)
    return found


# attributes that PyTorch gives every module
PYTORCHS = frozenset(("_non_persistent_buffers_set", "_is_full_backward_hook", "_compiled_call_impl"))


def of_recipe(recipe: Any) -> Identity:
    """Every choice of a training, by content; how the model is placed is none."""
    found = {field.name: getattr(recipe, field.name) for field in dataclasses.fields(recipe)}
    found["optimizer_options"] = sorted(found["optimizer_options"].items())
    return {name.replace("_", " "): of_value(value) for name, value in found.items() if name not in BESIDE}


def of_program(
    model: nn.Module,
    recipe: Any,
    threat: object,
    *,
    data: str,
    initial_weights: str,
    loss: Callable[..., Tensor],
) -> Identity:
    """What a certified training rests on. ``data`` and ``initial_weights`` are digests, which take longest to make."""
    return {
        "data": data,
        "initial weights": initial_weights,
        **of_model(model),
        **of_recipe(recipe),
        "loss": of_value((recipe.loss, loss)),
        "threat": of_value(threat),
        **{f"version of {name}": version for name, version in versions().items()},
    }


def differences(then: Mapping[str, str], now: Mapping[str, str], but: Collection[str] = ()) -> list[str]:
    """The names of parts that are not the same, or cannot be told to be, except for some that may differ."""
    found = []
    for name in sorted({*then, *now} - set(but)):
        before, after = then.get(name), now.get(name)
        unknown = next((part for part in (before, after) if part is not None and part.startswith(NOT_COMPARED)), None)
        if unknown is not None:
            found.append(f"{name} (which {unknown})")
        elif before is None or after is None:
            found.append(f"{name} (which only one of them has)")
        elif before != after:
            found.append(name)
    return found


def require_same(
    then: Mapping[str, str] | None, now: Mapping[str, str], what: str, advice: str, but: Collection[str] = ()
) -> None:
    """Refuse what is not the same: ``what differs in NAMES: advice``, in one sentence."""
    if then is None:
        raise DifferentRuns(f"{what} does not say what it rests on, as files of earlier versions: {advice}")
    found = differences(then, now, but)
    if found:
        listed = found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}"
        raise DifferentRuns(f"{what} differs in {listed}: {advice}")
