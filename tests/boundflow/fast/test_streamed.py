"""Supports of products from their factors, streamed in float32: never less than in exact rational arithmetic.

However much is paid for float32: where it is a large share of the elements in sum, the library would take float64, but
a small element may stand beside large ones.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from exact import DTYPES, UNIT, Exact, adverse, exact, total
from exact_support import exact_support
from torch import Tensor

import boundflow as bf
from boundflow.fast.support import factored_support, processor_kernel
from boundflow.fast.support.factored_support import groups, reach
from boundflow.fast.support.streaming import BLOCK, Stream
from boundflow.sets.factors import Factors
from boundflow.sets.forms import Form
from boundflow.sets.sample_axis import SampleAxis, Samples
from boundflow.symbols.budgets import Columns
from boundflow.symbols.expansion import Expansion
from boundflow.symbols.rows import Rows
from boundflow.threats import L1, L2, AtMost, Labels, Linf, Threat

UNIT32 = UNIT[torch.float32]
THREATS = {
    "box": Linf(0.5),
    "box, at most 1": AtMost(1, Linf(0.5)),
    "ball, at most 2": AtMost(2, L2(0.5)),
    "cross": L1(0.5),
    "labels, at most 2": AtMost(2, Labels()),
    "two clauses": AtMost(2, Linf(0.5)) & AtMost(1, Labels()),
}


class Product:
    """A product whose factors depend on the symbols of samples, a few of every part, and its exact support."""

    def __init__(self, threat: Threat, samples: int, each: int = 1, batch: int = 0):
        """``batch`` samples are lines of the product; where there are ``samples``, the first of them are the same."""
        self.space = bf.Symbols(threat)
        parts = np.repeat(np.arange(len(self.space.table)), each)
        raw = np.arange(samples + batch, dtype=np.float64)[:, None].repeat(len(parts), 1)
        deep = self.space.of_samples(np.arange(samples), raw[:samples], parts).batch
        self.own = self.space.of_samples(np.arange(batch), raw[:batch], parts) if batch else None
        self.deep = Rows(deep.distinct.numbers) if deep is not None and samples else self.space.fresh(1)

    def reach(self, a: Form, b: Form, own: Tensor | None = None) -> Tensor:
        """What is computed, (2, lines, units); ``own`` rows are (features, lines, units)."""
        dtype, none = a.center.dtype, Rows(np.empty(0, np.int64))
        factors = Factors(a, b, None)
        factors.start(Expansion(none, self.deep, torch.zeros(0, len(self.deep), dtype=dtype)))
        zeros = torch.zeros(len(a.center), b.center.shape[1], dtype=dtype)
        form = Form(zeros, zeros.new_zeros(0, *zeros.shape), zeros, none)
        if own is not None and self.own is not None and self.own.batch is not None:
            form = Form(zeros, own, zeros, self.own, SampleAxis(-2, Samples.of(self.own.batch)))
        space, numbers = self.space, self.deep.numbers
        columns = Columns(*space.owners_and_parts(numbers), space.table, space.budgets, zeros.device)
        found = groups(space, numbers, zeros.device)
        assert found is not None
        most, factored_support.MOST_PAYMENT = factored_support.MOST_PAYMENT, float("inf")
        try:
            made = reach(space, form, factors, columns, found, False)
        finally:
            factored_support.MOST_PAYMENT = most
        assert made is not None
        return made[0]

    def form(self, center: Tensor, coefficients: Tensor | None = None) -> Form:
        """A factor: its coefficients over the deep symbols are (deep, *shape)."""
        if coefficients is None:
            none = Rows(np.empty(0, np.int64))
            return Form(center, center.new_zeros(0, *center.shape), torch.zeros_like(center), none)
        return Form(center, coefficients, torch.zeros_like(center), self.deep)

    def holds(self, a: Form, b: Form, own: Tensor | None = None) -> None:
        """What is computed for every element and direction is at least what is exact."""
        found, lines = exact(self.reach(a, b, own)), len(a.center)
        exact_a, exact_b = self._over(a), self._over(b)
        for line in range(lines):
            for unit in range(b.center.shape[1]):
                over = total(exact_a[:, line, :] * exact(b.center)[:, unit], 1)
                over = over + total(exact_b[:, :, unit] * exact(a.center)[line], 1)
                numbers = self.deep.numbers
                if own is not None and self.own is not None and self.own.batch is not None:
                    mine = self.own.batch.numbers[line]
                    numbers = np.concatenate((numbers, mine[~np.isin(mine, numbers)]))
                    over = np.concatenate((over, exact(torch.zeros(len(numbers) - len(over)))))
                    for symbol, value in zip(mine, exact(own[:, line, unit]), strict=True):
                        over[int(np.flatnonzero(numbers == symbol)[0])] += value
                wanted = exact_support(self.space, numbers, over)
                assert found[0, line, unit] >= wanted[0] and found[1, line, unit] >= wanted[1]

    def _over(self, x: Form) -> Exact:
        if len(x.rows):
            return exact(x.generators)
        return exact(torch.zeros(len(self.deep), *x.center.shape))


def of(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture(autouse=True, params=[float("inf"), 0], ids=["in blocks", "by a kernel"])
def on_a_processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of a processor in both ways, however little there is to do."""
    monkeypatch.setattr(processor_kernel, "WORTH_A_COMPILER", request.param)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["one sign", "near one", "cancelling"])
@pytest.mark.parametrize("threat", THREATS)
@pytest.mark.parametrize("batch", [0, 3])
def test_products(threat: str, kind: str, dtype: torch.dtype, batch: int) -> None:
    """Both factors move, and so does the own sample of a line, by symbols that the factors know or do not know."""
    made = Product(THREATS[threat], 2, each=2, batch=batch)
    lines, inner, units, count = 3, 2, 2, len(made.deep)
    center_a, center_b = adverse(kind, (lines, inner), dtype, 1), adverse("one sign", (inner, units), dtype, 2)
    a, b = adverse(kind, (count, lines, inner), dtype, 3), adverse("near one", (count, inner, units), dtype, 4)
    own = adverse("near one", (len(made.own), lines, units), dtype, 5) if made.own is not None else None
    made.holds(made.form(center_a, a), made.form(center_b, b), own)


def test_factors_are_rounded_to_float32() -> None:
    """The threshold of a budget is one float32, and all of it is less than the exact product of its two factors."""
    made, near = Product(AtMost(1, Linf(0.5)), 2), 1 + 0.9 * UNIT32
    ones, b = of(near, 1.0).view(2, 1), of(near, 0.5).view(2, 1, 1)
    made.holds(made.form(ones), made.form(of(0.0).view(1, 1), b))
    made.holds(made.form(0 * ones, b.expand(2, 2, 1).contiguous()), made.form(of(near).view(1, 1)))


SMALL = 1.4 * 2.0**-149  # the nearest float32 is less by two fifths
UNDERFLOW = {
    "the first factor": (SMALL, 2.0**100),
    "the second factor": (2.0**100, SMALL),
    "their product": (1.3 * 2.0**-80, 1.1 * 2.0**-69),
    "both": (1.2 * 2.0**-60, 1.4 * 2.0**-150),
}


@pytest.mark.parametrize("what", UNDERFLOW)
@pytest.mark.parametrize("moves", ["first", "second"])
@pytest.mark.parametrize("threat", [Linf(0.5), AtMost(1, Linf(0.5))], ids=repr)
def test_what_float32_cannot_hold(threat: Threat, what: str, moves: str) -> None:
    made, (first, second) = Product(threat, 1), UNDERFLOW[what]
    a, b = of(1.0, first).view(2, 1), of(1.0, second).view(1, 2)
    if moves == "second":
        made.holds(made.form(a), made.form(torch.zeros_like(b), b.unsqueeze(0)))
    else:
        made.holds(made.form(torch.zeros_like(a), a.unsqueeze(0)), made.form(b))


def test_squares_that_float32_cannot_hold() -> None:
    made, b = Product(AtMost(1, L2(0.5)), 1), of(1.0, 2.0**-80).view(1, 1, 2)
    made.holds(made.form(of(1.0).view(1, 1)), made.form(0 * b[0], b))


def one_after_the_other(stream: Stream, budget: int | None) -> tuple[Tensor, Tensor]:
    """A stream of boxes, one symbol an owner, as `exceeding`; block sums in the worst order that there is."""
    assert budget is None and stream.mixed is None
    terms = (torch.einsum("ni,jwio->njwo", stream.lines, stream.weights) + stream.bias).abs().sum(2)
    sums = torch.zeros(terms.shape[:-1])
    for term in terms.unbind(-1):
        sums = sums + term
    return torch.zeros(2, *sums.shape, dtype=torch.float64), sums.double().expand(2, *sums.shape)


def test_blocks_are_summed_in_any_order() -> None:
    """What is less than half a unit of the sum is lost each time; every kernel has an order of its own."""
    made, values = Product(Linf(0.5), BLOCK), adverse("swallowed", (BLOCK,), torch.float32)
    a, b = of(1.0).view(1, 1), values.double().view(-1, 1, 1)
    before, factored_support.exceeding = factored_support.exceeding, one_after_the_other
    try:
        made.holds(made.form(a), made.form(torch.zeros_like(a), b))
    finally:
        factored_support.exceeding = before


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_own_terms_of_several_clauses(dtype: torch.dtype) -> None:
    """The second is less than half a unit of the first, and no factor moves at all."""
    made = Product(AtMost(1, L1(0.5)) & AtMost(1, Labels()), 0, batch=1)
    own = torch.tensor([1.0, 0.98 * UNIT[dtype]], dtype=dtype).view(2, 1, 1)
    zero = torch.zeros(1, 1, dtype=dtype)
    made.holds(made.form(zero), made.form(zero, zero.unsqueeze(0)), own)
