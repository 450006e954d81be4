"""One-hot vectors of which any other may be the true one: ``e_y + sum_c a_c (e_c - e_y)``, a in the simplex.

Entries are 0 and 1, so rows and sums are exact, and nothing is rounded.
"""

from __future__ import annotations

import torch
from torch import Tensor


def check_one_hot(hot: Tensor, what: str) -> None:
    """Refuse anything but a single 1 in every row."""
    if not bool(((hot == 0) | (hot == 1)).all()) or not bool((hot.sum(1) == 1).all()):
        raise ValueError(f"{what} must be one-hot: a single 1 in every row")


def alternatives(hot: Tensor, what: str) -> Tensor:
    """Rows (C - 1, B, C) from a batch of one-hot vectors to each other class."""
    check_one_hot(hot, what)
    classes, own = hot.shape[1], hot.argmax(1)
    rows = []
    for step in range(1, classes):
        other = torch.nn.functional.one_hot((own + step) % classes, classes).to(hot.dtype)
        rows.append(other - hot)
    return torch.stack(rows) if rows else hot.new_zeros(0, *hot.shape)
