"""Questions with one plain answer: `item()`, `bool()`, and what would give a set away as an array.

Answered where every tensor in the set has the same answer, refused otherwise: a set is not its center.
"""

from __future__ import annotations

from typing import NoReturn

import torch

from ..errors import StaleAlias, Undecided, UnsupportedOperator
from ..sets.set import Set
from ..tensor.bounded import Bounded
from ..tensor.rule_table import aten, replaces, rule


def _decided(x: Set) -> float | bool:
    low, high = x.bounds.unbind(0)
    if not bool((low == high).all()):
        what = "this condition" if x.dtype is torch.bool else "this value"
        raise Undecided(
            f"{what} is not the same for every tensor in the set ({Bounded(x)!r}). Read the center explicitly for "
            "logging (`loss.center.item()`), or use .lower and .upper."
        )
    answer: float | bool = low.item()
    return answer


@rule(aten._local_scalar_dense.default, example=None)
def local_scalar(x: Set) -> float | bool:
    """``item()``: allowed when there is one answer."""
    return _decided(x)


@replaces(torch.Tensor.__bool__)
def truth(x: Bounded) -> bool:
    """``bool()``: a set that excludes zero is true."""
    low, high = x._checked().set.bounds.unbind(0)
    if x.dtype is not torch.bool and bool(((low > 0) | (high < 0)).all()):
        return True
    return bool(_decided(x.set))


@replaces(torch.Tensor.data.__get__, torch.Tensor.data.__set__)  # type: ignore[attr-defined]
def data(*args: object) -> NoReturn:
    """``.data`` gives a second name whose changes no version counter sees."""
    raise StaleAlias("`.data` hides changes from the bounds: use .detach(), .center, or an in-place operator")


@replaces(torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.__array__)
def to_numpy(x: Bounded, *args: object, **kwargs: object) -> NoReturn:
    """A set has no single array."""
    raise Undecided("a set has no single array: use .center, .lower or .upper")


@replaces(torch.Tensor.apply_, torch.Tensor.map_, torch.Tensor.map2_)
def by_number(x: Bounded, *args: object) -> NoReturn:
    """These read the memory of a tensor number by number, and a set has none."""
    raise UnsupportedOperator("a function of single numbers has no rule for sets: write it with operators of PyTorch")
