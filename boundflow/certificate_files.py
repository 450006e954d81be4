"""Certificates as files: tensors and one record, without code.

A file holds the plain model, the sets of all parameters and of what else the model keeps, and what the rows of those
sets stand for. Derived symbols are written out over the deep ones, so that a file stands for itself. It also holds what
the plain model answers to fixed inputs (`network_probe.py`): a module that answers otherwise is another network.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from . import codec, files, rounding
from .architecture import describe, rebuild
from .bounded import Bounded
from .budgets import Kind, Part
from .context import Arithmetic
from .errors import BoundFlowError
from .forms import Form
from .lift import lift
from .network_probe import answers, require_same
from .sets import Set
from .symbols import Symbols
from .training_state import assign, entry, made

FORMAT = 4
READABLE = (3, 4)  # 3: of version 0.1, which held no sets besides those of parameters
ADVICE = "train again with this version, or read it with that one"
KEY = "boundflow"  # of the record, in a file
SYMBOLS = ("symbols.number", "symbols.owner", "symbols.part")  # of every row in a file


def write(path: str | Path, model: nn.Module | None, nominal: nn.Module, record: dict[str, Any]) -> None:
    """One safetensors file; writing twice gives the same bytes."""
    record = {**record, "format": FORMAT, "architecture": describe(nominal)}
    tensors = {f"nominal.{name}": value for name, value in {**nominal.state_dict(), **_buffers(nominal)}.items()}
    flags: dict[str, codec.Flags] = {}
    used: list[np.ndarray] = []
    symbols = None
    for name, sets in _sets(model):
        if sets.affine:
            symbols = sets.symbols
        parts, flags[name] = codec.pack(_over_deep_rows(sets))
        used += [parts["rows"].numpy()] if "rows" in parts else []
        tensors |= codec.named(name, parts)
    kept: dict[str, dict[str, Any]] = {}
    for side, module in (("nominal", nominal), ("certified", model)):
        if module is not None:
            names = [f"{side}/{name}" for name in record.get("state", ())]
            kept |= {name: entry(name, _value(module, name.removeprefix(f"{side}/")), tensors) for name in names}
    record |= {"sets": flags, "kept": kept}
    if symbols is not None:
        record |= _written_symbols(symbols, used, tensors)
    tensors |= answers(nominal, record.get("input_shape"))
    files.write(path, tensors, KEY, files.sealed(record, tensors))


def read(path: str | Path, module: nn.Module | None) -> tuple[nn.Module | None, nn.Module, dict[str, Any]]:
    """The set of models (None where the bounds were void), the plain model, and the record."""
    tensors, text = files.read(path, KEY, "certificate")
    record = files.unsealed(path, text, tensors, READABLE, ADVICE)
    del record["format"]
    architecture, flags, kept = (record.pop(name, None) for name in ("architecture", "sets", "kept"))
    table = [Part(Kind(kind), clause) for kind, clause in record.pop("parts", [])]
    budgets = record.pop("budgets", [])
    nominal = _plain_model(path, module, architecture, tensors)
    device = next(nominal.parameters()).device
    for name, said in (kept or {}).items():
        if name.startswith("nominal/"):
            assign(nominal, name.removeprefix("nominal/"), made(name, said, tensors, None, device))
    require_same(nominal, record.get("input_shape"), tensors, path)
    if record.get("void_at_step") is not None:
        return None, nominal, record
    symbols = Symbols()
    symbols.arithmetic = Arithmetic(outward=record.get("rounding", "outward") == "outward")
    if any(name.startswith("rows.") for name in tensors):
        missing = [name for name in SYMBOLS if name not in tensors]
        if missing:
            raise BoundFlowError(f"{path} has no {missing[0]}, without which its rows mean nothing")
        numbers, owners, parts = (tensors[name].numpy() for name in SYMBOLS)
        symbols.restore(numbers, owners, parts, table, budgets)
    model = _bounded_model(path, nominal, tensors, flags or {}, symbols)
    for name, said in (kept or {}).items():
        if name.startswith("certified/"):
            assign(model, name.removeprefix("certified/"), made(name, said, tensors, symbols, device))
    return model.eval(), nominal, record


def _sets(model: nn.Module | None) -> Iterator[tuple[str, Bounded]]:
    """Every set that a model holds by name: parameters, and buffers that its forward pass made sets."""
    for name, value in (*model.named_parameters(), *model.named_buffers()) if model is not None else ():
        if isinstance(value, Bounded):
            yield name, value


def _buffers(model: nn.Module) -> dict[str, Tensor]:
    """All buffers, those included that PyTorch does not save."""
    return dict(model.named_buffers())


def input_shape(path: str | Path) -> tuple[int, ...]:
    """The shape of one input, as a file says, without making its models."""
    tensors, text = files.read(path, KEY, "certificate")
    return tuple(files.unsealed(path, text, tensors, READABLE, ADVICE)["input_shape"])


def _value(model: nn.Module, name: str) -> object:
    path, _, last = name.rpartition(".")
    return getattr(model.get_submodule(path), last)


def _over_deep_rows(x: Bounded) -> Bounded:
    """The same set over symbols that are not derived."""
    if not x.affine:
        return Bounded(Set(x.set.bounds, None, x.symbols, x.set.exact, x.set.nonnegative))
    form = x.form.dense
    assert x.symbols is not None
    generators, rows, error = x.symbols.expand(form.generators.reshape(len(form.rows), x.numel()), form.rows)
    radius = rounding.up(form.radius + error.reshape(x.shape))
    deep = Form(form.center, generators.reshape(len(rows), *x.shape), radius, rows)
    return Bounded(Set(x.set.bounds, deep, x.symbols, x.set.exact, x.set.nonnegative))


def _written_symbols(symbols: Symbols, used: list[np.ndarray], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """What the rows stand for: owner and part of each symbol, and the parts and budgets of the threat."""
    numbers = np.unique(np.concatenate(used))
    known = symbols.owners_and_parts(numbers)
    tensors |= dict(zip(SYMBOLS, map(torch.from_numpy, (numbers, *known)), strict=True))
    table = symbols.table[: known[1].max(initial=-1) + 1]  # what test inputs brought later is not part of it
    budgets = symbols.budgets[: max((part.clause for part in table), default=-1) + 1]
    return {"parts": [[part.kind.value, part.clause] for part in table], "budgets": budgets}


def _plain_model(
    path: str | Path, module: nn.Module | None, architecture: Any, tensors: dict[str, Tensor]
) -> nn.Module:
    if module is None and architecture is None:
        raise BoundFlowError(f"{path} holds a custom module: pass load(path, model=...) one of the same architecture")
    nominal = (copy.deepcopy(module) if module is not None else rebuild(architecture)).eval()
    described = json.loads(json.dumps(describe(nominal)))
    if None not in (architecture, described) and architecture != described:
        raise BoundFlowError(f"{path} does not fit this model: it was trained with other layers than these")
    state = {name.removeprefix("nominal."): value for name, value in tensors.items() if name.startswith("nominal.")}
    try:
        dtype = next(value.dtype for value in state.values() if value.is_floating_point())
        nominal = nominal.to(dtype)
        unsaved = [name for name in _buffers(nominal) if name not in nominal.state_dict() and name in state]
        for name in unsaved:
            assign(nominal, name, state.pop(name))
        nominal.load_state_dict(state)
    except (RuntimeError, StopIteration) as error:
        raise BoundFlowError(f"{path} does not fit this model: {error}") from None
    return nominal


def _bounded_model(
    path: str | Path, nominal: nn.Module, tensors: dict[str, Tensor], flags: dict[str, codec.Flags], symbols: Symbols
) -> nn.Module:
    module = lift(copy.deepcopy(nominal), symbols)
    device = next(nominal.parameters()).device
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parts = codec.of(name, tensors)
            if "bounds" not in parts:
                raise BoundFlowError(f"{path} has no bounds for parameter {name}")
            parameter.copy_(codec.unpack(parts, flags.get(name, {}), symbols, device))
        for name in dict(module.named_buffers()):
            if f"bounds.{name}" in tensors:
                assign(module, name, codec.unpack(codec.of(name, tensors), flags.get(name, {}), symbols, device))
    return module
