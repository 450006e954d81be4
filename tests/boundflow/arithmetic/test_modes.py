"""Training mode and evaluation mode: training drops what a plain training drops, answers drop nothing.

Both runs of `certify` are the same program, so neither the tripwire nor any inclusion shows that both were in the wrong
mode: the plain run is compared with a training that is written here.
"""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boundflow as bf
from boundflow.threats import Linf

STEPS, SEED = 3, 5


def data() -> tuple[Tensor, Tensor]:
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return x, (x[:, 0] > 0).double()


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 1)).double()


def plainly_trained(drops: bool) -> nn.Module:
    """A training as anybody would write it, whose masks are those of the seed and the step."""
    model, (x, y) = network().train(drops), data()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(STEPS):
        torch.manual_seed(1_000_003 * SEED + step)
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(x), y.unsqueeze(1)).backward()
        optimizer.step()
    return model


def test_a_look_at_a_run_leaves_it_in_training_mode() -> None:
    """Answers on the way drop nothing, and the steps after them drop what they would have dropped without."""
    looked_at = []

    def look(step: bf.Step) -> None:
        looked_at.append(step.predict(data()[0][:3]))
        assert all(module.training for part in (step.model, step.nominal) for module in part.modules())

    recipe = {"loss": "bce", "optimizer_options": {"lr": 0.5}, "epochs": STEPS, "seed": SEED, "progress": False}
    kept = bf.certify(network(), data(), threat=Linf(1e-3), callbacks=[look], **recipe)
    assert len(looked_at) == STEPS
    dropped = plainly_trained(True)
    for name, value in kept.nominal.named_parameters():
        assert torch.allclose(value, dropped.get_parameter(name), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("given", ["training", "evaluation"])
def test_training_is_in_training_mode_and_answers_are_not(given: str) -> None:
    """Whatever the mode of the model that was given, which stays as it was."""
    model = network().train(given == "training")
    before = copy.deepcopy(model.state_dict())
    kept = bf.certify(
        model,
        data(),
        threat=Linf(1e-3),
        loss="bce",
        optimizer_options={"lr": 0.5},
        epochs=STEPS,
        seed=SEED,
        progress=False,
    )
    dropped, whole = plainly_trained(True), plainly_trained(False)
    for name, value in kept.nominal.named_parameters():
        assert torch.allclose(value, dropped.get_parameter(name), rtol=1e-12, atol=1e-14)
    assert not torch.allclose(kept.nominal[0].weight, whole.get_parameter("0.weight"), atol=1e-3)
    assert model.training == (given == "training") and all(module.training == model.training for module in model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert kept.model is not None
    assert not any(module.training for part in (kept.nominal, kept.model) for module in part.modules())
    with torch.no_grad():
        assert torch.allclose(kept.nominal(data()[0]), dropped.eval()(data()[0]), rtol=1e-12)


@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_a_part_in_evaluation_mode_stays_there(domain: str) -> None:
    """Somebody has frozen the masks of a network that is trained: as a loop of PyTorch would find it."""
    model = network()
    model[2].eval()
    options = {"loss": "bce", "optimizer_options": {"lr": 0.5}, "epochs": STEPS, "seed": SEED, "domain": domain}
    kept, (x, y) = bf.certify(model, data(), threat=Linf(1e-3), progress=False, **options), data()
    assert model.training and not model[2].training
    plain = copy.deepcopy(model)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
    for _ in range(STEPS):
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(plain(x - 1e-3), y.unsqueeze(1)).backward()
        optimizer.step()
    assert kept.model is not None
    bf.check(plain, kept.model)
    whole = plainly_trained(False)
    for name, value in kept.nominal.named_parameters():
        assert torch.allclose(value, whole.get_parameter(name), rtol=1e-12, atol=1e-14)
