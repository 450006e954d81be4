"""Networks that draw random numbers.

Noise is a part of the recipe: each step is seeded, so every plain run draws the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .table import IN_PIECES, certified, variant


class Between(nn.Module):
    """Two layers with a function of the hidden activation and the module in between."""

    def __init__(self, function: Callable[[Tensor, nn.Module], Tensor], hidden: int = 6):
        super().__init__()
        self.function = function
        self.inner, self.head = nn.Linear(4, hidden), nn.Linear(hidden, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.function(torch.tanh(self.inner(x)), self))


@variant("noise, in pieces", "Noise is drawn for a whole batch, which must not come in pieces.", "either", **IN_PIECES)
@certified()
def noise() -> nn.Module:
    """Normal noise of the shape of the activation is added in training."""
    return Between(lambda h, net: h + 0.3 * torch.randn(h.shape, dtype=h.dtype) if net.training else h)


@certified("either")
def noise_like_the_activation() -> nn.Module:
    """`torch.rand_like` and `torch.randn_like` are asked for noise like a set."""
    return Between(lambda h, net: h + torch.randn_like(h) * torch.rand_like(h) if net.training else h)


@certified("either")
def noise_of_numpy() -> nn.Module:
    """Noise comes from the global generator of numpy, which certify might not seed."""
    return Between(lambda h, net: h + torch.from_numpy(np.random.normal(size=tuple(h.shape))) if net.training else h)


@certified("either")
def noise_of_python() -> nn.Module:
    """A layer is skipped if `random.random()` says so."""
    return Between(lambda h, net: h * 0.3 if net.training and random.random() < 0.5 else h)


@certified("either")
def noise_in_evaluation() -> nn.Module:
    """Dropout stays on in evaluation mode, so that answers are random."""
    return Between(lambda h, net: F.dropout(h, 0.5, True))


@certified("either")
def noise_in_the_backward_pass() -> nn.Module:
    """A gradient hook adds noise, after the forward pass has ended."""

    def noisy(h: Tensor, net: nn.Module) -> Tensor:
        if h.requires_grad:
            h.register_hook(lambda gradient: gradient * torch.rand(gradient.shape, dtype=gradient.dtype))
        return h

    return Between(noisy)


@certified("raises")
def seeds_itself() -> nn.Module:
    """The forward pass sets the seed, so that every step draws the same noise."""

    def seeded(h: Tensor, net: nn.Module) -> Tensor:
        torch.manual_seed(5)
        return F.dropout(h, 0.5, net.training)

    return Between(seeded)


@certified()
def stochastic_depth() -> nn.Module:
    """A plain random number decides whether a branch is taken."""
    return Between(lambda h, net: h + h.square() if not net.training or torch.rand(()).item() < 0.5 else h)


@certified()
def shuffled_features() -> nn.Module:
    """Hidden features are permuted at random in every step."""
    return Between(lambda h, net: h[:, torch.randperm(h.shape[1])] if net.training else h)


@certified("either")
def as_much_noise_as_data() -> nn.Module:
    """How many random numbers are drawn depends on the data, so that later masks do as well."""

    def noisy(h: Tensor, net: nn.Module) -> Tensor:
        torch.rand(int((h > 0.1).sum()))
        return F.dropout(h, 0.5, net.training)

    return Between(noisy)


@certified("either")
def gumbel_softmax() -> nn.Module:
    """A relaxed choice at random, whose noise is like the logits."""
    return Between(lambda h, net: F.gumbel_softmax(h, tau=1.0) if net.training else h.softmax(1))


@certified("either")
def random_leaky_relu() -> nn.Module:
    """Every element has a slope at random."""
    return Between(lambda h, net: F.rrelu(h - 0.1, training=net.training))
