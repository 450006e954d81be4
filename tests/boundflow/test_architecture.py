"""What a file says of its network is the network: layers that would come back otherwise are not described."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import boundflow as bf
from boundflow.architecture import describe


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
