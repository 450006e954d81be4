"""Two half circles with noise, and a small network that tells them apart."""

from __future__ import annotations

import torch
import torch.nn as nn


def moons(samples: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(samples) % 2
    angle = torch.pi * torch.rand(samples, generator=generator, dtype=torch.float64)
    x = torch.stack((torch.cos(angle), torch.sin(angle)), 1)
    x = torch.where(y[:, None] == 1, torch.tensor([1.0, 0.5], dtype=torch.float64) - x, x)
    return x + 0.1 * torch.randn(samples, 2, generator=generator, dtype=torch.float64), y


def network(outputs: int = 1, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, outputs)).double()
    with torch.no_grad():
        model[0].weight.mul_(3)
    return model
