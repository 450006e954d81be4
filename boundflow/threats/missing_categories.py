"""Missing categories, which may have been any of their column: ``p + sum_c a_c (e_c - p)``, a in the simplex.

With a symbol for each of the C categories, one of them at 1 gives that category, and all at 0 the stand-in p, which
ordinary training sees: near 1/C everywhere. It is a multiple of 2^-20, not above 1/C, so that ``e_c - p`` and its sum
with p are exact in every precision from float32 on, and nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..symbols.budgets import Kind
from .base import Change
from .deviation import Deviation

GRID = 2.0**20


class MissingCategory(Change):
    """One group of one-hot columns in which NaN stands for a category that is not known: it may have been any.

    What is missing has no clean state, so it stays outside every budget.
    """

    kind = Kind.SIMPLEX
    has_clean_state = False

    def __init__(self, columns: Sequence[int]):
        self.columns = [int(column) for column in columns]
        if min(self.columns, default=-1) < 0 or len(set(self.columns)) < len(self.columns):
            raise ValueError(f"a missing category needs columns, each once, counted from 0, not {self.columns}")
        self.column = np.array(self.columns)

    def __repr__(self) -> str:
        return f"MissingCategory({self.columns!r}){self._restricted()}"

    @property
    def level(self) -> float:
        """The stand-in, in every column of the group."""
        return (GRID // len(self.columns)) / GRID

    def _missing(self, x: Tensor) -> Tensor:
        """Which samples have no category; where some columns of the group are missing, all must be."""
        if x.dim() != 2 or max(self.columns) >= x.shape[1]:
            raise ValueError(f"the columns {self.columns} do not fit data of shape {tuple(x.shape)}")
        holes = torch.isnan(x[:, self.columns])
        if bool((holes.any(1) != holes.all(1)).any()):
            raise ValueError(f"the columns {self.columns} must be missing together: they are one category")
        return holes.all(1)

    def stand_in(self, x: Tensor) -> Tensor:
        filled = x.clone()
        filled[self._missing(x).unsqueeze(1) & self._mask(x)] = self.level
        return filled

    def _mask(self, x: Tensor) -> Tensor:
        """The columns of the group, (1, features)."""
        mask = torch.zeros(1, x.shape[1], dtype=torch.bool, device=x.device)
        mask[:, self.columns] = True
        return mask

    def deviation(self, values: Tensor, raw: Tensor, budgeted: bool) -> Deviation:
        missing = self._missing(raw)
        touched = missing.unsqueeze(1) & self._mask(raw)
        corners = torch.eye(len(self.columns), dtype=values.dtype, device=values.device) - self.level
        generators = values.new_zeros(len(self.columns), *values.shape)
        generators[:, :, self.columns] = corners.unsqueeze(1) * missing.unsqueeze(1)
        low, high = torch.where(touched, 0.0, values), torch.where(touched, 1.0, values)
        return Deviation(values, generators, torch.stack((low, high)))
