"""States: one linear part, and one remainder for each state that an operator's operands are known in.

    T = c + G xi + remainder,      one remainder for T as it is, one for T where its own sample was left alone

A rule says what it does to the linear part, once, and what it does to *a* remainder. `States` runs the second for
every state there is, and puts the result together. What the second state is good for: `clean_state.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..sets.clean_state import Remainder as Remainder
from ..sets.factors import Factors
from ..sets.forms import Form
from ..sets.sample_axis import SampleAxis
from ..sets.set import Check, Set, concretised
from ..symbols.rows import Rows
from .operand_properties import Part, samples_of, symbols_of


class Linear(NamedTuple):
    """The linear part of an affine form: it is one and the same in every state."""

    center: Tensor
    generators: Tensor
    rows: Rows
    along: SampleAxis | None
    moduli: Tensor | None = None  # of the rows, added up, where that is known


def linear_part(form: Form) -> Linear:
    return Linear(form.center, form.generators, form.rows, form.along)


class States(Generic[Part]):
    """The states of an operator's operands: as they are, and, under a budget, where the own sample was left alone.

    A rule says what it does to the linear part, once, and what it does to a remainder, for each state:

        over = States(a, b)
        over.result("mul", [remainder(x, y) for x, y in over.views], linear, ...)

    The second state is there if all operands agree on whose samples they hold.
    """

    def __init__(self, *operands: Part, found: SampleAxis | None | bool = True):
        self.operands: tuple[Part, ...] = operands
        self.views: list[tuple[Part, ...]] = [operands]
        if found is True:
            found = None
            for x in operands:
                if isinstance(x, Set) and x.clean is not None:
                    found = samples_of(*operands)
                    break
        self.found: SampleAxis | None = found or None
        if self.found is not None:
            self.views.append(tuple(x.untouched if isinstance(x, Set) else x for x in operands))

    def result(
        self,
        name: str,
        remainders: Sequence[Remainder],
        linear: Linear | None = None,
        *,
        nonnegative: bool = False,
        sharp: bool = True,
        factors: Factors | None = None,
        check: Check = Check.EVERYTHING,
        waits: bool = False,
    ) -> Set:
        """The set with this linear part and these remainders, one for each state."""
        (bounds, radius), form = remainders[0], None
        if linear is not None:
            assert radius is not None
            form = Form(linear.center, linear.generators, radius, linear.rows, linear.along, moduli=linear.moduli)
        clean = remainders[1] if self.found is not None else None
        symbols = symbols_of(*self.operands)
        how = (nonnegative, clean, sharp, factors, check, self.found, waits)
        return concretised(name, bounds, form, symbols, *how)

    def middle(self, above: Sequence[Tensor], below: Sequence[Tensor] | None = None) -> tuple[Tensor, list[Tensor]]:
        """One middle m of what lies in [-below, above], or in [0, above], in each state, and how far that is off it.

        All states share their center. The middle of clean samples, or of touched ones, whichever makes the errors add
        up to less over the samples.
        """

        def off(middle: Tensor) -> list[Tensor]:
            down = [middle] * len(above) if below is None else [rounding.up(middle + reach) for reach in below]
            return [torch.maximum(d, rounding.up(up - middle)) for d, up in zip(down, above, strict=True)]

        middles = [0.5 * up for up in above]
        if below is not None:
            middles = [m - 0.5 * down for m, down in zip(middles, below, strict=True)]
        elif self.found is None:
            return middles[0], middles
        if self.found is None:
            return middles[0], off(middles[0])
        (touched, clean), (other_touched, other_clean) = off(middles[1]), off(middles[0])
        first = self.found.cheaper_line((touched, clean), (other_touched, other_clean))
        chosen = [torch.where(first, touched, other_touched), torch.where(first, clean, other_clean)]
        return torch.where(first, middles[1], middles[0]), chosen
