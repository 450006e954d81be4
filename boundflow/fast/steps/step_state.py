"""What a step changes, as tensors: the state that a traced step takes and gives (`traced_step.py`).

    intervals    the bounds of every set
    zonotopes    E, s, and the bounds and the center of every set

Between two reductions a scalar of optimizer state is ``c_j + s_j z_j`` with ``z_j = sum_k E_jk xi_k`` (`expansion.py`),
so E and s hold all rows there are. Rows with an owner stand first in E and stay where they are; the others belong to
nobody. Where fewer of those have been made than the row budget allows, rows of zeros stand in their places, which adds
nothing to any sum: so E has one shape from the first step on.

Symbols that belong to nobody get new numbers when a state is put where everyone can see it. They are then not known to
be those of sets that were made before, which can only make bounds wider.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ...errors import BoundFlowError
from ...files.training_state import Trainer, space_of
from ...sets.forms import Form
from ...sets.set import Set
from ...symbols.budgets import FREE
from ...symbols.expansion import Expansion
from ...symbols.reduction import state_of
from ...symbols.rows import Rows
from ...symbols.symbol_numbers import DERIVED
from ...tensor.bounded import Bounded


class NotTraceable(BoundFlowError):
    """A step that looks at numbers to decide what to do, or is not the same function every time."""


class StepState(Protocol):
    """The state of a training between two steps."""

    def leaves(self) -> list[Bounded]:
        """All sets that a step changes."""

    def tensors(self) -> list[Tensor]:
        """The state as it is; raises `NotTraceable` where a step would not give the same kind of state again."""

    def put(self, tensors: Sequence[Tensor]) -> None:
        """Make this the state of the trainer."""

    def bounds(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The bounds of all sets in a state."""


def leaves_of(trainer: Trainer) -> list[Bounded]:
    """All sets that a step changes: trained parameters, and what the optimizer keeps of each."""
    found: list[Any] = []
    for parameter in trainer.parameters():
        kept = trainer.optimizer.state.get(parameter, {})
        found += [parameter, *(value for value in kept.values() if isinstance(value, Bounded))]
    return found


def hold(leaf: Bounded, bounds: Tensor, form: Form | None = None) -> None:
    """Other bounds, and another form, for a tensor, of which the rest stays as it is."""
    before = leaf.set
    held = Set(bounds, form, before.symbols, False, before.nonnegative)
    held.parameter = before.parameter
    leaf.set, leaf._recorded = held, leaf._version
    leaf.grad = None


class Intervals:
    """Sets without rows."""

    def __init__(self, trainer: Trainer):
        self.trainer = trainer

    def leaves(self) -> list[Bounded]:
        return leaves_of(self.trainer)

    def tensors(self) -> list[Tensor]:
        if any(leaf.set.affine or leaf.set.exact or leaf.set.clean is not None for leaf in self.leaves()):
            raise NotTraceable("a parameter is a point, or more than an interval")
        return [leaf.set.bounds for leaf in self.leaves()]

    def put(self, tensors: Sequence[Tensor]) -> None:
        for leaf, bounds in zip(self.leaves(), tensors, strict=True):
            hold(leaf, bounds)

    def bounds(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return list(tensors)


class Zonotopes:
    """Sets whose rows are those of the derived symbols of the last reduction."""

    def __init__(self, trainer: Trainer):
        self.trainer, self.space = trainer, space_of(trainer.model)
        self.owned = np.empty(0, dtype=np.int64)  # the symbols with an owner, in their order

    def leaves(self) -> list[Bounded]:
        return state_of(self.trainer.optimizer)

    def tensors(self) -> list[Tensor]:
        expansion, leaves = self.space.expansion, self.leaves()
        if expansion is None or any(leaf.set.exact or leaf.set.clean is not None for leaf in leaves):
            raise NotTraceable("a parameter is a point, or has no rows")
        numbers = np.concatenate([leaf.form.rows.numbers for leaf in leaves])
        if not np.array_equal(numbers, expansion.derived.numbers):
            raise NotTraceable("the rows of a parameter are not those of the last reduction")
        free = self.space.owners_and_parts(expansion.deep.numbers)[1] == FREE
        owned = int((~free).sum())
        missing = owned + self.space.order * len(numbers) - len(free)
        if free[:owned].any() or missing < 0:
            raise NotTraceable("rows with an owner do not stand first")
        self.owned = expansion.deep.numbers[:owned]
        scale = torch.cat([leaf.form.generators.reshape(leaf.numel(), leaf.numel()).diagonal() for leaf in leaves])
        weights = torch.nn.functional.pad(expansion.weights, (0, missing)) if missing else expansion.weights
        return [weights, scale, *(leaf.set.bounds for leaf in leaves), *(leaf.form.center for leaf in leaves)]

    def put(self, tensors: Sequence[Tensor]) -> None:
        weights, scale, *parts = tensors
        leaves, space = self.leaves(), self.space
        derived = space.fresh(len(scale), DERIVED)
        deep = np.concatenate((self.owned, space.fresh(weights.shape[1] - len(self.owned)).numbers))
        space.expands(self.trainer.optimizer, Expansion(derived, Rows(deep), weights))
        begin = 0
        for leaf, bounds, center in zip(leaves, parts[: len(leaves)], parts[len(leaves) :], strict=True):
            size = leaf.numel()
            rows = Rows(derived.numbers[begin : begin + size])
            generators = scale[begin : begin + size].diag().view(size, *center.shape)
            hold(leaf, bounds, Form(center, generators, torch.zeros_like(center), rows))
            begin += size

    def bounds(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return list(tensors[2 : 2 + len(self.leaves())])
