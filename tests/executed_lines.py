"""Which tests run which lines of the packages: recorded once, and asked by those who plant bugs.

    python tests/executed_lines.py                                   # all, which takes about 20 minutes
    python tests/executed_lines.py tests/fullcert/data/test_tables.py     # these again

A pytest plugin traces every test and keeps, for each function of the modules that `syntax_bugs.py` lists, the lines it
ran, counted from the first line of the function, so that a change elsewhere in the file leaves them where they are.
What a fixture runs that several tests share counts for each of them. Lines at the top of a module run when it is
imported, which is no test's: they belong to every test that runs anything of the module. The record is
`build/executed_lines.json`, and not kept in the repository: it takes one run of the tests.
"""

from __future__ import annotations

import ast
import json
import sys
import threading
import time
from collections.abc import Generator, Iterable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from syntax_bugs import FILES, ROOT

RECORD = ROOT / "build" / "executed_lines.json"
PATHS = {str(ROOT / file) for file in FILES}
OTHERS = {"reproduce", "bench"}  # folders of tests of fullcert that are about its own programs
ANALYSES = {  # tests of boundflow that ask certificates
    *("votes", "withstanding", "audit", "verified_rows", "derived_sets", "predictions", "certify", "filled_categories"),
    *(
        "every_dataset",
        "smaller_sets",
        "answers",
        "saved",
        "forged_files",
        "enumerated",
        "asked_first",
        "digests",
        "many",
    ),
}


class Lines:
    """The lines of the packages that ran since the last call of `taken`."""

    def __init__(self) -> None:
        self.left: dict[CodeType, set[int]] = {}  # that this code has not run yet

    def call(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        left = self.left.get(code)
        if left is None:
            ours = code.co_filename in PATHS
            left = self.left[code] = _lines(code) if ours else set()
        left.discard(frame.f_lineno)
        return self.line if left else None

    def line(self, frame: FrameType, event: str, argument: object) -> Any:
        left = self.left.get(frame.f_code)
        if left is None:  # another test began while this one ran
            return self.call(frame, event, argument)
        left.discard(frame.f_lineno)
        return self.line if left else None

    def taken(self) -> set[tuple[str, int]]:
        before, self.left = self.left, {}
        ours = ((code, left) for code, left in list(before.items()) if code.co_filename in PATHS)
        return {(code.co_filename, line) for code, left in ours for line in _lines(code) - left}


def _lines(code: CodeType) -> set[int]:
    return {line for _, _, line in code.co_lines() if line}


class Recorder:
    """A plugin that keeps what every test runs, and how long it takes."""

    def __init__(self) -> None:
        self.lines, self.of_fixtures = Lines(), dict[Any, set[tuple[str, int]]]()
        self._fixtures: list[Any] = []
        self.tests: dict[str, tuple[float, set[tuple[str, int]]]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        before = self.lines.taken()
        self._trace()
        made = yield
        own = self.lines.taken()
        self.of_fixtures[fixturedef] = own
        self.before |= before | own
        return made

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Generator[None, Any, Any]:
        self.before: set[tuple[str, int]] = set()
        begin = time.perf_counter()
        self.lines.taken()
        self._trace()
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            seconds = time.perf_counter() - begin
            shared = (self.of_fixtures.get(made, set()) for made in self._fixtures)
            self.tests[item.nodeid] = seconds, self.lines.taken() | self.before | set().union(*shared)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: Any) -> Generator[None, Any, Any]:
        self._fixtures = list(item._request._fixture_defs.values())
        self._trace()
        return (yield)

    def pytest_runtest_setup(self, item: Any) -> None:
        self._fixtures = []

    def _trace(self) -> None:
        threading.settrace(self.lines.call)
        sys.settrace(self.lines.call)


@cache
def functions(text: str) -> list[tuple[int, int, str]]:
    """First and last line of every function of a module, of decorators on, and its name with its class."""

    def inside(node: ast.AST, before: str) -> Iterable[tuple[int, int, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                yield from inside(child, f"{before}{child.name}.")
            elif isinstance(child, ast.FunctionDef):
                first = min([child.lineno, *(mark.lineno for mark in child.decorator_list)])
                yield first, child.end_lineno or first, before + child.name
            elif not isinstance(child, ast.expr):
                yield from inside(child, before)

    return list(inside(ast.parse(text), ""))


def function_at(text: str, line: int) -> tuple[str, int]:
    """The function a line belongs to, and the line counted from its first; no name at the top of a module."""
    return next(((name, line - first) for first, last, name in functions(text) if first <= line <= last), ("", line))


def record(tests: dict[str, tuple[float, set[tuple[str, int]]]], into: Path) -> None:
    """Add these tests to the record: the seconds of each, and the lines of each function that it runs."""
    known = json.loads(into.read_text()) if into.exists() else {}
    for test, (seconds, ran) in tests.items():
        lines: dict[str, list[int]] = {}
        for name, offset in sorted(filter(None, (_place(*place) for place in ran))):
            lines.setdefault(name, []).append(offset)
        known[test] = {"seconds": round(seconds, 2), "lines": lines}
    into.parent.mkdir(exist_ok=True)
    into.write_text(json.dumps(known))


@cache
def _text(path: str) -> str:
    return Path(path).read_text()


@cache
def _place(path: str, line: int) -> tuple[str, int] | None:
    name, offset = function_at(_text(path), line)
    return (f"{Path(path).relative_to(ROOT)} {name}", offset) if name else None


def recorded() -> list[str]:
    """The files of tests that run these modules."""
    of_fullcert = [path for path in (ROOT / "tests/fullcert").rglob("test_*.py") if path.parent.name not in OTHERS]
    of_boundflow = [path for path in (ROOT / "tests/boundflow").rglob("test_*.py") if path.stem[5:] in ANALYSES]
    return [str(path) for path in sorted(of_fullcert + of_boundflow)]


def main() -> None:
    recorder = Recorder()
    options = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-W", "ignore"]
    for file in sys.argv[1:] or recorded():  # one after the other, so that a run that was stopped keeps what it had
        pytest.main([*options, file], plugins=[recorder])
        record(recorder.tests, RECORD)
        recorder.tests.clear()


if __name__ == "__main__":
    main()
