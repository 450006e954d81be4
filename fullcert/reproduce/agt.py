"""Abstract Gradient Training (AGT) and its successor that splits inputs: their recipes, certified by zonotopes.

One network, all samples at once, a few steps of plain gradient descent with cross entropy in float64:

    w(t + 1) = w(t) - lr / (1 + decay t) gradient(t),   t = 0, 1, ...

The test inputs are not attacked. AGT counts the samples that the attacker touches *per batch*: k in every step, and not
the same ones. Here k is for the whole run, and a sample that was touched is the same in every step. An attacker of ours
is one of theirs: a certificate of theirs covers more, which is a part of the gap between the figures. In the domain of
intervals nothing follows a sample from step to step, k is per step as well, and the figures are near AGT's or above.

`--quick` takes the first samples only and as small a share of them for k, with fewer hidden units: `fixed` says how
many. What was published is not about these, and is left out.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

import boundflow as bf
from fullcert.data.datasets import Dataset, Split, load
from fullcert.reproduce.experiments import Case, Outcome, Scale, Setting, experiment

GPU_MEMORY, CPU_MEMORY = 1e11, 2.0**34
GPU_INPUTS, CPU_INPUTS = 4096, 256  # of a test set, answered for at a time
PER_STEP = "AGT lets the attacker touch k other samples in every step, as our intervals do; our k is for the whole run."


@dataclass(frozen=True)
class Attack:
    """What is trained, and what the attacker can do: k samples, their features by epsilon, their labels, or both."""

    dataset: str
    samples: int  # the first so many of the training set
    hidden: int  # 0: a linear model
    steps: int
    lr: float
    decay: float
    k: int  # as many as there are samples: all of them
    epsilon: float | None = None
    labels: bool = False
    domain: str = "zonotope"
    order: int = 2
    test: int | None = None  # the first so many of the test set; None: all
    weight_seed: int = 1234  # of the initial weights: the published one of MAGIC

    @property
    def setting(self) -> Setting:
        """What stands in the table."""
        what = [*(["features"] if self.epsilon is not None else []), *(["labels"] if self.labels else [])]
        found: Setting = {"threat": " and ".join(what), "k": self.k}
        return found | ({} if self.epsilon is None else {"epsilon": self.epsilon}) | {"steps": self.steps}

    @property
    def threat(self) -> bf.threats.Threat:
        features = None if self.epsilon is None else bf.threats.Linf(self.epsilon)
        labels = bf.threats.Labels() if self.labels else None
        one = features & labels if features is not None and labels is not None else features or labels
        assert one is not None
        return one if self.k == self.samples else bf.threats.AtMost(self.k, one)

    def smaller(self, samples: int, hidden: int, test: int) -> "Attack":
        """The same attack on the first samples: as small a share of them, at least one."""
        k = max(1, self.k * samples // self.samples)
        return replace(self, samples=samples, k=k, hidden=min(self.hidden, hidden), test=test)


def network(attack: Attack, features: int, classes: int) -> nn.Sequential:
    """The published network, with its initial weights."""
    torch.manual_seed(attack.weight_seed)
    if not attack.hidden:
        return nn.Sequential(nn.Linear(features, classes)).double()
    return nn.Sequential(nn.Linear(features, attack.hidden), nn.ReLU(), nn.Linear(attack.hidden, classes)).double()


def certified(attack: Attack, seed: int, device: torch.device) -> Outcome:
    """Train under the attack and certify the test set."""
    data = data_of(attack, seed)
    x, y = tensors(data.train, attack.samples, device)
    model = network(attack, x.shape[1], data.classes)
    return tested(attack, data, bf.certify(model, (x, y), program(attack, device), threat=attack.threat), device)


def data_of(attack: Attack, seed: int) -> Dataset:
    return load(attack.dataset, Path(os.environ.get("BOUNDFLOW_DATA", "data")), seed)


def tested(attack: Attack, data: Dataset, certificate: bf.Certificate, device: torch.device) -> Outcome:
    """What is certain of the test set."""
    chunk = GPU_INPUTS if device.type == "cuda" else CPU_INPUTS
    found = certificate.accuracy(*tensors(data.test, attack.test, device), chunk=chunk)
    details = {"certified_robustness": 100 * found.robustness, "void_at_step": certificate.void_at_step}
    return Outcome(100 * found.certified, 100 * found.nominal, details)


def program(attack: Attack, device: torch.device) -> bf.Recipe:
    """How the network is trained, as the library takes it."""
    return bf.Recipe(
        loss="ce",
        optimizer_options={"lr": attack.lr},
        schedule=lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1 / (1 + attack.decay * t)),
        epochs=attack.steps,
        domain=attack.domain,
        order=attack.order,
        device=device,
        memory=GPU_MEMORY if device.type == "cuda" else CPU_MEMORY,
    )


def tensors(part: Split, count: int | None, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """The first samples of a part and their labels."""
    return torch.tensor(part.inputs[:count], device=device), torch.tensor(part.labels[:count], device=device)


def cases(attacks: Iterator[tuple[Attack, float | None]], scale: Scale, small: dict[str, int]) -> list[Case]:
    """A case for every attack, in both domains; made small where it has to be quick."""
    wanted = {attack.smaller(**small): None for attack, _ in attacks} if scale.quick else dict(attacks)
    fixed = small if scale.quick else {}
    return [
        Case(attack.setting, domain, "paper", partial(certified, replace(attack, domain=domain)), paper, fixed=fixed)
        for attack, paper in wanted.items()  # small attacks that are the same are one
        for domain in ("interval", "zonotope")
    ]


@experiment(
    "agt-half-moons",
    title="Half-moons, 6-128-2 ReLU, 3000 samples, 4 steps; nominal accuracy published: 95.6",
    source="Abstract Gradient Training, half-moons, and input-splitting AGT",
    differs=f"{PER_STEP} k = 200 is the figure of input-splitting AGT on 4 GPUs (without: 48.8), the others are AGT's.",
    gpu=True,
)
def half_moons(scale: Scale) -> list[Case]:
    return cases(_half_moons(), scale, {"samples": 300, "hidden": 16, "test": 500})


def _half_moons() -> Iterator[tuple[Attack, float | None]]:
    base = Attack("half-moons", 3000, 128, 4, 2.0, 0.6, k=3000)
    for k, published in ((50, None), (100, None), (200, 76.2), (300, 12.0)):
        yield replace(base, k=k, epsilon=0.01), published
    for epsilon, published in ((0.05, 84.2), (0.1, None), (0.15, None), (0.2, 26.0)):
        yield replace(base, k=10, epsilon=epsilon, order=6), published
    for epsilon, published in ((0.001, 86.2), (0.01, 0.0)):
        yield replace(base, epsilon=epsilon), published
    for k, published in ((1, 91.0), (3, 70.8), (5, 30.0), (7, 3.2)):
        yield replace(base, k=k, labels=True), published
    for k in (1, 3, 5, 7):
        yield replace(base, k=k, epsilon=0.1, labels=True, order=6), None


@experiment(
    "agt-magic",
    title="MAGIC, 10-128-2 ReLU, 15,216 samples; published after 3 steps: nominal accuracy 78.9, larger class 64.8",
    source="Abstract Gradient Training, MAGIC",
    differs=f"{PER_STEP} The figures for 2 and 4 steps are read off a plot.",
    gpu=True,
)
def magic(scale: Scale) -> list[Case]:
    return cases(magic_attacks(), scale, {"samples": 1000, "hidden": 8, "test": 1000})


def magic_attacks() -> Iterator[tuple[Attack, float | None]]:
    base = Attack("magic", 15216, 128, 3, 1.0, 0.6, k=15216, epsilon=0.01)
    for steps, published in ((2, 73.0), (3, 59.9), (4, 10.0)):
        yield replace(base, k=200, steps=steps), published
    yield base, None


@experiment(
    "agt-mnist",
    title="MNIST on 32 principal components, linear, 60,000 samples, 2 steps, flipped labels",
    source="Abstract Gradient Training, MNIST",
    differs=f"{PER_STEP} Figures beyond 10 flips are read off a plot; components are of the clean training images.",
    gpu=True,
)
def mnist(scale: Scale) -> list[Case]:
    return cases(mnist_attacks(), scale, {"samples": 1500, "hidden": 0, "test": 1000})


def mnist_attacks() -> Iterator[tuple[Attack, float | None]]:
    base = Attack("mnist-32", 60000, 0, 2, 5.0, 1.0, k=60000, labels=True, test=1000)
    for k, published in ((10, 64.5), (25, 47.0), (50, 24.0), (100, 3.0)):
        yield replace(base, k=k), published
