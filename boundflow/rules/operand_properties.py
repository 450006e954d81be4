"""Operands of rules, and what a rule asks of several at once: their kind, their symbols, and the samples they share.

An operand is a set or a number: dispatch has made a set of one point of every plain floating-point tensor with an axis
(`bounded.py`). A number may be a tensor without an axis, which adapts to the dtype of the sets it meets, and a tensor
of integers counts as numbers.

Two operands share a sample axis if it is the same axis, counted from the right, of the same samples (`sample_axis.py`):
then position i of both belongs to sample i, and what rows and states say of it holds for the result. Otherwise own rows
are written out, and it is forgotten what operands are where a sample was left alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard, TypeVar, overload

import torch
from torch import Tensor

from ..errors import MixedTensors
from ..sets.sample_axis import SampleAxis
from ..sets.set import Set
from ..symbols.space import Symbols

Operand = Set | Tensor | float
Part = TypeVar("Part", Set, Set | Tensor, Operand)


def nonnegative(*operands: Operand) -> bool:
    """Whether every operand is known, by construction, never to be negative."""
    return all(x.nonnegative if isinstance(x, Set) else isinstance(x, int | float) and x >= 0 for x in operands)


def plain(x: Operand | None) -> bool:
    """Whether an operand is one known value rather than a set."""
    if isinstance(x, Set):
        return x.exact
    assert getattr(x, "set", None) is None, "rules are given sets, not the tensors that hold them"
    return True


def varies(x: Operand | None) -> TypeGuard[Set]:
    """Whether an operand is a set of several values: one that is not plain."""
    if isinstance(x, Set):
        return not x.exact
    assert getattr(x, "set", None) is None, "rules are given sets, not the tensors that hold them"
    return False


@overload
def value(x: Set | Tensor) -> Tensor: ...


@overload
def value(x: float) -> float: ...


def value(x: Operand) -> Tensor | float:
    """The value of a plain operand."""
    return x.bounds[0] if isinstance(x, Set) else x


def own_axis(*operands: Part, beside: Set | Tensor | None = None) -> tuple[list[Part], SampleAxis | None]:
    """Operands of an elementwise operator, and the samples whose own rows they share; others are written out.

    ``beside`` is an operand that has no rows itself, as a condition, but may repeat a sample.
    """
    marked = [x for x in operands if has_own_rows(x)]
    if not marked:
        return list(operands), None
    along, shape = marked[0].along, _together((*operands, beside))
    assert along is not None and along.samples.batch is not None
    agree = all(x.along == along for x in marked)
    written = (x.form.rows for x in operands if isinstance(x, Set) and x.affine)
    apart = not any(rows.meets(along.samples.batch) for rows in written)  # else the same symbol would count twice
    if agree and apart and along.fits(shape):
        return list(operands), along
    return [x.dense() if isinstance(x, Set) else x for x in operands], None


def dims_of(*operands: Operand) -> int:
    """How many axes the result of an elementwise operator has."""
    return max(0 if isinstance(x, int | float) else x.dim() for x in operands)


def any_affine(*operands: Operand | None) -> bool:
    """Whether one of several operands has generator rows."""
    return any(isinstance(x, Set) and x.affine for x in operands)


def _together(operands: Iterable[Operand | None]) -> torch.Size:
    """The shape of an elementwise operator on these operands."""
    shapes = (x.shape for x in operands if isinstance(x, Tensor | Set))
    shape: torch.Size = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    return shape


def sample_axis(x: Operand | None) -> int | None:
    """The axis of a tensor's samples, if it has own rows or knows what it is where its own sample was left alone."""
    return x.along.position if isinstance(x, Set) and x.along is not None else None


def samples_of(*operands: Operand | None) -> SampleAxis | None:
    """The samples whose clean state is known of all operands of an elementwise operator, if they agree on them."""
    known = [x.along for x in operands if isinstance(x, Set) and x.clean is not None]
    if not known or any(along != known[0] for along in known):
        return None
    if any(only_touched(x) for x in operands):
        return None
    along = known[0]
    return along if along is not None and along.fits(_together(operands)) else None


def reference(a: Operand, b: Operand) -> Set:
    """The first of two operands that is a set: one of them is."""
    if isinstance(a, Set):
        return a
    assert isinstance(b, Set)
    return b


def has_own_rows(x: Operand | None) -> TypeGuard[Set]:
    """Whether some rows of a tensor belong to the sample of each position."""
    return isinstance(x, Set) and x.affine and x.form.rows.batch is not None


def only_touched(x: Operand | None) -> bool:
    """Whether a tensor has own rows but no clean state."""
    return has_own_rows(x) and x.clean is None


def symbols_of(*operands: Operand | None) -> Symbols | None:
    """The symbol space of several operands."""
    found: Symbols | None = None
    for operand in operands:
        if isinstance(operand, Set) and operand.symbols is not None and operand.symbols is not found:
            found = Symbols.common(found, operand.symbols)
    return found


def same_kind(*operands: Operand | None) -> None:
    """Refuse to mix dtypes or devices; 0-dimensional plain tensors and integers convert as in PyTorch."""
    for reference in operands:
        if isinstance(reference, Set) and reference.dtype is not torch.bool:
            break
    else:
        return
    dtype, device = reference.dtype, reference.device
    for x in operands:
        if x is reference or x is None or isinstance(x, int | float) or (not isinstance(x, Set) and x.dim() == 0):
            continue
        if x.device != device:
            raise MixedTensors(f"tensors on {x.device} and {device} met: move one with .to()")
        if x.dtype is not dtype and x.is_floating_point():
            raise MixedTensors(f"{x.dtype} and {dtype} met: convert one with .to(), which widens it")
