"""Many small models trained at once, each on samples of its own: one call of torch.func for all of them.

Every member starts from the parameters of the model given and makes full-batch steps of gradient descent on its own
samples,  theta <- theta - lr grad( sum_i w_i loss_i / sum_i w_i ),  the weights w being 0 where a row only fills up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

Parameters = dict[str, Tensor]


@dataclass(frozen=True)
class Learner:
    """A deterministic training algorithm: a network with its initial weights, and steps of gradient descent."""

    network: nn.Module
    steps: int
    lr: float

    def fit(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Parameters:
        """The parameters of all members, stacked, from samples (M, B, ...), classes (M, B) and weights (M, B)."""
        if weights is None:
            weights = torch.ones_like(y, dtype=x.dtype)

        def loss(parameters: Parameters, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
            each = nn.functional.cross_entropy(functional_call(self.network, parameters, (x,)), y, reduction="none")
            return (each * weights).sum() / weights.sum().clamp_min(1.0)

        step: Callable[..., Parameters] = vmap(grad(loss))
        parameters = {
            name: value.detach().to(x).expand(len(x), *value.shape) for name, value in self.network.named_parameters()
        }
        for _ in range(self.steps):
            gradients = step(parameters, x, y, weights)
            parameters = {name: value - self.lr * gradients[name] for name, value in parameters.items()}
        return parameters

    def answers(self, parameters: Parameters, x: Tensor) -> Tensor:
        """The class that every member gives every input (M, N)."""

        def label(parameters: Parameters) -> Tensor:
            return functional_call(self.network, parameters, (x,)).argmax(1)

        return vmap(label)(parameters)


def counted(answers: Tensor, classes: int) -> Tensor:
    """How many members answer each class: (N, classes)."""
    return torch.stack([(answers == each).sum(0) for each in range(classes)], dim=1)
