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
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..arithmetic import rounding
from ..arithmetic.thread_context import Arithmetic
from ..errors import BoundFlowError, WrongContent
from ..same_program import identity
from ..same_program.network_probe import answers, input_bytes, most_bytes, require_same
from ..sets.forms import Form
from ..sets.set import Set
from ..symbols.budgets import FREE
from ..symbols.recorded_values import Recorded
from ..symbols.space import Symbols
from ..symbols.symbol_numbers import DERIVED
from ..tensor.bounded import Bounded
from ..tensor.lift import lift
from . import codec, sealed_files
from .architecture import describe, rebuild
from .checked_content import (
    check_budgets,
    check_columns,
    check_record,
    check_recorded,
    check_set,
    check_symbols,
    checked_parts,
    require,
    require_room,
)
from .training_state import assign, check_kept, entry, made

FORMAT = 4
READABLE = (3, 4)  # 3: of version 0.1, which held no sets besides those of parameters
ADVICE = "train again with this version, or read it with that one"
WHAT = "certificate"
KEY = "boundflow"  # of the record, in a file
SYMBOLS = ("symbols.number", "symbols.owner", "symbols.part")  # of every row in a file
# which column each symbol moves, and what is recorded where its center is not (`recorded_values.py`); not in older
# files
COLUMN, RECORDED, VALUES = "symbols.column", "symbols.recorded", "symbols.values"


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
        parts, flags[name] = codec.pack(over_deep_rows(sets))
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
    sealed_files.write(path, tensors, KEY, sealed_files.sealed(record, tensors))


def read(path: str | Path, module: nn.Module | None) -> tuple[nn.Module | None, nn.Module, dict[str, Any]]:
    """The set of models (None where the bounds were void), the plain model, and the record."""
    held = opened(path)
    with sealed_files.told(path, WHAT):
        return _models(path, module, held)


class Held(NamedTuple):
    """What a file holds, looked at as far as that can be done without its network (`checked_content.py`)."""

    record: dict[str, Any]
    architecture: Any  # None: a module of the user, which only code can make
    sets: dict[str, codec.Flags]
    kept: dict[str, dict[str, Any]]
    symbols: Symbols
    tensors: dict[str, Tensor]


def opened(path: str | Path) -> Held:
    """The content of a file of a known format, whose digest and sets are right; no module is made, no code is run."""
    tensors, text = sealed_files.read(path, KEY, WHAT)
    record = sealed_files.unsealed(path, text, tensors, READABLE, ADVICE)
    with sealed_files.told(path, WHAT):
        del record["format"]
        architecture, sets, kept = (record.pop(name, None) for name in ("architecture", "sets", "kept"))
        sets, kept = sets or {}, kept or {}
        require(isinstance(sets, dict) and isinstance(kept, dict), "what it says of its sets is no table")
        check_record(record)
        _check_kept(record, architecture, kept)
        symbols = _symbols(record, tensors)
        check_budgets(record.get("clauses"), symbols.budgets)
        if record.get("void_at_step") is None:
            names = {name.removeprefix("bounds.") for name in tensors if name.startswith("bounds.")}
            missing = min(sets.keys() - names, default="any parameter")
            require(names and names >= sets.keys(), f"there are no bounds for {missing}")
            for name in sorted(names):
                flags = sets.get(name, kept[name].get("set") if name in kept else {})
                check_set(name, codec.of(name, tensors), flags, symbols)
                watched = symbols.arithmetic.outward and not record.get("filled_cells")  # it saw other cells
                _check_against_plain(name, tensors, watched)
    return Held(record, architecture, sets, kept, symbols, tensors)


def _models(
    path: str | Path, module: nn.Module | None, held: Held
) -> tuple[nn.Module | None, nn.Module, dict[str, Any]]:
    record, tensors, symbols = held.record, held.tensors, held.symbols
    nominal = _plain_model(path, module, held.architecture, record.get("input_shape"), tensors)
    device = next(nominal.parameters()).device
    _assign(nominal, "nominal/", held, None, device)
    if module is not None:
        _require_its_code(path, module, record)
    require_same(nominal, record.get("input_shape"), tensors, path, stranger=module is not None)
    if record.get("void_at_step") is not None:
        return None, nominal, record
    model = _bounded_model(nominal, tensors, held.sets, symbols)
    _assign(model, "certified/", held, symbols, device)
    return model.eval(), nominal, record


def _symbols(record: dict[str, Any], tensors: dict[str, Tensor]) -> Symbols:
    """The space of the symbols that the rows of a file stand for."""
    table, budgets = checked_parts(record.pop("parts", []), record.pop("budgets", []))
    symbols = Symbols()
    symbols.arithmetic = Arithmetic(outward=record.get("rounding", "outward") == "outward")
    if any(name.startswith("rows.") for name in tensors):
        missing = [name for name in SYMBOLS if name not in tensors]
        require(not missing, f"it has no {' and no '.join(missing)}, without which its rows mean nothing")
        numbers, owners, parts = (tensors[name] for name in SYMBOLS)
        check_symbols(numbers, owners, parts, table)
        meaning = _meaning(tensors, numbers)
        symbols.restore(numbers.numpy(), owners.numpy(), parts.numpy(), table, budgets, *meaning)
    return symbols


def _meaning(tensors: dict[str, Tensor], numbers: Tensor) -> tuple[np.ndarray, Recorded] | tuple[()]:
    """Columns of the symbols and what is recorded of them; nothing in a file of an earlier version."""
    held = [name for name in (COLUMN, RECORDED, VALUES) if name in tensors]
    if not held:
        return ()
    require(len(held) == 3, f"it has {' and '.join(held)} alone, which mean nothing without the rest")
    columns, recorded, values = (tensors[name] for name in held)
    check_columns(columns)
    require(len(columns) == len(numbers), f"it has {len(numbers)} symbols and {len(columns)} columns")
    check_recorded(recorded, values)
    require(torch.isin(recorded, numbers).all(), "what is recorded belongs to no symbol of the file")
    return columns.numpy(), Recorded(recorded.numpy(), *values.numpy())


def _check_against_plain(name: str, tensors: dict[str, Tensor], outward: bool) -> None:
    """The plain model is one of the set: what training has watched at every step is true of its file, too."""
    plain, bounds = tensors.get(f"nominal.{name}"), tensors[f"bounds.{name}"]
    if plain is None or not plain.is_floating_point():
        return
    require(plain.dtype is bounds.dtype, f"{name} is {plain.dtype} in the plain model and {bounds.dtype} in the set")
    require(plain.shape == bounds.shape[1:], f"the bounds of {name} have another shape than the plain model")
    inside = (bounds[0] <= plain) & (plain <= bounds[1])
    require(not outward or inside.all(), f"the plain {name} is not between its bounds")


def _check_kept(record: dict[str, Any], architecture: Any, kept: dict[str, Any]) -> None:
    """Whether what the models keep beside parameters is what the record names, under names that are no code."""
    require(architecture is None or not kept, "layers that keep nothing are said to have kept something")
    known = {f"{side}/{name}" for side in ("nominal", "certified") for name in record.get("state", ())}
    for name, said in kept.items():
        require(name in known and isinstance(said, dict), f"what it keeps as {name} is not in its record")
        check_kept(name.partition("/")[2])


def _assign(model: nn.Module, side: str, held: Held, symbols: Symbols | None, device: torch.device) -> None:
    """Give a model what it has kept beside parameters."""
    for name, said in held.kept.items():
        if name.startswith(side):
            path, _, last = name.removeprefix(side).rpartition(".")
            module = model.get_submodule(path)
            ours = {**module._parameters, **module._modules, **module._buffers}
            own_code = callable(getattr(type(module), last, None))
            require(last not in ours and not own_code, f"{name} would take the place of a part of the model")
            require(symbols is not None or "set" not in said, f"{name} of the plain model is said to be a set")
            assign(model, name.removeprefix(side), made(name, said, held.tensors, symbols, device))


def _sets(model: nn.Module | None) -> Iterator[tuple[str, Bounded]]:
    """Every set that a model holds by name: parameters, and buffers that its forward pass made sets."""
    for name, value in (*model.named_parameters(), *model.named_buffers()) if model is not None else ():
        if isinstance(value, Bounded):
            yield name, value


def _buffers(model: nn.Module) -> dict[str, Tensor]:
    """All buffers, those included that PyTorch does not save."""
    return dict(model.named_buffers())


def record_of(path: str | Path) -> dict[str, Any]:
    """What a file says of itself, without its tensors, and so before its digest can be looked at."""
    return sealed_files.said(path, sealed_files.text_of(path, KEY, WHAT), READABLE, ADVICE)


def input_shape(path: str | Path) -> tuple[int, ...]:
    """The shape of one input, as a file says, without making its models."""
    return tuple(opened(path).record.get("input_shape") or ())


def _value(model: nn.Module, name: str) -> object:
    path, _, last = name.rpartition(".")
    return getattr(model.get_submodule(path), last)


def over_deep_rows(x: Bounded) -> Bounded:
    """The same set over symbols that are not derived."""
    if not x.affine:
        return Bounded(Set(x.set.bounds, None, x.symbols, x.set.exact, x.set.nonnegative))
    form = x.form.dense
    assert x.symbols is not None
    generators, rows, error = x.symbols.expand(form.generators.reshape(len(form.rows), x.numel()), form.rows)
    error = error.reshape(x.shape)
    radius = torch.where(error == 0, form.radius, rounding.up(form.radius + error))  # a sum with 0 is exact
    deep = Form(form.center, generators.reshape(len(rows), *x.shape), radius, rows)
    return Bounded(Set(x.set.bounds, deep, x.symbols, x.set.exact, x.set.nonnegative))


def _written_symbols(symbols: Symbols, used: list[np.ndarray], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """What the rows stand for: owner and part of each symbol, and the parts and budgets of the threat.

    State of a forward pass may have rows of derived symbols whose expansion is gone. They are at most 1 in modulus, as
    symbols of nobody are.
    """
    numbers = np.unique(np.concatenate(used))
    owners, parts = symbols.owners_and_parts(numbers)
    known = owners, np.where(parts == DERIVED, FREE, parts)
    tensors |= dict(zip(SYMBOLS, map(torch.from_numpy, (numbers, *known)), strict=True))
    recorded = symbols.recorded()
    if recorded is not None:
        recorded = recorded.among(numbers)
        values = np.stack((recorded.observed, recorded.center, recorded.reach))
        meaning = (symbols.columns(numbers), recorded.numbers, values)
        tensors |= dict(zip((COLUMN, RECORDED, VALUES), map(torch.from_numpy, meaning), strict=True))
    table = symbols.table[: known[1].max(initial=-1) + 1]  # what test inputs brought later is not part of it
    budgets = symbols.budgets[: max((part.clause for part in table), default=-1) + 1]
    return {"parts": [[part.kind.value, part.clause] for part in table], "budgets": budgets}


def _plain_model(
    path: str | Path, module: nn.Module | None, architecture: Any, shape: Any, tensors: dict[str, Tensor]
) -> nn.Module:
    if module is None and architecture is None:
        raise BoundFlowError(f"{path} holds a custom module: pass load(path, model=...) one of the same architecture")
    require_room(input_bytes(shape), "an input of the shape that it names")
    if module is None:
        _check_architecture(architecture, shape, tensors)
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
        differ = " ".join(str(error).split())
        raise BoundFlowError(f"{path} does not fit this model, which has other layers or shapes: {differ}") from None
    return nominal


def _require_its_code(path: str | Path, module: nn.Module, record: dict[str, Any]) -> None:
    """Refuse a module of other code or attributes than the one that was trained.

    Another version of Python or of PyTorch writes them otherwise, and an earlier version of boundflow did not write
    them at all: then, and where something cannot be compared, the answers alone say whether it is the network.
    """
    then, now = record.get("identity", {}), identity.of_model(module)
    if any(then.get(f"{identity.VERSION}{name}") != version for name, version in identity.versions().items()):
        return
    changed = {identity.attributes_of(name.rpartition(".")[0]) for name in record.get("state", ())}
    names = {name for name in {*then, *now} if name in identity.OF_CODE or name.startswith(identity.ATTRIBUTES)}
    names -= changed | {name for name in names if then.get(name, "").startswith(identity.NOT_COMPARED)}
    found = identity.differences(*({name: part[name] for name in names & part.keys()} for part in (then, now)))
    if found:
        raise BoundFlowError(
            f"{path} does not fit this model: it differs in {identity.listed(found)} from the one that was trained"
        )


def _check_architecture(architecture: Any, shape: Any, tensors: dict[str, Tensor]) -> None:
    """Whether the network that a file describes is as large as its tensors: made without memory first."""
    try:
        with torch.device("meta"):
            twin = rebuild(architecture)
    except Exception as error:  # whatever PyTorch makes of options that no layer has had
        why = " ".join(str(error).split())[:200]
        raise WrongContent(f"it describes a network that cannot be made: {why}") from None
    described = {name: tuple(value.shape) for name, value in twin.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in tensors.items() if name.startswith("nominal.")}
    require(
        {f"nominal.{name}": sizes for name, sizes in described.items()} == found,
        "the parameters of the network that it describes are not those that it holds",
    )
    require_room(most_bytes(twin, shape), "asking its network")


def _bounded_model(
    nominal: nn.Module, tensors: dict[str, Tensor], flags: dict[str, codec.Flags], symbols: Symbols
) -> nn.Module:
    module = lift(copy.deepcopy(nominal), symbols)
    device = next(nominal.parameters()).device
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            found = codec.read(name, tensors, flags.get(name, {}), symbols, device)
            require(found.shape == parameter.shape, f"the bounds of {name} have another shape than the parameter")
            require(found.dtype is parameter.dtype, f"the bounds of {name} are {found.dtype}, and it is not")
            parameter.copy_(found)
        for name in dict(module.named_buffers()):
            if f"bounds.{name}" in tensors:
                assign(module, name, codec.read(name, tensors, flags.get(name, {}), symbols, device))
    return module
