"""Whether samples meet is decided by dependence: no scale of the data can hide it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boundflow as bf
from boundflow.same_program import batch_independence
from boundflow.same_program.batch_independence import samples_meet
from boundflow.threats import Linf


class Mixed(nn.Module):
    def __init__(self, mix: Callable[[Tensor], Tensor]):
        super().__init__()
        torch.manual_seed(0)
        self.mix, self.linear = mix, nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.mix(x))


def scaled_gradient(x: Tensor) -> Tensor:
    """Samples meet in the backward pass alone."""
    x = x * 1.0
    if x.requires_grad:
        x.register_hook(lambda gradient: gradient - gradient.mean(0))
    return x


MEET = {
    "centered": lambda x: x - x.mean(0),
    "softmax over samples": lambda x: torch.softmax(x, 0),
    "neighbours": lambda x: x + torch.roll(x, 1, 0),
    "hardly": lambda x: x + 1e-9 * x.sum(0),
    "divided by the number": lambda x: x / len(x),
    "by position": lambda x: x + torch.arange(len(x), dtype=x.dtype).unsqueeze(1),
    "branch": lambda x: x if bool((x > 0).all()) else -x,
    "no rule": lambda x: torch.sort(x, 0).values,
}
APART = {
    "plain": lambda x: x,
    "functions": lambda x: torch.tanh(x) * torch.sigmoid(x) + F.gelu(x),
    "over features": lambda x: torch.softmax(x, 1) - x.mean(1, keepdim=True),
    "norm": lambda x: x / (1 + (x * x).sum(1, keepdim=True)),
    "maximum": lambda x: torch.maximum(x, x.flip(1)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("scale", [1e-30, 1e-4, 1.0, 1e5, 1e30])
def test_at_every_scale(scale: float, dtype: torch.dtype) -> None:
    x = (scale * torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).to(dtype)
    for training in (False, True):
        for name, mix in MEET.items():
            assert samples_meet(Mixed(mix).to(dtype), x, training), name
        for name, mix in APART.items():
            if scale <= 1e5 or name in ("plain", "over features"):
                assert not samples_meet(Mixed(mix).to(dtype), x, training), name


def test_samples_that_meet_in_the_backward_pass_meet_in_training_only() -> None:
    x = torch.randn(20, 3, dtype=torch.float64)
    assert samples_meet(Mixed(scaled_gradient).double(), x, True)
    assert not samples_meet(Mixed(scaled_gradient).double(), x, False)


def test_layers_of_images() -> None:
    x = torch.randn(6, 1, 6, 6)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LayerNorm(8), nn.Linear(8, 2))
    assert not samples_meet(net, x, True)
    assert samples_meet(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(32, 2)), x, True)


@pytest.mark.parametrize(("size", "offset"), [(1e-4, 0.0), (1.0, 1e5)], ids=["small features", "large outputs"])
def test_certificates_of_networks_that_mix_a_little(size: float, offset: float) -> None:
    """Neither a batch in pieces nor an answer in parts may treat them one by one."""
    torch.manual_seed(0)
    x = size * torch.randn(40, 3)
    y = (x[:, 0] > 0).long()
    model = Mixed(lambda x: x - x.mean(0))
    with torch.no_grad():
        model.linear.bias += offset
    options = {"optimizer_options": {"lr": 0.1}, "steps": 2, "epochs": 2, "memory": 3e3, "order": 2}
    certificate = bf.certify(model, (x, y), threat=Linf(0.01 * size), loss="ce", **options)
    assert certificate.model is not None
    with pytest.raises(bf.BoundFlowError, match="meet"):
        certificate.predict(x, epsilon=0.01 * size, chunk=8)
    with pytest.raises(bf.BoundFlowError, match="meet"):
        certificate.predict(x, epsilon=0.01 * size, cuts=2)
    certificate.predict(x, epsilon=0.01 * size)


def centered(*arguments):
    """A hook: the last argument is what a module puts out."""
    return arguments[-1] - arguments[-1].mean(0)


class Centered(nn.Linear):
    def forward(self, x):
        return centered(super().forward(x))


def with_a_hook():
    model = nn.Sequential(nn.Linear(3, 2))
    model[0].register_forward_hook(centered)
    return model


def with_another_forward():
    model = nn.Sequential(nn.Linear(3, 2))
    model[0].forward = lambda x: centered(nn.functional.linear(x, model[0].weight))
    return model


@pytest.mark.parametrize("make", [with_a_hook, with_another_forward, lambda: nn.Sequential(Centered(3, 2))])
def test_layers_of_pytorch_that_were_changed_are_tried(make):
    assert not batch_independence._works_one_by_one(make()[0])
    assert samples_meet(make(), torch.randn(8, 3), training=False)


def test_layers_of_pytorch_need_no_trial(monkeypatch):
    monkeypatch.setattr(batch_independence, "_stay_apart", None)
    assert not samples_meet(nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1)), torch.randn(8, 3), True)


def test_hooks_of_all_modules_are_tried():
    handle = nn.modules.module.register_module_forward_hook(centered)
    try:
        assert samples_meet(nn.Sequential(nn.Linear(3, 2)), torch.randn(8, 3), training=False)
    finally:
        handle.remove()


class MeetWhereMany(nn.Module):
    """Centers a batch of many, and one whose numbers are large."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x - x.mean(0) if len(x) > 8 or bool((x > 50).any()) else x)


def test_what_was_found_for_some_inputs_is_not_taken_for_others() -> None:
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    certificate = bf.certify(
        MeetWhereMany(), (x, (x[:, 0] > 0).long()), threat=bf.threats.Linf(1e-3), loss="ce", progress=False
    )
    assert len(certificate.predict(x, chunk=4)) == 8
    for others in (torch.cat((x, x)), 100 * x):
        with pytest.raises(bf.BoundFlowError, match="lets the inputs of a batch meet"):
            certificate.predict(others, chunk=4)
    assert len(certificate.predict(x, chunk=4)) == 8
