"""Remove every rounding term of the library, one at a time, and show that a law notices.

Run with `make rounding-terms`, in parts with `python tests/rounding_terms.py --part 1/4`, or for some terms with words
of their names: `python tests/rounding_terms.py budgets.py`. A *term* is a call of `boundflow.rounding` (``up``,
``gamma``, ``tiny``, ``outward``, ``widened``, ...), or of what lengthens numbers in the folder ``optimum``, a use of a
name that holds one, or, in `rounding.py` itself, one of its units. They are read from the syntax tree, so that a new
one is found without being listed. Removed means: this one call computes as in ``rounding.nearest()``, where nothing is
charged, and with units of 0 in what charges in every mode.

The tests of its file run against a copy of the package with the term removed, until the first failure: first the test
that caught it the last time, which `rounding_terms.json` remembers, then those of `LAWS`, then those of the planted
bugs of the file (`mutants.py`). A run that was stopped goes on with `--new`: what is remembered is not tried again.
With `--here` terms are switched off in one process, by laws alone, which takes a part of the time. Prints a table;
exits with 1 if a term is neither noticed nor in `rounding_terms_that_stay.py`, where the proofs are.
"""

from __future__ import annotations

import argparse
import ast
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import mutants
import planting
import rounding_sites
from rounding_terms_that_stay import STAYS

ROOT = planting.ROOT
PACKAGE = ROOT / "boundflow"
REMEMBERED = ROOT / "tests" / "rounding_terms.json"  # term -> test
# what widens; the other functions refuse, tell a mode or count whole steps
WIDENING = {
    *("gamma", "tiny", "outward", "outward_sum", "widened", "up", "middle", "deviation", "around", "around_by", "away"),
    *(
        "of_moves",
        "share_of",
        "whole_steps",
        "of_grid",
        "scaled_move",
        "scaled_share",
        "affine_image",
        "before_scaling",
        "quotient_of_move",
        "of_shorter_moves",
        "shorter",
    ),
    *("width", "largest_of_sums", "upper_mean", "_lengthening", "of_ours", "of_halves"),
}
BY_NAME = {"up", "length", "_outward"}  # what widens in the folder optimum, and is called by its name
AMOUNTS = {"gamma", "tiny", "of_ours"}  # numbers that are kept under a name and used later
UNITS = {"UNIT", "TINY"}  # in rounding.py alone: elsewhere they are tolerances of comparisons
WITHOUT = """

def without(function, *args, **kwargs):
    units = dict(UNIT)
    with nearest():
        try:
            UNIT.update(dict.fromkeys(UNIT, 0.0))
            return function(*args, **kwargs)
        finally:
            UNIT.update(units)
"""
LAWS = {  # file -> tests that go first: exact arithmetic, in the room that the file is
    "symbols/budgets.py": ["support"],
    "symbols/support.py": ["support"],
    "sets/factors.py": ["support"],
    "fast/support/factored_support.py": ["streamed"],
    "refinements/products_of_deviations.py": ["products_of_deviations"],
    "fast/support/reused_coefficients.py": ["kept_lines"],
    "analysis/largest_budgets.py": ["smaller_sets"],
    "analysis/smaller_threats.py": ["smaller_sets"],
    "analysis/verified_rows.py": ["smaller_sets"],
    "symbols/recorded_values.py": ["lifted_data"],
    "tensor/lift.py": ["lifted_data"],
    "threats/labels.py": ["lifted_data"],
    "threats/lifting.py": ["lifted_data"],
    "threats/missing.py": ["lifted_data"],
    "threats/moves.py": ["lifted_data"],
    "threats/quantised.py": ["lifted_data"],
    "threats/tolerance.py": ["lifted_data"],
    "operators/losses.py": ["losses_in_fractions"],
    "training/clipping.py": ["losses_in_fractions"],
    "tensor/bounded.py": ["concretisation"],
    "rules/states.py": ["pieces"],
    "symbols/expansion.py": ["support", "reduction"],
    "sets/forms.py": ["own_rows", "support", "shares"],
    "fast/processes/ranks.py": ["shares"],
    "symbols/reduction.py": ["reduction"],
    "fast/processes/row_placement.py": ["shares"],
    "sets/sample_axis.py": ["pieces"],
    "sets/clean_state.py": ["pieces"],
    "fast/memory/batch_pieces.py": ["pieces"],
    "sets/set.py": ["concretisation"],
    "rules/linear.py": ["sums_of_sets", "sums_over_samples", "rule_laws"],
    "rules/sums_over_samples.py": ["sums_of_sets", "sums_over_samples", "rule_laws"],
    "rules/products_over_samples.py": ["sums_of_sets", "sums_over_samples"],
    "rules/contractions.py": ["rule_laws", "sums_over_samples"],
    "rules/bilinear.py": ["products_of_sets", "sums_over_samples", "rule_laws"],
    "operators/products.py": ["products_of_sets", "rule_laws"],
    "operators/constants.py": ["products_of_sets", "rule_laws"],
    "operators/optimizer_update.py": ["products_of_sets"],
    "operators/dropout_and_noise.py": ["products_of_sets"],
    "operators/gates.py": ["choices_of_sets", "rule_laws"],
    "operators/selections.py": ["choices_of_sets", "rule_laws"],
    "rules/ends_of_products.py": ["corners"],
    "rules/unary.py": ["functions_of_sets", "rule_laws"],
    "operators/softmax.py": ["softmax_of_sets", "rule_laws"],
    "operators/normalisation.py": ["normalisation_of_sets", "rule_laws"],
    "files/certificate_files.py": ["saved"],
    "optimum/inverse.py": ["linear_laws"],
    "optimum/linearised.py": ["linear_laws"],
    "optimum/many_rows.py": ["linear_laws"],
    "optimum/ranges.py": ["linear_laws"],
    "optimum/training_rows.py": ["linear_laws"],
    "answers/prediction.py": ["answers"],
    "answers/cuts.py": ["answers"],
    **dict.fromkeys(
        (
            *("optimum/branching.py", "optimum/changes.py", "optimum/fitting.py", "optimum/inverse.py"),
            *("optimum/linearised.py", "optimum/logit_bounds.py", "optimum/logit_losses.py", "optimum/ranges.py"),
            *("optimum/optimum_certificate.py", "optimum/squared.py", "optimum/training_rows.py"),
        ),
        ["optimum_in_fractions", "logit_losses_in_fractions", "ranges_in_fractions"],
    ),
    "arithmetic/rounding.py": ["rounding", "lifted_data", "pieces", "concretisation"],
}


class Term(NamedTuple):
    """One place of a file, and the text without what it charges."""

    file: str
    name: str  # file, function, source; the same as long as the line is
    begin: int
    end: int
    wrong: str
    place: rounding_sites.Place | None = None  # of a call, which can be switched off in this process


def terms(file: str) -> list[Term]:
    """Every term of a file, in order."""
    text = (PACKAGE / file).read_text()
    lines = text.encode().splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
    found, seen = [], Counter[str]()
    for where, node in _places(ast.parse(text), _by_name(file), file == "arithmetic/rounding.py"):
        begin, end = (starts[line - 1] + column for line, column in _ends(node))
        source = text.encode()[begin:end].decode()
        name = f"{file} {where}: {' '.join(source.split())}"
        seen[name] += 1
        name += f" ({seen[name]})" if seen[name] > 1 else ""
        place = rounding_sites.Place(str(PACKAGE / file), *_ends(node)) if isinstance(node, ast.Call) else None
        found.append(Term(file, name, begin, end, _without(node, source, file), place))
    return found


def _by_name(file: str) -> set[str]:
    """The functions that widen and that a file calls by their names alone; others it calls as those of `rounding`."""
    return WIDENING if file == "arithmetic/rounding.py" else BY_NAME if file.startswith("optimum/") else set()


def _ends(node: ast.expr) -> tuple[tuple[int, int], tuple[int, int]]:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _without(node: ast.expr, source: str, file: str) -> str:
    if not isinstance(node, ast.Call):
        return f"(0.0 * {source})"
    function, module = ast.unparse(node.func), "" if file == "arithmetic/rounding.py" else "rounding."
    return f"{module}without({function}, {source[source.index('(', len(function)) + 1 :]}"


def _places(tree: ast.Module, by_name: set[str], units: bool) -> Iterator[tuple[str, ast.expr]]:
    """Where a term stands: the name of the outermost function, with its class, and the expression."""
    for function, name in _functions(tree, ""):
        charged = _charged_names(function, by_name)
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and _widens(node, by_name):
                yield name, node
            elif units and isinstance(node, ast.Subscript) and _is_unit(node):
                yield name, node
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and charged.get(node.id, 0) > 1:
                yield name, node


def _functions(tree: ast.Module | ast.ClassDef, before: str) -> Iterator[tuple[ast.FunctionDef, str]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{before}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("require_"):
            yield node, before + node.name


def _widens(node: ast.Call, by_name: set[str]) -> bool:
    if isinstance(node.func, ast.Name):
        return node.func.id in by_name
    module = node.func.value if isinstance(node.func, ast.Attribute) else None
    return isinstance(module, ast.Name) and module.id == "rounding" and node.func.attr in WIDENING  # type: ignore[attr-defined]


def _is_unit(node: ast.Subscript) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in UNITS


def _charged_names(function: ast.FunctionDef, by_name: set[str]) -> dict[str, int]:
    """Names that hold a charge alone, and how often each is used: each use is a term of its own."""
    names = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            targets, values = ([x.elts if isinstance(x, ast.Tuple) else [x]][0] for x in (node.targets[0], node.value))
            for target, value in zip(targets, values, strict=False):
                if isinstance(target, ast.Name) and isinstance(value, ast.Call) and _widens(value, by_name):
                    if ast.unparse(value.func).rpartition(".")[2] in AMOUNTS:
                        names.add(target.id)
    loads = (node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    return {name: count for name, count in Counter(node.id for node in loads).items() if name in names}


def all_terms() -> list[Term]:
    files = sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))
    return [term for file in files for term in terms(file)]


def tests_of(file: str, quick: bool) -> list[str]:
    """The laws that know of a file: those of its room, then, unless it is to be quick, those of its planted bugs."""
    there = {path.stem.removeprefix("test_"): str(path) for path in (ROOT / "tests" / "boundflow").rglob("test_*.py")}
    named = [*LAWS.get(file, ["rule_laws"] if file.startswith("rules/") else [])]
    named += [] if quick and named else mutants.FIRST.get(file, ["laws"])
    return [there[name] for name in dict.fromkeys(named) if name in there]


def removed(folder: str, term: Term) -> None:
    """The package in another folder, without this term."""

    def without(text: str) -> str:
        content = text.encode()
        return (content[: term.begin] + term.wrong.encode() + content[term.end :]).decode()

    inside = term.file == "arithmetic/rounding.py"
    switch = {"boundflow/arithmetic/rounding.py": lambda text: (without(text) if inside else text) + WITHOUT}
    planting.copied(folder, {f"boundflow/{term.file}": without} | switch)


def noticed(term: Term, remembered: str | None, quick: bool) -> tuple[str | None, float]:
    """The test that notices the removal of a term, and after how many seconds."""
    begin, failure = time.perf_counter(), None
    with tempfile.TemporaryDirectory() as folder:
        removed(folder, term)
        try:
            if remembered is not None:
                failure = planting.failing(folder, [remembered], forgotten=True)
            for file in tests_of(term.file, quick):
                failure = failure or planting.failing(folder, [file])
        except planting.Nonsense as error:
            return f"DOES NOT RUN: {error}", time.perf_counter() - begin
    return failure.test if failure else None, time.perf_counter() - begin


def chosen(part: str, words: list[str]) -> list[Term]:
    number, count = map(int, part.split("/"))
    found = [term for term in all_terms() if not words or any(word in term.name for word in words)]
    return found[number - 1 :: count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="1/1", help="which part of how many, such as 2/4")
    parser.add_argument("--new", action="store_true", help="only terms without a remembered test or a proof")
    parser.add_argument("--list", action="store_true", help="print the terms and what is remembered of each, and end")
    parser.add_argument("--quick", action="store_true", help="only the laws of the room, not the tests of planted bugs")
    parser.add_argument("--here", action="store_true", help="in this process, only by the laws of the room")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--remember", type=Path, default=REMEMBERED, help="the file with what caught each term")
    parser.add_argument("words", nargs="*", help="only terms whose file, function or source has one of these words")
    given = parser.parse_args()
    tests: dict[str, str] = json.loads(given.remember.read_text()) if given.remember.exists() else {}
    wanted = chosen(given.part, given.words)
    if given.list:
        for term in wanted:
            print(f"{term.name}\n    {tests.get(term.name) or STAYS.get(term.name) or '-'}")
        return
    if given.new:
        wanted = [term for term in wanted if term.name not in tests and term.name not in STAYS]
    found = here(wanted, tests) if given.here else apart(wanted, tests, given.jobs, given.quick)
    raise SystemExit(tried(wanted, tests, found, given.remember))


def apart(wanted: list[Term], tests: dict[str, str], jobs: int, quick: bool) -> Iterator[tuple[str | None, float]]:
    """Each term removed in a copy of the package, by processes of their own."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(noticed, wanted, [tests.get(term.name) for term in wanted], repeat(quick))


def here(wanted: list[Term], tests: dict[str, str]) -> Iterator[tuple[str | None, float]]:
    """Each term switched off in this process, what is remembered first; a law that fails without that is an error."""
    switch, loaded = rounding_sites.Switch(), dict[str, list[rounding_sites.Law]]()
    switch.install(WIDENING, BY_NAME)
    for term in wanted:
        begin, test = time.perf_counter(), None
        known, _, function = tests.get(term.name, "").partition("[")[0].partition("::")
        for file in dict.fromkeys([*([f"{ROOT}/{known}"] if known else []), *tests_of(term.file, quick=True)]):
            if file not in loaded:
                loaded[file] = rounding_sites.laws(Path(file))
            own = [law for law in loaded[file] if law.about(term.file)]  # of a rule, those of its own file
            first = [law for law in loaded[file] if law.name.endswith(f"::{function}")]
            test = test or rounding_sites.noticed(partial(removed_here, switch, term), [*first, *(own or loaded[file])])
        yield (f"tests/{_under_tests(test)}" if test else None), time.perf_counter() - begin


def removed_here(switch: rounding_sites.Switch, term: Term) -> AbstractContextManager[None]:
    if term.place is not None:
        return switch.off(term.place)
    path = PACKAGE / term.file
    text = path.read_bytes()
    without = text[: term.begin] + term.wrong.encode() + text[term.end :]
    return rounding_sites.another_text(str(path), without.decode())


def _under_tests(test: str) -> str:
    name, _, function = test.partition("::")
    (path,) = (ROOT / "tests").rglob(name)
    return f"{path.relative_to(ROOT / 'tests')}::{function}"


def tried(wanted: list[Term], tests: dict[str, str], found: Iterator[tuple[str | None, float]], file: Path) -> int:
    begin, ends = time.perf_counter(), Counter[str]()
    current = {term.name for term in all_terms()}
    for term, (test, seconds) in zip(wanted, found, strict=True):
        end = "noticed" if test else "stays" if term.name in STAYS else "ALIVE"
        ends[end] += 1
        print(f"{end:8s}{seconds:5.0f} s  {term.name}\n{'':18s}{test or STAYS.get(term.name, '')}", flush=True)
        tests.pop(term.name, None)
        if test:
            tests[term.name] = test
        kept = {name: tests[name] for name in sorted(tests) if name in current}
        file.write_text(json.dumps(kept, indent=1) + "\n")
    minutes = (time.perf_counter() - begin) / 60
    print(
        f"{len(wanted)} terms in {minutes:.1f} minutes: " + ", ".join(f"{n} {end}" for end, n in sorted(ends.items()))
    )
    return 1 if ends["ALIVE"] else 0


if __name__ == "__main__":
    main()
