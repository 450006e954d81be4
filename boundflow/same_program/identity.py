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
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import DifferentRuns, UnsupportedProgram
from ..version import __version__
from .digests import NOT_COMPARED, attributes, hooks, of_tensors, of_value

__all__ = [
    "NOT_COMPARED",
    "attributes",
    "differences",
    "of_model",
    "of_program",
    "of_tensors",
    "of_value",
    "require_same",
]

Identity = dict[str, str]
# fields of a recipe that are no part of it: what a machine has, and what the data and the parameters say themselves
PLACES = frozenset(("device", "memory", "dtype"))
ATTRIBUTES, VERSION = "attributes of ", "version of "
# parts that say which code a network is, with its attributes
OF_CODE = frozenset(("layers", "code of the layers", "hooks of the layers"))
# parts that say which bounds are computed, and of which attacker, and not what is trained
OF_BOUNDS = frozenset(("threat", "domain", "order", "reduction", "compile"))


def versions() -> dict[str, str]:
    """What computes."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = {"boundflow": __version__, "torch": torch.__version__, "numpy": np.__version__, "python": python}
    return {name: str(version) for name, version in found.items()}


def of_model(model: nn.Module) -> Identity:
    """Everything of a network but the numbers that are trained."""
    modules = dict(model.named_modules(remove_duplicate=False))
    parameters = dict(model.named_parameters(remove_duplicate=False))
    frozen = [value for value in parameters.values() if not value.requires_grad]
    buffers = dict(model.named_buffers(remove_duplicate=False))
    first = {id(value): name for name, value in reversed([*parameters.items(), *modules.items()])}
    tied = [(name, first[id(value)]) for name, value in (*parameters.items(), *modules.items())]
    shapes = [(name, tuple(value.shape)) for name, value in parameters.items()]
    saved = [sorted(module._non_persistent_buffers_set) for module in modules.values()]
    found = {
        "layers": of_value((shapes, tied)),
        **of_code(model),
        "modes of the layers": of_value([module.training for module in modules.values()]),
        "trained parameters": of_value([value.requires_grad for value in parameters.values()]),
        "frozen parameters": of_tensors(*frozen),
        "buffers": of_value((list(buffers), saved, of_tensors(*buffers.values()))),
    }
    for name, module in modules.items():
        held = {key: value for key, value in sorted(attributes(module).items()) if key not in OF_PYTORCH}
        if held:
            found[attributes_of(name)] = of_value(held)
    return found


def of_code(model: nn.Module) -> Identity:
    """What the layers of a network do, and what their code reads."""
    modules = dict(model.named_modules(remove_duplicate=False)).values()
    return {
        "code of the layers": of_value([type(module) for module in modules]),
        "hooks of the layers": of_value([hooks(module) for module in modules]),
    }


def attributes_of(path: str) -> str:
    """The name of the part that holds the attributes of a module."""
    return f"{ATTRIBUTES}{path or 'the model'}"


# attributes that PyTorch gives every module
OF_PYTORCH = frozenset(("_non_persistent_buffers_set", "_is_full_backward_hook", "_compiled_call_impl"))


def of_recipe(recipe: Any) -> Identity:
    """Every choice of a training, by content; how the model is placed is none."""
    found = {field.name: getattr(recipe, field.name) for field in dataclasses.fields(recipe)}
    found["optimizer_options"] = sorted(found["optimizer_options"].items())
    return {name.replace("_", " "): of_value(value) for name, value in found.items() if name not in PLACES}


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
        "default dtype": of_value(torch.get_default_dtype()),  # of numbers that a program makes
        **{f"{VERSION}{name}": version for name, version in versions().items()},
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


def require_comparable(parts: Mapping[str, str], advice: str) -> None:
    """Refuse what could never be found to be the same again."""
    for name, found in parts.items():
        if found.startswith(NOT_COMPARED):
            raise UnsupportedProgram(f"{name} {found}, so nobody could tell whether it is the same again: {advice}")


def listed(names: Sequence[str]) -> str:
    """Some names in a sentence."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def require_same(
    then: Mapping[str, str] | None, now: Mapping[str, str], what: str, advice: str, but: Collection[str] = ()
) -> None:
    """Refuse what is not the same: ``what differs in NAMES: advice``, in one sentence."""
    if then is None:
        raise DifferentRuns(f"{what} does not say what it rests on, like files of earlier versions: {advice}")
    found = differences(then, now, but)
    if found:
        raise DifferentRuns(f"{what} differs in {listed(found)}: {advice}")
