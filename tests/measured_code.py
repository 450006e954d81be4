"""What the code of both packages measures: `python tests/measured_code.py`, or of another tree `... PATH`.

    code lines         with something on them that is neither a comment nor a docstring
    flat modules       files that lie in no room
    public names       functions and classes of modules, without a leading underscore
    private reaches    uses of a name with a leading underscore that another room of the package has defined
    complexity         of a function: 1, and 1 for each branch, loop, except, case, operand of `and` and `or` after the
                       first, lambda, `for` and `if` of a comprehension; functions inside it are part of it

Indicators, no limits: a worse name for a better number is no gain. Complexity has a gate: `test_measured_code.py`.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = ("boundflow", "fullcert")
ABOVE, GATE = 10, 12
NOTHING = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
ONE = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.Lambda, ast.match_case)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class File(NamedTuple):
    path: str  # in its tree
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        return self.path.split("/")[1]


def files(package: str, root: Path = ROOT) -> list[File]:
    found = []
    for path in sorted((root / package).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(File(path.relative_to(root).as_posix(), text, ast.parse(text)))
    return found


def complexity(function: ast.AST) -> int:
    found = 1
    for part in ast.walk(function):
        found += isinstance(part, ONE)
        if isinstance(part, ast.BoolOp):
            found += len(part.values) - 1
        elif isinstance(part, ast.comprehension):
            found += 1 + len(part.ifs)
    return found


def functions(file: File) -> Iterator[tuple[str, int]]:
    """The functions and methods of a file by name, with the complexity of each."""

    def within(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
        for part in ast.iter_child_nodes(node):
            named = isinstance(part, (*FUNCTIONS, ast.ClassDef))
            name = f"{prefix}{part.name}" if named else prefix  # type: ignore[attr-defined]
            if isinstance(part, FUNCTIONS):
                yield f"{file.path} {name}", complexity(part)
            yield from within(part, f"{name}." if named else prefix)

    return within(file.tree, "")


def code_lines(file: File) -> int:
    rows: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
        if token.type not in NOTHING:
            rows.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            rows.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(rows)


def _private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and len(name) > 1


def _defined(file: File) -> set[str]:
    """Private names that a file makes: functions, classes, fields, and what it stores."""
    made = set()
    for node in ast.walk(file.tree):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            made.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            made.add(node.id if isinstance(node, ast.Name) else node.attr)
    return {name for name in made if _private(name)}


def private_reaches(package: list[File]) -> list[str]:
    """Where a file uses a private name that it does not make, and a file of another room does."""
    made = {file.path: _defined(file) for file in package}
    found = []
    for file in package:
        elsewhere = {name for other in package if other.room != file.room for name in made[other.path]}
        own = {name for other in package if other.room == file.room for name in made[other.path]}
        for node in ast.walk(file.tree):
            name = node.attr if isinstance(node, ast.Attribute) else node.name if isinstance(node, ast.alias) else ""
            if _private(name) and name in elsewhere - own:
                found.append(f"{file.path}:{node.lineno} {name}")
    return found


def measures(package: list[File]) -> dict[str, str]:
    trees = [file.tree for file in package]
    each = [found for file in package for found in functions(file)]
    worst = max(found for _, found in each)
    above = sum(found > ABOVE for _, found in each)
    public = [part for tree in trees for part in tree.body if isinstance(part, (*FUNCTIONS, ast.ClassDef))]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    return {
        "code lines": f"{sum(map(code_lines, package)):,}",
        "modules": str(len(package)),
        "flat modules": str(sum(file.path.count("/") == 1 for file in package)),
        "classes": str(sum(isinstance(node, ast.ClassDef) for node in nodes)),
        "public names": str(sum(not part.name.startswith("_") for part in public)),
        "`Any`": str(sum(isinstance(node, ast.Name) and node.id == "Any" for node in nodes)),
        "private reaches across rooms": str(len(private_reaches(package))),
        "functions": f"{len(each):,}",
        "worst complexity": str(worst),
        f"functions above {ABOVE}": f"{above} ({above / len(each):.1%})",
        f"functions above {GATE}": str(sum(found > GATE for _, found in each)),
    }


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    found = [measures(files(package, root)) for package in PACKAGES]
    print(f"| {'':30} | {' | '.join(f'{package:>12}' for package in PACKAGES)} |")
    for name in found[0]:
        print(f"| {name:30} | {' | '.join(f'{one[name]:>12}' for one in found)} |")


if __name__ == "__main__":
    main()
