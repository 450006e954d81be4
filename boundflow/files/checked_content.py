"""What a file says is looked at before any of it is used: a digest finds accidents, and anybody can compute one.

    bounds       lower <= upper, finite                  radius      not negative
    rows         each once, and of a known symbol        generators  one for each row, of the shape of the center
    numbers      ascending, each once, of the run        parts       of the table; each counts against a budget
    columns      a feature, or the label or the presence of a sample; what is recorded lies where its symbol reaches

Nothing is allocated that the file does not hold itself, unless it fits into memory: a few bytes can ask for anything.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import WrongContent
from ..symbols.budgets import FREE, Kind, Part
from ..symbols.recorded_values import PRESENCE
from ..symbols.space import Symbols
from ..symbols.symbol_numbers import DERIVED, LOOKED_AT, NOBODY

OF_SETS = (torch.float32, torch.float64, torch.bool, torch.int64)
FLAGS = frozenset(("exact", "nonnegative", "diagonal"))


def require(holds: object, sentence: str) -> None:
    """Refuse a file of which something does not hold."""
    if not holds:
        raise WrongContent(sentence)


def require_room(needed: int, what: str) -> None:
    """Refuse what would not fit into the memory of this machine, before it is asked for."""
    room = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    require(needed <= room, f"{what} would take {needed / 2**30:,.0f} GiB, and this machine has {room / 2**30:,.0f}")


def is_count(value: object, least: int = 0) -> bool:
    """Whether a value of a record is a whole number, which a truth is not."""
    return type(value) is int and least <= value < 2**63


# --- one set ----------------------------------------------------------------------------------------------------------


def check_set(name: str, tensors: Mapping[str, Tensor], flags: Any, symbols: Symbols | None) -> None:
    """Whether the tensors of a set (`codec.py`) are one."""
    require("bounds" in tensors, f"there are no bounds for {name}")
    bounds = tensors["bounds"]
    require(bounds.dtype in OF_SETS, f"the bounds of {name} are {bounds.dtype}, of which there are no sets")
    require(bounds.dim() >= 1 and len(bounds) == 2, f"the bounds of {name} are not a lower and an upper one")
    require(torch.isfinite(bounds).all(), f"a bound of {name} is not finite")
    require((bounds[0] <= bounds[1]).all(), f"a lower bound of {name} is above its upper bound")
    _check_flags(name, bounds, flags)
    parts = tensors.keys() - {"bounds"}
    if parts:
        require(
            parts >= {"center", "radius"}, f"the form of {name} has no {'radius' if 'center' in parts else 'center'}"
        )
        require(
            ("rows" in parts) == ("generators" in parts), f"the rows of {name} and its generators do not go together"
        )
        _check_form(name, tensors, bool(flags.get("diagonal")), symbols)


def _check_flags(name: str, bounds: Tensor, flags: Any) -> None:
    require(isinstance(flags, dict) and flags.keys() <= FLAGS, f"what is said of the set {name} is not known")
    require(all(isinstance(flag, bool) for flag in flags.values()), f"a flag of {name} is neither true nor false")
    require(not flags.get("exact") or (bounds[0] == bounds[1]).all(), f"{name} is said to be a point, and is none")
    require(not flags.get("nonnegative") or (bounds[0] >= 0).all(), f"{name} is said not to be negative, and may be")


def _check_form(name: str, tensors: Mapping[str, Tensor], diagonal: bool, symbols: Symbols | None) -> None:
    shape, dtype = tensors["bounds"].shape[1:], tensors["bounds"].dtype
    for part in ("center", "radius", "generators"):
        values = tensors.get(part)
        if values is None:
            continue
        require(values.dtype is dtype, f"the {part} of {name} is {values.dtype}, and its bounds are {dtype}")
        require(torch.isfinite(values).all(), f"the {part} of {name} is not finite")
        require(
            part == "generators" or values.shape == shape, f"the {part} of {name} has another shape than its bounds"
        )
    require((tensors["radius"] >= 0).all(), f"a radius of {name} is negative")
    if "rows" not in tensors:
        return
    rows, generators = tensors["rows"], tensors["generators"]
    require(rows.dtype is torch.int64 and rows.dim() == 1, f"the rows of {name} are no numbers of symbols")
    numbers = rows.numpy()
    require(len(np.unique(numbers)) == len(numbers), f"a row of {name} is there twice")
    require(symbols is not None and symbols.knows(numbers), f"a row of {name} belongs to no symbol of the file")
    size = prod(shape)
    wanted = (size,) if diagonal else (len(rows), *shape)
    fits = tuple(generators.shape) == wanted and (not diagonal or len(rows) == size)
    require(fits, f"the generators of {name} do not fit its rows and its shape")
    if diagonal:
        require_room(size * size * generators.element_size(), f"writing out the diagonal of {name}")


# --- the symbols ------------------------------------------------------------------------------------------------------


def checked_parts(parts: Any, budgets: Any) -> tuple[list[Part], list[int | None]]:
    """The table of what the attacker can change, and the budgets it counts against."""
    require(isinstance(budgets, list), "its budgets are no list")
    require(all(budget is None or is_count(budget) for budget in budgets), "a budget is not a number of samples")
    require(isinstance(parts, list), "its parts of the threat are no list")
    kinds = {kind.value for kind in Kind}
    for part in parts:
        require(isinstance(part, list) and len(part) == 2, "a part of the threat is not a kind and a clause")
        require(isinstance(part[0], str) and part[0] in kinds, "a part of the threat is of a kind that is not known")
        require(is_count(part[1]) and part[1] < len(budgets), "a part of the threat counts against no budget")
    return [Part(Kind(kind), clause) for kind, clause in parts], budgets


def check_symbols(numbers: Tensor, owners: Tensor, parts: Tensor, table: Collection[Part]) -> None:
    """Whether every symbol has a number of its own, an owner, and a part of the threat."""
    for name, values in (("numbers", numbers), ("owners", owners), ("parts", parts)):
        require(values.dtype is torch.int64 and values.dim() == 1, f"the {name} of its symbols are no whole numbers")
        require(len(values) == len(numbers), f"it has {len(numbers)} symbols and {len(values)} {name}")
    require((numbers[1:] > numbers[:-1]).all(), "the numbers of its symbols do not ascend")
    require(((numbers >= 0) & (numbers < LOOKED_AT)).all(), "the number of a symbol is not one of a run")
    check_owners(owners, parts, table)


def check_columns(columns: Tensor) -> None:
    """Whether every symbol moves a feature, or one of the things that have a name (`recorded_values.py`)."""
    require(columns.dtype is torch.int64 and columns.dim() == 1, "the columns of its symbols are no whole numbers")
    require((columns >= PRESENCE).all(), "the column of a symbol has a negative number")


def check_recorded(numbers: Tensor, values: Tensor) -> None:
    """Whether what was recorded is said once for a symbol, and lies where the symbol reaches (`recorded_values.py`)."""
    require(numbers.dtype is torch.int64 and numbers.dim() == 1, "the symbols of what is recorded are no whole numbers")
    require((numbers[1:] > numbers[:-1]).all(), "the symbols of what is recorded do not ascend")
    fits = values.dtype is torch.float64 and tuple(values.shape) == (3, len(numbers))
    require(fits, "what is recorded is not as much as its symbols")
    observed, center, reach = values
    require(torch.isfinite(values[1:]).all() and (reach > 0).all(), "what a symbol reaches is not known")
    inside = (observed - center).abs() <= reach
    require((inside | torch.isnan(observed)).all(), "a recorded value lies where its symbol cannot reach")


def check_owners(owners: Tensor, parts: Tensor, table: Collection[Part], least: int = FREE) -> None:
    """Whether symbols of the attacker belong to a sample, and others to nobody; ``least`` is the smallest part."""
    require(((parts >= least) & (parts < len(table))).all(), "a symbol belongs to no part of the threat")
    require((owners >= NOBODY).all(), "a symbol belongs to a sample with a negative number")
    apart = (owners == NOBODY) == (parts < 0)
    require(apart.all(), "a symbol of the threat belongs to nobody, or an error to a sample")


def check_space(found: dict[str, Tensor], weights: Tensor | None, symbols: Symbols, own: Any, steps: Any) -> None:
    """Whether tensors of a file are those of a space of symbols (`Space` in `training_state.py`)."""
    other = ("raw", "values")
    flat = {name: value.dtype is torch.int64 and value.dim() == 1 for name, value in found.items() if name not in other}
    require(all(flat.values()), "the numbers of its symbols are no whole numbers")
    lengths, owners, parts = (found[name] for name in ("lengths", "owners", "parts"))
    require(len(lengths) == len(owners) == len(parts), "the owners of its symbols are not as many as their parts")
    require((lengths > 0).all(), "it has runs of no symbols")
    count = sum(lengths.tolist())  # a sum of int64 could overflow
    require_room(32 * count, "what it says of its symbols")
    check_owners(owners, parts, symbols.table, least=DERIVED)
    if "columns" in found:  # a training of an earlier version does not name them
        owned = int(lengths[owners != NOBODY].sum())
        require(len(found["columns"]) == owned, "the columns of its symbols are not as many as its symbols")
        check_columns(found["columns"])
        require(found.keys() >= {"recorded", "values"}, "what is recorded of its symbols is missing")
        check_recorded(found["recorded"], found["values"])
        known = (found["recorded"] >= 0) & (found["recorded"] < count)
        require(known.all(), "what is recorded belongs to no symbol")
    first, samples = found["first_rows"], found["samples"]
    require(len(first) == len(samples) == len(set(samples.tolist())), "a sample is there twice")
    require(((first >= 0) & (first < count)).all(), "the symbols of a sample are not among those of the file")
    raw = found["raw"]
    fits = raw.dtype is torch.uint8 and raw.dim() == 1 and len(raw) == 16 * len(samples)
    require(fits, "the fingerprints of its samples are not as many as the samples")
    fits = is_count(-own - 1) and own > -(2**62) and is_count(steps)  # own rows are counted downwards, and go on
    require(fits, "it does not say how many symbols and steps there were")
    require(
        ("derived" in found) == ("deep" in found) == (weights is not None), "what derived symbols stand for is missing"
    )
    if weights is not None:
        require(
            weights.is_floating_point() and torch.isfinite(weights).all(), "the weights of derived symbols are void"
        )
        for name, size in zip(("derived", "deep"), weights.shape, strict=True):
            require(
                len(found[name]) == len(set(found[name].tolist())) == size,
                f"its {name} symbols are not those of its weights",
            )


# --- the record -------------------------------------------------------------------------------------------------------


def check_record(record: Mapping[str, Any]) -> None:
    """Whether what a record says that is computed with is of the kind that is written."""
    shape = record.get("input_shape")
    if shape is not None:
        require(isinstance(shape, list) and all(map(is_count, shape)), "its shape of one input is no list of sizes")
    require(is_count(record.get("samples"), 1), "how many samples it was trained on is no number")
    void = record.get("void_at_step")
    require(void is None or is_count(void), "the step at which its bounds became void is no number")
    require(record.get("rounding", "outward") in ("outward", "nearest"), "its rounding is neither outward nor nearest")
    require(record.get("task") in (None, "classification", "regression"), "its task is neither classes nor numbers")
    verified = record.get("verified", [])
    require(isinstance(verified, list) and all(map(is_count, verified)), "its verified samples are no list of numbers")
    require(is_count(record.get("filled_cells", 0)), "how many cells were filled in is no number")
    check_filled(record)
    check_identity(record.get("identity", {}))
    check_part(record)
    check_clauses(record.get("clauses", []))
    state = record.get("state", [])
    require(isinstance(state, list) and all(isinstance(name, str) for name in state), "its state is no list of names")


def check_filled(record: Mapping[str, Any]) -> None:
    """Whether cells that were filled in are told with their values, and are as many as is said."""
    cells = record.get("filled")
    if cells is None:  # of an earlier version
        return
    cell = [is_count(one[0]) and type(one[1]) is int and type(one[2]) is float for one in cells if len(one) == 3]
    require(
        all(cell) and len(cell) == record.get("filled_cells"), "what was filled into its cells is no list of numbers"
    )


def check_identity(parts: object) -> None:
    """Whether what a training rests on is a table of texts."""
    known = isinstance(parts, dict) and all(isinstance(digest, str) for digest in parts.values())
    require(known, "what it rests on is no table of digests")


def check_part(record: Mapping[str, Any]) -> None:
    """Whether a member of a vote says which samples of the whole data it was trained on."""
    part = record.get("part")
    if part is None:
        return
    require(
        isinstance(part, dict) and part.keys() == {"data", "samples", "positions"}, "its part of the data is not known"
    )
    positions = part["positions"]
    fits = isinstance(positions, list) and all(map(is_count, positions)) and is_count(part["samples"], 1)
    fits = fits and isinstance(part["data"], str) and len(positions) == record.get("samples")
    require(fits, "the positions of its part are not those of its samples")
    apart = len(set(positions)) == len(positions) and max(positions) < part["samples"]
    require(apart, "a position of its part is there twice, or not among the samples")


def check_clauses(clauses: object) -> None:
    """Whether what a record says of the threat is what `Threat.described` gives."""
    require(isinstance(clauses, list), "its clauses of the threat are no list")
    assert isinstance(clauses, list)
    for clause in clauses:
        known = isinstance(clause, dict) and clause.keys() == {"budget", "changes"}
        require(known and isinstance(clause["changes"], list), "a clause of its threat is not known")
        require(clause["budget"] is None or is_count(clause["budget"], 1), "a budget is not a number of samples")
        for change in clause["changes"]:
            named = change.keys() - {"exactly", "kind"} if isinstance(change, dict) else ()
            known = named == {"about", "recentred", "shrinks"}
            known = known and all(isinstance(change.get(name, ""), str) for name in ("about", "exactly", "kind"))
            require(known, "a change of its threat is not known")
            shrinks = change["shrinks"]
            known = shrinks is None or (isinstance(shrinks, dict) and shrinks.keys() == {"epsilon", "slack"})
            require(known, "how a change of its threat shrinks is not known")
            if shrinks is not None:
                amounts = [shrinks["slack"], 0.0 if shrinks["epsilon"] is None else shrinks["epsilon"]]
                numbers = all(type(one) in (int, float) and 0 <= one < math.inf for one in amounts)
                require(numbers, "how far a change of its threat reaches is no number")


def check_budgets(clauses: list[dict[str, Any]] | None, budgets: list[int | None]) -> None:
    """Whether the budgets that rows are counted by are those of the threat that the record describes."""
    said = [clause["budget"] for clause in clauses or []]
    require(not said or budgets == said[: len(budgets)], "its budgets are not those of its threat")
