"""Exact arithmetic for laws, and operands that are chosen to lose as much as possible to rounding.

Floats are rational numbers (python-flint has fast ones). An array of them adds, multiplies and compares without a
rounding: numpy does that with objects.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from flint import fmpq
from torch import Tensor

Exact = np.ndarray  # of rational numbers
ADVERSE = ("one sign", "swallowed", "near one", "mixed sizes", "cancelling", "tiny", "subnormal")
UNDERFLOW = ("tiny", "subnormal")  # products of these are lost: the radii of rules pay for that, by `rounding.tiny`
NORMAL = tuple(kind for kind in ADVERSE if kind not in UNDERFLOW)
DTYPES = (torch.float32, torch.float64)
UNIT = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}
LEAST = {torch.float32: 2.0**-149, torch.float64: 2.0**-1074}  # the smallest subnormal number


def number(value: float | str) -> Any:
    """A float, or what a text says, exactly."""
    return fmpq(*(Fraction(value) if isinstance(value, str) else value).as_integer_ratio())


def exact(x: Tensor | np.ndarray | float) -> Exact:
    """The very numbers of a tensor."""
    values = np.asarray(x.detach().double().numpy() if isinstance(x, Tensor) else x, dtype=np.float64)
    flat = np.array([number(value) for value in values.flatten().tolist()] + [None], dtype=object)[:-1]
    return flat.reshape(values.shape)


def total(x: Exact, axis: int = 0) -> Exact:
    """The sum along an axis; of nothing it is 0."""
    return np.add.reduce(x, axis=axis, initial=number(0))


def product(x: Exact, y: Exact) -> Exact:
    """A matrix product."""
    return total(x[:, :, None] * y[None, :, :], 1)


def at_least(found: Tensor, wanted: Any) -> bool:
    """Whether what was computed is nowhere less than what is exact."""
    return bool(np.all(exact(found) >= wanted))


def norm_at_least(found: Tensor, squares: Any) -> bool:
    """Whether what was computed is nowhere less than the square root of what is exact."""
    return bool(np.all(exact(found) ** 2 >= squares)) and bool((found >= 0).all())


def root(square: Any) -> Any:
    """A rational number next to a square root, from below: 200 bits of it."""
    return fmpq(math.isqrt(int(square.p) * 4**200 // int(square.q)), 2**200)


def adverse(kind: str, shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Numbers whose sums, differences and products round badly, and always to the same side if possible."""
    random = np.random.default_rng([seed, ADVERSE.index(kind)])
    unit, sign = UNIT[dtype], random.choice([-1.0, 1.0], size=shape)
    if kind == "one sign":  # nearly the same number again and again: sums round to the same side again and again
        values = random.uniform(0.3, 0.34, size=(1, *shape[1:])) * (1 + 2 * unit * random.integers(0, 3, size=shape))
    elif kind == "swallowed":  # less than half a unit of the first: each is lost when it is added to that
        values = np.full(shape, 0.98 * unit)
        values[:1] = 1.0
    elif kind == "near one":
        values = sign * (1 + 2 * unit * random.integers(0, 9, size=shape))
    elif kind == "mixed sizes":
        values = sign * random.uniform(1, 2, size=shape) * 2.0 ** random.integers(-26, 3, size=shape)
    elif kind == "cancelling":
        values = np.where(np.arange(shape[0]).reshape(-1, *(1,) * (len(shape) - 1)) % 2 == 0, 1.0, -1.0)
        values = values * (1 + 2 * unit * random.integers(-8, 9, size=shape))
    elif kind == "subnormal":
        values = sign * torch.finfo(dtype).smallest_normal * 2 * unit * random.integers(1, 9, size=shape)
    else:
        values = sign * torch.finfo(dtype).tiny * random.uniform(0.1, 4, size=shape)
    return torch.tensor(values, dtype=dtype)
