"""Memory as a promise: what does not fit is refused before the first step, pieces are no looser than the whole."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

import boundflow as bf
from boundflow import memory_plan, training
from boundflow.clean_state import Excess
from boundflow.forms import Form
from boundflow.memory_plan import Need, Owned, _owned
from boundflow.out_of_memory import ran_out
from boundflow.prepared import Prepared
from boundflow.sample_axis import Samples
from boundflow.verified_rows import tracked

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
        Need.of(prepared, batches, Owned(0, 0)).require(prepared, 2, whole=False)
    assert refusal.value.order is not None
    fewer = Prepared(prepared.model, data(20, 700, 2), prepared.threat, prepared.recipe.but(order=refusal.value.order))
    Need.of(fewer, batches, Owned(0, 0)).require(fewer, 2, whole=False)


def test_only_what_is_trained_gives_activations_rows() -> None:
    """A sample of flattened images takes no more than one of flat ones, and frozen features next to nothing."""
    threat, batches = bf.threats.Linf(1e-4), [torch.arange(20)]
    layers = nn.Linear(300, 5), nn.Tanh(), nn.Linear(5, 1)

    def sample(model: nn.Module) -> float:
        prepared = Prepared(model.double(), data(20, 300, 2), threat, bf.Recipe(loss="bce"))
        return Need.of(prepared, batches, Owned(0, 0)).sample

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
    need = Need.of(prepared, [torch.arange(400)], Owned(1, 400))
    assert need.largest == 8 * 4 * (29 + 1)
    assert need.fastest(prepared, 400) == 400
    monkeypatch.setattr(memory_plan, "PIECE", 50 * need.largest)
    assert need.fastest(prepared, 100) == 100 and need.fastest(prepared, 400) == 50


@pytest.mark.parametrize("tracks", [True, False])
@pytest.mark.parametrize("classes", [2, 4])
def test_pieces_are_as_tight_as_the_whole(tracks: bool, classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to what rounding is charged for: the k worst samples are those of all pieces together."""
    x, y = data(60, 5, classes)
    torch.manual_seed(0)
    model = nn.Linear(5, classes if classes > 2 else 1).double()
    recipe = bf.Recipe(loss="ce" if classes > 2 else "bce", optimizer_options={"lr": 0.5}, epochs=3)
    monkeypatch.setattr(training, "rows_fit", lambda *arguments: tracks)
    widths = []
    for size in (60, 20, 7):
        monkeypatch.setattr(training, "chunk_size", lambda *arguments, size=size: size)
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

    monkeypatch.setattr(training._Run, "_on_sets", fails)
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
