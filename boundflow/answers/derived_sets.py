"""Sets over many rows, asked through one derived symbol for each scalar (`expansion.py`).

What training leaves behind depends on its K symbols through the M scalars of its parameters. A file writes these out
over the K symbols, and so do verified samples. Asked like that, every layer would carry K rows; with

    theta_j = c_j + s_j z_j,        z_j = sum_k (G_kj / s_j) xi_k,        s_j = sum_k |G_kj|

it carries M, as it did in training, and the support function looks through z. It is the same set: nothing is dropped,
and what dividing rounds is among the roundings that `Expansion.expanded` charges for.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from ..arithmetic.thread_context import using
from ..arithmetic.tuned_numbers import DERIVED_FROM
from ..files.certificate_files import over_deep_rows
from ..sets.forms import Form
from ..sets.set import Set
from ..symbols.reduction import expansion_of
from ..symbols.rows import Rows
from ..symbols.space import Symbols
from ..tensor.bounded import Bounded


def asked_through_derived_symbols(model: nn.Module) -> nn.Module:
    """The same sets in a space of their own, over derived symbols; the model itself where it carries few rows."""
    sets = [x for x in (*model.parameters(), *model.buffers()) if isinstance(x, Bounded) and x.affine]
    scalars, most = sum(x.numel() for x in sets), max((len(x.form.rows) for x in sets), default=0)
    space = sets[0].symbols if sets else None
    if space is None or most < DERIVED_FROM * scalars or space.arithmetic.shares is not None:
        return model
    made, child = copy.deepcopy(model), space.child()
    with torch.no_grad(), using(child.arithmetic):
        every = [x for x in (*made.parameters(), *made.buffers()) if isinstance(x, Bounded)]
        for x in every:  # also those without rows: an answer takes its space from any of them
            _put(x, x.set._form, child)
        held = [x for x in every if x.affine]
        forms = [over_deep_rows(x).form for x in held]
        rows = _by_owner(space, forms)
        lines = [rows.place(form.generators.reshape(len(form.rows), -1), form.rows).T for form in forms]
        child.expansion, scale = expansion_of(child, torch.cat(lines), rows)
        begin = 0
        for x, form in zip(held, forms, strict=True):
            part = slice(begin, begin + x.numel())
            generators = scale[part].diag().view(x.numel(), *x.shape)
            own = Form(form.center, generators, form.radius, Rows(child.expansion.derived.numbers[part]))
            _put(x, own, child)
            begin = part.stop
    return made


def _put(x: Bounded, form: Form | None, space: Symbols) -> None:
    """The same interval with this form, in this space."""
    found = Set(x.set.bounds, form, space, x.set.exact, x.set.nonnegative)
    found.parameter = x.set.parameter
    x.set = found


def _by_owner(space: Symbols, forms: Sequence[Form]) -> Rows:
    """All rows of some forms, those of one part of the threat and one owner side by side, as a support takes them."""
    numbers = np.unique(np.concatenate([form.rows.numbers for form in forms]))
    owners, parts = space.owners_and_parts(numbers)
    return Rows(numbers[np.lexsort((numbers, owners, parts))])
