"""Your own training loop on every dataset an attacker could have left behind.

Two-Moons with momentum, once with intervals and once with zonotopes. Only the lines marked with an arrow differ from
ordinary PyTorch. Run it with: python examples/own_loop.py
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

import boundflow as bf


def two_moons(samples: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(samples) % 2
    angle = torch.pi * torch.rand(samples, generator=generator)
    x = torch.stack((torch.cos(angle), torch.sin(angle)), 1)
    x = torch.where(y[:, None] == 1, torch.tensor([1.0, 0.5]) - x, x)
    return (x + 0.1 * torch.randn(samples, 2, generator=generator)).double(), y.double()


def train(domain: str, epsilon: float = 1e-3, epochs: int = 6) -> float:
    """The fraction of test points that are right for every model in the set and every input within epsilon."""
    x, y = two_moons(100, seed=0)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 10), nn.Tanh(), nn.Linear(10, 1)).double()
    with torch.no_grad():
        model[0].weight.mul_(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)

    symbols = bf.Symbols(bf.threats.Linf(epsilon), order=10) if domain == "zonotope" else None  # <-
    bf.lift(model, symbols)  # <-
    if symbols is not None:
        symbols.attach(optimizer)  # <-

    for epoch in range(epochs):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))
        for index in order.split(50):
            if symbols is None:
                inputs, targets = bf.ball(x[index], epsilon), y[index]  # <-
            else:
                inputs, targets = symbols.lift(x[index], y[index], index)  # <-
            loss = F.binary_cross_entropy_with_logits(model(inputs).squeeze(1), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    test_x, test_y = two_moons(200, seed=1)
    with torch.no_grad():
        logits = model(bf.ball(test_x, epsilon)).squeeze(1)  # <-
    right = torch.where(test_y == 1, logits.lower > 0, logits.upper < 0)
    return right.double().mean().item()


if __name__ == "__main__":
    for domain in ("interval", "zonotope"):
        try:
            print(f"{domain:9s} certified accuracy {100 * train(domain):5.1f} %")
        except bf.VoidBounds as blown_up:
            print(f"{domain:9s} blew up: {blown_up}")
