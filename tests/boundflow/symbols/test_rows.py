"""Rows are matched by number: run by run where there are few, and one by one otherwise, with the same answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from boundflow.sets.sample_axis import SampleAxis, Samples
from boundflow.symbols import rows as room
from boundflow.symbols.budgets import FREE, Columns, Kind, Part
from boundflow.symbols.rows import Batch, Rows

CPU = torch.device("cpu")


@st.composite
def some_rows(draw: st.DrawFn) -> Rows:
    """A few runs of numbers below 40, in any order."""
    cuts = draw(st.lists(st.integers(0, 40), min_size=0, max_size=8, unique=True).map(sorted))
    pieces = [np.arange(first, last) for first, last in zip(cuts[::2], cuts[1::2], strict=False)]
    order = draw(st.permutations(range(len(pieces))))
    return Rows(np.concatenate([np.empty(0, dtype=np.int64), *(pieces[place] for place in order)]))


@given(some_rows(), some_rows(), st.booleans())
def test_rows_are_found_by_their_numbers(here: Rows, part: Rows, few: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "FEW_RUNS", 8 if few else 0)
        held, places = here.found(part)
        known = here.numbers.tolist()
        assert held.tolist() == [number in known for number in part.numbers.tolist()]
        assert [known[place] for place in places[held]] == part.numbers[held].tolist()
        both = here.union(part)
        longer, shorter = (part, here) if len(part) > len(here) else (here, part)
        new = [number for number in shorter.numbers.tolist() if number not in longer.numbers.tolist()]
        assert both.numbers.tolist() == [*longer.numbers.tolist(), *new]
        where = both.positions(part)
        index = torch.arange(len(both))[where].tolist()
        assert [both.numbers[place] for place in index] == part.numbers.tolist()
        if len(part):
            batch = Batch(part.numbers[:, None], -1, np.arange(len(part)), np.zeros(1, dtype=np.int64))
            assert here.meets(batch) is bool(held.any())


@given(some_rows(), st.booleans())
def test_runs_are_the_numbers(rows: Rows, few: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "FEW_RUNS", 8 if few else 0)
        runs = rows.runs if isinstance(rows.runs, list) else [tuple(run) for run in rows.runs.T.tolist()]
    found = {place + n: first + n for first, place, length in runs for n in range(length)}
    assert [found[place] for place in range(len(rows))] == rows.numbers.tolist()
    assert runs == sorted(runs) and all(length > 0 for _, _, length in runs)


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("budget", [None, 1])
def test_error_rows_after_columns_are_nobodys(kind: Kind, budget: int | None) -> None:
    """Also where a sample has fewer symbols than another: what stands in their place is no error row."""
    owners, parts = np.array([0, 0, 1, 2, 2, -1, -1]), np.array([0, 0, 0, 0, 0, FREE, FREE])
    table, budgets = [Part(kind, 0)], [budget]
    coefficients = torch.tensor([[1.0, -2.0, 0.25, 0.5, 1.0, 8.0, 16.0], [-1.0, -1.0, 3.0, 0.0, 0.5, 0.125, 32.0]])
    at_once = Columns(owners, parts, table, budgets, CPU)
    after = Columns(owners[:5], parts[:5], table, budgets, CPU).and_free(2)
    assert torch.equal(at_once.reach(coefficients), after.reach(coefficients))


SAMPLES = SampleAxis(-2, Samples(np.arange(3), None))


@pytest.mark.parametrize(
    ("f", "position"),
    [
        (lambda x, lead: x.transpose(lead, lead + 1), -1),
        (lambda x, lead: x.unsqueeze(-1), -3),
        (lambda x, lead: x.expand(5, *x.shape), -2),
        (lambda x, lead: x.reshape(3, 4), -2),
        (lambda x, lead: x.reshape(-1), None),
        (lambda x, lead: x.flip(0), None),
        (lambda x, lead: x[:2], None),
        (lambda x, lead: x[torch.tensor([1, 0, 2])], None),
        (lambda x, lead: x * 0, None),
    ],
    ids=["transposed", "unsqueezed", "expanded", "reshaped", "flat", "flipped", "cut", "shuffled", "cleared"],
)
def test_samples_are_followed_along_views_and_copies(f: object, position: int | None) -> None:
    moved = SAMPLES.moved(torch.zeros(3, 4), f)  # type: ignore[arg-type]
    assert (None if moved is None else moved.position) == position


def test_samples_are_followed_where_other_axes_are_as_long() -> None:
    moved = SAMPLES.moved(torch.zeros(3, 3), lambda x, lead: x.transpose(0, 1))
    assert moved is not None and moved.position == -1
    assert SAMPLES.moved(torch.zeros(3, 3), lambda x, lead: x[:1]) is None  # the first sample, three times
