"""Networks with dropout of all kinds, also of tensors that do not lie in memory as they are read.

A mask is filled in the order in which the operand lies in memory, which a transposed, permuted or sliced operand shows.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import ways
from .networks_with_noise import Between
from .networks_with_state import Net
from .table import IN_PIECES, certified, variant


@variant("dropout, in pieces", "One mask is drawn for a batch, which must not come in pieces.", "either", **IN_PIECES)
@variant(
    "dropout, resumed", "Masks follow from the number of the step, also after an interruption.", through=ways.resumed
)
@variant("dropout, within another training", "A callback trains another network.", through=ways.with_another_inside)
@variant("dropout, last batch smaller", "The last batch has fewer samples.", batch_size=5)
@certified()
def dropout() -> nn.Module:
    """The mask is a part of the recipe."""
    return Between(lambda h, net: F.dropout(h, 0.5, net.training))


@certified()
def dropout_of_a_transposed_tensor() -> nn.Module:
    """The mask of a transposed operand is filled column by column."""
    return Between(lambda h, net: F.dropout(h.T, 0.5, net.training).T)


@certified(turned=True)
def dropout_of_turned_inputs() -> nn.Module:
    """The data lie column by column in memory, and inputs are dropped."""
    return nn.Sequential(nn.Dropout(0.4), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


@certified()
def dropout_of_a_permuted_tensor() -> nn.Module:
    """Heads are moved in front of samples, and dropout follows, as attention does it."""

    def dropped(h: Tensor, net: nn.Module) -> Tensor:
        heads = h.view(-1, 3, 2).permute(1, 0, 2)
        return F.dropout(heads, 0.5, net.training).permute(1, 0, 2).reshape(-1, 6)

    return Between(dropped)


@certified()
def dropout_of_a_sliced_tensor() -> nn.Module:
    """Every second feature is dropped, and last features first."""

    def dropped(h: Tensor, net: nn.Module) -> Tensor:
        return torch.cat((F.dropout(h[:, ::2], 0.5, net.training), F.dropout(h.T[1::2].T, 0.5, net.training)), 1)

    return Between(dropped)


@certified()
def dropout_of_an_expanded_tensor() -> nn.Module:
    """A column is expanded before dropout, so that elements of the operand share their memory."""

    def dropped(h: Tensor, net: nn.Module) -> Tensor:
        return F.dropout(h[:, :1].expand(-1, 6), 0.5, net.training) + h

    return Between(dropped)


@certified()
def dropout_of_channels_last() -> nn.Module:
    """Images whose channels come last in memory are dropped elementwise and by channel."""

    def dropped(h: Tensor, net: nn.Module) -> Tensor:
        image = h.view(-1, 2, 2, 2).contiguous(memory_format=torch.channels_last)
        return F.dropout2d(F.dropout(torch.tanh(image), 0.3, net.training), 0.3, net.training).flatten(1)

    return Between(dropped, hidden=8)


@certified()
def dropout_of_transposed_products() -> nn.Module:
    """A product of transposed operands and what follows it keep their layout through elementwise functions."""

    def dropped(h: Tensor, net: nn.Module) -> Tensor:
        turned = (net.inner.weight[:3] @ h[:, :4].T).T
        return torch.cat((F.dropout(torch.sigmoid(turned), 0.5, net.training), h[:, 3:]), 1)

    return Between(dropped)


@certified()
def dropout_of_weights() -> nn.Module:
    """Weights are dropped instead of activations, straight and transposed."""

    def dropped(h: Tensor, net: nn.Module) -> Tensor:
        weight = F.dropout(net.head.weight.T, 0.3, net.training)
        return h + h @ F.dropout(net.inner.weight, 0.3, net.training) @ weight[:4] @ weight.T

    return Between(dropped)


@certified()
def dropout_of_channels() -> nn.Module:
    """`Dropout1d` drops channels, and an operand of two dimensions is one sample without a batch."""

    def dropped(h: Tensor, net: nn.Module) -> Tensor:
        return F.dropout1d(h.view(-1, 3, 2), 0.4, net.training).flatten(1) + F.dropout1d(h, 0.4, net.training)

    return Between(dropped)


@certified("either")
def alpha_dropout() -> nn.Module:
    """Dropped elements get a value that is not zero."""
    return Between(lambda h, net: F.feature_alpha_dropout(F.alpha_dropout(h, 0.3, net.training), 0.3, net.training))


@certified("either")
def dropout_by_another_name() -> nn.Module:
    """`torch.dropout` and `torch.feature_dropout` are called instead of the functional ones."""
    return Between(lambda h, net: torch.feature_dropout(torch.dropout(h, 0.4, net.training), 0.2, net.training))


@certified("either")
def dropout_in_place() -> nn.Module:
    """The mask is written into the activation itself."""
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.Dropout(0.5, inplace=True), nn.Linear(6, 2))


class Trains(Net):
    def between(self, h: Tensor) -> Tensor:
        if self.training:
            ways.pause()
        return F.dropout(h, 0.4, self.training)


class Answers(Net):
    def between(self, h: Tensor) -> Tensor:
        if type(h) is not Tensor:  # a set
            ways.pause()
        return h


@certified("either", through=ways.two_at_once)
def two_trainings_at_once() -> nn.Module:
    """Two threads train with dropout, and both have set the seed before either draws its mask."""
    return Trains()


@certified("either", ask=ways.two_askers)
def answers_in_two_threads() -> nn.Module:
    """Two threads ask one certificate about two threats, and are inside its network at the same time."""
    return Answers()
