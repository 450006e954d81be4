"""What a report shows of a plane and of weights: the part around the samples, and the largest."""

import copy

import torch

import boundflow as bf
from fullcert.data.plane_grid import grid_around
from fullcert.networks import linear_weights


def test_a_plane_holds_the_samples_and_a_margin() -> None:
    across, down, grid = grid_around(torch.tensor([[0.0, 10.0], [4.0, 12.0], [1.0, 11.0]]), 5)
    assert torch.allclose(across[[0, -1]], torch.tensor([-0.6, 4.6]))
    assert torch.allclose(down[[0, -1]], torch.tensor([9.4, 12.6]))
    assert grid.shape == (25, 2) and torch.equal(grid[:5, 0], across) and torch.equal(grid[::5, 1], down)


def test_weights_that_are_shown_are_the_largest() -> None:
    model = torch.nn.Linear(70, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.arange(70.0) - 30)
    shown = linear_weights.intervals(bf.Certificate(bf.lift(copy.deepcopy(model)), model, {}), None, ())
    assert [row["plain"] for row in shown["rows"]][:3] == [39.0, 38.0, 37.0] and shown["left_out"] == 10
    assert min(abs(row["plain"]) for row in shown["rows"]) == 5.0
