"""Every dataset that an attacker could have left behind, on problems so small that all of them are trained plainly.

A *freedom* is one thing that can differ about a sample: given the sample, it lists what else that could be. A *clause*
joins freedoms under a budget. Moves go to the corners of their box or ball. Nothing here imports boundflow.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap


class Sample(NamedTuple):
    x: tuple[float, ...]
    y: float
    weight: float

    def with_values(self, values: dict[int, float]) -> Sample:
        return self._replace(x=tuple(values.get(place, value) for place, value in enumerate(self.x)))


Freedom = Callable[[int, Sample], list[Sample]]  # what else the sample of this number could be
Done = dict[int, Callable[[Sample], Sample]]  # what becomes of the samples that are touched


class Clause(NamedTuple):
    """Freedoms of which any may be used on a sample, on at most ``budget`` samples; of missing values always."""

    budget: int | None
    freedoms: tuple[Freedom, ...]
    always: bool = False


class Every(NamedTuple):
    """Datasets: inputs (D, n, f), targets and weights (D, n), and which samples each clause has touched (D, c, n)."""

    x: Tensor
    y: Tensor
    weights: Tensor
    touched: Tensor

    def left_alone(self, samples: Sequence[int], clauses: Sequence[int]) -> Tensor:
        """In which datasets these clauses have not touched these samples, (D)."""
        some = self.touched[:, list(clauses)][:, :, list(samples)]
        return ~some.flatten(1).any(1)


# --- what can differ ------------------------------------------------------------------------------------------------


def labels(classes: int) -> Freedom:
    return lambda _, sample: [sample._replace(y=float(c)) for c in range(classes) if c != sample.y]


def targets(epsilon: float) -> Freedom:
    return lambda _, sample: [sample._replace(y=no_further(sample.y, move)) for move in (-epsilon, epsilon)]


def removal(_: int, sample: Sample) -> list[Sample]:
    return [sample._replace(weight=0.0)]


def box(epsilon: float, features: Sequence[int] | None = None) -> Freedom:
    """The corners of a box, of all features or of some."""

    def moved(_: int, sample: Sample) -> list[Sample]:
        free = range(len(sample.x)) if features is None else features
        signs = itertools.product((-epsilon, epsilon), repeat=len(free))
        return [
            sample.with_values({i: no_further(sample.x[i], move) for i, move in zip(free, moves, strict=True)})
            for moves in signs
        ]

    return moved


def cross(epsilon: float) -> Freedom:
    """The corners of an l1 ball."""

    def moved(_: int, sample: Sample) -> list[Sample]:
        ways = itertools.product(range(len(sample.x)), (-epsilon, epsilon))
        return [sample.with_values({place: no_further(sample.x[place], move)}) for place, move in ways]

    return moved


def ball(epsilon: float, directions: int = 4) -> Freedom:
    """Points of a circle, or both ends of a line: a little inside, so that no rounding leaves it."""

    def moved(_: int, sample: Sample) -> list[Sample]:
        angles = np.arange(directions) * 2 * np.pi / directions + 0.3
        ways = np.stack((np.cos(angles), np.sin(angles)), 1) if len(sample.x) > 1 else np.array([[-1.0], [1.0]])
        far = epsilon * (1 - 1e-9) * ways
        return [sample.with_values(dict(enumerate((sample.x[: len(way)] + way).tolist()))) for way in far]

    return moved


def filled(low: float, high: float) -> Freedom:
    """Every missing value at either end of its range, or between."""

    def moved(_: int, sample: Sample) -> list[Sample]:
        holes = [place for place, value in enumerate(sample.x) if value != value]
        ways = itertools.product((low, high, 0.7 * low + 0.3 * high), repeat=len(holes))
        return [sample.with_values(dict(zip(holes, way, strict=True))) for way in ways] if holes else []

    return moved


def category(columns: Sequence[int], missing: bool = False) -> Freedom:
    """Any other category; or any, where it is missing."""

    def moved(_: int, sample: Sample) -> list[Sample]:
        here = [sample.x[place] for place in columns]
        known = here[0] == here[0]
        others = [hot for hot in np.eye(len(columns)).tolist() if hot != here]
        return [] if missing and known else [sample.with_values(dict(zip(columns, hot, strict=True))) for hot in others]

    return moved


def replaced(far: float, classes: int) -> Freedom:
    """Anything at all: some of it far away, some near by, with every label."""

    def moved(_: int, sample: Sample) -> list[Sample]:
        size = len(sample.x)
        places = [(far,) * size, (-far,) * size, (0.0,) * size, tuple(-value for value in sample.x)]
        return [Sample(place, float(label), 1.0) for place in places for label in range(classes)]

    return moved


def only(samples: Sequence[int], freedom: Freedom) -> Freedom:
    return lambda number, sample: freedom(number, sample) if number in samples else []


def no_further(value: float, move: float) -> float:
    """``value + move``, brought back where rounding has carried it further."""
    moved = value + move
    too_far = abs(Fraction(moved) - Fraction(value)) > abs(Fraction(move))
    return float(np.nextafter(moved, value)) if too_far else moved


# --- all of it ------------------------------------------------------------------------------------------------------


def every(x: Tensor, y: Tensor, clauses: Sequence[Clause], most: int | None = None) -> Every:
    """All datasets of some clauses; of more than ``most``, the first and as many others by chance."""
    observed = [Sample(tuple(row), float(label), 1.0) for row, label in zip(x.tolist(), y.tolist(), strict=True)]
    ways = [list(_ways(clause, observed)) for clause in clauses]
    count = int(np.prod([len(way) for way in ways]))
    random = np.random.default_rng(count)
    numbers = range(count) if most is None or count <= most else {0, *random.integers(0, count, size=most).tolist()}
    datasets, touched = [], []
    for number in sorted(numbers):
        done = [way[place] for way, place in zip(ways, np.unravel_index(number, [len(w) for w in ways]), strict=True)]
        data = observed
        for deeds in done:
            data = [deeds[place](sample) if place in deeds else sample for place, sample in enumerate(data)]
        datasets.append(data)
        touched.append([[place in deeds for place in range(len(data))] for deeds in done])
    columns = ([[getattr(s, name) for s in data] for data in datasets] for name in Sample._fields)
    return Every(*(torch.tensor(column, dtype=torch.float64) for column in columns), torch.tensor(touched))


def _ways(clause: Clause, observed: list[Sample]) -> Iterator[Done]:
    """All that a clause can do."""
    each = [list(_of_one(clause.freedoms, number, sample)) for number, sample in enumerate(observed)]
    budget = len(observed) if clause.budget is None else clause.budget
    counts = [sum(map(bool, each))] if clause.always else range(budget + 1)
    for count in counts:
        for who in itertools.combinations(range(len(observed)), count):
            for chosen in itertools.product(*(each[place] for place in who)):
                yield dict(zip(who, chosen, strict=True))


def _of_one(freedoms: Sequence[Freedom], number: int, sample: Sample) -> Iterator[Callable[[Sample], Sample]]:
    """All combinations of freedoms on one sample, but for none of them."""
    for chosen in itertools.product(*([None, *range(len(freedom(number, sample)))] for freedom in freedoms)):
        if any(place is not None for place in chosen):
            yield _applied(freedoms, number, chosen)


def _applied(freedoms: Sequence[Freedom], number: int, chosen: Sequence[int | None]) -> Callable[[Sample], Sample]:
    def made(sample: Sample) -> Sample:
        for freedom, place in zip(freedoms, chosen, strict=True):
            sample = sample if place is None else freedom(number, sample)[place]
        return sample

    return made


# --- plain trainings ------------------------------------------------------------------------------------------------

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "bce": lambda z, y: F.binary_cross_entropy_with_logits(z[:, 0], y, reduction="none"),
    "ce": lambda z, y: F.cross_entropy(z, y.long(), reduction="none"),
    "mse": lambda z, y: (z[:, 0] - y) ** 2,
    "hinge": lambda z, y: torch.relu(1 - (2 * y - 1) * z[:, 0]),
}


class Plan(NamedTuple):
    """How plain PyTorch trains."""

    loss: str
    steps: int
    lr: float
    momentum: float = 0.0
    batch_size: int | None = None
    clip: float | None = None

    def batches(self, samples: int) -> list[Tensor]:
        generator, made = torch.Generator().manual_seed(0), list[Tensor]()
        while len(made) < self.steps:
            whole = self.batch_size is None
            made += (
                [torch.arange(samples)]
                if whole
                else torch.randperm(samples, generator=generator).split(self.batch_size)
            )
        return made[: self.steps]


def trained(model: nn.Module, data: Every, plan: Plan) -> dict[str, Tensor]:
    """The parameters (D, *shape) of ordinary trainings, one for every dataset."""
    model, count = copy.deepcopy(model), len(data.x)
    values = {name: p.detach().expand(count, *p.shape).clone() for name, p in model.named_parameters()}
    x, y, weights = (part.to(next(iter(values.values())).dtype) for part in data[:3])
    optimizer = torch.optim.SGD([nn.Parameter(v) for v in values.values()], lr=plan.lr, momentum=plan.momentum)
    values = dict(zip(values, optimizer.param_groups[0]["params"], strict=True))

    def loss(values: dict[str, Tensor], x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        return (LOSSES[plan.loss](functional_call(model, values, (x,)), y) * weights).sum() / len(x)

    for index in plan.batches(x.shape[1]):
        batch = x[:, index], y[:, index], weights[:, index]
        if plan.clip is None:
            found = vmap(grad(loss))(values, *batch)
        else:
            each = vmap(vmap(grad(loss), (None, 0, 0, 0)))(values, *(part.unsqueeze(2) for part in batch))
            squares = sum(g.flatten(2).square().sum(2) for g in each.values())
            factor = (plan.clip / (squares.sqrt() + 1e-6)).clamp_max(1.0)
            clipped = {name: g * factor.view(*factor.shape, *[1] * (g.dim() - 2)) for name, g in each.items()}
            found = {name: g.nan_to_num(0.0, 0.0, 0.0).mean(1) for name, g in clipped.items()}
        for name, value in values.items():
            value.grad = found[name].detach()
        optimizer.step()
    return {name: value.detach() for name, value in values.items()}


def outputs(model: nn.Module, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
    """Outputs (D, N, classes) of every trained model on every input."""
    with torch.no_grad():
        return vmap(lambda values: functional_call(model, values, (x,)))(parameters)


def answered(logits: Tensor) -> Tensor:
    """The classes (..., N) that logits (..., N, classes) answer."""
    return (logits[..., 0] > 0).long() if logits.shape[-1] == 1 else logits.argmax(-1)
