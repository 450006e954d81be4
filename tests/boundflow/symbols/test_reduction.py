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
from boundflow.sets.forms import Form
from boundflow.sets.set import Set
from boundflow.symbols.rows import Rows
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


class Twice:
    """A state that was reduced, and the next one, which is made of its derived symbols and of those it had before."""

    def __init__(self, first: Tensor):
        """``first`` are the rows of the scalars, (symbols, size)."""
        self.first, self.size = first, first.shape[1]
        self.room = Room(first.dtype, self.size, order=20)
        self.symbols = self.room.space.fresh(len(first))
        self.room.give(self.symbols, first, torch.zeros(self.size, dtype=first.dtype))
        self.room.space.reduce(self.room.optimizer)
        form = self.room.parameter.form.dense
        self.derived, self.scale = form.rows, form.generators.reshape(self.size, self.size).diagonal()

    def holds(self, mixing: Tensor, known: Tensor, order: int) -> None:
        """The next state, with rows ``mixing`` of derived symbols and ``known`` of those before, is reduced as well.

        A derived symbol is ``(state - center) / scale`` exactly, whatever the expansion says.
        """
        room, both = self.room, Rows(np.concatenate((self.derived.numbers, self.symbols.numbers)))
        room.give(both, torch.cat((mixing, known)), torch.zeros(self.size, dtype=mixing.dtype))
        wanted = product(exact(self.first) / exact(self.scale), exact(mixing)) + exact(known)  # (symbols, size)
        room.space.order = order
        room.space.reduce(room.optimizer)
        for direction in directions(self.size):
            assert room.support(direction) >= reach(direction, wanted, exact(torch.zeros(self.size)))


def nearly_the_same(rows: Tensor, size: int) -> Tensor:
    """Scalars, each of which is the first a little longer."""
    return rows[:, :1] * torch.tensor([1 + k * 2.0**-20 for k in range(size)], dtype=rows.dtype)


def differences(size: int, dtype: torch.dtype) -> Tensor:
    """Every scalar less the next one."""
    return torch.eye(size, dtype=dtype) - torch.eye(size, dtype=dtype).roll(1, 0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("order", [1, 20])
@pytest.mark.parametrize("cancels", [False, True])
def test_one_reduction_after_the_other(kind: str, dtype: torch.dtype, order: int, cancels: bool) -> None:
    """An expansion is rounded, and so are products with it; ``cancels``: the next state is a difference of scalars."""
    size, count = 6, 40
    first, mixing = adverse(kind, (count, size), dtype), adverse(kind, (size, size), dtype, 4)
    if cancels:
        first, mixing = nearly_the_same(first, size), differences(size, dtype)
    Twice(first).holds(mixing, adverse(kind, (count, size), dtype, 5) * 2.0**-8, order)


def lost_by_an_expansion(rows: Tensor) -> tuple[Twice, Tensor, Tensor]:
    """Rows of the symbols before take away all that the floats of the expansion say, and not what they stand for.

    The coefficients are 0 in whatever order they are summed, and the exact ones are the roundings of divisions.
    """
    twice = Twice(rows)
    return twice, torch.eye(twice.size, dtype=rows.dtype), -(rows / twice.scale)


def lost_by_a_difference(rows: Tensor) -> tuple[Twice, Tensor, Tensor]:
    """Scalars that are nearly the same have expansions that are, up to their roundings."""
    size = rows.shape[1]
    return Twice(nearly_the_same(rows, size)), differences(size, rows.dtype), torch.zeros_like(rows)


def lost_by_a_product(rows: Tensor) -> tuple[Twice, Tensor, Tensor]:
    """Scalars that are the same: the first less the last, and less than half a unit of each of the others."""
    size = rows.shape[1]
    mixing = 0.5 * adverse("swallowed", (size, size), rows.dtype)
    mixing[0], mixing[-1] = 1.0, -1.0
    return Twice(rows[:, :1].repeat(1, size)), mixing, torch.zeros_like(rows)


LOST = {"an expansion": lost_by_an_expansion, "a difference": lost_by_a_difference, "a product": lost_by_a_product}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("size", [3, 6, 40])
@pytest.mark.parametrize("order", [1, 20])
@pytest.mark.parametrize("what", LOST)
def test_nothing_but_roundings_is_left(what: str, kind: str, dtype: torch.dtype, size: int, order: int) -> None:
    """Of a state that would be 0 without roundings, all that it reaches is what its expansion was off by.

    Nothing else may be in it. Whenever a derived symbol is used, many roundings of all that it stands for are charged:
    where a state is not much shorter than what it was made of, these would pay for what is lost here as well.
    """
    twice, mixing, known = LOST[what](adverse(kind, (4, size), dtype))
    twice.holds(mixing, known, order)


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
