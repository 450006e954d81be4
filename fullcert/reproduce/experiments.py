"""What can be reproduced: experiments, the cases they consist of, and the outcome of one seed.

    experiment (a table or a figure)  =  cases (setting, domain, recipe)  x  seeds

A new experiment is one function under `@experiment(...)` in any file of this package: `load` finds it.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from fullcert.system.mistakes import choose

Setting = dict[str, float | int | str]
QUICK_SEEDS = 2


@dataclass(frozen=True)
class Outcome:
    """What one seed gave: certified accuracy in percent, unless the experiment says otherwise."""

    value: float
    nominal: float | None = None
    details: dict[str, Any] = field(default_factory=dict)  # of JSON: curves, points of figures


@dataclass(frozen=True)
class Case:
    """One line of a table: what is set, in which domain and by which recipe, and what was printed for it."""

    setting: Setting
    domain: str  # interval, zonotope, or - for methods without sets
    recipe: str  # "paper": as published, quirks included; "best": ours; other methods have their names
    run: Callable[[int, torch.device], Outcome]
    paper: float | None = None
    seeds: tuple[int, ...] = (0,)
    quick: bool = True  # whether it is part of --quick
    fixed: Mapping[str, Any] = field(default_factory=dict)  # what else changes the value: a cap on epochs, samples left


@dataclass(frozen=True)
class Scale:
    """How much of an experiment is wanted."""

    quick: bool = False
    seeds: int | None = None  # None: all that the experiment has, or two if it has to be quick
    domain: str = "both"
    recipe: str | None = None  # None: all

    def of(self, case: Case) -> tuple[int, ...]:
        """The seeds of a case that are wanted."""
        of_domain = self.domain == "both" or case.domain in (self.domain, "-")
        if not of_domain or (self.quick and not case.quick) or self.recipe not in (None, case.recipe):
            return ()
        return case.seeds[: self.seeds if self.seeds is not None else QUICK_SEEDS if self.quick else None]


Cases = Callable[[Scale], list[Case]]


@dataclass(frozen=True)
class Experiment:
    """A published table or figure."""

    id: str
    title: str
    source: str  # "FullCert, Table 1"
    differs: str  # one sentence: what is not as in the paper, and why
    cases: Cases
    draw: Callable[[list[dict[str, Any]], Any], None] | None = None  # rows and a figure of matplotlib; None: a chart
    gpu: bool = False  # takes too long without one
    value: str = "certified accuracy (%)"
    derive: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = lambda rows: []  # rows that follow from others


EXPERIMENTS: dict[str, Experiment] = {}


def experiment(id: str, **fields: Any) -> Callable[[Cases], Cases]:
    """Register the function that makes the cases of an experiment."""

    def register(cases: Cases) -> Cases:
        EXPERIMENTS[id] = Experiment(id=id, cases=cases, **fields)
        return cases

    return register


def load() -> dict[str, Experiment]:
    """All experiments: those of the FullCert paper first, then by source."""
    package = importlib.import_module("fullcert.reproduce")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name != "__main__":
            importlib.import_module(f"fullcert.reproduce.{module.name}")
    found = sorted(EXPERIMENTS.values(), key=lambda one: (not one.source.startswith("FullCert"), one.source, one.id))
    return {one.id: one for one in found}


def wanted(ids: list[str], everything: bool) -> list[Experiment]:
    """The experiments that were asked for by name, or all of them."""
    table = load()
    return list(table.values()) if everything else [choose("experiment", id, table) for id in ids]
