"""Floats are widened in `boundflow/arithmetic/rounding.py` alone: no neighbour or factor near 1 is taken elsewhere.

What an attacker may do is no bound, and rounds the other way, inwards. It is held against the bounds, so it shares none
of their rounding: a mistake there would then be in both.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ONLY = ROOT / "boundflow" / "arithmetic" / "rounding.py"
DRAWN = {ROOT / "fullcert" / "report" / "axes.py"}  # where a tick stands is no bound
INWARDS = {  # attacks, each with what it rounds
    "boundflow/attacks/freedoms.py": "amounts, down: an attacker has no more than the threat says",
    "boundflow/attacks/membership.py": "how far boxes move a value, down: what is taken for a member is one",
    "boundflow/attacks/steepest.py": "moved values, towards the observed ones, until they are members",
    "fullcert/evidence/poisoning.py": "drawn values, towards the observed ones, until they are within the amounts",
}
SOURCES = sorted({p for name in ("boundflow", "fullcert") for p in (ROOT / name).rglob("*.py")} - DRAWN)
BOUNDS = ("rounding", "bounded", "sets", "forms", "lift")  # modules that attacks leave alone
NEIGHBOURS = ("nextafter", "ulp")
UNITS = ("unit", "eps", "UNIT")
NEAR = 1e-3
OPERATORS = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b,
}


def value(node: ast.AST) -> float | None:
    """The number that an expression of numbers is, None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int | float) and not isinstance(node.value, bool) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = value(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = value(node.left), value(node.right)
        if left is None or right is None or (isinstance(node.op, ast.Pow) and abs(right) > 1100):
            return None
        try:
            return OPERATORS[type(node.op)](left, right)
        except (ArithmeticError, ValueError):
            return None
    return None


def called(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_some_units(node: ast.AST) -> bool:
    """A number of unit roundoffs: ``16 * unit``, ``subject.unit * 8``, ``4 * torch.finfo(dtype).eps``."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    sides = (node.left, node.right)
    return any(value(side) is not None for side in sides) and any(called(side) in UNITS for side in sides)


def widenings(source: str) -> Iterator[tuple[int, str]]:
    """Line and reason of everything that widens a float by hand."""
    for node in ast.walk(ast.parse(source)):
        if called(node) in NEIGHBOURS:
            yield node.lineno, f"a neighbouring float: {called(node)}"
        number = value(node) if isinstance(node, ast.expr) else None
        if number is not None and number != 1 and abs(number - 1) < NEAR:
            yield node.lineno, f"a factor near 1: {ast.unparse(node)}"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            sides = (node.left, node.right)
            if any(value(side) == 1 for side in sides) and any(map(is_some_units, sides)):
                yield node.lineno, f"a factor near 1: {ast.unparse(node)}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_but_one_widens_floats(path: Path) -> None:
    found = list(widenings(path.read_text()))
    if str(path.relative_to(ROOT)) in INWARDS:
        assert found, "there is nothing to round any more: no need to name it"
        return
    if path == ONLY:
        assert found, "the scan finds nothing where there is something"
        return
    assert not found, f"{path.name}: {found}: add a function with its proof to boundflow/arithmetic/rounding.py"


def imported(source: str) -> set[str]:
    """The last part of every module or name that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.name.rpartition(".")[2] for alias in node.names}
            found |= {(node.module or "").rpartition(".")[2]} if isinstance(node, ast.ImportFrom) else set()
    return found


@pytest.mark.parametrize("name", INWARDS)
def test_what_rounds_inwards_makes_no_bounds(name: str) -> None:
    assert not imported((ROOT / name).read_text()) & set(BOUNDS)


def test_imports_are_seen() -> None:
    for line in ("from . import rounding", "from ..rounding import up", "import boundflow.rounding"):
        assert "rounding" in imported(line)


@pytest.mark.parametrize(
    "line",
    [
        "x * (1 + 1e-15)",
        "x * (1 - 2**-24)",
        "x * 1.0000001",
        "0.99999 * x",
        "torch.nextafter(x, y)",
        "move * (1 + 16 * subject.unit)",
        "x * (torch.finfo(d).eps * 4 + 1)",
    ],
)
def test_the_scan_sees(line: str) -> None:
    assert list(widenings(line))


@pytest.mark.parametrize("line", ["x * (1 + y)", "1 + 2 * x", "0.9 * x", "2**-24 * x", "rounding.up(x)", "1.5 - 0.5"])
def test_the_scan_lets_pass(line: str) -> None:
    assert not list(widenings(line))
