"""Networks that count their calls, draw from generators of their own, or do something when they change their mode.

None of this is about data, so plain runs all do the same; but a copy that is called once more than plain training would
call it does something else.
"""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import Tensor, nn

from . import ways
from .networks_with_state import Net
from .table import IN_PIECES, certified, variant


class Counting(Net):
    """The activation grows with the number of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def between(self, h: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        return h * (1 + 0.2 * self.calls)


@variant("counter, saved", "The number of calls is an attribute, which no file holds.", "either", through=ways.reloaded)
@variant(
    "counter, resumed", "The number of calls must go on where the run was interrupted.", "either", through=ways.resumed
)
@variant("counter, in pieces", "Every piece of a batch would count as a call.", "either", **IN_PIECES)
@variant("counter, watched", "Answers asked for after every step must not count.", through=ways.watched)
@certified()
def counter() -> nn.Module:
    """An attribute counts the calls in training, and scales an activation."""
    return Counting()


@variant(
    "buffer counter, resumed", "A buffer counts the calls, and the run is interrupted.", "either", through=ways.resumed
)
@variant(
    "buffer counter, saved",
    "A buffer counts the calls, and the certificate is written and read.",
    through=ways.reloaded,
)
@variant("buffer counter, in pieces", "A buffer counts pieces instead of batches.", "either", **IN_PIECES)
@certified()
def buffer_counter() -> nn.Module:
    """A buffer of whole numbers counts the calls in training, in place."""

    class Buffered(Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))

        def between(self, h: Tensor) -> Tensor:
            if self.training:
                self.calls += 1
            return h * (1 + 0.2 * int(self.calls))

    return Buffered()


@variant("counts in evaluation, in parts", "Inputs cut in halves take more calls.", "either", answering={"cuts": 2})
@variant("counts in evaluation, in chunks", "Chunks of inputs take more calls.", "either", answering={"chunk": 4})
@certified("either", evaluations=2)
def counts_in_evaluation() -> nn.Module:
    """Every call counts, in evaluation mode too, so that the second answer differs from the first."""

    class Always(Counting):
        def between(self, h: Tensor) -> Tensor:
            self.calls += 1
            return h * (1 + 0.2 * self.calls)

    return Always()


@certified("either")
def counter_of_the_class() -> nn.Module:
    """The number of calls belongs to the class, so that copies of the network share it."""

    class Shared(Net):
        calls = 0

        def between(self, h: Tensor) -> Tensor:
            if self.training:
                type(self).calls += 1
            return h * (1 + 0.2 * type(self).calls)

    return Shared()


@certified("either")
def counter_in_a_closure() -> nn.Module:
    """A forward hook counts calls in a list that copies of the network share."""
    model, calls = Net(), []

    def grow(module: nn.Module, args: object, output: Tensor) -> Tensor:
        if module.training:
            calls.append(1)
        return output * (1 + 0.2 * len(calls))

    model.inner.register_forward_hook(grow)
    return model


@variant(
    "own generator, in pieces", "An own generator of random numbers is asked for every piece.", "either", **IN_PIECES
)
@certified()
def own_numpy_generator() -> nn.Module:
    """Noise comes from a generator of numpy that the network owns and that goes on from call to call."""

    class Owns(Net):
        def __init__(self) -> None:
            super().__init__()
            self.random = np.random.default_rng(0)

        def between(self, h: Tensor) -> Tensor:
            if not self.training:
                return h
            return h + torch.from_numpy(self.random.normal(size=tuple(h.shape))).to(h.dtype)

    return Owns()


@certified()
def own_python_generator() -> nn.Module:
    """Whether a layer is skipped is decided by a `random.Random` that the network owns."""

    class Owns(Net):
        def __init__(self) -> None:
            super().__init__()
            self.random = random.Random(0)

        def between(self, h: Tensor) -> Tensor:
            return h * 0.5 if self.training and self.random.random() < 0.5 else h

    return Owns()


@certified("either")
def own_torch_generator() -> nn.Module:
    """Noise comes from a `torch.Generator` that the network owns."""

    class Owns(Net):
        def __init__(self) -> None:
            super().__init__()
            self.random = torch.Generator().manual_seed(0)

        def between(self, h: Tensor) -> Tensor:
            if not self.training:
                return h
            return h + 0.3 * torch.randn(h.shape, generator=self.random, dtype=h.dtype)

    return Owns()


@certified("either")
def a_closure_that_holds_a_layer() -> nn.Module:
    """A hook reads the weights of another layer through a closure, which in a copy still means the original."""
    model = Net()
    model.inner.register_forward_hook(lambda module, args, output: output + model.head.weight.detach().sum(0))
    return model


@certified("either")
def shared_by_copies() -> nn.Module:
    """A layer refuses to be copied, so that copies of the network share its parameters."""

    class Single(nn.Linear):
        def __deepcopy__(self, memo: object) -> Single:
            return self

    return nn.Sequential(Single(4, 3), nn.Tanh(), nn.Linear(3, 2))


@certified("either", through=ways.watched)
def merges_in_evaluation() -> nn.Module:
    """Evaluation mode adds a low-rank matrix to the weights, and training mode takes it away again."""

    class Adapter(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 3)
            self.down, self.up = nn.Parameter(torch.randn(1, 4)), nn.Parameter(torch.randn(3, 1))
            self.weight.requires_grad_(False)
            self.merged = False

        def train(self, mode: bool = True) -> Adapter:
            if mode == self.merged:
                with torch.no_grad():
                    self.weight.add_(self.up @ self.down, alpha=-1 if mode else 1)
                self.merged = not mode
            return super().train(mode)

        def forward(self, x: Tensor) -> Tensor:
            h = super().forward(x)
            return h if self.merged else h + x @ self.down.T @ self.up.T

    return nn.Sequential(Adapter(), nn.Tanh(), nn.Linear(3, 2))


@certified("either")
def counts_evaluation_mode() -> nn.Module:
    """Every call of eval() halves an output, so that it matters how often it is called."""

    class Halves(Net):
        factor = 1.0

        def train(self, mode: bool = True) -> Halves:
            self.factor = 1.0 if mode else self.factor / 2
            return super().train(mode)

        def between(self, h: Tensor) -> Tensor:
            return h * self.factor

    return Halves()


@certified("either", through=ways.left_in_evaluation)
def left_in_evaluation() -> nn.Module:
    """A callback puts the bounded model in evaluation mode and forgets about it, and there is dropout."""
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 2))
