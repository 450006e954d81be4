"""The recipe of the published FullCert code, with the quirks that its numbers depend on. No default of ours.

    every epoch:  shuffle; for every batch  theta <- theta - lr / B * mean gradient;  certified validation accuracy
    the result:   the test set, by the models of the first epoch with the best validation accuracy

- Gradients are divided by the size B of the batch twice.
- Layers read fan-out as fan-in, and draw their weights as (in, out). A copy of a network draws all of it once more.
- Training stops when validation falls 5 points below its best. This choice is made on data inside the threat, so these
  values are no certificates of the whole procedure: the paper reports them, and so do we.
- Order of draws: weights and bias of every layer, then, each epoch, two numbers of a shuffled DataLoader for training
  and two for validation. Samples come from numpy's generator, started from the same seed.
"""

import copy
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boundflow as bf
from fullcert.data.datasets import Dataset, Split

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

    validation: float = 0.0
    certified: float = 0.0
    nominal: float = 0.0
    epoch: int = 0  # 0: before the first
    curve: list[float] = field(default_factory=list)


class Source:
    """Random numbers in the order of the published code."""

    def __init__(self, seed: int):
        self.generator = torch.Generator().manual_seed(seed)

    def network(self, inputs: int, hidden: tuple[int, ...]) -> nn.Sequential:
        """Linear layers with ReLU between, of which every number is drawn within 1 / sqrt(outputs of the layer)."""
        widths = (inputs, *hidden, 1)
        layers: list[nn.Module] = []
        for inward, outward in zip(widths, widths[1:], strict=False):
            layer, bound = nn.utils.skip_init(nn.Linear, inward, outward), 1 / math.sqrt(outward)
            with torch.no_grad():
                layer.weight.copy_(torch.empty(inward, outward).uniform_(-bound, bound, generator=self.generator).T)
                layer.bias.uniform_(-bound, bound, generator=self.generator)
            layers += [layer, nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    def copied(self, model: nn.Sequential) -> None:
        """What copying this network draws."""
        widths = [layer.out_features for layer in model if isinstance(layer, nn.Linear)]
        assert isinstance(model[0], nn.Linear)
        self.network(model[0].in_features, tuple(widths[:-1]))

    def order(self, samples: int) -> Tensor:
        """The order of `DataLoader(shuffle=True)`: it draws a seed for its workers, then one for its sampler."""
        torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        seed = int(torch.empty((), dtype=torch.int64).random_(generator=self.generator).item())
        return torch.randperm(samples, generator=torch.Generator().manual_seed(seed))

    def looked(self) -> None:
        """What a pass over shuffled validation or test samples draws."""
        self.order(1)


def tensors(split: Split, device: torch.device) -> tuple[Tensor, Tensor]:
    """Inputs in single precision, flat, and labels as targets of the loss."""
    x = torch.as_tensor(split.inputs, dtype=torch.float32, device=device)
    return x.flatten(1), torch.as_tensor(split.labels, dtype=torch.float32, device=device).unsqueeze(1)


def boxes(x: Tensor, run: Published) -> Tensor:
    """Inputs that may have moved by epsilon, within the range of the data."""
    if run.clip is None:
        return bf.ball(x, run.epsilon)
    return bf.interval((x - run.epsilon).clamp(*run.clip), (x + run.epsilon).clamp(*run.clip))


def bounds(model: nn.Module, x: Tensor, run: Published) -> tuple[Tensor, Tensor]:
    """The outputs of every model on inputs moved anywhere, by intervals."""
    with torch.no_grad():
        try:
            logits = model(boxes(x, run))
            return logits.lower, logits.upper
        except bf.VoidBounds:
            unknown = torch.full((len(x), 1), torch.inf, device=x.device)
            return -unknown, unknown


def right(lower: Tensor, upper: Tensor, y: Tensor) -> float:
    """The share of samples whose bounds are on the side of their label."""
    return torch.where(y > 0.5, lower > 0, upper < 0).double().mean().item()


def stepped(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor) -> None:
    """One step, on plain tensors or on sets."""
    optimizer.zero_grad()
    loss = F.binary_cross_entropy_with_logits(model(inputs), targets) / len(inputs)  # the second division
    loss.backward()
    optimizer.step()


class Sets:
    """A network whose parameters are sets, in one of the two domains, and the same network in plain PyTorch."""

    def __init__(self, model: nn.Sequential, run: Published):
        self.run, self.plain, self.model = run, model, copy.deepcopy(model)
        self.threat = bf.threats.Linf(run.epsilon, clip=run.clip)
        self.symbols: bf.Symbols | None = None
        if run.domain == "zonotope":
            self.symbols = bf.Symbols(self.threat, order=ORDER)
        bf.lift(self.model, self.symbols)
        self.optimizers = [torch.optim.SGD(one.parameters(), lr=run.lr) for one in (self.plain, self.model)]
        if self.symbols is not None:
            self.symbols.attach(self.optimizers[1])

    def step(self, x: Tensor, y: Tensor, index: Tensor) -> None:
        """A step of both, on the samples as observed and on all that the attacker could have left behind."""
        x, y = x[index], y[index]
        stepped(self.plain, self.optimizers[0], x, y)
        stepped(self.model, self.optimizers[1], *self.lifted(x, y, index))

    def lifted(self, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        if self.symbols is not None:
            inputs, targets = self.symbols.lift(x, y, index)
            return inputs, targets
        return boxes(x, self.run), y

    def bounds(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs of every model on inputs moved anywhere."""
        if self.symbols is None:
            return bounds(self.model, x, self.run)
        found = bf.Certificate(self.model, self.plain).predict(x, threat=self.threat)
        return found.lower, found.upper

    def certified(self, x: Tensor, y: Tensor) -> float:
        """The share of samples that every model answers right wherever they were moved."""
        return right(*self.bounds(x), y)

    def nominal(self, x: Tensor, y: Tensor) -> float:
        with torch.no_grad():
            return ((self.plain(x) > 0) == (y > 0.5)).double().mean().item()

    def epochs(self, x: Tensor, y: Tensor, source: Source) -> Iterator[int]:
        """Train epoch by epoch; a set that becomes void ends it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bf.WideBounds)
            for epoch in range(1, self.run.epochs + 1):
                try:
                    for index in source.order(len(x)).to(x.device).split(self.run.batch_size):
                        self.step(x, y, index)
                except bf.VoidBounds:
                    return
                bf.check(self.plain, self.model)
                yield epoch


def train(
    data: Dataset,
    run: Published,
    source: Source,
    device: torch.device,
    at_best: Callable[[Sets], None] = lambda sets: None,
) -> Reached:
    """Certified training from drawn weights until validation falls, and its best epoch."""
    training, validation, test = (tensors(split, device) for split in (data.train, data.validation, data.test))
    model = source.network(training[0].shape[1], run.hidden)
    sets, reached = Sets(model.to(device).eval(), run), Reached()
    for epoch in sets.epochs(*training, source):
        source.looked()
        now = sets.certified(*validation)
        reached.curve.append(round(now, 4))
        if now > reached.validation:
            source.copied(model)
            reached.validation, reached.epoch = now, epoch
            reached.certified, reached.nominal = sets.certified(*test), sets.nominal(*test)
            at_best(sets)
        if now < reached.validation - DROP:
            break
    return reached
