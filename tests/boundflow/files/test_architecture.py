"""What a file says of its network is the network: layers that would come back otherwise are not described."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import boundflow as bf
from boundflow.files.architecture import describe


def named() -> nn.Module:
    return nn.Sequential(OrderedDict(first=nn.Linear(3, 4), bend=nn.Tanh(), second=nn.Linear(4, 2)))


def one_layer_twice() -> nn.Module:
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Tanh(), nn.Linear(3, 2))


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Linear(3, 2))
    model[2].weight = model[0].weight
    return model


def without_one() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
    del model[1]
    model.add_module("5", nn.Tanh())
    return model


@pytest.mark.parametrize("make", [named, one_layer_twice, tied, without_one])
def test_layers_that_would_come_back_otherwise_are_those_of_the_user(
    make: Callable[[], nn.Module], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    x = torch.randn(12, 3, dtype=torch.float64)
    model, path = make().double(), tmp_path / "kept.safetensors"
    kept = bf.certify(
        model, (x, (x[:, 0] > 0).long()), threat=bf.threats.Linf(0.01), loss="ce", epochs=2, progress=False
    )
    kept.save(path)
    assert describe(model) is None
    with pytest.raises(bf.BoundFlowError, match="custom module"):
        bf.load(path)
    again = bf.load(path, make().double())
    assert torch.allclose(again.predict(x).lower, kept.predict(x).lower, rtol=1e-12)


def test_one_activation_in_two_places_is_two_of_its_kind() -> None:
    bend = nn.Tanh()
    assert describe(nn.Sequential(nn.Linear(3, 3), bend, nn.Linear(3, 2), bend)) is not None


class Fussy(nn.Module):
    """Takes numbers of some kind alone, and does more than its parameters say."""

    def __init__(self, takes: Callable[[Tensor], Tensor], sign: float = 1.0):
        super().__init__()
        self.layer, self.takes, self.sign = nn.Linear(2, 2).double(), takes, sign

    def forward(self, x: Tensor) -> Tensor:
        if not bool(self.takes(x).all()):
            raise ValueError("other numbers were wanted")
        return self.sign * self.layer(x)


def small(x: Tensor) -> Tensor:
    return x.abs() <= 5


def flags(x: Tensor) -> Tensor:
    return (x == 0) | (x == 1)


def halves(x: Tensor) -> Tensor:
    return x == 0.5


@pytest.mark.parametrize("takes", [small, flags, halves])
def test_a_network_that_takes_some_inputs_alone_is_known_again(
    takes: Callable[[Tensor], Tensor], tmp_path: Path
) -> None:
    """One that raises has no answers, and two that have none are not the same for that."""
    torch.manual_seed(0)
    x, path = torch.randint(2, (12, 2)).double(), tmp_path / "kept.safetensors"
    x = torch.full_like(x, 0.5) if takes is halves else x
    kept = bf.certify(
        Fussy(takes), (x, torch.arange(12) % 2), threat=bf.threats.Labels(), loss="ce", epochs=2, progress=False
    )
    kept.save(path)
    with pytest.raises(bf.BoundFlowError, match="attributes of the model"):
        bf.load(path, Fussy(takes, -1.0))
    with pytest.raises(bf.BoundFlowError, match="attributes of the model"):
        bf.load(path, Fussy(small if takes is flags else flags))
    if takes is halves:
        with pytest.raises(bf.BoundFlowError, match="each of the inputs"):
            bf.load(path, Fussy(takes))
    else:
        assert torch.equal(bf.load(path, Fussy(takes)).predict(x).label, kept.predict(x).label)
