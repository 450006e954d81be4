"""No function is more complex than `measured_code.GATE`, save those that were before: their list only shrinks."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import measured_code
import pytest
from measured_code import GATE, PACKAGES

LIST = Path(__file__).with_name("complex_functions.json")


def above() -> dict[str, int]:
    each = (
        found
        for package in PACKAGES
        for file in measured_code.files(package)
        for found in measured_code.functions(file)
    )
    return {name: complexity for name, complexity in each if complexity > GATE}


def test_functions_are_simple_and_those_that_are_not_get_no_worse() -> None:
    found, listed = above(), json.loads(LIST.read_text())
    new = {name: complexity for name, complexity in found.items() if complexity > listed.get(name, GATE)}
    assert not new, "split these, or say it more simply"
    gone = {name: complexity for name, complexity in listed.items() if found.get(name, 0) < complexity}
    assert not gone, "better than listed: python tests/test_measured_code.py writes the list anew"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(x): return x", 1),
        ("def f(x):\n    if x: return 1\n    elif x is None: return 2", 3),
        ("def f(x): return x and x.y or 3", 3),
        ("def f(x): return [a for b in x if b for a in b]", 4),
        ("def f(x): return sorted(x, key=lambda y: y if x else -y)", 3),
        ("def f(x):\n    def g(y):\n        while y: pass\n    return g", 2),
        ("def f(x):\n    try: pass\n    except ValueError: pass", 2),
        ("def f(x):\n    match x:\n        case 1: pass\n        case _: pass", 3),
    ],
)
def test_what_counts(source: str, expected: int) -> None:
    assert measured_code.complexity(ast.parse(source).body[0]) == expected


def test_reaches_into_other_rooms_are_seen() -> None:
    def file(path: str, text: str) -> measured_code.File:
        return measured_code.File(path, text, ast.parse(text))

    made = file("p/a/one.py", "class A:\n    def _own(self): pass\n    def all(self): return self._own()")
    beside = file("p/a/two.py", "def f(x): return x._own()")
    away = file("p/b/three.py", "def f(x): return x._own(), x._other, x.__dict__")
    assert measured_code.private_reaches([made, beside, away]) == ["p/b/three.py:1 _own"]


def main() -> None:
    """Write the list anew; what has become worse stays as it was, and fails the test."""
    listed = json.loads(LIST.read_text()) if LIST.exists() else {}
    found = {name: min(complexity, listed.get(name, complexity)) for name, complexity in above().items()}
    if listed:
        found = {name: complexity for name, complexity in found.items() if name in listed}
    LIST.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(listed)} -> {len(found)} functions")


if __name__ == "__main__":
    sys.exit(main())
