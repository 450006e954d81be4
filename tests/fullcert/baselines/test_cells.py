"""Bins: no move by epsilon reaches a cell that was not counted."""

import torch

from fullcert.baselines.bagflip import BagFlip
from fullcert.baselines.cells import Cells

CELLS = Cells((0.0, -1.0), (2.0, 1.0), bins=4)


def test_cells_of_points():
    assert CELLS.of(torch.tensor([[0.0, -1.0], [0.6, 0.1], [9.0, -9.0]])).tolist() == [[0, 0], [1, 2], [3, 0]]
    assert torch.equal(CELLS.of(CELLS.middle(CELLS.all(torch.device("cpu")))), CELLS.all(torch.device("cpu")))


def test_moves_stay_within_what_was_counted():
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.rand(200, 2, generator=generator, dtype=torch.float64) - 1
    x[:4] = torch.tensor([[0.5, 0.0], [0.6, 0.0], [0.5, 0.1], [1.25, 0.25]])  # on borders
    for epsilon in (0.0, 1e-3, 0.1, 0.7):
        changed = CELLS.changed(x, epsilon)
        good = torch.zeros(16, 2, dtype=torch.bool)
        good[5:11, 1] = True
        holds = CELLS.holds(torch.ones(200, dtype=torch.long), good, x, epsilon)
        for _ in range(50):
            moved = x + epsilon * (2 * torch.rand(x.shape, generator=generator, dtype=torch.float64) - 1)
            cells = CELLS.of(moved)
            assert bool(((cells != CELLS.of(x)).sum(1) <= changed).all())
            assert bool(good[cells[:, 0] * 4 + cells[:, 1], 1][holds].all())


def test_where_every_sample_counts_nothing_is_certified():
    noise = BagFlip(20, 0.9, categories=12)
    assert 2 * noise.shifts(1000, {2: 1000}, labels=False).lowest(1 - 2**-10) < 1
