"""What a plain model answers to fixed inputs: how a file knows its network again.

Files hold parameters and no code. A module of other code may fit the parameters and compute something else, and bounds
read into it would be those of a stranger. So a file holds the answers of its network to a few inputs, small and large,
and a module that answers otherwise is refused. A network that takes no such inputs is asked with numbers between 0 and
1, or with 0 and 1 alone; one that takes none of all these cannot be known again, and no file of it is read.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ..arithmetic import rounding
from ..errors import BoundFlowError

NAMES = ("answers", "answers.shares", "answers.flags")  # of the tensor, in a file: by the inputs that were taken
PROBES = 16


def answers(model: nn.Module, shape: Sequence[int] | None) -> dict[str, Tensor]:
    """The answers in evaluation mode, under their name; nothing where the model takes no inputs of any kind."""
    if shape is None:
        return {}
    reference = next(model.parameters())
    for name, inputs in zip(NAMES, _inputs(shape), strict=True):
        try:
            with torch.no_grad():
                return {name: copy.deepcopy(model).eval()(inputs.to(reference.device, reference.dtype)).cpu()}
        except Exception:  # code of the user, which may be about other inputs
            continue
    return {}


def _inputs(shape: Sequence[int]) -> Iterator[Tensor]:
    """Inputs of three kinds: of any sign and size, shares of one, and flags."""
    numbers = torch.sin(torch.arange(1.0, 1.0 + PROBES * math.prod(shape), dtype=torch.float64) ** 2)
    numbers = numbers.view(PROBES, *shape)
    sizes = 10 ** torch.linspace(-1, 2, PROBES, dtype=torch.float64)
    yield numbers * sizes.view(-1, *(1,) * len(shape))
    yield numbers.abs()
    yield (numbers > 0).double()


class _Counted(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the bytes of all that operators give."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = operator(*args, **(kwargs or {}))
        parts = made if isinstance(made, tuple | list) else (made,)
        self.bytes += sum(part.numel() * part.element_size() for part in parts if isinstance(part, Tensor))
        return made


def input_bytes(shape: Sequence[int] | None) -> int:
    """What the inputs of `answers` take, with what they are made from."""
    return 0 if shape is None else 4 * 8 * PROBES * math.prod(shape)


def most_bytes(twin: nn.Module, shape: Sequence[int] | None) -> int:
    """What `answers` may take, at most, of a network without memory (on the meta device)."""
    if shape is None:
        return 0
    counted = _Counted()
    try:
        with torch.no_grad(), counted:
            twin.eval()(torch.empty(PROBES, *shape, device="meta"))
    except Exception:  # the network does not take such inputs, and will not when it is asked
        pass
    return input_bytes(shape) + 2 * counted.bytes  # in float64


def require_same(
    model: nn.Module, shape: Sequence[int] | None, tensors: dict[str, Tensor], path: object, stranger: bool = False
) -> None:
    """Refuse a module whose answers are not those among the tensors of a file; a stranger that takes no inputs, too."""
    asked = answers(model, shape)
    if stranger and shape is not None and not asked:
        raise BoundFlowError(
            f"{path} cannot be read into this model, which raises for each of the inputs that networks are known by "
            "(any numbers, shares of one, zeros and ones): nothing says that it is the one that was trained"
        )
    name = next(iter(asked), NAMES[0])
    found, expected = asked.get(name), tensors.get(name)
    if found is None or expected is None or found.shape != expected.shape:
        same = found is expected
    else:  # as another machine may round them
        sizes = expected.nan_to_num(0.0, 0.0, 0.0).flatten(1).abs().amax(1).view(-1, *(1,) * (expected.dim() - 1))
        close = (found - expected).abs() <= math.sqrt(rounding.unit(found.dtype)) * (1 + sizes)
        same = bool((close | (found == expected) | (found.isnan() & expected.isnan())).all())
    if not same:
        raise BoundFlowError(f"{path} does not fit this model: it answers otherwise than the one that was trained")
