"""Whether samples meet inside a network: in batch statistics, in masks drawn for a batch, or as neighbours.

Where they do, what is found for one batch says nothing of another: such a batch is not taken in pieces, and its inputs
are not cut apart. Both are tried out on plain copies with other parameters, since a head of zeros would hide what
happens before it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from . import rounding


def treated_apart(model: nn.Module, x: Tensor, size: int) -> bool:
    """Whether every layer puts out the same for a batch and for pieces of it, in another order.

    In the same order, samples that meet their neighbours would still do so. It must draw no random numbers either.
    """
    x, size = torch.nan_to_num(x), min(size, len(x) // 2)
    if size < 1:
        return False
    devices = _devices(x)
    with torch.no_grad(), torch.random.fork_rng(devices=devices):
        for tried in _with_other_parameters(model):
            order = torch.randperm(len(x)).to(x.device)
            state = [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in devices)]
            whole = outputs(tried, tried.modules(), x)
            after = [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in devices)]
            if not all(torch.equal(first, second) for first, second in zip(state, after, strict=True)):
                return False
            pieces = [outputs(tried, tried.modules(), piece) for piece in x[order].split(size)]
            if not _same(whole, pieces, order):
                return False
    return True


def answered_one_by_one(model: nn.Module, x: Tensor) -> bool:
    """Whether a plain model answers an input the same whatever else is in its batch."""
    with torch.no_grad(), torch.random.fork_rng(devices=_devices(x)):
        for tried in _with_other_parameters(model):
            others = x[:4] + torch.rand_like(x[:4]) * (1 + x.abs().amax())  # all inputs may be alike
            points = torch.cat((x[:8], others))
            together = tried(points.clone())  # a network may write into its inputs
            alone = torch.cat([tried(point.clone()) for point in points.split(1)])
            close = 1e4 * rounding.unit(alone.dtype)
            near = close * float(alone.nan_to_num(0.0, 0.0, 0.0).abs().amax())  # sums of any size cancel
            if together.shape != alone.shape or not torch.allclose(together, alone, close, near, equal_nan=True):
                return False
    return True


def _devices(x: Tensor) -> list[torch.device]:
    return [x.device] if x.is_cuda else []


def _with_other_parameters(model: nn.Module) -> Iterator[nn.Module]:
    for seed in range(3):
        torch.manual_seed(seed)
        tried = copy.deepcopy(model)
        for parameter in tried.parameters():
            parameter.add_(torch.randn_like(parameter))
        yield tried


def outputs(model: nn.Module, layers: Iterable[nn.Module], x: Tensor) -> list[Tensor]:
    """What some layers of a model put out, in the order of their calls."""
    seen: list[Tensor] = []

    def see(module: nn.Module, args: object, output: object) -> None:
        if isinstance(output, Tensor):
            seen.append(output)

    hooks = [module.register_forward_hook(see) for module in layers]
    try:
        model(x)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _same(whole: list[Tensor], pieces: list[list[Tensor]], order: Tensor) -> bool:
    if any(len(piece) != len(whole) for piece in pieces):
        return False
    for output, *parts in zip(whole, *pieces, strict=True):
        if any(part.dim() != output.dim() or part.shape[1:] != output.shape[1:] for part in parts):
            return False
        if not output.dim() or len(output) != len(order):
            return False
        joined, close = torch.cat(parts), 1e4 * rounding.unit(output.dtype)
        if joined.shape != output.shape or not torch.allclose(joined, output[order], rtol=close, atol=close):
            return False
    return True
