"""Bugs read from the syntax tree of the modules that data pass on the way from a file to a certified label.

A bug is one change of one expression or statement: another number, sign, operator, comparison or end, swapped
arguments, a term, a call, a ``not``, a condition or a statement that is dropped. Words of messages, hints of types and
what only prints are left alone. Of the bugs of a file those with the smallest digests are drawn, one for every so many
lines, so that a change of one function draws no other bugs elsewhere.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from boundflow.same_program.former_paths import FORMER

ROOT = Path(__file__).parents[1]
FULLCERT = (
    *(f"data/{name}" for name in ("tables", "dialects", "dates", "npz", "encoding", "fitted_encoding")),
    *(f"data/{name}" for name in ("column_questions", "inspecting", "plane_grid")),
    *("system/numbers_as_text", "system/unpacking", "networks/layers", "networks/models", "networks/linear_weights"),
    *(f"experiment/{name}" for name in ("sample_lines", "missing_cells", "threats", "options", "tasks", "losses")),
    *(f"experiment/{name}" for name in ("recipes", "training", "tuning")),
    *(f"evidence/{name}" for name in ("plain_training", "ball_training", "poisoning", "retraining", "verifying")),
    *(f"results/{name}" for name in ("checked_rows", "evaluation", "answering", "withstood_answers", "auditing")),
    *("results/voting", "results/attacked_run", "sweeps/attacked_curves", "sweeps/sweep_tables", "sklearn/scaling"),
    *(f"data/datasets/{name}" for name in ("adult", "bundled", "cars", "catalogue", "cifar", "components", "images")),
    *(f"data/datasets/{name}" for name in ("magic", "mnist", "moons", "pneumonia", "sources", "splitting")),
    *(
        f"sklearn/{name}"
        for name in ("answers", "certified", "checks", "classifier", "regressor", "through", "weights")
    ),
    *(f"baselines/{name}" for name in ("bagflip", "binomial", "cells", "dpa", "ensembles", "interval", "likelihood")),
)
BOUNDFLOW = (
    *(f"analysis/{name}" for name in ("withstanding", "smaller_threats", "largest_budgets", "audit", "checklist")),
    *(f"analysis/{name}" for name in ("verified_rows", "owner_terms", "votes", "ensemble")),
    *(f"answers/{name}" for name in ("derived_sets", "cuts", "prediction", "certificate")),
)
FILES = (*(f"fullcert/{name}.py" for name in FULLCERT), *(f"boundflow/{name}.py" for name in BOUNDFLOW))

SEED = 25
LINES_FOR_A_BUG = 30
SEVERAL = {"number": 4, "arguments": 2}  # bugs of a kind at one place

ARITHMETIC = {
    **{ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*")},
    **{
        ast.Mod: ("%", "//"),
        ast.Pow: ("**", "*"),
        ast.BitOr: ("|", "&"),
        ast.BitAnd: ("&", "|"),
        ast.MatMult: ("@", "*"),
    },
}
COMPARISONS: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    **{
        ast.Lt: ("<", ("<=", ">")),
        ast.LtE: ("<=", ("<", ">=")),
        ast.Gt: (">", (">=", "<")),
        ast.GtE: (">=", (">", "<=")),
    },
    **{
        ast.Eq: ("==", ("!=",)),
        ast.NotEq: ("!=", ("==",)),
        ast.Is: ("is", ("is not",)),
        ast.IsNot: ("is not", ("is",)),
    },
    **{ast.In: ("in", ("not in",)), ast.NotIn: ("not in", ("in",))},
}
PAIRS = (
    *(("lower", "upper"), ("min", "max"), ("amin", "amax"), ("minimum", "maximum"), ("floor", "ceil"), ("any", "all")),
    *(("up", "down"), ("least", "most"), ("low", "high"), ("argmin", "argmax"), ("clamp_min", "clamp_max")),
    *(("first", "last"), ("begin", "end"), ("train", "test"), ("zeros", "ones"), ("zeros_like", "ones_like")),
    *(("smallest", "largest"), ("mean", "sum"), ("removes", "adds"), ("cumsum", "cumprod"), ("features", "labels")),
)
SWAPPED = {**dict(PAIRS), **{right: left for left, right in PAIRS}}
DROPPED = {  # calls whose argument, or what they are called on, is put in their place
    *("abs", "clamp", "clamp_min", "clamp_max", "clip", "round", "floor", "ceil", "sorted", "reversed", "nextafter"),
    *("up", "down", "outward", "widened", "away", "sqrt", "log", "exp", "log1p", "square", "unique", "flip", "cumsum"),
    *("strip", "lower", "casefold", "clone", "copy", "deepcopy", "nan_to_num", "float", "int", "str", "bool", "set"),
    *("sigmoid", "softmax", "isfinite", "isnan", "double", "long", "sort", "relu", "fsum", "frozenset", "unquote"),
}
WORDS = {  # calls that tell somebody something
    *("Mistake", "print", "echo", "warn", "debug", "info", "say", "note", "isinstance", "getattr", "hasattr", "cast"),
    *("plural", "described", "cache", "lru_cache", "TypeVar", "ValueError", "TypeError"),
}
COMMUTES = {"min", "max", "minimum", "maximum", "array_equal", "equal", "allclose"}
SPOKEN = {"__repr__", "__str__", "_repr_html_", "drawn", "needs_less", "without_key"}  # functions: words and pictures


class Bug(NamedTuple):
    """One change of the text of a file."""

    file: str
    name: str  # file, function, and the lines before and after: the same as long as these are
    kind: str
    begin: int
    end: int
    wrong: str
    lines: tuple[int, int]

    def planted(self, text: str) -> str:
        content = text.encode()
        return (content[: self.begin] + self.wrong.encode() + content[self.end :]).decode()


def drawn(file: str) -> Iterator[Bug]:
    """All bugs of a file that are another program, in the order of the draw; how many are drawn says `count`.

    Of the numbers that could stand at a place, and of the arguments of a call that could be swapped, there is one.
    """
    source, taken = Source(file), set[tuple[int, int]]()
    for bug in sorted(bugs(file), key=_rank):
        again = bug.kind in ("number", "arguments") and (bug.begin, bug.end) in taken
        if not again and source.other_program(bug):
            taken.add((bug.begin, bug.end))
            yield bug


def count(file: str) -> int:
    lines = [line for line in (ROOT / file).read_text().splitlines() if line.strip()]
    return -(-len(lines) // LINES_FOR_A_BUG)


def _rank(bug: Bug) -> float:
    """A number that the name decides; of kinds that come as several at one place, each comes later by as much."""
    path, _, rest = bug.name.partition(".py ")  # where a file lay before does not change what is drawn from it
    before = FORMER.get(path.replace("/", "."), path).replace(".", "/")
    digest = int.from_bytes(hashlib.sha256(f"{SEED} {before}.py {rest}".encode()).digest()[:6], "big")
    return digest * SEVERAL.get(bug.kind, 1)


@cache
def bugs(file: str) -> tuple[Bug, ...]:
    """Every bug of a file, in the order of the text."""
    source = Source(file)
    found, seen = [], Counter[str]()
    for function, kind, node, wrong in source.changes():
        begin, end = source.span(node)
        first, last = source.whole_lines(begin, end)
        before, after = (
            source.content[first:begin] + x + source.content[end:last] for x in (source.bytes(node), wrong.encode())
        )
        name = f"{file} {function}: {_flat(before)} -> {_flat(after)}"
        seen[name] += 1
        name += f" ({seen[name]})" if seen[name] > 1 else ""
        found.append(Bug(file, name, kind, begin, end, wrong, (node.lineno, node.end_lineno or node.lineno)))
    return tuple(found)


def _flat(text: bytes) -> str:
    return " ".join(text.decode().split())


class Source:
    """A file, its bytes and its tree."""

    def __init__(self, file: str) -> None:
        self.text = (ROOT / file).read_text()
        self.content = self.text.encode()
        self.tree = ast.parse(self.text)
        lines = self.content.splitlines(keepends=True)
        self.starts = [0]
        for line in lines:
            self.starts.append(self.starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset

    def bytes(self, node: ast.expr | ast.stmt) -> bytes:
        begin, end = self.span(node)
        return self.content[begin:end]

    def of(self, node: ast.expr | ast.stmt) -> str:
        return self.bytes(node).decode()

    def whole_lines(self, begin: int, end: int) -> tuple[int, int]:
        first = self.content.rfind(b"\n", 0, begin) + 1
        last = self.content.find(b"\n", end)
        return first, len(self.content) if last < 0 else last

    def other_program(self, bug: Bug) -> bool:
        """Whether the definition in which a bug stands becomes another one that can be read."""
        part = next(part for part in self.tree.body if (part.end_lineno or 0) >= bug.lines[0])
        marks = [mark.lineno for mark in getattr(part, "decorator_list", [])]
        first, last = self.starts[min([part.lineno, *marks]) - 1], self.starts[part.end_lineno or part.lineno]
        try:
            made = ast.parse(self.content[first : bug.begin] + bug.wrong.encode() + self.content[bug.end : last]).body
        except SyntaxError:
            return False
        return [ast.dump(one) for one in made] != [ast.dump(part)]

    def changes(self) -> Iterator[tuple[str, str, ast.expr | ast.stmt, str]]:
        """Function, kind of change, the node that is replaced, and by what."""
        for function, node, bound in _nodes(self.tree, "", frozenset()):
            for kind, replaced, wrong in self._of_node(node, bound):
                yield function, kind, replaced, wrong

    def _of_node(self, node: ast.AST, bound: frozenset[str]) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
        if isinstance(node, ast.stmt):
            yield from self._statement(node, bound)
        elif isinstance(node, ast.Constant):
            yield from (("number", node, wrong) for wrong in _numbers(node.value))
        elif isinstance(node, ast.BinOp):
            yield from self._arithmetic(node)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
            if not isinstance(node.operand, ast.Constant):
                yield "sign", node, f"({self.of(node.operand)})"
        elif isinstance(node, ast.Compare):
            yield from self._comparison(node)
        elif isinstance(node, ast.BoolOp):
            yield from self._condition(node)
        elif isinstance(node, ast.Call):
            yield from self._call(node)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield from self._end(node, bound)
        elif isinstance(node, ast.Subscript):
            yield from self._slice(node)
        elif isinstance(node, ast.IfExp):
            yield "condition", node, f"({self.of(node.orelse)} if {self.of(node.test)} else {self.of(node.body)})"
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            yield from (("condition", test, "True") for part in node.generators for test in part.ifs)

    def _statement(self, node: ast.stmt, bound: frozenset[str]) -> Iterator[tuple[str, ast.stmt | ast.expr, str]]:
        if isinstance(node, ast.If | ast.While) and isinstance(node.test, ast.Name | ast.Call | ast.Attribute):
            yield "condition", node.test, f"not {self.of(node.test)}"
        if _may_go(node, bound):
            yield "statement", node, "pass"

    def _arithmetic(self, node: ast.BinOp) -> Iterator[tuple[str, ast.expr, str]]:
        if any(isinstance(x, ast.JoinedStr) or _is_word(x) for x in (node.left, node.right)):
            return
        if type(node.op) in ARITHMETIC:
            yield "arithmetic", node, self._between(node, node.left, node.right, *ARITHMETIC[type(node.op)])
        if isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
            yield "term", node, f"({self.of(node.left)})"
        if isinstance(node.op, ast.Add | ast.Mult):
            yield "term", node, f"({self.of(node.right)})"

    def _between(self, node: ast.expr, left: ast.expr, right: ast.expr, old: str, new: str) -> str:
        """The text of a node, with the sign between two of its parts replaced."""
        (begin, end), first, second = self.span(node), self.span(left)[1], self.span(right)[0]
        pattern = old.replace(" ", r"\s+") if old.isalpha() else re.escape(old)
        between = re.sub(pattern, new, self.content[first:second].decode(), count=1)
        return self.content[begin:first].decode() + between + self.content[second:end].decode()

    def _comparison(self, node: ast.Compare) -> Iterator[tuple[str, ast.expr, str]]:
        parts = [node.left, *node.comparators]
        for left, operator, right in zip(parts, node.ops, parts[1:], strict=False):
            old, others = COMPARISONS[type(operator)]
            yield from (("comparison", node, self._between(node, left, right, old, new)) for new in others)

    def _condition(self, node: ast.BoolOp) -> Iterator[tuple[str, ast.expr, str]]:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        parts = [f"({self.of(value)})" for value in node.values]
        yield "boolean", node, "(" + f" {new} ".join(parts) + ")"
        for gone in range(len(parts)):
            yield "boolean", node, "(" + f" {old} ".join(parts[:gone] + parts[gone + 1 :]) + ")"

    def _call(self, node: ast.Call) -> Iterator[tuple[str, ast.expr, str]]:
        name, plain = _called(node), not any(isinstance(x, ast.Starred) for x in node.args)
        if name in DROPPED and len(node.args) == 1 and isinstance(node.func, ast.Name):
            yield "call", node, f"({self.of(node.args[0])})"
        elif name in DROPPED and isinstance(node.func, ast.Attribute):
            module = isinstance(node.func.value, ast.Name) and node.func.value.id in ("torch", "np", "math", "rounding")
            kept = node.args[0] if module and node.args else node.func.value
            yield "call", node, f"({self.of(kept)})"
        for left, right in zip(node.args, node.args[1:], strict=False) if plain else ():
            if self.of(left) != self.of(right) and not (name in COMMUTES or _is_word(left) or _is_word(right)):
                begin, end = self.span(node)
                a, b = self.span(left), self.span(right)
                parts = (begin, a[0]), b, (a[1], b[0]), a, (b[1], end)
                yield "arguments", node, b"".join(self.content[i:j] for i, j in parts).decode()

    def _end(self, node: ast.Name | ast.Attribute, bound: frozenset[str]) -> Iterator[tuple[str, ast.expr, str]]:
        name = node.id if isinstance(node, ast.Name) else node.attr
        other = SWAPPED.get(name)
        if other and (isinstance(node, ast.Attribute) or other in bound or other in dir(__builtins__)):
            yield "end", node, self.of(node)[: -len(name)] + other

    def _slice(self, node: ast.Subscript) -> Iterator[tuple[str, ast.expr, str]]:
        if isinstance(node.slice, ast.Slice) and isinstance(node.ctx, ast.Load):
            for end in (node.slice.lower, node.slice.upper):
                if end is not None:
                    yield "slice", end, f"({self.of(end)}) + 1"


def _numbers(value: object) -> Iterator[str]:
    if isinstance(value, bool):
        yield str(not value)
    elif isinstance(value, int | float):
        kinds = [value + 1, 0, -value, value * 2, value / 2 if isinstance(value, float) else value // 2]
        yield from (f"({other})" for other in dict.fromkeys(kinds) if other != value and abs(other) < 1e300)


def _is_word(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _may_go(node: ast.stmt, bound: frozenset[str]) -> bool:
    """Whether what follows a statement has all its names without it."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call) and _called(node.value) not in WORDS
    if isinstance(node, ast.AugAssign | ast.Break | ast.Continue):
        return True
    if isinstance(node, ast.Assign):
        return all(
            not isinstance(x, ast.Name) or x.id in bound for x in node.targets if not isinstance(x, ast.Tuple)
        ) and (not any(isinstance(x, ast.Tuple) for x in node.targets))
    if isinstance(node, ast.If) and not node.orelse:
        return isinstance(node.body[-1], ast.Raise | ast.Return | ast.Continue | ast.Break)
    return False


def _nodes(node: ast.AST, function: str, bound: frozenset[str]) -> Iterator[tuple[str, ast.AST, frozenset[str]]]:
    """Every node that computes, with the function it stands in and the names that are bound there before it."""
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _speaks(node, field, child):
                continue
            inner = function
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inner = f"{function}.{child.name}" if function else child.name
            yield function, child, bound
            own = bound | _arguments(child) if isinstance(child, ast.FunctionDef | ast.Lambda) else bound
            yield from _nodes(child, inner, own)
            bound = bound | _assigned(child)


def _speaks(node: ast.AST, field: str, child: ast.AST) -> bool:
    """What tells somebody something, or only says what things are."""
    if field in ("annotation", "returns", "decorator_list", "bases", "op", "ops", "ctx", "exc", "msg"):
        return True
    if isinstance(child, ast.Import | ast.ImportFrom | ast.Raise | ast.JoinedStr | ast.Assert):
        return True
    if isinstance(child, ast.Call):
        return _called(child) in WORDS
    if isinstance(child, ast.FunctionDef):
        return child.name in SPOKEN
    if isinstance(child, ast.keyword):
        return child.arg in ("strict", "help", "stacklevel", "encoding", "exist_ok")
    if isinstance(child, ast.Assign):
        return any(isinstance(x, ast.Name) and x.id == "__all__" for x in child.targets)
    return isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING"


def _arguments(node: ast.FunctionDef | ast.Lambda) -> frozenset[str]:
    given = node.args
    return frozenset(x.arg for x in (*given.posonlyargs, *given.args, *given.kwonlyargs))


def _assigned(node: ast.AST) -> frozenset[str]:
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.For | ast.If | ast.With):
        names = (x for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store))
        return frozenset(x.id for x in names)
    return frozenset()
