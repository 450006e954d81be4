"""A space of symbols: what the generator rows of one run stand for.

A zonotope tensor is ``c + sum_k G_k xi_k + rho zeta``; every row k belongs to one symbol ``xi_k`` in [-1, 1]. A symbol
is either *owned* by a training sample (one of its raw features, its label, its presence) or *free* (an error that was
given a row of its own so that it can cancel later). The threat says from which set the symbols of a sample are chosen,
and how many samples can be touched. Files that work on a space:

    symbol_numbers.py    who owns a symbol, and which rows a sample got
    support.py           how far symbols reach
    reduction.py         what keeps the number of rows within a budget

The space also carries the arithmetic of its run (`thread_context.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
from torch import Tensor, nn

from ..arithmetic.thread_context import Arithmetic, thread, using
from ..arithmetic.tuned_numbers import MEMORY
from ..errors import MixedSymbols
from ..same_program.digests import NOT_COMPARED, of_value
from . import reduction as reductions
from .budgets import FREE, Part
from .expansion import Expansion
from .recorded_values import NOTHING, Recorded, Told
from .rows import Rows
from .support import Support
from .symbol_numbers import ANSWERED, LOOKED_AT, Ledger, Registry, Written
from .width_forecast import Growth

if TYPE_CHECKING:
    from ..threats import Threat


class Symbols:
    """One space of symbols: the threat they come from, their owners, and the budget of error rows.

    ``order`` is the number of free rows kept per scalar of optimizer state, and ``reduction`` names the method that
    chooses them. Without ``tracks``, samples get no rows: what the attacker did to them is an error like any other.
    That is looser, and takes far less memory.

    ``memory`` (bytes) is what a step of a loop of one's own may take, within a third (`loop_memory.py`): a batch whose
    step would take more is refused when it is lifted. None asks nothing.
    """

    def __init__(
        self,
        threat: Threat | None = None,
        order: int = 20,
        tracks: bool = True,
        *,
        reduction: str = "girard",
        memory: float | None = MEMORY,
    ):
        if order < 1:
            raise ValueError(f"order must be at least 1 row per state scalar, got {order}")
        if reduction not in reductions.METHODS:
            raise ValueError(f"a reduction method is one of {', '.join(reductions.METHODS)}, not {reduction!r}")
        if memory is not None and not memory > 0:
            raise ValueError(f"memory must be a positive number of bytes, or None, not {memory!r}")
        self.threat, self.order, self.tracks, self.reduction = threat, order, tracks, reduction
        self.memory, self.fitted = memory, (0, 0)  # samples of a batch, and of all batches, that were found to fit
        self._lifted: list[ref[nn.Module]] = []
        self.arithmetic: Arithmetic = replace(thread.arithmetic, pieces=0, length=1)
        self.steps = 0  # of the optimizer that has made most: what errors report
        self.resumed_at = 0
        self.growth = Growth()  # of the sets of a loop of its own; certify has one that knows when the run ends
        self._counted: dict[int, int] = {}
        self.table: list[Part] = []
        self.budgets: list[int | None] = []
        self._declared: dict[str, tuple[int, Threat]] = {}  # by content; held, since some are known by where they are
        if threat is not None:
            self.declare(threat)
        self._registry = Registry()
        self._ledger = Ledger(self._registry)
        self._looking = Ledger(Registry(LOOKED_AT, self._registry), self._ledger)
        self._aside = False
        self._expansions: dict[int, tuple[Expansion, ...]] = {}  # of each optimizer, the latest first
        self._optimizers: WeakKeyDictionary[torch.optim.Optimizer, int] = WeakKeyDictionary()
        self._numbered = 0
        self.expansion: Expansion | None = None
        self.support = Support(self)

    def __repr__(self) -> str:
        return f"Symbols({self.threat!r}, order={self.order}, symbols={self._registry.count}, steps={self.steps})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Symbols:
        return self  # a copied tensor still speaks of the same attacker

    def __getstate__(self) -> dict[str, Any]:
        left = ("support", "_optimizers", "_lifted")
        return {name: value for name, value in vars(self).items() if name not in left}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _optimizers=WeakKeyDictionary(), _lifted=[], support=Support(self))

    # --- the threat -------------------------------------------------------------------------------------------

    def declare(self, threat: Threat) -> int:
        """Take the parts of a threat into the table; gives the number of the first."""
        if threat is self.threat and self.table:
            return 0  # the threat of the space stands first, and every batch asks for it
        content = of_value(threat)
        if content.startswith(NOT_COMPARED):
            content = f"{id(threat)}"
        if content not in self._declared:
            self._declared[content] = len(self.table), threat
            for clause in threat.clauses:
                self.table += [Part(change.kind, len(self.budgets)) for change in clause.changes]
                self.budgets.append(clause.budget)
        return self._declared[content][0]

    # --- rows -------------------------------------------------------------------------------------------------

    def owners_and_parts(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """To whom symbols belong and to which part of the threat: what a file must hold beside the rows."""
        found = self._looking.registry.known(numbers)
        self.require_known(numbers, found[1])
        return found

    def require_known(self, numbers: np.ndarray, parts: np.ndarray) -> None:
        """Refuse symbols of a threat that a parent declared after its child was made: both number parts on their own.

        ``parts`` are those of the symbols ``numbers``.
        """
        space = self
        while space._parent is not None:
            if bool(((numbers < space._looking.registry.first) & (parts >= space._inherited)).any()):
                raise MixedSymbols(
                    "a set of a threat that is younger than the space of this answer met it: make the child afterwards"
                )
            space = space._parent

    def fresh(self, count: int, part: int = FREE) -> Rows:
        """Rows of new symbols that belong to nobody."""
        return (self._looking if self._aside else self._ledger).registry.free(count, part)

    def of_samples(
        self,
        samples: np.ndarray,
        raw: np.ndarray,
        parts: np.ndarray,
        meaning: Told | None = None,
        still: np.ndarray | None = None,
    ) -> Rows:
        """Own rows of a batch of samples, whose symbols are the same at every call (`Ledger.rows_of`)."""
        return (self._looking if self._aside else self._ledger).rows_of(samples, raw, parts, meaning, still)

    def columns(self, numbers: np.ndarray) -> np.ndarray:
        """Which column each symbol moves: a feature, or a name of `recorded_values.py`."""
        return self._looking.registry.columns(numbers)

    def recorded(self) -> Recorded | None:
        """The symbols that are not 0 where their sample is as recorded; None if a file does not say which."""
        return Recorded.joined(self._ledger.recorded) if self.says_what_is_recorded else None

    def of_guests(self, count: int, parts: np.ndarray) -> Rows:
        """Own rows of samples that come once and never again: test inputs."""
        return self._looking.guests(count, parts)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Looking at a run must not change it: what is made inside has numbers, and expansions, of its own.

        It keeps its meaning afterwards: numbers are never handed out twice.
        """
        names = ("_aside", "steps", "_counted", "_expansions", "expansion")
        before = {name: getattr(self, name) for name in names}
        self._aside, self._counted, self._expansions = True, dict(self._counted), dict(self._expansions)
        try:
            yield
        finally:
            vars(self).update(before)

    def child(self, threat: Threat | None = None) -> Symbols:
        """A space for one answer: it knows all symbols of this one, and its own are dropped with it."""
        made = Symbols.__new__(Symbols)
        vars(made).update(vars(self))
        made.arithmetic = replace(self.arithmetic, pieces=0, length=1)
        made.table, made.budgets, made._declared = list(self.table), list(self.budgets), dict(self._declared)
        made._ledger = self._looking
        first = ANSWERED * (1 + self._looking.registry.first // ANSWERED)  # numbers that no space before it gives out
        made._looking = Ledger(Registry(first, self._looking.registry), self._looking)
        made._aside, made.support = True, Support(made, self.support)
        made._parent, made._inherited = self, len(self.table)
        if threat is not None:
            made.declare(threat)
        return made

    @property
    def looked_at(self) -> bool:
        """Whether what is made now is made by somebody who looks at the run: a callback, or an answer."""
        return self._aside

    says_what_is_recorded = True  # False: read from a file of an earlier version
    _parent: Symbols | None = None
    _inherited = 0  # parts of threats in its table that a child has from its parent

    def restore(
        self,
        numbers: np.ndarray,
        owners: np.ndarray,
        parts: np.ndarray,
        table: list[Part],
        budgets: list[int | None],
        columns: np.ndarray | None = None,
        recorded: Recorded = NOTHING,
    ) -> None:
        """Symbols of another space under the same numbers, as a file holds them; one of version 0.1 has no columns."""
        self._registry = Registry(int(numbers.max(initial=-1)) + 1, Written(numbers, owners, parts, columns))
        self._ledger = Ledger(self._registry)
        self._ledger.recorded, self.says_what_is_recorded = [recorded], columns is not None
        self._looking = Ledger(Registry(LOOKED_AT, self._registry), self._ledger)
        self.table, self.budgets = table, budgets

    def knows(self, numbers: np.ndarray) -> bool:
        """Whether all of these symbols are of this space."""
        return bool(self._looking.registry.knows(numbers).all())

    # --- what a loop has told --------------------------------------------------------------------------------------

    def lifts(self, module: nn.Module) -> None:
        """Remember a module that was lifted, for as long as it is there."""
        self._lifted.append(ref(module))

    def lifted_modules(self) -> list[nn.Module]:
        return [module for module in (reference() for reference in self._lifted) if module is not None]

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The attached ones that are still there."""
        return list(self._optimizers)

    def samples_met(self, samples: np.ndarray) -> int:
        """How many samples have symbols once these have."""
        known = self._ledger.first_row
        return len(known) + sum(sample not in known for sample in np.unique(samples).tolist())

    # --- which space --------------------------------------------------------------------------------------------

    @staticmethod
    def common(first: Symbols | None, second: Symbols | None) -> Symbols | None:
        """The space two tensors share. Sets without a threat (plain intervals) fit every space."""
        if first is None or first is second:
            return second
        if second is None or second._unused() or first._descends_from(second):
            return first
        if first._unused() or second._descends_from(first):
            return second
        raise MixedSymbols(
            "tensors of two different symbol spaces met: their generator rows do not mean the same thing. "
            "Lift the model and the data with one Symbols object."
        )

    def _descends_from(self, other: Symbols) -> bool:
        """Whether this is a space for one answer beside the other, or for one within such an answer."""
        space = self._parent
        while space is not None and space is not other:
            space = space._parent
        return space is not None

    def _unused(self) -> bool:
        """A space without a threat that has given out no row yet: what `lift` makes for plain intervals."""
        given_out = self._registry.first + self._registry.count + self._looking.registry.count
        return self.threat is None and given_out == 0

    # --- what users call --------------------------------------------------------------------------------------

    def lift(self, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """A batch as the threat could have left it; ``index`` holds the number of each sample in the dataset."""
        if self.threat is None:
            raise MixedSymbols("these symbols have no threat: build them as bf.Symbols(bf.threats.Linf(epsilon))")
        inputs, targets, weights = self.threat.lift(self, x, y, index)
        if weights is not None:
            raise MixedSymbols("samples can be removed: use symbols.threat.lift(symbols, x, y, index) and its weights")
        if self.threat.touches("gradients"):
            raise MixedSymbols("samples can be replaced: use certify(..., clip_gradients=C), which clips each gradient")
        return inputs, targets

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        """Promote gradient errors to rows before each step of an optimizer, and reduce the rows after it.

        Several optimizers may be attached to one space.
        """
        self._number(optimizer)
        optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: self.promote(optimizer))
        optimizer.register_step_post_hook(lambda optimizer, args, kwargs: self.reduce(optimizer))

    def promote(self, optimizer: torch.optim.Optimizer) -> None:
        """Give the radius of every gradient rows of its own."""
        with using(self.arithmetic):
            reductions.promote(self, optimizer)

    def reduce(self, optimizer: torch.optim.Optimizer) -> None:
        """Bring all state of the optimizer under the row budget, and its radii into rows."""
        with using(self.arithmetic):
            reductions.reduce(self, optimizer)

    # --- derived symbols ----------------------------------------------------------------------------------------

    def _number(self, optimizer: torch.optim.Optimizer) -> int:
        if optimizer not in self._optimizers:
            self._optimizers[optimizer], self._numbered = self._numbered, self._numbered + 1
        return self._optimizers[optimizer]

    def count_step(self, optimizer: torch.optim.Optimizer) -> None:
        """One more step of an optimizer. Two optimizers that take turns are one step further, not two."""
        number = self._number(optimizer)
        self._counted[number] = self._counted.get(number, self.resumed_at) + 1
        self.steps = max(self.steps, self._counted[number])

    def expands(self, optimizer: torch.optim.Optimizer, expansion: Expansion) -> None:
        """Remember what the derived symbols of the last reduction of an optimizer stand for."""
        number = self._number(optimizer)
        several = len(self._optimizers) > 1
        self._expansions[number] = (expansion, *self._expansions.get(number, ())[: int(several)])
        self.expansion = Expansion.joined([part for kept in self._expansions.values() for part in kept])

    def expand(self, generators: Tensor, rows: Rows) -> tuple[Tensor, Rows, Tensor]:
        """Generators (rows, n) written over symbols that are not derived, and what this may be off by."""
        expansion = self.expansion
        if expansion is None:
            return generators, rows, generators.new_zeros(generators.shape[1:])
        deep, error = expansion.expanded(generators.T, rows)
        view = expansion.view(rows)
        numbers = np.concatenate((expansion.deep.numbers, rows.numbers[view.others]))
        return torch.cat((deep.T, generators[view.other])), Rows(numbers), error
