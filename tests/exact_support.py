"""The exact support of a space, by its definition: from who owns which symbol, and without a line of `support.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from exact import Exact, number, root, total

import boundflow as bf
from boundflow.symbols.budgets import Kind


def own_term(kind: Kind, values: Exact) -> tuple[Any, Any]:
    """h(-g) and h(g) of one part of one sample; of a ball, from below."""
    if kind is Kind.BOX:
        both = total(np.abs(values))
    elif kind is Kind.BALL:
        both = root(total(values**2))
    elif kind is Kind.CROSS:
        both = max(np.abs(values), default=number(0))
    else:
        return max(0, *(-values)), max(0, *values)
    return both, both


def exact_support(space: bf.Symbols, numbers: np.ndarray, values: Exact) -> tuple[Any, Any]:
    """How far down and up one element reaches, whose coefficients over these symbols are exact."""
    owners, parts = space.owners_and_parts(numbers)
    ends = [total(np.abs(values[parts < 0]))] * 2
    for clause, budget in enumerate(space.budgets):
        members = [n for n, part in enumerate(space.table) if part.clause == clause]
        terms = []
        for owner in np.unique(owners[np.isin(parts, members)]):
            mine = [values[(owners == owner) & (parts == n)] for n in members]
            pairs = [own_term(space.table[n].kind, x) for n, x in zip(members, mine, strict=True) if len(x)]
            terms.append([sum(pair[end] for pair in pairs) for end in (0, 1)])
        for end in (0, 1):
            by_size = sorted((t[end] for t in terms), reverse=True)
            ends[end] += sum(by_size if budget is None else by_size[:budget])
    return ends[0], ends[1]
