"""Fixed features that see no label: columns made comparable, random Fourier features and the Gaussian kernel.

    scores of a column   v_0 + sum_j (v_(j+1) - v_j) clamp((x - u_j) / (u_(j+1) - u_j), 0, 1)
    k(x, x')             exp(-|x - x'|^2 / (2 s^2))         s: a multiple of the median distance between rows

Normal scores: u_j are quantiles of the column, and v_j those that a normal distribution has there. They are the same
whatever rising function was applied to a column before, and no value is far from the others.

Random Fourier features (Rahimi and Recht, 2007): ``sqrt(2 / m) cos(x W + b)`` with Gaussian W / s and uniform b have k
as their mean product. The kernel itself, on the training rows X: ``phi(x) = C^-1 k(X, x)`` with ``C C^T = k(X, X)``, so
that ``phi(x) phi(x') = k(x, x')`` for training rows x; a ridge on phi is kernel ridge regression. Either is made from
inputs alone, and is therefore the same in every dataset that differs in labels.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import BoundFlowError
from ..tensor.bounded import Bounded

KNOTS = 16  # quantiles of a column that are kept
ROWS = 1000  # between which distances are measured
FAR = 32.0  # lengths of a kernel from the middle, beyond which distances are taken one by one
NOTHING = 2.0**-200  # a kernel between rows this far apart is 0
JITTER = 2.0**-28  # on the diagonal of a kernel, so that rows that are the same do not make it singular


class Standardised(nn.Module):
    """``(x - mean) / deviation`` of every column; one that does not vary is divided by 1."""

    center: Tensor
    scale: Tensor

    def __init__(self, inputs: Tensor):
        super().__init__()
        inputs = inputs.detach().double()
        deviation = inputs.std(0, correction=0)
        self.register_buffer("center", inputs.mean(0))
        self.register_buffer("scale", torch.where(deviation > 0, deviation, 1.0))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = (x - self.center) / self.scale
        return found


class NormalScores(nn.Module):
    """Every column by the normal distribution that its quantiles would have: straight between them, level beyond."""

    start: Tensor
    knots: Tensor
    steepness: Tensor
    rises: Tensor

    def __init__(self, inputs: Tensor, count: int = KNOTS):
        super().__init__()
        columns = [_quantiles(column, count) for column in inputs.detach().double().cpu().numpy().T]
        widest = max(len(places) for places, _ in columns) - 1
        knots, steepness, rises = (np.zeros((widest, len(columns))) for _ in range(3))
        for column, (places, values) in enumerate(columns):
            steps = slice(0, len(places) - 1)
            knots[steps, column], rises[steps, column] = places[:-1], np.diff(values)
            steepness[steps, column] = 1 / np.diff(places)
        self.register_buffer("start", torch.tensor([values[0] for _, values in columns], dtype=torch.float64))
        for name, values in (("knots", knots), ("steepness", steepness), ("rises", rises)):
            self.register_buffer(name, torch.from_numpy(values))
        self.to(inputs.device)

    def forward(self, x: Tensor) -> Tensor:
        found = x * 0 + self.start
        for knot, steepness, rise in zip(self.knots, self.steepness, self.rises, strict=True):
            found = found + ((x - knot) * steepness).clamp(0.0, 1.0) * rise
        return found


def _quantiles(column: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Quantiles that differ, and what a normal distribution has there; of equal ones the mean."""
    shares = (np.arange(count) + 0.5) / count
    normal = torch.special.ndtri(torch.from_numpy(shares)).numpy()
    places = np.quantile(column, shares)
    least = 2.0**-20 * max(float(np.ptp(places)), 2.0**-900)  # closer ones are taken for one
    groups = np.concatenate(([0], (np.diff(places) > least).cumsum()))
    counts = np.bincount(groups)
    return np.bincount(groups, places) / counts, np.bincount(groups, normal) / counts


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
        require_points(x)
        found: Tensor = torch.cos(x @ self.frequencies + self.phases) * self.height
        return found


class KernelFeatures(nn.Module):
    """``C^-1 k(X, x)``: the Gaussian kernel on the training rows X."""

    middle: Tensor
    rows: Tensor
    factor: Tensor

    def __init__(self, inputs: Tensor, length: float = 1.0):
        super().__init__()
        self.scale = median_distance(inputs) * length
        inputs = inputs.detach().double()
        self.register_buffer("middle", inputs.mean(0))
        self.register_buffer("rows", inputs - self.middle)
        self.far = bool(self.rows.square().sum(1).max() > (FAR * self.scale) ** 2)
        kernel = self.kernel(self.rows)
        kernel.diagonal().add_(JITTER * len(inputs))
        self.register_buffer("factor", torch.linalg.cholesky(kernel).contiguous())

    def kernel(self, x: Tensor) -> Tensor:
        """``k(X, x)``, (n, m), of inputs less the middle of X."""
        if self.far:  # a product would lose what is small beside them
            square = torch.cdist(self.rows, x, compute_mode="donot_use_mm_for_euclid_dist").square()
        else:
            square = self.rows.square().sum(1)[:, None] + x.square().sum(1) - 2 * self.rows @ x.T
        return torch.exp(square.clamp_min(0.0) / (-2 * self.scale**2))

    def forward(self, x: Tensor) -> Tensor:
        require_points(x)
        found: Tensor = torch.linalg.solve_triangular(self.factor, self.kernel(x - self.middle), upper=False).T
        return torch.where(found.abs() < NOTHING, 0.0, found)


def require_points(x: Tensor) -> None:
    """Refuse inputs of which it is not known where they are."""
    if isinstance(x, Bounded):
        raise BoundFlowError(
            "inputs that may have moved have no bounds here through a kernel or random features: fit columns "
            "themselves, with features='none' (--features none)"
        )


def median_distance(inputs: Tensor) -> float:
    """The median distance between rows: of all, or of a thousand that are drawn with a fixed seed."""
    inputs = inputs.detach().double()
    if len(inputs) > ROWS:
        drawn = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))[:ROWS]
        inputs = inputs[drawn.to(inputs.device)]
    distances = torch.pdist(inputs)
    median = float(distances.median()) if len(distances) else 0.0
    return median if median > 0 else 1.0
