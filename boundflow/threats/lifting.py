"""A batch as the attacker could have left it: every change's rows side by side, around one center.

    x' = center + sum of all rows + radius zeta,     radius = sum of the changes' radii + gamma_m max |x'|

where the last term pays for adding up m moves of the same value, where there is more than one: m roundings of 2 m + 8.
The rest pays for the sum of the radii, which are a few units of the value themselves. A sample that was left
alone under a budget has the rows and radii of the changes without one: the others have symbols at zero, and what was
not moved was not rounded.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..arithmetic import rounding
from ..rules.linear import combination
from ..sets.clean_state import Remainder
from ..sets.forms import Form, ball_form
from ..sets.sample_axis import SampleAxis, Samples
from ..sets.set import Set, concretised
from ..symbols.recorded_values import LABEL, PRESENCE, Meaning
from ..symbols.rows import Rows
from ..symbols.space import Symbols
from ..tensor import layout
from ..tensor.bounded import Bounded
from .deviation import Deviation, Diagonal, positions

if TYPE_CHECKING:
    from .base import Change, Threat


class Lifted(NamedTuple):
    """A batch as the attacker could have left it. ``weights`` are those of the samples, if not all are 1."""

    inputs: Tensor
    targets: Tensor
    weights: Tensor | None


class Made(NamedTuple):
    """What one change does to the batch, and whether a budget counts it."""

    change: Change
    budgeted: bool
    deviation: Deviation


class Lifting:
    """One batch being lifted."""

    def __init__(
        self, threat: Threat, symbols: Symbols | None, x: Tensor, y: Tensor, samples: np.ndarray, guests: bool = False
    ):
        self.threat, self.symbols, self.samples, self.guests = threat, symbols, samples, guests
        self.given, x = x, x.contiguous()
        self.raw = x
        for change in threat.changes:
            y = change.encoded(y, x)
        weights = torch.ones(len(x), dtype=x.dtype, device=x.device) if threat.touches("weights") else None
        self.values: dict[str, Any] = {"inputs": threat.observed(x, samples), "targets": y, "weights": weights}

    def lifted(self) -> Lifted:
        found: list[Made] = []
        parts: list[int] = []  # of the threat that each row belongs to
        number = self.symbols.declare(self.threat) if self.symbols is not None else 0
        for clause in self.threat.clauses:
            for change in clause.changes:
                if change.about in self.values:  # of a replaced sample nothing is lifted: see `clipping.py`
                    found.append(self._made(change, clause.budget is not None))
                    parts += [number] * len(found[-1].deviation.generators)
                number += 1
        rows = self._rows(parts, found)
        whose = self._samples(rows)
        inputs, targets, weights = (self._set(what, found, rows, whose, len(parts)) for what in self.values)
        if any(made.change.adds_to_one for made in found):
            targets.set.adds_to_one = targets.dim() == 2  # whatever the label is, it is one of them
        return Lifted(inputs, targets, weights)

    def _made(self, change: Change, budgeted: bool) -> Made:
        """What a change does; nothing at the positions of samples that it is not about."""
        values = self.values[change.about]
        alone = sum(other.about == change.about for other in self.threat.changes) == 1
        deviation = change.deviation(values, self.raw, budgeted=budgeted or not alone)
        touched = change.touched(self.samples)
        if not touched.all():
            deviation = deviation.masked(positions(touched, values), values)
        return Made(change, budgeted, deviation)

    def _rows(self, parts: list[int], found: list[Made]) -> Rows | None:
        """The symbols of the batch, one for each sample and part; None where nothing is tracked."""
        if self.symbols is None or not parts:
            return None
        if self.guests:
            return self.symbols.of_guests(len(self.samples), np.array(parts))
        if self.symbols.tracks:
            meaning, still = partial(self._meaning, found), _still(found)
            return self.symbols.of_samples(self.samples, self._fingerprints(), np.array(parts), meaning, still)
        return None

    def _samples(self, rows: Rows | None) -> Samples:
        """Whose positions the batch holds. Symbols that a budget counts are 0 where a sample was left alone."""
        first = self.symbols.declare(self.threat) if self.symbols is not None else 0
        budgets = [clause.budget for clause in self.threat.clauses for _ in clause.changes]
        zero_when_clean = frozenset(first + number for number, budget in enumerate(budgets) if budget is not None)
        if rows is not None and rows.batch is not None:
            return Samples.of(rows.batch, self.threat.budget, zero_when_clean)
        return Samples(self.samples, self.threat.budget, zero_when_clean)

    def _meaning(self, found: list[Made]) -> Meaning:
        """What the rows stand for: the column each moves, and what was recorded there."""
        columns, values = [], []
        for change, _, deviation in found:
            rows = deviation.generators
            named = {"targets": LABEL, "weights": PRESENCE}.get(change.about, change.column)
            diagonal = isinstance(rows, Diagonal) and change.about == "inputs"
            columns.append(rows.features.cpu().numpy() if diagonal else np.broadcast_to(named, len(rows)))  # type: ignore[union-attr]
            values.append(self._recorded(change, deviation))
        return Meaning(np.concatenate(columns), *(np.concatenate(part, 1) for part in zip(*values, strict=True)))

    def _recorded(self, change: Change, deviation: Deviation) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What was observed, center and reach of each row of a change, (B, rows); rows at 0 have reach 0."""
        observed = self.values[change.about] if change.has_clean_state else self.raw
        rows, count = deviation.generators, len(observed)
        if isinstance(rows, Diagonal):
            parts = (observed, deviation.center, rows.radius)
            return tuple(part.reshape(count, -1)[:, rows.features].detach().cpu().numpy() for part in parts)  # type: ignore[return-value]
        nothing = np.zeros((count, len(rows)))
        if change.has_clean_state:
            return nothing, nothing, nothing
        missing = (rows != 0).reshape(len(rows), count, -1).any(2).T.cpu().numpy()
        return np.full_like(nothing, np.nan), nothing, missing.astype(np.float64)  # 1 for the category that it was

    def _fingerprints(self) -> np.ndarray:
        flat = [self.raw.detach().cpu().reshape(len(self.raw), -1).double()]
        if self.threat.touches("targets"):
            flat.append(self.values["targets"].detach().cpu().reshape(len(self.raw), -1).double())
        return torch.cat(flat, 1).numpy()

    def _set(self, what: str, found: list[Made], rows: Rows | None, whose: Samples, count: int) -> Any:
        """The set of one of inputs, targets and weights."""
        values = self.values[what]
        mine = [made.deviation for made in found if made.change.about == what]
        if values is None or not mine:
            return values
        free = [made.deviation for made in found if made.change.about == what and not made.budgeted]
        bounds, clean_bounds = _added(values, mine), _added(values, free)
        center = mine[0].center  # the observed values, unless one change has moved it
        form = ball_form(center, rounding.deviation(bounds, center)) if whose.budget is not None else None
        clean_radius, along = None, SampleAxis(-values.dim(), whose)
        if rows is not None:
            generators = self._side_by_side(what, found, count)
            form = Form(center, generators, _off(values, mine, bounds), rows, along)
            clean_radius = _off(values, free, clean_bounds)
        clean = Remainder(clean_bounds, clean_radius) if whose.budget is not None else None
        if rows is None:
            lifted = Set(bounds, form, self.symbols, clean=clean, along=along)
        else:  # the interval is exact
            lifted = concretised("lift", bounds, form, self.symbols, clean=clean, sharp=False, along=along)
        return Bounded(lifted, strides=layout.of(self.given) if what == "inputs" else None)

    def _side_by_side(self, what: str, found: list[Made], count: int) -> Tensor:
        """The rows of all changes, which are zero for changes of something else."""
        values: Tensor = self.values[what]
        generators, begin = values.new_zeros(count, *values.shape), 0
        for made in found:
            own = made.deviation.generators
            if made.change.about == what:
                generators[begin : begin + len(own)] = own.written_out() if isinstance(own, Diagonal) else own
            begin += len(own)
        return generators


def _still(found: list[Made]) -> np.ndarray | None:
    """Which symbols reach nothing, (samples, rows): those of values that could be missing, and are not."""
    if all(made.change.has_clean_state for made in found):
        return None
    parts = []
    for made in found:
        rows, center = made.deviation.generators, made.deviation.center
        if made.change.has_clean_state:
            reached = torch.ones(len(center), len(rows), dtype=torch.bool)
        elif isinstance(rows, Diagonal):
            reached = rows.radius.reshape(len(center), -1)[:, rows.features] != 0
        else:
            reached = (rows != 0).flatten(2).any(2).T if len(rows) else torch.ones(len(center), 0, dtype=torch.bool)
        parts.append(~reached.cpu())
    return torch.cat(parts, 1).numpy()


def _added(values: Tensor, deviations: list[Deviation]) -> Tensor:
    """Bounds of values to which several changes are made."""
    if not deviations:
        return torch.stack((values, values))
    if len(deviations) == 1:
        return deviations[0].bounds
    moved = [(Set(made.bounds), 1.0) for made in deviations]
    total = combination("lift", [*moved, (values, 1.0 - len(deviations))]).bounds
    hull = torch.stack([made.bounds for made in deviations])
    hull = torch.stack((hull[:, 0].amin(0), hull[:, 1].amax(0)))
    total = torch.stack((torch.minimum(total[0], values), torch.maximum(total[1], values)))
    return torch.where(_several(deviations), total, hull)


def _off(values: Tensor, deviations: list[Deviation], bounds: Tensor) -> Tensor:
    """What values to which several changes are made can be off their rows by."""
    radii = [made.radius for made in deviations if made.radius is not None]
    total = torch.stack(radii).sum(0) if radii else torch.zeros_like(values)
    if len(deviations) > 1:  # the sum of several moves is rounded where the attacker's data are floats
        charge = rounding.gamma(len(deviations), values.dtype) * bounds.abs().amax(0)
        total = torch.where(_several(deviations), total + charge, total)
    return total


def _several(deviations: list[Deviation]) -> Tensor:
    """Where more than one change moves a value: elsewhere nothing is added up, and nothing is rounded by that."""
    return torch.stack([made.bounds[0] < made.bounds[1] for made in deviations]).sum(0) > 1
