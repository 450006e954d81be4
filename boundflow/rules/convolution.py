"""Convolutions and their gradients: bilinear in input and kernel, in gradient and kernel, in gradient and input."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import rounding
from ..bounded import (
    Bounded,
    as_set,
    aten,
    point,
    rule,
)
from ..errors import UnsupportedOperator
from .bilinear import Product, Rule, apart, contraction, first_samples
from .linear import sum_
from .structural import selected, view

_MODES = torch._C.DispatchKeySet(torch._C.DispatchKey.Python)
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

    def run(*args: Any) -> Tensor:
        with without_libraries:
            return f(*args)

    return run


def _mapped(f: Product, operand: int) -> Product:
    """f over generator rows of one operand."""
    dims = (0, None) if operand == 0 else (None, 0)

    def over_rows(a: Tensor, b: Tensor) -> Tensor:
        # without the key of modes: one that is handling this very operator (`draws.py`) has stepped aside by now
        with torch.overrides.enable_reentrant_dispatch(), torch._C._ExcludeDispatchKeyGuard(_MODES), torch.no_grad():
            return torch.func.vmap(f, in_dims=dims)(a, b)

    return over_rows


def _convolution_rule(
    name: str, a: Any, b: Any, f: Product, terms: float, bias: Any = None, samples: Rule = first_samples
) -> Bounded:
    f = _direct(f)
    rounding.require_full_precision(a if isinstance(a, Bounded) else b, convolution=True)
    return contraction(name, a, b, f, _mapped(f, 0), _mapped(f, 1), terms, bias, samples)


@rule(
    aten.convolution.default,
    example=lambda t: (t(2, 2, 4, 4), t(4, 1, 3, 3), t(4), [2, 1], [1, 0], [1, 1], False, [0, 0], 2),
)
def convolution(x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, *rest: Any) -> Bounded:
    transposed, output_padding, groups = rest
    if transposed:
        raise UnsupportedOperator("transposed convolutions have no rule: use upsampling and a convolution")

    def f(inputs: Tensor, kernel: Tensor) -> Tensor:
        return aten.convolution.default(inputs, kernel, None, stride, padding, dilation, False, output_padding, groups)

    shape = (-1, *(1,) * (x.dim() - 2))
    if isinstance(bias, Bounded):
        bias = selected(bias, lambda tensor, lead: view(tensor, lead, shape))
    elif bias is not None:
        bias = bias.view(shape)
    if not isinstance(x, Bounded) and not isinstance(weight, Bounded):
        x = point(x)
    return _convolution_rule("convolution", x, weight, f, math.prod(weight.shape[1:]), bias)


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
def convolution_backward(grad: Any, x: Any, weight: Any, bias_sizes: Any, *options: Any) -> tuple:
    *geometry, wanted = options
    kernel, batch = math.prod(weight.shape[2:]), math.prod(grad.shape) // grad.shape[1]

    def gradient(of: int) -> Product:
        mask = [index == of for index in range(3)]

        def f(grad: Tensor, other: Tensor) -> Tensor:
            inputs, weights = (_like(x, other), other) if of == 0 else (other, _like(weight, other))
            return aten.convolution_backward.default(grad, inputs, weights, None, *geometry, mask)[of]

        return f

    def product(of: int, other: Any, terms: int) -> Any:
        if not wanted[of]:
            return None
        if not isinstance(grad, Bounded) and not isinstance(other, Bounded):
            return _direct(gradient(of))(grad, other)
        samples = first_samples if of == 0 else apart
        return _convolution_rule("convolution_backward", grad, other, gradient(of), terms, None, samples)

    bias = sum_(as_set(grad), [0, *range(2, grad.dim())]) if wanted[2] else None
    return product(0, weight, weight.shape[0] * kernel), product(1, x, batch), bias


def _like(x: Any, other: Tensor) -> Tensor:
    """A stand-in of the right shape: the gradient with respect to an operand does not read it."""
    return torch.empty(x.shape, dtype=other.dtype, device=other.device)
