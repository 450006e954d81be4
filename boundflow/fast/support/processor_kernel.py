"""The kernel of `gpu_kernels.py` for a processor: product, modulus, threshold and sum in C, where a compiler is.

Some lines of one unit and 32 owners at a time stay in registers while the symbols stream by; the terms of all owners
stay in a cache until their threshold is known (`streaming.py` has the formula):

    for each block of owners:
        for each symbol w:      c = a . B[j, w] + d[j, w] + sum_i A[:, i, w] b[i, j];      t = t + |c|   (or its like)
    tau = the r-th largest of every s-th t;      total = sum of max(t - tau, 0)

Blocks of PyTorch's own operators write every coefficient out several times: half-moons takes 1.3 ns for each, and 0.35
here. Roundings are those of the blocks: inner products with or without fused additions, 64 terms in float32, their sums
in float64. A comparison with NaN is false, so what is not a number is looked for apart, and makes the total NaN.

It takes half a second of the compiler, once in a process, in a folder of its own: so only where there is enough to do.
What is called a compiler may be a script that adds flags of its own, such as those under which nothing is NaN: so the
kernel is tried on sums that are known. Where no compiler is found, or it fails, `streaming.py` does it in blocks.
"""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...arithmetic import rounding
from ...arithmetic.thread_context import thread
from ...arithmetic.tuned_numbers import WORTH_A_COMPILER
from ...symbols.budgets import Kind

if TYPE_CHECKING:
    from .streaming import Stream

KINDS = {Kind.BOX: 0, Kind.BALL: 1, Kind.CROSS: 2, Kind.SIMPLEX: 3}
COMPILERS, FLAGS = ("cc", "gcc", "clang"), ("-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC")
SOURCE = r"""
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LINES 4    /* of a unit at a time */
#define OWNERS 32  /* in registers at a time */
#define BLOCK 64   /* terms that are added up in float */
#define HELD (1 << 20)  /* terms of some lines that stay in a cache */

enum { BOX, BALL, CROSS, SIMPLEX };

typedef float vector __attribute__((vector_size(64)));
typedef float unaligned __attribute__((vector_size(64), aligned(4)));
typedef int32_t bits __attribute__((vector_size(64)));

static inline vector load(const float *x) { return (vector)*(const unaligned *)x; }
static inline vector all_of(float x) { return x - (vector){0}; }
static inline vector modulus(vector x) { return (vector)((bits)x & 0x7fffffff); }
static inline vector larger(vector x, vector y)
{
    bits first = x > y;
    return (vector)((first & (bits)x) | (~first & (bits)y));
}

/* Terms of some lines and OWNERS owners; `unknown` becomes NaN where a coefficient is not finite. */
static inline __attribute__((always_inline)) void terms(
    int kind, int64_t count, const float *lines, const float *packed, const float *bias, const float *mixed,
    const float *mix, int64_t units, int64_t width, int64_t inner, int64_t mixes, int64_t owners, int64_t begin,
    float *up, float *down, vector *unknown)
{
    vector t[LINES][2] = {{{0}}}, s[LINES][2] = {{{0}}}, odd[LINES] = {{0}};
    for (int64_t w = 0; w < width; w++) {
        vector c[LINES][2];
        for (int v = 0; v < 2; v++) {
            vector d = load(bias + w * owners + begin + 16 * v);
            for (int l = 0; l < LINES; l++) c[l][v] = d;
        }
        for (int64_t i = 0; i < inner; i++) {
            const float *row = packed + (w * inner + i) * OWNERS;
            vector first = load(row), second = load(row + 16);
            for (int l = 0; l < LINES; l++) {
                c[l][0] += lines[l * inner + i] * first;
                c[l][1] += lines[l * inner + i] * second;
            }
        }
        for (int64_t i = 0; i < mixes; i++)
            for (int l = 0; l < LINES; l++) {  /* of fewer lines, the last one again */
                const float *row = mixed + (((l < count ? l : count - 1) * mixes + i) * width + w) * owners + begin;
                c[l][0] += mix[i * units] * load(row);
                c[l][1] += mix[i * units] * load(row + 16);
            }
        for (int l = 0; l < LINES; l++)
            for (int v = 0; v < 2; v++) {
                vector x = c[l][v];
                if (kind == BOX) t[l][v] += modulus(x);
                else if (kind == BALL) t[l][v] += x * x;
                else if (kind == CROSS) t[l][v] = larger(modulus(x), t[l][v]);
                else {
                    t[l][v] = larger(x, t[l][v]);
                    s[l][v] = larger(-x, s[l][v]);
                }
                if (kind == CROSS || kind == SIMPLEX) odd[l] += 0.0f * x;
            }
    }
    for (int l = 0; l < LINES; l++)
        for (int v = 0; v < 2; v++) {
            *(unaligned *)(up + l * owners + begin + 16 * v) = t[l][v];
            if (kind == SIMPLEX) *(unaligned *)(down + l * owners + begin + 16 * v) = s[l][v];
        }
    for (int l = 0; l < LINES; l++) *unknown += odd[l];
}

/* The rank-th largest of every stride-th term; 0 where there are fewer. `kept` has room for `rank` of them. */
static float threshold(const float *t, int64_t owners, int64_t stride, int64_t rank, float *kept)
{
    int64_t held = 0;
    for (int64_t o = 0; o < owners; o += stride) {
        while (stride == 1 && held == rank && o % BLOCK == 0 && o < owners) {  /* blocks of smaller terms at once */
            vector most = load(t + o);
            for (int v = 1; v < BLOCK / 16; v++) most = larger(load(t + o + 16 * v), most);
            float above = 0.0f;
            for (int k = 0; k < 16; k++) above = most[k] > above ? most[k] : above;
            if (above > kept[0]) break;
            o += BLOCK;
        }
        if (o >= owners) break;
        float x = t[o];
        if (held < rank) {  /* a heap with the smallest first */
            int64_t k = held++;
            for (; k > 0 && kept[(k - 1) / 2] > x; k = (k - 1) / 2) kept[k] = kept[(k - 1) / 2];
            kept[k] = x;
        } else if (x > kept[0]) {
            int64_t k = 0;
            for (int64_t next; (next = 2 * k + 1) < held; k = next) {
                next += next + 1 < held && kept[next + 1] < kept[next];
                if (kept[next] >= x) break;
                kept[k] = kept[next];
            }
            kept[k] = x;
        }
    }
    return held < rank ? 0.0f : kept[0];
}

static double beyond(const float *t, int64_t owners, float tau)
{
    double total = 0.0;
    for (int64_t begin = 0; begin < owners; begin += BLOCK) {
        float e[BLOCK];
        for (int o = 0; o < BLOCK; o++) {
            float x = t[begin + o] - tau;
            e[o] = (x > 0.0f ? x : 0.0f) + 0.0f * x;
        }
        for (int half = BLOCK / 2; half; half /= 2)
            for (int o = 0; o < half; o++) e[o] += e[o + half];
        total += e[0];
    }
    return total;
}

#define OF(kind) case kind: \
    for (int64_t o = 0; o < owners; o += OWNERS) { \
        for (int64_t k = 0; k < width * inner; k++) \
            memcpy(packed + k * OWNERS, weights + (j * width * inner + k) * owners + o, OWNERS * sizeof(float)); \
        for (int64_t l = 0; l < count; l += LINES) \
            terms(kind, count - l, a + l * inner, packed, bias + j * width * owners, \
                  mixed + (begin + l) * mixes * width * owners, mix + j, \
                  units, width, inner, mixes, owners, o, up + l * owners, down + l * owners, &odd); \
    } \
    break;

/* tau and total are (ends, lines, units); with rank 0 there is no budget. 0: fine, 1: no memory. */
int exceeding(int kind, const float *lines, const float *weights, const float *bias, const float *mixed,
              const float *mix, const int64_t *own, int64_t all, int64_t units, int64_t width, int64_t inner,
              int64_t mixes, int64_t owners, int64_t first, int64_t last, int64_t stride, int64_t rank,
              float *tau, double *total)
{
    int ends = kind == SIMPLEX ? 2 : 1;
    int64_t held = HELD / owners / LINES * LINES;
    held = held < LINES ? LINES : held;
    float *up = aligned_alloc(64, 2 * held * owners * sizeof(float)), *down = up + held * owners;
    float *kept = malloc((rank + 1) * sizeof(float)), *a = malloc(held * inner * sizeof(float));
    float *packed = aligned_alloc(64, width * inner * OWNERS * sizeof(float));
    if (!up || !kept || !a || !packed) { free(up); free(kept); free(a); free(packed); return 1; }
    for (int64_t begin = first; begin < last; begin += held) {
        int64_t count = last - begin < held ? last - begin : held;
        for (int64_t k = 0; k < held * inner; k++) a[k] = k < count * inner ? lines[begin * inner + k] : 0.0f;
        for (int64_t j = 0; j < units; j++) {
            vector odd = {0};
            float unknown = 0.0f;
            switch (kind) { OF(BOX) OF(BALL) OF(CROSS) OF(SIMPLEX) }
            for (int k = 0; k < 16; k++) unknown += odd[k];
            for (int64_t k = 0; kind == BALL && k < count * owners; k++) up[k] = sqrtf(up[k]);
            for (int64_t l = 0; l < count; l++)
                for (int end = 0; end < ends; end++) {
                    float *t = (ends == 2 && end == 0 ? down : up) + l * owners;
                    int64_t place = (end * all + begin + l) * units + j;
                    if (own[begin + l] >= 0) t[own[begin + l]] = 0.0f;
                    tau[place] = rank ? threshold(t, owners, stride, rank, kept) : 0.0f;
                    total[place] = beyond(t, owners, tau[place]) + unknown;
                }
        }
    }
    free(up); free(kept); free(a); free(packed);
    return 0;
}
"""
_compiling = threading.Lock()


@lru_cache(maxsize=1)
def _library() -> Any:
    """The compiled kernel, or None where there is no compiler, or one that makes something else of the source."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        return None
    try:
        with tempfile.TemporaryDirectory() as folder:
            source, made = Path(folder) / "terms.c", Path(folder) / "terms.so"
            source.write_text(SOURCE)
            subprocess.run([compiler, *FLAGS, str(source), "-o", str(made), "-lm"], check=True, capture_output=True)
            library = ctypes.CDLL(str(made)).exceeding
    except (OSError, subprocess.CalledProcessError):
        return None
    if not bool(torch.tensor(rounding.TINY[torch.float32]) * 0.5 > 0):  # loading it was enough for that
        torch.set_flush_denormal(False)
        return None
    return library if all(_right(library, kind) for kind in KINDS) else None


def _right(library: Any, kind: Kind) -> bool:
    """Whether a kernel adds up terms that are whole numbers, and says of what is not finite that it is not."""
    sign = torch.tensor([1.0, -1.0]).repeat(32)
    terms = sign * torch.arange(1.0, 65.0) * torch.tensor([[3.0], [4.0]])  # in a right triangle all are whole
    up, down = {
        Kind.BOX: (7.0 * terms[0].abs() / 3, None),
        Kind.BALL: (5.0 * terms[0].abs() / 3, None),
        Kind.CROSS: (terms[1].abs(), None),
        Kind.SIMPLEX: (terms[1].clamp_min(0.0), (-terms[1]).clamp_min(0.0)),
    }[kind]
    ends = [up] if down is None else [down, up]

    def asked(weights: Tensor, stride: int, rank: int) -> tuple[Tensor, Tensor]:
        given = [torch.tensor([[1.0], [2.0]]), weights.view(1, 2, 1, 64), torch.zeros(1, 2, 64), None, None]
        return _called(library, kind, len(ends), [*given, torch.tensor([-1, 0])], stride, rank)

    for line, left_out in ((1, []), (2, [0])):
        known = torch.stack(ends).double() * line
        known[:, left_out] = 0.0
        for rank in (0, 3):
            tau, total = (part[:, line - 1, 0] for part in asked(terms, 1, rank))
            wanted = known.topk(rank).values[:, -1] if rank else torch.zeros(len(ends), dtype=torch.float64)
            exceeds = (known - wanted.unsqueeze(1)).clamp_min(0.0).sum(1)
            if not torch.equal(tau.double(), wanted) or not torch.equal(total, exceeds):
                return False
    for odd in (math.nan, math.inf, -math.inf):
        spoiled = terms.clone()
        spoiled[1, 5] = odd
        if bool(torch.isfinite(asked(spoiled, 1, 0)[1]).any()):
            return False
    return True


def usable(stream: Stream) -> bool:
    """Whether there is a kernel for this stream, and enough to do for it."""
    lines, (units, width, _, owners) = stream.lines, stream.weights.shape
    work = len(lines) * units * width * owners * thread.arithmetic.trial_of
    if lines.device.type != "cpu" or work < WORTH_A_COMPILER:
        return False
    with _compiling:
        return _library() is not None


def exceeding(stream: Stream, stride: int, rank: int) -> tuple[Tensor, Tensor]:
    """Thresholds, and the sums of what exceeds them, each (ends, lines, units); without a budget, ``rank`` is 0."""
    given = [stream.lines, stream.weights, stream.bias, stream.mixed, stream.mix, stream.own]
    return _called(_library(), stream.kind, stream.ends, given, stride, rank)


def _called(
    library: Any, kind: Kind, ends: int, given: Sequence[Tensor | None], stride: int, rank: int
) -> tuple[Tensor, Tensor]:
    lines, weights, mix = given[0], given[1], given[4]
    assert lines is not None and weights is not None
    count, (units, width, inner, owners) = len(lines), weights.shape
    tau = torch.zeros(ends, count, units)
    total = torch.zeros(ends, count, units, dtype=torch.float64)
    held = [lines if part is None else part.contiguous() for part in given]  # of which nothing is read then
    pointers = [ctypes.c_void_p(part.data_ptr()) for part in held]
    mixes = 0 if mix is None else len(mix)
    sizes = [ctypes.c_int64(size) for size in (count, units, width, inner, mixes, owners)]

    def work(first: int, last: int) -> None:
        rest = [ctypes.c_int64(number) for number in (first, last, stride, rank)]
        results = ctypes.c_void_p(tau.data_ptr()), ctypes.c_void_p(total.data_ptr())
        if library(ctypes.c_int(KINDS[kind]), *pointers, *sizes, *rest, *results):
            raise MemoryError("out of memory")

    threads = min(torch.get_num_threads(), count)
    begins = [count * number // threads for number in range(threads + 1)]
    if threads == 1:
        work(0, count)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, begins[:-1], begins[1:]))
    return tau, total
