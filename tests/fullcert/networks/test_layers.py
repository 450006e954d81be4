"""Fixed features: their formulas, and that plain trainings on poisoned data stay inside what is certified on top."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import boundflow as bf
from fullcert.networks.layers import Bumps, Domes, EdgeEnergy, Scaled


def test_bumps_are_gaussians_on_a_grid() -> None:
    layer = Bumps((0.0, -1.0), (1.0, 1.0), spacing=0.5, width=0.25)
    assert layer.centers.shape == (15, 2) and layer.centers[[0, -1]].tolist() == [[0.0, -1.0], [1.0, 1.0]]
    x = torch.tensor([[0.3, 0.2]], dtype=torch.float64)
    expected = [math.exp(-((0.3 - a) ** 2 + (0.2 - b) ** 2) / (2 * 0.25**2)) for a, b in layer.centers.tolist()]
    assert np.allclose(layer(x)[0].numpy(), expected)
    assert Bumps((0.0,), (1.0,), spacing=0.3, width=1.0).centers.shape == (5, 1)  # never wider than asked for


def test_domes_are_windows_of_epanechnikov() -> None:
    """And so they lie below the bump of a width smaller by the root of two, and vanish from their width on."""
    layer = Domes((0.0, -1.0), (1.0, 1.0), spacing=0.5, width=0.3)
    x = torch.tensor([[0.3, 0.2], [0.5, 0.29], [0.5, 0.31]], dtype=torch.float64)
    for row, found in zip(x.tolist(), layer(x).tolist(), strict=True):
        far = [math.dist(row, center) for center in layer.centers.tolist()]
        assert found == pytest.approx([max(0.0, 1 - (d / 0.3) ** 2) for d in far])
        assert all((value == 0) == (d >= 0.3) for value, d in zip(found, far, strict=True))
    bumps = Bumps((0.0, -1.0), (1.0, 1.0), spacing=0.5, width=0.3 / math.sqrt(2))
    assert bool((layer(x) <= bumps(x)).all())


def test_scaled() -> None:
    assert Scaled((1.0, 2.0), (0.5, 4.0))(torch.tensor([[2.0, 0.0]]).double()).tolist() == [[2.0, -0.5]]


def test_edge_energies_see_orientations_and_no_flat_image() -> None:
    layer = EdgeEnergy(orientations=2, patch=12)
    flat, halves = torch.full((1, 1, 28, 28), 0.7).double(), torch.zeros(1, 1, 28, 28).double()
    halves[..., 14:] = 1.0  # an upright edge: only the filter across it answers
    assert torch.allclose(layer(flat), torch.zeros(1, 2).double())
    across, along = layer(halves)[0].tolist()
    assert across > 100 * along
    assert torch.allclose(layer.filters.abs().sum((1, 2, 3)), torch.full((2,), 3.0).double())


def points(random: np.random.Generator) -> tuple[Tensor, Tensor]:
    y = torch.arange(30) % 2
    return torch.from_numpy(random.normal(size=(30, 2)) * 0.3) + (2 * y - 1)[:, None], y


def images(random: np.random.Generator) -> tuple[Tensor, Tensor]:
    y = torch.arange(12) % 2
    x = torch.from_numpy(random.uniform(0, 0.2, size=(12, 1, 12, 12)))
    x[y == 0, :, :, 4:6] += 0.7
    x[y == 1, :, 4:6] += 0.7
    return x, y


def bumps() -> nn.Sequential:
    return nn.Sequential(Scaled((0.0, 0.0), (1.0, 2.0)), Bumps((-2.0, -1.0), (2.0, 1.0), 0.5, 0.4), nn.Linear(45, 1))


def edges() -> nn.Sequential:
    return nn.Sequential(EdgeEnergy(orientations=2, stride=1, patch=4), nn.Linear(8, 3), nn.Tanh(), nn.Linear(3, 1))


@pytest.mark.parametrize(("make", "draw", "steps"), [(bumps, points, 1), (bumps, points, 4), (edges, images, 2)])
def test_poisoned_trainings_stay_inside(make, draw, steps: int) -> None:
    random = np.random.default_rng(0)
    x, y = draw(random)
    torch.manual_seed(0)
    model, epsilon, lr = make().double(), 0.02, 0.5
    options = {"loss": "bce", "optimizer_options": {"lr": lr}, "epochs": steps, "order": 3}
    cert = bf.certify(model, (x, y), threat=bf.threats.Linf(epsilon), **options)
    answer = cert.predict(x, epsilon=epsilon)
    start = [parameter.detach().clone() for parameter in model.parameters()]
    for _ in range(25):
        poisoned = x + epsilon * torch.from_numpy(random.choice([-1.0, 1.0], size=x.shape))
        for parameter, value in zip(model.parameters(), start, strict=True):
            parameter.data.copy_(value)
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        for _ in range(steps):
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(poisoned)[:, 0], y.double()).backward()
            optimizer.step()
        logits = model(x + epsilon * torch.from_numpy(random.choice([-1.0, 1.0], size=x.shape))).detach()
        assert bool(((answer.lower <= logits) & (logits <= answer.upper)).all())
        assert bool(((logits[:, 0] > 0).long() == answer.label)[answer.certified].all())
    assert bool(answer.certified.any())
