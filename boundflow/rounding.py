"""The only place where floats are widened.

With unit roundoff ``u`` (2^-24 for float32, 2^-53 for float64) and ``gamma_n = n u / (1 - n u)``, a sum of n
products in any order, with or without fused multiply-add, is off by at most ``gamma_n sum |x_i||y_i|``
(Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1), plus n times the smallest normal number
where products underflow.

Two runs are covered at once: the real-arithmetic one, and every floating-point run of the same dtype. So each rule
pays twice: for its own rounding, and for that of the plain PyTorch operator it stands for. Counts ``n`` passed to
the functions below are the operations of the plain operator; the factor two and the slack are added here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from .context import thread, using
from .errors import MixedTensors, UnsafePrecision

UNIT = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}
TINY = {dtype: torch.finfo(dtype).tiny for dtype in UNIT}
LARGEST = {dtype: torch.finfo(dtype).max for dtype in UNIT}


def mode() -> str:
    """``"outward"`` (the default) or ``"nearest"``: what a certificate records."""
    return "outward" if thread.arithmetic.outward else "nearest"


@contextmanager
def nearest() -> Iterator[None]:
    """Switch the allowance for rounding off, for what this thread makes inside: runs, and sets of their own.

    Bounds then hold in real arithmetic only up to rounding errors. A run keeps the mode it was begun in.
    """
    with using(replace(thread.arithmetic, outward=False)):
        yield


def unit(dtype: torch.dtype) -> float:
    """The unit roundoff of a dtype that has bounds."""
    try:
        return UNIT[dtype]
    except KeyError:
        raise MixedTensors(f"bounds exist for float32 and float64 tensors, not for {dtype}") from None


def gamma(n: float, dtype: torch.dtype) -> float:
    """``2 n + 8`` roundings, as a factor of the sum of the moduli; 0 when rounding is switched off."""
    arithmetic = thread.arithmetic
    return _gamma(n * arithmetic.length, dtype) if arithmetic.outward else 0.0


@lru_cache(maxsize=4096)
def _gamma(n: float, dtype: torch.dtype) -> float:
    amount = (2 * n + 8) * unit(dtype)
    if amount >= 0.5:
        advice = "use float64" if dtype is torch.float32 else "it has too many terms"
        raise UnsafePrecision(f"a sum of {n:.0f} terms cannot be bounded in {dtype}: {advice}")
    return amount / (1 - amount)


def tiny(n: float, dtype: torch.dtype) -> float:
    """What n products can lose to underflow, on our side and on the plain one."""
    return (2 * n + 8) * TINY[dtype] if thread.arithmetic.outward else 0.0


@lru_cache(maxsize=256)
def _signs(dims: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor([-1.0, 1.0], dtype=dtype, device=device).view(2, *(1,) * (dims - 1))


@lru_cache(maxsize=256)
def _infinities(dims: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return _signs(dims, dtype, device) * math.inf


def outward(bounds: Tensor) -> Tensor:
    """One correctly rounded operation: the next float outwards, for bounds stacked as (lower, upper)."""
    if not thread.arithmetic.outward:
        return bounds
    return torch.nextafter(bounds, _infinities(bounds.dim(), bounds.dtype, bounds.device))


def outward_sum(bounds: Tensor, moduli: Tensor, n: float) -> Tensor:
    """Bounds of a sum of n terms whose moduli (at the same end points) add up to ``moduli``.

    A plain run at an inner point x loses gamma sum|x_i| <= gamma sum|l_i| + gamma sum(x_i - l_i), and the last
    term is less than the distance of its value from the lower bound: the moduli at the end points suffice.
    """
    if not thread.arithmetic.outward:
        return bounds
    return widened(bounds, moduli, gamma(n, bounds.dtype))


def widened(bounds: Tensor, amount: Tensor, factor: float = 1.0) -> Tensor:
    """``[lower - factor amount, upper + factor amount]``."""
    moved = torch.addcmul(bounds, _signs(bounds.dim(), bounds.dtype, bounds.device), amount, value=factor)
    return outward(moved)


def up(x: Tensor) -> Tensor:
    """An upper bound of a nonnegative result of at most two correctly rounded operations; 0 stays 0."""
    return x * (1 + 8 * UNIT[x.dtype]) if thread.arithmetic.outward else x


def middle(bounds: Tensor) -> tuple[Tensor, Tensor]:
    """A center and a radius whose ball holds the interval."""
    lower, upper = bounds.unbind(0)
    center = (lower + upper).mul_(0.5)
    return center, up(torch.maximum(upper - center, center - lower))


def deviation(bounds: Tensor, center: Tensor) -> Tensor:
    """``max(upper - center, center - lower)``: how far a value can be from the center."""
    lower, upper = bounds.unbind(0)
    return up(torch.maximum(upper - center, center - lower))


def around(center: Tensor, radius: Tensor) -> Tensor:
    """Bounds ``center -+ radius``, rounded outwards."""
    return outward(torch.stack((center - radius, center + radius)))


def require_full_precision(x: Tensor, convolution: bool = False) -> None:
    """Refuse the flags that let PyTorch multiply in TF32 or bfloat16: gamma_n would be too small."""
    if x.dtype is not torch.float32 or not thread.arithmetic.outward:
        return
    if torch.get_float32_matmul_precision() != "highest":
        raise UnsafePrecision(
            "float32 matrix products run in reduced precision: call torch.set_float32_matmul_precision('highest')"
        )
    one_dnn = getattr(torch.backends.mkldnn, "conv", None)  # flags of newer versions
    if convolution and not x.is_cuda and getattr(one_dnn, "fp32_precision", "none") in ("bf16", "tf32"):
        raise UnsafePrecision(
            "float32 convolutions run in reduced precision: set torch.backends.mkldnn.conv.fp32_precision = 'ieee'"
        )
    if x.is_cuda and torch.backends.cuda.matmul.allow_tf32:
        raise UnsafePrecision("TF32 products are on: set torch.backends.cuda.matmul.allow_tf32 = False")
    if x.is_cuda and convolution and torch.backends.cudnn.allow_tf32:
        raise UnsafePrecision("TF32 convolutions are on: set torch.backends.cudnn.allow_tf32 = False")


def require_normal(number: float, dtype: torch.dtype) -> None:
    """Refuse a number that the dtype cannot hold with full precision: converting it is not one small rounding."""
    if thread.arithmetic.outward and number != 0 and not TINY[dtype] <= abs(number) <= LARGEST[dtype]:
        raise UnsafePrecision(f"the number {number!r} lies outside the normal range of {dtype}: use float64")


def require_gradual_underflow() -> None:
    """Refuse a CPU that flushes subnormal numbers to zero: one step outwards from zero would be lost."""
    if thread.arithmetic.outward and float(torch.tensor(TINY[torch.float64], dtype=torch.float64) * 0.5) == 0.0:
        raise UnsafePrecision("subnormal numbers are flushed to zero: call torch.set_flush_denormal(False)")
