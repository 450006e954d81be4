"""Losses by name: the function to minimise, and how many outputs the network needs for it."""

from collections.abc import Callable
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

import boundflow as bf
from fullcert.mistakes import Mistake, choose


class Loss(NamedTuple):
    """A loss of logits and targets. `one_logit`: two classes, targets 0 and 1, told apart by the sign."""

    value: Callable[[Tensor, Tensor], Tensor]
    one_logit: bool

    def outputs(self, classes: int) -> int:
        """How many logits the network has."""
        return 1 if self.one_logit else classes

    def targets(self, labels: Tensor, like: Tensor) -> Tensor:
        """Labels in the shape and type that the loss expects; `like` gives the type of the logits."""
        return labels[:, None].to(like.dtype) if self.one_logit else labels


def signed_mse(logits: Tensor, targets: Tensor) -> Tensor:
    """Squared distance to -1 or +1, so that the sign of the logit decides, as it does for the other losses."""
    return F.mse_loss(logits, 2 * targets - 1)


LOSSES = {
    "bce": Loss(F.binary_cross_entropy_with_logits, one_logit=True),
    "hinge": Loss(bf.losses.hinge, one_logit=True),
    "mse": Loss(signed_mse, one_logit=True),
    "ce": Loss(F.cross_entropy, one_logit=False),
}


def loss_for(name: str, classes: int) -> Loss:
    """The loss called `name`, if it can tell that many classes apart."""
    loss = choose("loss", name, LOSSES)
    if loss.one_logit and classes != 2:
        raise Mistake(f"the loss {name!r} tells two classes apart, and this dataset has {classes}: use ce")
    return loss
