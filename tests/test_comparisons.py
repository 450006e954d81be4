"""No two things are taken for the same by text, name, place or because something is there, but where it was judged.

And what remembers answers what it would answer if it did not, whoever has asked before and wherever.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import weak_evidence

from boundflow import rounding
from boundflow.fast.support import kernel_compiler, processor_kernel
from boundflow.operators import functions, gates
from boundflow.same_program import written_code
from boundflow.same_program.identity import of_value
from boundflow.tensor import draws

KNOWN = tomllib.loads(Path(__file__).with_name("judged_comparisons.toml").read_text())


def known() -> set[tuple[str, str]]:
    return {(where, text) for where, judged in KNOWN["judged"].items() for text in judged["places"]}


def test_every_comparison_on_weak_evidence_was_judged() -> None:
    found = {(place.where, place.text) for place in weak_evidence.places()}
    assert not found - known(), "say in tests/judged_comparisons.toml why these are sound"
    assert not known() - found, "these are gone: take them out of tests/judged_comparisons.toml"


def test_a_reason_is_a_reason() -> None:
    assert all(len(judged["why"].split()) > 3 and judged["places"] for judged in KNOWN["judged"].values())


def test_what_every_cache_depends_on_was_judged() -> None:
    assert set(weak_evidence.caches()) == set(KNOWN["caches"]), "say in tests/judged_comparisons.toml on what"


PLANTED = {
    "repr(a) == repr(b)": "if repr(a) == repr(b): pass",
    "under a name": "told = f'{a!r} of {b}'\nif told in known: pass",
    "of a loop": "for name in sorted({type(part).__name__ for part in a}):\n    if name != b: pass",
    "a key": "found = {str(part): part for part in a}",
    "a table": "table[type(a).__name__] = b",
    "looked up": "table.get(repr(a))",
    "a digest": "hashlib.sha256(repr(a).encode())",
    "digits": "if f'{a:.6g}' == b: pass",
    "there": "if path.exists(): pass",
    "older": "if a.stat().st_mtime < b.stat().st_mtime: pass",
    "an address": "if id(a) in known: pass",
    "memory": "if a.data_ptr() == b.data_ptr(): pass",
    "a set": "alike = {(repr(part), len(part)) for part in a}",
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_comparison_is_found(planted: str) -> None:
    finder = weak_evidence.Finder("planted.py")
    code = "\n".join(f"    {line}" for line in PLANTED[planted].splitlines())
    finder.visit(ast.parse(f"def planted(a, b, known, table, path):\n{code}\n"))
    assert finder.found and {place.where for place in finder.found} == {"planted.py planted"}


@pytest.mark.parametrize(
    "sound", ["if a == b: pass", "if type(a) is type(b): pass", "print(repr(a))", "raise E(str(a))"]
)
def test_what_is_no_weak_evidence_is_left_alone(sound: str) -> None:
    finder = weak_evidence.Finder("sound.py")
    finder.visit(ast.parse(f"def sound(a, b):\n    {sound}\n"))
    assert not finder.found


# --- what remembers --------------------------------------------------------------------------------------------------

CPU, CODE = torch.device("cpu"), known.__code__
REMEMBERING: dict[Callable[..., Any], tuple[Any, ...]] = {
    draws._with_generator: (torch.ops.aten.bernoulli.default,),
    rounding._gamma: (7, torch.float32),
    rounding._signs: (3, torch.float32, CPU),
    rounding._infinities: (3, torch.float64, CPU),
    functions.leaky: (-0.3,),
    functions.clamped: (-0.7, 0.4),
    functions.softplus_function: (1.5, 20.0),
    functions.softplus_slope: (1.5, 20.0),
    functions.elu_function: (1.3, 1.1, 0.8),
    functions.elu_slope: (1.3, 1.1, 0.8),
    functions._whole_power: (3,),
    gates._number: (0.1, torch.float32, CPU, True),
    written_code.of_code: (CODE,),
    written_code.names_read: (CODE,),
    written_code.library_of: (torch.__file__,),
    written_code._installed: ("torch",),
}
OF_A_MACHINE = {  # which are asked about a GPU or a compiler
    kernel_compiler.usable,
    kernel_compiler._driver,
    kernel_compiler._compiled,
    kernel_compiler._binary,
    kernel_compiler._source,
    processor_kernel._library,
}


@contextmanager
def other_default() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def fewer_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


ASKED_FIRST: list[Callable[[], AbstractContextManager[Any]]] = [
    nullcontext,
    rounding.nearest,
    other_default,
    fewer_threads,
    torch.no_grad,
    torch.inference_mode,
]


def test_every_function_that_remembers_is_asked() -> None:
    asked = {f"{made.__module__.replace('.', '/')}.py {made.__name__}" for made in {*REMEMBERING, *OF_A_MACHINE}}
    tables = {"_COMPILED", "EXACT", "_answers", "FUNCTIONS", "FUNCTION_TABLE"}
    found = {name for name in weak_evidence.caches() if name.startswith("boundflow/") and name.split()[1] not in tables}
    assert found == asked


@pytest.mark.parametrize("before", ASKED_FIRST, ids=lambda context: context.__name__)
@pytest.mark.parametrize("function", REMEMBERING, ids=lambda function: function.__name__)
def test_it_answers_as_if_it_did_not_remember(function: Any, before: Callable[[], AbstractContextManager[Any]]) -> None:
    """By the content of what it answers: numbers, and code with all that it refers to."""
    given = REMEMBERING[function]
    function.cache_clear()
    with before():
        function(*given)
    answered, anew = of_value(function(*given)), of_value(function.__wrapped__(*given))
    function.cache_clear()
    assert answered == anew and len(anew) == 64
