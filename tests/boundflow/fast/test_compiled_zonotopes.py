"""Compiled steps on zonotopes are the steps of the rules: the same program and errors, and rows that mean the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import boundflow as bf
from boundflow.fast.steps import compiled_steps, graph_compiler
from boundflow.fast.steps.compiled_steps import why_not
from boundflow.fast.steps.step_state import NotTraceable, Zonotopes
from boundflow.training.certified_training import _Run
from boundflow.training.checked_inputs import Prepared
from tests.boundflow.fast.test_compiled import bounds, read_every, require_same_or_wider

X = torch.randn(10, 2, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
EPSILON, EPOCHS = 1e-3, 6


def network(outputs: int = 1, activation: type[nn.Module] = nn.Tanh) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 3), activation(), nn.Linear(3, outputs))


def recipe_of(compile: bool | str, **fields: Any) -> bf.Recipe:
    options = {"lr": 0.1, "momentum": 0.5}
    base = bf.Recipe(loss="bce", domain="zonotope", order=3, epochs=EPOCHS, optimizer_options=options, compile=compile)
    return base.but(**fields)


def certified(compile: bool | str, model: nn.Module | None = None, **fields: Any) -> bf.Certificate:
    beside = {key: fields.pop(key) for key in ("callbacks", "checkpoint", "resume") if key in fields}
    threat = fields.pop("threat", bf.threats.Linf(EPSILON))
    return bf.certify(model or network(), (X, Y), recipe_of(compile, **fields), threat=threat, **beside)


def same(one: bf.Certificate, other: bf.Certificate) -> bool:
    """To the last bit."""
    pairs = zip(bounds(one), bounds(other), strict=True)
    return all(torch.equal(a, b) for first, second in pairs for a, b in zip(first, second, strict=True))


def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph as it was traced, without a compiler, which takes minutes: the bits of the rules."""
    monkeypatch.setattr(graph_compiler, "_by_inductor", lambda graph, given: graph)
    monkeypatch.setattr(graph_compiler, "_COMPILED", {})


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    without_compiler(monkeypatch)


@pytest.fixture(scope="module")
def whole() -> bf.Certificate:
    """One run that all others are held against."""
    with pytest.MonkeyPatch.context() as patch:
        without_compiler(patch)
        return certified(True)


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(
    ("loss", "activation", "options"),
    [
        ("bce", nn.ReLU, {"lr": 0.1}),
        ("mse", nn.Tanh, {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}),
    ],
    ids=["relu", "decay"],
)
def test_traced_bounds_are_those_of_the_rules_or_wider(
    loss: str, activation: type[nn.Module], options: dict[str, float]
) -> None:
    by_rules, made = (
        certified(compile, network(activation=activation), loss=loss, optimizer_options=options)
        for compile in (False, True)
    )
    assert made.record["compiled"] is True and "compiled" not in by_rules.record
    require_same_or_wider(bounds(made), bounds(by_rules))
    answers = [one.predict(X, epsilon=1e-3) for one in (by_rules, made)]
    assert torch.allclose(answers[0].lower, answers[1].lower, rtol=1e-3, atol=1e-5)


def test_poisoned_trainings_lie_inside(whole: bf.Certificate) -> None:
    found = bounds(whole)
    for number in range(40):
        moves = torch.randint(0, 2, X.shape, generator=torch.Generator().manual_seed(number)) * 2 - 1
        model, x = network(), X + EPSILON * moves
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
        for _ in range(EPOCHS):
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(model(x), Y.float().unsqueeze(1)).backward()
            optimizer.step()
        for value, (lower, upper) in zip(model.parameters(), found, strict=True):
            assert bool(((lower <= value) & (value <= upper)).all())


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("threat", [bf.threats.L2(0.01), bf.threats.Labels()], ids=["ball", "labels"])
def test_other_sets_of_symbols(threat: bf.threats.Threat) -> None:
    """A ball needs a square root, of which it is not known how a compiler rounds it: then the rules make the steps."""
    by_rules, made = (certified(compile, threat=threat, epochs=4) for compile in (False, "auto"))
    require_same_or_wider(bounds(made), bounds(by_rules))


@pytest.mark.usefixtures("traced")
def test_flags_that_are_read_late_give_the_same(whole: bf.Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
    read_every(3, monkeypatch)
    assert same(certified(True), whole)


@pytest.mark.usefixtures("traced")
def test_sets_that_blow_up_are_void_at_the_same_step(monkeypatch: pytest.MonkeyPatch) -> None:
    read_every(3, monkeypatch)
    fields = {"optimizer_options": {"lr": 50.0}, "epochs": 30, "loss": "mse", "threat": bf.threats.Linf(0.3)}
    found = [certified(compile, **fields).record["void_at_step"] for compile in (False, True)]
    assert found[0] == found[1] and found[0] is not None and found[0] > compiled_steps.FIRST


@pytest.mark.usefixtures("traced")
def test_sets_are_seen_after_every_step_and_nothing_is_counted_twice(whole: bf.Certificate) -> None:
    widths: list[list[float]] = []

    @bf.only_looks
    def look(step: Any) -> None:
        widths.append([float((p.upper - p.lower).sum()) for p in step.model.parameters()])

    made = certified(True, callbacks=[look])
    assert len(widths) == EPOCHS and same(made, whole)
    assert widths[-1] == [float((upper - lower).sum()) for lower, upper in bounds(made)]
    assert made.model is not None and next(made.model.parameters()).symbols.steps == EPOCHS  # type: ignore[attr-defined]


@pytest.mark.usefixtures("traced")
def test_a_resumed_run_has_the_bits_of_one_that_was_not_interrupted(whole: bf.Certificate, tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"

    @bf.only_looks
    def stop(step: Any) -> None:
        if step.number == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        certified(True, callbacks=[stop], checkpoint=path)
    assert same(certified(True, checkpoint=path, resume=True), whole)


def begun(**fields: Any) -> _Run:
    """A run after its first steps, by the rules."""
    run = _Run(Prepared(network(), (X, Y), bf.threats.Linf(EPSILON), recipe_of(False, **fields)))
    assert run.space is not None
    run.space.attach(run.sets.optimizer)
    for number in range(compiled_steps.FIRST):
        run._on_observed(torch.arange(len(X)), number)
        run._next(torch.arange(len(X)), number)
    return run


def test_a_state_that_is_put_back_is_the_same_set() -> None:
    run = begun()
    state = Zonotopes(run.sets)
    before, tensors = [(p.lower, p.upper, p.center) for p in state.leaves()], state.tensors()
    assert run.space is not None and run.space.expansion is not None
    reach = [run.space.support(p.form) for p in state.leaves()]
    state.put(tensors)
    assert run.space.expansion.weights.shape[1] == len(state.owned) + 3 * len(tensors[1])
    for leaf, (lower, upper, center), was in zip(state.leaves(), before, reach, strict=True):
        assert torch.equal(leaf.lower, lower) and torch.equal(leaf.upper, upper) and torch.equal(leaf.center, center)
        assert torch.allclose(run.space.support(leaf.form), was, rtol=1e-5, atol=0)
    assert all(torch.equal(a, b) for a, b in zip(state.tensors(), tensors, strict=True))


def test_symbols_of_nobody_are_new_ones() -> None:
    """A set of the state before and one of the state after must not be taken for the same error."""
    run = begun()
    state = Zonotopes(run.sets)
    assert run.space is not None and run.space.expansion is not None
    tensors, old = state.tensors(), run.space.expansion
    state.put(tensors)
    new = run.space.expansion
    free = set(new.deep.numbers[len(state.owned) :]) | set(new.derived.numbers)
    assert not free & (set(old.deep.numbers) | set(old.derived.numbers))
    assert list(new.deep.numbers[: len(state.owned)]) == list(old.deep.numbers[: len(state.owned)])


def test_points_are_no_state_of_zonotopes() -> None:
    run = _Run(Prepared(network(), (X, Y), bf.threats.Linf(EPSILON), recipe_of(False)))
    with pytest.raises(NotTraceable):
        Zonotopes(run.sets).tensors()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"batch_size": 5}, "all samples at once"),
        ({"threat": bf.threats.AtMost(2, bf.threats.Linf(EPSILON))}, "budget"),
        ({"memory": 20_000}, "pieces"),
    ],
    ids=["batches", "budget", "pieces"],
)
def test_what_is_not_the_same_step_every_time_is_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=f"compile=True: .*{reason}"):
        certified(True, **fields)


def test_short_runs_are_not_compiled() -> None:
    prepared = Prepared(network(), (X, Y), bf.threats.Linf(EPSILON), recipe_of("auto"))
    assert "do not make up" in (why_not(prepared, 100, ()) or "")
    assert why_not(prepared, 10**6, ()) is None


@pytest.mark.usefixtures("traced")
def test_a_step_with_another_learning_rate_is_made_by_the_rules() -> None:
    def decaying(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)

    by_rules, made = (certified(compile, schedule=decaying) for compile in (False, True))
    require_same_or_wider(bounds(made), bounds(by_rules))


def test_a_compiler_that_fails_leaves_the_steps_to_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(graph: object, given: object) -> None:
        raise AssertionError("inside the compiler")

    monkeypatch.setattr(graph_compiler, "_by_inductor", fails)
    monkeypatch.setattr(graph_compiler, "_COMPILED", {})
    monkeypatch.setattr(compiled_steps, "COMPILED_ZONOTOPE_STEPS", 1)
    made, by_rules = certified("auto"), certified(False)
    assert "compiled" not in made.record
    require_same_or_wider(bounds(made), bounds(by_rules))
    with pytest.raises(bf.UnsupportedProgram, match="the compiler"):
        certified(True)


@pytest.mark.skipif("BOUNDFLOW_THOROUGH" not in os.environ, reason="compiling takes minutes")
def test_compiled_bounds_are_those_of_the_rules() -> None:
    by_rules, made = (certified(compile) for compile in (False, True))
    require_same_or_wider(bounds(made), bounds(by_rules))
