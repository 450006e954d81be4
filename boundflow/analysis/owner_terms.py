"""Whose symbols an element leans on: the terms of its support by owner and by column.

    h(g) = sum over clauses of the k largest t_i  +  sum over free rows |g|,     t_i = sum over the parts of sample i

where a term is the sum, the norm or the largest of the coefficients of one sample, by the kind of the part
(`budgets.py`). Here the terms t_i are given one by one, over the deep symbols of the expansion. The reach of one column
is what is left of h where only the symbols of that column are not 0: columns add up to at least the whole.

These numbers explain a bound and choose what to check first. No claim rests on them, so nothing is rounded outwards:
what is certain after checking is answered again with the symbols fixed (`verified_rows.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..sets.forms import Form
from ..symbols.budgets import Kind
from ..symbols.rows import Rows
from ..symbols.space import Symbols


class OwnerTerms(NamedTuple):
    """The terms of one clause: how far each owner alone can move each element down and up, (2, elements, owners)."""

    budget: int | None
    owners: np.ndarray
    values: Tensor

    def counted(self) -> Tensor:
        """The terms that count: all of them, or the k largest of each element, and 0 for the others."""
        if self.budget is None or self.budget >= len(self.owners):
            return self.values
        largest, places = torch.topk(self.values, self.budget, dim=-1)
        return torch.zeros_like(self.values).scatter_(-1, places, largest)


class Coefficients(NamedTuple):
    """Elements over deep symbols, (elements, symbols), and the numbers of these."""

    values: Tensor
    numbers: np.ndarray

    def of(self, held: np.ndarray) -> Coefficients:
        """Only some of the symbols."""
        where = torch.from_numpy(np.flatnonzero(held)).to(self.values.device)
        return Coefficients(self.values[:, where], self.numbers[held])


def without_inputs(form: Form) -> Form:
    """A form without the own rows of the inputs it was computed from."""
    if form.rows.batch is None:
        return form
    rows, where, _ = form.rows.split(form.center.device)
    return Form(form.center, form.generators[where], form.radius, Rows(rows.numbers))


def coefficients(space: Symbols, form: Form) -> Coefficients:
    """The coefficients of all elements of a form, without own rows, over symbols that are not derived."""
    written, deep, _ = space.expand(form.generators.reshape(len(form.rows), form.center.numel()), form.rows)
    return Coefficients(written.T, deep.numbers)


def by_owner(space: Symbols, given: Coefficients) -> list[OwnerTerms]:
    """The terms of every clause, owner by owner."""
    owners, parts = space.owners_and_parts(given.numbers)
    found = []
    for clause, budget in enumerate(space.budgets):
        members = [number for number, part in enumerate(space.table) if part.clause == clause]
        held = np.isin(parts, members)
        if not held.any():
            continue
        distinct = np.unique(owners[held])
        values = given.values.new_zeros(2, len(given.values), len(distinct))
        for number in members:
            mine = parts == number
            if mine.any():
                places = torch.from_numpy(np.searchsorted(distinct, owners[mine])).to(values.device)
                values += _terms(space.table[number].kind, given.of(mine).values, places, len(distinct))
        found.append(OwnerTerms(budget, distinct, values))
    return found


def by_column(space: Symbols, given: Coefficients) -> tuple[np.ndarray, Tensor]:
    """Columns, and how far each alone reaches within its budget: (2, elements, columns)."""
    owned = space.owners_and_parts(given.numbers)[1] >= 0
    columns = columns_of(space, given.numbers)
    distinct = np.unique(columns[owned])
    reaches = [total(by_owner(space, given.of(owned & (columns == column)))) for column in distinct.tolist()]
    empty = given.values.new_zeros(2, len(given.values), 0)
    return distinct, torch.stack(reaches, -1) if reaches else empty


def columns_of(space: Symbols, numbers: np.ndarray) -> np.ndarray:
    """The column that each symbol moves; the columns of one category count as the first of them."""
    columns, parts = space.columns(numbers), space.owners_and_parts(numbers)[1]
    for number, part in enumerate(space.table):
        mine = (parts == number) & (columns >= 0)
        if part.kind is Kind.SIMPLEX and mine.any():
            columns[mine] = columns[mine].min()
    return columns


def total(terms: Sequence[OwnerTerms]) -> Tensor:
    """How far all owners reach together, within their budgets, (2, elements)."""
    found: Tensor = sum(part.counted().sum(-1) for part in terms)  # type: ignore[assignment]
    return found


def _terms(kind: Kind, given: Tensor, places: Tensor, owners: int) -> Tensor:
    """The terms of one part, down and up, of owners at these places."""
    zeros = given.new_zeros(len(given), owners)
    if kind is Kind.BOX:
        return zeros.index_add(1, places, given.abs()).expand(2, -1, -1)
    if kind is Kind.BALL:
        return zeros.index_add(1, places, given * given).sqrt().expand(2, -1, -1)
    ends = torch.stack((given.abs(), given.abs()) if kind is Kind.CROSS else (-given, given))
    index = places.expand(2, len(given), -1)
    return zeros.repeat(2, 1, 1).scatter_reduce(2, index, ends, "amax")
