"""The tripwire: a plain run that leaves its sets is an error, in every step and answer, and wide sets hide nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import boundflow as bf
from boundflow.threats import Linf

RECIPE = {"loss": "bce", "optimizer_options": {"lr": 0.1}, "epochs": 4, "progress": False}
NARROW, WIDE = Linf(1e-6), Linf(2.0)


def data() -> tuple[Tensor, Tensor]:
    x = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x, (x[:, 0] > 0).double()


class Deceiving(nn.Module):
    """A linear model that adds something to its outputs where they are sets: another program than the plain one."""

    def __init__(self, added: Callable[[Deceiving, Tensor], Any]):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.added, self.steps = nn.Linear(2, 1, dtype=torch.float64), added, 0

    def forward(self, x: Tensor) -> Tensor:
        self.steps += self.training
        outputs = self.linear(x)
        return outputs + self.added(self, x) if isinstance(x, bf.Bounded) else outputs


def in_training(model: Deceiving, x: Tensor) -> float:
    return float(model.training)


def from_the_third_step(model: Deceiving, x: Tensor) -> float:
    return float(model.training and model.steps > 2)


def in_one_answer(model: Deceiving, x: Tensor) -> Any:
    lies = torch.zeros(len(x), 1, dtype=torch.float64)
    lies[-1] = float(not model.training)
    return lies


def test_a_module_is_compared_at_both_ends() -> None:
    plain = nn.Linear(2, 1).double()
    plain.register_buffer("seen", torch.zeros(2, dtype=torch.float64))
    sets = bf.lift(copy.deepcopy(plain))
    sets.seen = bf.ball(torch.zeros(2, dtype=torch.float64), 0.1)
    bf.check(plain, sets)
    for name, tensor in (("weight", plain.weight), ("seen", plain.seen)):
        for move in (0.2, -0.2, torch.nan):
            with torch.no_grad():
                kept = tensor.clone()
                tensor[..., 0] += move  # the other element stays inside
            with pytest.raises(bf.OutsideBounds, match=f"{name} of the plain module"):
                bf.check(plain, sets)
            with torch.no_grad():
                tensor.copy_(kept)
    del plain.seen
    with pytest.raises(bf.OutsideBounds, match="no tensor seen"):
        bf.check(plain, sets)


@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_the_step_that_leaves_the_sets_is_named(domain: str) -> None:
    with pytest.raises(bf.OutsideBounds, match="left its bounds at step 3"):
        bf.certify(Deceiving(from_the_third_step), data(), threat=NARROW, domain=domain, **RECIPE)


@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_wide_sets_do_not_hide_another_program_from_the_rehearsal(domain: str) -> None:
    with pytest.raises(bf.OutsideBounds, match="at step 1, on the data as observed"):
        bf.certify(Deceiving(in_training), data(), threat=WIDE, domain=domain, **RECIPE)


@pytest.mark.parametrize("radius", [1e-6, 50.0], ids=["narrow", "wide"])
def test_an_answer_outside_its_bounds_is_refused(radius: float) -> None:
    """Wide bounds hold it, and the rehearsal still tells."""
    x, y = data()
    certificate = bf.certify(Deceiving(in_one_answer), (x, y), threat=NARROW, **RECIPE)
    with pytest.raises(bf.OutsideBounds, match="1 of 6 inputs.*as observed"):
        certificate.predict(x, epsilon=radius)


def test_every_answer_is_compared_and_not_only_the_first() -> None:
    x, y = data()
    certificate = bf.certify(Deceiving(lambda model, x: 0.0), (x, y), threat=NARROW, **RECIPE)
    certificate.predict(x)
    certificate.model.added = in_one_answer
    with pytest.raises(bf.OutsideBounds, match="1 of 6 inputs. Likely"):
        certificate.predict(x, epsilon=1e-6)


def test_without_roundings_nothing_is_compared() -> None:
    """Ends are then only as good as floats are."""
    with bf.rounding.nearest():
        certificate = bf.certify(Deceiving(in_training), data(), threat=NARROW, **RECIPE)
        certificate.predict(data()[0])
    assert certificate.record["rounding"] == "nearest"
