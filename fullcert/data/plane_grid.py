"""The part of the plane around samples of two features, as a grid of points."""

import torch
from torch import Tensor


def grid_around(inputs: Tensor, points: int) -> tuple[Tensor, Tensor, Tensor]:
    """The two axes around the samples, and the grid of points they span, row by row."""
    low, high = inputs.amin(dim=0), inputs.amax(dim=0)
    edge = torch.maximum(0.15 * (high - low).amax() + 1e-9, 1e-5 * inputs.abs().amax())  # a plane, and not a line
    across, down = (torch.linspace(*ends, points).to(inputs) for ends in zip(low - edge, high + edge, strict=True))
    rows, columns = torch.meshgrid(down, across, indexing="ij")
    return across.cpu(), down.cpu(), torch.stack([columns.flatten(), rows.flatten()], dim=1)
