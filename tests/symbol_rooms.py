"""Spaces of symbols for laws: each with samples, free symbols and derived ones."""

from __future__ import annotations

import numpy as np
import torch
from exact import Exact, adverse, exact

import boundflow as bf
from boundflow.symbols.expansion import Expansion
from boundflow.symbols.rows import Rows
from boundflow.threats import L1, L2, AtMost, Labels, Linf, Threat


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
