"""Training samples that somebody has verified: their symbols are fixed, and nothing is trained again.

Of every execution w (one dataset, one order of roundings) a parameter is

    theta(w) = c + sum_k G_k xi_k(w) + rho zeta(w)

with one value of every symbol. Where sample i of that dataset is as it was recorded, its symbols are known: 0 where the
center of its set is the observed value, ``(recorded - center) / reach`` elsewhere (`recorded_values.py`). So all
datasets that leave the verified samples V alone give models in

    c + sum_(k of V) G_k xi_k + sum_(k not of V) G_k xi_k + rho zeta,     intersected with [lower, upper] as before:

rows of V go into the center, and what the enclosure of their values and the sum may be off by goes into the radius.
Under a budget, no verified sample is among the touched ones, so the k largest terms are those of the others: dropping
rows does exactly that. Errors that had absorbed what a verified sample could do stay as they are, which is
conservative. A cell in which nothing is recorded keeps its symbol, until a value is filled in.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..arithmetic import rounding
from ..arithmetic.thread_context import using
from ..errors import BoundFlowError
from ..sets.forms import Form
from ..sets.set import Set, concretised, intersected
from ..symbols.budgets import Kind
from ..symbols.recorded_values import Recorded
from ..symbols.rows import Rows
from ..symbols.space import Symbols
from ..symbols.symbol_numbers import NOBODY
from ..tensor.bounded import Bounded
from ..tensor.lift import Given

OLD = "this certificate does not say what was recorded of its samples, like files of earlier versions: train it again"
UNTRACKED = (
    "this run did not track its samples, so what they did cannot be told apart: train with the zonotope domain, a "
    "threat to samples that are not replaced, and enough memory for rows"
)


class Fixed(NamedTuple):
    """Symbols whose value is known, (n) ascending, and bounds of the values, (2, n)."""

    numbers: np.ndarray
    values: Tensor
    filled: list[tuple[int, int, float]]  # sample, column and value of cells in which nothing had been recorded


class Tracked(NamedTuple):
    """The space of a set of models, the symbols that its parameters depend on, and who owns each."""

    space: Symbols
    symbols: np.ndarray
    owners: np.ndarray


def numbers_of(samples: Given, count: float) -> np.ndarray:
    """Numbers of training samples, of which there are so many, from numbers or a mask."""
    chosen = np.asarray(samples)
    if chosen.dtype == bool and chosen.shape != (count,):
        raise ValueError(f"a mask over {chosen.size} samples, and the training data have {count}")
    chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.reshape(-1)
    if len(chosen) and (chosen.dtype.kind not in "iu" or chosen.min() < 0 or chosen.max() >= count):
        raise ValueError(f"samples are counted from 0 to {count - 1}, as they stand in the training data")
    if len(np.unique(chosen)) < len(chosen):
        raise ValueError("a sample is among the verified ones twice: a mask is of truths, not of 0 and 1")
    return chosen.astype(np.int64)


def tracked(model: nn.Module | None) -> Tracked:
    """What a set of models says about samples, or an error where it says nothing."""
    sets = [p for p in model.parameters() if isinstance(p, Bounded) and p.affine] if model is not None else []
    numbers = [deep_numbers(x) for x in sets]
    if sets and sets[0].symbols is not None:
        symbols = np.unique(np.concatenate(numbers))
        owners = sets[0].symbols.owners_and_parts(symbols)[0]
        if bool((owners != NOBODY).any()):
            return Tracked(sets[0].symbols, symbols, owners)
    raise BoundFlowError(UNTRACKED)


def deep_numbers(x: Bounded) -> np.ndarray:
    """The symbols that are not derived of which a set depends."""
    rows, expansion = x.form.dense.rows, x.symbols.expansion if x.symbols is not None else None
    if expansion is None:
        return rows.numbers
    return np.concatenate((expansion.deep.numbers, rows.numbers[expansion.view(rows).others]))


def fixed(known: Tracked, samples: np.ndarray, cells: np.ndarray | None, stand_in: bool = False) -> Fixed:
    """What is known of the symbols of verified samples; ``cells`` (samples, features) fills in what was missing.

    With ``stand_in`` a cell without a value counts as what plain training saw there: a forecast, and no more.
    """
    space, recorded = known.space, known.space.recorded()
    if recorded is None:
        raise BoundFlowError(OLD)
    mine = known.symbols[np.isin(known.owners, samples)]
    apart = recorded.among(mine)
    opened = apart.numbers[apart.is_open]
    apart = _filled(space, apart, samples, cells)
    if stand_in:
        apart = apart.filled(apart.center)
    numbers = np.setdiff1d(mine, apart.numbers[apart.is_open])
    values = torch.zeros(2, len(numbers), dtype=torch.float64)
    with using(space.arithmetic):
        values[:, torch.from_numpy(np.searchsorted(numbers, apart.numbers[~apart.is_open]))] = apart.symbols()
    return Fixed(numbers, values, _cells(space, apart, np.setdiff1d(opened, apart.numbers[apart.is_open])))


def _cells(space: Symbols, recorded: Recorded, symbols: np.ndarray) -> list[tuple[int, int, float]]:
    """The cells of these symbols, with what was filled in."""
    owners, columns = space.owners_and_parts(symbols)[0], space.columns(symbols)
    values = recorded.observed[np.searchsorted(recorded.numbers, symbols)]
    return list(zip(owners.tolist(), columns.tolist(), values.tolist(), strict=True))


def _filled(space: Symbols, recorded: Recorded, samples: np.ndarray, cells: np.ndarray | None) -> Recorded:
    """What is recorded, with the cells that were filled in; a value out of its range is refused."""
    if cells is None or not len(recorded.numbers):
        return recorded
    owners, columns = space.owners_and_parts(recorded.numbers)[0], space.columns(recorded.numbers)
    order = np.argsort(samples)
    rows = order[np.searchsorted(samples, owners, sorter=order)]
    given = np.where(columns >= 0, cells[rows, np.maximum(columns, 0)], np.nan)
    _require_one_category(space, recorded, given)
    # what differs by less was written and read again
    other = ~recorded.is_open & (np.abs(given - recorded.observed) > 1e-6 * recorded.reach)
    if other.any():
        first = int(np.flatnonzero(other)[0])
        raise ValueError(
            f"sample {owners[first]}: {given[first]:g} in column {columns[first]}, where {recorded.observed[first]:g} "
            "was recorded: a verified sample is as it was recorded"
        )
    outside = recorded.is_open & (np.abs(given - recorded.center) > recorded.reach)
    if outside.any():
        first = int(np.flatnonzero(outside)[0])
        raise ValueError(
            f"sample {owners[first]}: {given[first]:g} in column {columns[first]} is outside the range that its "
            "missing value was said to have"
        )
    return recorded.filled(given)


def _require_one_category(space: Symbols, recorded: Recorded, given: np.ndarray) -> None:
    """Refuse a missing category that is filled in by anything but a single 1 among its columns, and 0 in the others."""
    owners, parts = space.owners_and_parts(recorded.numbers)
    simplex = np.array([part.kind is Kind.SIMPLEX for part in space.table], dtype=bool)
    held = recorded.is_open & simplex[parts]
    groups, which = np.unique(np.stack((owners[held], parts[held])), axis=1, return_inverse=True)
    which = which.reshape(-1)  # of some versions of numpy it has an axis more
    values, count = given[held], groups.shape[1]
    ones, zeros, all_of_it = (np.bincount(which, part, count) for part in (values == 1, values == 0, values == values))
    size = np.bincount(which, minlength=count)
    wrong = (all_of_it > 0) & ((ones != 1) | (ones + zeros != size))
    if wrong.any():
        first = groups[0][wrong][0]
        raise ValueError(f"sample {first}: a category that was missing is 1 in one of its columns and 0 in the others")


def with_fixed(model: nn.Module, space: Symbols, known: Fixed) -> nn.Module:
    """The same set of models where some symbols are known."""
    made = copy.deepcopy(model)
    with torch.no_grad(), using(space.arithmetic):
        for module in made.modules():
            for held in (module._parameters, module._buffers, vars(module)):
                for value in held.values():
                    if isinstance(value, Bounded) and value.affine:
                        value.set = _with_fixed(value, space, known)
    return made


def deep_rows(x: Bounded) -> tuple[Tensor, Rows, Tensor]:
    """The rows of a set over symbols that are not derived, (K, elements), and what writing them out is off by."""
    form = x.form.dense
    assert x.symbols is not None
    return x.symbols.expand(form.generators.reshape(len(form.rows), x.numel()), form.rows)


def _with_fixed(x: Bounded, space: Symbols, known: Fixed) -> Set:
    generators, rows, error = deep_rows(x)
    gone, device = np.isin(rows.numbers, known.numbers), generators.device
    places = torch.from_numpy(np.searchsorted(known.numbers, rows.numbers[gone]))
    dropped, kept = (generators[torch.from_numpy(np.flatnonzero(part)).to(device)] for part in (gone, ~gone))
    center, radius = _moved(x.form.dense, dropped, known.values[:, places].to(device), error)
    form = Form(center, kept.reshape(len(kept), *x.shape), radius, Rows(rows.numbers[~gone]))
    if not len(kept):
        cut = intersected("verified", x.set, rounding.around(center, radius))
        return Set(cut.bounds, None, space, nonnegative=x.set.nonnegative)
    made = concretised("verified", x.set.bounds, form, space, x.set.nonnegative)
    made.parameter = x.set.parameter
    return made


def _moved(form: Form, rows: Tensor, values: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """The center with rows times values, which are known up to bounds (2, n), added to it; and the radius.

    ``|sum G_k xi_k - sum G_k m_k| <= sum |G_k| off_k``, and a sum of n products and the center, converted, is off by
    n + 2 roundings of its moduli, of which gamma_(n+2) holds twice as many and eight more: these pay for the roundings
    of the spread and of this charge. Values at exactly 0 move nothing and cost nothing.
    """
    shape, dtype, count = form.center.shape, form.center.dtype, len(rows) + 2
    middle = 0.5 * (values[0] + values[1])
    off = torch.maximum(values[1] - middle, middle - values[0])
    wide, size = rows.double(), rows.double().abs()
    moved, moduli, spread = ((a @ b).reshape(shape) for a, b in ((middle, wide), (middle.abs(), size), (off, size)))
    stays = ~(rows != 0)[(values != 0).any(0)].any(0).reshape(shape)  # not by products, which may underflow
    center = torch.where(stays, form.center, (form.center.double() + moved).to(dtype))
    charge = rounding.gamma(count, dtype) * (form.center.abs() + moduli + spread) + rounding.tiny(count, dtype)
    added = torch.where(stays, 0.0, spread + charge).to(dtype) + error.reshape(shape)
    return center, torch.where(added == 0, form.radius, rounding.up(form.radius + added))
