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

from ..arithmetic import rounding
from ..arithmetic.thread_context import bookkeeping
from ..arithmetic.tuned_numbers import REDUCTION_BLOCK, REDUCTION_BLOCK_CUDA
from ..errors import MixedSymbols
from ..fast.support.device_tables import on_device
from .budgets import FREE, box
from .expansion import Expansion
from .rows import NO_ROWS, Rows
from .symbol_numbers import DERIVED

if TYPE_CHECKING:
    from ..tensor.bounded import Bounded
    from .space import Symbols


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
    if space.expansion is not None:
        space.expansion.prepared.clear()  # the step is over: its products do not come again
        space.expansion.kept = None
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
        lost = _of_all(space, "dropped rows", _boxes(stacked, dropped))
        boxed = rounding.up(radius + lost)
        with bookkeeping():
            numbers = np.concatenate((rows.numbers[kept.cpu().numpy()], space.fresh(len(radius)).numbers))
        generators = _with_diagonal(stacked, kept, boxed)
        derived, scale = _derive(space, optimizer, *_here(space, generators, Rows(numbers)))
        begin = 0
        for tensor in state:
            size = tensor.numel()
            part = Rows(derived.numbers[begin : begin + size])
            rows_of_it = scale[begin : begin + size].diag().view(size, *tensor.shape)
            tensor.replace_form(space, part, rows_of_it, one_row_each=True)
            begin += size


def _stacked(space: Symbols, state: list[Bounded]) -> tuple[Tensor, Rows, Tensor]:
    """All state as one vector: coefficients (M, K + M) over symbols that are not derived, and its radius (M).

    The last M columns are still to be filled. Written a block at a time: with R rows for samples this is the largest
    tensor of a run, and nothing else of its size is made.
    """
    forms = [tensor.form.dense for tensor in state]
    rows = NO_ROWS
    for form in forms:
        rows = rows.union(form.rows)
    expansion = space.expansion or Expansion(NO_ROWS, NO_ROWS, forms[0].center.new_zeros(0, 0))
    other, deep = Rows(rows.numbers[expansion.view(rows).others]), len(expansion.deep)
    count, scalars = deep + len(other), sum(form.center.numel() for form in forms)
    stacked, errors, begin = forms[0].generators.new_zeros(scalars, count + scalars), [], 0
    for form in forms:
        generators = form.generators.reshape(len(form.rows), form.center.numel())
        view = expansion.view(form.rows)
        new, places = view.other, other.positions(Rows(form.rows.numbers[view.others]))
        for part in torch.split(generators, _lines(stacked), 1):
            here = stacked[begin : begin + part.shape[1], :count]
            here[:, :deep], error = expansion.expanded(part.T, form.rows, full=part.is_cuda)
            here[:, deep:][:, places if isinstance(places, slice) else places.to(here.device)] = part[new].T
            errors.append(error)
            begin += len(here)
    radius = torch.cat([form.radius.flatten() for form in forms])
    error = _of_all(space, "roundings of rows", torch.cat(errors))
    all_rows = Rows(np.concatenate((expansion.deep.numbers, other.numbers)))
    counted, rows = _here(space, stacked, all_rows)
    if rows is not all_rows:
        stacked = torch.nn.functional.pad(counted, (0, scalars))
    return stacked, rows, rounding.up(radius + error)


def _lines(stacked: Tensor) -> int:
    """How many scalars of a state are worked on at a time."""
    return max(1, (REDUCTION_BLOCK_CUDA if stacked.is_cuda else REDUCTION_BLOCK) // stacked.shape[1])


def _of_all(space: Symbols, what: str, x: Tensor) -> Tensor:
    """The sum over all processes of what is not negative; where there is one, as it is."""
    shares = space.arithmetic.shares
    return x if shares is None else shares.ranks.total(what, x)


def _here(space: Symbols, generators: Tensor, rows: Rows) -> tuple[Tensor, Rows]:
    """The rows that this process counts, of lines that hold at least these: all, where there is one process."""
    shares = space.arithmetic.shares
    if shares is None:
        return generators, rows
    places = np.flatnonzero(shares.here(rows.numbers))
    return generators[:, torch.from_numpy(places).to(generators.device)], Rows(rows.numbers[places])


def _split(space: Symbols, stacked: Tensor, rows: Rows, budget: int) -> tuple[Tensor, Tensor]:
    """Which rows to keep, and which not: all owned ones, and then the free ones that the method finds worth it."""
    is_free = space.owners_and_parts(rows.numbers)[1] == FREE
    with bookkeeping():
        owned, free = (on_device(np.flatnonzero(x), stacked.device) for x in (~is_free, is_free))
    some = max(1, _lines(stacked) * stacked.shape[1] // len(stacked))
    parts = [METHODS[space.reduction](stacked[:, index].T.contiguous()) for index in torch.split(free, some)]
    scores, shares = torch.cat([stacked.new_empty(0), *parts]), space.arithmetic.shares
    if shares is not None:  # the worst rows of all processes are dropped
        best = shares.best(scores, budget)
        return torch.cat((owned, free[best])), free[~best]
    order = free[torch.argsort(scores, descending=True, stable=True)]
    return torch.cat((owned, order[:budget])), order[budget:]


def _boxes(stacked: Tensor, dropped: Tensor) -> Tensor:
    """How far the dropped rows reach at most, for each scalar."""
    return torch.cat([box(part[:, dropped], 1) for part in torch.split(stacked, _lines(stacked))])


def _with_diagonal(stacked: Tensor, kept: Tensor, boxed: Tensor) -> Tensor:
    """The rows that are kept and one new row for each scalar, (M, K): moved together within the same memory.

    A line never moves to the right, so what is still to be read is never written over.
    """
    scalars, width = len(boxed), len(kept) + len(boxed)
    flat, size = stacked.view(-1), _lines(stacked)
    for begin in range(0, scalars, size):
        part = stacked[begin : begin + size].index_select(1, kept)
        target = flat[begin * width : (begin + len(part)) * width].view(len(part), width)
        target[:, : len(kept)] = part
        target[:, len(kept) :] = 0.0
    generators = flat[: scalars * width].view(scalars, width)
    generators[:, len(kept) :].diagonal().copy_(boxed)
    return generators


def _derive(space: Symbols, optimizer: torch.optim.Optimizer, generators: Tensor, deep: Rows) -> tuple[Rows, Tensor]:
    """One derived symbol per line of ``generators`` (M, K), which become weights: its rows, and the scales ``s_j``."""
    made, scale = expansion_of(space, generators, deep)
    space.expands(optimizer, made)
    return made.derived, scale


def expansion_of(space: Symbols, generators: Tensor, deep: Rows) -> tuple[Expansion, Tensor]:
    """An expansion with one derived symbol per line of ``generators`` (M, K), which are overwritten, and its scales."""
    shares, scale = space.arithmetic.shares, _of_all(space, "scales", box(generators, 1))
    weights = generators.div_(torch.where(scale > 0, scale, 1.0).unsqueeze(1))
    derived = space.fresh(len(scale), DERIVED)
    made = Expansion(derived, deep, weights) if shares is None else shares.known(derived, deep, weights)
    return made, scale


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
