"""The registry: one program is one entry.

A program is a function that makes a network, trained through `certify`, or a training loop of its own. Its docstring
says what is odd about it, and the entry says what a sound library does with it:

    contained   it must hold every poisoned plain run: refusing it would be a loss
    raises      nothing but a named error can be right
    either      both are sound; docs/programs.md records which happens
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from . import oracle, sets
from .recipe import Recipe, poisoned

EXPECTED = ("contained", "raises", "either")
DOMAINS = ("interval", "zonotope")
IN_PIECES = {"memory": 1.0, "batch_size": None}
"""Of certify: so few bytes that a batch comes two samples at a time, if it may."""


@dataclass(frozen=True)
class Program:
    """A network or a loop, what is odd about it, and how it is run on both sides."""

    name: str
    family: str
    odd: str
    expected: str
    recipe: Recipe
    runs: Callable[[], list[oracle.Run]]
    bounds: Callable[[str], list[sets.Bounds]]
    domains: tuple[str, ...] = DOMAINS


PROGRAMS: dict[str, Program] = {}

RECIPE = set(Recipe.__dataclass_fields__)


def certified(
    expected: str = "contained",
    *,
    name: str | None = None,
    odd: str | None = None,
    domains: tuple[str, ...] = DOMAINS,
    **options: Any,
) -> Callable[[Callable[[], nn.Module]], Callable[[], nn.Module]]:
    """Enter a network that is trained through `certify`; the other options are those of the recipe and of certify."""
    recipe = Recipe(**{key: value for key, value in options.items() if key in RECIPE})
    rest = {key: value for key, value in options.items() if key not in RECIPE}

    def enter(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        def runs() -> list[oracle.Run]:
            return _plain_runs(oracle.as_certified, (make,), recipe)

        def bounds(domain: str) -> list[sets.Bounds]:
            return sets.certified(make, recipe, domain, **rest)

        _enter(make, name, odd, expected, recipe, runs, bounds, domains)
        return make

    return enter


_runs: dict[tuple, list[oracle.Run]] = {}


def _plain_runs(trained: Callable[..., oracle.Run], code: tuple[Callable, ...], recipe: Recipe) -> list[oracle.Run]:
    """The runs of a program on all datasets; variants that train alike have them in common."""
    key = (*code, repr(recipe))
    if key not in _runs:
        _runs[key] = [trained(*code, recipe, data, data.x) for data in poisoned(recipe)]
    return _runs[key]


def variant(name: str, odd: str, expected: str = "contained", **options: Any) -> Callable:
    """The same network trained or asked in another way: on zonotopes alone, unless the options say otherwise."""
    return certified(expected, name=name, odd=odd, **{"domains": ("zonotope",), **options})


def loop(
    make: Callable[[], nn.Module],
    expected: str = "contained",
    *,
    name: str | None = None,
    odd: str | None = None,
    domains: tuple[str, ...] = DOMAINS,
    **options: Any,
) -> Callable[[Callable], Callable]:
    """Enter a training loop ``train(side, model)`` that gives the trained model, and further tensors if it likes."""
    recipe = Recipe(**options)

    def enter(train: Callable) -> Callable:
        def runs() -> list[oracle.Run]:
            return _plain_runs(oracle.through_loop, (train, make), recipe)

        def bounds(domain: str) -> list[sets.Bounds]:
            return sets.looped(train, make, recipe, domain)

        _enter(train, name, odd, expected, recipe, runs, bounds, domains)
        return train

    return enter


def _enter(code: Callable, name: str | None, odd: str | None, expected: str, recipe: Recipe, *rest: Any) -> None:
    name = name or code.__name__.replace("_", " ")
    odd = odd or (code.__doc__ or "").strip()
    family = code.__module__.rpartition(".")[2].replace("_", " ")
    assert name not in PROGRAMS, f"there are two programs {name!r}"
    assert expected in EXPECTED and odd.endswith(".") and "\n" not in odd, f"{name}: {expected!r}, {odd!r}"
    PROGRAMS[name] = Program(name, family, odd, expected, recipe, *rest)
