"""Compiled steps are the steps of the rules: the same program and errors, bounds alike but for the order of sums."""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import boundflow as bf
from boundflow import rounding
from boundflow.arithmetic.thread_context import OUTWARD, using
from boundflow.fast.steps import compiled_steps, graph_compiler
from boundflow.fast.steps.compiled_steps import CompiledSteps, why_not
from boundflow.operators.functions import softplus_function
from boundflow.rules.unary import FUNCTION_TABLE, Function, allowance
from boundflow.training.checked_inputs import Prepared

X = torch.randn(10, 2, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
EPSILON = 1e-3


def network(outputs: int = 1) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, outputs))


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


def decaying(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 0.3 * step))


def require_same_or_wider(made: list[tuple[Tensor, Tensor]], by_rules: list[tuple[Tensor, Tensor]]) -> None:
    """Never narrower by more than the order of a sum can explain, nor much wider."""
    for (lower, upper), (low, high) in zip(made, by_rules, strict=True):
        units = 8 * torch.finfo(low.dtype).eps * (1e-2 + low.abs() + high.abs())
        allowed = 1e-3 * (high - low) + units
        assert bool(((lower <= low + units) & (high - units <= upper)).all())
        assert bool(((low - lower <= allowed) & (upper - high <= allowed)).all())


def read_every(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read flags every few steps, as on a GPU."""
    real = CompiledSteps.__init__

    def late(self: CompiledSteps, *given: Any) -> None:
        real(self, *given)
        self.every = steps

    monkeypatch.setattr(CompiledSteps, "__init__", late)


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph as it was traced, without a compiler, which takes a while: the bits of the rules."""
    monkeypatch.setattr(graph_compiler, "_by_inductor", lambda graph, given: graph)
    monkeypatch.setattr(graph_compiler, "_COMPILED", {})


@pytest.fixture(scope="module")
def both() -> tuple[bf.Certificate, bf.Certificate]:
    return certified(False), certified(True)


def test_compiled_bounds_are_those_of_the_rules(both: tuple[bf.Certificate, bf.Certificate]) -> None:
    by_rules, made = map(bounds, both)
    for (low, high), (lower, upper) in zip(by_rules, made, strict=True):
        allowed = 1e-3 * (high - low)
        assert bool(((low - lower).abs() <= allowed).all() and ((high - upper).abs() <= allowed).all())
    require_same_or_wider(made, by_rules)
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
@pytest.mark.parametrize(
    ("loss", "batch_size", "momentum", "schedule"),
    [  # of ten samples: 4, 4 and 2
        ("bce", None, 0.0, None),
        ("bce", 4, 0.9, decaying),
        ("mse", 4, 0.0, decaying),
        ("ce", None, 0.9, decaying),
        ("ce", 4, 0.0, None),
        ("hinge", 4, 0.9, None),
    ],
    ids=["bce", "bce-all-options", "mse", "ce-whole", "ce", "hinge"],
)
def test_traced_bounds_are_those_of_the_rules_or_wider(
    batch_size: int | None, momentum: float, schedule: Any, loss: str
) -> None:
    fields: dict[str, Any] = {"batch_size": batch_size, "schedule": schedule, "loss": loss, "dtype": torch.float64}
    fields["optimizer_options"] = {"lr": 0.1, "momentum": momentum, "weight_decay": 0.01}
    outputs = 2 if loss == "ce" else 1
    certificates = [certified(compile, model=network(outputs), epochs=5, **fields) for compile in (False, True)]
    assert certificates[1].record["compiled"] is True
    by_rules, made = map(bounds, certificates)
    require_same_or_wider(made, by_rules)


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
    assert made == by_rules and made > compiled_steps.FIRST


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"domain": "zonotope"}, "all samples at once"),
        ({"optimizer": torch.optim.Adam, "optimizer_options": {"lr": 0.1}}, "SGD"),
        ({"clip_gradients": 1.0}, "clipped"),
        ({"model": nn.Sequential(nn.Linear(2, 3), nn.Dropout(), nn.Linear(3, 1))}, "draws"),
        ({"callbacks": [lambda step: None]}, "callbacks"),
        ({"sample_weights": torch.linspace(0, 2, len(X))}, "weights of samples"),
    ],
    ids=["zonotope", "adam", "clipping", "dropout", "callbacks", "weights"],
)
def test_what_is_not_the_same_step_every_time_is_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=f"compile=True: .*{reason}"):
        certified(True, **fields)


def test_short_runs_are_not_compiled() -> None:
    recipe = bf.Recipe(domain="interval", loss="bce")
    prepared = Prepared(network(), (X, Y), bf.threats.Linf(EPSILON), recipe)
    assert "do not make up" in (why_not(prepared, 100, ()) or "")
    assert why_not(prepared, 10**6, ()) is None


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
    monkeypatch.setattr(compiled_steps, "COMPILED_STEPS", 1)
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

    monkeypatch.setattr(graph_compiler, "_by_inductor", wrong)
    monkeypatch.setattr(graph_compiler, "_COMPILED", {})
    with pytest.raises(bf.BoundFlowError, match="compiled step gave other bounds"):
        certified(True)


CUDA = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_compiled_functions_round_as_their_rules_charge(device: str) -> None:
    """Functions of the table, in one compilation: each value is within the compiler's half of what is charged."""
    size = torch.logspace(-30, 1, 400, dtype=torch.float64).float()
    points = torch.cat((-size, size)).to(device)
    table = [
        function for operator, function in FUNCTION_TABLE.items() if f"aten.{function.name}" in graph_compiler.KNOWN
    ]
    table.append(softplus_function(1.0, 40.0))
    assert {"tanh", "sigmoid", "exp", "log"} <= {function.name for function in table}

    def inside(function: Function) -> Tensor:
        low, high = function.domain
        return points.clamp(max(low, -10.0), min(high, 10.0)).clamp_min(1e-30 if low >= 0 else -10.0)

    given = [inside(function) for function in table]
    graph = make_fx(lambda *xs: tuple(function.f(x) for function, x in zip(table, xs, strict=True)))(*given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = graph_compiler._by_inductor(graph, given)(*given)
    for function, x, value in zip(table, given, found, strict=True):
        true = function.f(x.double())
        image = torch.stack((value, value))
        allowed = 0.5 * allowance(function, torch.stack((x, x)), image).double()
        off = (value.double() - true).abs() > allowed
        assert not bool(off.any()), (function.name, x[off][:3], value[off][:3], true[off][:3])


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="compile must be"):
        bf.Recipe(compile="always")


@pytest.mark.usefixtures("traced")
def test_callbacks_that_only_look_see_the_sets_of_every_step() -> None:
    seen: dict[bool, list[tuple[float, float]]] = {}
    for compile in (False, True):
        numbers = seen[compile] = []
        look = bf.only_looks(lambda step, numbers=numbers: numbers.append((step.loss, step.width)))
        made = certified(compile, callbacks=[look], dtype=torch.float64)
        assert made.record.get("compiled", False) is compile
    assert torch.allclose(torch.tensor(seen[False]), torch.tensor(seen[True]), rtol=1e-6)
    assert all(one[1] <= other[1] for one, other in zip(seen[False], seen[True], strict=True))  # widths


@pytest.mark.usefixtures("traced")
def test_products_in_reduced_precision_are_refused_after_tracing_too() -> None:
    """The flag is that of the process, and the rules, which ask for it, are not asked by compiled steps."""

    @bf.only_looks
    def change(step: bf.Step) -> None:
        if step.number == 4:
            torch.set_float32_matmul_precision("medium")

    try:
        with pytest.raises(bf.UnsafePrecision, match="reduced precision"):
            certified(True, callbacks=[change])
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("every", [1, 4, 100])
def test_flags_that_are_read_late_give_the_step_at_which_bounds_became_void(
    every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields: dict[str, Any] = {"optimizer_options": {"lr": 1e3}, "epochs": 40, "batch_size": None}
    fields["schedule"] = decaying
    read_every(every, monkeypatch)
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    found = [certified(compile, model=wide, **fields).record.get("void_at_step") for compile in (False, True)]
    assert found[0] == found[1] and found[0] is not None and found[0] > compiled_steps.FIRST


@pytest.mark.usefixtures("traced")
def test_flags_that_are_read_late_give_the_same_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = bounds(certified(True, epochs=8))
    read_every(4, monkeypatch)
    for one, other in zip(bounds(certified(True, epochs=8)), expected, strict=True):
        assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("every", [1, 4])
def test_a_plain_run_that_leaves_the_compiled_sets_is_found(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read_every(every, monkeypatch)
    real = CompiledSteps.step

    def moved(self: CompiledSteps, index: Tensor, number: int) -> Any:
        if number == 4:
            self.plain[0][0, 0] += 1.0
        return real(self, index, number)

    monkeypatch.setattr(CompiledSteps, "step", moved)
    with pytest.raises(bf.OutsideBounds, match="step 5"):
        certified(True, epochs=8)


def test_seeds_of_a_recipe_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(graph: Any, given: Any) -> Any:
        calls.append(len(given))
        return graph

    monkeypatch.setattr(graph_compiler, "_by_inductor", counted)
    monkeypatch.setattr(graph_compiler, "_COMPILED", {})
    for seed in range(3):
        certified(True, seed=seed, optimizer_options={"lr": 0.1 * (seed + 1)})
    assert len(calls) == 1
    certified(True, optimizer_options={"lr": 0.1, "momentum": 0.25})
    assert len(calls) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_outward_without_nextafter_goes_at_least_as_far(dtype: torch.dtype) -> None:
    info = torch.finfo(dtype)
    size = torch.logspace(math.log10(info.tiny), math.log10(info.max) - 1e-3, 4001, dtype=torch.float64).to(dtype)
    special = [0.0, info.tiny / 2, info.tiny * info.eps, 1.0, 2 - info.eps, info.max]
    points = torch.cat((size, size * (2 - info.eps) / 2, torch.tensor(special, dtype=dtype)))
    points = points[points.isfinite()]
    points = torch.cat((-points, points))
    pair = torch.stack((points, points))
    with using(replace(OUTWARD, deferred=[])):
        lower, upper = rounding.outward(pair)
    low, high = rounding.outward(pair)
    assert bool((lower <= low).all()) and bool((upper >= high).all())
    assert bool((lower >= points - 4 * info.eps * points.abs() - 4 * info.tiny).all())


def test_constants_are_part_of_what_is_compiled() -> None:
    def times(constant: Tensor) -> Any:
        return lambda x: x * constant

    given = [torch.ones(2)]
    first, second = (make_fx(times(constant))(*given) for constant in (torch.ones(2), torch.full((2,), 3.0)))
    assert first.code == second.code
    assert graph_compiler._key(first, given) != graph_compiler._key(second, given)
    assert graph_compiler._key(first, given) != graph_compiler._key(first, [torch.ones(2, dtype=torch.float64)])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_replayed_steps_on_a_gpu_are_those_of_the_rules() -> None:
    fields: dict[str, Any] = {"device": "cuda", "epochs": 40, "schedule": decaying}
    by_rules, made = (certified(compile, **fields) for compile in (False, True))
    assert made.record["compiled"] is True
    require_same_or_wider(bounds(made), bounds(by_rules))


def test_inputs_that_did_not_change_are_not_copied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is replayed reads its own copies of the inputs; here the function itself stands in for a recording."""

    def recorded(self: graph_compiler.Replayed, function: Any) -> Any:
        outputs = tuple(function(*self.inputs))

        def replay() -> None:
            for output, new in zip(outputs, function(*self.inputs), strict=True):
                output.copy_(new)

        return outputs, replay

    monkeypatch.setattr(graph_compiler.Replayed, "_recorded", recorded)
    fixed, other = torch.ones(2), torch.zeros(2)
    replayed = graph_compiler.Replayed(lambda x, y: (x + y,), [fixed, other])
    assert replayed(fixed, torch.full((2,), 2.0))[0].tolist() == [3.0, 3.0]
    fixed.mul_(4)  # a new version of the same tensor
    first, second = replayed(fixed, other), replayed(fixed, torch.ones(2))
    assert first[0].tolist() == [4.0, 4.0] and second[0].tolist() == [5.0, 5.0]


@pytest.mark.parametrize("small", [0, 3, 2**16])
def test_small_results_are_copied_together(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_compiler, "SMALL_RESULT", small)
    monkeypatch.setattr(
        graph_compiler.Replayed, "_recorded", lambda self, function: (function(*self.inputs), lambda: None)
    )

    def results(x: Tensor) -> tuple[Tensor, ...]:
        return x.t(), x > 1, x[0], x.sum(), x < 2, x.double()

    x = torch.arange(6.0).view(2, 3)
    replayed = graph_compiler.Replayed(results, [x])
    assert len(replayed.outputs) == {0: 6, 3: 5, 2**16: 3}[small]
    for found, expected in zip(replayed(x), results(x), strict=True):
        assert found.dtype is expected.dtype and torch.equal(found, expected)
