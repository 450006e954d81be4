"""Compiled steps are the steps of the rules: the same program and errors, bounds alike but for the order of sums."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import boundflow as bf
from boundflow import compiled
from boundflow.compiled import CompiledSteps, why_not
from boundflow.prepared import Prepared
from boundflow.rules.functions import softplus_function
from boundflow.rules.unary import FUNCTION_TABLE, Function, allowance

X = torch.randn(10, 2, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
EPSILON = 1e-3


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))


def certified(compile: bool | str, **fields: Any) -> bf.Certificate:
    recipe: dict[str, Any] = {
        "loss": "bce",
        "domain": "interval",
        "epochs": 3,
        "batch_size": 5,
        "optimizer_options": {"lr": 0.1, "momentum": 0.5},
    }
    model = fields.pop("model", None) or network()
    return bf.certify(model, (X, Y), threat=bf.threats.Linf(EPSILON), compile=compile, **{**recipe, **fields})


def bounds(certificate: bf.Certificate) -> list[tuple[Tensor, Tensor]]:
    assert certificate.model is not None
    return [(p.lower, p.upper) for p in certificate.model.parameters()]  # type: ignore[attr-defined]


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph as it was traced, without a compiler, which takes a while: the bits of the rules."""
    monkeypatch.setattr(compiled, "_by_inductor", lambda graph, given: graph)


@pytest.fixture(scope="module")
def both() -> tuple[bf.Certificate, bf.Certificate]:
    return certified(False), certified(True)


def test_compiled_bounds_are_those_of_the_rules(both: tuple[bf.Certificate, bf.Certificate]) -> None:
    by_rules, made = map(bounds, both)
    for (low, high), (lower, upper) in zip(by_rules, made, strict=True):
        allowed = 1e-3 * (high - low)
        assert bool(((low - lower).abs() <= allowed).all() and ((high - upper).abs() <= allowed).all())
    assert both[1].record["compiled"] is True and "compiled" not in both[0].record


def test_poisoned_trainings_lie_inside_compiled_bounds(both: tuple[bf.Certificate, bf.Certificate]) -> None:
    recipe = bf.Recipe(epochs=3, batch_size=5)
    batches = recipe.batches(len(X), X.device)
    found = bounds(both[1])
    for number in range(40):
        moves = torch.randint(0, 2, X.shape, generator=torch.Generator().manual_seed(number)) * 2 - 1
        model, x = network(), X + EPSILON * moves
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
        for index in batches:
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(model(x[index]), Y[index].float().unsqueeze(1)).backward()
            optimizer.step()
        for value, (lower, upper) in zip(model.parameters(), found, strict=True):
            assert bool(((lower <= value) & (value <= upper)).all())


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("batch_size", [None, 4])  # of ten samples: 4, 4 and 2
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_traced_step_has_the_bits_of_the_rules(batch_size: int | None, momentum: float) -> None:
    fields: dict[str, Any] = {"batch_size": batch_size, "optimizer_options": {"lr": 0.1, "momentum": momentum}}
    by_rules, made = (bounds(certified(compile, epochs=5, **fields)) for compile in (False, True))
    assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(by_rules, made, strict=True))


@pytest.mark.usefixtures("traced")
def test_a_resumed_run_gives_the_same_bits(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    real, calls = CompiledSteps.step, itertools.count()

    def interrupted(self: CompiledSteps, *given: Any) -> Tensor:
        if next(calls) == 3:
            raise Stop
        return real(self, *given)

    path = tmp_path / "checkpoint"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stop):
        patch.setattr(CompiledSteps, "step", interrupted)
        certified(True, checkpoint=path)
    resumed = certified(True, checkpoint=path, resume=True)
    for one, other in zip(bounds(resumed), bounds(certified(True)), strict=True):
        assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])


@pytest.mark.usefixtures("traced")
def test_a_void_step_says_what_the_rules_say() -> None:
    fields: dict[str, Any] = {"optimizer_options": {"lr": 1e3}, "epochs": 40, "batch_size": None}
    found = []
    for compile in (False, True):
        torch.manual_seed(0)
        wide = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        found.append(certified(compile, model=wide, **fields).record["void_at_step"])
    by_rules, made = found
    assert made == by_rules and made > compiled.FIRST


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"domain": "zonotope"}, "intervals"),
        ({"optimizer": torch.optim.Adam, "optimizer_options": {"lr": 0.1}}, "SGD"),
        ({"schedule": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1)}, "schedule"),
        ({"clip_gradients": 1.0}, "clipped"),
        ({"model": nn.Sequential(nn.Linear(2, 3), nn.Dropout(), nn.Linear(3, 1))}, "draws"),
        ({"callbacks": [lambda step: None]}, "callbacks"),
    ],
    ids=["zonotope", "adam", "schedule", "clipping", "dropout", "callbacks"],
)
def test_what_is_not_the_same_step_every_time_is_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=f"compile=True: .*{reason}"):
        certified(True, **fields)


def test_short_runs_are_not_compiled() -> None:
    recipe = bf.Recipe(domain="interval", loss="bce")
    prepared = Prepared(network(), (X, Y), bf.threats.Linf(EPSILON), recipe)
    assert "do not make up" in (why_not(prepared, 100, 0) or "")
    assert why_not(prepared, 10**6, 0) is None


class DividesByConstant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)
        self.register_buffer("scale", torch.tensor(3.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x / self.scale)


class RoundsOtherwise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.expm1(self.linear(x))


class LooksAtNumbers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) if bool((x < 100).all()) else -self.linear(x)


@pytest.mark.parametrize("model", [DividesByConstant, RoundsOtherwise, LooksAtNumbers])
def test_steps_that_cannot_be_traced_are_left_to_the_rules(
    model: type[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "COMPILED_STEPS", 1)
    torch.manual_seed(0)
    made = certified("auto", model=model())
    torch.manual_seed(0)
    by_rules = certified(False, model=model())
    assert "compiled" not in made.record
    assert all(torch.equal(a[0], b[0]) for a, b in zip(bounds(made), bounds(by_rules), strict=True))
    torch.manual_seed(0)
    with pytest.raises(bf.UnsupportedProgram, match="compile=True"):
        certified(True, model=model())


def test_a_compiler_that_gives_other_bounds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(graph: Any, given: Any) -> Any:
        return lambda *tensors: tuple(part * 1.01 if part.is_floating_point() else part for part in graph(*tensors))

    monkeypatch.setattr(compiled, "_by_inductor", wrong)
    with pytest.raises(bf.BoundFlowError, match="compiled step gave other bounds"):
        certified(True)


def test_compiled_functions_round_as_their_rules_charge() -> None:
    """Functions of the table, in one compilation: each value is within the compiler's half of what is charged."""
    size = torch.logspace(-30, 1, 400, dtype=torch.float64).float()
    points = torch.cat((-size, size))
    table = [function for operator, function in FUNCTION_TABLE.items() if f"aten.{function.name}" in compiled.KNOWN]
    table.append(softplus_function(1.0, 40.0))
    assert {"tanh", "sigmoid", "exp", "log"} <= {function.name for function in table}

    def inside(function: Function) -> Tensor:
        low, high = function.domain
        return points.clamp(max(low, -10.0), min(high, 10.0)).clamp_min(1e-30 if low >= 0 else -10.0)

    given = [inside(function) for function in table]
    graph = make_fx(lambda *xs: tuple(function.f(x) for function, x in zip(table, xs, strict=True)))(*given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = compiled._by_inductor(graph, given)(*given)
    for function, x, value in zip(table, given, found, strict=True):
        true = function.f(x.double())
        image = torch.stack((value, value))
        allowed = 0.5 * allowance(function, torch.stack((x, x)), image).double()
        off = (value.double() - true).abs() > allowed
        assert not bool(off.any()), (function.name, x[off][:3], value[off][:3], true[off][:3])


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="compile must be"):
        bf.Recipe(compile="always")
