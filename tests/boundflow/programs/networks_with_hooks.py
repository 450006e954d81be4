"""Networks with hooks on parameters, activations and modules, and one that follows itself."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from .networks_with_noise import Between
from .networks_with_odd_weights import layers
from .networks_with_state import Net
from .table import certified


@certified("either")
def gradient_hook_of_a_parameter() -> nn.Module:
    """A hook doubles the gradient of a parameter; copies of a parameter have no hooks."""
    model = layers()
    model[0].weight.register_hook(lambda gradient: 2 * gradient)
    return model


@certified("either")
def hook_after_accumulation() -> nn.Module:
    """A hook on a parameter halves its gradient once it has been accumulated."""

    def halve(parameter: Tensor) -> None:
        parameter.grad = parameter.grad / 2

    model = layers()
    model[0].weight.register_post_accumulate_grad_hook(halve)
    return model


@certified()
def hooks_of_modules() -> nn.Module:
    """Hooks change what goes into a module and what comes out of it."""
    model = layers()
    model[2].register_forward_pre_hook(lambda module, args: (args[0] * 0.5,))
    model[2].register_forward_hook(lambda module, args, output: output + 0.1 * args[0])
    return model


@certified("either")
def backward_hook_of_a_module() -> nn.Module:
    """A full backward hook and a pre-hook scale gradients."""
    model = layers()
    model[2].register_full_backward_hook(lambda module, inputs, outputs: tuple(3 * part for part in inputs))
    model[2].register_full_backward_pre_hook(lambda module, outputs: tuple(part / 2 for part in outputs))
    return model


@certified()
def gradient_hook_of_an_activation() -> nn.Module:
    """Gradients of an activation are clamped."""

    def hooked(h: Tensor, net: nn.Module) -> Tensor:
        if h.requires_grad:
            h.register_hook(lambda gradient: gradient.clamp(-0.05, 0.05))
        return h

    return Between(hooked)


@certified()
def a_teacher_in_the_network() -> nn.Module:
    """A frozen copy of a layer follows the trained one in every forward pass."""

    class Follows(Net):
        def __init__(self) -> None:
            super().__init__()
            self.teacher = copy.deepcopy(self.inner).requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                with torch.no_grad():
                    for slow, fast in zip(self.teacher.parameters(), self.inner.parameters(), strict=True):
                        slow.mul_(0.5).add_(fast, alpha=0.5)
            return super().forward(x) + self.head(torch.tanh(self.teacher(x)))

    return Follows()
