"""A hundred trainings on intervals at once, ten seeds and ten radii, beside one of them by itself."""

import itertools
from pathlib import Path

import torch
from torch import nn

import boundflow as bf
from fullcert.bench.cases import Measured, case
from fullcert.bench.measuring import peak, seconds
from fullcert.data.datasets import load

SEEDS, RADII = range(10), [1e-6 * (1 + number) for number in range(10)]
RECIPE = bf.Recipe(
    loss="bce", domain="interval", epochs=100, batch_size=100, optimizer_options={"lr": 0.01}, compile=False
)


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Linear(20, 1))


@case("many-100", "100 trainings on intervals of Two-Moons at once (ratio: to one eager one of them)")
def many(device: torch.device) -> Measured:
    """The first call compiles, and is timed apart; the ratio is that of a second one."""
    moons = load("two-moons", Path("data"), 0).train
    x, y = torch.tensor(moons.inputs, dtype=torch.float32), torch.tensor(moons.labels)
    runs = list(itertools.product(SEEDS, RADII))
    models = [network(seed) for seed, _ in runs]
    threats = [bf.threats.Linf(radius) for _, radius in runs]
    each = [seed for seed, _ in runs]

    def together() -> None:
        bf.certify_many(models, (x, y), RECIPE.but(compile=True), threats=threats, seeds=each)

    def alone() -> None:
        bf.certify(models[0], (x, y), RECIPE, threat=threats[0], progress=False)

    with peak(device) as held:
        first = seconds(together, device)
        one = [seconds(alone, device)]
        again = seconds(together, device)
        one.append(seconds(alone, device))
    return Measured(1000 * again, 1000 * min(one), held.bytes, details={"first_call_seconds": first})
