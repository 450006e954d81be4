"""The tripwire: the plain run lies inside the set that claims to hold it, or an error says so.

A certificate speaks of the user's program, so the plain run and the run on sets must execute the same one. Both are
there anyway: after every step the plain parameters must lie inside the set, in every answer the plain outputs. That is
two comparisons, and it turns a bug of any rule, and a program that does something else on sets, into an error message.

Inside wide sets it cannot fire. So the first step, and the first answer, are also made once without the threat, where
sets are as wide as rounding: a rehearsal. On a GPU the outcome stays on the device and is read now and then, so that
checking makes no step wait.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from ..errors import BoundFlowError, OutsideBounds
from ..tensor.bounded import Bounded, exact
from ..tensor.lift import lift

READ_EVERY = 32  # steps, on a GPU
REASONS = (
    "Likely reasons: a forward pass that changes state or draws numbers in another order on sets, samples that meet in "
    "a batch that was taken in pieces, another order of memory, a tensor that was changed outside PyTorch; or a wrong "
    "rule: please report it with the program that led to it."
)


def check(plain: nn.Module, bounded: nn.Module) -> None:
    """Raise `OutsideBounds` unless every parameter and buffer of a plain module lies inside the sets of another.

    For own loops: train a plain copy of the module side by side, on the data as observed, with the same order and
    seeds, and call this after every step.
    """
    for name, sets, value in _pairs(plain, bounded):
        if not bool(_inside(sets, value)):
            raise OutsideBounds(f"{name} of the plain module lies outside its bounds. {REASONS}")


def _pairs(plain: nn.Module, bounded: nn.Module) -> Iterator[tuple[str, Bounded, Tensor]]:
    values = {**dict(plain.named_parameters()), **dict(plain.named_buffers())}
    for name, sets in (*bounded.named_parameters(), *bounded.named_buffers()):
        if isinstance(sets, Bounded):
            if name not in values or values[name].shape != sets.shape:
                raise OutsideBounds(f"the plain module has no tensor {name} of shape {tuple(sets.shape)}")
            yield name, sets, values[name]


def _inside(sets: Bounded, value: Tensor) -> Tensor:
    """Whether all of a plain tensor lies inside; NaN does not."""
    lower, upper = sets.set.bounds.unbind(0)
    value = value.detach()
    return ((lower <= value) & (value <= upper)).all()


def _untouched(now: tuple[Tensor, int], before: tuple[Tensor, int] | None) -> bool:
    """Whether a buffer is the very same tensor, which is held meanwhile, and was not written to."""
    return before is not None and now[0] is before[0] and now[1] == before[1]


class Tripwire:
    """Follows a certified training: ``step`` after every step of both runs."""

    def __init__(self, nominal: nn.Module, certified: nn.Module, outward: bool):
        self.nominal, self.certified, self.outward = nominal, certified, outward
        self._modules = list(certified.modules())
        self._parameters = [pair for pair in _pairs(nominal, certified) if isinstance(pair[1], nn.Parameter)]
        self._plain = self._versions()
        self._pending: list[tuple[int, list[tuple[str, int]], Tensor]] = []

    def _versions(self) -> dict[str, tuple[Tensor, int]]:
        """Which plain buffers the run on sets has, and how often each was written to."""
        buffers = self.certified.named_buffers()
        return {name: (x, x._version) for name, x in buffers if not isinstance(x, Bounded)}

    def _check_plain_state(self, number: int) -> None:
        """Buffers that are no sets must be the same in both runs; looked at where the run on sets has changed one."""
        now = self._versions()
        for name in [name for name in now if not _untouched(now[name], self._plain.get(name))]:
            plain, held = (dict(model.named_buffers()).get(name) for model in (self.nominal, self.certified))
            if plain is None or held is None or not torch.equal(plain, held):
                raise OutsideBounds(
                    f"the buffer {name} is not the same in plain training and on sets at step {number}. {REASONS}"
                )
        self._plain = now

    def step(self, number: int) -> None:
        """Compare, and raise at once on a CPU or within a few steps on a GPU."""
        if not self.outward:
            return
        pairs = self._parameters
        if any(module._buffers for module in self._modules):  # which a forward pass may have made, or made sets
            self._check_plain_state(number)
            pairs = list(_pairs(self.nominal, self.certified))
        if not pairs:
            return
        lower, upper = torch.cat([sets.set.bounds.reshape(2, -1) for _, sets, _ in pairs], 1)
        with torch.no_grad():
            value = torch.cat([value.flatten() for _, _, value in pairs])
        inside = (lower <= value) & (value <= upper)
        sizes = [(name, value.numel()) for name, _, value in pairs]
        self._pending.append((number, sizes, inside))
        if not inside.is_cuda or len(self._pending) >= READ_EVERY:
            self.read()

    def read(self) -> None:
        """Raise for the first step that left the set."""
        pending, self._pending = self._pending, []
        if not pending or bool(torch.cat([inside for _, _, inside in pending]).all()):
            return
        for number, sizes, inside in pending:
            parts = torch.split(inside, [size for _, size in sizes])
            for (name, _), held in zip(sizes, parts, strict=True):
                if not bool(held.all()):
                    raise OutsideBounds(f"{name} of the plain model left its bounds at step {number}. {REASONS}")

    def rehearse(self, number: int, model: nn.Module, plain: nn.Module, step: Callable[[nn.Module], None]) -> None:
        """Make a step without the threat, on sets as wide as rounding, and hold the plain outcome against it.

        ``model`` is as it was before that step, and ``plain`` as it is after it.
        """
        if not self.outward:
            return
        rehearsed = lift(copy.deepcopy(model))
        try:
            step(rehearsed)
        except BoundFlowError:
            return  # what has no bounds without the threat has none with it, and the run itself says so
        for name, sets, value in _pairs(plain, rehearsed):
            if not bool(_inside(sets, value)):
                raise OutsideBounds(
                    f"{name} of the plain model left its bounds at step {number}, on the data as observed, where sets "
                    f"are as wide as rounding. {REASONS}"
                )


def check_answers(lower: Tensor, upper: Tensor, plain: Tensor, without_threat: bool = False) -> None:
    """Raise unless plain outputs lie between their bounds."""
    unknown = torch.isinf(lower) & torch.isinf(upper)
    inside = ((lower <= plain) & (plain <= upper)) | unknown
    if not bool(inside.all()):
        worst = int((~inside).flatten(1).any(1).sum())
        how = ", on the inputs as observed, where sets are as wide as rounding" if without_threat else ""
        raise OutsideBounds(
            f"the plain model answers outside the bounds for {worst} of {len(plain)} inputs{how}. {REASONS}"
        )


def rehearsed_answers(nominal: nn.Module, x: Tensor) -> tuple[Tensor, Tensor] | None:
    """Bounds of what a plain model puts out, as wide as rounding; None where there are none."""
    try:
        outputs = lift(copy.deepcopy(nominal))(exact(x.clone()))
    except BoundFlowError:
        return None
    return (outputs.lower, outputs.upper) if isinstance(outputs, Bounded) else None
