"""Whether samples meet inside a network: in batch statistics, as neighbours, through the size of the batch.

Where they do, what is found for one batch says nothing of another: such a batch is not taken in pieces, and its inputs
are not cut apart. Decided by dependence, and not by a tolerance, so that no scale of the data can hide it:

    let one sample of a small batch be anywhere in a box as wide as the data, all others points, with rounding off;
    another sample whose output, or whose gradient, is not what it is when all are points has met it.

Each sample in turn, in float64, with other parameters than its own (a head of zeros would hide what happens before
it). Since nothing rounds, the sets of samples that do not meet are the same to the last bit. A branch that is undecided
and an operator without a rule count as meeting. Whether the number of samples matters is asked with rounding on: the
sets of one and the same sample, alone and among others, must have a point in common.

Networks of PyTorch's own layers, each of which works on one sample at a time (`ONE_BY_ONE`), need no trial.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from ..arithmetic import rounding
from ..errors import MixedTensors, VoidBounds
from ..tensor.bounded import Bounded, exact
from ..tensor.draws import Draws
from ..tensor.lift import interval, lift

SAMPLES = 4  # of a batch, each of which is let go in turn
MANY = 512  # of which the first and the last are let go
TRIALS = 2  # sets of parameters
WIDTHS = (1.0, 1e-3)  # of the box, as a share of the data: the wide one may lead to no finite bounds
ONE_BY_ONE = frozenset(
    (nn.Sequential, nn.Identity, nn.Linear, nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.SiLU, nn.GELU)
)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def samples_meet(model: nn.Module, x: Tensor, training: bool) -> bool:
    """Whether the answer for one sample, or in training its gradient, may depend on the others in its batch."""
    return told_apart(model, x, training) is not True


def told_apart(model: nn.Module, x: Tensor, training: bool) -> bool | None:
    """Whether samples stay apart; None where that cannot be told."""
    if needs_no_trial(model, x):
        return True
    x = torch.nan_to_num(x.detach())
    for points in (_points(x.double()), _points(x)):  # in its own precision if a model fixes that
        try:
            return _stay_apart(model, points, training)
        except MixedTensors:
            continue
        except Exception:  # the model is code of the user: a branch, an operator without a rule
            return None
    return None


def needs_no_trial(model: nn.Module, x: Tensor) -> bool:
    """Whether a network has layers alone that work on one sample at a time, whatever the samples are."""
    return x.dim() > 1 and all(map(_works_one_by_one, model.modules())) and not _hooked_everywhere()


def _works_one_by_one(module: nn.Module) -> bool:
    """A layer of PyTorch as PyTorch made it: no subclass, no forward of its own, no hooks."""
    as_made = "forward" not in vars(module) and not any(getattr(module, name) for name in HOOKS)
    return type(module) in ONE_BY_ONE and as_made


def _hooked_everywhere() -> bool:
    """Whether hooks are called for every module of the process."""
    return any(getattr(torch.nn.modules.module, f"_global{name}", None) for name in HOOKS)


def _stay_apart(model: nn.Module, points: Tensor, training: bool) -> bool | None:
    """Asked at the size of the data and at size one: a batch of tiny samples may hide behind a bias."""
    few = points[:SAMPLES]
    sizes = few, few / few.abs().amax().clamp_min(rounding.TINY[few.dtype])
    ends = 0, len(points) - 1
    for tried in _with_other_parameters(model, points.dtype, training):
        answers = [_meet(tried, x, training) for x in sizes]
        # a network may do something else with many samples
        answers.append(_meet_within(tried, points, ends, WIDTHS[-1], training))
        if True in answers:
            return False
        if all(answer is None for answer in answers):
            return None
    return True


def _meet(model: nn.Module, points: Tensor, training: bool) -> bool | None:
    """Whether some of the samples meet others: in the widest box that leads to finite bounds.

    A box inside it adds nothing: sets grow with boxes, and the sets of the points are the same in the whole box.
    """
    for width in WIDTHS:
        answer = _meet_within(model, points, range(len(points)), width, training)
        if answer is not None:
            return answer
    return None


def _meet_within(model: nn.Module, points: Tensor, chosen: Sequence[int], width: float, training: bool) -> bool | None:
    """Whether some of the chosen samples meet others; None where no bounds are finite."""
    try:
        return _number_matters(model, points, chosen) or _depends(model, points, chosen, width, training)
    except VoidBounds:
        return None


def _points(x: Tensor) -> Tensor:
    """A few samples, no two of them alike."""
    low, high = x.amin(0), x.amax(0)
    wide = torch.where(high > low, high - low, 0.5 * low.abs() + 0.5)
    some = x[:MANY] if len(x) > 1 else x.expand(2, *x.shape[1:])
    shares = torch.linspace(0.0, 0.1, len(some), dtype=x.dtype, device=x.device)
    return some + shares.view(-1, *(1,) * (x.dim() - 1)) * wide


def _with_other_parameters(model: nn.Module, dtype: torch.dtype, training: bool) -> Iterator[nn.Module]:
    """Plain copies. Their numbers come from a generator of their own."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(TRIALS):
        tried = copy.deepcopy(model).to(dtype)
        if not training:
            tried.eval()
        with torch.no_grad():
            for parameter in tried.parameters():
                moved = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                # of moderate size: a plain model may have diverged
                parameter.copy_(torch.nan_to_num(parameter, 0.0, 0.0, 0.0).clamp(-1e3, 1e3) + moved.to(parameter))
        yield tried


def _number_matters(model: nn.Module, points: Tensor, chosen: Sequence[int]) -> bool:
    """Whether a sample is answered otherwise alone than among others: the two sets must meet."""
    lifted = lift(copy.deepcopy(model))
    with torch.no_grad(), Draws(0):
        together = lifted(exact(points.clone()))
        if not isinstance(together, Bounded) or len(together) != len(points):
            return True
        for number in chosen:
            alone = lifted(exact(points[number : number + 1].clone()))
            if not isinstance(alone, Bounded) or len(alone) != 1:
                return True
            low = torch.maximum(together.set.bounds[0, number], alone.set.bounds[0, 0])
            high = torch.minimum(together.set.bounds[1, number], alone.set.bounds[1, 0])
            if not bool((low <= high).all()):
                return True
    return False


def _depends(model: nn.Module, points: Tensor, chosen: Sequence[int], width: float, training: bool) -> bool:
    """Whether letting one sample go changes the sets of another."""
    half = 0.5 * width * torch.where(points.amax(0) > points.amin(0), points.amax(0) - points.amin(0), 1.0)
    with rounding.nearest():
        fixed = _outcome(model, points, points, training)
        for number in chosen:
            low, high = points.clone(), points.clone()
            low[number] -= half
            high[number] += half
            others = torch.arange(len(points), device=points.device) != number
            for before, after in zip(fixed, _outcome(model, low, high, training), strict=True):
                if before.shape != after.shape or not torch.equal(before[:, others], after[:, others]):
                    return True
    return False


def _outcome(model: nn.Module, low: Tensor, high: Tensor, training: bool) -> list[Tensor]:
    """The sets that a copy of the model puts out, and in training those of the gradients of its inputs."""
    lifted = lift(copy.deepcopy(model))
    inputs = interval(low, high)
    with Draws(0), torch.set_grad_enabled(training):
        inputs.requires_grad_(training)
        outputs = lifted(inputs)
        if not isinstance(outputs, Bounded) or outputs.shape[:1] != low.shape[:1]:
            raise TypeError("the model does not return one set for each sample")
        found = [outputs.set.bounds]
        if training:
            (gradient,) = torch.autograd.grad((outputs * outputs).sum(), inputs)
            found.append(gradient.set.bounds if isinstance(gradient, Bounded) else gradient.expand(2, *gradient.shape))
    return found
