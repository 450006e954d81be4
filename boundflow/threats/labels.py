"""Labels that may have been others, and targets that may have been moved.

    y is 0 or 1       y + a (1 - 2 y), a in [0, 1]
    y is one-hot      e_y + sum_c a_c (e_c - e_y), a in the simplex (`one_hot.py`)
    y is a number     y + epsilon xi, xi in [-1, 1]

Rows of classes hold whole numbers, so they are exact; the row of a number is its rounded interval.

Where it is known which classes a sample can have, such as those that its annotators gave, ``among`` says which: a truth
for every sample and class, or the class numbers of every sample.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..arithmetic import rounding
from ..errors import BoundFlowError
from ..symbols.budgets import Kind
from ..tensor.lift import Given, ball
from .base import Change
from .deviation import Deviation, Diagonal
from .moves import amount
from .one_hot import alternatives, check_one_hot


class Labels(Change):
    """The label of a sample: any other class; for regression, a target moved by at most ``epsilon``.

    Targets are 0 and 1, or one-hot vectors; class numbers need ``classes``. With ``among``, only the classes that it
    names for the sample, the observed one among them (at the optimum: `certify_optimum`).
    """

    about = "targets"
    exclusive = True

    def __init__(
        self,
        epsilon: float | None = None,
        classes: int | None = None,
        among: Given | Sequence[Sequence[int]] | None = None,
    ):
        self.epsilon = None if epsilon is None else float(amount(epsilon, "epsilon"))
        self.classes = None if classes is None else int(classes)
        if among is not None and epsilon is not None:
            raise ValueError("among is about classes, and epsilon about numbers: give one of them")
        self.among = None if among is None else _choices(among, self.classes)
        if self.among is not None:
            self.classes = self.among.shape[1]
        self.kind = Kind.SIMPLEX if epsilon is None else Kind.BOX
        self.adds_to_one = epsilon is None

    def __repr__(self) -> str:
        among = None if self.among is None else [np.flatnonzero(row).tolist() for row in self.among]
        named = (("epsilon", self.epsilon), ("classes", self.classes), ("among", among))
        options = [f"{name}={value!r}" for name, value in named if value is not None]
        return f"Labels({', '.join(options)}){self._restricted()}"

    def about_these(self, count: int) -> None:
        super().about_these(count)
        if self.among is not None and len(self.among) != count:
            raise ValueError(f"among is about {len(self.among)} samples, and there are {count}")

    def fits(self, x: Tensor, y: Tensor) -> None:
        if self.among is not None:
            raise BoundFlowError(
                "Labels(among=...) is for certificates at the optimum: use bf.certify_optimum, or Labels() step by step"
            )
        if not y.is_floating_point():
            return  # class numbers are for the loss, which makes numbers of them
        if self.epsilon is not None:
            super().fits(x, y)
        else:
            self._check(y)

    def _check(self, y: Tensor) -> None:
        """Refuse targets that are not classes."""
        if y.dim() == 2 and y.shape[1] > 1:
            check_one_hot(y, "targets")
        elif not bool(((y == 0) | (y == 1)).all()):
            raise ValueError("flipped labels are for targets 0 and 1; for regression write Labels(epsilon)")

    def encoded(self, y: Tensor, like: Tensor) -> Tensor:
        """Class numbers as one-hot vectors."""
        if y.is_floating_point():
            return y
        if self.classes is None:
            raise ValueError("class numbers as targets: write Labels(classes=10), or give one-hot targets")
        if bool((y < 0).any()) or bool((y >= self.classes).any()):
            raise ValueError(f"labels must be whole numbers from 0 to {self.classes - 1}")
        return torch.nn.functional.one_hot(y.long(), self.classes).to(like.dtype)

    def deviation(self, values: Tensor, raw: Tensor, budgeted: bool) -> Deviation:
        if self.epsilon is not None:
            bounds = ball(values, self.epsilon).set.bounds
            moving = torch.ones(values.shape[1:], dtype=torch.bool, device=values.device)
            radius = rounding.deviation(bounds, values)
            return Deviation(values, Diagonal(radius.reshape(values.shape), moving), bounds)
        self._check(values)
        if values.dim() == 2 and values.shape[1] > 1:
            generators = alternatives(values, "targets")
        else:
            generators = (1 - 2 * values).unsqueeze(0)
        return Deviation(values, generators, torch.stack((torch.zeros_like(values), torch.ones_like(values))))


def _choices(among: Given | Sequence[Sequence[int]], classes: int | None) -> np.ndarray:
    """Which classes each sample can have, (samples, classes) of bool."""
    if isinstance(among, Tensor):
        among = among.detach().cpu().numpy()
    if isinstance(among, np.ndarray):
        if among.ndim != 2 or among.dtype != bool:
            raise ValueError(
                f"among is a truth for each sample and class, not {among.dtype} of {among.ndim} axes; or the class "
                "numbers of each sample, a list of lists"
            )
        found = among.copy()
    else:
        rows = [np.asarray(row) for row in among]  # type: ignore[union-attr]
        if not all(row.ndim == 1 and row.dtype.kind in "iu" and (row >= 0).all() for row in rows if row.size):
            raise ValueError("among names the classes of each sample by whole numbers from 0")
        highest = max((int(row.max()) for row in rows if row.size), default=-1)
        found = np.zeros((len(rows), max(highest + 1, classes or 0)), dtype=bool)
        for sample, row in enumerate(rows):
            found[sample, row.astype(np.int64)] = True
    if classes not in (None, found.shape[1]):
        raise ValueError(f"among names {found.shape[1]} classes, and classes is {classes}")
    if not found.any(1).all():
        raise ValueError(f"among allows no class for sample {int(np.flatnonzero(~found.any(1))[0])}")
    return found
