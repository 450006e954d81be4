"""Promotion and order reduction: what keeps the number of rows within a budget while training goes on.

Promotion gives the radius of a gradient rows of its own, so that momentum and parameter stay correlated:
``{c + G xi + rho zeta} = {c + G xi + diag(rho) xi'}`` with fresh xi' is the same set, and nothing is lost.

Reduction (Girard 2005, jointly for everything one optimizer holds): stack all state tensors into one vector of M
scalars; keep all rows with an owner and some of the free ones; the dropped rows D and the radii become M new rows
``diag(b)``, ``b_j = rho_j + sum over D of |G_kj|``, each with a fresh symbol. Sound because
``|sum_D G_kj xi_k + rho_j zeta_j| <= b_j``: for every execution there is a value of each fresh symbol that gives the
same tensor. Two scalars never share a fresh symbol: (1, 0) and (0, 1) must not become (1, 1). So any choice of D is
sound, and a *method* only says which free rows are worth keeping: one function in ``METHODS``.

After a reduction each state scalar gets one derived symbol (`expansion.py`), so that the next step carries M rows, not
K. Every optimizer has an expansion of its own. Where there are several, gradients of one were computed before the other
made its step, so the expansion before the last is still looked through, until the optimizer steps again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
import torch
from torch import Tensor

from . import rounding
from .budgets import FREE, box
from .context import bookkeeping
from .errors import MixedSymbols
from .expansion import Expansion
from .rows import NO_ROWS, Rows
from .symbol_numbers import DERIVED

if TYPE_CHECKING:
    from .bounded import Bounded
    from .symbols import Symbols


def girard(rows: Tensor) -> Tensor:
    """``|row|_1 - |row|_inf``: what is lost at least if a row becomes a box (Girard 2005)."""
    moduli = rows.abs()
    return moduli.sum(1) - moduli.amax(1)


def longest(rows: Tensor) -> Tensor:
    """``|row|_2``: the rows that reach furthest (Combastel 2003)."""
    norm: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norm


METHODS: dict[str, Callable[[Tensor], Tensor]] = {"girard": girard, "longest": longest}


def promote(space: Symbols, optimizer: torch.optim.Optimizer) -> None:
    """Give the radius of every gradient rows of its own."""
    with torch.no_grad():
        for parameter in _parameters(optimizer):
            gradient = parameter.grad
            if gradient is not None and _is_bounded(gradient):
                _require_own(space, gradient)
                form, count = gradient.form.dense, gradient.numel()
                new = form.radius.flatten().diag().view(count, *gradient.shape)
                rows = Rows(np.concatenate((form.rows.numbers, space.fresh(count).numbers)))
                gradient.replace_form(space, rows, torch.cat((form.generators, new)))


def reduce(space: Symbols, optimizer: torch.optim.Optimizer) -> None:
    """Bring all state of an optimizer under the row budget, and its radii into rows."""
    with torch.no_grad():
        state = state_of(optimizer)
        if not state:
            return
        for tensor in state:
            _require_own(space, tensor)
        stacked, rows, radius = _stacked(space, state)
        kept, dropped = _split(space, stacked, rows, (space.order - 1) * len(radius))
        boxed = rounding.up(radius + box(stacked[dropped]))
        with bookkeeping():
            numbers = np.concatenate((rows.numbers[kept.cpu().numpy()], space.fresh(len(radius)).numbers))
        generators = torch.cat((stacked[kept], boxed.diag()))
        derived, scale = _derive(space, optimizer, Rows(numbers), generators)
        begin = 0
        for tensor in state:
            size = tensor.numel()
            part = Rows(derived.numbers[begin : begin + size])
            tensor.replace_form(space, part, scale[begin : begin + size].diag().view(size, *tensor.shape))
            begin += size


def _stacked(space: Symbols, state: list[Bounded]) -> tuple[Tensor, Rows, Tensor]:
    """All state as one vector: its rows (K, M) over symbols that are not derived, and its radius (M)."""
    forms = [tensor.form.dense for tensor in state]
    rows = NO_ROWS
    for form in forms:
        rows = rows.union(form.rows)
    parts = [rows.place(form.generators, form.rows).reshape(len(rows), form.center.numel()) for form in forms]
    stacked, rows, error = space.expand(torch.cat(parts, dim=1), rows)
    radius = torch.cat([form.radius.flatten() for form in forms])
    return stacked, rows, rounding.up(radius + error)


def _split(space: Symbols, stacked: Tensor, rows: Rows, budget: int) -> tuple[Tensor, Tensor]:
    """Which rows to keep, and which not: all owned ones, and then the free ones that the method finds worth it."""
    is_free = space.owners_and_parts(rows.numbers)[1] == FREE
    with bookkeeping():
        owned, free = (torch.from_numpy(np.flatnonzero(x)).to(stacked.device) for x in (~is_free, is_free))
    order = free[torch.argsort(METHODS[space.reduction](stacked[free]), descending=True, stable=True)]
    return torch.cat((owned, order[:budget])), order[budget:]


def _derive(space: Symbols, optimizer: torch.optim.Optimizer, deep: Rows, generators: Tensor) -> tuple[Rows, Tensor]:
    """One derived symbol per column of ``generators`` (K, M): its rows, and the scales ``s_j``."""
    scale = box(generators)
    weights = (generators / torch.where(scale > 0, scale, 1.0)).T.contiguous()
    derived = space.fresh(len(scale), DERIVED)
    space.expands(optimizer, Expansion(derived, deep, weights))
    return derived, scale


def _require_own(space: Symbols, tensor: Bounded) -> None:
    if space.common(space, tensor.symbols) is not space:
        raise MixedSymbols("the optimizer is attached to other symbols than its model was lifted with")


def state_of(optimizer: torch.optim.Optimizer) -> list[Bounded]:
    """Every set the optimizer holds, once."""
    held = [*_parameters(optimizer)]
    for values in optimizer.state.values():
        held += [value for value in values.values() if isinstance(value, Tensor)]
    return list({id(tensor): tensor for tensor in held if _is_bounded(tensor)}.values())


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _is_bounded(tensor: Tensor) -> TypeGuard[Bounded]:
    return hasattr(tensor, "replace_form")
