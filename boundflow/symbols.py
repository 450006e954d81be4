"""What generator rows stand for.

A zonotope tensor is ``c + sum_k G_k xi_k + rho zeta``; every row k belongs to one symbol ``xi_k`` in [-1, 1]. A
symbol is either *owned* by a training sample (one of its raw features) or *free* (an error that was given a row of
its own so that it can cancel later). Rows are matched by symbol, never by position: each has a number that is
handed out once and never reused, so a tensor made before a reduction still means what it meant.

Order reduction (Girard 2005, jointly for everything the optimizer holds): stack all state tensors into one vector
of M scalars; keep the free rows with the largest ``|row|_1 - |row|_inf``; the dropped rows D and the radii become
M new rows ``diag(b)``, ``b_j = rho_j + sum over D of |G_kj|``, each with a fresh symbol. Sound because
``|sum_D G_kj xi_k + rho_j zeta_j| <= b_j``: for every execution there is a value of each fresh symbol that gives
the same tensor. Two scalars never share a fresh symbol: (1, 0) and (0, 1) must not become (1, 1).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from . import rounding
from .errors import MixedSymbols

if TYPE_CHECKING:
    from .bounded import Bounded
    from .threats import Threat

FREE = -1  # the owner of an error row


class Rows:
    """The symbols of the generator rows of a tensor, in order. Compared by identity, matched by number."""

    __slots__ = ("_positions", "_unions", "numbers")

    def __init__(self, numbers: np.ndarray):
        self.numbers = numbers
        self._unions: dict[Rows, Rows] = {}
        self._positions: dict[Rows, slice | Tensor] = {}

    def __len__(self) -> int:
        return len(self.numbers)

    def union(self, other: Rows) -> Rows:
        """These rows, then those of ``other`` that are new: the longer operand keeps its order."""
        if other is self or not len(other):
            return self
        if len(other) > len(self):
            return other.union(self)
        if other not in self._unions:
            new = other.numbers[~np.isin(other.numbers, self.numbers)]
            self._unions[other] = Rows(np.concatenate((self.numbers, new))) if len(new) else self
        return self._unions[other]

    def positions(self, part: Rows) -> slice | Tensor:
        """Where the rows of ``part``, all of them among these, stand."""
        if part not in self._positions:
            if np.array_equal(self.numbers[: len(part)], part.numbers):
                self._positions[part] = slice(0, len(part))
            else:
                order = np.argsort(self.numbers)
                found = order[np.searchsorted(self.numbers, part.numbers, sorter=order)]
                assert np.array_equal(self.numbers[found], part.numbers)
                self._positions[part] = torch.from_numpy(found)
        return self._positions[part]

    def place(self, generators: Tensor, part: Rows) -> Tensor:
        """``generators`` of the rows ``part``, padded with zero rows to these rows."""
        if part is self:
            return generators
        out = generators.new_zeros(len(self), *generators.shape[1:])
        where = self.positions(part)
        out[where if isinstance(where, slice) else where.to(out.device)] = generators
        return out


NO_ROWS = Rows(np.empty(0, dtype=np.int64))


class Symbols:
    """One space of symbols: the threat they come from, their owners, and the budget of error rows.

    ``order`` is the number of free rows kept per scalar of optimizer state.
    """

    def __init__(self, threat: Threat | None = None, order: int = 20):
        if order < 1:
            raise ValueError(f"order must be at least 1 row per state scalar, got {order}")
        self.threat = threat
        self.order = order
        self.steps = 0
        self._owners = np.empty(1024, dtype=np.int64)
        self._count = 0
        self._first_row: dict[int, int] = {}
        self._raw: dict[int, bytes] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Symbols:
        return self  # a copied tensor still speaks of the same attacker

    def __repr__(self) -> str:
        return f"Symbols({self.threat!r}, order={self.order}, symbols={self._count}, steps={self.steps})"

    # --- rows -------------------------------------------------------------------------------------------------

    def _new(self, owners: np.ndarray) -> np.ndarray:
        numbers = np.arange(self._count, self._count + len(owners))
        while self._count + len(owners) > len(self._owners):
            self._owners = np.concatenate((self._owners, np.empty_like(self._owners)))
        self._owners[numbers] = owners
        self._count += len(owners)
        return numbers

    def fresh(self, count: int) -> Rows:
        """New free rows."""
        return Rows(self._new(np.full(count, FREE)))

    def of_samples(self, samples: np.ndarray, features: int, raw: np.ndarray) -> Rows:
        """The rows owned by these (distinct) samples, ``features`` each; the same rows at every call.

        A symbol may only reappear for the same raw value: ``raw`` holds the values, one line per sample.
        """
        for sample, line in zip(samples.tolist(), raw, strict=True):
            content = f"{line.dtype}{line.shape}".encode() + line.tobytes()
            fingerprint = hashlib.blake2b(content, digest_size=16).digest()
            if self._raw.setdefault(sample, fingerprint) != fingerprint:
                raise MixedSymbols(
                    f"sample {sample} was lifted before with other values, and one symbol cannot mean both. Lift the "
                    "raw data, then augment or normalise the bounded batch."
                )
        unseen = [int(sample) for sample in samples if int(sample) not in self._first_row]
        if unseen:
            numbers = self._new(np.repeat(unseen, features))
            self._first_row.update(zip(unseen, numbers[::features].tolist(), strict=True))
        first = np.array([self._first_row[int(sample)] for sample in samples], dtype=np.int64)
        return Rows((first[:, None] + np.arange(features)).ravel())

    def owners(self, rows: Rows) -> np.ndarray:
        """The owning sample of each row, ``FREE`` for error rows."""
        return self._owners[rows.numbers]

    def support(self, generators: Tensor) -> Tensor:
        """The largest ``sum_k G_k xi_k`` over the box of symbols, per element, rounded up."""
        total = torch.linalg.vector_norm(generators, ord=1, dim=0)
        return total * (1 + rounding.gamma(len(generators), total.dtype))

    @staticmethod
    def common(first: Symbols | None, second: Symbols | None) -> Symbols | None:
        """The space two tensors share. Sets without a threat (plain intervals) fit every space."""
        if first is None or first is second:
            return second
        if second is None or second._unused():
            return first
        if first._unused():
            return second
        raise MixedSymbols(
            "tensors of two different symbol spaces met: their generator rows do not mean the same thing. "
            "Lift the model and the data with one Symbols object."
        )

    def _unused(self) -> bool:
        """A space without a threat that has given out no row yet: what `lift` makes for plain intervals."""
        return self.threat is None and self._count == 0

    # --- what users call --------------------------------------------------------------------------------------

    def lift(self, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """A batch as the threat could have left it; ``index`` holds the number of each sample in the dataset."""
        if self.threat is None:
            raise MixedSymbols("these symbols have no threat: build them as bf.Symbols(bf.threats.Linf(epsilon))")
        return self.threat.lift(self, x, y, index)

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        """Promote gradient errors to rows before each step, and reduce the rows after it."""
        optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: self.promote(optimizer))
        optimizer.register_step_post_hook(lambda optimizer, args, kwargs: self.reduce(optimizer))

    # --- promotion and reduction ------------------------------------------------------------------------------

    def promote(self, optimizer: torch.optim.Optimizer) -> None:
        """Give the radius of every gradient rows of its own, so that momentum and parameter stay correlated.

        ``{c + G xi + rho zeta} = {c + G xi + diag(rho) xi'}`` with fresh xi': the same set, nothing is lost.
        """
        with torch.no_grad():
            for parameter in _parameters(optimizer):
                gradient = parameter.grad
                if gradient is not None and _is_bounded(gradient):
                    self._require_own(gradient)
                    form, count = gradient.form, gradient.numel()
                    new = form.radius.flatten().diag().view(count, *gradient.shape)
                    rows = Rows(np.concatenate((form.rows.numbers, self.fresh(count).numbers)))
                    gradient.replace_form(self, rows, torch.cat((form.generators, new)))

    def reduce(self, optimizer: torch.optim.Optimizer) -> None:
        """Bring all state of the optimizer under the row budget, and its radii into rows."""
        with torch.no_grad():
            state = self._state(optimizer)
            if not state:
                return
            for tensor in state:
                self._require_own(tensor)
            forms = [tensor.form for tensor in state]
            rows = NO_ROWS
            for form in forms:
                rows = rows.union(form.rows)
            scalars = sum(tensor.numel() for tensor in state)
            stacked = torch.cat([rows.place(form.generators, form.rows).flatten(1) for form in forms], dim=1)
            kept, dropped = self._split(stacked, rows, (self.order - 1) * scalars)
            radius = torch.cat([form.radius.flatten() for form in forms])
            boxed = rounding.up(radius + self.support(stacked[dropped]))
            numbers = np.concatenate((rows.numbers[kept.cpu().numpy()], self.fresh(scalars).numbers))
            generators = torch.cat((stacked[kept], boxed.diag()))
            reduced, begin = Rows(numbers), 0
            for tensor in state:
                part = generators[:, begin : begin + tensor.numel()]
                tensor.replace_form(self, reduced, part.reshape(len(reduced), *tensor.shape))
                begin += tensor.numel()

    def _require_own(self, tensor: Bounded) -> None:
        if Symbols.common(self, tensor.symbols) is not self:
            raise MixedSymbols("the optimizer is attached to other symbols than its model was lifted with")

    def _split(self, stacked: Tensor, rows: Rows, budget: int) -> tuple[Tensor, Tensor]:
        """Which rows to keep: all owned ones, and the free ones that would lose most by being boxed."""
        free = torch.from_numpy(self.owners(rows) == FREE).to(stacked.device)
        score = torch.linalg.vector_norm(stacked, ord=1, dim=1) - torch.linalg.vector_norm(
            stacked, ord=torch.inf, dim=1
        )
        score = torch.where(free, score, torch.inf)
        order = torch.argsort(score, descending=True, stable=True)
        keep = int((~free).sum()) + budget
        return order[:keep].sort().values, order[keep:].sort().values

    def _state(self, optimizer: torch.optim.Optimizer) -> list[Bounded]:
        held = [*_parameters(optimizer)]
        for values in optimizer.state.values():
            held += [value for value in values.values() if isinstance(value, Tensor)]
        return list({id(tensor): tensor for tensor in held if _is_bounded(tensor)}.values())


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _is_bounded(tensor: Tensor) -> TypeGuard[Bounded]:
    return hasattr(tensor, "replace_form")
