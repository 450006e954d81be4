"""Product, modulus and sum in one Triton kernel: a block of elements stays on the chip while the symbols stream by.

Each program holds some lines of one unit, or of a few, and walks over the owners a block at a time (`streaming.py` has
the formula):

    for each block of owners:   t = 0
        for each symbol w:      c = a . B[j, w] + d[j, w] + sum_q A[:, q, w] b[q, j];      t = t + |c|   (or its like)
        total += sum of max(t - tau, 0)         or         out[block] = max t         or         out[owners] = t

There are two (`triton_terms.py`): one that multiplies blocks, and one for lines that are mixed, which have few inner
terms: it adds them one by one, for several units at a time, so that A is read once for all of these. An H200 makes 1.0
instead of 0.5 million million coefficients a second with it; without A the first one is twice as fast as the second.

Products are IEEE float32 with or without fused additions, block sums are float32, totals float64. Terms that only serve
to find a threshold, of which any will do, may be products of TF32. Triton comes with PyTorch for GPUs; where it is not
there, nothing here is used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .budgets import Kind
from .tuning import WRITTEN_TERMS

if TYPE_CHECKING:
    from .streaming import Stream

# Lines of one program and its warps; owners a block.
LINES, OWNERS, WARPS = 64, 64, 4
# The same for mixed lines, and how many units; half as many where both ends of a term are held. A thread then holds 64
# terms and 64 coefficients in its registers: with half or twice as many of each it takes 1.5 to 2 times as long.
MIXED_LINES, MIXED_UNITS = 32, 4
# Inner terms at a time: what a program shares grows with them (393,216 bytes of 512, as Triton said on an H200).
MOST_INNER = 64
KINDS = {Kind.BOX: 0, Kind.BALL: 1, Kind.CROSS: 2, Kind.SIMPLEX: 3}
SUMS, MAXIMA, TERMS = 0, 1, 2


@lru_cache(maxsize=1)
def _kernel() -> Any:
    """The module of compiled kernels, or None where there is no Triton."""
    try:
        from . import triton_terms
    except ImportError:
        return None
    return triton_terms


def usable(stream: Stream) -> bool:
    """Whether there is a kernel for this device."""
    return stream.lines.is_cuda and _kernel() is not None


def _padded(inner: int) -> int:
    return min(MOST_INNER, max(16, 1 << (inner - 1).bit_length()))


def exceeding(stream: Stream, tau: Tensor) -> Tensor:
    """``sum_o max(t_o - tau, 0)``, (ends, lines, units) in float64."""
    out = torch.zeros(tau.shape, dtype=torch.float64, device=tau.device)
    _launch(stream, tau, out, SUMS, slice(0, len(stream.lines)))
    return out


def reduced(stream: Stream, f: Callable[[Tensor], Tensor], group: int) -> Tensor:
    """f of the terms of all owners, or of the maxima of groups of them, (ends, lines, units): some lines at a time."""
    units, owners = stream.weights.shape[0], stream.owners
    count = -(-owners // group)
    size = max(1, WRITTEN_TERMS // (stream.ends * units * count))
    found = []
    for begin in range(0, len(stream.lines), size):
        part = slice(begin, min(begin + size, len(stream.lines)))
        terms = stream.lines.new_empty(stream.ends, part.stop - part.start, units, count)
        _launch(stream, stream.lines, terms, TERMS if group == 1 else MAXIMA, part)
        found.append(f(terms))
    return torch.cat(found, 1)


def _launch(stream: Stream, tau: Tensor, out: Tensor, mode: int, part: slice) -> None:
    lines, own = stream.lines[part].contiguous(), stream.own[part].contiguous()
    units, width, inner, owners = stream.weights.shape
    sizes = len(lines), units, owners, out.shape[-1]
    how = {"INNER": inner, "WIDTH": width, "KIND": KINDS[stream.kind], "MODE": mode, "OWNERS": OWNERS}
    if stream.mixed is None or stream.mix is None:
        _kernel().terms[units, -(-len(lines) // LINES)](
            *(lines, stream.weights, stream.bias, own, tau, out, *sizes),
            **how,
            PADDED=_padded(inner),
            LINES=LINES,
            PRECISION="ieee" if mode == SUMS else "tf32",
            num_warps=WARPS,
        )
        return
    some = MIXED_UNITS // stream.ends
    _kernel().mixed_terms[-(-units // some), -(-len(lines) // MIXED_LINES)](
        *(lines, stream.weights, stream.bias, stream.mixed[part], stream.mix, own, tau, out, *sizes),
        **how,
        MIXED=len(stream.mix),
        UNITS=some,
        LINES=MIXED_LINES,
        WHOLE=owners % OWNERS == 0,
        num_warps=WARPS,
    )
