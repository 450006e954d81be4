"""Problems of a few samples under every kind of threat: certified once, and all their datasets trained plainly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import every_dataset as plain
import numpy as np
import torch
from every_dataset import Clause, Every, Plan
from torch import Tensor, nn

import boundflow as bf

T = bf.threats
Threat = bf.threats.Threat
CLIP = 0.3  # of gradients, where samples can be replaced
RANGE = (-1.0, 1.0)  # of missing values
HOT = [2, 3, 4]  # one-hot columns
FEW = [0, 2, 3]  # samples that a threat is about
HOLES = {"numbers": [(0, [0]), (2, [1])], "categories": [(1, HOT)]}  # samples, and what is missing of them


class Attack(NamedTuple):
    """A threat of a budget and a radius, and the same in the words of plain datasets (budget, radius, classes)."""

    threat: Callable[[int, float], Threat]
    clauses: Callable[[int, float, int], list[Clause]]
    counted: int | None = None  # the clause that the budget is of
    moves: bool = False  # whether there is one radius, and it shrinks
    holes: str = ""  # what is missing
    numbers: bool = False  # a regression
    features: tuple[int, ...] = (1, 2)

    @property
    def replaces(self) -> bool:
        return self.threat(1, 1.0).touches("gradients")


def of_all(change: Callable[[float], Threat], freedom: Callable[[float, int], plain.Freedom], **more: Any) -> Attack:
    return Attack(lambda k, e: change(e), lambda k, e, c: [Clause(None, (freedom(e, c),))], **more)


def of_a_few(
    change: Callable[[float], Threat], *freedoms: Callable[[float, int], plain.Freedom], **more: Any
) -> Attack:
    def clauses(k: int, e: float, classes: int) -> list[Clause]:
        return [Clause(k, tuple(freedom(e, classes) for freedom in freedoms))]

    return Attack(lambda k, e: T.AtMost(k, change(e)), clauses, 0, **more)


def beside_a_few_labels(
    change: Callable[[float], Threat], freedom: Callable[[float], plain.Freedom], always: bool, **more: Any
) -> Attack:
    def clauses(k: int, e: float, classes: int) -> list[Clause]:
        return [Clause(None, (freedom(e),), always), Clause(k, (plain.labels(classes),))]

    return Attack(lambda k, e: change(e) & T.AtMost(k, T.Labels()), clauses, 1, **more)


def label(_: float, classes: int) -> plain.Freedom:
    return plain.labels(classes)


def gone(*_: float) -> plain.Freedom:
    return plain.removal


def corner(e: float, *_: int) -> plain.Freedom:
    return plain.box(e)


ATTACKS: dict[str, Attack] = {
    "labels": of_a_few(lambda e: T.Labels(), label),
    "every label": of_all(lambda e: T.Labels(), label),
    "labels of some": of_a_few(lambda e: T.Labels().on(samples=FEW), lambda e, c: plain.only(FEW, plain.labels(c))),
    "removal": of_a_few(lambda e: T.Removal(), gone),
    "removal or another label": of_a_few(lambda e: T.Removal() & T.Labels(), gone, label),
    "box": of_all(T.Linf, corner, moves=True),
    "ball": of_all(T.L2, lambda e, c: plain.ball(e), moves=True),
    "cross": of_all(T.L1, lambda e, c: plain.cross(e), moves=True),
    "box of a few": of_a_few(T.Linf, corner, moves=True),
    "ball of a few": of_a_few(T.L2, lambda e, c: plain.ball(e), moves=True),
    "cross of a few": of_a_few(T.L1, lambda e, c: plain.cross(e), moves=True),
    "one feature of some": of_a_few(
        lambda e: T.Linf(e).on(samples=FEW, features=[0]),
        lambda e, c: plain.only(FEW, plain.box(e, [0])),
        moves=True,
        features=(2,),
    ),
    "box and labels of a few": of_a_few(lambda e: T.Linf(e) & T.Labels(), corner, label, moves=True),
    "box, and a few labels": beside_a_few_labels(T.Linf, plain.box, False, moves=True, features=(1,)),
    "a few labels, one gone": Attack(
        lambda k, e: T.AtMost(k, T.Labels()) & T.AtMost(1, T.Removal()),
        lambda k, e, c: [Clause(k, (plain.labels(c),)), Clause(1, (plain.removal,))],
    ),
    "missing": Attack(
        lambda k, e: T.Missing(RANGE),
        lambda k, e, c: [Clause(None, (plain.filled(*RANGE),), True)],
        holes="numbers",
        features=(2,),
    ),
    "missing, and a few labels": beside_a_few_labels(
        lambda e: T.Missing(RANGE), lambda e: plain.filled(*RANGE), True, holes="numbers", features=(2,)
    ),
    "categories": of_all(lambda e: T.Categories([HOT]), lambda e, c: plain.category(HOT), features=(5,)),
    "categories of a few": of_a_few(lambda e: T.Categories([HOT]), lambda e, c: plain.category(HOT), features=(5,)),
    "missing categories, and a few labels": beside_a_few_labels(
        lambda e: T.MissingCategory(HOT), lambda e: plain.category(HOT, True), True, holes="categories", features=(5,)
    ),
    "replacement": of_a_few(lambda e: T.Replacement(), lambda e, c: plain.replaced(5.0, c)),
    "targets": of_all(T.Labels, lambda e, c: plain.targets(e), numbers=True),
    "targets of a few": of_a_few(T.Labels, lambda e, c: plain.targets(e), numbers=True),
    "removal, of numbers": of_a_few(lambda e: T.Removal(), gone, numbers=True),
    "box and targets of a few, of numbers": of_a_few(
        lambda e: T.Linf(e) & T.Labels(e), corner, lambda e, c: plain.targets(e), numbers=True
    ),
}


class Problem:
    """One small problem, drawn by its number: data, network, recipe and threat."""

    def __init__(self, name: str, number: int, most: int | None = None):
        self.attack, self.most, self.told = ATTACKS[name], most, f"{name}, number {number}"
        random = np.random.default_rng([number, *name.encode()])
        self.random, self.number = random, number
        self.k, self.epsilon = int(random.integers(1, 4)), float(random.choice([0.02, 0.1, 0.3]))
        self.classes, self.features = int(random.integers(2, 4)), int(random.choice(self.attack.features))
        of_two = str(random.choice(["bce", "ce", "hinge"]))
        loss = "mse" if self.attack.numbers else of_two if self.classes == 2 else "ce"
        many = self.attack.moves or self.attack.replaces
        self.samples = 4 if many and self.features > 1 else int(random.integers(4, 7 if many else 8))
        self.plan = Plan(
            loss,
            steps=int(random.integers(1, 5)),
            lr=float(random.choice([0.1, 0.5, 1.0])),
            momentum=float(random.choice([0.0, 0.0, 0.5])),
            batch_size=None if random.random() < 0.6 else int(random.integers(2, self.samples)),
            clip=CLIP if self.attack.replaces else None,
        )
        self.dtype = torch.float32 if random.random() < 0.2 else torch.float64
        self.model = self._network(self.classes if loss == "ce" else 1)
        self.x, self.y = self._data()

    def _network(self, outputs: int) -> nn.Module:
        torch.manual_seed(self.number)
        width, layers = self.features, list[nn.Module]()
        if self.random.random() < 0.5:
            layers, width = [nn.Linear(width, 3), nn.Tanh() if self.random.random() < 0.5 else nn.ReLU()], 3
        return nn.Sequential(*layers, nn.Linear(width, outputs)).to(self.dtype)

    def _points(self, count: int) -> Tensor:
        x = torch.from_numpy(self.random.normal(size=(count, self.features)))
        if self.features == 5:
            x[:, HOT] = torch.eye(3, dtype=x.dtype)[torch.from_numpy(self.random.integers(0, 3, count))]
        return x.to(self.dtype)

    def _data(self) -> tuple[Tensor, Tensor]:
        x, y = self._points(self.samples), torch.from_numpy(self.random.integers(0, self.classes, self.samples))
        for sample, columns in HOLES.get(self.attack.holes, ()):
            x[sample, columns] = torch.nan
        return x, x[:, 0].clone() if self.attack.numbers else y

    def __repr__(self) -> str:
        return f"{self.told}: {self.plan}, k={self.k}, epsilon={self.epsilon}, {self.model}"

    # --- certified ----------------------------------------------------------------------------------------------------

    def threat(self, k: int | None = None, epsilon: float | None = None) -> Threat:
        return self.attack.threat(self.k if k is None else k, self.epsilon if epsilon is None else epsilon)

    @property
    def recipe(self) -> dict[str, Any]:
        plan = self.plan
        told = {"epochs": plan.steps, "steps": plan.steps, "batch_size": plan.batch_size, "clip_gradients": plan.clip}
        options = {"lr": plan.lr, "momentum": plan.momentum}
        return {"loss": plan.loss, "optimizer_options": options, "order": 3, "progress": False, **told}

    def certified(self, threat: Threat | None = None) -> bf.Certificate:
        return bf.certify(self.model, (self.x, self.y), threat=threat or self.threat(), **self.recipe)

    @cached_property
    def certificate(self) -> bf.Certificate:
        return self.certified()

    @cached_property
    def inputs(self) -> Tensor:
        """Points near the boundary of the plain model, of which answers differ most, and others."""
        nominal, points = self.certificate.nominal, 1.5 * self._points(300)
        if self.features == 5:
            points[:, HOT] /= 1.5
        with torch.no_grad():
            logits = nominal(points)
        top = logits.topk(2, 1).values if logits.shape[1] > 1 else torch.cat((logits, -logits), 1)
        near = (top[:, 0] - top[:, 1]).abs().argsort()
        return points[torch.cat((near[:120:6], near[120::18]))]

    @cached_property
    def truth(self) -> Tensor:
        return torch.from_numpy(self.random.integers(0, self.classes, len(self.inputs)))

    # --- trained plainly ----------------------------------------------------------------------------------------------

    def every(self, epsilon: float | None = None, rows: Sequence[int] | None = None, k: int | None = None) -> Every:
        """All datasets, of all samples or of some of them."""
        clauses = self.attack.clauses(
            self.k if k is None else k, self.epsilon if epsilon is None else epsilon, self.classes
        )
        rows = range(self.samples) if rows is None else rows
        return plain.every(self.x[list(rows)].double(), self.y[list(rows)], clauses, self.most)

    @cached_property
    def datasets(self) -> Every:
        return self.every()

    @cached_property
    def trained(self) -> dict[str, Tensor]:
        return plain.trained(self.model, self.datasets, self.plan)

    @cached_property
    def outputs(self) -> Tensor:
        """Of every plainly trained model on every input, (D, N, classes)."""
        return plain.outputs(self.model, self.trained, self.inputs)

    @cached_property
    def answers(self) -> Tensor:
        return plain.answered(self.outputs)

    def answers_of(self, data: Every) -> Tensor:
        return plain.answered(plain.outputs(self.model, plain.trained(self.model, data, self.plan), self.inputs))

    @property
    def touched(self) -> Tensor:
        """How many samples each dataset has touched, of those that the budget counts, (D)."""
        assert self.attack.counted is not None
        return self.datasets.touched[:, self.attack.counted].sum(1)

    def of_attackers(self) -> list[int]:
        """The clauses of what somebody has done, and not of what was missing."""
        clauses = self.attack.clauses(self.k, self.epsilon, self.classes)
        return [number for number, clause in enumerate(clauses) if not clause.always]
