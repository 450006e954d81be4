"""One-hot vectors of which any other may be the true one: ``e_y + sum_c a_c (e_c - e_y)``, a in the simplex.

Where a vector may also be that of a class without a column, a row of zeros, there is one more corner, ``-e_y``; and of
a row of zeros every ``e_c`` is another one. Entries are 0 and 1, so rows and sums are exact, and nothing is rounded.
"""

from __future__ import annotations

import torch
from torch import Tensor


def check_one_hot(hot: Tensor, what: str, or_none: bool = False) -> None:
    """Refuse anything but a single 1 in every row; with ``or_none`` a row may hold zeros alone."""
    count = hot.sum(1)
    if not bool(((hot == 0) | (hot == 1)).all()) or not bool(((count == 1) | (or_none & (count == 0))).all()):
        raise ValueError(f"{what} must be one-hot: a single 1 in every row" + (", or none" if or_none else ""))


def alternatives(hot: Tensor, what: str) -> Tensor:
    """Rows (C - 1, B, C) from a batch of one-hot vectors to each other class."""
    check_one_hot(hot, what)
    classes, own = hot.shape[1], hot.argmax(1)
    rows = []
    for step in range(1, classes):
        other = torch.nn.functional.one_hot((own + step) % classes, classes).to(hot.dtype)
        rows.append(other - hot)
    return torch.stack(rows) if rows else hot.new_zeros(0, *hot.shape)


def alternatives_or_none(hot: Tensor, what: str) -> Tensor:
    """Rows (C, B, C) from a batch of one-hot vectors or zeros to each other class, and to none."""
    check_one_hot(hot, what, or_none=True)
    corners = torch.eye(hot.shape[1], dtype=hot.dtype, device=hot.device)
    return corners.unsqueeze(1) * (1 - hot).T.unsqueeze(2) - hot  # class c is another one, or is the one that is left
