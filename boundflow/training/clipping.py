"""Per-sample clipping: what bounds the influence of a sample that may be anything.

    gradient of a batch = 1/B sum_i clip(g_i),     clip(g) = g min(1, C / (|g| + 1e-6))     as PyTorch clips norms

A replaced sample has any features and any label, so its gradient is only known to be clipped: every coordinate lies in
[-C, C]. As an affine form, with ``F + rho zeta`` the gradient of the observed sample, F = c + G xi, which is at most M,
and v the gradient of the replaced one, ``|v - F| <= C + M + rho``: that is its radius where the sample is touched
(`clean_state.py`). A gradient that is not finite (features can be so large that it overflows) counts as zero, or no
norm would bound it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from ..arithmetic import rounding
from ..errors import UnsupportedProgram
from ..sets.clean_state import Remainder
from ..sets.sample_axis import SampleAxis, Samples
from ..sets.set import Set
from ..tensor.bounded import Bounded
from ..threats import Replacement, Threat


def clipped_gradients(
    model: nn.Module, index: Tensor, backward: Callable[[Tensor], Tensor], norm: float, threat: Threat | None
) -> Tensor:
    """Leave the mean of the clipped gradients of the samples ``index`` in a model; gives the mean loss.

    ``backward`` makes the backward pass of one sample. On sets, ``threat`` says which samples may be replaced.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gathered: list[list[Tensor]] = [[] for _ in parameters]
    losses = []
    for one in torch.split(index, 1):
        losses.append(backward(one))
        nn.utils.clip_grad_norm_(parameters, norm)
        for parameter, kept in zip(parameters, gathered, strict=True):
            if parameter.grad is not None:
                finite = parameter.grad if isinstance(parameter.grad, Bounded) else _finite(parameter.grad)
                kept.append(finite)
            parameter.grad = None
    scalars = sum(parameter.numel() for parameter in parameters)
    with torch.no_grad():
        for parameter, kept in zip(parameters, gathered, strict=True):
            if not kept:  # a parameter that no loss depends on stays as it is
                continue
            if len(kept) < len(index):
                raise UnsupportedProgram("a parameter is part of the loss of some samples and not of others")
            stacked: Tensor = torch.stack(kept)
            if isinstance(stacked, Bounded):
                largest = largest_coordinate(norm, scalars, stacked.dtype)
                stacked = Bounded(_replaced(_within(stacked.set, largest), largest, threat, index.cpu().numpy()))
            parameter.grad = stacked.sum(0) / len(index)
        return torch.stack(losses).sum() / len(index)


def largest_coordinate(norm: float, scalars: int, dtype: torch.dtype) -> float:
    """No coordinate of a clipped gradient of so many scalars exceeds this: a sum of squares, roots, and a quotient."""
    return norm * (1 + rounding.gamma(scalars + 16, dtype))


def _finite(gradient: Tensor) -> Tensor:
    return torch.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0)


def _within(gradients: Set, largest: float) -> Set:
    """No coordinate of a clipped gradient exceeds the norm."""
    return Set(gradients.bounds.clamp(-largest, largest), gradients._form, gradients.symbols)


def _replaced(gradients: Set, largest: float, threat: Threat | None, samples: np.ndarray) -> Set:
    """Gradients of which those of touched samples may be anything that is clipped."""
    for clause in threat.clauses if threat is not None else ():
        for change in clause.changes:
            if isinstance(change, Replacement):
                gradients = _one_clause(gradients, largest, clause.budget, change.touched(samples), samples)
    return gradients


def _one_clause(gradients: Set, largest: float, budget: int | None, touched: np.ndarray, samples: np.ndarray) -> Set:
    mask = torch.from_numpy(touched).to(gradients.device).view(-1, *(1,) * (gradients.dim() - 1))
    bounds, form = gradients.bounds, gradients._form
    anything = torch.full_like(bounds[0], largest)
    wide = torch.stack((torch.minimum(bounds[0], -anything), torch.maximum(bounds[1], anything)))
    wide = torch.where(mask, wide, bounds)
    clean_radius = None
    if form is not None:
        clean_radius = form.radius
        radius = rounding.up(largest + bounds.abs().amax(0) + form.radius)
        form = form.with_radius(torch.where(mask, radius, form.radius))
    if budget is None:
        return Set(wide, form, gradients.symbols)
    along = SampleAxis(-gradients.dim(), Samples(samples, budget))
    return Set(wide, form, gradients.symbols, clean=Remainder(bounds, clean_radius), along=along)
