"""Convolutions and their gradients: bilinear in input and kernel, in gradient and kernel, in gradient and input."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..errors import UnsupportedOperator
from ..rules.bilinear import Product
from ..rules.contractions import Rule, apart, contraction, first_samples
from ..rules.linear import sum_
from ..rules.structural import selected, view
from ..sets.set import Set
from ..tensor.rule_table import aten, rule

# Each flag alone: torch.backends.*.flags would also set the precision of products, and warn of a GPU that is not there.
LIBRARIES = (
    (torch._C._get_cudnn_enabled, torch._C._set_cudnn_enabled),
    (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    (torch._C._get_nnpack_enabled, torch._C._set_nnpack_enabled),
)


class _WithoutLibraries:
    """No cuDNN, oneDNN and NNPACK: Winograd and FFT do not obey the rounding bound, im2col does.

    The flags belong to the process, so threads share them: the first to enter switches the libraries off, the last to
    leave restores them. If each restored what it had found, one would hand them to another that still convolves.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before: list[bool] = []

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = [enabled() for enabled, _ in LIBRARIES]
                for _, switch in LIBRARIES:
                    switch(False)
            self._inside += 1

    def __exit__(self, *mistake: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                for (_, switch), before in zip(LIBRARIES, self._before, strict=True):
                    switch(before)


without_libraries = _WithoutLibraries()


def _direct(f: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """f, computed by direct sums."""

    def run(*args: Tensor) -> Tensor:
        with without_libraries:
            return f(*args)

    return run


def _by_samples(f: Product) -> Product:
    """f over generator rows of its first operand: they are samples like any others."""

    def over_rows(rows: Tensor, other: Tensor) -> Tensor:
        return torch.unflatten(f(rows.flatten(0, 1), other), 0, rows.shape[:2])

    return over_rows


def _by_channels(f: Product, operand: int, channels: tuple[int, int], groups: tuple[int, int]) -> Product:
    """f over generator rows of one operand, put side by side into its channels, and taken out of those of the result.

    ``channels`` are the axes of the operand and of the result, ``groups`` how many groups of channels each has: rows
    stand beside each other within every group.
    """
    (into, out), (groups_in, groups_out) = channels, groups

    def over_rows(a: Tensor, b: Tensor) -> Tensor:
        rows = b if operand else a
        within = torch.unflatten(rows, into + 1, (groups_in, -1)).movedim(0, into + 1).flatten(into, into + 2)
        result = f(a, within) if operand else f(within, b)
        apart = torch.unflatten(result, out, (groups_out, len(rows), -1))
        return apart.movedim(out + 1, 0).flatten(out + 1, out + 2)

    return over_rows


@rule(
    aten.convolution.default,
    example=lambda t: (t(2, 2, 4, 4), t(4, 1, 3, 3), t(4), [2, 1], [1, 0], [1, 1], False, [0, 0], 2),
)
def convolution(
    x: Set,
    weight: Set,
    bias: Set | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Set:
    if transposed:
        raise UnsupportedOperator("transposed convolutions have no rule: use upsampling and a convolution")

    @_direct
    def f(inputs: Tensor, kernel: Tensor) -> Tensor:
        options = stride, padding, dilation, False, output_padding, groups
        convolved: Tensor = aten.convolution.default(inputs, kernel, None, *options)
        return convolved

    shape = (-1, *(1,) * (x.dim() - 2))
    if bias is not None:
        bias = selected(bias, lambda tensor, lead: view(tensor, lead, shape))
    rounding.require_full_precision(x, convolution=True)
    terms, rows = math.prod(weight.shape[1:]), (_by_samples(f), _by_channels(f, 1, (0, 1), (groups, groups)))
    return contraction("convolution", x, weight, f, *rows, terms, bias, first_samples)


@rule(
    aten.convolution_backward.default,
    example=lambda t: (
        t(2, 4, 2, 2),
        t(2, 2, 4, 4),
        t(4, 1, 3, 3),
        [4],
        [2, 1],
        [1, 0],
        [1, 1],
        False,
        [0, 0],
        2,
        [True, True, True],
    ),
)
def convolution_backward(
    grad: Set, x: Set, weight: Set, bias_sizes: Sequence[int] | None, *options: Any
) -> tuple[Set | None, ...]:
    *geometry, groups, wanted = options
    rounding.require_full_precision(grad, convolution=True)

    def gradient(of: int, grad: Tensor, inputs: Tensor, weights: Tensor) -> Tensor:
        mask = [index == of for index in range(3)]
        found = aten.convolution_backward.default(grad, inputs, weights, None, *geometry, groups, mask)
        wanted: Tensor = found[of]
        return wanted

    @_direct
    def of_inputs(grad: Tensor, weights: Tensor) -> Tensor:  # which does not read the inputs
        return gradient(0, grad, grad.new_empty(len(grad), weights.shape[1] * groups, *x.shape[2:]), weights)

    @_direct
    def of_weights(grad: Tensor, inputs: Tensor) -> Tensor:  # nor this the weights
        shape = grad.shape[1], inputs.shape[1] // groups, *weight.shape[2:]
        return gradient(1, grad, inputs, grad.new_empty(shape))

    def product(f: Product, other: Set, left: Product, right: Product, terms: int, samples: Rule) -> Set:
        return contraction("convolution_backward", grad, other, f, left, right, terms, None, samples)

    found: list[Set | None] = [None, None, None]
    if wanted[0]:
        terms, right = weight.shape[0] * math.prod(weight.shape[2:]), _by_channels(of_inputs, 1, (1, 1), (1, groups))
        found[0] = product(of_inputs, weight, _by_samples(of_inputs), right, terms, first_samples)
    if wanted[1]:
        left = _by_channels(of_weights, 0, (1, 0), (groups, groups))
        right = _by_channels(of_weights, 1, (1, 1), (groups, 1))
        found[1] = product(of_weights, x, left, right, math.prod(grad.shape) // grad.shape[1], apart)
    if wanted[2]:
        found[2] = sum_(grad, [0, *range(2, grad.dim())])
    return tuple(found)
