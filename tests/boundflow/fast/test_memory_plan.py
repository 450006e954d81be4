"""Memory as a promise: what does not fit is refused before the first step, pieces are no looser than the whole."""

from __future__ import annotations

import gc
import random
import re
import resource
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

import boundflow as bf
from boundflow.analysis.verified_rows import tracked
from boundflow.fast.memory import memory_plan
from boundflow.fast.memory.memory_plan import _owned, fastest, need_of, require
from boundflow.fast.memory.needed_memory import Owned
from boundflow.fast.memory.out_of_memory import ran_out
from boundflow.sets.clean_state import Excess
from boundflow.sets.forms import Form
from boundflow.sets.sample_axis import Samples
from boundflow.threats.lifting import Lifting
from boundflow.training import certified_training
from boundflow.training.checked_inputs import Prepared

LABELS = bf.threats.AtMost(3, bf.threats.Labels())


def data(samples: int, features: int, classes: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(samples, features, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, classes, (samples,), generator=generator)


def test_what_cannot_fit_is_refused_before_the_first_step() -> None:
    model, steps = nn.Linear(3000, 1).double(), []
    with pytest.raises(bf.TooLittleMemory, match="would fit") as refusal:
        recipe = bf.Recipe(loss="bce", memory=200e6, epochs=9)
        bf.certify(model, data(20, 3000, 2), recipe, threat=bf.threats.Linf(1e-4), callbacks=[steps.append])
    assert not steps and isinstance(refusal.value, MemoryError)
    assert refusal.value.needed is not None and refusal.value.needed > 200e6
    assert f"memory={1.1 * refusal.value.needed:.2g}" in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("size", [None, 20])
def test_values_that_are_not_missing_take_no_rows(size: int | None) -> None:
    """Of a table in which few cells are missing the plan counts those, and a flip for every sample."""
    x, y = data(100, 6, 2)
    x[:, 2:] = torch.eye(4, dtype=torch.float64)[torch.arange(100) % 4]
    x[::20, 2:], x[7, 0] = float("nan"), float("nan")
    missing = bf.threats.MissingCategory([2, 3, 4, 5]) & bf.threats.Missing((0.0, 1.0)).on(features=[0, 1])
    recipe = bf.Recipe(loss="bce", epochs=1, batch_size=size)
    prepared = Prepared(nn.Linear(6, 1).double(), (x, y), missing & LABELS, recipe)
    batches = [torch.arange(100)] if size is None else list(torch.arange(100).split(20))
    counted = _owned(prepared, batches, 1)
    assert counted.each == 11 and counted.together == 100 + 10 * (6 + len(batches))
    found = tracked(bf.certify(nn.Linear(6, 1).double(), (x, y), recipe, threat=missing & LABELS, progress=False).model)
    assert 100 + 5 * 4 + 1 <= (found.owners >= 0).sum() <= counted.together


def test_the_order_that_a_refusal_names_fits() -> None:
    prepared = Prepared(
        nn.Linear(700, 1).double(), data(20, 700, 2), bf.threats.Linf(1e-4), bf.Recipe(loss="bce", memory=200e6)
    )
    batches = [torch.arange(20)] * 10
    with pytest.raises(bf.TooLittleMemory, match="order=") as refusal:
        require(need_of(prepared, batches, Owned(0, 0)), prepared, 2, whole=False)
    assert refusal.value.order is not None
    fewer = Prepared(prepared.model, data(20, 700, 2), prepared.threat, prepared.recipe.but(order=refusal.value.order))
    require(need_of(fewer, batches, Owned(0, 0)), fewer, 2, whole=False)


def test_only_what_is_trained_gives_activations_rows() -> None:
    """A sample of flattened images takes no more than one of flat ones, and frozen features next to nothing."""
    threat, batches = bf.threats.Linf(1e-4), [torch.arange(20)]
    layers = nn.Linear(300, 5), nn.Tanh(), nn.Linear(5, 1)

    def sample(model: nn.Module) -> float:
        prepared = Prepared(model.double(), data(20, 300, 2), threat, bf.Recipe(loss="bce"))
        return need_of(prepared, batches, Owned(0, 0)).sample

    flat, flattened = sample(nn.Sequential(*layers)), sample(nn.Sequential(nn.Flatten(), *layers))
    assert flat < flattened < 1.1 * flat
    layers[0].requires_grad_(False)
    assert sample(nn.Sequential(*layers)) < 0.01 * flat


def test_the_rows_of_a_step_are_freed_with_it() -> None:
    """Not when Python looks for cycles: a form that held itself kept the rows of the steps before."""
    x, y = data(20, 4, 2)
    space = bf.Symbols(bf.threats.Linf(1e-3), tracks=False)
    model = bf.lift(nn.Linear(4, 1).double(), space)
    optimizer, alive = torch.optim.SGD(model.parameters(), lr=0.1), []
    space.attach(optimizer)
    gc.collect()
    gc.disable()
    try:
        for _ in range(4):
            optimizer.zero_grad()
            inputs, targets = space.lift(x, y.double().unsqueeze(1), torch.arange(20))
            nn.functional.binary_cross_entropy_with_logits(model(inputs), targets).backward()
            optimizer.step()
            alive.append(sum(type(thing) is Form for thing in gc.get_objects()))
    finally:
        gc.enable()
    assert alive[1] == alive[2] == alive[3]


def test_pieces_are_not_larger_than_is_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest tensor of a piece: the widest layer that depends on what is trained, over all rows."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    prepared = Prepared(model, data(400, 5, 2), LABELS, bf.Recipe(loss="bce"))
    need = need_of(prepared, [torch.arange(400)], Owned(1, 400))
    assert need.largest == 8 * 4 * (29 + 1)
    assert fastest(need, prepared, 400) == 400
    monkeypatch.setattr(memory_plan, "PIECE", 50 * need.largest)
    assert fastest(need, prepared, 100) == 100 and fastest(need, prepared, 400) == 50


@pytest.mark.parametrize("tracks", [True, False])
@pytest.mark.parametrize("classes", [2, 4])
def test_pieces_are_as_tight_as_the_whole(tracks: bool, classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to what rounding is charged for: the k worst samples are those of all pieces together."""
    x, y = data(60, 5, classes)
    torch.manual_seed(0)
    model = nn.Linear(5, classes if classes > 2 else 1).double()
    recipe = bf.Recipe(loss="ce" if classes > 2 else "bce", optimizer_options={"lr": 0.5}, epochs=3)
    monkeypatch.setattr(certified_training, "rows_fit", lambda *arguments: tracks)
    widths = []
    for size in (60, 20, 7):
        monkeypatch.setattr(certified_training, "chunk_size", lambda *arguments, size=size: size)
        made = bf.certify(model, (x, y), recipe, threat=LABELS, progress=False)
        assert made.model is not None
        widths.append(torch.cat([(p.upper - p.lower).flatten() for p in made.model.parameters()]))
    assert all(bool((wide / widths[0] - 1).abs().max() < 1e-6) for wide in widths)


def test_the_worst_of_a_piece_are_all_that_later_pieces_need() -> None:
    generator = torch.Generator().manual_seed(0)

    def made(begin: int) -> Excess:
        sides = torch.randn(2, 2, 30, 8, generator=generator, dtype=torch.float64)
        interval, radius = torch.zeros(2, 8, dtype=torch.float64), torch.zeros(8, dtype=torch.float64)
        return Excess(Samples(begin + torch.arange(30).numpy(), 3), interval, sides[0], radius, sides[1])

    first, second = made(0), made(30)
    whole = Excess.joined((first, second), 0.0)
    short = Excess.joined((first.of_worst(), second), 0.0).of_worst()
    assert short.beyond.shape == (2, 3, 8)
    for one, other in ((whole.bounds(), short.bounds()), (whole.total_radius(), short.total_radius())):
        assert torch.allclose(one, other, rtol=1e-12, atol=0)


def test_samples_that_come_twice_are_kept() -> None:
    sides = torch.ones(2, 4, 1, dtype=torch.float64)
    twice = Excess(Samples(torch.tensor([0, 0, 1, 2]).numpy(), 1), torch.zeros(2, 1, dtype=torch.float64), sides)
    assert twice.of_worst() is twice


# --- what the machine refuses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("std::bad_alloc"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_running_out_of_memory_has_a_name(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data(20, 3, 2)
    recipe = bf.Recipe(loss="bce")
    made = bf.certify(nn.Linear(3, 1).double(), (x, y), recipe, threat=LABELS, progress=False)

    def fails(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(certified_training._Run, "_on_sets", fails)
    with pytest.raises(bf.TooLittleMemory, match="not enough memory.*memory=") as told:
        bf.certify(nn.Linear(3, 1).double(), (x, y), recipe, threat=LABELS, progress=False)
    assert told.value.__cause__ is error
    monkeypatch.setattr(bf.Certificate, "_predict", fails)
    with pytest.raises(bf.TooLittleMemory, match="not enough memory.*chunk="):
        made.predict(x)


def test_other_errors_keep_their_name() -> None:
    assert not ran_out(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) and not ran_out(ValueError())


LIMITED = """
import resource, torch, boundflow as bf
from torch import nn
x, y = torch.rand(3000, 400, dtype=torch.float64), torch.randint(0, 10, (3000,))
bf.certify(nn.Linear(3, 1), (torch.rand(8, 3), torch.arange(8) % 2), loss="bce", threat=bf.threats.Linf(1e-4))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
try:
    threat = bf.threats.AtMost(5, bf.threats.Labels())
    bf.certify(nn.Linear(400, 10).double(), (x, y), memory=1e12, epochs=2, threat=threat)
except bf.TooLittleMemory as error:
    print("told:", error)
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_AS") or sys.platform != "linux", reason="needs a limit on memory")
def test_a_machine_without_memory() -> None:
    ended = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0 and "told: there is not enough memory" in ended.stdout, ended.stderr


# --- loops of one's own -----------------------------------------------------------------------------------------------


def step(symbols: bf.Symbols, samples: int, features: int = 300) -> Tensor:
    """The first step of a loop on images, or what refuses it."""
    x, y = data(samples, features, 2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(features, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    bf.lift(model, symbols)
    symbols.attach(optimizer)
    inputs, targets = symbols.lift(x, y, torch.arange(samples))
    loss = nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


def test_a_loop_that_would_not_fit_is_refused_before_its_batch_is_lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand images asked the allocator for 36 GB."""
    lifted, lift = [], Lifting.lifted
    monkeypatch.setattr(Lifting, "lifted", lambda one: (lifted.append(len(one.samples)), lift(one))[1])
    with pytest.raises(bf.TooLittleMemory, match="zonotopes of this loop would take") as refusal:
        step(bf.Symbols(bf.threats.Linf(1e-3), order=2), 1000, 784)
    assert set(lifted) == {1} and "\n" not in str(refusal.value)
    assert refusal.value.needed is not None and refusal.value.needed > 30e9


def test_what_the_refusal_of_a_loop_names_fits() -> None:
    """Each of the ways out is taken."""
    threat, memory = bf.threats.Linf(1e-3), 400e6
    with pytest.raises(bf.TooLittleMemory) as refusal:
        step(bf.Symbols(threat, order=2, memory=memory), 40)
    said = str(refusal.value)
    more = re.search(r"Symbols\(memory=([0-9.e+]+)\)", said)
    fewer = re.search(r"tracks=False in batches of (\d+)", said)
    assert more is not None and fewer is not None and f"memory={1.1 * (refusal.value.needed or 0):.2g}" in said
    assert bool(step(bf.Symbols(threat, order=2, tracks=False, memory=memory), int(fewer[1])).upper.isfinite())  # type: ignore[attr-defined]
    assert bool(step(bf.Symbols(threat, order=2, memory=float(more[1])), 40).upper.isfinite())  # type: ignore[attr-defined]
    with pytest.raises(bf.TooLittleMemory, match=r"batches of (\d+) samples") as narrower:
        step(bf.Symbols(threat, order=2, tracks=False, memory=memory), 400)
    assert narrower.value.batch_size is not None and narrower.value.batch_size < 400
    step(bf.Symbols(threat, order=2, tracks=False, memory=memory), narrower.value.batch_size)
    with pytest.raises(bf.TooLittleMemory, match="order=") as lower:
        step(bf.Symbols(threat, order=20, tracks=False, memory=memory), 20)
    assert lower.value.order is not None
    step(bf.Symbols(threat, order=lower.value.order, tracks=False, memory=memory), 20)


def test_a_loop_is_not_disturbed_by_what_is_asked_of_copies() -> None:
    """The model is called once for each batch, its hooks as often, and generators are where they were."""
    calls: list[str] = []

    class Counted(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            calls.append("drawn" if not self.training else "called")
            return super().forward(x) + 0.0 * float(torch.rand(1)) + 0.0 * random.random()

    model = Counted(3, 2).double()
    hooked: list[int] = []
    model.register_forward_hook(lambda *arguments: hooked.append(1))
    symbols = bf.Symbols(bf.threats.Linf(1e-3), order=2)
    bf.lift(model, symbols)
    x, y = data(20, 3, 2)
    torch.manual_seed(3)
    random.seed(3)
    symbols.lift(x, y, torch.arange(20))
    assert torch.equal(torch.rand(2), torch.rand(2, generator=torch.Generator().manual_seed(3)))
    assert random.random() == random.Random(3).random()
    assert calls == ["drawn"] and hooked == [] and symbols.fitted == (20, 20)
    symbols.lift(x, y, torch.arange(20))
    assert calls == ["drawn"]


def test_a_loop_with_a_model_that_is_called_in_another_way_is_counted_too() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(784, 10), nn.Linear(10, 2)

    symbols = bf.Symbols(bf.threats.Linf(1e-3), order=2)
    model = bf.lift(Two(), symbols)
    x, y = torch.rand(1000, 784), torch.zeros(1000, dtype=torch.long)
    with pytest.raises(bf.TooLittleMemory, match="this loop"):
        symbols.lift(x, y, torch.arange(1000))
    assert symbols.lifted_modules() == [model]
    with pytest.raises(ValueError, match="positive number of bytes"):
        bf.Symbols(memory=-1.0)
