"""Products of matrices without negative numbers, for radii: of large ones on a GPU in half the digits, and paid for.

Nobody needs the last digits of a radius, and matrix units take bfloat16 at many times the rate of float32. With x1 the
bfloat16 number nearest to x, and x2 that nearest to what is left,

    x y  <=  (x1 y1 + x1 y2 + x2 y1) (1 + 2^-13 + 4 n u)          summed over n terms in float32.

Proof: bfloat16 has 8 bits, so ``|x - x1| <= 2^-8 x`` and ``|x - x1 - x2| <= 2^-16 x``. What is missed is x2 y2 and what
is left of x and y, three times 2^-16 x y and terms of higher order, less than 2^-14 x y. Matrix units add products in
float32 and cut digits off instead of rounding, blocks of 16 at a time with two digits more: about 1.2 n u in all, where
4 n u are paid for. No factor is below 2^-100 here, so that nothing of it is subnormal; products that are, are less than
what every rule adds for underflow.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..arithmetic.tuned_numbers import LARGE_PRODUCT

Product = Callable[[Tensor, Tensor], Tensor]

LEAST = 2.0**-100
MISSED = 2.0**-13


def upper_product(f: Product, x: Tensor, y: Tensor) -> Tensor:
    """f(x, y) of factors that are not negative: as f computes it, or not less than it is."""
    if not _large_on_a_gpu(f, x, y):
        return f(x, y)
    (x1, x2), (y1, y2) = _halves(x), _halves(y)
    total = _narrow(x1, y1) + (_narrow(x1, y2) + _narrow(x2, y1))
    return total * (1 + MISSED + rounding.of_ours(2 * x.shape[1], torch.float32))


def _large_on_a_gpu(f: Product, x: Tensor, y: Tensor) -> bool:
    if f is not torch.mm or not x.is_cuda or x.dtype is not torch.float32 or rounding.mode() != "outward":
        return False
    return x.numel() * y.shape[1] >= LARGE_PRODUCT and torch.cuda.get_device_capability(x.device) >= (8, 0)


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """The first eight bits of each number, and the next eight."""
    x = x.clamp_min(LEAST)
    first = x.bfloat16()
    return first, (x - first.float()).bfloat16()


def _narrow(x: Tensor, y: Tensor) -> Tensor:
    """A product of bfloat16 numbers, added up and put out in float32."""
    return torch.mm(x, y, out_dtype=torch.float32)
