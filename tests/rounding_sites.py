"""Rounding terms removed while the library runs: one call at one place of a file computes as if nothing were charged.

Every function of `boundflow.rounding` that widens is wrapped once, and so are those of ``optimum``. A wrapper
looks where it is called from; at the place that is switched off it computes as in ``rounding.nearest()``. So the laws
of a room run in one process, one removal after the other, without importing torch each time. What is no call (a name
that holds a charge) is removed by giving the functions of its file the code of another text.
"""

from __future__ import annotations

import gc
import importlib.util
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import conftest  # noqa: F401  (the settings of property-based tests)

from boundflow import optimum, rounding


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
    rounding._gamma.cache_clear()
    try:
        yield
    finally:
        rounding.UNIT.update(units)
        rounding._gamma.cache_clear()


class Switch:
    """At most one place at which nothing is charged."""

    def __init__(self) -> None:
        self.place: Place | None = None
        self._seen: dict[tuple[CodeType, int], Place] = {}

    def install(self, names: set[str], of_optimum: set[str]) -> None:
        """Wrap functions of `rounding`, and others in every module of ``optimum`` that calls them by their names."""
        for name in names:
            if hasattr(rounding, name):
                setattr(rounding, name, self._wrapped(getattr(rounding, name)))
        modules = [module for name, module in sys.modules.items() if name.startswith(f"{optimum.__name__}.")]
        for module in modules:
            for name in of_optimum & set(vars(module)):
                setattr(module, name, self._wrapped(getattr(module, name)))

    @contextmanager
    def off(self, place: Place) -> Iterator[None]:
        """Nothing is charged at this place."""
        self.place = place
        try:
            yield
        finally:
            self.place = None

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
    every = getattr(test, "pytestmark", [])
    if any(mark.name == "skip" or (mark.name == "skipif" and mark.args[0]) for mark in every):
        return
    marks = [mark for mark in every if mark.name == "parametrize"]
    axes = [[(mark, value) for value in mark.args[1]] for mark in marks]  # the last decorator varies fastest
    for chosen in itertools.product(*reversed(axes)):
        given: dict[str, Any] = {}
        for mark, value in chosen:
            names = mark.args[0].split(",") if isinstance(mark.args[0], str) else list(mark.args[0])
            given |= dict(zip((n.strip() for n in names), value if len(names) > 1 else (value,), strict=True))
        wanted = inspect.signature(test).parameters
        if set(wanted) <= set(given):
            yield Law(f"{path.name}::{name}", test, given)


@contextmanager
def another_text(path: str, text: str) -> Iterator[None]:
    """The functions of a file with the code of another text, whose functions begin on the same lines."""
    made = {_name(code): code for code in _codes(compile(text, path, "exec"))}
    functions = [f for f in gc.get_objects() if type(f) is FunctionType and f.__code__.co_filename == path]
    before = [f.__code__ for f in functions]
    try:
        for f, code in zip(functions, before, strict=True):
            f.__code__ = made[_name(code)]
        rounding._gamma.cache_clear()
        yield
    finally:
        for f, code in zip(functions, before, strict=True):
            f.__code__ = code
        rounding._gamma.cache_clear()


def _name(code: CodeType) -> tuple[str, int, tuple[str, ...]]:
    """Of two functions without a name on one line, what they take from around them tells which is which."""
    return code.co_qualname, code.co_firstlineno, code.co_freevars


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def noticed(removal: Callable[[], AbstractContextManager[None]], tests: list[Law]) -> str | None:
    """The first law that fails with a term removed, and holds otherwise."""
    for law in tests:
        with removal():
            try:
                law.test(**law.given)
                continue
            except Exception:  # whatever a law raises: crossed bounds, a failed comparison
                pass
        law.test(**law.given)  # a law that fails as it is would notice everything: that is an error
        return law.name
    return None
