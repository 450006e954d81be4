"""Where two things are taken for the same on less than their content, found in the syntax tree.

    text        repr, str, format, so many digits                        name     __name__, __qualname__
    there       exists, is_file, is_dir, stat: that something is there says nothing of what it is
    place       id, data_ptr, _version: where something is, and not what, unless it is held meanwhile

Such an expression is a place if it is compared, looked up or stored as a key, put into a set or a digest, directly or
under a name that it was given in the same function; `there` and `place` are places wherever they are asked for. Caches
are found, too: functions that remember, and tables of a module.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for package in ("boundflow", "fullcert") for path in (ROOT / package).rglob("*.py"))
TEXTS = frozenset(("repr", "str", "format", "ascii", "hash"))
NAMES = frozenset(("__name__", "__qualname__"))
THERE = frozenset(("exists", "lexists", "is_file", "isfile", "is_dir", "isdir", "samefile", "access", "stat", "lstat"))
TIMES = frozenset(("st_mtime", "st_mtime_ns", "st_ctime", "st_size", "st_ino"))
MEMORY = frozenset(("data_ptr", "_version"))
LOOKED_UP = frozenset(("get", "setdefault", "pop", "add", "discard", "remove", "index", "count"))
DIGESTED = frozenset(("sha256", "blake2b", "md5", "update", "digest", "_digest", "of_value"))
REMEMBERS = frozenset(("cache", "lru_cache"))
TABLES = frozenset(("dict", "list", "set", "WeakKeyDictionary", "WeakValueDictionary", "OrderedDict", "defaultdict"))


@cache
def modules() -> dict[str, ast.Module]:
    """Every file of both packages."""
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in SOURCES}


class Place(NamedTuple):
    """Where something stands: the file and the function, and what stands there."""

    where: str
    text: str


def called(node: ast.AST) -> str:
    """The last name of what is called; nothing where it has none."""
    function = node.func if isinstance(node, ast.Call) else None
    return getattr(function, "id", getattr(function, "attr", ""))


class Finder(ast.NodeVisitor):
    """The places of one module."""

    def __init__(self, file: str):
        self.file, self.found = file, list[Place]()
        self.scope: list[str] = []
        self.given: list[set[str]] = [set()]  # names of weak evidence, by scope

    @property
    def where(self) -> str:
        return f"{self.file} {'.'.join(self.scope)}".strip()

    # --- scopes -------------------------------------------------------------------------------------------------------

    def _inside(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.scope.append(node.name)
        self.given.append(set(self.given[-1]))
        for _ in range(2):  # a name may be used in a loop before it is given
            for part in ast.walk(node) if not isinstance(node, ast.ClassDef) else ():
                self.given[-1] |= self._named(part)
        self.generic_visit(node)
        self.given.pop()
        self.scope.pop()

    visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = _inside

    def _named(self, node: ast.AST) -> set[str]:
        """Names that are given to weak evidence."""
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            targets, value = getattr(node, "targets", [getattr(node, "target", None)]), node.value
        elif isinstance(node, ast.For | ast.comprehension):
            targets, value = [node.target], node.iter
        else:
            return set()
        if value is None or not self.weak(value):
            return set()
        return {target.id for target in targets if isinstance(target, ast.Name)}

    # --- evidence -----------------------------------------------------------------------------------------------------

    def weak(self, node: ast.AST | None) -> bool:
        """Whether a value is a text, a name or an address of something, or is made of such."""
        if isinstance(node, ast.Name):
            return node.id in self.given[-1]
        if isinstance(node, ast.Attribute):
            return node.attr in NAMES | TIMES | MEMORY or (node.attr not in THERE and self.weak(node.value))
        if isinstance(node, ast.Call):
            return called(node) in {*TEXTS, "id"} or self.weak(node.func) or self._maps(node)
        if isinstance(node, ast.FormattedValue):
            return node.conversion != -1 or node.format_spec is not None or self.weak(node.value)
        if isinstance(node, ast.DictComp):
            return self.weak(node.key)
        if isinstance(node, ast.SetComp | ast.ListComp | ast.GeneratorExp):
            return self.weak(node.elt)
        if isinstance(node, ast.Subscript):
            return self.weak(node.value)
        made_of = ast.Tuple | ast.List | ast.Set | ast.BinOp | ast.BoolOp | ast.IfExp | ast.JoinedStr | ast.Starred
        return isinstance(node, made_of) and any(map(self.weak, ast.iter_child_nodes(node)))

    def _maps(self, node: ast.Call) -> bool:
        """Whether a call makes a collection of weak evidence: ``map(id, ...)``, ``sorted(names)``."""
        names = {argument.id for argument in node.args if isinstance(argument, ast.Name)}
        collects = called(node) in {"sorted", "set", "tuple", "list", "frozenset", "join", "zip", "reversed", "sum"}
        return (called(node) == "map" and bool(names & {*TEXTS, "id"})) or (collects and any(map(self.weak, node.args)))

    # --- places -------------------------------------------------------------------------------------------------------

    def generic_visit(self, node: ast.AST) -> None:
        if self._is_place(node):
            self.found.append(Place(self.where, ast.unparse(node)))  # type: ignore[arg-type]
            for part in ast.walk(node):  # what stands within it is judged with it, but for other questions
                if part is not node and isinstance(part, ast.Lambda):
                    self.visit(part)
            return
        super().generic_visit(node)

    def _is_place(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Compare):
            if all(isinstance(other, ast.Constant) and other.value is None for other in node.comparators):
                return False
            return any(map(self.weak, (node.left, *node.comparators))) or self._asks(node)
        if isinstance(node, ast.Subscript):
            return not isinstance(node.slice, ast.Slice) and self.weak(node.slice)
        if isinstance(node, ast.Dict):
            return any(map(self.weak, node.keys))
        if isinstance(node, ast.DictComp | ast.SetComp | ast.Set):
            return self.weak(node)
        if isinstance(node, ast.Call):
            name = called(node)
            keyed = name in LOOKED_UP and bool(node.args) and self.weak(node.args[0])
            return keyed or name in THERE | {"id"} or (name in DIGESTED and any(map(self.weak, node.args)))
        return isinstance(node, ast.Attribute) and node.attr in MEMORY | TIMES

    def _asks(self, node: ast.AST) -> bool:
        parts = list(ast.walk(node))
        asked = any(called(part) in THERE | {"id"} for part in parts)
        return asked or any(isinstance(part, ast.Attribute) and part.attr in MEMORY | TIMES for part in parts)


def places() -> set[Place]:
    """All places of both packages."""
    found: set[Place] = set()
    for file, tree in modules().items():
        finder = Finder(file)
        finder.visit(tree)
        found |= set(finder.found)
    return found


def caches() -> Iterator[str]:
    """Functions that remember what they have answered, and tables of a module that begin empty."""
    for file, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and any(map(_remembers, node.decorator_list)):
                yield f"{file} {node.name}"
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if _empty(node.value) or any(map(_remembers, ast.walk(node.value))):
                    yield f"{file} {ast.unparse(target)}"


def _remembers(node: ast.AST) -> bool:
    node = node.func if isinstance(node, ast.Call) else node
    return getattr(node, "id", getattr(node, "attr", "")) in REMEMBERS


def _empty(value: ast.AST) -> bool:
    if isinstance(value, ast.Dict | ast.List):
        return not (value.keys if isinstance(value, ast.Dict) else value.elts)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Subscript):
        return getattr(value.func.value, "id", "") in TABLES and not value.args
    return called(value) in TABLES and not (isinstance(value, ast.Call) and value.args)
