"""Rounding terms removed while the library runs: one call at one place of a file computes as if nothing were charged.

Every function of `boundflow.rounding` that widens is wrapped once. A wrapper looks where it is called from; at the
place that is switched off it computes as in ``rounding.nearest()``. So the laws of a room run in one process, one
removal after the other, without importing torch each time. What is no call (a name that holds a charge) needs a copy of
the package: `rounding_terms.py` does that.
"""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import conftest  # noqa: F401  (the settings of property-based tests)

from boundflow import rounding


class Place(NamedTuple):
    """A call in a file: first line and column, last line and column."""

    file: str
    begin: tuple[int, int]
    end: tuple[int, int]


class Law(NamedTuple):
    """A test with its parameters, by the name that pytest gives it without them."""

    name: str
    test: Callable[..., None]
    given: dict[str, Any]

    def about(self, file: str) -> bool:
        """Whether it is about a rule of this file, ``rules/NAME.py``."""
        rule, module = self.given.get("rule"), f"boundflow.{file.removesuffix('.py').replace('/', '.')}"
        return self.given.get("file") == file or (rule is not None and rule.apply.__module__ == module)


@contextmanager
def _no_units() -> Iterator[None]:
    """Nothing is charged by what charges in every mode, as `rounding.whole_steps` does."""
    units = dict(rounding.UNIT)
    rounding.UNIT.update(dict.fromkeys(units, 0.0))
    try:
        yield
    finally:
        rounding.UNIT.update(units)


class Switch:
    """At most one place at which nothing is charged."""

    def __init__(self) -> None:
        self.place: Place | None = None
        self._seen: dict[tuple[CodeType, int], Place] = {}

    def install(self, names: set[str]) -> None:
        for name in names:
            if hasattr(rounding, name):
                setattr(rounding, name, self._wrapped(getattr(rounding, name)))

    def _wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            if self.place is not None and self._caller(sys._getframe(1)) == self.place:
                with rounding.nearest(), _no_units():
                    return function(*args, **kwargs)
            return function(*args, **kwargs)

        return called

    def _caller(self, frame: Any) -> Place:
        key = frame.f_code, frame.f_lasti
        if key not in self._seen:
            first, last, column, end = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
            self._seen[key] = Place(frame.f_code.co_filename, (first, column), (last, end))
        return self._seen[key]


def laws(path: Path) -> list[Law]:
    """The tests of a file with their parameters; none that need fixtures."""
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[path.stem] = module
    found.loader.exec_module(module)
    tests = [(name, test) for name, test in vars(module).items() if name.startswith("test_")]
    found_laws = [law for name, test in tests for law in _cases(path, name, test)]
    return found_laws


def _cases(path: Path, name: str, test: Any) -> Iterator[Law]:
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    axes = [[(mark, value) for value in mark.args[1]] for mark in marks]  # the last decorator varies fastest
    for chosen in itertools.product(*reversed(axes)):
        given: dict[str, Any] = {}
        for mark, value in chosen:
            names = mark.args[0].split(",") if isinstance(mark.args[0], str) else list(mark.args[0])
            given |= dict(zip((n.strip() for n in names), value if len(names) > 1 else (value,), strict=True))
        wanted = inspect.signature(test).parameters
        if set(wanted) <= set(given):
            yield Law(f"{path.name}::{name}", test, given)


def noticed(switch: Switch, place: Place, tests: list[Law]) -> str | None:
    """The first law that fails while a place is switched off, and holds otherwise."""
    for law in tests:
        switch.place = place
        try:
            law.test(**law.given)
        except Exception:  # whatever a law raises: crossed bounds, a failed comparison
            switch.place = None
            law.test(**law.given)  # a law that fails as it is would notice everything: that is an error
            return law.name
        finally:
            switch.place = None
    return None
