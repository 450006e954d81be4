"""Certificates at the optimum as files: the data, the features, the given weights and what may differ, without code.

    inputs, targets, weights    the training data as they were given, and how much each row counts
    features.*                  what the features hold; the record describes them, unless they are code of the user
    given.I                     the weights that were given for ridge I, (outputs, d), the intercept last
    clause.I.*                  the rows whose labels can differ, and how

Nothing that was computed from these is in the file: whoever reads it computes the inclusion again (`loading.py`). A
digest of all content finds accidents; digests of the data, the features and the objective tie them to the record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import BoundFlowError
from ..files import sealed_files as files
from ..files.architecture import describe, rebuild
from ..files.checked_content import check_record, is_count, require, require_room
from ..same_program import network_probe
from .changes import Changes, Clause
from .features import KernelFeatures, NormalScores, RandomFeatures, Standardised

FORMAT = "optimum 1"
ADVICE = "make it again with this version, or read it with that one"
WHAT = "certificate"
KEY = "boundflow"
# features that a file describes -> the attributes that make them, with their buffers
FEATURES: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    "Standardised": (Standardised, ()),
    "NormalScores": (NormalScores, ()),
    "RandomFeatures": (RandomFeatures, ("height",)),
    "KernelFeatures": (KernelFeatures, ("scale", "far")),
}


class Held(NamedTuple):
    """What a file holds: the record, a description of the features (None: there are none), and tensors."""

    record: dict[str, Any]
    described: Any
    own: bool  # whether the features are code of the user
    tensors: dict[str, Tensor]

    def within(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin so, without that."""
        return {name.removeprefix(prefix): value for name, value in self.tensors.items() if name.startswith(prefix)}


def write(
    path: str | Path,
    record: dict[str, Any],
    nominal: nn.Module,
    features: nn.Module | None,
    data: tuple[Tensor, Tensor, Tensor | None],
    given: Iterable[Tensor],
    changes: Changes,
) -> None:
    """One safetensors file; writing twice gives the same bytes."""
    inputs, targets, weights = data
    tensors = {"inputs": inputs, "targets": targets, **({} if weights is None else {"weights": weights})}
    tensors |= {f"given.{place}": one for place, one in enumerate(given)}
    tensors |= {} if features is None else {f"features.{name}": part for name, part in features.state_dict().items()}
    budgets = []
    for place, clause in enumerate(changes.clauses):
        budgets.append(clause.budget)
        held = {field.name: getattr(clause, field.name) for field in fields(clause)}
        tensors |= {f"clause.{place}.{name}": part for name, part in held.items() if isinstance(part, Tensor)}
    tensors |= network_probe.answers(nominal, record["input_shape"])
    described = None if features is None else described_features(features)
    said = {"format": FORMAT, "budgets": budgets, "features": described, "own": features is not None and not described}
    files.write(path, tensors, KEY, files.sealed({**record, **said}, tensors))


def opened(path: str | Path) -> Held:
    """The content of a file, whose digest and record are right; nothing is computed, and no code is run."""
    tensors, text = files.read(path, KEY, WHAT)
    record = files.unsealed(path, text, tensors, (FORMAT,), ADVICE)
    tensors = {name: value.clone() for name, value in tensors.items()}  # where numbers begin decides how they are added
    with files.told(path, WHAT):
        del record["format"]
        described, own = record.pop("features", None), record.pop("own", False)
        check_record(record)
        require(record.get("way") == "optimum", "it is not about an optimum")
        samples = record["samples"]
        for name in ("inputs", "targets"):
            require(name in tensors and len(tensors[name]) == samples, f"there are not {samples} {name}")
        require(tensors["inputs"].dim() == 2, "its inputs are no table")
        require(list(tensors["inputs"].shape[1:]) == record.get("input_shape"), "its inputs have another shape")
        require(isinstance(record.get("l2"), list) and record["l2"], "it names no ridge")
        for place in range(len(record["l2"])):
            require(f"given.{place}" in tensors, f"there are no weights for ridge {place}")
            width = tensors[f"given.{place}"].shape[-1]
            require_room(8 * width * (4 * samples + 8 * width), "its features")
    return Held(record, described, bool(own), tensors)


def clauses(held: Held) -> tuple[Clause, ...]:
    """What may differ: for each clause which rows, at most how many of them, and how."""
    budgets, found = held.record["budgets"], []
    require(isinstance(budgets, list), "its budgets are no list")
    samples = held.record["samples"]
    for place, budget in enumerate(budgets):
        require(budget is None or is_count(budget), "a budget is not a number of samples")
        parts = held.within(f"clause.{place}.")
        known = {field.name for field in fields(Clause)} - {"budget"}
        require("touched" in parts and parts.keys() <= known, "what a clause of the threat changes is not known")
        require(all(len(part) == samples for part in parts.values()), "a clause is about other rows than there are")
        kinds = {"touched": torch.bool, "allowed": torch.bool, "radius": torch.float64}
        require(all(part.dtype is kinds[name] for name, part in parts.items()), "a clause holds other numbers")
        require(("allowed" in parts) != ("radius" in parts), "a clause is about classes or numbers, and not both")
        if "radius" in parts:
            require((parts["radius"] >= 0).all(), "how far a target is off is negative")
        found.append(Clause(budget=budget, **parts))
    return tuple(found)


# --- features ---------------------------------------------------------------------------------------------------------


def described_features(module: nn.Module) -> Any:
    """Features as plain data, or None where they are code of the user."""
    if type(module) is nn.Sequential:
        parts = [described_features(part) for part in module]
        return None if None in parts else {"Sequential": parts}
    for name, (kind, attributes) in FEATURES.items():
        if type(module) is kind:
            return {name: {attribute: getattr(module, attribute) for attribute in attributes}}
    return describe(module)


def made_features(described: Any, state: dict[str, Tensor], prefix: str = "") -> nn.Module:
    """Features from their description and what they hold."""
    ((name, options),) = described.items()
    if name == "Sequential":
        parts = [made_features(part, state, f"{prefix}{place}.") for place, part in enumerate(options)]
        return nn.Sequential(*parts)
    own = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
    if name not in FEATURES:
        with torch.device("meta"):
            shapes = {key: value.shape for key, value in rebuild(described).state_dict().items()}
        require(shapes == {key: value.shape for key, value in own.items()}, "its features hold other numbers")
        made = rebuild(described).double()
        made.load_state_dict(own)
        return made
    kind, attributes = FEATURES[name]
    require(isinstance(options, dict) and options.keys() == set(attributes), "its features are not known")
    require(all(isinstance(value, int | float) for value in options.values()), "its features are not known")
    module = kind.__new__(kind)
    nn.Module.__init__(module)
    for attribute, value in options.items():
        setattr(module, attribute, value)
    names = list(kind.__annotations__)
    require(own.keys() == set(names), "its features hold other numbers")
    for key in names:
        module.register_buffer(key, own[key])
    return module


def text_of(path: str | Path) -> dict[str, Any]:
    """What a file says of itself, before anything in it is looked at; nothing where that cannot be read."""
    try:
        found = json.loads(files.text_of(path, KEY, WHAT))
    except (BoundFlowError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
