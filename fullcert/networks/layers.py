"""Fixed features that certify well, as plain `torch.nn` modules without parameters.

A certificate holds for every model that any allowed dataset could have given, and every step of training widens that
set. Good fixed features need few steps, and features that stay local keep what one sample can do to the model in its
own neighbourhood. Nothing here is fitted to data: places, widths and filters are chosen beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Scaled(nn.Module):
    """``(x - middle) / spread``, with numbers that are known beforehand."""

    middle: Tensor
    spread: Tensor

    def __init__(self, middle: Sequence[float], spread: Sequence[float]):
        super().__init__()
        self.register_buffer("middle", torch.tensor(middle, dtype=torch.float64))
        self.register_buffer("spread", torch.tensor(spread, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.middle) / self.spread


class _Grid(nn.Module):
    """Squared distances to the points of a grid, for inputs with few features."""

    centers: Tensor

    def __init__(self, low: Sequence[float], high: Sequence[float], spacing: float, width: float):
        super().__init__()
        axes = [
            torch.linspace(start, end, 1 + math.ceil((end - start) / spacing), dtype=torch.float64)
            for start, end in zip(low, high, strict=True)
        ]
        self.register_buffer("centers", torch.cartesian_prod(*axes).view(-1, len(axes)))
        self.width = width

    def distance(self, x: Tensor) -> Tensor:
        return (x.unsqueeze(1) - self.centers).square().sum(2)


class Bumps(_Grid):
    """``exp(-|x - c|^2 / (2 width^2))`` at the points c of a grid.

    After one step from a head of zeros, a linear layer on top weighs the training samples around an input: a Parzen
    window classifier, whose weights depend on the data through sums of nearby bumps alone.
    """

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(-0.5 / self.width**2 * self.distance(x))


class Domes(_Grid):
    """``relu(1 - |x - c|^2 / width^2)`` at the points c of a grid: 0 from the width on (the window of Epanechnikov).

    Flatter at the top and shorter at the foot than a bump, so samples that move far change fewer weights by less.
    """

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(1 - self.distance(x) / self.width**2)


class EdgeEnergy(nn.Module):
    """How strong edges of each orientation are, averaged over patches of a grey image: ``mean (filter * x)^2``.

    The filters are derivatives of a Gaussian, and the moduli of each add up to ``gain``: an image moved by epsilon
    moves their answers by at most ``gain epsilon``.
    """

    filters: Tensor

    def __init__(self, orientations: int = 4, size: int = 5, stride: int = 2, patch: int = 2, gain: float = 3.0):
        super().__init__()
        line = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
        down, across = torch.meshgrid(line, line, indexing="ij")
        window = torch.exp(-(across**2 + down**2) / (0.12 * size**2))
        angles = [math.pi * number / orientations for number in range(orientations)]
        filters = torch.stack([(math.cos(angle) * across + math.sin(angle) * down) * window for angle in angles])
        self.register_buffer("filters", (gain * filters / filters.abs().sum((1, 2), keepdim=True)).unsqueeze(1))
        self.stride, self.patch = stride, patch

    def forward(self, x: Tensor) -> Tensor:
        edges = nn.functional.conv2d(x, self.filters, stride=self.stride)
        return nn.functional.avg_pool2d(edges * edges, self.patch).flatten(1)
