"""Networks that write in place, give a tensor two names, or look at how a tensor lies in memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .networks_with_noise import Between
from .networks_with_state import Net
from .table import IN_PIECES, certified, variant


@variant("writes into its inputs, in pieces", "Pieces and trials must get inputs of their own.", **IN_PIECES)
@certified()
def writes_into_its_inputs() -> nn.Module:
    """The forward pass scales its argument in place, in evaluation too."""

    class Writes(Net):
        def forward(self, x: Tensor) -> Tensor:
            x.mul_(1.5)
            x[:, 0] = 0.5
            return super().forward(x)

    return Writes()


@certified()
def in_place_arithmetic() -> nn.Module:
    """Activations are changed by operators in place."""

    def changed(h: Tensor, net: nn.Module) -> Tensor:
        h = h * 2
        h += 1
        h.mul_(0.5).sub_(h.detach() * 0.1)
        return h

    return Between(changed)


@certified("either")
def a_view_is_written_to() -> nn.Module:
    """A column is doubled through a view, and the whole tensor is used after it."""

    def changed(h: Tensor, net: nn.Module) -> Tensor:
        h = h * 1
        h[:, 0].mul_(2)
        h[:, 1:3] += 0.5
        return h

    return Between(changed)


@certified("either")
def two_names() -> nn.Module:
    """`detach()` gives a second name, and what is written under it is read under the first."""

    def changed(h: Tensor, net: nn.Module) -> Tensor:
        h = h * 1
        h.detach().add_(0.5)
        return h

    return Between(changed)


@certified("either")
def written_through_data() -> nn.Module:
    """`.data` writes without anybody noticing."""

    def changed(h: Tensor, net: nn.Module) -> Tensor:
        h = h * 1
        h.data.add_(0.5)
        return h

    return Between(changed)


@certified("either")
def filled_column_by_column() -> nn.Module:
    """Results are written into a plain tensor that was made empty."""

    def filled(h: Tensor, net: nn.Module) -> Tensor:
        out = torch.zeros(h.shape, dtype=h.dtype)
        for column in range(h.shape[1]):
            out[:, column] = h[:, column] * column
        return out

    return Between(filled)


@certified("either")
def filled_like_a_set() -> nn.Module:
    """Results are written into a tensor of zeros like the activation."""

    def filled(h: Tensor, net: nn.Module) -> Tensor:
        out = torch.zeros_like(h)
        for column in range(h.shape[1]):
            out[:, column] = h[:, column] * column
        return out

    return Between(filled)


@certified("either")
def given_as_out() -> nn.Module:
    """A result is written to a buffer of the network with `out=`."""

    class Out(Net):
        def between(self, h: Tensor) -> Tensor:
            kept = torch.empty(h.shape, dtype=h.dtype)
            with torch.no_grad():
                torch.mul(h, 0.5, out=kept)
            return h + kept

    return Out()


@certified("either")
def by_the_layout_in_memory() -> nn.Module:
    """What is computed depends on whether a tensor is contiguous."""

    def looked(h: Tensor, net: nn.Module) -> Tensor:
        turned = h.T
        return (turned * 2 if turned.is_contiguous() else turned * 0.5).T

    return Between(looked)


@certified("either", batch_size=None, epochs=3)
def by_the_address_in_memory() -> nn.Module:
    """A result is kept for as long as the same address comes back."""

    class Remembers(Net):
        kept: tuple[int, Tensor] | None = None

        def between(self, h: Tensor) -> Tensor:
            if self.kept is None or self.kept[0] != h.data_ptr():
                self.kept = (h.data_ptr(), h.detach())  # held, so that the address is not given out again
                return h
            return self.kept[1] * 0.5

    return Remembers()


@certified("either")
def by_the_kind_of_tensor() -> nn.Module:
    """What is computed depends on whether the input is an ordinary tensor."""
    return Between(lambda h, net: h if type(h) is Tensor else 0.5 * h)
