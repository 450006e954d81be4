"""Many runs at once give what each gives alone, up to rounding, and poisoned runs lie inside."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boundflow as bf
from boundflow.fast.steps import graph_compiler
from boundflow.training import joint_trainings

X = torch.randn(10, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = (X[:, 0] > 0).long()
RECIPE = bf.Recipe(
    loss="bce",
    domain="interval",
    epochs=3,
    batch_size=5,  # one size, which is traced once
    optimizer_options={"lr": 0.1, "momentum": 0.5},
    compile=True,  # these runs are too short for "auto"
)


def network(seed: int, outputs: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, outputs)).double()


def together(radii: list[float], recipe: bf.Recipe = RECIPE, outputs: int = 1) -> list[bf.Certificate]:
    models = [network(seed, outputs) for seed in range(len(radii))]
    threats = [bf.threats.Linf(radius) for radius in radii]
    return bf.certify_many(models, (X, Y), recipe, threats=threats, seeds=range(len(radii)))


def bounds(certificate: bf.Certificate) -> list[Tensor]:
    assert certificate.model is not None
    return [p.set.bounds for p in certificate.model.parameters()]  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph as it was traced, without a compiler, which takes a while."""
    monkeypatch.setattr(graph_compiler, "_by_inductor", lambda graph, given: graph)
    monkeypatch.setattr(graph_compiler, "_COMPILED", {})


@pytest.mark.parametrize(
    "fields",
    [{"batch_size": 4}, {"loss": "ce"}, {"loss": "mse", "optimizer_options": {"lr": 0.1, "weight_decay": 0.01}}],
    ids=["bce", "ce", "mse"],
)
def test_runs_at_once_are_the_runs_alone(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint_trainings, "certify", None)  # nothing is made one by one
    recipe, outputs = RECIPE.but(**fields), 2 if fields.get("loss") == "ce" else 1
    radii = [1e-3, 1e-2, 3e-3]
    for seed, certificate in enumerate(together(radii, recipe, outputs)):
        threat = bf.threats.Linf(radii[seed])
        alone = bf.certify(network(seed, outputs), (X, Y), recipe.but(seed=seed, compile=False), threat=threat)
        for made, by_rules in zip(bounds(certificate), bounds(alone), strict=True):
            width = by_rules[1] - by_rules[0]
            assert bool((made - by_rules).abs().le(1e-3 * width).all())
        for one, other in zip(certificate.nominal.parameters(), alone.nominal.parameters(), strict=True):
            assert torch.allclose(one, other, rtol=1e-12)


def test_poisoned_trainings_lie_inside() -> None:
    radii = [1e-3, 1e-2]
    for seed, certificate in enumerate(together(radii)):
        recipe = RECIPE.but(seed=seed)
        for number in range(10):
            moves = torch.randint(0, 2, X.shape, generator=torch.Generator().manual_seed(number)) * 2 - 1
            model, x = network(seed), X + radii[seed] * moves
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
            for index in recipe.batches(len(X), X.device):
                optimizer.zero_grad()
                F.binary_cross_entropy_with_logits(model(x[index]), Y[index].double().unsqueeze(1)).backward()
                optimizer.step()
            for value, (lower, upper) in zip(model.parameters(), bounds(certificate), strict=True):
                assert bool(((lower <= value) & (value <= upper)).all())


def test_a_run_whose_bounds_become_void_leaves_the_others_alone() -> None:
    recipe = RECIPE.but(epochs=12, optimizer_options={"lr": 20.0})
    radii = [1e-9, 1e300, 1.0]
    found = together(radii, recipe)
    for seed, certificate in enumerate(found):
        threat = bf.threats.Linf(radii[seed])
        alone = bf.certify(network(seed), (X, Y), recipe.but(seed=seed, compile=False), threat=threat)
        assert certificate.void_at_step == alone.void_at_step
    assert found[0].void_at_step is None or found[0].void_at_step > 2


def test_what_cannot_be_made_at_once_is_made_one_by_one() -> None:
    schedule = lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1)  # noqa: E731
    found = together([1e-3, 1e-2], RECIPE.but(schedule=schedule, compile="auto"))
    assert all(one.model is not None and "compiled" not in one.record for one in found)


def test_samples_count_as_much_as_in_runs_alone() -> None:
    recipe = RECIPE.but(sample_weights=torch.linspace(0, 2, len(X), dtype=torch.float64), compile="auto")
    for seed, certificate in enumerate(together([1e-3, 1e-2], recipe)):
        threat = bf.threats.Linf([1e-3, 1e-2][seed])
        alone = bf.certify(network(seed), (X, Y), recipe.but(seed=seed), threat=threat)
        assert certificate.record["sample_weights"] == alone.record["sample_weights"]
        assert all(torch.equal(*both) for both in zip(bounds(certificate), bounds(alone), strict=True))
    with pytest.raises(ValueError, match="weights of samples"):
        together([1e-3, 1e-2], recipe.but(compile=True))


def test_as_many_models_as_threats_are_needed() -> None:
    with pytest.raises(ValueError, match="as many of each"):
        bf.certify_many([network(0)], (X, Y), RECIPE, threats=[])


# --- runs that are not alike ------------------------------------------------------------------------------------------


class Scaled(nn.Module):
    """Multiplies by an attribute."""

    def __init__(self, scale: float):
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class Shifted(nn.Module):
    """Adds a buffer, which stands under two names."""

    def __init__(self, shift: Tensor):
        super().__init__()
        self.register_buffer("shift", shift)
        self.register_buffer("again", self.shift)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.shift * self.again


def features(seed: int, between: nn.Module | None = None, frozen: bool = True) -> nn.Module:
    """Random features of its own, which are frozen, and a head."""
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Linear(2, 4), between or nn.Identity(), nn.Tanh(), nn.Linear(4, 1)).double()
    made[0].requires_grad_(not frozen)
    return made


def hooked(seed: int, scale: float) -> nn.Module:
    made = features(seed)
    made[1].register_forward_hook(lambda module, x, y: y * scale)
    return made


# name: the model of every run, and whether all runs are made at once
RUNS: dict[str, tuple[Any, bool]] = {
    "own frozen features": (features, True),
    "the same frozen features": (lambda seed: features(0), True),
    "own buffers": (lambda seed: features(seed, Shifted(torch.full((4,), 0.1 * seed))), True),
    "own attributes": (lambda seed: features(0, Scaled(1.0 + seed)), False),
    "own hooks": (lambda seed: hooked(0, 1.0 + seed), False),
    "one with a frozen layer": (lambda seed: features(seed, frozen=seed == 1), False),
    "one of another width": (
        lambda seed: nn.Sequential(nn.Linear(2, 3 + seed), nn.Linear(3 + seed, 1)).double(),
        False,
    ),
    "one of another kind": (lambda seed: features(seed, nn.Tanh() if seed == 1 else nn.ReLU()), False),
}


@pytest.mark.parametrize("name", RUNS)
def test_every_run_is_its_own_program(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contained in the answer for each run: what plain PyTorch trains, on the data and on poisoned ones."""
    make, at_once = RUNS[name]
    one_by_one: list[object] = []
    monkeypatch.setattr(joint_trainings, "certify", lambda *a, **k: (one_by_one.append(1), bf.certify(*a, **k))[1])
    count = 8 if at_once else 3
    models, radii = [make(seed) for seed in range(count)], [1e-3 * (1 + seed) for seed in range(count)]
    recipe = RECIPE.but(compile="auto" if not at_once else True, batch_size=5)
    if not at_once:
        monkeypatch.setattr(joint_trainings, "COMPILED_STEPS", 1)
    found = bf.certify_many(models, (X, Y), recipe, threats=[bf.threats.Linf(radius) for radius in radii])
    assert bool(one_by_one) != at_once
    for model, radius, certificate in zip(models, radii, found, strict=True):
        for number in range(3):
            moves = torch.randint(-1, 2, X.shape, generator=torch.Generator().manual_seed(number)) * (number > 0)
            require_inside(certificate, trained(model, X + radius * moves, recipe))
        alone = bf.certify(model, (X, Y), recipe.but(compile=False), threat=bf.threats.Linf(radius))
        for made, by_rules in zip(bounds_of_trained(certificate), bounds_of_trained(alone), strict=True):
            assert bool((made - by_rules).abs().le(1e-3 * (by_rules[1] - by_rules[0]) + 1e-15).all())


def bounds_of_trained(certificate: bf.Certificate) -> list[Tensor]:
    assert certificate.model is not None
    return [p.set.bounds for p in certificate.model.parameters() if p.requires_grad]  # type: ignore[attr-defined]


def trained(model: nn.Module, x: Tensor, recipe: bf.Recipe) -> nn.Module:
    """A copy of a model after plain training."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.5)
    for index in recipe.batches(len(x), x.device):
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(x[index]), Y[index].double().unsqueeze(1)).backward()
        optimizer.step()
    return model


def require_inside(certificate: bf.Certificate, plain: nn.Module) -> None:
    assert certificate.model is not None
    for (lower, upper), value in zip(bounds_of(certificate), plain.parameters(), strict=True):
        assert bool(((lower <= value) & (value <= upper)).all())


def bounds_of(certificate: bf.Certificate) -> list[Tensor]:
    assert certificate.model is not None
    return [p.set.bounds for p in certificate.model.parameters()]  # type: ignore[attr-defined]


def test_every_run_has_its_own_stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing values that may be anything in ranges of their own: plain training sees the middle of each."""
    monkeypatch.setattr(joint_trainings, "certify", None)
    x = X.clone()
    x[3, 1] = x[5, 0] = torch.nan
    middles = [0.5 * seed for seed in range(4)]
    recipe = RECIPE.but(batch_size=5)
    threats = [bf.threats.Missing((middle - 1e-3, middle + 1e-3)) for middle in middles]
    found = bf.certify_many([network(0)] * 4, (x, Y), recipe, threats=threats)
    for middle, certificate in zip(middles, found, strict=True):
        for value in (middle, middle + 1e-3, middle - 1e-3):
            require_inside(certificate, trained(network(0), x.nan_to_num(value), recipe))
        plain = trained(network(0), x.nan_to_num(middle), recipe)
        for one, other in zip(certificate.nominal.parameters(), plain.parameters(), strict=True):
            assert torch.allclose(one, other, rtol=1e-12)
