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
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import MixedTensors, UnsafePrecision
from .thread_context import thread, using

if TYPE_CHECKING:
    from ..sets.set import Set

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


def of_ours(n: float, dtype: torch.dtype) -> float:
    """The same of a computation that only we make, however long the batch is that plain PyTorch sums over."""
    return _gamma(n, dtype) if thread.arithmetic.outward else 0.0


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


def of_halves() -> float:
    """The share of the largest number of a line that a small one loses, at most, where it is split in two halves.

    The largest one is scaled to 2^15 (`terms.cu`), and what is left of a number is off by half of the smallest number
    of half precision, 2^-25: 2^-40 of it, and 2^-39 of one that is just below that power. Twice that is charged.
    """
    return 2.0**-38 if thread.arithmetic.outward else 0.0


@lru_cache(maxsize=256)
def _signs(dims: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor([-1.0, 1.0], dtype=dtype, device=device).view(2, *(1,) * (dims - 1))


@lru_cache(maxsize=256)
def _infinities(dims: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return _signs(dims, dtype, device) * math.inf


def outward(bounds: Tensor) -> Tensor:
    """One correctly rounded operation: the next float outwards, for bounds stacked as (lower, upper)."""
    arithmetic = thread.arithmetic
    if not arithmetic.outward:
        return bounds
    if arithmetic.deferred is not None and not bounds.is_cuda:  # a GPU has it for many numbers at a time
        return _outward_compiled(bounds)
    return torch.nextafter(bounds, _infinities(bounds.dim(), bounds.dtype, bounds.device))


def _outward_compiled(bounds: Tensor) -> Tensor:
    """At least the next float outwards, by operations that a compiler has for many numbers at a time.

    The next float is no further than ``2 u |x|``, or the smallest subnormal number. ``2 u |x|`` is a float unless it is
    subnormal, where ``TINY`` alone is more; sums are rounded monotonically, so ``fl(x + fl(2 u |x| + TINY))`` is not
    below ``fl(x + 2 u |x|)``, which is not below the next float.
    """
    amount = bounds.abs() * (2 * UNIT[bounds.dtype]) + TINY[bounds.dtype]
    return torch.addcmul(bounds, _signs(bounds.dim(), bounds.dtype, bounds.device), amount)


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
    return outward(apart(bounds, amount, factor))


def apart(bounds: Tensor, amount: Tensor, factor: float = 1.0) -> Tensor:
    """The same, rounded to nearest: for amounts that pay for this rounding, too."""
    return torch.addcmul(bounds, _signs(bounds.dim(), bounds.dtype, bounds.device), amount, value=factor)


def _lengthening(dtype: torch.dtype) -> float:
    """A factor that makes up for at most two correctly rounded operations: ``(1 - u)^2 (1 + 8 u) (1 - u) >= 1``."""
    return 1 + 8 * UNIT[dtype] if thread.arithmetic.outward else 1.0


def up(x: Tensor) -> Tensor:
    """An upper bound of a nonnegative result of at most two correctly rounded operations; 0 stays 0."""
    return x * _lengthening(x.dtype) if thread.arithmetic.outward else x


def middle(bounds: Tensor) -> tuple[Tensor, Tensor]:
    """A center and a radius whose ball holds the interval."""
    lower, upper = bounds.unbind(0)
    center = (lower + upper).mul_(0.5)
    return center, _farther(lower, upper, center)


def deviation(bounds: Tensor, center: Tensor) -> Tensor:
    """How far a value can be from the center."""
    lower, upper = bounds.unbind(0)
    return _farther(lower, upper, center)


def _farther(lower: Tensor, upper: Tensor, center: Tensor) -> Tensor:
    """``max(upper - center, center - lower)``."""
    return torch.maximum(upper - center, center - lower).mul_(_lengthening(center.dtype))  # `up`, in place


def around(center: Tensor, radius: Tensor) -> Tensor:
    """Bounds ``center -+ radius``, rounded outwards."""
    signs = _signs(center.dim() + 1, center.dtype, center.device)
    return outward(torch.addcmul(center, signs, radius))


def around_by(center: Tensor, radius: float) -> Tensor:
    """Bounds ``center -+ radius`` for a number, which is rounded when it meets the tensor: longer by `up` before."""
    signs = _signs(center.dim() + 1, center.dtype, center.device)
    return outward(center + signs * (radius * _lengthening(center.dtype)))


def require_full_precision(x: Set | Tensor, convolution: bool = False) -> None:
    """Refuse the flags that let PyTorch multiply in TF32 or bfloat16: gamma_n would be too small."""
    cuda = x.device.type == "cuda"
    if x.dtype is not torch.float32 or not thread.arithmetic.outward:
        return
    if torch.get_float32_matmul_precision() != "highest":
        raise UnsafePrecision(
            "float32 matrix products run in reduced precision: call torch.set_float32_matmul_precision('highest')"
        )
    one_dnn = getattr(torch.backends.mkldnn, "conv", None)  # flags of newer versions
    if convolution and not cuda and getattr(one_dnn, "fp32_precision", "none") in ("bf16", "tf32"):
        raise UnsafePrecision(
            "float32 convolutions run in reduced precision: set torch.backends.mkldnn.conv.fp32_precision = 'ieee'"
        )
    if cuda and torch.backends.cuda.matmul.allow_tf32:
        raise UnsafePrecision("TF32 products are on: set torch.backends.cuda.matmul.allow_tf32 = False")
    if cuda and convolution and torch.backends.cudnn.allow_tf32:
        raise UnsafePrecision("TF32 convolutions are on: set torch.backends.cudnn.allow_tf32 = False")


def float32_is_full(device: torch.device) -> bool:
    """Whether float32 products run in full precision: what we compute in float32 for a run in float64 needs that."""
    if not thread.arithmetic.outward:
        return True
    if device.type == "cuda" and torch.backends.cuda.matmul.allow_tf32:
        return False
    return torch.get_float32_matmul_precision() == "highest"


def require_normal(number: float, dtype: torch.dtype) -> None:
    """Refuse a number that the dtype cannot hold with full precision: converting it is not one small rounding."""
    if thread.arithmetic.outward and number != 0 and not TINY[dtype] <= abs(number) <= LARGEST[dtype]:
        raise UnsafePrecision(f"the number {number!r} lies outside the normal range of {dtype}: use float64")


def require_gradual_underflow() -> None:
    """Refuse a CPU that flushes subnormal numbers to zero: one step outwards from zero would be lost."""
    if thread.arithmetic.outward and float(torch.tensor(TINY[torch.float64], dtype=torch.float64) * 0.5) == 0.0:
        raise UnsafePrecision("subnormal numbers are flushed to zero: call torch.set_flush_denormal(False)")


# --- what the floats of a table, an image or an answer are off by -----------------------------------------------------


def away(x: Tensor) -> Tensor:
    """A result of at most two correctly rounded operations, made longer in modulus as `up` does; 0 stays 0.

    ``(1 - u)^2 (1 + 8 u) (1 - u) >= 1``: the modulus is at least the exact one.
    """
    return x.sign() * up(x.abs())


def of_moves(x: Tensor, amounts: Tensor) -> Tensor:
    """How far the float of ``x + d`` can be from ``x + d``, for all ``|d| <= amounts``; 0 where nothing can move.

    ``|fl(x + d) - (x + d)| <= u |x + d| <= u (|x| + amounts)``, or less than the smallest normal number below it.
    """
    error = gamma(1, x.dtype) * (x.abs() + amounts) + tiny(1, x.dtype)
    return torch.where(amounts > 0, error, 0.0)


def quotient_of_move(x: Tensor, center: Tensor, reach: Tensor) -> Tensor:
    """Bounds (2, n) of ``(x - center) / reach``, in float64, for a reach above 0 that is at least ``|x - center|``.

    Difference and quotient are correctly rounded, so the exact ones lie between the neighbouring floats; the exact
    quotient is in [-1, 1].
    """
    x, center, reach = x.double(), center.double(), reach.double()
    difference = outward(torch.stack((x - center, x - center)))
    return outward(difference / reach).clamp(-1.0, 1.0)


def of_shorter_moves(x: Tensor, amounts: Tensor) -> float:
    """By how much the lifted interval of a move by ``t`` of an amount exceeds ``t`` of the row of the whole move.

    The row r of the amount a is at least a, and a is a normal number (`require_normal`), so half the smallest subnormal
    number is at most ``u a``. The interval of ``t a`` is made of one conversion, one lengthening, one sum and one step
    outwards, and its radius of one more lengthening: it is at most ``t a + 23 u (|x| + a)``. Divided by r, for all t in
    [0, 1], that is ``t + 32 u (|x| / a + 1)`` or less, with roundings of this formula. Features that cannot move have
    no row.
    """
    moving = amounts > 0
    if not bool(moving.any()):
        return 0.0
    far = torch.where(moving, x.double().abs() / amounts.double(), 0.0).max()
    return float(32 * UNIT[x.dtype] * (far + 1))


def shorter(rows: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    """Rows (K, *shape) times a factor in [0, 1], and what all these products together are off by, at most.

    The factor is a quotient and a sum, both rounded, and is converted; a product is rounded, or loses less than the
    smallest normal number to underflow; and symbols are at most 1. So a row is off by ``4 u |row|``, and ``gamma_1`` is
    more than twice that: the rest pays for the sum over the rows, which loses less than half of itself.
    """
    return rows * factor, gamma(1, rows.dtype) * rows.abs().sum(0) + tiny(len(rows), rows.dtype)


def share_of(x: Tensor, share: float) -> Tensor:
    """At least ``share |x|`` in float64, of a share that was read from a text in per cent.

    Read, divided by 100 and multiplied it has three roundings, and ``(1 - u)^3 (1 + 8 u) (1 - u) >= 1``. A product that
    underflows is less than the smallest normal number.
    """
    amount = up(share * x.double().abs())
    least = TINY[x.dtype] if thread.arithmetic.outward and share > 0 else 0.0
    return torch.where(x != 0, amount.clamp_min(least), amount)


def whole_steps(distance: float, step: float) -> int:
    """How many whole steps fit into a distance, or more: three of 0.1 into 0.3, though the float of 0.3 / 0.1 is less.

    Both were read, and their quotient is rounded: ``(1 - u)^2 / (1 + u) (1 + 8 u) (1 - u) >= 1``. So it is in every
    mode: one step too few is no rounding error.
    """
    return int(distance / step * (1 + 8 * UNIT[torch.float64]))


def of_grid(x: Tensor, distance: float) -> Tensor:
    """How much further than ``distance`` apart two values of a grid can be as they were written, in float32 or finer.

    ``n s`` is written with two roundings, of the step and of the product: off by at most ``3 u |n s|``, with u of
    float32. Of both values together that is ``3 u (2 |n s| + distance)``, where ``|n s| <= |x| (1 + 3 u)``.
    """
    unit = 4 * UNIT[torch.float32] if thread.arithmetic.outward else 0.0
    return unit * (2 * x.double().abs() + distance)


def scaled_move(move: float, largest: float, offset: float, spacing: float) -> float:
    """A scaled move, and what scaling can be off by: of values up to ``largest``, scaled around ``offset``.

    A value v becomes ``(v - center) / scale``: it is read, centered and divided in float64, and converted, four
    roundings at both ends of the move. Each is at most ``u (largest + move)``, where ``spacing``, from 1 to the next
    number, is 2 u: four of it are enough, and the rest pays for the roundings of this sum and of the move itself. The
    offset is in the first two, which are those of float64 whatever the precision of the run.
    """
    unit, double = (16 * spacing, 2.0**-48) if thread.arithmetic.outward else (0.0, 0.0)
    return move * (1 + unit) + unit * (largest + move) + double * offset


def scaled_share(share: float, spacing: float) -> float:
    """A share of a value that is scaled around 0, and what scaling can be off by: as `scaled_move`, in units of it."""
    return scaled_move(share, 1.0, 0.0, spacing)


def affine_image(bounds: Tensor, scale: float, shift: float) -> Tensor:
    """Bounds of ``scale x + shift`` in float64, rounded outwards: intervals in the units of the user.

    Product and sum are correctly rounded, so the exact ones lie between the neighbouring floats.
    """
    bounds = bounds.double()
    if scale == 1 and shift == 0:
        return bounds
    product = outward(scale * (bounds if scale >= 0 else bounds.flip(0)))
    return outward(product + shift)


def before_scaling(x: Tensor, scale: float, shift: float) -> Tensor:
    """Bounds of the float64 n of which x is ``(n - shift) / scale``.

    Centering, dividing and multiplying are three roundings, of ``|x scale|`` each, so ``x scale + shift`` is off n by
    four times ``u |x scale|`` at most. Where that is less than half a step from n to its neighbours, the sum is rounded
    to n itself. Otherwise half a step, for the sum and once more for its bounds, is no more than that again: twelve in
    all, which is ``gamma_2``. Where ``x scale`` is subnormal, centering is exact, and the sum is rounded to n as well.
    """
    x = x.double()
    number, error = x * scale + shift, gamma(2, x.dtype) * (x * scale).abs()
    return torch.stack((number - error, number + error))


def width(bounds: Tensor) -> Tensor:
    """At least ``upper - lower``, which is one correctly rounded operation."""
    return up(bounds[1] - bounds[0])


def largest_of_sums(x: Tensor, terms: float) -> float:
    """At least the largest of numbers that are sums of so many products of numbers that are not negative.

    ``gamma_n`` holds n + 6 roundings more than the sum and this product take.
    """
    return float(x.max() * (1 + gamma(terms, x.dtype)))


def upper_mean(x: Tensor) -> Tensor:
    """At least the mean of numbers that are not negative, in float64: a sum of n terms, and one division.

    ``gamma_n`` holds n + 5 roundings more than the sum, this product and the division take.
    """
    total = x.double().sum()
    return total * (1 + gamma(x.numel(), total.dtype)) / x.numel()
