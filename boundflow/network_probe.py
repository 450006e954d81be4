"""What a plain model answers to fixed inputs: how a file knows its network again.

Files hold parameters and no code. A module of other code may fit the parameters and compute something else, and bounds
read into it would be those of a stranger. So a file holds the answers of its network to a few inputs, small and large,
and a module that answers otherwise is refused.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from . import rounding
from .errors import BoundFlowError

NAME = "answers"  # of the tensor, in a file
PROBES = 16


def answers(model: nn.Module, shape: Sequence[int] | None) -> dict[str, Tensor]:
    """The answers in evaluation mode, under their name; nothing where the model does not take such inputs."""
    if shape is None:
        return {}
    numbers = torch.sin(torch.arange(1.0, 1.0 + PROBES * math.prod(shape), dtype=torch.float64) ** 2)
    sizes = 10 ** torch.linspace(-1, 2, PROBES, dtype=torch.float64)
    inputs = numbers.view(PROBES, *shape) * sizes.view(-1, *(1,) * len(shape))
    reference = next(model.parameters())
    try:
        with torch.no_grad():
            found = copy.deepcopy(model).eval()(inputs.to(reference.device, reference.dtype)).cpu()
    except Exception:  # code of the user, which may be about other inputs
        return {}
    return {NAME: found}


def require_same(model: nn.Module, shape: Sequence[int] | None, tensors: dict[str, Tensor], path: object) -> None:
    """Refuse a module whose answers are not those among the tensors of a file."""
    found, expected = answers(model, shape).get(NAME), tensors.get(NAME)
    if found is None or expected is None or found.shape != expected.shape:
        same = found is expected
    else:  # as another machine may round them
        sizes = expected.nan_to_num(0.0, 0.0, 0.0).flatten(1).abs().amax(1).view(-1, *(1,) * (expected.dim() - 1))
        close = (found - expected).abs() <= math.sqrt(rounding.unit(found.dtype)) * (1 + sizes)
        same = bool((close | (found == expected) | (found.isnan() & expected.isnan())).all())
    if not same:
        raise BoundFlowError(f"{path} does not fit this model: it answers otherwise than the one that was trained")
