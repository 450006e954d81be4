"""The Triton kernel of `kernels.py`. Importing this file needs Triton."""

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]


@triton.jit  # type: ignore[misc,untyped-decorator,unused-ignore]
def terms(  # type: ignore[no-untyped-def,unused-ignore]
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
    PADDED: tl.constexpr,
    WIDTH: tl.constexpr,
    MIXED: tl.constexpr,
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
            for q in tl.static_range(0, MIXED):
                p = tl.load(
                    mixed + ((n * MIXED + q) * WIDTH + w)[:, None] * owners + o[None, :],
                    mask=here[:, None] & inside[None, :],
                    other=0.0,
                )
                c += p * tl.load(mix + q * units + unit)
            if KIND == 0:
                up += tl.abs(c)
            elif KIND == 1:
                up += c * c
            elif KIND == 2:
                up = tl.maximum(up, tl.abs(c))
            else:
                up = tl.maximum(up, c)
                down = tl.maximum(down, -c)
        if KIND == 1:
            up = tl.sqrt_rn(up)
        other = o[None, :] != left_out[:, None]
        up = tl.where(other, up, 0.0)
        if KIND != 3:
            down = up
        else:
            down = tl.where(other, down, 0.0)
        if MODE == 0:
            total_down += tl.sum(tl.maximum(down - tau_down[:, None], 0.0), 1).to(tl.float64)
            if KIND == 3:
                total_up += tl.sum(tl.maximum(up - tau_up[:, None], 0.0), 1).to(tl.float64)
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
