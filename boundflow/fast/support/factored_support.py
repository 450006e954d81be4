"""The support of a matrix product from its factors, streamed (`streaming.py`) in float32, and paid for.

Let t_o be the term of sample o, and t'_o what float32 made of it, off by e_o. Terms are sublinear, so with w for all
roundings of one coefficient (both inputs, the inner products, the sum over the symbols of a sample)

    e_o <= w term(sum_i |a_i| |B_i|_o + ...) <= w (sum_i |a_i| term(|B_i|_o) + ...),

    sum of the k largest t_o  <=  k tau + sum_o max(t'_o - tau, 0)  +  w (sum_i |a_i| v_i + sum_i |b_i| u_i + v_d)

where v_i is the support of the moduli of B_i with the same parts and the same budget, u_i that of A_i, v_d that of the
bias: one vector for all elements. The last bracket is the interval answer, which can be far above the support: where
the payment exceeds `MOST_PAYMENT` of it, the caller takes float64. Numbers below the normal range of float32 lose more
than w of themselves. With t for the smallest normal number, a factor a_i is then off by t, which costs t v_i, however
small a_i is; a coefficient of B_i costs t |a_i| for each symbol, and a product t.

Own rows. The owner of an element is left out of the stream, and its one term is made in float64, once with the own rows
of its sample and once without: where a sample was left alone, its own budgeted symbols are 0. With t'' for that term,

    k tau + sum over the others max(t'_o - tau, 0) + max(t'' - tau, 0)

holds as before: it is one of the terms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...arithmetic import rounding
from ...arithmetic.tuned_numbers import (
    MOST_MIXED,
    MOST_PAYMENT,
    SECOND_FACTORS,
    STREAM_COPIED,
    STREAM_LINES,
    STREAM_LINES_CUDA,
)
from ...sets.factors import Factors
from ...sets.forms import Form
from ...symbols.budgets import FREE, Columns, Kind, Part, by_owner, distinct, term
from . import gpu_kernels
from .device_tables import on_device
from .reused_coefficients import Multiple
from .streaming import BLOCK, Stream, exceeding

if TYPE_CHECKING:
    from ...symbols.rows import Batch
    from ...symbols.space import Symbols


class Group(NamedTuple):
    """The deep symbols of one part, by owner; error rows are owners of one symbol each."""

    part: int
    kind: Kind
    budget: int | None
    owners: np.ndarray  # sorted
    columns: Tensor  # (owners in whole blocks, symbols); the number of deep rows where there are fewer


def groups(space: Symbols, numbers: np.ndarray, device: torch.device) -> list[Group] | None:
    """Deep rows by part and owner; None where parts of one sample share a budget, whose terms are added before."""
    owners, parts = space.owners_and_parts(numbers)
    found = []
    for part in distinct(parts).tolist():
        held = np.flatnonzero(parts == part)
        if part == FREE:
            found.append(
                Group(FREE, Kind.BOX, None, np.empty(0, np.int64), _padded(held[:, None], len(numbers), device))
            )
            continue
        kind, clause = space.table[part]
        budget = space.budgets[clause]
        if budget is not None and (budget < 1 or _shared(space.table, clause)):
            return None
        whose = distinct(owners[held])
        index = by_owner(held, owners, whose)
        found.append(Group(part, kind, budget, whose, _padded(index, len(numbers), device)))
    return found


def _shared(table: Sequence[Part], clause: int) -> bool:
    return sum(part.clause == clause for part in table) > 1


def _padded(index: np.ndarray, missing: int, device: torch.device) -> Tensor:
    """Owners up to a whole number of blocks: those that are added have no symbols."""
    rest = -len(index) % BLOCK
    return on_device(np.pad(index, ((0, rest), (0, 0)), constant_values=missing), device)


def reach(
    space: Symbols, form: Form, factors: Factors, columns: Columns, found: Sequence[Group], clean: bool
) -> Tensor | None:
    """How far the product reaches, (states, 2, *shape), rounded up; None where float64 should do it.

    ``found`` are the deep rows by owner; rows of other symbols are not among those of the factors.
    """
    (count, inner), width = factors.a.center.shape, factors.b.center.shape[1]
    own = None if form.rows.batch is None else _OwnTerms(space, form, factors)
    # a term is joined with own rows, less tau, added to the others of its part, to k tau and to the parts before it,
    # to what own rows reach elsewhere and to what is paid, and converted: n + 7 roundings of 2 n + 8
    summands = len(found) + (0 if own is None else len(own.parts))
    added = 1 + rounding.of_ours(summands, form.center.dtype)
    if (factors.mixes and inner > MOST_MIXED) or not rounding.float32_is_full(form.center.device):
        return None
    streamed = _Product(factors, _ready(factors, columns, found, own is not None))
    parts, cheap = [], []
    for begin, end in streamed.lines(count):
        total, paid = streamed.part(begin, end, own, clean)
        cheap.append(paid.sum() <= MOST_PAYMENT * total[0, 0].sum())  # which is not so for NaN
        if not total.is_cuda and not bool(cheap[-1]):
            return None
        parts.append((total + paid).to(form.center.dtype) * added)
    if not bool(torch.stack(cheap).all()):  # of a GPU it is asked once
        return None
    return torch.cat(parts, 2).view(2 if clean else 1, 2, count, width)


class _Second:
    """A second factor and a bias: their deep coefficients, by part and owner in float32, and their moduli.

    In float64 they are kept for terms of own samples alone, where there are ``own`` rows: they take as much memory as
    the expansion itself.
    """

    def __init__(self, factors: Factors, columns: Columns, found: Sequence[Group], own: bool):
        factors.start_second()
        assert factors.deep_b is not None
        self.columns, self.found, self.b, self.own = columns, found, factors.b, own
        # what these coefficients may be off by; not the first factor
        self.error_b, self.error_bias = factors.error_b, factors.error_bias if factors.bias is not None else None
        deep_b, width = factors.deep_b, factors.b.center.shape[1]
        self.opposed, self.of_sum = factors.opposed, deep_b.new_zeros(width)
        if factors.opposed:  # a_0 b_0 + a_1 b_1 = a_0 (b_0 - b_1) + (a_0 + a_1) b_1, whose last term is next to nothing
            self.of_sum = _moduli(columns, deep_b[1])
            deep_b = deep_b[:1] - deep_b[1:]
            rounded = rounding.of_ours(1, deep_b.dtype) * factors.norm_b
            self.error_b = (self.error_b + rounded).sum(0, keepdim=True)
        inner, deep = len(deep_b), deep_b.flatten(0, 1)
        bias = factors.deep_bias if factors.bias is not None else deep.new_zeros(width, deep.shape[1])
        self.moduli_b = _moduli(columns, deep).view(inner, width)
        self.moduli_bias = _moduli(columns, bias)
        self.deep = deep.shape[1]
        self.weights = [_by_owner(deep_b, bias, group) for group in found]
        self.ready: list[dict[str, Any]] = [{} for _ in found]  # what a kernel made of these weights
        self.deep_b: Tensor | None = _with_nothing(deep_b) if own else None
        self.bias: Tensor | None = _with_nothing(bias) if own else None
        factors.forget_second()

    @cached_property
    def largest(self) -> Tensor:
        """The largest weight of each unit, (width)."""
        return torch.stack([gpu_kernels.largest(*weights) for weights in self.weights]).amax(0).double()


def _by_owner(deep_b: Tensor, bias: Tensor, group: Group) -> tuple[Tensor, Tensor]:
    """Coefficients (width, symbols, inner, owners) and those of the bias, in float32: some units at a time."""
    owners, symbols = group.columns.shape
    inner, width = deep_b.shape[:2]
    flat = group.columns.T.flatten()
    weights = torch.empty(width, symbols, inner, owners, dtype=torch.float32, device=deep_b.device)
    some = max(1, STREAM_COPIED // (inner * deep_b.shape[2]))
    for begin in range(0, width, some):
        part = _with_nothing(deep_b[:, begin : begin + some]).index_select(2, flat)
        weights[begin : begin + some] = part.view(inner, -1, symbols, owners).permute(1, 2, 0, 3)
    return weights, _with_nothing(bias).index_select(1, flat).float().view(width, symbols, owners)


def _ready(factors: Factors, columns: Columns, found: Sequence[Group], own: bool) -> _Second:
    """The second factor of a product, which is the same for every piece of a batch: kept with the expansion.

    It is the same if its numbers stand in the same place of the same memory. That memory is held here, so nothing else
    can stand there, and inner tensors of sets are never written to.
    """
    forms = [factors.b] if factors.bias is None else [factors.b, factors.bias]
    kept: list[tuple[list[Form], _Second]] = factors.expansion.prepared
    for held, second in kept:
        same = len(held) == len(forms) and all(map(Form.same_memory, held, forms))
        same = same and second.opposed is factors.opposed
        if same and second.found is found and (second.own or not own):  # and so are the budgets
            return second
    made = _Second(factors, columns, found, own)
    kept[:] = [(forms, made), *kept[: SECOND_FACTORS - 1]]  # those of the way forward and of the way back
    return made


class _Product:
    """A product whose second factor stands ready."""

    def __init__(self, factors: Factors, second: _Second):
        self.factors, self.second, self.found = factors, second, second.found
        self.mixes = factors.mixes

    def lines(self, count: int) -> Iterator[tuple[int, int]]:
        """So many at a time that the deep coefficients of the first factor fit into memory, where it has any."""
        size = count
        if self.mixes:
            mix = self.factors.mix
            numbers = STREAM_LINES_CUDA if mix.is_cuda else STREAM_LINES
            size = max(1, numbers // (len(mix) * (self.second.deep + 1)))
        for begin in range(0, count, size):
            yield begin, min(count, begin + size)

    def part(self, begin: int, end: int, own: _OwnTerms | None, clean: bool) -> tuple[Tensor, Tensor]:
        """What some lines reach, (states, 2, elements), and what was paid for float32."""
        factors, second = self.factors, self.second
        both = factors.a.center[begin:end]
        a = both[:, :1] if second.opposed else both
        first = _First.of(factors, begin, end, self.second) if self.mixes else None
        shape = (2 if clean else 1, 2, len(a), factors.b.center.shape[1])
        total = torch.zeros(shape, dtype=torch.float64, device=a.device)
        narrow, mix = a.float().contiguous(), None if first is None else factors.mix.float().contiguous()
        for group, (weights, bias), ready in zip(self.found, second.weights, second.ready, strict=True):
            places = None if own is None else own.places(group, begin, end)
            left_out = torch.full((end - begin,), -1, device=a.device) if places is None else places
            mixed = None if first is None else first.mixed(group)
            stream = Stream(group.kind, narrow, weights, bias, mixed, mix, left_out, ready)
            tau, beyond = exceeding(stream, group.budget)
            beyond = _summed_in_blocks(beyond)
            deep = None if places is None else self._own_coefficients(a, first, group, places)
            for state in range(len(total)):
                value = beyond
                if own is not None and places is not None and deep is not None:
                    one = own.terms(group, deep, places, begin, end, clean=state == 1)
                    value = value + (one - tau).clamp_min(0.0)
                if group.budget is not None:
                    value = value + group.budget * tau  # exact: a float32 times a whole number below 2^29
                total[state] += value
        if own is not None:
            owned = {group.part for group in self.found}
            for state in range(len(total)):
                total[state] += own.elsewhere(owned, begin, end, clean=state == 1)
        paid = self._paid(a, first) + self._rounded(a, first)
        if second.opposed:
            paid = paid + rounding.up(both.sum(1, keepdim=True).abs()) * second.of_sum
        return total.flatten(2), paid.flatten()

    def _own_coefficients(self, a: Tensor, first: _First | None, group: Group, places: Tensor) -> Tensor:
        """Of every element, those of the symbols of its own owner, (lines, units, symbols), in float64."""
        deep_b, bias = self.second.deep_b, self.second.bias
        assert deep_b is not None and bias is not None
        columns = group.columns[places.clamp_min(0)]
        columns = torch.where((places >= 0).unsqueeze(1), columns, self.second.deep)
        lines, symbols = columns.shape
        found = bias[:, columns.flatten()].view(-1, lines, symbols).transpose(0, 1)
        for inner in range(a.shape[1]):
            picked = deep_b[inner][:, columns.flatten()].view(-1, lines, symbols).transpose(0, 1)
            found = torch.addcmul(found, picked, a[:, inner, None, None])
        if first is not None:
            for mixed, mix in zip(first.own(group, columns, places), self.factors.mix, strict=True):
                found = torch.addcmul(found, mixed.unsqueeze(1), mix[None, :, None])
        return found

    def _paid(self, a: Tensor, first: _First | None) -> Tensor:
        """``w (|a| . v + u . |b| + v_d)``, and what float32 loses to underflow.

        A coefficient takes 2 i + s + 6 roundings, for i inner terms and s symbols of a sample, and w holds 4 i + 2 s +
        24. So about half of it is spare, which pays for the roundings of all that is computed here, and of `_rounded`.
        Matrix units take more of them, of which w holds twice as many as well.
        """
        second, inner, symbols = self.second, a.shape[1], max(group.columns.shape[1] for group in self.found)
        by_units = not self.mixes and gpu_kernels.usable(a.device)
        many = gpu_kernels.roundings(inner) if by_units else 2 * inner
        unit = rounding.of_ours(many + symbols + 8, torch.float32)
        answer = a.abs() @ second.moduli_b + second.moduli_bias
        size = 1 + a.abs().sum(1, keepdim=True) + second.moduli_b.sum(0)
        if first is not None:
            b, moduli = self.factors.mix.abs(), first.moduli
            answer, size = answer + moduli @ b, size + b.sum(0) + moduli.sum(1, keepdim=True)
        lost = rounding.tiny(2 * inner + symbols + 8, torch.float32) * sum(
            group.columns.numel() for group in self.found
        )
        squares = sum(len(group.columns) for group in self.found if group.kind is Kind.BALL)
        paid = unit * answer + lost * size + squares * math.sqrt(rounding.tiny(symbols, torch.float32))
        return paid + self._split(a) if by_units else paid

    def _split(self, a: Tensor) -> Tensor:
        """What numbers lose that are small beside the largest one of their line or unit, where these are split.

        ``L max(|a|, 1) (sum_i v_i + v_d)``, and L times the largest of a unit for each symbol and inner term.
        """
        second, size = self.second, a.abs()
        reach = size.amax(1, keepdim=True).clamp_min(1.0) * (second.moduli_b.sum(0) + second.moduli_bias)
        symbols = sum(group.columns.numel() for group in self.found)
        return rounding.of_halves() * (reach + (size.sum(1, keepdim=True) + 1) * second.largest * symbols)

    def _rounded(self, a: Tensor, first: _First | None) -> Tensor:
        """What the deep coefficients of the factors may be off by, summed; each error is twice what it has to be."""
        off = a.abs() @ self.second.error_b
        if self.second.error_bias is not None:
            off = off + self.second.error_bias
        return off if first is None else off + first.error @ self.factors.mix.abs()


def _summed_in_blocks(total: Tensor) -> Tensor:
    """Sums of terms that are not negative: blocks in float32, one subtraction each, and their totals in float64.

    BLOCK roundings of float32 in any order; as many and twelve more are spare, and pay for any number of float64 ones.
    """
    return total * (1 + rounding.of_ours(BLOCK + 2, torch.float32))


def _moduli(columns: Columns, deep: Tensor) -> Tensor:
    """The support of the moduli of coefficients (elements, deep rows), some elements at a time."""
    size = max(1, 2**26 // max(1, deep.shape[1]))
    return torch.cat([columns.reach(part.abs())[1] for part in torch.split(deep, size)])


def _with_nothing(deep: Tensor) -> Tensor:
    """One more column, of zeros, for owners that have fewer symbols than others."""
    return torch.nn.functional.pad(deep, (0, 1))


class _First:
    """Deep coefficients of some lines of a first factor that has rows: their moduli, and what they may be off by."""

    moduli: Tensor  # (lines, inner)
    error: Tensor

    @staticmethod
    def of(factors: Factors, begin: int, end: int, second: _Second) -> _First:
        multiple = factors.multiple(begin, end)
        if multiple is not None and len(multiple.packed) == len(second.found):
            return _Multiple(multiple, second.found, factors.a.center.dtype)
        return _Expanded(*factors.lines(begin, end), second)

    def mixed(self, group: Group) -> Tensor:
        """Over the symbols of a group, in float32 and in the order of a stream."""
        raise NotImplementedError

    def own(self, group: Group, columns: Tensor, places: Tensor) -> list[Tensor]:
        """For each inner index, those of these symbols (lines, symbols), all of the owner at the place of a line."""
        raise NotImplementedError


class _Expanded(_First):
    """Lines (lines, inner, symbols) in float64."""

    def __init__(self, deep: Tensor, error: Tensor, second: _Second):
        self.deep, self.error = deep, error
        self.moduli = _moduli(second.columns, deep.flatten(0, 1)).view(deep.shape[:2])

    def mixed(self, group: Group) -> Tensor:
        if gpu_kernels.usable(self.deep.device):
            return gpu_kernels.packed_mixed(self.deep, group.columns)
        owners, symbols = group.columns.shape
        taken = _with_nothing(self.deep)[..., group.columns.T.flatten()].float()
        return taken.view(*self.deep.shape[:2], symbols, owners)

    def own(self, group: Group, columns: Tensor, places: Tensor) -> list[Tensor]:
        symbols = self.deep.shape[2]
        there = columns < symbols
        where = columns.clamp_max(symbols - 1)
        return [torch.take_along_dim(deep, where, 1) * there for deep in self.deep.unbind(1)]


class _Multiple(_First):
    """Multiples of lines that were kept (`reused_coefficients.py`), which are rounded to float32 two times more.

    Moduli and errors are converted, which both have roundings to spare for.
    """

    def __init__(self, multiple: Multiple, found: Sequence[Group], dtype: torch.dtype):
        self.moduli, self.error = multiple.moduli.to(dtype), multiple.error.to(dtype)
        self.packed = {group.part: packed for group, packed in zip(found, multiple.packed, strict=True)}

    def mixed(self, group: Group) -> Tensor:
        return self.packed[group.part]

    def own(self, group: Group, columns: Tensor, places: Tensor) -> list[Tensor]:
        lines, place = torch.arange(len(places), device=places.device), places.clamp_min(0)
        taken = self.packed[group.part][lines, place // 32, 0, :, place % 32]
        return [torch.where((places >= 0).unsqueeze(1), taken, 0.0).to(self.moduli.dtype)]


class _OwnTerms:
    """The term of the own sample of each element: its deep symbols, and its own rows."""

    def __init__(self, space: Symbols, form: Form, factors: Factors):
        batch = form.rows.batch
        assert batch is not None and form.axis == -2
        space.require_known(batch.numbers, batch.parts)
        self.batch: Batch = batch
        self.table, self.budgets = space.table, space.budgets
        own = form.rows.split(form.center.device)[2]
        self.rows = form.generators[own]  # (features, lines, units)
        self.deep_places = batch.deep(factors.expansion)
        self.deep = len(factors.expansion.deep)
        self.parts = set(batch.parts.tolist())

    def _held(self, part: int) -> Tensor:
        return on_device(np.flatnonzero(self.batch.parts == part), self.rows.device)

    def places(self, group: Group, begin: int, end: int) -> Tensor | None:
        """The owner of each line among those of the group, -1 for none; None for error rows."""
        if group.part == FREE:
            return None
        samples = self.batch.samples[begin:end]
        place = np.searchsorted(group.owners, samples).clip(max=len(group.owners) - 1)
        place = np.where(group.owners[place] == samples, place, -1)
        return on_device(place, self.rows.device)

    def terms(self, group: Group, deep: Tensor, places: Tensor, begin: int, end: int, clean: bool) -> Tensor:
        """The term of each element's own sample in a group, (2, lines, units): without own rows if they are clean."""
        if (clean and group.budget is not None) or group.part not in self.parts:
            return torch.stack(term(group.kind, deep))
        held = self._held(group.part)
        own = self.rows[held, begin:end].permute(1, 2, 0)  # (lines, units, features)
        columns = torch.where((places >= 0).unsqueeze(1), group.columns[places.clamp_min(0)], -1)
        where = self.deep_places[begin:end, held]
        same = columns.unsqueeze(1) == where.unsqueeze(2)  # (lines, features, symbols)
        same &= (where < self.deep).unsqueeze(2)
        joined = deep + own @ same.to(own.dtype)
        rest = own * ~same.any(2).unsqueeze(1)
        return torch.stack(term(group.kind, torch.cat((joined, rest), 2)))

    def elsewhere(self, owned: set[int], begin: int, end: int, clean: bool) -> Tensor:
        """Own terms of parts that no deep symbol has: one sample for each element, within any budget."""
        total = self.rows.new_zeros(2, end - begin, self.rows.shape[2], dtype=torch.float64)
        for part in sorted(self.parts - owned):
            kind, clause = self.table[part]
            if not (clean and self.budgets[clause] is not None):
                own = self.rows[self._held(part), begin:end].permute(1, 2, 0)
                total += torch.stack(term(kind, own))
        return total
