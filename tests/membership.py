"""Whether data are in a lifted batch: in its interval, and in its affine form for some symbols that the threat allows.

Everything is exact: floats are fractions. The symbols are found from the definition of each set, without a support
function. Rows are own rows: row k at position i is a symbol of sample i.
"""

from __future__ import annotations

from fractions import Fraction

import torch
from torch import Tensor

from boundflow.symbols.budgets import Kind
from boundflow.tensor.bounded import Bounded

NOTHING = Fraction(0)


def fractions(x: Tensor) -> list[Fraction]:
    return [Fraction(value) for value in x.double().flatten().tolist()]


def effort(lifted: Bounded, moved: Tensor, sample: int) -> list[Fraction]:
    """The smallest modulus of each symbol that is needed to reach a moved sample, where a row moves one feature."""
    form = lifted.form
    generators = form.generators[:, sample].reshape(len(form.generators), -1)
    assert bool(((generators != 0).sum(1) <= 1).all() and ((generators != 0).sum(0) <= 1).all())
    rows = fractions(generators.abs().sum(0))
    needed = []
    values = (fractions(part[sample]) for part in (moved, form.center, form.radius))
    for value, center, radius, row in zip(*values, rows, strict=True):
        left = max(NOTHING, abs(value - center) - radius)
        assert row > 0 or left == 0, "a feature that has no row has moved"
        needed.append(left / row if left else NOTHING)
    return needed


def at_a_corner(lifted: Bounded, moved: Tensor, sample: int) -> bool:
    """Whether one symbol of a simplex, or none, reaches a moved sample."""
    form = lifted.form
    value, center, radius = (fractions(part[sample]) for part in (moved, form.center, form.radius))
    corners = [[NOTHING] * len(center), *(fractions(row) for row in form.generators[:, sample])]
    parts = list(zip(value, center, radius, strict=True))
    return any(all(abs(v - c - row) <= r for (v, c, r), row in zip(parts, corner, strict=True)) for corner in corners)


def outside(lifted: Bounded, moved: Tensor, kind: Kind) -> list[int]:
    """Samples that are not in the set."""
    within = lifted.contains(moved).reshape(len(moved), -1).all(1)
    found = [sample for sample in range(len(moved)) if not within[sample]]
    for sample in range(len(moved)) if lifted.affine else ():
        if kind is Kind.SIMPLEX:
            reached = at_a_corner(lifted, moved, sample)
        else:
            needed = effort(lifted, moved, sample)
            length = {Kind.BOX: max(needed), Kind.BALL: sum(n * n for n in needed), Kind.CROSS: sum(needed)}[kind]
            reached = length <= 1
        found += [] if reached else [sample]
    return found


def left_alone(lifted: Bounded, observed: Tensor) -> bool:
    """Whether a sample with all symbols at zero is as it was observed, exactly."""
    clean = lifted.set.clean
    if clean is None or not torch.equal(clean.bounds, torch.stack((observed, observed))):
        return False
    return not lifted.affine or (torch.equal(lifted.form.center, observed) and not bool(clean.radius.any()))
