"""Batches in pieces: roundings are charged for the whole batch, and nothing that is called once is called twice."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import boundflow as bf
from boundflow import rounding
from boundflow.fast.memory.batch_pieces import accumulated
from boundflow.fast.memory.memory_plan import chunk_size
from boundflow.files.training_state import space_of
from boundflow.threats import AtMost, Linf
from boundflow.training.checked_inputs import Prepared
from boundflow.training.recipe import Recipe


def test_every_sum_over_a_piece_is_charged_for_the_whole_batch() -> None:
    space = bf.Symbols(Linf(0.1))
    model = bf.lift(nn.Linear(2, 1).double(), space)
    x, charges = torch.randn(11, 2, dtype=torch.float64), []

    def backward(piece: Tensor) -> Tensor:
        charges.append((len(piece), rounding.gamma(len(piece), torch.float64)))
        loss = model(space.lift(x[piece], torch.zeros(len(piece)), piece)[0]).sum()
        loss.backward()
        return loss.detach()

    accumulated(space, model, torch.arange(11).split(4), backward)
    assert [length for length, _ in charges] == [4, 4, 3]
    assert all(charge >= rounding.gamma(11, torch.float64) for _, charge in charges)


def test_a_sample_that_comes_again_in_a_later_piece_is_one_sample() -> None:
    """At most one of four ones is moved by a half; the first two come twice, and move twice: 6 - 1 to 6 + 1 in all."""
    x, threat, model = torch.ones(4, 1, dtype=torch.float64), AtMost(1, Linf(0.5)), nn.Linear(1, 1, bias=False).double()
    bf.lift(model)

    def backward(piece: Tensor) -> Tensor:
        loss = model(threat.lift(None, x[piece], torch.zeros(len(piece)), piece).inputs).sum()
        loss.backward()
        return loss.detach()

    accumulated(space_of(model), model, [torch.arange(2), torch.arange(2, 4), torch.arange(2)], backward)
    gradient = model.weight.grad
    assert isinstance(gradient, bf.Bounded)
    assert bool(gradient.contains(torch.tensor([[5.0]])) & gradient.contains(torch.tensor([[7.0]])))
    assert float(gradient.upper - gradient.lower) < 2 + 1e-9


class Drawing(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + torch.rand_like(x) if self.training else x)


class Keeping(nn.Linear):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        return super().forward(x)


class Meeting(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - x.mean(0))


@pytest.mark.parametrize(("network", "size"), [(nn.Linear, 2), (Drawing, 40), (Keeping, 40), (Meeting, 40)])
def test_only_samples_that_are_independent_of_each_other_are_taken_in_pieces(network: Any, size: int) -> None:
    x = torch.randn(40, 3, dtype=torch.float64)
    recipe = Recipe(loss="bce", memory=1.0)
    prepared = Prepared(network(3, 1).double(), (x, (x[:, 0] > 0).double()), Linf(0.1), recipe)
    assert chunk_size(prepared, bf.Symbols(Linf(0.1)), [torch.arange(40)]) == size
