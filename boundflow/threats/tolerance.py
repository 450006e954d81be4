"""A table whose columns are only known up to a tolerance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ..arithmetic import rounding
from .moves import Moved, amount, valid_range


class Tolerance(Moved):
    """A table whose columns are only known up to a tolerance: ``{column: amount}``.

    A column is its number, or its name in ``columns``; an amount is in the units of the column, or a share of the
    observed value as "5%". A missing value is anything in its range already: a share adds nothing to it.
    """

    def __init__(
        self,
        tolerances: Mapping[int, float | str] | Mapping[str, float | str],
        columns: Sequence[str] | None = None,
        clip: tuple[float, float] | None = None,
    ):
        self.columns, self.clip = list(columns) if columns is not None else None, valid_range(clip)
        self.absolute: dict[int, float] = {}
        self.relative: dict[int, float] = {}
        self._as_given: dict[int, float | str] = {}
        for column, given in tolerances.items():
            number = self._number(column)
            if number in self._as_given:
                raise ValueError(f"two tolerances for the column {column!r}")
            if isinstance(given, str) and given.strip().endswith("%"):
                self.relative[number] = float(amount(float(given.strip()[:-1]) / 100, "a tolerance"))
                self._as_given[number] = given.strip()
            else:
                self.absolute[number] = self._as_given[number] = float(amount(float(given), "a tolerance"))

    def _number(self, column: int | str) -> int:
        """The number of a column, which may be given by its name."""
        if isinstance(column, str) and (self.columns is None or column not in self.columns):
            known = "give the names as columns=[...]" if self.columns is None else f"there are {self.columns}"
            raise ValueError(f"a tolerance for the column {column!r}: {known}")
        number = self.columns.index(column) if isinstance(column, str) and self.columns else int(column)
        if number < 0:
            raise ValueError(f"a tolerance for the column {column}: columns are counted from 0")
        return number

    def __repr__(self) -> str:
        return f"Tolerance({self._as_given}{self._options()}{self._restricted()}"

    def without_radius(self) -> str:
        """The columns of amounts; where a share is among them there is no one radius, and `exactly` is compared."""
        moving = sorted(column for column, found in self.absolute.items() if found)
        return f"Tolerance({moving}, {self.relative}{self._options()}{self._restricted()}"

    def moving(self, x: Tensor) -> Tensor:
        chosen = [column for part in (self.absolute, self.relative) for column, found in part.items() if found]
        moving = torch.zeros(x.shape[1:], dtype=torch.bool, device=x.device)
        moving[chosen] = True
        return moving

    def amounts(self, x: Tensor) -> Tensor:
        if x.dim() != 2:
            raise ValueError(f"tolerances are for tables of rows and columns, and the data have shape {tuple(x.shape)}")
        worst = max(self._as_given, default=-1)
        if worst >= x.shape[1]:
            raise ValueError(f"a tolerance for column {worst}, and the data have {x.shape[1]} columns")
        amounts = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
        for column, found in self.absolute.items():
            amounts[:, column] = found
        for column, share in self.relative.items():
            amounts[:, column] = rounding.share_of(x[:, column], share)
        return amounts
