"""Attacks find what can be found, stay inside the threat, and expose a certificate that is wrong."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from threat_cases import THREATS, certified, network, observed
from torch import Tensor, nn

import boundflow as bf
from boundflow.attacks import ATTACKS, Progress, contains
from boundflow.sets.set import Set

T = bf.threats
RECIPE: dict[str, Any] = {"optimizer_options": {"lr": 0.4, "momentum": 0.5}, "epochs": 3}


def plane(samples: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 2, dtype=torch.float64, generator=generator)
    return x, (x[:, 0] - 0.5 * x[:, 1] + 0.4 * torch.randn(samples, generator=generator) > 0).long()


def linear() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(2, 1)).double()


def trained(model: nn.Module, x: Tensor, y: Tensor, weights: Tensor) -> nn.Module:
    """Full-batch training as in a book."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), **RECIPE["optimizer_options"])
    for _ in range(RECIPE["epochs"]):
        optimizer.zero_grad()
        losses = F.binary_cross_entropy_with_logits(model(x)[:, 0], y.double(), reduction="none")
        ((losses * weights).sum() / len(x)).backward()
        optimizer.step()
    return model


def brute_force(kind: str, k: int, x: Tensor, y: Tensor, test: Tensor) -> Tensor:
    """The smallest lead of every test point over all datasets."""
    model, ones = linear(), torch.ones(len(x), dtype=x.dtype)
    label = trained_answers(trained(model, x, y, ones), test) > 0
    least = torch.full((len(test),), torch.inf, dtype=x.dtype)
    for samples in itertools.chain.from_iterable(itertools.combinations(range(len(x)), j) for j in range(k + 1)):
        labels, weights = y.clone(), ones.clone()
        chosen = list(samples)
        if kind == "labels":
            labels[chosen] = 1 - labels[chosen]
        else:
            weights[chosen] = 0.0
        answers = trained_answers(trained(model, x, labels, weights), test)
        least = torch.minimum(least, torch.where(label, answers, -answers))
    return least


def trained_answers(model: nn.Module, test: Tensor) -> Tensor:
    with torch.no_grad():
        return model(test)[:, 0]


def attacked(data: tuple[Tensor, Tensor], threat: T.Threat, test: tuple[Tensor, Any], **options: Any) -> bf.Attacked:
    return bf.attack(linear(), data, threat=threat, test=test, loss="bce", progress=False, **{**RECIPE, **options})


@pytest.mark.parametrize("kind", ["labels", "removal"])
def test_the_optimum_is_found_where_it_can_be_enumerated(kind: str) -> None:
    x, y = plane(6, seed=3)
    test, _ = plane(12, seed=9)
    threat = T.AtMost(2, T.Labels() if kind == "labels" else T.Removal())
    least = brute_force(kind, 2, x, y, test)
    for attacks in (("enumeration",), ("influence",)):
        found = attacked((x, y), threat, (test, None), attacks=attacks)
        left = ~found.broken if attacks == ("influence",) else torch.ones_like(found.broken)  # it stops once broken
        assert torch.allclose(found.lead[left], least[left], rtol=1e-9, atol=1e-12)
        assert torch.equal(found.broken, least < 0) and bool(found.broken.any()) and not bool(found.broken.all())
        assert found.outside == 0 and found.attacked_accuracy is None


def test_the_worst_category_is_found_where_none_is_one_of_them() -> None:
    """By enumeration, and by the slopes: of two columns, a row of zeros included, of one sample."""
    hot = F.one_hot(torch.tensor([0, 1, 0, 1, 1, 0]), 2).double()
    hot[5] = 0.0
    y, test = torch.tensor([0, 1, 1, 0, 1, 0]), torch.eye(2, dtype=torch.float64) * 0.7
    ones, model = torch.ones(6, dtype=hot.dtype), linear()
    label = trained_answers(trained(model, hot, y, ones), test) > 0
    least = torch.full((2,), torch.inf, dtype=hot.dtype)
    for sample, value in itertools.product(range(6), ([1.0, 0.0], [0.0, 1.0], [0.0, 0.0])):
        moved = hot.clone()
        moved[sample] = torch.tensor(value)
        answers = trained_answers(trained(model, moved, y, ones), test)
        least = torch.minimum(least, torch.where(label, answers, -answers))
    threat = T.AtMost(1, T.Category([0, 1], unknown=True))
    for attacks in (("enumeration",), ("hypergradients",)):
        found = attacked((hot, y), threat, (test, None), attacks=attacks)
        assert torch.allclose(found.lead, least, rtol=1e-9, atol=1e-12) and found.outside == 0


def test_the_optimum_of_small_moves_is_found_by_hypergradients() -> None:
    """Against all corners of six points in the plane, one of which may move, by so little that nothing curves."""
    x, y = plane(6)
    test, _ = plane(5, seed=9)
    ones, model = torch.ones(6, dtype=x.dtype), linear()
    label = trained_answers(trained(model, x, y, ones), test) > 0
    least = torch.full((5,), torch.inf, dtype=x.dtype)
    for sample, signs in itertools.product(range(6), itertools.product((-1.0, 1.0), repeat=2)):
        moved = x.clone()
        moved[sample] += 0.01 * torch.tensor(signs, dtype=x.dtype)
        answers = trained_answers(trained(model, moved, y, ones), test)
        least = torch.minimum(least, torch.where(label, answers, -answers))
    found = attacked((x, y), T.AtMost(1, T.Linf(0.01)), (test, None), attacks=("hypergradients",))
    assert torch.allclose(found.lead, least, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", THREATS)
def test_no_certificate_exceeds_what_attacks_leave(name: str) -> None:
    """For every threat; parameters and outputs of all poisoned models are held against the bounds, too."""
    threat, _, task, change = THREATS[name]
    data = observed(task, torch.float64) if change is None else change(observed(task, torch.float64))
    certificate = certified(threat, task, data, "zonotope", epochs=2)
    model, test = network(3 if task == "ce" else 1, torch.float64), observed(task, torch.float64).x + 0.3
    found = bf.attack(
        model,
        (data.x, data.y),
        threat=threat,
        test=(test, data.y),
        certificate=certificate,
        loss=task,
        optimizer_options={"lr": 0.4, "momentum": 0.5},
        epochs=2,
        steps=2,
        restarts=1,
        targets=6,
        progress=False,
    )
    assert found.outside == 0 and found.skipped == {} and found.trainings > 20
    assert len(found.states) == len(test) and found.certified is not None
    if task == "mse":
        assert found.attacked_accuracy is None and float(found.lead.min()) < 0
        return
    assert found.certified_accuracy <= found.attacked_accuracy <= found.nominal_accuracy
    assert not bool((found.broken & found.certified).any())
    assert all((by is not None) == broken for by, broken in zip(found.found_by, found.broken.tolist(), strict=True))
    targets = F.one_hot(data.y, 3).double() if task == "ce" else data.y.double().reshape(-1, 1)
    assert bool(contains(threat, data.x, targets, found.worst).all())


def test_replaced_samples() -> None:
    x, y = plane(12)
    recipe = {**RECIPE, "clip_gradients": 0.5}
    threat = T.AtMost(2, T.Replacement())
    certificate = bf.certify(linear(), (x, y), threat=threat, loss="bce", **recipe)
    found = attacked((x, y), threat, plane(20, 4), certificate=certificate, clip_gradients=0.5)
    assert found.certified_accuracy <= found.attacked_accuracy and float((found.lead - 1e-3).min()) < found.lead.max()
    assert found.outside == 0


def test_test_inputs_are_moved_too() -> None:
    x, y = plane(12)
    still = attacked((x, y), T.Linf(0.01), plane(30, 4), attacks=("class-shifts",))
    moved = attacked((x, y), T.Linf(0.01), plane(30, 4), attacks=("class-shifts",), test_threat=T.Linf(0.3))
    round_ = attacked((x, y), T.Linf(0.01), plane(30, 4), attacks=("class-shifts",), test_threat=T.L2(0.3))
    assert moved.attacked_accuracy < still.attacked_accuracy and bool((moved.lead <= round_.lead).all())
    assert bool((round_.lead < still.lead).all())


@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_a_planted_wrong_certificate_is_exposed(domain: str) -> None:
    """Bounds narrowed by hand to the plain model: the first dataset that moves it shows that they are wrong."""
    x, y = plane(12)
    threat = T.Linf(0.05)
    certificate = bf.certify(linear(), (x, y), threat=threat, loss="bce", domain=domain, **RECIPE)
    for parameter, plain in zip(certificate.model.parameters(), certificate.nominal.parameters(), strict=True):
        parameter.set = Set(torch.stack((plain.detach() - 1e-6, plain.detach() + 1e-6)))
    with pytest.raises(bf.Violation, match="the certificate is wrong") as caught:
        attacked((x, y), threat, plane(20, 4), certificate=certificate)
    evidence = caught.value.evidence
    assert {"attack", "poisoned", "parameters", "what"} <= evidence.keys() and evidence["attack"] in ATTACKS
    poisoned = evidence["poisoned"]
    assert bool(contains(threat, x, y.double().reshape(-1, 1), poisoned).all())
    again = trained(linear(), poisoned.x[0], y, torch.ones(12, dtype=x.dtype))
    for name, value in again.named_parameters():
        assert torch.allclose(value.detach(), evidence["parameters"][name], rtol=1e-9, atol=1e-12)


def test_a_label_that_is_wrongly_certified_is_exposed(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = plane(12)
    threat = T.AtMost(4, T.Labels())
    certificate = bf.certify(linear(), (x, y), threat=threat, loss="bce", **RECIPE)
    honest = certificate.predict

    def too_sure(*arguments: Any, **options: Any) -> bf.Prediction:
        found = honest(*arguments, **options)
        return bf.Prediction(found.label, torch.ones_like(found.certified), found.lower, found.upper, found.lead)

    monkeypatch.setattr(certificate, "predict", too_sure)
    with pytest.raises(bf.Violation, match="is certified, and changes its label") as caught:
        attacked((x, y), threat, plane(30, 4), certificate=certificate)
    assert isinstance(caught.value.evidence["point"], int)


def test_a_certificate_of_another_training_is_refused() -> None:
    x, y = plane(12)
    threat = T.Linf(0.01)
    certificate = bf.certify(linear(), (x, y), threat=threat, loss="bce", **RECIPE)
    test = plane(5, 4)
    with pytest.raises(ValueError, match="other training data"):
        attacked((x + 1, y), threat, test, certificate=certificate)
    with pytest.raises(ValueError, match="another threat"):
        attacked((x, y), T.Linf(0.02), test, certificate=certificate)
    with pytest.raises(ValueError, match="another seed"):
        other = bf.Recipe(loss="bce", seed=5, **RECIPE)
        bf.attack(linear(), (x, y), other, threat=threat, test=test, certificate=certificate)
    with pytest.raises(ValueError, match="as it was before training"):
        bf.attack(certificate.nominal, (x, y), threat=threat, test=test, certificate=certificate, loss="bce", **RECIPE)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"attacks": ("magic",)}, "there is no attack 'magic'"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"targets": 0}, "targets must be at least 1"),
        ({"test": (torch.zeros(3, 5), None)}, "do not fit"),
        ({"test": (torch.zeros(3, 2), [0, 1])}, "3 test inputs and 2 labels"),
    ],
    ids=["attack", "steps", "targets", "shape", "labels"],
)
def test_mistakes_are_told(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        attacked(plane(6), T.Linf(0.01), options.pop("test", plane(5, 4)), **options)


def test_the_same_seed_finds_the_same() -> None:
    data, test = plane(10), plane(15, 4)
    threat = T.AtMost(3, T.Linf(0.5))
    first, second = (attacked(data, threat, test, targets=4) for _ in range(2))
    assert torch.equal(first.lead, second.lead) and torch.equal(first.worst.x, second.worst.x)
    without = {name: value for name, value in first.as_data().items() if name != "seconds"}
    assert without == {name: value for name, value in second.as_data().items() if name != "seconds"}


def test_progress_and_a_limit() -> None:
    told: list[Progress] = []
    found = attacked(plane(10), T.Linf(0.05), plane(15, 4), budget=30, callback=told.append)
    assert found.trainings <= 30 and "30 trainings were allowed" in next(iter(found.skipped.values()))
    assert told and all(now.done <= now.planned for now in told) and told[0].points == 15


def test_a_network_that_keeps_state_is_attacked_without_derivatives() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 1)).double()
    found = bf.attack(model, plane(10), threat=T.Linf(0.1), test=plane(8, 4), loss="bce", restarts=1, **RECIPE)
    assert "keeps state" in found.skipped["hypergradients"] and found.trainings > 30
    assert bool((found.lead < 10).all())
