"""How far symbols reach: what is computed is never less than the same in exact rational arithmetic.

The exact support is computed by its definition, from who owns which symbol (`exact_support.py`).
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from exact import ADVERSE, DTYPES, NORMAL, UNIT, Exact, adverse, at_least, exact, norm_at_least, number, product, total
from exact_support import exact_support, own_term
from symbol_rooms import SAMPLES, Room, spaces

import boundflow as bf
from boundflow.sets.factors import Factors, Softened
from boundflow.sets.forms import Form
from boundflow.sets.sample_axis import SampleAxis, Samples
from boundflow.symbols import budgets, expansion
from boundflow.symbols.budgets import Columns, Kind, OwnTerms, Part, box, few_largest, largest, term
from boundflow.symbols.expansion import Expansion
from boundflow.symbols.rows import NO_ROWS, Rows

LONG = 300  # terms of a sum: what they lose together is more than any term beside it pays for
COUNT = 24


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("count", [1, 2, 9, LONG])
@pytest.mark.parametrize("at_a_time", [budgets.MODULI_WRITTEN_OUT, 2 * COUNT])
def test_boxes_and_sums(
    kind: str, dtype: torch.dtype, count: int, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "MODULI_WRITTEN_OUT", at_a_time)
    values = adverse(kind, (count, COUNT), dtype)
    wanted = total(np.abs(exact(values)))
    assert at_least(box(values), wanted)
    assert at_least(box(values.T.contiguous(), 1), wanted)
    assert all(at_least(end, wanted) for end in term(Kind.BOX, values.T.contiguous()))
    for budget in (None, 1, max(1, count // 2)):
        best = np.sort(np.abs(exact(values)), 0)[::-1][:budget]
        assert at_least(largest(values.abs().T.contiguous(), budget), total(best))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("count", [1, 2, 5, LONG])
def test_other_parts(kind: str, dtype: torch.dtype, count: int) -> None:
    values = adverse(kind, (COUNT, count), dtype)
    numbers = exact(values)
    for part in (Kind.CROSS, Kind.SIMPLEX):
        for end, side in enumerate(term(part, values)):
            assert at_least(side, [own_term(part, line)[end] for line in numbers])
    for side in term(Kind.BALL, values):
        assert norm_at_least(side, total(numbers**2, 1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("clauses", [2, 60])
def test_many_clauses(dtype: torch.dtype, clauses: int) -> None:
    """Every clause is added to the total, and what is less than half a unit of it is lost each time."""
    values = torch.full((3, clauses), 0.98 * UNIT[dtype], dtype=dtype)
    values[:, 0] = 1.0
    table = [Part(Kind.BOX, clause) for clause in range(clauses)]
    columns = Columns(np.arange(clauses), np.arange(clauses), table, [1] * clauses, values.device)
    assert at_least(columns.reach(values), total(exact(values), 1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["one sign", "mixed sizes"])
@pytest.mark.parametrize("threat", spaces())
@pytest.mark.parametrize("derived", [0, 2, 20])
def test_the_support_of_a_form(threat: str, kind: str, dtype: torch.dtype, derived: int) -> None:
    """Deep rows, derived ones that are looked through, and rows of a younger reduction."""
    room = Room(spaces()[threat], kind, dtype, derived)
    younger = room.space.fresh(2)
    rows = Rows(np.concatenate((room.deep.numbers, younger.numbers, *((room.derived.numbers,) if derived else ()))))
    generators = adverse(kind, (len(rows), 5), dtype, 2)
    form = Form(torch.zeros(5, dtype=dtype), generators, torch.zeros(5, dtype=dtype), rows)
    found = room.space.support(form).expand(2, 5)
    values, plain = exact(generators), len(room.deep) + len(younger)
    numbers = rows.numbers[:plain]
    over = values[:plain]
    if derived:
        assert room.weights is not None
        over = over.copy()
        over[: len(room.deep)] += product(room.weights.T, values[plain:])
    for element in range(5):
        down, up = exact_support(room.space, numbers, over[:, element])
        assert exact(found[0, element]) >= down and exact(found[1, element]) >= up


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["near one", "cancelling"])
@pytest.mark.parametrize("threat", spaces())
@pytest.mark.parametrize("derived", [0, 12])
def test_own_rows_and_samples_that_were_left_alone(threat: str, kind: str, dtype: torch.dtype, derived: int) -> None:
    room = Room(spaces()[threat], kind, dtype, derived)
    rows = room.own.union(room.derived) if derived else room.own
    generators = adverse(kind, (len(rows), SAMPLES, 2), dtype, 3)
    zeros = torch.zeros(SAMPLES, 2, dtype=dtype)
    form = Form(zeros, generators, zeros, rows, SampleAxis(-2, Samples.of(room.batch)))
    both = room.space.support(form, clean=True)
    values, (_, where, own) = exact(generators), rows.split()
    numbers = room.deep.numbers
    for sample in range(SAMPLES):
        for output in range(2):
            over = np.array([number(0)] * len(numbers), dtype=object)
            if derived:
                over = total(exact_rows(values[np.arange(len(rows))[where], sample, output]) * room.weights)
            clean = over.copy()
            for row, feature in enumerate(own.tolist()):
                place = int(np.flatnonzero(numbers == room.batch.numbers[sample, row])[0])
                over[place] += values[feature, sample, output]
                if room.space.budgets[room.space.table[room.batch.parts[row]].clause] is None:
                    clean[place] += values[feature, sample, output]
            for state, coefficients in enumerate((over, clean)):
                wanted = exact_support(room.space, numbers, coefficients)
                got = exact(both[state, :, sample, output])
                assert got[0] >= wanted[0] and got[1] >= wanted[1]


def exact_rows(values: Exact) -> Exact:
    return values[:, None]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("count", [1, 5, 200])
def test_what_an_expansion_is_off_by(kind: str, dtype: torch.dtype, count: int) -> None:
    derived, deep = Rows(np.arange(100, 100 + count)), Rows(np.arange(7))
    weights = adverse(kind, (count, 7), dtype, 4) / 7
    made = Expansion(derived, deep, weights)
    rows = Rows(np.concatenate((derived.numbers, deep.numbers[2:5])))
    elements = adverse(kind, (3, len(rows)), dtype, 5)
    found, error = made.expanded(elements, rows)
    wanted = product(exact(elements[:, :count]), exact(weights))
    wanted[:, 2:5] += exact(elements[:, count:])
    underflow = exact(torch.finfo(dtype).tiny)  # the radius of every rule pays for that: `rounding.tiny`
    assert bool(np.all(exact(error) + underflow >= total(np.abs(exact(found) - wanted), 1)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("count", [1, 5, 60])
@pytest.mark.parametrize("head", [0, 7])
@pytest.mark.parametrize("used", ["all", "few", "in another order"])
def test_an_expansion_whose_last_rows_are_boxes(
    kind: str, dtype: torch.dtype, count: int, head: int, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a reduction leaves it: one row for each derived symbol comes last, and a product with those is a scaling."""
    monkeypatch.setattr(expansion, "LOOK_FOR_ZEROS", -1)
    derived, deep = Rows(np.arange(100, 100 + count)), Rows(np.arange(head + count))
    weights = torch.cat((adverse(kind, (count, head), dtype, 4) / 14, adverse(kind, (count,), dtype, 6).diag() / 2), 1)
    made = Expansion(derived, deep, weights)
    assert made.boxes is not None and made.boxes.shape == (count,)
    if count > 1:
        weights[0, -1] = 2.0**-20  # of another scalar: not a box any more
        assert Expansion(derived, deep, weights).boxes is None
        weights[0, -1] = 0.0
    order = np.arange(count)[:: -1 if used == "in another order" else 1]
    rows = Rows(np.concatenate((derived.numbers[order], deep.numbers[-1:])))
    elements = adverse(kind, (3, len(rows)), dtype, 5)
    if used == "few":
        elements[:, : count - count // 3] = 0.0
    found, error = made.expanded(elements, rows)
    wanted = product(exact(elements[:, :count]), exact(weights)[order])
    wanted[:, -1:] += exact(elements[:, count:])
    underflow = exact(torch.finfo(dtype).tiny)
    assert bool(np.all(exact(error) + underflow >= total(np.abs(exact(found) - wanted), 1)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("last", [0.0, 0.5, 1 - 1e-6, 1.0])
def test_the_support_of_symbols_that_are_free_of_each_other(kind: str, dtype: torch.dtype, last: float) -> None:
    """Where an expansion is a diagonal, the box is the support: as long as that, and no longer than rounding."""
    space, optimizer = bf.Symbols(bf.threats.Linf(0.1)), torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    derived, deep, weights = space.fresh(5), space.fresh(5), torch.ones(5, dtype=dtype)
    weights[-1] = last
    space.expands(optimizer, Expansion(derived, deep, weights.diag()))
    assert space.expansion is not None and space.expansion.diagonal is (last != 0.5)
    generators, zero = adverse(kind, (5, 4), dtype), torch.zeros(4, dtype=dtype)
    generators[-1] *= last != 0
    found = space.support(Form(zero, generators, zero, derived))
    wanted = total(np.abs(exact(generators)) * exact(weights)[:, None])
    assert at_least(found[0], wanted)
    assert bool(np.all(exact(found[0]) <= number(1.0001) * wanted))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("more", [False, True], ids=["one each", "two in one"])
def test_elements_of_one_symbol_each(
    kind: str, dtype: torch.dtype, more: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As parameters are after a reduction: in any order, also none, and beside deep rows."""
    monkeypatch.setattr(expansion, "LOOK_FOR_ZEROS", 0)
    derived, deep = Rows(np.arange(100, 105)), Rows(np.arange(7))
    weights = adverse(kind, (5, 7), dtype, 4) / 7
    rows = Rows(np.array([103, 100, 2, 104, 101, 102]))
    elements = torch.zeros(4, 6, dtype=dtype)
    elements[[0, 1, 2], [3, 0, 4]] = adverse(kind, (3,), dtype, 5)
    elements[0, 2] = elements[0, 3]
    if more:
        elements[1, 1] = elements[1, 0]
    found, error = Expansion(derived, deep, weights).expanded(elements, rows)
    wanted = product(exact(elements[:, [1, 4, 5, 0, 3]]), exact(weights))
    wanted[:, 2] += exact(elements[:, 2])
    underflow = exact(torch.finfo(dtype).tiny)  # the radius of every rule pays for that: `rounding.tiny`
    assert bool(np.all(exact(error) + underflow >= total(np.abs(exact(found) - wanted), 1)))


@pytest.mark.parametrize("kind", NORMAL)
def test_an_expansion_of_another_dtype(kind: str) -> None:
    derived, deep = Rows(np.arange(100, 140)), Rows(np.arange(7))
    weights = adverse(kind, (40, 7), torch.float64, 4) / 7
    elements = adverse(kind, (3, 40), torch.float32, 5)
    found, error = Expansion(derived, deep, weights).expanded(elements, derived)
    assert at_least(error, total(np.abs(exact(found) - product(exact(elements), exact(weights))), 1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("flat", "inner"),
    [*((flat, inner) for flat in ("both", "first", "second") for inner in (2, 300)), ("opposite", 2)],
)
def test_a_product_by_its_factors(kind: str, dtype: torch.dtype, bias: bool, flat: str, inner: int) -> None:
    """``A cb + ca B``, and one of the factors may have no rows, or the first one opposite ones."""
    derived, deep, (count, width) = Rows(np.arange(100, 101)), Rows(np.arange(2)), (2, 2)
    made = Expansion(derived, deep, adverse(kind, (1, 2), dtype, 1) / 2)

    def form(*shape: int, seed: int, rows: bool = True) -> Form:
        generators = adverse(kind, (1, *shape), dtype, seed + 1) * (1.0 if rows else 0.0)
        return Form(adverse(kind, shape, dtype, seed), generators, torch.zeros(shape, dtype=dtype), derived)

    a = form(count, inner, seed=2, rows=flat != "second")
    if flat == "opposite":
        a.generators[..., 1] = -a.generators[..., 0]
    b = form(inner, width, seed=4, rows=flat != "first")
    c = form(width, seed=6)
    factors = Factors(a, b, c if bias else None)
    factors.start(made)
    assert factors.opposed or flat != "opposite"
    found, error = factors.part(0, count)

    def over(x: Form) -> Exact:
        flat = exact(x.generators).reshape(1, -1)
        return product(flat.T, exact(made.weights)).reshape(*x.center.shape, 2)

    wanted = total(over(a)[:, :, None, :] * exact(b.center)[None, :, :, None], 1)
    wanted = wanted + total(exact(a.center)[:, :, None, None] * over(b)[None], 1)
    wanted = wanted + (over(c)[None] if bias else 0)
    off = total(np.abs(exact(found).reshape(count, width, 2) - wanted), 2)
    assert at_least(error, off.flatten())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_softmax_of_a_product(dtype: torch.dtype) -> None:
    """``p_c (g_c - sum_j p_j g_j)`` with a long sum whose terms are swallowed by its first; g itself is exact."""
    classes, deep, one = 900, Rows(np.arange(1)), torch.ones(1, 1, dtype=dtype)
    made = Expansion(Rows(np.arange(100, 101)), deep, one)
    g, zero = (
        torch.full((1, 1, classes), 1.9 * classes * UNIT[dtype], dtype=dtype),
        torch.zeros(1, classes, dtype=dtype),
    )
    g[..., 0], p = 1.0, torch.full((1, classes), 0.5 / classes, dtype=dtype)
    p[:, 0] = 1.0
    factors = Softened(
        Factors(Form(one, one.new_zeros(0, 1, 1), 0 * one, NO_ROWS), Form(zero, g, zero, made.derived), None), p
    )
    factors.start(made)
    found, error = factors.part(0, 1)
    q, row = exact(p[0]), exact(g[0, 0])
    wanted = q * (row - total(q * row))
    assert at_least(error, np.abs(exact(found)[:, 0] - wanted))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("moves", ["first", "second"])
def test_long_products_by_their_factors(dtype: torch.dtype, moves: str) -> None:
    """Terms that are swallowed by the first one, with the rows of the first factor or of the second."""
    deep, inner = Rows(np.arange(2)), 300
    made = Expansion(Rows(np.arange(100, 101)), deep, adverse("near one", (1, 2), dtype, 1) / 2)
    long, ones = adverse("swallowed", (inner,), dtype), torch.ones(inner, dtype=dtype)

    def form(values: torch.Tensor, moving: bool) -> Form:
        generators = (values if moving else 0 * values).expand(2, *values.shape).clone()
        return Form(values, generators, 0 * values, deep)

    a = form((long if moves == "first" else ones).view(1, inner), moves == "first")
    b = form((long if moves == "second" else ones).view(inner, 1), moves == "second")
    factors = Factors(a, b, None)
    factors.start(made)
    found, error = factors.part(0, 1)
    off = total(np.abs(exact(found) - total(exact(long))), 1)
    assert at_least(error, off)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
def test_an_own_term_beside_those_of_all_owners(kind: str, dtype: torch.dtype) -> None:
    terms = adverse(kind, (8, 3), dtype).abs()
    own = OwnTerms(0, adverse(kind, (2, 8), dtype, 1).abs(), torch.arange(8) % 4)
    for end in (0, 1):
        found = own.beside(terms, np.arange(3), end)
        wanted = np.concatenate((exact(terms), exact(torch.zeros(8, 1))), 1)
        for line in range(8):
            wanted[line, line % 4] += exact(own.values[end, line])
        assert at_least(found, wanted)


@pytest.mark.parametrize("count", [1, 5, 40])
@pytest.mark.parametrize("length", [100, 4096, 5000])
def test_the_few_largest_of_many(count: int, length: int) -> None:
    """Found by groups: the same numbers, ties and zeros included."""
    generator = torch.Generator().manual_seed(count * length)
    terms = torch.rand(2, 3, length, generator=generator, dtype=torch.float64).mul(50).floor().clamp_min(40)
    terms[0] = torch.rand(3, length, generator=generator, dtype=torch.float64)
    found = few_largest(terms, count).sort(-1).values
    assert torch.equal(found, terms.sort(-1).values[..., -count:])
