"""Rows on several processes: what all ranks add up is never less than in exact arithmetic, and the same on each.

Ranks are threads here that wait for each other, so that laws need no processes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from exact import DTYPES, UNIT, adverse, at_least, exact, product, total
from exact_support import exact_support
from symbol_rooms import SAMPLES, Room, spaces
from torch import Tensor

import boundflow as bf
from boundflow.arithmetic.thread_context import using
from boundflow.fast.processes.ranks import Ranks
from boundflow.fast.processes.row_placement import Shares
from boundflow.sets.forms import Form
from boundflow.sets.sample_axis import SampleAxis, Samples
from boundflow.symbols.budgets import Columns, Kind, Part
from boundflow.symbols.rows import Rows
from boundflow.threats import Linf


class InThreads(Ranks):
    """A rank that is a thread: messages lie on a table."""

    def __init__(self, rank: int, table: list[Any], barrier: threading.Barrier):
        self.rank, self.count, self.table, self.barrier = rank, len(table), table, barrier

    def gathered(self, what: str, x: Tensor) -> Tensor:
        self.table[self.rank] = what, x
        self.barrier.wait()
        names, parts = zip(*self.table, strict=True)
        self.barrier.wait()
        assert len(set(names)) == 1, names
        return torch.stack(parts)


def together(count: int, f: Callable[[Ranks], Any]) -> list[Any]:
    """What f gives on every rank."""
    table, barrier, found = [None] * count, threading.Barrier(count, timeout=20), [None] * count
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            found[rank] = f(InThreads(rank, table, barrier))
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found


def shared(room: Room, ranks: Ranks) -> Shares:
    """A space of which this rank has its share."""
    shares = Shares(ranks, room.space, SAMPLES)
    room.space.arithmetic = replace(room.space.arithmetic, shares=shares)
    if room.space.expansion is not None:
        room.space.expands(room.kept, shares.part_of(room.space.expansion))
    return shares


def at_home(room: Room, shares: Shares, rows: Rows, generators: Tensor) -> Form:
    """A form as a rank has it: the rows of its samples, and all that belong to nobody."""
    kept = (room.space.owners_and_parts(rows.numbers)[0] < 0) | shares.here(rows.numbers)
    shape = generators.shape[1:]
    zeros = torch.zeros(shape, dtype=generators.dtype)
    return Form(zeros, generators[torch.from_numpy(kept)], zeros, Rows(rows.numbers[kept]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [2, 3, 40])
@pytest.mark.parametrize("kind", ["one sign", "swallowed", "mixed sizes"])
def test_totals_of_ranks(kind: str, count: int, dtype: torch.dtype) -> None:
    values = adverse(kind, (count, 50), dtype).abs()
    found = together(count, lambda ranks: ranks.total("numbers", values[ranks.rank]))
    assert at_least(found[0], total(exact(values))) and all(torch.equal(found[0], each) for each in found)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [2, 3])
def test_moduli_of_rows(count: int, dtype: torch.dtype) -> None:
    generators = adverse("swallowed", (SAMPLES * 3 + 4, 5), dtype)

    def found(ranks: Ranks) -> Tensor:
        room = Room(Linf(0.5), "one sign", dtype, 0)
        shares = shared(room, ranks)
        with using(room.space.arithmetic):
            form = at_home(room, shares, room.deep, generators)
            return shares.moduli(form.generators, form.rows)

    reaches = together(count, found)
    assert at_least(reaches[0], total(abs(exact(generators)))) and all(torch.equal(reaches[0], x) for x in reaches)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_radius_beside_rows_of_several_ranks(dtype: torch.dtype) -> None:
    """A row that is less than half a unit of the radius, and lost when it is added to that."""
    generators = torch.zeros(SAMPLES * 3 + 4, 1, dtype=dtype)
    generators[0] = 0.98 * UNIT[dtype]

    def found(ranks: Ranks) -> Tensor:
        room = Room(Linf(0.5), "one sign", dtype, 0)
        form = at_home(room, shared(room, ranks), room.deep, generators).with_radius(torch.ones(1, dtype=dtype))
        with using(room.space.arithmetic):
            for name in ("row_moduli", "reach"):  # cached properties have one lock for all threads
                form.__dict__[name] = Form.__dict__[name].func(form)
            reach: Tensor = form.__dict__["reach"]
            return reach

    assert at_least(together(2, found)[0], 1 + total(exact(generators)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("threat", spaces())
@pytest.mark.parametrize("derived", [0, 2, 20])
@pytest.mark.parametrize("count", [2, 3])
def test_the_support_of_a_form(threat: str, dtype: torch.dtype, derived: int, count: int) -> None:
    """Symbols of one rank and of several, within budgets that span them, and derived ones that are looked through."""
    whole = Room(spaces()[threat], "mixed sizes", dtype, derived)
    younger = whole.space.fresh(2).numbers
    numbers = np.concatenate((whole.deep.numbers, younger, *((whole.derived.numbers,) if derived else ())))
    generators = adverse("mixed sizes", (len(numbers), 5), dtype, 2)

    def found(ranks: Ranks) -> Tensor:
        room = Room(spaces()[threat], "mixed sizes", dtype, derived)
        assert np.array_equal(room.space.fresh(2).numbers, younger)
        shares = shared(room, ranks)
        with using(room.space.arithmetic):
            return room.space.support(at_home(room, shares, Rows(numbers), generators)).expand(2, 5)

    reaches = together(count, found)
    assert all(torch.equal(reaches[0], each) for each in reaches)
    zeros = torch.zeros(5, dtype=dtype)
    alone = whole.space.support(Form(zeros, generators, zeros, Rows(numbers))).expand(2, 5)
    torch.testing.assert_close(reaches[0], alone, rtol=400 * UNIT[dtype], atol=0.0)
    values, plain = exact(generators), len(whole.deep) + 2
    over = values[:plain].copy()
    if derived:
        over[: len(whole.deep)] += product(whole.weights.T, values[plain:])
    for element in range(5):
        down, up = exact_support(whole.space, numbers[:plain], over[:, element])
        assert exact(reaches[0][0, element]) >= down and exact(reaches[0][1, element]) >= up


@pytest.mark.parametrize("threat", spaces())
@pytest.mark.parametrize("derived", [0, 12])
def test_own_rows_count_at_the_home_of_their_sample(threat: str, derived: int) -> None:
    """Both states: as one process has them."""

    def form(room: Room) -> Form:
        rows = room.own.union(room.derived) if derived else room.own
        generators = adverse("near one", (len(rows), SAMPLES, 2), torch.float64, 3)
        zeros = torch.zeros(SAMPLES, 2, dtype=torch.float64)
        along = SampleAxis(-2, Samples(np.arange(SAMPLES), batch=room.batch))
        return Form(zeros, generators, zeros, rows, along)

    def found(ranks: Ranks) -> Tensor:
        room = Room(spaces()[threat], "near one", torch.float64, derived)
        shared(room, ranks)
        with using(room.space.arithmetic):
            return room.space.support(form(room), True)

    reaches = together(2, found)
    room = Room(spaces()[threat], "near one", torch.float64, derived)
    alone = room.space.support(form(room), True)
    assert torch.equal(*reaches)
    torch.testing.assert_close(reaches[0], alone, rtol=1e-13, atol=0.0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_many_clauses(dtype: torch.dtype, clauses: int = 60) -> None:
    """Every clause is added to the total, and what is less than half a unit of it is lost each time."""
    values = torch.full((3, clauses), 0.98 * UNIT[dtype], dtype=dtype)
    values[:, 0] = 1.0
    table = [Part(Kind.BOX, clause) for clause in range(clauses)]

    def found(ranks: Ranks) -> Tensor:
        space = bf.Symbols(Linf(0.5))
        space.table, space.budgets = table, [1] * clauses
        mine = np.arange(clauses) % ranks.count == ranks.rank
        columns = Columns(np.flatnonzero(mine), np.flatnonzero(mine), table, space.budgets, values.device)
        return Shares(ranks, space, clauses).reach(columns, values[:, torch.from_numpy(mine)], torch.zeros(3).to(dtype))

    assert at_least(together(2, found)[0], total(exact(values), 1))
