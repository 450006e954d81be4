"""A matrix product by its factors: a cheaper way to what it is over the deep rows.

With A and B the deep coefficients of a and b, those of ``a b + bias`` are ``A cb + ca B`` plus those of the bias. That
takes a few numbers for each element and deep row, where expanding the rows of the product takes one for each derived
symbol: 9 TFLOP for an activation of (3000, 128).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..arithmetic import rounding
from ..arithmetic.thread_context import thread
from ..arithmetic.tuned_numbers import FACTOR_LINES, STREAM_FROM
from ..symbols.budgets import box
from ..symbols.expansion import Expansion
from ..symbols.rows import Rows

if TYPE_CHECKING:
    from ..fast.support.reused_coefficients import Multiple
    from .forms import Form


class Factors:
    """A product ``a b + bias``: its coefficients over the deep rows, made from those of its factors."""

    streams = True  # whether `factored_support.py` knows it

    def __init__(self, a: Form, b: Form, bias: Form | None):
        self._a, self.b, self.bias = a, b.without_own, None if bias is None else bias.without_own
        rows = a.rows if a.rows.batch is None else a.rows.split(a.center.device)[0]
        self.mixes = len(rows) > 0  # of a plain tensor there are none

    @cached_property
    def a(self) -> Form:
        """The first factor without its own rows, which is a copy of all others: made where factors pay."""
        return self._a.without_own

    def pay(self, expansion: Expansion) -> bool:
        """Whether this takes less than expanding the product; a stream has no chunks to write, so it pays earlier."""
        derived, (count, inner), width = len(expansion.derived), self._a.center.shape, self.b.center.shape[1]
        first = count * inner * derived if self.mixes else 0
        second = 0 if self._parameter else self.b.center.numel() * derived
        factors = first + second + 2 * inner * count * width
        large = count * width * expansion.everywhere * thread.arithmetic.trial_of >= STREAM_FROM
        return (1 if large else 4) * factors < count * width * derived

    @property
    def _parameter(self) -> bool:
        """Whether each element of the second factor has one row: it is expanded without a product then."""
        if thread.arithmetic.deferred is not None:  # a compiled step asks for no values
            return False
        return self.b.one_row_each

    def start(self, expansion: Expansion) -> None:
        """Look through this expansion."""
        self.expansion = expansion
        self.ready = range(0)  # the lines of the first factor that are expanded
        self.are_multiples: bool | None = None  # of lines that were kept; None before any was looked at
        self.deep_b: Tensor | None = None
        self.second: Tensor | None = None
        b, lines = self.b.center, self.a.generators
        # rows of probabilities of two classes are opposite: A_0 b_0 + A_1 b_1 = A_0 (b_0 - b_1)
        few = b.shape[0] == 2 and len(self.a.rows) > 0 and thread.arithmetic.deferred is None
        self.opposed = few and torch.equal(lines[..., 0], -lines[..., 1])
        self.mix = b[:1] - b[1:] if self.opposed else b  # what deep coefficients of the first factor are multiplied by

    def start_second(self) -> None:
        """Expand the second factor and the bias, which every part needs."""
        if self.deep_b is not None:
            return
        inner, width = self.b.center.shape
        deep, error = self._deep(self.b.generators, self.b.rows, inner * width)
        self.deep_b, self.error_b = deep.view(inner, width, -1), error.view(inner, width)
        self.norm_b = box(self.deep_b, 2)
        if self.bias is not None:
            self.deep_bias, self.error_bias = self._deep(self.bias.generators, self.bias.rows, width)
            self.norm_bias = box(self.deep_bias, 1)

    def forget_second(self) -> None:
        """What was expanded is large; it is made again where it is asked for."""
        self.deep_b = self.second = None

    def _second(self, center: Tensor) -> Tensor:
        """Lines of the first factor times the second, and the bias: one product, in which the bias is multiplied by 1.

        So few inner terms cost less than one more pass over the result. It is written where that of the last lines
        stood, which were used up by then: fresh memory would cost as much as the product itself.
        """
        assert self.deep_b is not None
        if self.bias is not None:
            center = torch.nn.functional.pad(center, (0, 1), value=1.0)
        if self.second is None:
            parts = (self.deep_b,) if self.bias is None else (self.deep_b, self.deep_bias.unsqueeze(0))
            self.second = torch.cat(parts).flatten(1)
            self.total = self.second.new_empty(len(center), self.second.shape[1])
        if len(center) > len(self.total):
            return center @ self.second
        return torch.mm(center, self.second, out=self.total[: len(center)])

    def _deep(self, generators: Tensor, rows: Rows, count: int) -> tuple[Tensor, Tensor]:
        """Coefficients of ``count`` elements over the deep rows; all zero where there are no rows."""
        if not len(rows):
            return generators.new_zeros(count, len(self.expansion.deep)), generators.new_zeros(count)
        return self.expansion.expanded(generators.reshape(len(rows), count).T, rows)

    def lines(self, begin: int, end: int) -> tuple[Tensor, Tensor]:
        """Deep coefficients of some lines of the first factor, one for each line of `mix`; many at a time, and kept."""
        if begin not in self.ready or end - 1 not in self.ready:
            count, inner = self.a.center.shape
            self.ready = range(begin, min(count, max(end, begin + -(-FACTOR_LINES // inner))))
            lines, size = self.a.generators[:, begin : self.ready.stop], len(self.ready)
            lines, inner = (lines[..., :1], 1) if self.opposed else (lines, inner)
            deep, error = self._deep(lines, self.a.rows, size * inner)
            self.deep_a, self.error_a = deep.view(size, inner, -1), error.view(size, inner)
        first, last = begin - self.ready.start, end - self.ready.start
        return self.deep_a[first:last], self.error_a[first:last]

    def multiple(self, begin: int, end: int) -> Multiple | None:
        """Some lines of the first factor, if they are multiples of lines that the expansion has kept."""
        kept = self.expansion.kept
        if kept is None or not self.opposed or len(kept.elements) != len(self.a.center) or self.are_multiples is False:
            return None
        if not np.array_equal(self.a.rows.numbers, kept.numbers):
            return None
        found = kept.multiple(self.a.generators[:, begin:end, 0].T, begin, looked_at=self.are_multiples is True)
        self.are_multiples = found is not None
        return found

    def part(self, begin: int, end: int) -> tuple[Tensor, Tensor]:
        """Coefficients (elements, deep rows) of the lines from begin to end, and what they may be off by, summed.

        Those of the lines before are overwritten. Errors of expansions are twice what they have to be and more, and so
        is gamma: that pays for the roundings of these sums, and of a difference in `mix`.
        """
        center, (inner, width) = self.a.center[begin:end], self.b.center.shape
        self.start_second()
        assert self.deep_b is not None
        total = self._second(center).view(len(center), width, -1)
        unit = rounding.gamma(inner + 4, total.dtype)
        off = center.abs() @ (self.error_b + unit * self.norm_b)
        if len(self.a.rows):
            deep_a, error_a = self.lines(begin, end)
            total.baddbmm_(self.mix.T.expand(len(center), width, len(self.mix)), deep_a)
            off = off + (error_a + unit * box(deep_a, 2)) @ self.mix.abs()
        if self.bias is not None:
            off = off + self.error_bias + unit * self.norm_bias
        return total.flatten(0, 1), off.flatten()


class Softened(Factors):
    """Softmax of a product, linearised: ``J (a b + bias)`` with ``J_cj = p_c (delta_cj - p_j)`` for each line.

    Mixing the classes of a line takes C numbers for each element and deep row, expanding its rows one for each derived
    symbol, of which there are C for every feature.
    """

    streams = False

    def __init__(self, product: Factors, p: Tensor):
        super().__init__(product.a, product.b, product.bias)
        self.p = p

    def part(self, begin: int, end: int) -> tuple[Tensor, Tensor]:
        """The same of ``p_c (g_c - sum_j p_j g_j)``, g being the coefficients of the product.

        What is charged is twice what it has to be, here as there: that pays for the roundings of the sum of errors.
        """
        p = self.p[begin:end]
        total, off = (torch.unflatten(x, 0, tuple(p.shape)) for x in super().part(begin, end))
        off = off + rounding.gamma(p.shape[1] + 4, total.dtype) * box(total, 2)
        mean = torch.einsum("ic,ick->ik", p, total)
        total = (total - mean.unsqueeze(1)).mul_(p.unsqueeze(2))
        error = p * (off + (p * off).sum(1, keepdim=True))
        return total.flatten(0, 1), error.flatten()
