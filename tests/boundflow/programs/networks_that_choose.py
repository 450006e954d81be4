"""Networks that index, mask, look up, pad and move elements around."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .networks_with_noise import Between
from .networks_with_state import Net
from .recipe import Attack
from .table import certified


@certified()
def indexed() -> nn.Module:
    """Elements are added at repeated positions, gathered and scattered."""

    def placed(h: Tensor, net: nn.Module) -> Tensor:
        out = h.index_put((torch.tensor([0, 2]),), h[:2], accumulate=True) if len(h) > 2 else h
        return out.scatter_add(1, torch.tensor([[5, 0]]).expand(len(h), 2), h[:, :2])[
            :, torch.tensor([5, 4, 3, 2, 1, 0])
        ]

    return Between(placed)


@certified(attack=Attack(0.05))
def choices_by_sign() -> nn.Module:
    """`torch.where`, `masked_fill` and products with comparisons, undecided for many samples."""

    def chosen(h: Tensor, net: nn.Module) -> Tensor:
        return torch.where(h > 0, h, 0.1 * h) + h.masked_fill(h < 0.2, 0.5) + h * (h > 0.1)

    return Between(chosen)


@certified("either", attack=Attack(0.05))
def picked_by_a_mask() -> nn.Module:
    """Only positive elements are changed, by a mask that is not the same for all members of a set."""

    def picked(h: Tensor, net: nn.Module) -> Tensor:
        out = h.clone()
        out[h > 0] = out[h > 0] * 2
        return out

    return Between(picked)


@certified()
def masked_by_the_recipe() -> nn.Module:
    """A mask that is not data picks and leaves out features."""

    def masked(h: Tensor, net: nn.Module) -> Tensor:
        mask = torch.tensor([True, False, True, True, False, True])
        return torch.cat((h[:, mask], h[..., ~mask]), 1).masked_fill(mask, 0.3) + h * mask

    return Between(masked)


@certified("either")
def rounded_to_numbers() -> nn.Module:
    """Activations are rounded to whole numbers, which choose rows of a table."""

    class Rounds(Net):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 3)

        def between(self, h: Tensor) -> Tensor:
            return h + self.table((h[:, 0] * 2).round().long() + 2)

    return Rounds()


@certified()
def a_table_of_positions() -> nn.Module:
    """A learned table is read at fixed, repeated positions."""

    class Positions(Net):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(4, 3, padding_idx=0)

        def between(self, h: Tensor) -> Tensor:
            return h + self.table(torch.tensor([1, 3, 3, 0])).mean(0)

    return Positions()


@certified("either")
def a_table_that_is_renormalised() -> nn.Module:
    """Reading a table shortens its rows in place, in the forward pass."""

    class Renormalised(Net):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(4, 3, max_norm=0.5)

        def between(self, h: Tensor) -> Tensor:
            return h + self.table(torch.tensor([1, 3, 3])).mean(0)

    return Renormalised()


@certified()
def padded_and_cumulated() -> nn.Module:
    """Features are padded, cumulated, flipped, rolled and unfolded."""

    def moved(h: Tensor, net: nn.Module) -> Tensor:
        wide = F.pad(h, (1, 1)).cumsum(1)
        return (wide.flip(1).roll(2, 1).unfold(1, 3, 1).mean(2) + h) / 2

    return Between(moved)


@certified("either")
def padded_with_what_is_there() -> nn.Module:
    """Features are padded by a number, by reflection and around the circle."""

    def padded(h: Tensor, net: nn.Module) -> Tensor:
        wide = F.pad(h, (1, 0), value=0.3).unsqueeze(1)
        return F.pad(F.pad(wide, (1, 1), mode="reflect"), (2, 2), mode="circular")[:, 0, :6]

    return Between(padded)
