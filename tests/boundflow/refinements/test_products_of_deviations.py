"""Products of deviations that are bounded together: never less than the largest in exact rational arithmetic.

For x at a corner of its box, ``sum_j x_j db_j`` reaches as far as the exact support of ``x E``. With one inner term
Cauchy and Schwarz say nothing more than that, so every rounding counts there.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from exact import ADVERSE, DTYPES, NORMAL, Exact, adverse, exact, norm_at_least, number, product, total
from exact_support import exact_support
from symbol_rooms import Room, spaces
from torch import Tensor, nn

import boundflow as bf
from boundflow.refinements import products_of_deviations
from boundflow.refinements.products_of_deviations import (
    Together,
    _times_power,
    operator_norm,
    second_order,
    smaller,
    together,
)
from boundflow.rules import contractions
from boundflow.sets.forms import Form
from boundflow.symbols import support
from boundflow.symbols.budgets import Columns
from boundflow.symbols.expansion import Expansion
from boundflow.threats import AtMost, Linf
from boundflow.training import certified_training


def matrix(room: Room, inner: int, width: int, seed: int, radius: float = 0.0) -> Form:
    """A matrix over the derived symbols of a room."""
    generators = adverse(room.kind, (len(room.derived), inner, width), room.dtype, seed)
    center = torch.zeros(inner, width, dtype=room.dtype)
    return Form(center, generators, torch.full_like(center, radius), room.derived)


def known(room: Room, form: Form) -> Together:
    """Whatever the budgets are, within which the library does not ask."""
    expansion, of_room = room.space.expansion, room.space.support
    assert expansion is not None
    return together(form, expansion, of_room._sorted(form.rows, expansion, expansion.view(form.rows).others))


def corners(s: Tensor, count: int = 12) -> list[Exact]:
    """The line s with signs: all of them, or some."""
    if s.shape[0] <= 3:
        signs = np.array(list(itertools.product((1, -1), repeat=s.shape[0])))
    else:
        signs = np.random.default_rng(5).choice([-1, 1], size=(count, s.shape[0]))
    return [exact(s) * [number(int(sign)) for sign in line] for line in signs]


def reaches(room: Room, form: Form, x: Exact, output: int) -> Exact:
    """The exact support of ``sum_j x_j b_j`` for one output, downwards or upwards, whichever is further."""
    assert room.weights is not None
    values = exact(form.generators[:, :, output])  # (derived, inner)
    over = total(product(room.weights.T, values) * x, 1)
    radius = total(np.abs(x) * exact(form.radius[:, output]))
    return max(exact_support(room.space, room.deep.numbers, over)) + radius


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("threat", spaces())
@pytest.mark.parametrize("inner", [1, 2, 9])
def test_no_corner_reaches_further(threat: str, kind: str, dtype: torch.dtype, inner: int) -> None:
    room = Room(spaces()[threat], kind, dtype, derived=5)
    form = matrix(room, inner, 2, 2, radius=2.0**-9)
    s = adverse(kind, (3, inner), dtype, 3).abs()
    found = second_order(s, known(room, form))
    for line, output in itertools.product(range(3), range(2)):
        for x in corners(s[line]):
            assert exact(found[line, output]) >= reaches(room, form, x, output)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("count", [1, 40, 300])
def test_one_inner_term_of_many_symbols(kind: str, dtype: torch.dtype, count: int) -> None:
    """All roundings count, however small the numbers are."""
    room = Room(Linf(0.5), kind, dtype, derived=1, free=count)
    form = matrix(room, 1, 3, 4)
    s = adverse(kind, (4, 1), dtype, 5).abs()
    found = second_order(s, known(room, form))
    for line, output in itertools.product(range(4), range(3)):
        assert exact(found[line, output]) >= reaches(room, form, exact(s[line]), output)


@pytest.mark.parametrize("boxes", [False, True], ids=["rows", "boxes"])
def test_rows_of_one_entry_each_are_added_up(boxes: bool) -> None:
    """The last rows of an expansion, one for each symbol, are no matter of Cauchy and Schwarz."""
    size = 6
    room = Room(Linf(0.5), "mixed sizes", torch.float64, derived=size, free=size)
    weights = torch.zeros(size, len(room.deep), dtype=torch.float64)
    last = weights[:, len(room.deep) - size :]
    last.copy_(torch.eye(size, dtype=torch.float64) * 0.75 if boxes else torch.full((size, size), 0.125))
    room.space.expands(room.kept, Expansion(room.derived, room.deep, weights))
    room.weights = exact(weights)
    form = Form(
        torch.zeros(size, 1, dtype=torch.float64),
        torch.eye(size, dtype=torch.float64).unsqueeze(2),
        torch.zeros(size, 1, dtype=torch.float64),
        room.derived,
    )
    s = torch.ones(1, size, dtype=torch.float64)
    found = second_order(s, known(room, form))[0, 0]
    wanted = reaches(room, form, exact(s[0]), 0)
    assert exact(found) >= wanted
    if boxes:  # exactly what they reach, one by one
        assert float(found) <= float(total(exact(s[0]))) * 0.75 * (1 + 1e-12)


@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_the_norm_of_a_matrix(kind: str, n: int) -> None:
    """No vector is lengthened by more."""
    one = adverse(kind, (3, n, n), torch.float32)
    one = (one / one.abs().amax((1, 2), keepdim=True)).clamp(-1, 1)
    found = operator_norm(one)
    assert found.dtype is torch.float64
    random = np.random.default_rng(1)
    for matrix, bound in zip(one, found, strict=True):
        _, _, best = np.linalg.svd(matrix.double().numpy())
        for vector in (best[0], random.normal(size=n), np.ones(n)):
            x = exact(vector)
            image = product(exact(matrix), x[:, None])[:, 0]
            assert norm_at_least(bound, total(image**2) / total(x**2))
        assert float(bound) <= float(np.linalg.norm(matrix.double().numpy(), 2)) * max(1.001, 1.01 * n ** (1 / 16))


@pytest.mark.parametrize("n", [2, 64, 256])
def test_a_norm_that_is_a_small_part_of_the_trace(n: int) -> None:
    """The eighth power of 1 / (2 n) is far below 1, and its square below the range of float32."""
    found = operator_norm(torch.eye(n) / (2 * n))
    assert float(found) >= 1 / (2 * n)


@pytest.mark.parametrize("s", [2.0**-900, 1.0, 2.0**60])
@pytest.mark.parametrize("kind", ["tiny", "subnormal", "one sign"])
def test_long_lines_and_small_entries(kind: str, s: float) -> None:
    """What underflows of the entries counts as often as the line is long."""
    room = Room(Linf(0.5), "one sign", torch.float64, derived=7, free=30)
    room.kind = kind
    form = matrix(room, 2, 2, 4)
    line = torch.full((1, 2), s, dtype=torch.float64)
    found = second_order(line, known(room, form))
    for output in range(2):
        for x in corners(line[0]):
            assert exact(found[0, output]) >= reaches(room, form, x, output)


@pytest.mark.parametrize("inner", [1, 40, 700])
def test_long_lines_of_boxes(inner: int) -> None:
    """Nothing but boxes: each term of the sum is lost when it is added to the first."""
    room = Room(Linf(0.5), "one sign", torch.float64, derived=1, free=inner)
    derived = room.space.fresh(inner)
    weights = torch.zeros(inner, len(room.deep), dtype=torch.float64)
    weights[:, len(room.deep) - inner :] = torch.eye(inner, dtype=torch.float64)
    room.space.expands(room.kept, Expansion(derived, room.deep, weights))
    zeros, size = torch.zeros(inner, 1, dtype=torch.float64), adverse("swallowed", (inner,), torch.float64)
    form = Form(zeros, size.diag().unsqueeze(2), zeros, derived)
    ones = torch.ones(1, inner, dtype=torch.float64)
    assert exact(second_order(ones, known(room, form))[0, 0]) >= total(exact(size))
    form = Form(zeros, form.generators * 0.0, size.unsqueeze(1), derived)  # and nothing but a radius
    assert exact(second_order(ones, known(room, form))[0, 0]) >= total(exact(size))


def test_a_line_whose_longest_entry_meets_nothing() -> None:
    """The other one must not underflow beside it."""
    room = Room(Linf(0.5), "one sign", torch.float64, derived=2)
    form = matrix(room, 2, 1, 4)
    form.generators[:, 0] = 0.0
    for short in (2.0**-300, 1e-162, 2.0**-600):
        s = torch.tensor([[1.0, short]], dtype=torch.float64)
        found = second_order(s, known(room, form))[0, 0]
        assert bool(found.isinf()) or exact(found) >= reaches(room, form, exact(s[0]), 0)


@pytest.mark.parametrize("exponent", [-1073, -1000, -1, 0, 1, 900, 1023])
def test_powers_of_two_are_exact(exponent: int) -> None:
    found = _times_power(torch.ones(3, dtype=torch.float64), torch.full((3,), exponent, dtype=torch.int32))
    assert found.tolist() == [2.0**exponent] * 3


def test_products_in_reduced_precision_are_not_counted_on() -> None:
    """They are made in float32, also of a run in float64, for which the flags are no matter otherwise."""
    full = widths(trained(Linf(0.02)))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        reduced = widths(trained(Linf(0.02)))
    finally:
        torch.set_float32_matmul_precision(before)
    assert float(reduced.mean()) > float(full.mean())


def test_entries_that_go_opposite_ways_reach_less_together() -> None:
    """Symbols that move entries up and down at random: far less than all entries at their ends."""
    room = Room(Linf(0.5), "mixed sizes", torch.float64, derived=1, free=400)
    generator = torch.Generator().manual_seed(0)
    deep, size = len(room.deep), 40
    weights = torch.where(torch.rand(size, deep, generator=generator, dtype=torch.float64) < 0.5, -1.0, 1.0)
    derived = room.space.fresh(size)
    room.space.expands(room.kept, Expansion(derived, room.deep, weights.double() / deep))
    zeros = torch.zeros(size, 1, dtype=torch.float64)
    form = Form(zeros, torch.eye(size, dtype=torch.float64).unsqueeze(2), zeros, derived)
    found = room.space.support.together(form)
    assert found is not None
    assert float(second_order(torch.ones(1, size, dtype=torch.float64), found)) < 0.3 * size


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ADVERSE)
@pytest.mark.parametrize("inner", [1, 2, 40])
def test_lines_that_are_left_out_would_not_be_smaller(kind: str, dtype: torch.dtype, inner: int) -> None:
    """To the last bit, where both are far apart, nearly the same, and the same."""
    room = Room(Linf(0.5), kind, dtype, derived=7, free=30)
    form = matrix(room, inner, 3, 2, radius=2.0**-9)
    s = adverse(kind, (9, inner), dtype, 3).abs()
    s[4] = 0.0
    found = known(room, form)
    together = second_order(s, found).to(dtype)
    for share in (0.0, 0.5, 0.9, 1 - 1e-6, 1.0, 1 + 1e-6, 1.1, 2.0, float("inf")):
        one_by_one = torch.where(together.isfinite() & (together > 0), share * together, 1.0)
        assert torch.equal(smaller(one_by_one, s, found), torch.fmin(one_by_one, together))


def test_no_power_of_a_matrix_is_made_where_entries_go_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(Linf(0.5), "one sign", torch.float64, derived=7, free=30)
    form = matrix(room, 40, 2, 2)
    found, s = known(room, form), torch.ones(3, 40, dtype=torch.float64)
    one_by_one = 0.9 * second_order(s, found)
    monkeypatch.setattr(products_of_deviations, "operator_norm", lambda matrices: pytest.fail("a matrix was made"))
    assert smaller(one_by_one, s, found) is one_by_one


def trained(threat: bf.threats.Threat) -> bf.Certificate:
    x = torch.randn(80, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 40), nn.ReLU(), nn.Linear(40, 2)).double()
    options = {"loss": "ce", "optimizer_options": {"lr": 0.5}, "epochs": 3, "order": 2, "progress": False}
    return bf.certify(model, (x, (x[:, 0] > x[:, 1]).long()), threat=threat, **options)


def widths(certificate: bf.Certificate) -> Tensor:
    assert certificate.model is not None
    return torch.cat([(p.upper - p.lower).flatten() for p in certificate.model.parameters()])  # type: ignore[attr-defined]


def test_a_training_is_tighter_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with_it = widths(trained(Linf(0.02)))
    monkeypatch.setattr(contractions, "FEWEST_TOGETHER", 10**6)
    assert float(with_it.mean()) < float(widths(trained(Linf(0.02))).mean())


def test_it_is_made_once_for_all_pieces_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Form] = []

    def counted(form: Form, expansion: Expansion, columns: Columns) -> Together:
        made.append(form)
        return together(form, expansion, columns)

    monkeypatch.setattr(support, "together", counted)
    monkeypatch.setattr(certified_training, "chunk_size", lambda *arguments: 20)
    trained(Linf(0.02))
    assert len(made) == 2  # in the second and in the third step
    trained(AtMost(9, Linf(0.02)))
    assert len(made) == 2
