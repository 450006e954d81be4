"""Logits of two classes wait with their supports until somebody asks: what is asked for then is what it always was."""

import threading
from dataclasses import replace

import pytest
import torch
from torch import nn

import boundflow as bf
from boundflow.arithmetic.thread_context import thread, using
from boundflow.sets import factors
from boundflow.sets.set import Set, WaitingSet
from boundflow.symbols import support
from boundflow.threats import AtMost, Labels, Linf, Threat

THREATS = [Linf(0.01), AtMost(5, Linf(0.05)), AtMost(3, Labels()), AtMost(2, Labels()) & Linf(0.01)]


@pytest.fixture(params=THREATS, ids=str)
def threat(request: pytest.FixtureRequest) -> Threat:
    made: Threat = request.param
    return made


def data() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x, (x[:, 0] > x[:, 1]).long()


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2)).double()


class OwnLoop:
    """Two steps by hand, and the logits after them."""

    def __init__(self, threat: Threat):
        self.symbols = bf.Symbols(threat, order=4)
        self.model = network()
        bf.lift(self.model, self.symbols)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.symbols.attach(self.optimizer)
        for _ in range(2):
            self.step()

    def logits(self) -> bf.Bounded:
        x, y = data()
        threat = self.symbols.threat
        targets = torch.nn.functional.one_hot(y).double() if threat.touches("targets") else y
        self.inputs, self.targets = self.symbols.lift(x, targets, torch.arange(len(x)))
        made: bf.Bounded = self.model(self.inputs)
        return made

    def step(self) -> None:
        self.optimizer.zero_grad()
        logits = self.logits()
        torch.nn.functional.cross_entropy(logits, self.targets).backward()
        self.optimizer.step()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little there is to do."""
    monkeypatch.setattr(support, "CHEAP_SUPPORT", 0)


def same(one: Set, other: Set) -> bool:
    clean = one.clean is None or (other.clean is not None and torch.equal(one.clean.bounds, other.clean.bounds))
    return torch.equal(one.bounds, other.bounds) and (one.clean is None) == (other.clean is None) and clean


def test_bounds_that_are_asked_for_are_those_that_would_have_been_made(
    threat: Threat, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = OwnLoop(threat)
    made = loop.logits().set
    monkeypatch.setattr(support, "CHEAP_SUPPORT", 0)
    later = loop.logits().set
    assert not isinstance(made, WaitingSet) and isinstance(later, WaitingSet) and later.waiting is not None
    rough = later.rough
    assert later.shape == made.shape and later.waiting is not None  # a shape is no question
    assert same(later, made) and later.waiting is None
    assert bool((rough.bounds[0] <= made.bounds[0]).all()) and bool((rough.bounds[1] >= made.bounds[1]).all())


@pytest.mark.usefixtures("waits")
def test_clean_states_are_asked_for_as_bounds_are() -> None:
    loop = OwnLoop(AtMost(5, Linf(0.05)))
    first, second = loop.logits().set, loop.logits().set
    assert first.clean is not None and second.bounds is not None and same(first, second)


@pytest.mark.usefixtures("waits")
def test_after_a_reduction_the_rough_bounds_have_to_do(threat: Threat) -> None:
    loop = OwnLoop(threat)
    logits = loop.logits().set
    asked = loop.logits().set.bounds
    rough = logits.rough.bounds
    loop.step()
    assert torch.equal(logits.bounds, rough)
    assert bool((rough[0] <= asked[0]).all()) and bool((asked[1] <= rough[1]).all())


@pytest.mark.usefixtures("waits")
def test_roundings_are_charged_as_they_were_when_the_set_was_made() -> None:
    loop = OwnLoop(Linf(0.01))
    long = replace(thread.arithmetic, length=10**9)
    loop.symbols.arithmetic, before = long, loop.symbols.arithmetic
    with using(long):
        inside, outside = loop.logits().set, loop.logits().set
        wide = inside.bounds
    loop.symbols.arithmetic = before
    assert torch.equal(outside.bounds, wide)


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("hidden", [False, True], ids=["linear", "hidden"])
def test_inputs_may_be_written_to_before_somebody_asks(hidden: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels are flipped and inputs are plain: the next batch is read into the same memory."""
    monkeypatch.setattr(factors.Factors, "pay", lambda self, expansion: True)
    x, y = data()
    symbols, model = bf.Symbols(AtMost(3, Labels()), order=4), network() if hidden else nn.Linear(3, 2).double()
    bf.lift(model, symbols)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    symbols.attach(optimizer)
    targets = torch.nn.functional.one_hot(y).double()
    for _ in range(3):
        optimizer.zero_grad()
        inputs, flipped = symbols.lift(x, targets, torch.arange(len(x)))
        torch.nn.functional.cross_entropy(model(inputs), flipped).backward()
        optimizer.step()
    asked = model(x).set.bounds
    buffer = x.clone()
    later = model(buffer).set
    buffer.zero_()
    assert torch.equal(later.bounds, asked)


@pytest.mark.usefixtures("waits")
def test_threads_that_ask_at_once_get_the_same() -> None:
    loop = OwnLoop(Linf(0.01))
    serial = loop.logits().set.bounds
    logits, found = loop.logits().set, []
    threads = [threading.Thread(target=lambda: found.append(logits.bounds)) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 4 and all(torch.equal(bounds, serial) for bounds in found)


def test_training_asks_for_differences_alone(threat: Threat, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is no looser for it."""

    def widths() -> torch.Tensor:
        x, y = data()
        options = {"loss": "ce", "optimizer_options": {"lr": 0.5}, "epochs": 3, "order": 4}
        made = bf.certify(network(), (x, y), threat=threat, progress=False, **options)
        return torch.cat([(p.upper - p.lower).flatten() for p in made.model.parameters()])

    before, asked, sharpened = widths(), [], WaitingSet.__getattr__
    monkeypatch.setattr(support, "CHEAP_SUPPORT", 0)
    monkeypatch.setattr(WaitingSet, "__getattr__", lambda self, name: asked.append(name) or sharpened(self, name))
    after = widths()
    assert not asked
    assert bool((after <= before * 1.001).all())
