"""The recipe of the published FullCert code, with the quirks that its numbers depend on. No default of ours.

    every epoch:  shuffle; for every batch  theta <- theta - lr / B * mean gradient;  certified validation accuracy
    the result:   the test set, by the models of the first epoch with the best validation accuracy

- Gradients are divided by the size B of the batch twice.
- Layers read fan-out as fan-in, and draw their weights as (in, out).
- Training stops when validation falls 5 points below its best. This choice is made on data inside the threat, so these
  values are no certificates of the whole procedure: the paper reports them, and so do we.
- Order of draws: weights and bias of every layer, then, each epoch, two numbers of a shuffled DataLoader for training
  and two for validation. Samples come from numpy's generator, started from the same seed.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boundflow as bf
from fullcert.datasets import Dataset, Split

DROP = 0.05  # training stops when the certified accuracy on validation is so far below its best
ORDER = 20  # of zonotopes, which the paper does not have


@dataclass(frozen=True)
class Published:
    """One run of the published code, up to its seed."""

    epsilon: float
    hidden: tuple[int, ...] = (20,)
    lr: float = 0.5
    epochs: int = 200
    batch_size: int = 100
    clip: tuple[float, float] | None = None  # the range of the data, for images
    domain: str = "interval"


@dataclass
class Reached:
    """The best epoch of a run, in shares of one, and how validation went."""

    validation: float = -1.0
    certified: float = 0.0
    nominal: float = 0.0
    epoch: int = 0  # 0: before the first
    curve: list[float] = field(default_factory=list)


def tensors(split: Split, device: torch.device, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Inputs in the precision of the run, flat, and labels as targets of the loss."""
    x = torch.as_tensor(split.inputs, dtype=dtype, device=device)
    return x.flatten(1), torch.as_tensor(split.labels, dtype=dtype, device=device).unsqueeze(1)


def network(inputs: int, hidden: tuple[int, ...], generator: torch.Generator) -> nn.Sequential:
    """Linear layers with ReLU between, of which every number is drawn within 1 / sqrt(outputs of the layer)."""
    widths = (inputs, *hidden, 1)
    layers: list[nn.Module] = []
    for inward, outward in zip(widths, widths[1:], strict=False):
        layer, bound = nn.Linear(inward, outward), 1 / math.sqrt(outward)
        with torch.no_grad():
            layer.weight.copy_(torch.empty(inward, outward).uniform_(-bound, bound, generator=generator).T)
            layer.bias.uniform_(-bound, bound, generator=generator)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def order(samples: int, generator: torch.Generator) -> Tensor:
    """The order of `DataLoader(shuffle=True)`: it draws a seed for its workers, then one for its sampler."""
    torch.empty((), dtype=torch.int64).random_(generator=generator)
    seed = int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())
    return torch.randperm(samples, generator=torch.Generator().manual_seed(seed))


class Sets:
    """A network whose parameters are sets, in one of the two domains, and the same network in plain PyTorch."""

    def __init__(self, model: nn.Sequential, run: Published):
        import copy

        self.run, self.plain, self.model = run, model, copy.deepcopy(model)
        self.threat = bf.threats.Linf(run.epsilon, clip=run.clip)
        self.symbols = bf.Symbols(self.threat, order=ORDER) if run.domain == "zonotope" else None
        bf.lift(self.model, self.symbols)
        self.optimizers = [torch.optim.SGD(one.parameters(), lr=run.lr) for one in (self.plain, self.model)]
        if self.symbols is not None:
            self.symbols.attach(self.optimizers[1])

    def step(self, x: Tensor, y: Tensor, index: Tensor) -> None:
        """A step of both, on the samples as observed and on all that the attacker could have left behind."""
        batch = x[index], y[index]
        for model, optimizer, (inputs, targets) in zip(
            (self.plain, self.model), self.optimizers, (batch, self.lifted(*batch, index)), strict=True
        ):
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(model(inputs), targets) / len(index)  # the second division
            loss.backward()
            optimizer.step()

    def lifted(self, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        if self.symbols is not None:
            inputs, targets = self.symbols.lift(x, y, index)
            return inputs, targets
        return self.moved(x), y

    def moved(self, x: Tensor) -> Tensor:
        """Inputs as boxes."""
        if self.run.clip is None:
            return bf.ball(x, self.run.epsilon)
        low, high = self.run.clip
        return bf.interval((x - self.run.epsilon).clamp(low, high), (x + self.run.epsilon).clamp(low, high))

    def certified(self, x: Tensor, y: Tensor) -> float:
        """The share of samples that every model answers right, wherever they were moved."""
        if self.symbols is not None:
            certificate = bf.Certificate(self.model, self.plain, {})
            return certificate.accuracy(x, y, threat=self.threat).certified
        with torch.no_grad():
            try:
                logits = self.model(self.moved(x))
            except bf.VoidBounds:
                return 0.0
        return torch.where(y > 0.5, logits.lower > 0, logits.upper < 0).double().mean().item()

    def nominal(self, x: Tensor, y: Tensor) -> float:
        with torch.no_grad():
            return ((self.plain(x) > 0) == (y > 0.5)).double().mean().item()


def train(
    data: Dataset,
    run: Published,
    generator: torch.Generator,
    device: torch.device,
    model: nn.Sequential | None = None,
    stops: Callable[[float, float], bool] = lambda now, best: now < best - DROP,
) -> Reached:
    """Certified training until validation falls, from a drawn network or a given one, and its best epoch."""
    train, validation, test = (tensors(split, device) for split in (data.train, data.validation, data.test))
    if model is None:
        model = network(train[0].shape[1], run.hidden, generator)
    sets, reached = Sets(model.to(device).eval(), run), Reached()
    for epoch in epochs(sets, train, run, generator):
        torch.empty(2, dtype=torch.int64).random_(generator=generator)  # the DataLoader of validation is shuffled too
        now = sets.certified(*validation)
        reached.curve.append(round(now, 4))
        if now > reached.validation:
            reached.validation, reached.epoch = now, epoch
            reached.certified, reached.nominal = sets.certified(*test), sets.nominal(*test)
        if stops(now, reached.validation):
            break
    return reached


def epochs(sets: Sets, data: tuple[Tensor, Tensor], run: Published, generator: torch.Generator) -> Iterator[int]:
    """Train epoch by epoch; a set that becomes void ends it."""
    x, y = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.WideBounds)
        for epoch in range(1, run.epochs + 1):
            try:
                for index in order(len(x), generator).to(x.device).split(run.batch_size):
                    sets.step(x, y, index)
            except bf.VoidBounds:
                return
            bf.check(sets.plain, sets.model)
            yield epoch
