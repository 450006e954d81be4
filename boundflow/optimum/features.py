"""Fixed features that see no label: random Fourier features and the Gaussian kernel.

    k(x, x') = exp(-|x - x'|^2 / (2 s^2))           s: a multiple of the median distance between rows

Random Fourier features (Rahimi and Recht, 2007): ``sqrt(2 / m) cos(x W + b)`` with Gaussian W / s and uniform b have k
as their mean product. The kernel itself, on the training rows X: ``phi(x) = C^-1 k(X, x)`` with ``C C^T = k(X, X)``, so
that ``phi(x) phi(x') = k(x, x')`` for training rows x; a ridge on phi is kernel ridge regression. Either is made from
inputs alone, and is therefore the same in every dataset that differs in labels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

ROWS = 1000  # between which distances are measured
JITTER = 2.0**-33  # on the diagonal of a kernel, so that rows that are the same do not make it singular


class RandomFeatures(nn.Module):
    """``sqrt(2 / m) cos(x W + b)``, drawn with a seed."""

    frequencies: Tensor
    phases: Tensor

    def __init__(self, inputs: Tensor, count: int, seed: int = 0, length: float = 1.0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(inputs.shape[1], count, generator=generator, dtype=torch.float64)
        phases = torch.rand(count, generator=generator, dtype=torch.float64) * (2 * torch.pi)
        self.register_buffer("frequencies", drawn.to(inputs.device) / (median_distance(inputs) * length))
        self.register_buffer("phases", phases.to(inputs.device))
        self.height = (2 / count) ** 0.5

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = torch.cos(x @ self.frequencies + self.phases) * self.height
        return found


class KernelFeatures(nn.Module):
    """``C^-1 k(X, x)``: the Gaussian kernel on the training rows X."""

    rows: Tensor
    factor: Tensor

    def __init__(self, inputs: Tensor, length: float = 1.0):
        super().__init__()
        self.scale = median_distance(inputs) * length
        self.register_buffer("rows", inputs.detach().double().clone())
        kernel = self.kernel(self.rows)
        kernel.diagonal().add_(JITTER * len(inputs))
        self.register_buffer("factor", torch.linalg.cholesky(kernel))

    def kernel(self, x: Tensor) -> Tensor:
        """``k(X, x)``, (n, m)."""
        square = self.rows.square().sum(1)[:, None] + x.square().sum(1) - 2 * self.rows @ x.T
        return torch.exp(square.clamp_min(0.0) / (-2 * self.scale**2))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = torch.linalg.solve_triangular(self.factor, self.kernel(x), upper=False)
        return found.T


def median_distance(inputs: Tensor) -> float:
    """The median distance between rows: of all, or of a thousand that are drawn with a fixed seed."""
    inputs = inputs.detach().double()
    if len(inputs) > ROWS:
        drawn = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))[:ROWS]
        inputs = inputs[drawn.to(inputs.device)]
    distances = torch.pdist(inputs)
    median = float(distances.median()) if len(distances) else 0.0
    return median if median > 0 else 1.0
