"""A set as plain tensors and back: one way for files, checkpoints and pickles.

    bounds, center, radius, generators, rows          and three flags: exact, nonnegative, diagonal

Own rows are written out. After a reduction the generators of a state tensor are a diagonal, of which only the diagonal
is kept. What the rows stand for is kept once, with the space of symbols.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..sets.forms import Form, ball_form
from ..sets.set import Set
from ..symbols.rows import Rows
from ..symbols.space import Symbols
from ..tensor.bounded import Bounded
from .checked_content import check_set

Flags = dict[str, bool]


def pack(x: Bounded) -> tuple[dict[str, Tensor], Flags]:
    """The tensors of a set, and what they mean."""
    found = x._checked().set
    tensors, flags = {"bounds": found.bounds}, {"exact": found.exact, "nonnegative": found.nonnegative}
    if found._form is None:
        return tensors, flags
    form = found._form.dense
    tensors |= {"center": form.center, "radius": form.radius}
    if len(form.rows):
        flat = form.generators.reshape(len(form.rows), form.center.numel())
        diagonal = flat.diagonal()
        flags["diagonal"] = flat.shape[0] == flat.shape[1] and bool(flat.count_nonzero() == diagonal.count_nonzero())
        tensors["rows"] = torch.from_numpy(form.rows.numbers)
        tensors["generators"] = diagonal.clone() if flags["diagonal"] else form.generators
    return tensors, flags


def unpack(
    tensors: dict[str, Tensor], flags: Flags, symbols: Symbols | None, device: torch.device | str | None = None
) -> Bounded:
    """The opposite of `pack`."""
    held, form = {name: value.to(device) for name, value in tensors.items() if name != "rows"}, None
    if "center" in held:
        form = ball_form(held["center"], held["radius"])
        if "rows" in tensors:
            generators = held["generators"]
            if flags.get("diagonal"):
                generators = generators.diag().view(-1, *form.center.shape)
            form = Form(form.center, generators, form.radius, Rows(tensors["rows"].cpu().numpy()))
    return Bounded(Set(held["bounds"], form, symbols, flags.get("exact", False), flags.get("nonnegative", False)))


def read(
    name: str,
    tensors: dict[str, Tensor],
    flags: Flags,
    symbols: Symbols | None,
    device: torch.device | str | None = None,
) -> Bounded:
    """A set out of the tensors of a file, if they are one."""
    parts = of(name, tensors)
    check_set(name, parts, flags, symbols)
    return unpack(parts, flags, symbols, device)


def named(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of one set under names of their own, as they stand in a file: ``center.NAME``."""
    return {f"{part}.{name}": value for part, value in tensors.items()}


def of(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those of one set among the tensors of a file; none where it holds no such set."""
    parts = ("bounds", "center", "radius", "generators", "rows")
    return {part: tensors[f"{part}.{name}"] for part in parts if f"{part}.{name}" in tensors}
