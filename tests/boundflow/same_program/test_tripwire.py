"""The tripwire: plant again what once went unnoticed, and see it become an error message."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boundflow as bf
from boundflow.answers import certificate
from boundflow.operators import dropout_and_noise
from boundflow.threats import Linf
from boundflow.training import certified_training

SMALL, WIDE = 1e-7, 0.5  # of the threat: where the step itself shows it, and where only a rehearsal can
RECIPE = {"loss": "bce", "optimizer_options": {"lr": 0.3}, "epochs": 2, "order": 2, "progress": False}


def data(scale: float = 1.0) -> tuple[Tensor, Tensor]:
    x = scale * torch.randn(12, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x, (x[:, 0] > 0).double()


class Dropped(nn.Module):
    """Dropout of a transposed operand."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        tokens = F.dropout(x.view(-1, 2, 2).transpose(1, 2), 0.5, self.training)
        return self.head(tokens.reshape(-1, 4))


class RunningMean(nn.Module):
    """A forward pass that changes state."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(4, 1)
        self.register_buffer("mean", torch.zeros(4, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.5 * self.mean.detach() + 0.5 * x.mean(0).detach()
        return self.head(x - self.mean)


class Centered(nn.Module):
    """Samples that meet."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x - x.mean(0))


@pytest.mark.parametrize("epsilon", [SMALL, WIDE], ids=["small", "wide"])
@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_masks_in_another_order(domain: str, epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropout_and_noise, "plain_ones", lambda x: torch.ones(x.shape, dtype=x.dtype))
    with pytest.raises(bf.OutsideBounds, match="step 1"):
        bf.certify(Dropped().double(), data(), threat=Linf(epsilon), domain=domain, **RECIPE)


@pytest.mark.parametrize("epsilon", [SMALL, WIDE], ids=["small", "wide"])
@pytest.mark.parametrize(("model", "scale"), [(RunningMean, 1.0), (Centered, 1.0), (Centered, 1e-4)])
def test_pieces_of_a_batch_that_must_stay_whole(
    model: Any, scale: float, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certified_training, "chunk_size", lambda *arguments: 4)
    with pytest.raises(bf.OutsideBounds, match="step 1"):
        bf.certify(model().double(), data(scale), threat=Linf(epsilon * scale), **RECIPE)


@pytest.mark.parametrize("epsilon", [SMALL, WIDE], ids=["small", "wide"])
def test_answers_in_parts_for_inputs_that_meet(epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data(1e-4)
    found = bf.certify(Centered().double(), (x, y), threat=Linf(epsilon * 1e-4), **RECIPE)
    monkeypatch.setattr(certificate, "samples_meet", lambda *arguments, **options: False)
    with pytest.raises(bf.OutsideBounds, match="answers outside"):
        found.predict(x, epsilon=epsilon * 1e-4, chunk=4)


def test_a_later_step_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set that loses what an update did, from the third step on."""
    seen = []

    def lose(step: bf.Step) -> None:
        seen.append(step.number)
        if step.number == 2:
            with torch.no_grad():
                for parameter in step.model.parameters():
                    parameter.copy_(parameter * 1.01)

    with pytest.raises(bf.OutsideBounds, match=r"head\.weight of the plain model left its bounds at step 3"):
        bf.certify(Centered().double(), data(), threat=Linf(SMALL), callbacks=[lose], **{**RECIPE, "epochs": 4})
    assert seen == [1, 2]


def test_plain_state_of_both_runs_is_the_same() -> None:
    """Buffers that stay plain tensors are held against each other, too."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.head = nn.Linear(4, 1)
            self.register_buffer("sets", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            if self.training and isinstance(x, bf.Bounded):
                self.sets += 1
            return self.head(x)

    with pytest.raises(bf.OutsideBounds, match="sets"):
        bf.certify(Counting().double(), data(), threat=Linf(WIDE), **RECIPE)


def test_check_serves_loops_of_ones_own() -> None:
    x, y = data()
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    sets = copy.deepcopy(plain)
    symbols = bf.Symbols(Linf(0.01), order=2)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.3) for model in (plain, sets)]
    bf.lift(sets, symbols)
    symbols.attach(optimizers[1])
    for _ in range(3):
        inputs, targets = symbols.lift(x, y, torch.arange(len(x)))
        for model, optimizer, batch in ((plain, optimizers[0], (x, y)), (sets, optimizers[1], (inputs, targets))):
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(model(batch[0]).squeeze(1), batch[1]).backward()
            optimizer.step()
        bf.check(plain, sets)
    for wrong in (1e3, float("nan")):
        other = copy.deepcopy(plain)
        with torch.no_grad():
            other[0].bias[1] = wrong
        with pytest.raises(bf.OutsideBounds, match=r"0\.bias"):
            bf.check(other, sets)
    with pytest.raises(bf.OutsideBounds, match="no tensor"):
        bf.check(nn.Linear(4, 3), sets)


def test_sets_are_compared_at_both_ends() -> None:
    """Parameters and buffers, one element of which is outside."""
    plain = nn.Linear(2, 1).double()
    plain.register_buffer("seen", torch.zeros(2, dtype=torch.float64))
    sets = bf.lift(copy.deepcopy(plain))
    sets.seen = bf.ball(torch.zeros(2, dtype=torch.float64), 0.1)
    bf.check(plain, sets)
    for name in ("weight", "seen"):
        for move in (0.2, -0.2):
            other = copy.deepcopy(plain)
            with torch.no_grad():
                getattr(other, name)[..., 0] += move
            with pytest.raises(bf.OutsideBounds, match=f"{name} of the plain module"):
                bf.check(other, sets)


class Deceiving(nn.Module):
    """Answers otherwise for its last input where inputs are sets: another program than the plain one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head, self.added = nn.Linear(4, 1), 1.0

    def forward(self, x: Tensor) -> Tensor:
        added = torch.zeros(len(x), 1, dtype=torch.float64)
        added[-1] = self.added * (not self.training and isinstance(x, bf.Bounded))
        return self.head(x) + added


@pytest.mark.parametrize("epsilon", [SMALL, 50.0], ids=["small", "wide"])
def test_one_answer_outside_its_bounds_is_enough(epsilon: float) -> None:
    """Wide bounds hold it, and the rehearsal still tells."""
    x, y = data()
    found = bf.certify(Deceiving().double(), (x, y), threat=Linf(SMALL), **RECIPE)
    with pytest.raises(bf.OutsideBounds, match="1 of 12 inputs, on the inputs as observed"):
        found.predict(x, epsilon=epsilon)


def test_every_answer_is_compared_and_not_only_the_first() -> None:
    x, y = data()
    model = Deceiving().double()
    model.added = 0.0
    found = bf.certify(model, (x, y), threat=Linf(SMALL), **RECIPE)
    found.predict(x)
    found.model.added = 1.0
    with pytest.raises(bf.OutsideBounds, match=r"1 of 12 inputs\. Likely"):
        found.predict(x, epsilon=SMALL)


def test_without_rounding_nothing_is_claimed() -> None:
    with bf.rounding.nearest():
        found = bf.certify(Centered().double(), data(), threat=Linf(0.0), **RECIPE)
        found.predict(data()[0])
