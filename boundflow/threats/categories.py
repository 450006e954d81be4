"""Categories that may have been others: groups of one-hot columns, each a simplex of its own (`one_hot.py`).

Whoever can write any word into a cell can write one that has no column: what becomes of it is a row of zeros. It is a
corner of its own, since no convex combination of one-hot rows is zero.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from ..symbols.budgets import Kind
from ..tensor.lift import Given
from .base import Change, Clause, Threat
from .deviation import Deviation
from .one_hot import alternatives, alternatives_or_none, check_one_hot


class Category(Change):
    """One group of one-hot columns whose category may have been any other.

    With ``unknown`` also one that has no column, a row of zeros; and such rows may have been any category.
    """

    kind = Kind.SIMPLEX

    def __init__(self, columns: Sequence[int], unknown: bool = False):
        self.columns, self.unknown = [int(column) for column in columns], bool(unknown)
        if min(self.columns, default=-1) < 0:
            raise ValueError(f"a category needs columns, counted from 0, not {self.columns}")
        self.column = min(self.columns)  # by which an audit names the group

    def __repr__(self) -> str:
        return f"Category({self.columns!r}{', unknown=True' if self.unknown else ''}){self._restricted()}"

    def fits(self, x: Tensor, y: Tensor) -> None:
        check_one_hot(self._group(x), f"the columns {self.columns}", self.unknown)

    def _group(self, x: Tensor) -> Tensor:
        if x.dim() != 2 or max(self.columns) >= x.shape[1]:
            raise ValueError(f"the columns {self.columns} do not fit data of shape {tuple(x.shape)}")
        return x[:, self.columns]

    def deviation(self, values: Tensor, raw: Tensor, budgeted: bool) -> Deviation:
        others = alternatives_or_none if self.unknown else alternatives
        rows = others(self._group(values), f"the columns {self.columns}")
        generators = values.new_zeros(len(rows), *values.shape)
        generators[:, :, self.columns] = rows
        low, high = values.clone(), values.clone()
        low[:, self.columns], high[:, self.columns] = 0.0, 1.0
        return Deviation(values, generators, torch.stack((low, high)))


class Categories(Threat):
    """Groups of one-hot columns whose category may have been any other of its group: ``[[3, 4, 5], [6, 7]]``."""

    def __init__(self, groups: Sequence[Sequence[int]]):
        flat = [int(column) for group in groups for column in group]
        if len(set(flat)) != len(flat) or any(len(group) < 2 for group in groups):
            raise ValueError("each group needs two columns or more, and no column may be in two groups")
        self.groups: tuple[Change, ...] = tuple(Category(group) for group in groups)

    def __repr__(self) -> str:
        columns = [group.columns for group in self.groups if isinstance(group, Category)]
        return f"Categories({columns!r}){self.groups[0]._restricted() if self.groups else ''}"

    def on(self, samples: Given | None = None, features: Given | None = None) -> Categories:
        """The same of some samples only: numbers, or a mask over the dataset."""
        if features is not None:
            raise ValueError("a category is another one in all of its columns or in none: choose groups, not features")
        restricted = copy.copy(self)
        restricted.groups = tuple(group.on(samples=samples) for group in self.groups)
        return restricted

    @property
    def clauses(self) -> tuple[Clause, ...]:
        return (Clause(None, self.groups),)
