"""Spaces of symbols for laws, and their support in exact arithmetic, by its definition.

It is computed from who owns which symbol, and shares no code with the library.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from exact import Exact, adverse, exact, number, root, total

import boundflow as bf
from boundflow.budgets import Kind
from boundflow.expansion import Expansion
from boundflow.rows import Rows
from boundflow.threats import L1, L2, AtMost, Labels, Linf, Threat


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


def spaces() -> dict[str, Threat]:
    return {
        "box": Linf(0.5),
        "box, at most 2": AtMost(2, Linf(0.5)),
        "ball, at most 2": AtMost(2, L2(0.5)),
        "cross": L1(0.5),
        "labels, at most 3": AtMost(3, Labels()),
        "two clauses": AtMost(2, Linf(0.5)) & AtMost(1, Labels()),
    }


SAMPLES, FEATURES = 6, 3


class Room:
    """A space with symbols of samples, free ones and, where wanted, derived ones."""

    def __init__(self, threat: Threat, kind: str, dtype: torch.dtype, derived: int, free: int = 4):
        self.space, self.dtype, self.kind = bf.Symbols(threat), dtype, kind
        parts = np.array([n for n, part in enumerate(self.space.table) for _ in range(FEATURES)])
        raw = np.arange(SAMPLES, dtype=np.float64)[:, None].repeat(len(parts), 1)
        self.own = self.space.of_samples(np.arange(SAMPLES), raw, parts)
        batch = self.own.batch
        assert batch is not None
        self.batch = batch
        self.deep = Rows(np.concatenate((batch.distinct.numbers, self.space.fresh(free).numbers)))
        self.weights: Exact | None = None
        if derived:
            weights = adverse(kind, (derived, len(self.deep)), dtype, 1)
            weights = weights / weights.abs().sum(1, keepdim=True).clamp_min(torch.finfo(dtype).tiny)
            weights = weights * (1 - 2.0**-10)
            self.derived = self.space.fresh(derived)
            optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
            self.kept = optimizer  # the space holds it weakly
            self.space.expands(optimizer, Expansion(self.derived, self.deep, weights))
            self.weights = exact(weights)
