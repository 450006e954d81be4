"""Networks that remember data: running statistics, caches, initialisation by the first batch.

Plain training calls a network once in every step. Whatever else is called (trials, pieces, copies) must leave no trace.
"""

from __future__ import annotations

import collections

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from . import ways
from .recipe import Attack
from .table import IN_PIECES, certified, variant


class Net(nn.Module):
    """Two layers, with something in between that subclasses put there."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.between(torch.tanh(self.inner(x))))

    def between(self, h: Tensor) -> Tensor:
        return h


class RunningMean(Net):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def between(self, h: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.7 * self.mean + 0.3 * h.detach().mean(0)
            return h
        return h - 5 * self.mean


@variant("running mean, copied", "A certificate of a network with a running mean is deep-copied.", through=ways.copied)
@variant(
    "running mean, pickled",
    "A certificate of a network with a running mean is pickled.",
    "either",
    through=ways.pickled,
)
@variant(
    "running mean, saved",
    "A certificate with a buffer that became a set is written and read.",
    through=ways.reloaded,
)
@variant("running mean, resumed", "Interrupted and resumed while a buffer is a set.", "either", through=ways.resumed)
@variant(
    "running mean, watched",
    "Answers are asked for after every step of a network with a running mean.",
    through=ways.watched,
)
@variant("running mean, in pieces", "Batches in pieces would update the mean for every piece.", "either", **IN_PIECES)
@certified()
def running_mean() -> nn.Module:
    """A mean over batches is kept in training, and evaluation subtracts it."""
    return RunningMean()


@certified("either")
def running_mean_in_place() -> nn.Module:
    """The running mean is a plain buffer that is written to in place."""

    class InPlace(RunningMean):
        def between(self, h: Tensor) -> Tensor:
            if self.training:
                self.mean.mul_(0.7).add_(0.3 * h.detach().mean(0))
                return h
            return h - 5 * self.mean

    return InPlace()


@certified("either", evaluations=2)
def adapts_in_evaluation() -> nn.Module:
    """The running mean goes on running in evaluation mode, as adaptation at test time does."""

    class Adapts(RunningMean):
        def between(self, h: Tensor) -> Tensor:
            self.mean = 0.7 * self.mean + 0.3 * h.detach().mean(0)
            return h - self.mean

    return Adapts()


class ActNorm(Net):
    """Shift and scale are set by the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.started = False
        self.shift, self.scale = torch.zeros(()), torch.ones(())

    def between(self, h: Tensor) -> Tensor:
        if self.training and not self.started:
            self.shift, self.started = h.detach().mean(0), True
            self.scale = 1 / (h.detach() - self.shift).abs().mean(0).clamp_min(0.1)
        return (h - self.shift) * self.scale


@variant(
    "actnorm, saved", "What the first batch set are attributes, which no file holds.", "either", through=ways.reloaded
)
@variant(
    "actnorm, resumed", "A resumed run must not take its first batch for the first.", "either", through=ways.resumed
)
@variant("actnorm, in pieces", "The first batch comes in pieces.", "either", **IN_PIECES)
@variant(
    "actnorm, removed samples",
    "The first batch sets the scale, and samples may be removed.",
    attack=Attack(0.0, removals=2),
)
@certified()
def actnorm() -> nn.Module:
    """Shift and scale are what normalises the first batch, kept as attributes."""
    return ActNorm()


@variant("last batch, in pieces", "The last piece is not the last batch.", "either", **IN_PIECES, epochs=4)
@certified()
def last_batch() -> nn.Module:
    """The mean of the batch before is kept, and added to the next one."""

    class Remembers(Net):
        last: Tensor | None = None

        def between(self, h: Tensor) -> Tensor:
            before = self.last
            if self.training:
                self.last = h.detach().mean(0)
            return h if before is None else h + before

    return Remembers()


@certified()
def queue_of_batches() -> nn.Module:
    """A queue holds the outputs of two batches, as contrastive losses keep them."""

    class Queue(Net):
        def __init__(self) -> None:
            super().__init__()
            self.seen: collections.deque[Tensor] = collections.deque(maxlen=2)

        def between(self, h: Tensor) -> Tensor:
            similar = sum((h @ keys.T).mean(1, keepdim=True) for keys in self.seen)
            if self.training:
                self.seen.append(h.detach())
            return h + 0.3 * similar

    return Queue()


@variant("learns in forward, in pieces", "The forward pass changes a parameter for every piece.", "either", **IN_PIECES)
@certified()
def learns_in_forward() -> nn.Module:
    """A parameter is changed in the forward pass, as Hebbian rules do."""

    class Hebbian(Net):
        def __init__(self) -> None:
            super().__init__()
            self.trace = nn.Parameter(torch.zeros(3), requires_grad=False)

        def between(self, h: Tensor) -> Tensor:
            if self.training:
                with torch.no_grad():
                    self.trace.mul_(0.5).add_(0.5 * h.mean(0))
            return h - self.trace.detach().clone()

    return Hebbian()


@certified("either")
def spectral_normalisation() -> nn.Module:
    """Every call makes a step of a power iteration, and writes it into buffers."""
    return nn.Sequential(spectral_norm(nn.Linear(4, 3)), nn.Tanh(), nn.Linear(3, 2))
