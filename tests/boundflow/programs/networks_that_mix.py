"""Networks in which the samples of a batch meet: means, normalisation, softmax, sorting, neighbours, gradients.

Such a batch cannot come in pieces and such inputs cannot be answered for apart, however little they mix: whatever is
found out by trying has to hold at every scale, for every size of a batch, and for backward passes too.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .networks_that_count import Counting
from .networks_with_noise import Between
from .recipe import Attack
from .table import IN_PIECES, certified, variant

ONE_BY_ONE = {"answering": {"chunk": 1}}


@variant("centered batch, in pieces", "The mean is taken over the whole batch, not over pieces.", "either", **IN_PIECES)
@variant("centered batch, asked one by one", "Inputs meet, and are asked for in chunks of one.", "either", **ONE_BY_ONE)
@variant("centered batch, flipped labels", "Samples meet, and labels are wrong.", attack=Attack(0.0, flips=2))
@variant(
    "centered batch, removed samples", "A removed sample still meets the others.", attack=Attack(0.005, removals=1)
)
@certified()
def centered_batch() -> nn.Module:
    """The mean over the batch is subtracted, in evaluation too."""
    return Between(lambda h, net: h - h.mean(0))


@certified("either", dtype=torch.float32, domains=("zonotope",), options={"lr": 1e3}, **IN_PIECES)
def faint_mixing_in_pieces() -> nn.Module:
    """Samples meet at a scale of 1e-4 in float32, which a coarse comparison takes for rounding."""

    class Faint(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(1e-4 * (x - x.mean(0)))

    return Faint(4, 2, bias=False)


@certified("either", dtype=torch.float32, domains=("zonotope",), options={"lr": 0.002}, **ONE_BY_ONE)
def mixing_below_large_outputs() -> nn.Module:
    """Outputs are near 1e5 in float32, so that inputs that move each other by 1 look like rounding."""

    class Large(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 10 * super().forward(x - x.mean(0)) + 1e5

    return Large(4, 2)


@certified("either", domains=("zonotope",), samples=24, batch_size=12, answering={"chunk": 8})
def mixing_in_large_batches() -> nn.Module:
    """Inputs meet only where a batch has more than twenty of them."""
    return Between(lambda h, net: h - 3 * h.mean(0) if len(h) > 20 else h)


@certified("either", domains=("zonotope",), samples=70, shape=(2,), epochs=2, **IN_PIECES)
def mixing_beyond_64_samples() -> nn.Module:
    """Samples meet only where a batch has more than 64 of them."""

    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x - 3 * x.mean(0) if len(x) > 64 else x)

    return Large()


@certified("either", domains=("zonotope",), samples=4, epochs=5, steps=5, **IN_PIECES)
def mixing_that_starts_late() -> nn.Module:
    """Samples meet from the fourth call on, which a trial of three calls does not see."""

    class Late(Counting):
        def between(self, h: Tensor) -> Tensor:
            self.calls += self.training
            return h - 2 * h.mean(0) if self.training and self.calls > 3 else h

    return Late()


@variant("counted batch, in pieces", "The size of a batch is not that of a piece.", "either", **IN_PIECES)
@certified()
def counted_batch() -> nn.Module:
    """The activation is divided by the number of samples."""
    return Between(lambda h, net: h * 6 / len(h))


@variant("neighbours, in pieces", "The first sample of a piece has another neighbour.", "either", **IN_PIECES)
@certified()
def neighbours() -> nn.Module:
    """Every sample gets a part of the sample before it."""
    return Between(lambda h, net: h + 0.5 * h.roll(1, 0))


@variant("softmax over the batch, in pieces", "The softmax of a piece is another one.", "either", **IN_PIECES)
@certified()
def softmax_over_the_batch() -> nn.Module:
    """Samples compete for weight."""
    return Between(lambda h, net: 6 * torch.softmax(h, 0) + h)


@certified("either")
def sorted_batch() -> nn.Module:
    """Every feature is sorted over the batch, and ties may break either way."""
    return Between(lambda h, net: h + torch.sort(h, 0).values)


@certified("either")
def median_of_the_batch() -> nn.Module:
    """The median over the batch is subtracted."""
    return Between(lambda h, net: h - h.median(0).values)


@certified("either")
def best_of_the_batch() -> nn.Module:
    """The three samples with the largest sums are averaged."""
    return Between(lambda h, net: h + h[torch.topk(h.sum(1), min(3, len(h))).indices].mean(0))


@certified(domains=("zonotope",))
def needs_three_samples() -> nn.Module:
    """A difference of second order over the batch: a trial with one sample fails."""

    def differences(h: Tensor, net: nn.Module) -> Tensor:
        if len(h) < 3:
            raise IndexError("three samples at least")
        return h + (h[2:] - 2 * h[1:-1] + h[:-2]).square().mean(0)

    return Between(differences)


@certified(domains=("zonotope",))
def attention_over_the_batch() -> nn.Module:
    """Samples attend to samples."""
    return Between(lambda h, net: torch.softmax(h @ h.T, 1) @ h)


@certified()
def cumulated_batch() -> nn.Module:
    """Every sample gets the sum of all before it."""
    return Between(lambda h, net: h + 0.1 * h.cumsum(0))


@certified()
def normalised_by_hand() -> nn.Module:
    """Normalisation over the batch is written out, with its variance."""

    def normalised(h: Tensor, net: nn.Module) -> Tensor:
        centered = h - h.mean(0)
        return centered / (centered.square().mean(0) + 0.5).sqrt()

    return Between(normalised)


@certified("either")
def batch_normalisation() -> nn.Module:
    """BatchNorm in training mode, with running statistics in evaluation."""
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 2))


@certified()
def fixed_batch_normalisation() -> nn.Module:
    """BatchNorm that was put in evaluation mode stays there while the rest is trained."""
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 2))
    with torch.no_grad():
        model[1].running_mean.copy_(torch.tensor([0.1, -0.2, 0.3]))
    model[1].eval()
    return model


# --- gradients --------------------------------------------------------------------------------------------------------


@variant("normalised gradients, in pieces", "Gradients meet, and forward passes do not.", "either", **IN_PIECES)
@certified("either")
def normalised_gradients() -> nn.Module:
    """A hook on an activation divides its gradient by the mean over the batch."""

    def hooked(h: Tensor, net: nn.Module) -> Tensor:
        if h.requires_grad:
            h.register_hook(lambda gradient: gradient / (0.01 + gradient.abs().mean(0)))
        return h

    return Between(hooked)


class Centered(torch.autograd.Function):
    """The identity, whose gradient is centered over the batch."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return gradient - gradient.mean(0)


@variant("centered gradients, in pieces", "A function of one's own lets gradients meet.", "either", **IN_PIECES)
@certified()
def centered_gradients() -> nn.Module:
    """The backward pass of a function of one's own takes a mean over the batch."""
    return Between(lambda h, net: Centered.apply(h))


@variant("module hook, in pieces", "A backward hook lets gradients meet.", "either", **IN_PIECES)
@certified("either")
def gradients_meet_in_a_module_hook() -> nn.Module:
    """A full backward hook of a module centers the gradient of its input over the batch."""
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    model[2].register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] - inputs[0].mean(0),))
    return model


@certified("either", loss="bce", **IN_PIECES, domains=("zonotope",))
def mixed_by_the_mean_of_outputs() -> nn.Module:
    """Outputs are compared with their mean over the batch, after the last layer."""

    class Compared(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            outputs = super().forward(x)
            return outputs - outputs.mean(0)

    return Compared(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))


@certified("either", domains=("zonotope",), attack=Attack(0.005), **IN_PIECES)
def contrast_with_the_first() -> nn.Module:
    """Every sample is compared with the first of its batch."""
    return Between(lambda h, net: F.normalize(h + 1, dim=1) - h[:1])
