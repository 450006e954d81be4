"""Streams on a GPU: product, modulus and sum by one kernel (`terms.cu`), which writes no coefficients out.

Two kernels make terms. Lines that are plain are multiplied by matrix units, each number in two halves; what that loses
is `roundings` and `rounding.of_halves`, and `factored_support.py` pays for it. Lines that are mixed have few inner
terms, which are added one by one in float32.

Block sums are float32, totals float64. Thresholds, of which any will do, are those of every so many-th block of eight
owners, or of the maxima of blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...arithmetic.tuned_numbers import WRITTEN_TERMS
from ...symbols.budgets import Kind
from .kernel_compiler import launch
from .kernel_compiler import usable as usable
from .largest_terms import holds, kth_largest

if TYPE_CHECKING:
    from .streaming import Stream

# Owners whose terms are added up in float32, or of which a maximum is taken.
OWNERS = 64
# Lines of a tile, which matrix units multiply at once, owners of one, and inner terms.
TILE, EIGHT, STEP = 16, 8, 16
# Steps whose lines stay in registers, and tiles of lines that a warp then has; with more steps, lines are read again.
TILES_OF_STEPS, TILES_OF_MORE = {1: 4, 2: 4, 3: 2}, 4
WARPS = 4
# Bytes of weights that a block of threads works on while it fetches as many.
BATCH = 20 * 1024
# Units and lines of a block of the kernel for mixed lines; half as many units where both ends of a term are held.
MIXED_UNITS, MIXED_LINES = 8, 32
# Blocks that a launch can have along its second axis.
LINES_AT_A_TIME = 65535
KINDS = {Kind.BOX: 0, Kind.BALL: 1, Kind.CROSS: 2, Kind.SIMPLEX: 3}
SUMS, MAXIMA, TERMS = 0, 1, 2


def roundings(inner: int) -> int:
    """How many units of float32 a coefficient of plain lines is off by, on a GPU: relative to the moduli of its terms.

    Splitting loses 13 of them (`terms.cu`). Matrix units add 16 products and what is there already, in blocks: they cut
    digits off below the last one of the largest, so each of 17 numbers loses two units at most, and the result as much:
    36 for each of three products of a block.
    """
    return 13 + 108 * _steps(inner)


def _steps(inner: int) -> int:
    """Blocks of inner terms, of which the bias is one."""
    return inner // STEP + 1


def exceeding(stream: Stream, tau: Tensor) -> Tensor:
    """``sum_o max(t_o - tau, 0)``, (ends, lines, units) in float64."""
    out = torch.zeros(tau.shape, dtype=torch.float64, device=tau.device)
    _Lines(stream, 0, len(stream.lines)).launch(SUMS, tau.contiguous(), out)
    return out


def thresholds(stream: Stream, k: int, stride: int = 1, maxima: bool = False) -> Tensor:
    """The k-th largest term of every so many-th block of owners, or of the maxima of blocks: (ends, lines, units)."""
    units, tiles = stream.weights.shape[0], stream.owners // EIGHT
    columns = stream.owners // OWNERS if maxima else -(-tiles // stride) * EIGHT
    size = max(TILE, WRITTEN_TERMS // (stream.ends * units * columns) // TILE * TILE)
    found = []
    for begin in range(0, len(stream.lines), size):
        end = min(begin + size, len(stream.lines))
        terms = stream.lines.new_empty(stream.ends, end - begin, units, columns)
        _Lines(stream, begin, end).launch(MAXIMA if maxima else TERMS, stream.lines, terms, stride)
        found.append(_kth_largest(terms, k))
    return torch.cat(found, 1)


def _kth_largest(terms: Tensor, k: int) -> Tensor:
    """Of the last axis; 0 where there are fewer."""
    if k > terms.shape[-1]:
        return terms.new_zeros(terms.shape[:-1])
    rows = terms.flatten(0, -2)
    if holds(rows, terms.shape[-1], k):
        return kth_largest(rows, k).view(terms.shape[:-1])
    return torch.topk(terms, k, sorted=False).values.amin(-1)


class _Lines:
    """Some lines of a stream, as a kernel takes them."""

    def __init__(self, stream: Stream, begin: int, end: int):
        self.stream, self.part = stream, slice(begin, end)
        self.count = end - begin
        self.own = stream.own[begin:end].to(torch.int32)

    def launch(self, mode: int, tau: Tensor, out: Tensor, stride: int = 1) -> None:
        plain = self.stream.mixed is None or self.stream.mix is None
        (self._plain if plain else self._mixed)(mode, tau, out, stride)

    def _plain(self, mode: int, tau: Tensor, out: Tensor, stride: int) -> None:
        stream, device = self.stream, self.stream.lines.device
        units, width, inner, owners = stream.weights.shape
        steps = _steps(inner)
        lines, exponents = _packed_lines(stream.lines[self.part].contiguous(), steps)
        weights, of_units = _packed_weights(stream, steps)
        of_tile = 512 * width * steps  # bytes of weights of eight owners
        held = steps if steps in TILES_OF_STEPS and of_tile <= BATCH else 0
        tiles = TILES_OF_STEPS[steps] if held else TILES_OF_MORE
        some = max(1, BATCH // of_tile)
        blocks = -(-self.count // (TILE * tiles * WARPS)), units
        given = [lines, weights, exponents, of_units, self.own, tau, out, self.count, units, width, owners, steps]
        name = f"plain_terms<{KINDS[stream.kind]}, {mode}, {held}, {tiles}>"
        given += [stride, out.shape[-1], some]
        launch(name, device, blocks, 32 * WARPS, given, shared=2 * some * of_tile if held else 0)

    def _mixed(self, mode: int, tau: Tensor, out: Tensor, stride: int) -> None:
        stream, device = self.stream, self.stream.lines.device
        assert stream.mixed is not None and stream.mix is not None
        units, width, inner, owners = stream.weights.shape
        lines, mixed = stream.lines[self.part].contiguous(), stream.mixed[self.part]
        mixed = _owners_together(mixed, 1) if mixed.dim() == 4 else mixed.contiguous()
        weights, bias, has_bias = _together(stream)
        blocks = -(-units // (MIXED_UNITS // stream.ends)), -(-self.count // MIXED_LINES)
        given = [lines, weights, bias, mixed, stream.mix, self.own, tau, out, self.count, units, owners]
        name = f"mixed_terms<{KINDS[stream.kind]}, {mode}, {inner}, {len(stream.mix)}, {int(has_bias)}, {width}>"
        launch(name, device, blocks, 256, [*given, stride, out.shape[-1]])


def packed_mixed(deep: Tensor, columns: Tensor) -> Tensor:
    """Deep coefficients (lines, q, symbols) in float64 as (lines, owners / 32, q, width, 32) in float32.

    ``columns`` (owners, width) are the symbols of each owner; the number of all symbols where one has fewer.
    """
    lines, mixed, symbols = deep.shape
    owners, width = columns.shape
    places = torch.where(columns < symbols, columns, -1).to(torch.int32)
    packed = torch.empty(lines, owners // 32, mixed, width, 32, dtype=torch.float32, device=deep.device)
    some = LINES_AT_A_TIME // mixed  # a launch takes no more
    for begin in range(0, lines, some):
        part = deep[begin : begin + some].double().contiguous()
        given: list[Any] = [part, places, packed[begin : begin + some], mixed, width, owners // 32, symbols]
        launch("pack_mixed", deep.device, (-(-owners // (32 * 8)), len(part) * mixed), 256, given)
    return packed


def _owners_together(x: Tensor, place: int) -> Tensor:
    """The last axis, owners, in groups of 32 which stand at ``place``, and within a group last."""
    return torch.unflatten(x, -1, (-1, 32)).movedim(-2, place).contiguous()


def _together(stream: Stream) -> tuple[Tensor, Tensor, bool]:
    """Weights and bias by groups of owners, and whether there is a bias at all: made once for all lines."""
    found: tuple[Tensor, Tensor, bool] | None = stream.ready.get("together")
    if found is None:
        found = _owners_together(stream.weights, 1), _owners_together(stream.bias, 1), bool((stream.bias != 0).any())
        stream.ready["together"] = found
    return found


def _exponents(largest: Tensor) -> Tensor:
    """That of a power of two just above each number; of what is no number any will do."""
    return torch.frexp(largest).exponent.to(torch.int32).contiguous()


def _packed_lines(lines: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Lines in the order of matrix units, in two halves, and the exponents that they were scaled by."""
    count, inner = lines.shape
    exponents = _exponents(lines.abs().amax(1).clamp_min(1.0))
    tiles = -(-count // TILE)
    packed = torch.empty(tiles, steps, 2, 32, 4, dtype=torch.int32, device=lines.device)
    places = tiles * steps * 32
    given: list[Any] = [lines, exponents, packed, count, inner, steps, places]
    launch("pack_lines", lines.device, (-(-places // 256), 1), 256, given)
    return packed, exponents


def _packed_weights(stream: Stream, steps: int) -> tuple[Tensor, Tensor]:
    """The same of weights and bias: made once for all lines that they meet."""
    found: tuple[Tensor, Tensor] | None = stream.ready.get("weights")
    if found is None:
        units, width, inner, owners = stream.weights.shape
        exponents = _exponents(largest(stream.weights, stream.bias))
        packed = torch.empty(units, owners // EIGHT, width, steps, 32, 4, dtype=torch.int32, device=exponents.device)
        given: list[Any] = [stream.weights, stream.bias, exponents, packed, width, inner, owners, steps]
        launch("pack_weights", exponents.device, (units * width, -(-owners // (EIGHT * 8))), 256, given)
        found = stream.ready["weights"] = packed, exponents
    return found


def largest(weights: Tensor, bias: Tensor) -> Tensor:
    """The largest modulus of each unit."""
    return torch.maximum(weights.abs().amax((1, 2, 3)), bias.abs().amax((1, 2)))
