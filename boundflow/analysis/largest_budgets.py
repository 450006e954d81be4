"""The largest budget at which a lower bound is positive, for every element of a set, in one pass.

With the terms of one clause by owner in descending order, ``t_1 >= t_2 >= ...``, the reach downwards at a budget j is

    base + t_1 + ... + t_j,        base = reach of all other symbols,

so the running sums of one sort give the lower bounds ``center - radius - reach`` at all budgets at once. The rows hold
for every smaller budget (`smaller_threats.py`); center and radius are those of the budget that the set was made for. Of
a linear model that is all there is; deeper networks are asked again at budgets above the one found here.

A lower bound is positive where ``center > radius + reach``. Each summand of the reach is longer than what it bounds by
six roundings at least, so their sum, rounded twice, is an upper bound. The sum with the radius is rounded once, and
rounding keeps the order: a center that is not above the exact sum is not above the rounded one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..arithmetic import rounding
from ..arithmetic.thread_context import using
from ..symbols.budgets import Columns, term
from ..tensor.bounded import Bounded

NUMBERS = 2**24  # coefficients that are held at a time


def fits(x: Bounded) -> bool:
    """Whether rows are those of the parameters alone: own rows of test inputs are left to the support function."""
    return x.affine and x.form.rows.batch is None and x.symbols is not None


def is_linear(model: nn.Module) -> bool:
    """Whether outputs are linear in the parameters, so that a smaller budget changes nothing but the reach."""
    layers = [module for module in model.modules() if not list(module.children())]
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    return len(linear) == 1 and all(isinstance(layer, nn.Linear | nn.Flatten | nn.Identity) for layer in layers)


def largest_budgets(x: Bounded, clause: int, most: int) -> Tensor:
    """For each element the largest budget of a clause, up to ``most``, with a positive lower bound; -1 if none."""
    assert x.symbols is not None
    form = x.form
    flat = form.generators.reshape(len(form.rows), -1)
    center, radius = form.center.reshape(-1), form.radius.reshape(-1)
    deep = len(x.symbols.expansion.deep) if x.symbols.expansion is not None else 0
    size = max(1, NUMBERS // max(1, deep + len(form.rows)))
    with using(x.symbols.arithmetic):
        found = []
        for begin in range(0, flat.shape[1], size):
            some = slice(begin, begin + size)
            found.append(_of_some(x, flat[:, some], center[some], radius[some], clause, most))
    return torch.cat(found).reshape(x.shape)


def _of_some(x: Bounded, generators: Tensor, center: Tensor, radius: Tensor, clause: int, most: int) -> Tensor:
    space = x.symbols
    assert space is not None
    coefficients, rows, error = space.expand(generators, x.form.rows)
    budgets = [0 if number == clause else budget for number, budget in enumerate(space.budgets)]
    columns = Columns(*space.owners_and_parts(rows.numbers), space.table, budgets, center.device)
    coefficients = coefficients.T.contiguous()
    base = columns.reach(coefficients)[0]
    total = _running(columns, coefficients, clause, most)
    reach = base.unsqueeze(1) + total + error.unsqueeze(1)
    positive = center.unsqueeze(1) > reach + radius.unsqueeze(1)
    return positive.long().cumprod(1).sum(1) - 1


def _running(columns: Columns, coefficients: Tensor, clause: int, most: int) -> Tensor:
    """The sums of the 0, 1, ..., ``most`` largest terms downwards of a clause, (elements, most + 1), rounded up."""
    held = [found for found in columns.clauses if found.clause == clause]
    total = coefficients.new_zeros(len(coefficients), most + 1)
    if not held:
        return total
    ends = [term(part.kind, columns._taken(coefficients, part))[0] for part in held[0].parts]
    by_owner = torch.stack(ends).sum(0) if len(ends) > 1 else ends[0]
    count = min(most, by_owner.shape[1])
    largest = torch.topk(by_owner, count, dim=1).values
    total[:, 1 : count + 1] = largest.cumsum(1) * (1 + rounding.gamma(count + len(ends), total.dtype))
    total[:, count + 1 :] = total[:, count : count + 1]  # there are no more samples than that
    return total
