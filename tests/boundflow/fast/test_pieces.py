"""What touched samples add, and the joining of pieces of a batch: never less than in exact rational arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from exact import ADVERSE, DTYPES, NORMAL, UNIT, Exact, adverse, at_least, exact, number, total

import boundflow as bf
from boundflow.arithmetic.thread_context import OUTWARD, using
from boundflow.fast.memory import batch_pieces
from boundflow.rules.states import States
from boundflow.sets.clean_state import Excess, OwnRows, without_own
from boundflow.sets.forms import Form
from boundflow.sets.sample_axis import SampleAxis, Samples
from boundflow.sets.set import Set
from boundflow.symbols.budgets import Kind
from boundflow.symbols.rows import Rows
from boundflow.threats import Linf

SIZE = 24
OTHER = {"one sign": 2.0**-18, "near one": 1.0, "mixed sizes": 1.0, "cancelling": 2.0**-23}


def worst(excess: Exact, numbers: np.ndarray, budget: int) -> Exact:
    """The k largest samples, each with all its positions."""
    by_sample = np.stack([total(excess[numbers == number]) for number in np.unique(numbers)])
    return total(np.sort(by_sample, 0)[::-1][:budget])


def made(kind: str, dtype: torch.dtype, count: int, seed: int, budget: int = 2) -> tuple[Samples, Excess]:
    samples = Samples(np.arange(count) // 2 + 10 * seed, budget)
    interval = torch.stack((-adverse(kind, (SIZE,), dtype, seed).abs(), adverse(kind, (SIZE,), dtype, seed + 1).abs()))
    beyond, more = (adverse(kind, (2, count, SIZE), dtype, seed + part).abs() * OTHER.get(kind, 1.0) for part in (2, 3))
    radius = adverse(kind, (SIZE,), dtype, seed + 4).abs()
    return samples, Excess(samples, interval, beyond, radius, more)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize(("count", "copies", "budget"), [(8, 1, 3), (8, 2, 1), (400, 200, 1), (300, 1, 200)])
def test_the_worst_samples(kind: str, dtype: torch.dtype, count: int, copies: int, budget: int) -> None:
    samples = Samples(np.arange(count) // copies, budget)
    excess = adverse(kind, (count, SIZE), dtype).abs()
    assert at_least(samples.worst(excess), worst(exact(excess), samples.numbers, budget))


def ends(excess: Excess) -> tuple[Exact, Exact]:
    """How far below and above its form a sum can be, exactly."""
    assert excess.radius is not None and excess.more is not None
    down, up = (worst(exact(side), excess.samples.numbers, excess.samples.budget) for side in excess.more)
    before = exact(excess.middle) if excess.middle is not None else 0
    return exact(excess.radius) + down - before, exact(excess.radius) + up + before


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("small", [False, True])
def test_bounds_and_errors(kind: str, dtype: torch.dtype, small: bool) -> None:
    samples, excess = made(kind, dtype, 6, 1)
    if small:  # the errors of touched samples are all there is
        assert excess.radius is not None
        excess.radius = torch.zeros_like(excess.radius)
    bounds = excess.bounds()
    for side, sign in ((0, -1), (1, 1)):
        far = worst(exact(excess.beyond[side]), samples.numbers, samples.budget)
        assert np.all(sign * exact(bounds[side]) >= sign * exact(excess.interval[side]) + far)
    down, up = ends(excess)
    middle, radius = map(exact, excess.errors())
    assert np.all(middle + radius >= up) and np.all(radius - middle >= down)
    assert at_least(excess.total_radius(), np.maximum(down, up))
    settled = excess.settled()
    assert settled.radius is not None and settled.middle is not None
    assert np.all(exact(settled.middle) + exact(settled.radius) >= up)
    for size in (1.0, 2.0**12):  # of a large center, the sum with the middle is off by more than a unit of the radius
        center = adverse(kind, (SIZE,), dtype, 9) * size
        form = Form(center, center.new_zeros(1, SIZE), torch.zeros_like(center), Rows(np.arange(1)))
        around = excess.around(form)
        moved = exact(around.center) - exact(center)
        assert np.all(moved + exact(around.radius) >= up) and np.all(exact(around.radius) - moved >= down)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("count", [2, 60])
def test_pieces_joined(kind: str, dtype: torch.dtype, count: int) -> None:
    parts = [made(kind, dtype, 4, seed)[1] for seed in range(count)]
    charge = adverse(kind, (SIZE,), dtype, 99).abs() * OTHER.get(kind, 1.0)
    joined = Excess.joined(parts, charge)
    assert joined.radius is not None and joined.more is not None
    assert at_least(joined.radius, sum(exact(part.radius) for part in parts if part.radius is not None) + exact(charge))
    for side, sign in ((0, -1), (1, 1)):
        assert np.all(sign * exact(joined.interval[side]) >= sign * sum(exact(part.interval[side]) for part in parts))
    assert torch.equal(joined.more, torch.cat([part.more for part in parts if part.more is not None], 1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_many_pieces_with_small_radii(dtype: torch.dtype) -> None:
    """What is less than half a unit of the total is lost each time."""
    parts = [made("near one", dtype, 4, seed)[1] for seed in range(300)]
    for number_of, part in enumerate(parts):
        part.radius = torch.full((SIZE,), 0.98 * UNIT[dtype] if number_of % 64 else 1.0, dtype=dtype)
    joined = Excess.joined(parts, 0.0)
    assert joined.radius is not None
    assert at_least(joined.radius, sum(exact(part.radius) for part in parts if part.radius is not None))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
def test_gradients_of_two_pieces_added_up(kind: str, dtype: torch.dtype) -> None:
    """Center and rows of the sum are rounded, here and in the plain run: the radius without touched samples pays."""
    space = bf.Symbols(Linf(0.5))
    rows, sets, forms = space.fresh(5), [], []
    for seed in (1, 7):
        samples, excess = made(kind, dtype, 4, seed)
        center, generators = adverse(kind, (SIZE,), dtype, seed + 5), adverse(kind, (5, SIZE), dtype, seed + 6)
        scale = 2.0**-22 if kind in NORMAL else 1.0
        assert excess.radius is not None
        excess.radius = excess.radius * scale * UNIT[dtype]
        form = Form(center, generators, excess.radius, rows)
        wide = 8 * form.modulus + 8 * excess.interval.abs().amax(0)
        whole = Set(torch.stack((-wide, wide)), form, space)
        excess.interval = torch.stack((-wide, wide))
        whole.excess = excess
        sets.append(whole)
        forms.append(form)
    with using(replace(OUTWARD, pieces=2)):
        both = batch_pieces._sum(sets[0], sets[1])
    assert both is not None and both.excess is not None and both.excess.radius is not None
    center, generators = (sum(exact(getattr(form, name)) for form in forms) for name in ("center", "generators"))
    off = np.abs(exact(both.form.center) - center) + total(np.abs(exact(both.form.generators) - generators))
    plain = np.abs(exact(forms[0].center + forms[1].center) - center)
    assert at_least(both.excess.radius, sum(exact(form.radius) for form in forms) + np.maximum(off, plain))
    # a plain run adds other values than the centers, and rounds them by half a unit of what it adds
    moduli = np.abs(center) + total(np.abs(generators))
    assert at_least(both.excess.radius, off + number(UNIT[dtype]) * moduli if kind in NORMAL else 0)
    down, up = ends(both.excess)
    assert at_least(both.form.radius, np.maximum(down, up))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("scale", [1.0, 0.3, 2.0**-13])
def test_one_middle_for_both_states(kind: str, dtype: torch.dtype, scale: float) -> None:
    """What lies between 0, or another end, and a length is no further from the middle than is said, in both states."""
    touched, clean = adverse(kind, (6, SIZE), dtype).abs(), adverse(kind, (6, SIZE), dtype, 1).abs() * scale
    over: States[Set] = States(found=SampleAxis(-2, Samples(np.arange(6), 2)))
    middle, off = over.middle([torch.maximum(touched, clean), clean])
    for far, length in zip(off, (torch.maximum(touched, clean), clean), strict=True):
        assert at_least(far, np.maximum(exact(middle), exact(length) - exact(middle)))
    below, above = (clean, 0.3 * clean), (touched, 0.3 * touched)
    middle, off = over.middle(above, below)
    for far, down, up in zip(off, below, above, strict=True):
        assert at_least(far, np.maximum(exact(down) + exact(middle), exact(up) - exact(middle)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("states", [1, 2])
def test_one_middle_between_two_ends(kind: str, dtype: torch.dtype, states: int) -> None:
    """What lies between -below and above is no further from the middle than is said, in every state."""
    above, below = ([adverse(kind, (6, SIZE), dtype, seed + side).abs() for seed in range(2)] for side in (0, 2))
    above, below = above[:states], below[:states]
    over: States[Set] = States(found=SampleAxis(-2, Samples(np.arange(6), 2)) if states == 2 else None)
    middle, off = over.middle(above, below)
    for far, up, down in zip(off, above, below, strict=True):
        assert at_least(far, np.maximum(exact(middle) + exact(down), exact(up) - exact(middle)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("terms", [1, 40])
def test_all_of_a_move(kind: str, dtype: torch.dtype, terms: int) -> None:
    """Where own rows are cleared, touching adds the distance of the intervals and the roundings of its terms."""
    touched, clean = (adverse(kind, (2, 4, SIZE), dtype, seed).sort(0).values for seed in (1, 2))
    own = OwnRows(torch.ones(2, 4, SIZE, dtype=dtype) * 1e3, [(Kind.BOX, [0, 1])])
    more = torch.full((4, SIZE), 1e3, dtype=dtype)
    moduli = torch.maximum(touched.abs(), clean.abs()).amax(0)
    found = without_own(touched, clean, more, own, moduli, terms)
    assert not bool(own.rows.any())
    rounded = terms * number(UNIT[dtype]) * exact(moduli) + number(torch.finfo(dtype).tiny)
    for side, move in enumerate((exact(clean[1]) - exact(touched[0]), exact(touched[1]) - exact(clean[0]))):
        assert at_least(found[side], np.maximum(move, 0) + rounded)
