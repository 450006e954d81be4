"""A batch in pieces, so that its sets fit into memory.

The gradient of a batch is the sum of the gradients of its pieces, and a sum of sets holds every sum of members. Two
things do not simply add up:

- at most k samples are touched in all pieces together, so what touched samples add (`clean.py`) is kept by sample until
  the last piece, and the k largest are taken then;
- plain PyTorch sums over the whole batch, so every rounding is charged for as many terms as the batch has.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from . import rounding
from .bounded import Bounded, concretised
from .clean import Excess, by_sample
from .rules.linear import combination
from .symbols import Symbols
from .threats import Threat

COPIES = 6  # sets of one activation that are alive at a time, in rules and for the backward pass


def rows_fit(
    model: nn.Module, threat: Threat, x: Tensor, targets: Tensor, batches: Sequence[Tensor], memory: float
) -> bool:
    """Whether one row for each symbol of each visited sample, over all trained scalars, stays within the memory."""
    lifted = threat.lift(Symbols(threat), x[:1], targets[:1], [0])
    rows = max((len(part.form.rows) for part in lifted if isinstance(part, Bounded)), default=0)
    visited = len(torch.cat(list(batches)).unique())
    return rows * visited * _trained(model) * x.element_size() <= memory


def chunk_size(model: nn.Module, x: Tensor, symbols: Symbols | None, batch: Tensor, memory: float) -> int:
    """How many samples of a batch are held at a time."""
    if symbols is None:
        return len(batch)
    elements = _activations(model, x[batch[:1]])
    size = int(memory / max(1, COPIES * elements * _trained(model) * x.element_size()))
    if size >= len(batch) or not _apart(model, x[batch[:64]], max(2, size)):
        return len(batch)
    return max(2, size)


def _trained(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _activations(model: nn.Module, x: Tensor) -> int:
    """The numbers that the layers of a model put out for one sample."""
    watched = copy.deepcopy(model).eval()
    layers = [module for module in watched.modules() if not list(module.children())]
    with torch.no_grad():
        return max(1, sum(output.numel() for output in _outputs(watched, layers, torch.nan_to_num(x))))


def _apart(model: nn.Module, x: Tensor, size: int) -> bool:
    """Whether a model treats samples one by one: not with batch statistics, and not with masks drawn for a batch.

    It must draw no random numbers, and every layer must put out the same for a batch and for pieces of it, in another
    order: samples that meet their neighbours would still do so in the same order. And it must do so whatever the
    parameters are: a head of zeros would hide what happens before it.
    """
    x, size = torch.nan_to_num(x), min(size, len(x) // 2)
    if size < 1:
        return False
    devices = [x.device] if x.is_cuda else []
    with torch.no_grad(), torch.random.fork_rng(devices=devices):
        for seed in range(3):
            torch.manual_seed(seed)
            tried = copy.deepcopy(model)
            for parameter in tried.parameters():
                parameter.add_(torch.randn_like(parameter))
            order = torch.randperm(len(x)).to(x.device)
            state = [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in devices)]
            whole = _outputs(tried, tried.modules(), x)
            after = [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in devices)]
            if not all(torch.equal(first, second) for first, second in zip(state, after, strict=True)):
                return False
            pieces = [_outputs(tried, tried.modules(), piece) for piece in x[order].split(size)]
            if not _same(whole, pieces, order):
                return False
    return True


def _outputs(model: nn.Module, layers: Iterable[nn.Module], x: Tensor) -> list[Tensor]:
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


def accumulated(model: nn.Module, pieces: Sequence[Tensor], backward: Callable[[Tensor], Tensor]) -> Tensor:
    """Run the backward pass of every piece and leave the gradients of the whole batch; gives the loss of all."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    totals: list[Bounded | None] = [None] * len(parameters)
    value: Tensor | None = None
    longest = -(-sum(map(len, pieces)) // min(map(len, pieces)))  # as if every piece were as long as the batch
    with rounding.longer(longest), by_sample(len(pieces)), torch.no_grad():
        for piece in pieces:
            with torch.enable_grad():
                part = backward(piece)
            value = part if value is None else value + part
            for number, parameter in enumerate(parameters):
                gradient, parameter.grad = parameter.grad, None
                totals[number] = _sum(totals[number], gradient)
    for parameter, total in zip(parameters, totals, strict=True):
        if total is not None:
            parameter.grad = _settled(total)
    assert value is not None
    return value


def _settled(total: Bounded) -> Bounded:
    """Gradients of all pieces, around the middle of their errors."""
    excess = total._excess
    if excess is None or excess.radius is None or not total.affine:
        total._excess = None
        return total
    return concretised("chunks", total._bounds, total.form.off(excess), total.symbols)


def _sum(total: Bounded | None, gradient: Tensor | None) -> Bounded | None:
    """Gradients of two pieces added up, with the k worst samples of both together."""
    if gradient is None or total is None:
        return total if gradient is None else gradient  # type: ignore[return-value]
    assert isinstance(gradient, Bounded)
    both = combination("chunks", [(total, 1.0), (gradient, 1.0)])
    first, second = total._excess, gradient._excess
    if first is None or second is None:
        return both
    charge = rounding.gamma(2, both.dtype) * (total.form.modulus + gradient.form.modulus)
    excess = Excess.joined((first, second), charge)
    form = None
    if both.affine and excess.radius is not None:
        form = both.form.off(excess)
    elif both.affine:
        form = both.form
    both = concretised("chunks", excess.bounds(), form, both.symbols)
    both._excess = excess
    return both
