"""Terms by owner of a matrix product, a block at a time: nothing of size (elements x symbols) is written out.

Over the deep symbols s of a sample o, the coefficients of ``a b + bias`` are

    c[n, j, s] = sum_i a[n, i] B[i, j, s]  +  sum_i A[n, i, s] b[i, j]  +  d[j, s]

with A, B, d the deep coefficients of a, b and the bias (`factors.py`). A term t[n, j, o] is what the symbols of one
sample reach (`budgets.term`). What a budget of k samples reaches is bounded by a threshold, without sorting:

    sum of the k largest t_o  <=  k tau + sum_o max(t_o - tau, 0)          for every tau >= 0

Proof: k terms are at most k tau plus what each of them exceeds tau by. With the k-th largest term as tau both sides are
the same. Here tau is that of every so many-th sample, or the k-th largest of the maxima of blocks of samples.

All this is done in float32, block sums in float64; what that may be off by is paid for in `factored_support.py`. On a
GPU one kernel does product, modulus and sum (`gpu_kernels.py`), on a processor one that is compiled from C
(`processor_kernel.py`); otherwise blocks stay in a cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...arithmetic.thread_context import thread
from ...arithmetic.tuned_numbers import FEWEST_RANKS, FEWEST_SAMPLED, STREAM_BLOCK, STREAM_BLOCK_CUDA, THRESHOLD_STRIDE
from ...symbols.budgets import Kind, few_largest
from . import gpu_kernels, processor_kernel

BLOCK = gpu_kernels.OWNERS  # samples whose terms are added up in float32 before float64 takes over


@dataclass(frozen=True)
class Stream:
    """The coefficients of one part of a threat, in float32: units j, symbols w of an owner, inner index i, owners o."""

    kind: Kind
    lines: Tensor  # a, (n, i)
    weights: Tensor  # B, (j, w, i, o): owners last, as many as fill whole blocks
    bias: Tensor  # d, (j, w, o)
    # A, (n, q, w, o): inner indices q of its own, fewer where some are alike; for a GPU (n, o / 32, q, w, 32)
    mixed: Tensor | None
    mix: Tensor | None  # b, (q, j)
    own: Tensor  # (n): the owner that is left out for each line; -1 for none
    ready: dict[str, Any] = field(default_factory=dict)  # what a kernel made of weights and bias, for other lines

    @property
    def owners(self) -> int:
        return self.weights.shape[-1]

    @property
    def ends(self) -> int:
        """Terms of a simplex differ downwards and upwards; all others are symmetric."""
        return 2 if self.kind is Kind.SIMPLEX else 1


def exceeding(stream: Stream, budget: int | None) -> tuple[Tensor, Tensor]:
    """Thresholds tau, and ``sum_o max(t_o - tau, 0)`` of all owners but the own one: each (2, lines, units).

    Without a budget, tau is 0.
    """
    count = stream.owners
    budget = None if budget is not None and budget >= count else budget
    if gpu_kernels.usable(stream.lines.device):
        tau, total = _by_kernel(stream, budget)
    elif processor_kernel.usable(stream):
        stride, k = (1, 0) if budget is None else rank(budget, count)
        tau, total = processor_kernel.exceeding(stream, stride, k)
    else:
        tau, total = _in_blocks(stream, budget)
    return tau.double().expand(2, -1, -1), total.expand(2, -1, -1)


def rank(budget: int, owners: int) -> tuple[int, int]:
    """Every how many-th owner is looked at for a threshold, and the how many-th largest of those is taken.

    A trial on few samples looks at as large a part of them.
    """
    times = thread.arithmetic.samples_of
    stride = max(1, min(THRESHOLD_STRIDE, int(times * budget) // FEWEST_RANKS, int(times * owners) // FEWEST_SAMPLED))
    return stride, -(-budget // stride)


def _kth_largest(terms: Tensor, k: int) -> Tensor:
    """Of the last axis; 0 where there are fewer.

    Maxima of groups would sort less, but thresholds are lower then: MNIST on 32 components lost half a point with them.
    """
    if k > terms.shape[-1]:
        return terms.new_zeros(terms.shape[:-1])
    return few_largest(terms, k).amin(-1)


# --- by one kernel -----------------------------------------------------------------------------------------------


def _by_kernel(stream: Stream, budget: int | None) -> tuple[Tensor, Tensor]:
    lines, units = len(stream.lines), stream.weights.shape[0]
    tau = stream.lines.new_zeros(stream.ends, lines, units)
    if budget is not None:
        stride, k = rank(budget, stream.owners)
        many = stride == 1 and stream.owners // BLOCK >= FEWEST_RANKS * budget
        tau = gpu_kernels.thresholds(stream, k, stride, maxima=many)
    return tau, gpu_kernels.exceeding(stream, tau)


# --- in blocks that stay in a cache ---------------------------------------------------------------------------------


def _in_blocks(stream: Stream, budget: int | None) -> tuple[Tensor, Tensor]:
    lines, units = len(stream.lines), stream.weights.shape[0]
    tau = stream.lines.new_zeros(stream.ends, lines, units)
    total = torch.zeros(stream.ends, lines, units, dtype=torch.float64, device=tau.device)
    for unit, part, terms in _blocks(stream):
        if budget is not None:
            stride, k = rank(budget, stream.owners)
            tau[:, part, unit] = _kth_largest(terms[..., ::stride], k)
            terms = terms.sub_(tau[:, part, unit].unsqueeze(-1)).clamp_min_(0.0)
        total[:, part, unit] = torch.unflatten(terms, -1, (-1, BLOCK)).sum(-1).sum(-1, dtype=torch.float64)
    return tau, total


def _blocks(stream: Stream) -> Iterator[tuple[int, slice, Tensor]]:
    """For each unit and some lines, the terms (ends, lines, owners)."""
    units, width, _, owners = stream.weights.shape
    size = max(1, (STREAM_BLOCK_CUDA if stream.lines.is_cuda else STREAM_BLOCK) // (width * owners))
    for unit in range(units):
        weights = stream.weights[unit]
        for begin in range(0, len(stream.lines), size):
            part = slice(begin, begin + size)
            # (w, lines, owners)
            c = torch.baddbmm(stream.bias[unit].unsqueeze(1), stream.lines[part].expand(width, -1, -1), weights)
            if stream.mixed is not None and stream.mix is not None:
                for inner, factor in enumerate(stream.mix[:, unit].tolist()):
                    c.add_(stream.mixed[part, inner].transpose(0, 1), alpha=factor)
            terms = terms_of(stream.kind, c)
            here = (stream.own[part] >= 0).nonzero().flatten()
            terms[:, here, stream.own[part][here]] = 0.0
            yield unit, part, terms


def terms_of(kind: Kind, c: Tensor) -> Tensor:
    """The terms (ends, ...) of coefficients (symbols, ...), which are overwritten."""
    if kind is Kind.SIMPLEX:
        return torch.stack((c.amin(0).neg_(), c.amax(0))).clamp_min_(0.0)
    if kind is Kind.BOX:
        return c.abs_().sum(0, keepdim=True)
    if kind is Kind.BALL:
        return c.square_().sum(0, keepdim=True).sqrt_()
    return c.abs_().amax(0, keepdim=True)
