"""attack(): how many test points can an attacker really break?

The attacks, from the cheapest to the most expensive: class-wise shifts, random corners, hypergradients, the greedy
choice of samples by influence, and, where the threat allows only a few datasets, all of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..fast.memory.out_of_memory import needs_less
from ..same_program import identity
from ..same_program.identity import of_tensors
from ..threats import Threat
from ..training.checked_inputs import Prepared
from ..training.recipe import Recipe
from . import class_shifts, enumeration, hypergradients, influence, random_corners
from .freedoms import Data, clauses_of
from .points import Points
from .result import Attacked
from .search import Progress, Search, Spent
from .trainings import Trainings
from .watch import Watch

if TYPE_CHECKING:
    from ..answers.certificate import Certificate

_MODULES = (class_shifts, random_corners, hypergradients, influence, enumeration)
ATTACKS: dict[str, ModuleType] = {module.NAME: module for module in _MODULES}
DERIVATIVES = (hypergradients.NAME, influence.NAME)  # attacks that differentiate through training
Given = Any  # tensors, arrays or lists


@needs_less("fewer targets, or a smaller batch_size=, needs less")
def attack(
    model: nn.Module,
    data: tuple[Given, Given],
    recipe: Recipe | None = None,
    *,
    threat: Threat,
    test: tuple[Given, Given | None],
    test_threat: Threat | None = None,
    certificate: Certificate | None = None,
    attacks: Sequence[str] = tuple(ATTACKS),
    steps: int = 3,
    restarts: int = 2,
    targets: int | None = None,
    budget: int | None = None,
    seed: int = 0,
    predict_options: dict[str, Any] | None = None,
    callback: Callable[[Progress], None] | None = None,
    progress: bool | None = None,
    **fields: Any,
) -> Attacked:
    """Look for datasets inside the threat that change what the trained model answers for test points.

    ``model`` is the model as it was before training, ``data`` the observed training data, and the recipe (or its
    ``fields``) that of `certify`: the same program is trained, again and again. ``test`` are inputs and their true
    labels, or None for these; ``test_threat`` is what may have been done to a test input. With ``certificate`` each
    poisoned model is held against it, and what it excludes raises `Violation` (``predict_options`` go to its
    ``predict``).

    ``steps`` are taken along each hypergradient, from ``restarts`` beginnings. Points are attacked one at a time, the
    nearest first, up to ``targets`` of them; ``budget`` is how many trainings are made at most.
    """
    recipe = (recipe or Recipe()).but(**fields)
    _check(attacks, steps, restarts, targets, budget)
    prepared = Prepared(model, data, threat, recipe)
    if certificate is not None:
        _require_same(certificate, prepared)
    began, trainings = time.perf_counter(), Trainings(prepared)
    x, y = _test_data(test, prepared)
    regression = recipe.regression if certificate is None else certificate.record["task"] == "regression"
    points = Points(trainings, x, test_threat, regression)
    watch = None
    if certificate is not None:
        watch = Watch(certificate, trainings, points, x, test_threat, predict_options or {})
    observed = Data.of(threat, prepared.x, trainings.targets())
    right = torch.ones_like(points.label, dtype=torch.bool) if y is None or regression else points.label == y
    tell = callback or _Line(progress)
    clauses = clauses_of(threat, observed)
    search = Search(trainings, clauses, observed, points, right, watch, seed, budget, tell)
    skipped = _run(search, attacks, steps, restarts, targets)
    return Attacked(
        label=points.nominal[:, 0] if regression else points.label,
        right=None if y is None or regression else right,
        broken=search.broken,
        lead=search.lead,
        found_by=tuple(search.found_by),
        worst=search.worst,
        worst_attack=search.worst_attack,
        worst_breaks=max(0, search.worst_breaks),
        trainings=search.made,
        outside=search.outside,
        seconds=time.perf_counter() - began,
        certified=None if watch is None else watch.certified,
        skipped=skipped,
        settings={"attacks": list(attacks), "steps": steps, "restarts": restarts, "targets": targets, "seed": seed},
    )


def _run(search: Search, attacks: Sequence[str], steps: int, restarts: int, targets: int | None) -> dict[str, str]:
    """Make the attacks; those that are not possible, and why."""
    skipped: dict[str, str] = {}
    for name, module in ATTACKS.items():
        if name not in attacks:
            continue
        reason = search.trainings.why_plain
        if reason is not None and name in DERIVATIVES:
            skipped[name] = f"there are no derivatives through this training: {reason}"
            continue
        planned = module.planned(search, steps, restarts, targets)
        if not planned:
            continue
        search.begin(name, planned)
        try:
            search.consider(search.trainings.observed())
            module.run(search, steps, restarts, targets)
        except Spent:
            skipped[name] = f"ended early: {search.budget} trainings were allowed"
            break
    return skipped


def _check(attacks: Sequence[str], steps: int, restarts: int, targets: int | None, budget: int | None) -> None:
    unknown = [name for name in attacks if name not in ATTACKS]
    if unknown:
        raise ValueError(f"there is no attack {unknown[0]!r}: there are {', '.join(ATTACKS)}")
    for name, number in (("steps", steps), ("restarts", restarts), ("targets", targets), ("budget", budget)):
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")


def _test_data(test: tuple[Given, Given | None], prepared: Prepared) -> tuple[Tensor, Tensor | None]:
    x = torch.as_tensor(test[0]).to(prepared.x.device, prepared.x.dtype)
    if x.shape[1:] != prepared.x.shape[1:] or len(x) == 0:
        raise ValueError(
            f"test inputs of shape {tuple(x.shape)} do not fit training inputs of shape {tuple(prepared.x.shape)}"
        )
    if test[1] is None:
        return x, None
    y = torch.as_tensor(test[1]).to(prepared.x.device).reshape(-1)
    if len(y) != len(x):
        raise ValueError(f"{len(x)} test inputs and {len(y)} labels")
    return x, y


def _require_same(certificate: Certificate, prepared: Prepared) -> None:
    """Refuse a certificate of another training: what is found would say nothing about it."""
    record = certificate.record
    batches = prepared.recipe.batches(len(prepared.x), prepared.x.device)
    now = {
        **prepared.recipe.record(prepared.model, len(batches)),
        "threat": repr(prepared.threat),
        "data": prepared.identity["data"],
        "initial_weights": prepared.identity["initial weights"],
        "dtype": str(prepared.x.dtype).removeprefix("torch."),
    }
    if record.get("sample_weights") != (None if prepared.weights is None else of_tensors(prepared.weights)):
        raise ValueError("this certificate is about another training, with other sample_weights: give those it had")
    beside = ("task", "domain", "order", "reduction")  # which are about the bounds, or about reading the outputs
    for name, value in now.items():
        if name not in beside and name in record and record[name] != value:
            what = {
                "data": "other training data",
                "initial_weights": "other initial weights: give the model as it was before training",
            }
            told = what.get(name, f"another {name.replace('_', ' ')}: {record[name]!r} and not {value!r}")
            raise ValueError(f"this certificate is about another training, with {told}")
    advice = "give the model, the data and the recipe that it was made with, or attack without a certificate"
    but = identity.OF_BOUNDS - {"threat"}
    identity.require_same(record.get("identity"), prepared.identity, "this certificate", advice, but)


class _Line:
    """A line on standard error, drawn over and over, with the time that is left of the attack."""

    def __init__(self, wanted: bool | None):
        self.shown = (sys.stderr is not None and sys.stderr.isatty()) if wanted is None else wanted
        self.attack, self.began, self.drawn = "", 0.0, 0.0

    def __call__(self, now: Progress) -> None:
        clock = time.monotonic()
        if now.attack != self.attack:
            self.attack, self.began = now.attack, clock
        if not self.shown or (clock - self.drawn < 0.5 and now.done < now.planned):
            return
        self.drawn = clock
        left = (clock - self.began) / max(1, now.done) * (now.planned - now.done)
        told = f"{now.attack}: {now.done}/{now.planned} trainings, {now.broken} of {now.points} points broken"
        print(
            f"\r{told}, {left:.0f} s left   ", end="\n" if now.done == now.planned else "", file=sys.stderr, flush=True
        )
