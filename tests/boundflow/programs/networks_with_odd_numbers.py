"""Networks that bring their own gradients, stop them, or compute with other numbers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .networks_with_noise import Between
from .networks_with_state import Net
from .table import certified

# --- gradients of one's own -------------------------------------------------------------------------------------------


@certified("either")
def straight_through_rounding() -> nn.Module:
    """The forward pass rounds, and the backward pass takes no notice."""
    return Between(lambda h, net: h + ((4 * h).round() / 4 - h).detach())


@certified("either")
def straight_through_sign() -> nn.Module:
    """Activations become signs, and gradients pass as if they had not."""
    return Between(lambda h, net: h + (h.sign() - h).detach())


@certified()
def stopped_gradients() -> nn.Module:
    """One branch is computed without gradients, another detached, a third from a detached copy."""

    def stopped(h: Tensor, net: nn.Module) -> Tensor:
        with torch.no_grad():
            target = torch.tanh(2 * h)
        return h * target + h.detach().clone().square()

    return Between(stopped)


class Reversed(torch.autograd.Function):
    """The identity, whose gradient changes its sign."""

    @staticmethod
    def forward(ctx: object, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> tuple[Tensor, None]:
        return -ctx.factor * gradient, None


class Cubed(torch.autograd.Function):
    """A cube that keeps its input for the backward pass, which is not its derivative."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient * x.abs()


@certified()
def functions_of_ones_own() -> nn.Module:
    """Functions with backward passes of their own: reversed gradients, and one that is no derivative."""
    return Between(lambda h, net: Reversed.apply(h, 0.5) + Cubed.apply(h))


# --- numbers ----------------------------------------------------------------------------------------------------------


@certified(dtype=torch.float32)
def double_inside() -> nn.Module:
    """A part of a float32 network is computed in float64."""
    return Between(lambda h, net: (h.double().cumsum(1) / 3).float())


@certified("either", dtype=torch.float32)
def doubles_that_stay() -> nn.Module:
    """A float32 activation meets a float64 constant, and the sum is float64."""
    return Between(lambda h, net: (h + torch.full((6,), 0.1, dtype=torch.float64)).to(h.dtype))


@certified("either", dtype=torch.float32)
def mixed_precision() -> nn.Module:
    """`autocast` computes linear layers in bfloat16."""

    class Autocast(Net):
        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return super().forward(x).float()

    return Autocast()


@certified("either", dtype=torch.float32)
def half_precision_inside() -> nn.Module:
    """An activation is rounded to float16 and back."""
    return Between(lambda h, net: h.half().float())


@certified("either")
def complex_numbers() -> nn.Module:
    """Pairs of features are complex numbers that are rotated."""

    def rotated(h: Tensor, net: nn.Module) -> Tensor:
        pairs = torch.view_as_complex(h.view(-1, 3, 2).contiguous())
        return torch.view_as_real(pairs * torch.exp(torch.tensor(0.3j))).flatten(1)

    return Between(rotated)


@certified("either")
def a_fourier_transform() -> nn.Module:
    """Moduli of frequencies."""
    return Between(lambda h, net: torch.cat((torch.fft.rfft(h).abs(), h[:, :2]), 1))
