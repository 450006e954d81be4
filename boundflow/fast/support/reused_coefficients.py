"""Deep coefficients of lines that come again as multiples, on a GPU, as its kernels take them.

The gradient of two classes is a function of one difference of logits, so its rows are multiples of those of the
difference, up to roundings. With E what derived symbols stand for, and any number r for each line,

    g = r d + R      (rows over the derived symbols)      gives      g E = r (d E) + R E,      |R E xi| <= sum_p |R_p|,

since a derived symbol is at most 1 in modulus. So nothing has to be known of where the lines come from: r is read off
the largest entry of d, and R is paid for. One of the two largest products of a step is saved.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...arithmetic import rounding
from . import gpu_kernels

# Of rows that are multiples, no more than this share is rest; roundings leave 1e-16 of them.
MOST_REST = 1e-9


class Multiple(NamedTuple):
    """Some lines as multiples of kept ones."""

    factor: Tensor  # (lines)
    packed: list[Tensor]  # by group of owners, (lines, owners / 32, 1, width, 32)
    moduli: Tensor  # (lines, 1): the support of their moduli
    error: Tensor  # (lines, 1): what they may be off by, summed


class KeptLines:
    """Lines (n) over derived symbols of these numbers, and their deep coefficients in float32 by groups of owners."""

    def __init__(self, elements: Tensor, numbers: np.ndarray, columns: list[Tensor]):
        self.elements, self.numbers, self.columns = elements.double(), numbers, columns
        shapes = [(len(elements), len(part) // 32, 1, part.shape[1], 32) for part in columns]
        self.packed = [elements.new_empty(shape, dtype=torch.float32) for shape in shapes]
        # the support of their moduli, which the support function fills in, and what they may be off by, summed
        self.moduli, self.error = (elements.new_empty(len(elements), dtype=torch.float64) for _ in range(2))

    def hold(self, begin: int, deep: Tensor, error: Tensor) -> None:
        """The deep coefficients (lines, symbols) of the lines from ``begin`` on, and what they may be off by."""
        here = slice(begin, begin + len(deep))
        for packed, columns in zip(self.packed, self.columns, strict=True):
            packed[here] = gpu_kernels.packed_mixed(deep.unsqueeze(1), columns)
        self.error[here] = error

    def multiple(self, wanted: Tensor, begin: int, looked_at: bool) -> Multiple | None:
        """Lines (n, derived) over the same symbols that are multiples of those from ``begin`` on; None if they are not.

        Lines that come after some that were ``looked_at`` are taken for multiples as well, whatever is paid for R: a
        GPU is waited for once. Differences are rounded, so R is charged for as many roundings as a product takes.
        Factors above 1 would make more of what float32 has lost to underflow, and are cut off: any factor will do.
        """
        wanted, here = wanted.double(), slice(begin, begin + len(wanted))
        known = self.elements[here]
        place = known.abs().argmax(1, keepdim=True)
        largest = known.gather(1, place)
        factor = torch.where(largest != 0, wanted.gather(1, place) / largest, 0.0).clamp(-1.0, 1.0)
        rest, size = (wanted - factor * known).abs().sum(1), wanted.abs().sum(1)
        if not looked_at and not bool(rest.sum() <= MOST_REST * size.sum()):
            return None
        factor = factor.squeeze(1)
        unit = rounding.of_ours(wanted.shape[1] + 4, torch.float64)
        error = factor.abs() * self.error[here] + (rest + unit * size) * (1 + unit)
        shape = (-1, 1, 1, 1, 1)
        packed = [part[here] * factor.float().view(shape) for part in self.packed]
        moduli = factor.abs() * self.moduli[here]
        return Multiple(factor, packed, moduli.unsqueeze(1), error.unsqueeze(1))
