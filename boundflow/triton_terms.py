"""The Triton kernels of `kernels.py`. Importing this file needs Triton.

`terms` multiplies blocks. `mixed_terms` adds the few inner terms of mixed lines one after the other, for some units at
a time: what is mixed in is read once for all of them, and nothing is padded.
"""

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]


@triton.jit  # type: ignore[misc,untyped-decorator,unused-ignore]
def larger(x, y):  # type: ignore[no-untyped-def,unused-ignore]
    """The larger of both, and NaN where one is: what is no number must not be lost."""
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit  # type: ignore[misc,untyped-decorator,unused-ignore]
def above(x, tau):  # type: ignore[no-untyped-def,unused-ignore]
    return larger(x - tau, 0.0)


@triton.jit  # type: ignore[misc,untyped-decorator,unused-ignore]
def terms(  # type: ignore[no-untyped-def,unused-ignore]
    lines,
    weights,
    bias,
    own,
    tau,
    out,
    count,
    units,
    owners,
    columns,
    INNER: tl.constexpr,
    PADDED: tl.constexpr,
    WIDTH: tl.constexpr,
    KIND: tl.constexpr,
    MODE: tl.constexpr,
    LINES: tl.constexpr,
    OWNERS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    unit = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1).to(tl.int64) * LINES + tl.arange(0, LINES)
    i = tl.arange(0, PADDED)
    here = n < count
    if INNER <= PADDED:  # short lines are read once
        a = tl.load(lines + n[:, None] * INNER + i[None, :], mask=here[:, None] & (i < INNER)[None, :], other=0.0)
    left_out = tl.load(own + n, mask=here, other=-1)
    element = n * units + unit
    second = count.to(tl.int64) * units  # where the second end begins, of thresholds and totals
    if MODE == 0:
        tau_down = tl.load(tau + element, mask=here, other=0.0)
        total_down = tl.zeros((LINES,), dtype=tl.float64)
        tau_up = tau_down
        total_up = total_down
        if KIND == 3:
            tau_up = tl.load(tau + second + element, mask=here, other=0.0)
    for begin in range(0, owners, OWNERS):
        o = begin + tl.arange(0, OWNERS)
        inside = o < owners
        up = tl.zeros((LINES, OWNERS), dtype=tl.float32)
        down = tl.zeros((LINES, OWNERS), dtype=tl.float32)
        for w in range(0, WIDTH):
            row = unit * WIDTH + w
            if INNER <= PADDED:
                b = tl.load(
                    weights + (row * INNER + i)[:, None] * owners + o[None, :],
                    mask=(i < INNER)[:, None] & inside[None, :],
                    other=0.0,
                )
                c = tl.dot(a, b, input_precision=PRECISION)
            else:
                c = tl.zeros((LINES, OWNERS), dtype=tl.float32)
                for first in range(0, INNER, PADDED):
                    j = first + i
                    some = tl.load(
                        lines + n[:, None] * INNER + j[None, :], mask=here[:, None] & (j < INNER)[None, :], other=0.0
                    )
                    b = tl.load(
                        weights + (row * INNER + j)[:, None] * owners + o[None, :],
                        mask=(j < INNER)[:, None] & inside[None, :],
                        other=0.0,
                    )
                    c = tl.dot(some, b, c, input_precision=PRECISION)
            c += tl.load(bias + row * owners + o, mask=inside, other=0.0)[None, :]
            if KIND == 0:
                up += tl.abs(c)
            elif KIND == 1:
                up += c * c
            elif KIND == 2:
                up = larger(up, tl.abs(c))
            else:
                up = larger(up, c)
                down = larger(down, -c)
        if KIND == 1:
            up = tl.sqrt_rn(up)
        other = o[None, :] != left_out[:, None]
        up = tl.where(other, up, 0.0)
        if KIND != 3:
            down = up
        else:
            down = tl.where(other, down, 0.0)
        if MODE == 0:
            total_down += tl.sum(above(down, tau_down[:, None]), 1).to(tl.float64)
            if KIND == 3:
                total_up += tl.sum(above(up, tau_up[:, None]), 1).to(tl.float64)
        elif MODE == 1:
            block = begin // OWNERS
            tl.store(out + element * columns + block, tl.max(down, 1), mask=here)
            if KIND == 3:
                tl.store(out + (second + element) * columns + block, tl.max(up, 1), mask=here)
        else:
            place = element[:, None] * columns + o[None, :]
            tl.store(out + place, down, mask=here[:, None] & inside[None, :])
            if KIND == 3:
                tl.store(out + second * columns + place, up, mask=here[:, None] & inside[None, :])
    if MODE == 0:
        tl.store(out + element, total_down, mask=here)
        if KIND == 3:
            tl.store(out + second + element, total_up, mask=here)


@triton.jit  # type: ignore[misc,untyped-decorator,unused-ignore]
def read(places, inside, WHOLE: tl.constexpr):  # type: ignore[no-untyped-def,unused-ignore]
    """Numbers of a block of owners, which is ``WHOLE`` where there are as many."""
    if WHOLE:
        return tl.load(places)
    return tl.load(places, mask=inside[None, :], other=0.0)


@triton.jit  # type: ignore[misc,untyped-decorator,unused-ignore]
def mixed_terms(  # type: ignore[no-untyped-def,unused-ignore]
    lines,
    weights,
    bias,
    mixed,
    mix,
    own,
    tau,
    out,
    count,
    units,
    owners,
    columns,
    INNER: tl.constexpr,
    WIDTH: tl.constexpr,
    MIXED: tl.constexpr,
    KIND: tl.constexpr,
    MODE: tl.constexpr,
    UNITS: tl.constexpr,
    LINES: tl.constexpr,
    OWNERS: tl.constexpr,
    WHOLE: tl.constexpr,
):
    j = tl.program_id(0).to(tl.int64) * UNITS + tl.arange(0, UNITS)
    n = tl.program_id(1).to(tl.int64) * LINES + tl.arange(0, LINES)
    known, here = j < units, n < count
    both = known[:, None] & here[None, :]
    left_out = tl.load(own + n, mask=here, other=-1)
    element = n[None, :] * units + j[:, None]
    # units and lines beyond the last are the last one again: what is read of them is not written
    unit, line = tl.minimum(j, units - 1), tl.minimum(n, count - 1)
    stride = owners.to(tl.int64)
    of_unit, of_line = unit[:, None] * WIDTH * stride, line[:, None] * (MIXED * WIDTH) * stride
    second = count.to(tl.int64) * units  # where the second end begins, of thresholds and totals
    if MODE == 0:
        tau_down = tl.load(tau + element, mask=both, other=0.0)
        total_down = tl.zeros((UNITS, LINES), dtype=tl.float64)
        tau_up = tau_down
        total_up = total_down
        if KIND == 3:
            tau_up = tl.load(tau + second + element, mask=both, other=0.0)
    for begin in range(0, owners, OWNERS):
        o = begin + tl.arange(0, OWNERS)
        inside = o < owners
        up = tl.zeros((UNITS, LINES, OWNERS), dtype=tl.float32)
        if KIND == 3:
            down = tl.zeros((UNITS, LINES, OWNERS), dtype=tl.float32)
        for w in range(0, WIDTH):
            d = read(bias + of_unit + w * stride + o[None, :], inside, WHOLE)
            c = tl.broadcast_to(d[:, None, :], (UNITS, LINES, OWNERS))
            for i in tl.static_range(0, INNER):
                a = tl.load(lines + line * INNER + i)
                b = read(weights + of_unit * INNER + (w * INNER + i) * stride + o[None, :], inside, WHOLE)
                c += a[None, :, None] * b[:, None, :]
            for q in tl.static_range(0, MIXED):
                p = read(mixed + of_line + (q * WIDTH + w) * stride + o[None, :], inside, WHOLE)
                m = tl.load(mix + q * units + unit)
                c += m[:, None, None] * p[None, :, :]
            if KIND == 0:
                up += tl.abs(c)
            elif KIND == 1:
                up += c * c
            elif KIND == 2:
                up = larger(up, tl.abs(c))
            else:
                up = larger(up, c)
                down = larger(down, -c)
        if KIND == 1:
            up = tl.sqrt_rn(up)
        other = (o[None, :] != left_out[:, None])[None, :, :]
        up = tl.where(other, up, 0.0)
        if KIND != 3:
            down = up
        else:
            down = tl.where(other, down, 0.0)
        if MODE == 0:
            total_down += tl.sum(above(down, tau_down[:, :, None]), 2).to(tl.float64)
            if KIND == 3:
                total_up += tl.sum(above(up, tau_up[:, :, None]), 2).to(tl.float64)
        elif MODE == 1:
            block = begin // OWNERS
            tl.store(out + element * columns + block, tl.max(down, 2), mask=both)
            if KIND == 3:
                tl.store(out + (second + element) * columns + block, tl.max(up, 2), mask=both)
        else:
            place = element[:, :, None] * columns + o[None, None, :]
            written = both[:, :, None] & inside[None, None, :]
            tl.store(out + place, down, mask=written)
            if KIND == 3:
                tl.store(out + second * columns + place, up, mask=written)
    if MODE == 0:
        tl.store(out + element, total_down, mask=both)
        if KIND == 3:
            tl.store(out + second + element, total_up, mask=both)
