"""Sets for laws in exact arithmetic: all symbols are at 1, and the rows of a set add up to exactly 0 there.

So a set can reach far by its form and be one point by its interval. Then nothing but roundings keeps a result off its
form, and only what is charged for them, on the moduli of the form, holds it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from exact import Exact, exact, total
from torch import Tensor

import boundflow as bf
from boundflow.sets.forms import Form
from boundflow.sets.set import Set, as_set


def cancelling_rows(shape: tuple[int, ...], dtype: torch.dtype, size: float, seed: int = 0) -> Tensor:
    """Three rows whose sum is exactly 0: whole multiples, below 2^21, of one power of two."""
    random = np.random.default_rng([seed, 7])
    first, second = random.integers(2**20, 2**21, size=(2, *shape)) * random.choice([-1, 1], size=(2, *shape))
    return torch.tensor(np.stack((first, second, -first - second)) * (size / 2**20), dtype=dtype)


def affine(space: bf.Symbols, center: Tensor, rows: Tensor, radius: Tensor | float = 0.0, wide: Any = None) -> Set:
    """The set with this form; its interval is the center alone, if no other is given."""
    bounds = (
        torch.stack((center, center)) if wide is None else torch.stack([torch.zeros_like(center) + end for end in wide])
    )
    radii = torch.zeros_like(center) + radius
    return Set(bounds, Form(center, rows, radii, space.fresh(len(rows))), space)


def narrow(x: Tensor) -> Set:
    """A set of one value that is not known to be a point."""
    return Set(torch.stack((x, x)))


def symbols() -> bf.Symbols:
    return bf.Symbols(bf.threats.Linf(1.0))


def holds(found: Any, value: Exact) -> bool:
    """Whether an exact value is in the bounds of a set and within the radius of its form, with all symbols at 1."""
    made = as_set(found)
    low, high = map(exact, made.bounds)
    within = bool(np.all(low <= value) and np.all(value <= high))
    if made.affine:
        form = made.form.dense
        within &= bool(np.all(np.abs(value - exact(form.center) - total(exact(form.generators))) <= exact(form.radius)))
    return within
