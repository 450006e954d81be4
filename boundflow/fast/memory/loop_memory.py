"""Memory as a promise in a loop of one's own: a batch is refused before a step on it would not fit.

What a step takes goes by the sizes of `needed_memory.py`. Of a loop are known the modules that were lifted, the
optimizers that were attached, the batch, and the samples that came so far, whose rows are there from then on. How many
steps there will be is not known, so error rows are counted as if all that ``order`` allows were there. Nothing is taken
in pieces here: the loop is the user's.
"""

from __future__ import annotations

import copy
import random
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import TooLittleMemory
from ...symbols.rows import NO_ROWS
from ...symbols.space import Symbols
from ...tensor.bounded import Bounded
from ...tensor.draws import Draws
from .needed_memory import Need, Owned, Sizes, activations, sets_held

if TYPE_CHECKING:
    from ...threats import Threat


def require_room(space: Symbols, threat: Threat, x: Tensor, y: Tensor, samples: np.ndarray) -> None:
    """Refuse a batch, before it is lifted, if a step on it would take more than the memory of the space."""
    modules = space.lifted_modules()
    if space.memory is None or space.looked_at or not modules or not len(x):
        return
    batch, met = len(x), space.samples_met(samples) if space.tracks else 0
    if batch <= space.fitted[0] and met <= space.fitted[1]:
        return
    need = _need(space, modules, threat, x, _owned(threat, x, y, met) if space.tracks else Owned(0, 0))
    if need.exceeds(space.memory, batch):
        untracked = _need(space, modules, threat, x, Owned(0, 0)) if space.tracks else None
        raise TooLittleMemory.in_a_loop(
            need.state + batch * need.sample,
            space.memory,
            need.fitting_order(space.memory, batch),
            need.fitting_samples(space.memory),
            None if untracked is None else min(batch, untracked.fitting_samples(space.memory) or 0),
        )
    space.fitted = max(batch, space.fitted[0]), max(met, space.fitted[1])


def own_rows(threat: Threat, x: Tensor, y: Tensor) -> tuple[int, int]:
    """How many rows a sample has, and how many of them are for values that could be missing, and may not be."""
    lifted = threat.lift(Symbols(threat), x[:1], y[:1], [0])
    rows = max((part.form.rows for part in lifted if isinstance(part, Bounded)), key=len, default=NO_ROWS)
    changes = [change for clause in threat.clauses for change in clause.changes]
    parts = [] if rows.batch is None else rows.batch.parts.tolist()
    return len(rows), sum(not changes[part].has_clean_state for part in parts)


def _owned(threat: Threat, x: Tensor, y: Tensor, met: int) -> Owned:
    """Symbols of values that could be missing, and are not, share a row in each batch (`symbol_numbers.py`)."""
    each, missing = own_rows(threat, x, y)
    holes = float(torch.isnan(x).flatten(1).any(1).float().mean()) if missing else 0.0
    return Owned(each, (each - missing) * met + missing * min(met, int(holes * met) + 1))


def _need(space: Symbols, modules: list[nn.Module], threat: Threat, x: Tensor, owned: Owned) -> Need:
    parameters = chain.from_iterable(module.parameters() for module in modules)
    trained = sum(parameter.numel() for parameter in {id(p): p for p in parameters if p.requires_grad}.values())
    held = [
        sets_held(optimizer) * sum(p.numel() for p in chain.from_iterable(g["params"] for g in optimizer.param_groups))
        for optimizer in space.optimizers()
    ]
    before, after = _put_out(space, modules, x)
    return Need.of(
        Sizes(
            trained=trained,
            scalars=sum(held) or trained,
            order=space.order,
            owned=owned,
            before=before,
            after=after,
            batch=len(x),
            outputs=after[-1],
            budget=threat.budget is not None,
            bytes=x.element_size(),
            cuda=x.is_cuda,
        )
    )


def _put_out(space: Symbols, modules: list[nn.Module], x: Tensor) -> tuple[list[int], list[int]]:
    """The numbers that layers put out for a sample, before and after the first trained one, as copies of modules say.

    Of a module that cannot be called like that, alone and with the inputs, those that its weights can put out. The loop
    is not to notice: hooks are left out, and generators are put back.
    """
    before, after = [x[0].numel()], [1]
    for module in modules:
        drawn = random.getstate(), np.random.get_state()
        try:
            copied = copy.deepcopy(module)
            for part in copied.modules():
                part._forward_hooks.clear()
                part._forward_pre_hooks.clear()
            with space.aside(), Draws(0):
                found = activations(copied, x[:1])
        except Exception:  # code of the user, which the loop may call in another way
            found = [0], [2 * len(p) for p in module.parameters() if p.dim() > 1 and p.requires_grad]
        random.setstate(drawn[0])
        np.random.set_state(drawn[1])
        before, after = before + found[0], after + found[1]
    return before, after
