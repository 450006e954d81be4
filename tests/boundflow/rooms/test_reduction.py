"""Promotion and reduction: in every direction, the support afterwards is at least the exact support before.

What a state is before a reduction is kept as fractions, over the symbols it was made of; afterwards it is asked how far
the state reaches in a direction, with the rows and the expansion that the reduction has left.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from exact import ADVERSE, DTYPES, NORMAL, Exact, adverse, exact, product, total
from torch import Tensor

import boundflow as bf
from boundflow.forms import Form
from boundflow.rows import Rows
from boundflow.sets import Set
from boundflow.threats import Linf


class Room:
    """Parameters of one optimizer, all in one row of scalars, and what they are exactly over the symbols there were."""

    def __init__(self, dtype: torch.dtype, size: int, order: int):
        self.space = bf.Symbols(Linf(0.5), order=order)
        module = torch.nn.Linear(size, 1, bias=False).to(dtype)
        bf.lift(module, self.space)
        self.parameter = module.weight
        self.optimizer = torch.optim.SGD([self.parameter], lr=1.0)
        self.space._number(self.optimizer)
        self.dtype, self.size = dtype, size

    def give(self, rows: Rows, generators: Tensor, radius: Tensor) -> None:
        """The parameters as a set with these rows."""
        size = self.size
        form = Form(torch.zeros(1, size, dtype=self.dtype), generators.view(-1, 1, size), radius.view(1, size), rows)
        reach = 4 * (form.reach + 1e-30)
        made = bf.Bounded(Set(torch.stack((-reach, reach)), form, self.space))
        with torch.no_grad():
            self.parameter.copy_(made)

    def support(self, direction: Tensor) -> Exact:
        """How far the parameters reach in a direction, as the library says; directions are of 1, 0 and -1."""
        form = self.parameter.form.dense
        generators = form.generators.reshape(len(form.rows), self.size)
        scaled = generators * direction  # exact
        picked = torch.zeros(1, dtype=self.dtype)
        # one element whose row j is that of scalar j alone: after a reduction the rows are a diagonal
        assert len(form.rows) == self.size and bool((generators == generators.diag().diag()).all())
        one = Form(picked, scaled.diagonal().unsqueeze(1), picked, form.rows)
        assert not bool(form.radius.any())
        return exact(self.space.support(one)[-1, 0])


def directions(size: int, count: int = 10) -> list[Tensor]:
    random = np.random.default_rng(3)
    made = [torch.tensor(random.integers(-1, 2, size)) for _ in range(count)]
    pairs = [torch.zeros(size, dtype=torch.int64) for _ in range(size - 1)]
    for pair, (first, second) in zip(pairs, pairwise(range(size)), strict=True):
        pair[first], pair[second] = 1, -1
    return [*made, *pairs[:10]]


def reach(direction: Tensor, generators: Exact, radius: Exact) -> Exact:
    """The exact support of a zonotope of boxes."""
    along = np.array([int(d) for d in direction.tolist()], dtype=object)
    return total(np.abs(total(generators * along, 1))) + total(radius * np.abs(along))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize(("count", "order"), [(3, 20), (30, 2), (300, 1)])
def test_a_reduction(kind: str, dtype: torch.dtype, count: int, order: int) -> None:
    """Rows are kept, or dropped into a box with the radius: all of them owned, some, or none."""
    size = 6
    room = Room(dtype, size, order)
    generators = adverse(kind, (count, size), dtype)
    radius = adverse(kind, (size,), dtype, 1).abs() * 2.0**-12
    room.give(room.space.fresh(count), generators, radius)
    room.space.reduce(room.optimizer)
    for direction in directions(size):
        assert room.support(direction) >= reach(direction, exact(generators), exact(radius))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("order", [1, 20])
@pytest.mark.parametrize("cancels", [False, True])
def test_one_reduction_after_the_other(kind: str, dtype: torch.dtype, order: int, cancels: bool) -> None:
    """A derived symbol is ``(state - center) / scale`` exactly; its expansion is rounded, and so are products."""
    size, count = 6, 40
    room = Room(dtype, size, order=20)
    first = adverse(kind, (count, size), dtype)
    if cancels:  # scalars that are nearly the same, of which the next state is the difference
        first = first[:, :1] * torch.tensor([1 + k * 2.0**-20 for k in range(size)], dtype=dtype)
    rows = room.space.fresh(count)
    room.give(rows, first, torch.zeros(size, dtype=dtype))
    room.space.reduce(room.optimizer)
    form = room.parameter.form.dense
    scale = exact(form.generators.reshape(size, size).diagonal())
    meaning = exact(first).T / scale[:, None]  # (derived, symbols)
    mixing = adverse(kind, (size, size), dtype, 4)
    if cancels:
        mixing = torch.eye(size, dtype=dtype) - torch.eye(size, dtype=dtype).roll(1, 0)
    fresh = adverse(kind, (count, size), dtype, 5) * 2.0**-8  # rows of symbols that the expansion knows
    both = Rows(np.concatenate((form.rows.numbers, rows.numbers)))
    room.give(both, torch.cat((mixing, fresh)), torch.zeros(size, dtype=dtype))
    wanted = product(meaning.T, exact(mixing)) + exact(fresh)  # (symbols, size)
    room.space.order = order
    room.space.reduce(room.optimizer)
    for direction in directions(size):
        assert room.support(direction) >= reach(direction, wanted, exact(torch.zeros(size)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
def test_a_promotion_is_the_same_set(kind: str, dtype: torch.dtype) -> None:
    size = 4
    room = Room(dtype, size, 20)
    generators, radius = adverse(kind, (3, size), dtype), adverse(kind, (size,), dtype, 1).abs()
    form = Form(
        torch.zeros(1, size, dtype=dtype), generators.view(3, 1, size), radius.view(1, size), room.space.fresh(3)
    )
    bounds = torch.stack((-4 * form.reach, 4 * form.reach))
    room.parameter.grad = bf.Bounded(Set(bounds, form, room.space))
    room.space.promote(room.optimizer)
    made = room.parameter.grad.form.dense
    assert np.array_equal(exact(made.generators[:3, 0]), exact(generators)) and not bool(made.radius.any())
    assert np.array_equal(exact(made.generators[3:, 0]), exact(radius.diag()))
