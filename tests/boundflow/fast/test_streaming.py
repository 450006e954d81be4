"""Supports of products, streamed by owner in float32: never below those written out in float64, and how far above."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import boundflow as bf
from boundflow.analysis import smaller_threats
from boundflow.arithmetic.thread_context import thread, using
from boundflow.fast.support import factored_support, largest_terms, processor_kernel, reused_coefficients, streaming
from boundflow.fast.support.streaming import Stream, exceeding
from boundflow.refinements.upper_products import upper_product
from boundflow.sets import factors
from boundflow.sets.forms import Form
from boundflow.symbols import support
from boundflow.symbols.budgets import Kind
from boundflow.symbols.expansion import Expansion
from boundflow.symbols.rows import Rows
from boundflow.symbols.symbol_numbers import DERIVED
from boundflow.threats import L1, L2, AtMost, Labels, Linf, Removal
from boundflow.training import certified_training

THREATS = {
    "all samples": Linf(0.01),
    "one of them": AtMost(1, Linf(0.05)),
    "a third of them": AtMost(40, Linf(0.01)),
    "a Euclidean ball": AtMost(5, L2(0.05)),
    "a sum of moduli": AtMost(5, L1(0.05)),
    "labels": AtMost(3, Labels()),
    "labels and features, each with a budget": AtMost(2, Labels()) & AtMost(3, Linf(0.01)),
    "labels and features of the same samples": AtMost(2, Labels() & Linf(0.01)),
    "removal": AtMost(2, Removal()),
}


def data(samples=128, seed=0, scale=None):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 3, generator=generator, dtype=torch.float64)
    if scale is not None:
        x = x * scale
    return x, (x[:, 0] > x[:, 1]).long()


def compared(monkeypatch, threat, x, y, dtype=torch.float64, batch=None, model=None, device="cpu"):
    """Every support of a run, streamed and written out."""
    found, written_out = [], support.Support.__call__
    monkeypatch.setattr(factors.Factors, "pay", lambda self, expansion: True)

    def both(self, form, clean=False, factors=None, comes_again=False):
        monkeypatch.setattr(support, "STREAM_FROM", 0)
        streamed = written_out(self, form, clean, factors, comes_again)
        monkeypatch.setattr(support, "STREAM_FROM", float("inf"))
        exact = written_out(self, form, clean, factors)
        if not torch.equal(streamed, exact):
            found.append((streamed.double(), exact.double()))
        return streamed

    monkeypatch.setattr(support.Support, "__call__", both)
    torch.manual_seed(0)
    model = (model or nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2))).to(dtype)
    options = {"loss": "ce", "optimizer_options": {"lr": 0.5}, "epochs": 3, "order": 2, "batch_size": batch}
    certificate = bf.certify(model, (x.to(dtype), y), threat=threat, device=device, **options)
    certificate.predict(x[:20].to(dtype))
    return found


@pytest.fixture(autouse=True, params=[float("inf"), 0], ids=["in blocks", "by a kernel"])
def on_a_processor(request, monkeypatch):
    """Streams of a processor in both ways, however little there is to do."""
    monkeypatch.setattr(processor_kernel, "WORTH_A_COMPILER", request.param)


@pytest.mark.parametrize("name", THREATS)
def test_a_streamed_support_is_at_least_the_one_that_is_written_out(name, monkeypatch):
    found = compared(monkeypatch, THREATS[name], *data())
    for streamed, exact in found:
        assert bool((streamed >= exact * (1 - 1e-12)).all())
        assert float(streamed.sum()) <= 1.002 * float(exact.sum())
    assert bool(found) is (name != "labels and features of the same samples")  # terms of one clause are added before


def test_samples_that_come_for_the_first_time_have_symbols_of_their_own(monkeypatch):
    for streamed, exact in compared(monkeypatch, AtMost(4, Linf(0.02)), *data(), batch=32):
        assert bool((streamed >= exact * (1 - 1e-12)).all())


def test_in_float32_as_well(monkeypatch):
    found = compared(monkeypatch, AtMost(4, Linf(0.02)), *data(), dtype=torch.float32)
    assert found
    for streamed, exact in found:  # written out, roundings are charged for all samples, and not for the worst alone
        assert bool((streamed >= exact * (1 - 1e-4)).all())


def test_features_of_very_different_size(monkeypatch):
    scale = torch.tensor([1e-6, 1.0, 1e5], dtype=torch.float64)
    found = compared(monkeypatch, AtMost(4, Linf(1e-7)), *data(scale=scale))
    for streamed, exact in found:
        assert bool((streamed >= exact * (1 - 1e-12)).all())


def test_what_cancels_is_left_to_float64(monkeypatch):
    """Where the payment for float32 is a large share of the support, the answer is the one in float64."""
    monkeypatch.setattr(factored_support, "MOST_PAYMENT", 0.0)
    assert not compared(monkeypatch, AtMost(4, Linf(0.02)), *data())


def stream(kind, heavy, mixed, own=True, seed=0, inner=4):
    generator = torch.Generator().manual_seed(seed)
    lines, units, symbols, owners = 9, 2, 3, 1024

    def random(*shape):
        values = torch.randn(*shape, generator=generator)
        return values**5 if heavy else values

    return Stream(
        kind,
        random(lines, inner),
        random(units, symbols, inner, owners),
        random(units, symbols, owners),
        random(lines, inner, symbols, owners) if mixed else None,
        random(inner, units) if mixed else None,
        torch.randint(-1, owners, (lines,), generator=generator) if own else torch.full((lines,), -1),
    )


def terms(stream):
    """All terms in float64, (2, lines, units, owners), without those of the own owners."""
    c = torch.einsum("ni,jwio->njwo", stream.lines.double(), stream.weights.double()) + stream.bias.double()
    if stream.mixed is not None:
        c = c + torch.einsum("niwo,ij->njwo", stream.mixed.double(), stream.mix.double())
    ends = {
        Kind.BOX: lambda c: c.abs().sum(2),
        Kind.BALL: lambda c: c.square().sum(2).sqrt(),
        Kind.CROSS: lambda c: c.abs().amax(2),
        Kind.SIMPLEX: lambda c: c.amax(2).clamp_min(0.0),
    }[stream.kind]
    found = torch.stack((ends(-c), ends(c)))
    for line, owner in enumerate(stream.own.tolist()):
        if owner >= 0:
            found[:, line, :, owner] = 0.0
    return found


@pytest.mark.parametrize("mixed", [False, True], ids=["plain", "mixed"])
@pytest.mark.parametrize("heavy", [False, True], ids=["normal", "heavy tails"])
@pytest.mark.parametrize("budget", [None, 1, 3, 100, 900, 5000])
@pytest.mark.parametrize("kind", list(Kind), ids=[kind.value for kind in Kind])
def test_a_threshold_bounds_the_sum_of_the_largest_terms(kind, budget, heavy, mixed):
    made = stream(kind, heavy, mixed)
    tau, beyond = exceeding(made, budget)
    bound = (0 if budget is None else budget) * tau + beyond
    exact = terms(made).sort(-1, descending=True).values[..., :budget].sum(-1)
    assert bool((bound >= exact * (1 - 1e-5)).all())
    assert bool((bound <= exact * 1.05).all())
    if budget is None or budget < 16 or budget > 1024:
        assert torch.allclose(bound, exact, rtol=1e-5)


def test_a_sample_of_the_owners_is_as_large_as_it_has_to_be():
    assert streaming.rank(3, 60000) == (1, 3)
    assert streaming.rank(200, 15216) == (12, 17)
    assert streaming.rank(200, 1000) == (1, 200)
    assert streaming.rank(5000, 60000) == (16, 313)
    with using(replace(thread.arithmetic, samples_of=60000 / 600)):  # of a trial, the same part
        assert streaming.rank(50, 600) == (16, 4)


KERNEL = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def moved(made, device):
    return Stream(*(x.to(device) if isinstance(x, torch.Tensor) else x for x in vars(made).values()))


@KERNEL
@pytest.mark.parametrize("shape", ["plain", "mixed", "long lines"])
@pytest.mark.parametrize("budget", [None, 1, 3, 100, 900])
@pytest.mark.parametrize("kind", list(Kind), ids=[kind.value for kind in Kind])
def test_the_kernel_computes_the_same(kind, budget, shape):
    made = stream(kind, False, shape == "mixed", inner=150 if shape == "long lines" else 4)
    tau, beyond = exceeding(moved(made, "cuda"), budget)
    bound = (0 if budget is None else budget) * tau.cpu() + beyond.cpu()
    exact = terms(made).sort(-1, descending=True).values[..., :budget].sum(-1)
    assert bool((bound >= exact * (1 - 1e-5)).all())
    assert bool((bound <= exact * 1.05).all())


@KERNEL
def test_streams_of_a_gpu_in_float32(monkeypatch):
    found = compared(monkeypatch, AtMost(4, Linf(0.02)), *data(), dtype=torch.float32, device="cuda")
    assert found
    for streamed, exact in found:  # written out, roundings are charged for all samples, and not for the worst alone
        assert bool((streamed >= exact * (1 - 1e-4)).all())


@KERNEL
@pytest.mark.parametrize("batch", [None, 32])
@pytest.mark.parametrize("name", THREATS)
def test_streams_of_a_gpu(name, batch, monkeypatch):
    """With what is kept of differences: their multiples come again in the gradient."""
    kept, multiple = [], reused_coefficients.KeptLines.multiple

    def counted(self, *given, **told):
        kept.append(multiple(self, *given, **told))
        return kept[-1]

    monkeypatch.setattr(reused_coefficients.KeptLines, "multiple", counted)
    found = compared(monkeypatch, THREATS[name], *data(), batch=batch, device="cuda")
    for streamed, exact in found:
        assert bool((streamed >= exact * (1 - 1e-12)).all())
        assert float(streamed.sum()) <= 1.003 * float(exact.sum())
    if name != "labels and features of the same samples":
        assert found and kept and None not in kept


@KERNEL
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("terms", [40, 1268, 9000])
@pytest.mark.parametrize("k", [1, 17, 40])
def test_the_largest_terms_on_a_gpu(k, terms, dtype):
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(50, 3 * terms, generator=generator, dtype=dtype) - 0.5
    rows[0, :6], rows[1] = float("nan"), 0.0
    there = rows.cuda()
    apart = torch.unflatten(rows.double(), 1, (terms, 3))
    wanted = {
        largest_terms.BOX: apart.abs().sum(2).unsqueeze(0),
        largest_terms.CROSS: apart.abs().amax(2).unsqueeze(0),
        largest_terms.SIMPLEX: torch.stack(((-apart).amax(2), apart.amax(2))).clamp_min(0.0),
    }
    for kind, exact in wanted.items():
        sums = largest_terms.sums_of_largest(there, kind, 0, terms, 3, k).cpu().double()
        assert torch.allclose(sums, exact.topk(k).values.sum(-1), rtol=1e-5, equal_nan=True)
    once = rows[2:, :terms].abs().contiguous()
    assert torch.equal(largest_terms.kth_largest(once.cuda(), k).cpu(), once.topk(k).values.amin(-1))


@KERNEL
def test_bounds_that_are_void_are_found_when_the_step_is_over():
    x, y = data()

    def void_at(device):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2)).double()
        options = {"loss": "ce", "optimizer_options": {"lr": 1e3}, "epochs": 60, "domain": "interval"}
        return bf.certify(model, (x, y), threat=Linf(0.5), device=device, **options).void_at_step

    assert void_at("cuda") == void_at("cpu") is not None


def counted(monkeypatch):
    """The second factors that are made ready from now on."""
    made, first = [], factored_support._Second.__init__

    def count(self, *args):
        made.append(self)
        first(self, *args)

    monkeypatch.setattr(factored_support._Second, "__init__", count)
    return made


def test_a_second_factor_is_made_ready_once_for_all_pieces_of_a_batch(monkeypatch):
    monkeypatch.setattr(support, "STREAM_FROM", 0)
    monkeypatch.setattr(factors.Factors, "pay", lambda self, expansion: True)
    made = counted(monkeypatch)
    monkeypatch.setattr(certified_training, "chunk_size", lambda *arguments: 40)
    x, y = data()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    options = {"loss": "ce", "optimizer_options": {"lr": 0.5}, "epochs": 2, "order": 2}
    certificate = bf.certify(model, (x, y), threat=AtMost(4, Linf(0.01)), **options)
    assert certificate.void_at_step is None
    assert len(made) == 3  # in the second step, the first that looks through an expansion: forwards two, backwards one


class Step:
    """Products of one step: all look through the same expansion, of four derived symbols over those of samples."""

    def __init__(self):
        self.space, samples = bf.Symbols(AtMost(3, Linf(0.5))), 40
        own = self.space.of_samples(np.arange(samples), np.zeros((samples, 1)), np.zeros(1, dtype=np.int64))
        self.generator = torch.Generator().manual_seed(0)
        self.derived = self.space.fresh(4, DERIVED).numbers
        weights = self.random(len(self.derived), samples)
        expansion = Expansion(Rows(self.derived), own.batch.distinct, weights / weights.abs().sum(1, keepdim=True))
        self.optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)  # the space holds it weakly
        self.space.expands(self.optimizer, expansion)
        self.first = self.random(5, 3)
        self.zeros = {shape: torch.zeros(shape, dtype=torch.float64) for shape in ((3, 3), (3,))}

    def random(self, *shape):
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def form(self, center, generators, symbols=slice(2)):
        return Form(center, generators, self.zeros[tuple(center.shape)], Rows(self.derived[symbols]))

    def reach(self, second, bias):
        """How far the product of a plain tensor with the second factor reaches: streamed, and from its rows."""
        first = Form(self.first, self.first.new_zeros(0, *self.first.shape), 0 * self.first, Rows(self.derived[:0]))
        rows = second.rows if bias is None else second.rows.union(bias.rows)
        generators = rows.place(self.first @ second.generators, second.rows)
        if bias is not None:
            generators = generators + rows.place(bias.generators, bias.rows).unsqueeze(1)
        center = self.first @ second.center
        product = Form(center, generators, torch.zeros_like(center), rows)
        return self.space.support(product, factors=factors.Factors(first, second, bias)), self.space.support(product)


def test_opposite_rows_of_lines_that_are_not_quite_opposite(monkeypatch):
    """Two inner terms become one, and what the lines add up to is paid for."""
    monkeypatch.setattr(support, "STREAM_FROM", 0)
    monkeypatch.setattr(factors.Factors, "pay", lambda self, expansion: True)
    step = Step()
    line, row = step.random(5, 1), 0.01 * step.random(2, 5, 1)
    center, generators = torch.cat((line, -1.0001 * line), 1), torch.cat((row, -row), 2)
    first = Form(center, generators, 0 * center, Rows(step.derived[2:]))
    second = Form(
        step.random(2, 3), step.random(2, 2, 3), torch.zeros(2, 3, dtype=torch.float64), Rows(step.derived[:2])
    )
    rows = first.rows.union(second.rows)
    products = rows.place(generators @ second.center, first.rows) + rows.place(center @ second.generators, second.rows)
    product = Form(center @ second.center, products, torch.zeros(5, 3, dtype=torch.float64), rows)
    made = factors.Factors(first, second, None)
    streamed, written_out = step.space.support(product, factors=made), step.space.support(product)
    assert made.opposed and not torch.equal(streamed, written_out)
    assert bool((streamed >= written_out * (1 - 1e-12)).all()) and bool((streamed <= 1.01 * written_out).all())


def other_memory(step, center, rows, bias):
    """Two weights of the same shape, which move by the same symbols."""
    yield step.form(center, rows), None
    yield step.form(step.random(3, 3), step.random(2, 3, 3)), None


def halves_of_one_tensor(step, center, rows, bias):
    """Two halves of one weight, whose numbers stand in the same memory."""
    together = step.random(2, 2, 3, 3)
    for half in together.unbind(0):
        yield step.form(center, half), None


def other_rows(step, center, rows, bias):
    """The same center, and other rows."""
    yield step.form(center, rows), None
    yield step.form(center, step.random(2, 3, 3)), None


def turned_round(step, center, rows, bias):
    """A weight and its transpose, which begin at the same place."""
    yield step.form(center, rows), None
    yield step.form(center.T, rows.transpose(1, 2)), None


def other_symbols(step, center, rows, bias):
    """The same numbers, as rows of other symbols."""
    yield step.form(center, rows), None
    yield step.form(center, rows, slice(2, 4)), None


def other_bias(step, center, rows, bias):
    """The same factor, with biases whose rows differ."""
    yield step.form(center, rows), step.form(bias, step.random(2, 3))
    yield step.form(center, rows), step.form(bias, step.random(2, 3))


def bias_of_other_symbols(step, center, rows, bias):
    """The same factor and the same numbers of a bias, as rows of other symbols."""
    numbers = step.random(2, 3)
    yield step.form(center, rows), step.form(bias, numbers)
    yield step.form(center, rows), step.form(bias, numbers, slice(2, 4))


def no_bias(step, center, rows, bias):
    """The same factor, with a bias and without."""
    yield step.form(center, rows), None
    yield step.form(center, rows), step.form(bias, step.random(2, 3))


@pytest.mark.parametrize(
    "pair",
    [
        *(other_memory, halves_of_one_tensor, other_rows, turned_round, other_symbols),
        *(other_bias, bias_of_other_symbols, no_bias),
    ],
)
def test_second_factors_that_differ_stand_ready_apart(pair, monkeypatch):
    """Two products of one step, each twice: a second factor is made ready once, and none is taken for another."""
    monkeypatch.setattr(support, "STREAM_FROM", 0)
    monkeypatch.setattr(factors.Factors, "pay", lambda self, expansion: True)
    made, step = counted(monkeypatch), Step()
    products = [*pair(step, step.random(3, 3), step.random(2, 3, 3), step.random(3))]
    for second, bias in products * 2:
        streamed, written_out = step.reach(second, bias)
        assert bool((streamed >= written_out * (1 - 1e-12)).all())
        assert bool((streamed <= 1.01 * written_out).all())
    assert len(made) == len(products)


class UsedAgain(nn.Module):
    """A network whose layers are one weight, a multiple of it and its transpose: all move by the same symbols."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x):
        hidden = torch.tanh(self.layer(x))
        hidden = torch.tanh(nn.functional.linear(hidden, 3 * self.layer.weight, self.layer.bias))
        return self.head(torch.tanh(hidden @ self.layer.weight))


def test_layers_that_are_made_of_one_weight(monkeypatch):
    torch.manual_seed(0)
    found = compared(monkeypatch, AtMost(4, Linf(0.02)), *data(), model=UsedAgain())
    assert found
    for streamed, exact in found:
        assert bool((streamed >= exact * (1 - 1e-12)).all())
        assert float(streamed.sum()) <= 1.002 * float(exact.sum())


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=KERNEL)])
@pytest.mark.parametrize("mixed", [False, True], ids=["plain", "mixed"])
@pytest.mark.parametrize("kind", list(Kind), ids=[kind.value for kind in Kind])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_never_lost(kind, value, mixed, device):
    """Every comparison with NaN is false, and the caller must see it."""
    odd = stream(kind, False, mixed)
    odd.weights[1, 2, 3, 1000] = value
    odd = moved(odd, device)
    for budget in (None, 3):
        assert not bool(exceeding(odd, budget)[1][:, :, 1].isfinite().all(0).any())
        assert bool(exceeding(odd, budget)[1][:, :, 0].isfinite().all())


def test_threads_share_the_lines_and_change_no_bit():
    one, threads = stream(Kind.SIMPLEX, False, True), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = exceeding(one, 3)
        torch.set_num_threads(2)
        assert all(map(torch.equal, alone, exceeding(one, 3)))
    finally:
        torch.set_num_threads(threads)


def test_what_stands_ready_is_for_one_budget(monkeypatch):
    """The same weights, asked with a smaller budget in between: neither answer is that of the other."""
    monkeypatch.setattr(support, "STREAM_FROM", 0)
    monkeypatch.setattr(factors.Factors, "pay", lambda self, expansion: True)
    x, y = data()

    def trained():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)).double()
        options = {"loss": "ce", "optimizer_options": {"lr": 0.5}, "epochs": 3, "order": 2}
        return bf.certify(model, (x, y), threat=AtMost(40, Linf(0.05)), **options).model

    def width(asked):
        bounds = asked(x[:20]).set.bounds
        return bounds[1] - bounds[0]

    first, second = trained(), trained()
    wide, narrow = width(first), width(smaller_threats.with_budget(second, 0, 1))
    assert torch.equal(width(second), wide)
    assert torch.equal(width(smaller_threats.with_budget(first, 0, 1)), narrow)


def test_without_a_compiler_it_is_done_in_blocks(monkeypatch):
    one = stream(Kind.BOX, False, False)
    processor_kernel._library.cache_clear()
    monkeypatch.setattr(processor_kernel, "COMPILERS", ("no-such-compiler",))
    try:
        assert not processor_kernel.usable(one) and bool(exceeding(one, 3)[1].isfinite().all())
    finally:
        processor_kernel._library.cache_clear()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_a_compiler_with_flags_of_its_own_is_found_out(monkeypatch, tmp_path):
    """Under these nothing is NaN, and every process that loads the kernel flushes subnormal numbers to zero."""
    script = tmp_path / "cc"
    script.write_text('#!/bin/sh\nexec gcc "$@" -ffast-math\n')
    script.chmod(0o755)
    processor_kernel._library.cache_clear()
    monkeypatch.setattr(processor_kernel, "COMPILERS", (str(script),))
    try:
        assert processor_kernel._library() is None
        assert bool(torch.tensor(torch.finfo(torch.float32).tiny) * 0.5 > 0)
    finally:
        processor_kernel._library.cache_clear()
    monkeypatch.undo()
    assert processor_kernel._library() is not None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_matrix_units_of_a_gpu():
    generator = torch.Generator().manual_seed(0)
    x, y = (10.0 ** torch.randn(shape, generator=generator) for shape in ((512, 2048), (2048, 512)))
    wanted = x.double() @ y.double()
    found = upper_product(torch.mm, x.cuda(), y.cuda()).cpu().double()
    assert bool((found >= wanted).all()) and bool((found <= 1.002 * wanted).all())
