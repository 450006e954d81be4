"""Digests of content: the same in every process and for what is equal, another for everything that differs."""

from __future__ import annotations

import dataclasses
import enum
import functools
import os
import random
import subprocess
import sys
import threading
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from boundflow.same_program import identity
from boundflow.same_program.digests import NOT_COMPARED, of_tensors, of_value

BIG = torch.arange(10_000.0)
Pair = namedtuple("Pair", "a b")


@dataclasses.dataclass
class Options:
    rate: float
    names: list[str]


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def element(values: torch.Tensor, place: int) -> torch.Tensor:
    changed = values.clone()
    changed[place] += 1
    return changed


def of(text: str, **known: Any) -> Any:
    """What a piece of code defines under the name `f`, in a module of its own."""
    module = ModuleType("written")
    vars(module).update(known)
    exec(compile(text, "/home/somebody/written.py", "exec"), vars(module))
    return vars(module)["f"]


def attribute(name: str, value: object) -> nn.Module:
    made = nn.Sequential(nn.Linear(1, 1, bias=False))
    made[0].weight.data.fill_(1.0)
    setattr(made[0], name, value)
    return made


FORWARD = "class f(nn.Module):\n    def forward(self, x):\n        return x{}"
HELPER = "def helper(x):\n    return x + {}\ndef f(x):\n    return helper(x)"
GLOBAL = "scale = {}\ndef f(x):\n    return x * scale"
CLOSED = "def make(scale):\n    def f(x):\n        return x * scale\n    return f\nf = make({})"
DEFAULT = "def f(x, scale={}):\n    return x * scale"
NESTED = "def f(x):\n    return [(lambda y: y * {})(part) for part in x]"
DECORATED = "import torch\n@torch.no_grad()\ndef f(x):\n    return x * {}"
DERIVED = "class Base:\n    scale = {}\nclass f(Base):\n    pass"

# name: two values that are not the same
APART: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "a number and a float": (lambda: 1, lambda: 1.0),
    "a number and a truth": (lambda: 1, lambda: True),
    "zero and minus zero": (lambda: 0.0, lambda: -0.0),
    "text and bytes": (lambda: "a", lambda: b"a"),
    "a list and a tuple": (lambda: [1], lambda: (1,)),
    "order of a list": (lambda: [1, 2], lambda: [2, 1]),
    "where a list ends": (lambda: [["a"], ["b", "c"]], lambda: [["a", "b"], ["c"]]),
    "order of a dict": (lambda: {"a": 1, "b": 2}, lambda: {"b": 2, "a": 1}),
    "one object and two": (lambda: [BIG, BIG], lambda: [BIG, BIG.clone()]),
    "the middle of a tensor": (lambda: BIG, lambda: element(BIG, 5000)),
    "dtype of a tensor": (lambda: torch.zeros(2), lambda: torch.zeros(2, dtype=torch.int32)),
    "shape of a tensor": (lambda: torch.zeros(2, 3), lambda: torch.zeros(3, 2)),
    "bfloat16": (lambda: torch.ones(3).bfloat16(), lambda: 2 * torch.ones(3).bfloat16()),
    "a sparse tensor": (lambda: torch.eye(2).to_sparse(), lambda: torch.ones(2, 2).to_sparse()),
    "the middle of an array": (lambda: BIG.numpy(), lambda: element(BIG, 5000).numpy()),
    "dtype of an array": (lambda: np.zeros(2), lambda: np.zeros(2, dtype=np.int64)),
    "an array of objects": (lambda: np.array([1, "a"], object), lambda: np.array([1, "b"], object)),
    "a generator of torch": (torch.Generator, lambda: torch.Generator().manual_seed(1)),
    "a generator of numpy": (lambda: np.random.default_rng(0), lambda: np.random.default_rng(1)),
    "a generator of Python": (lambda: random.Random(0), lambda: random.Random(1)),
    "a named tuple": (lambda: Pair(1, 2), lambda: Pair(1, 3)),
    "a dataclass": (lambda: Options(0.1, ["a"]), lambda: Options(0.1, ["b"])),
    "an enumeration": (lambda: Color.RED, lambda: Color.BLUE),
    "a default of a dict": (lambda: defaultdict(list), lambda: defaultdict(dict)),
    "an ordered dict": (lambda: OrderedDict(a=1), lambda: OrderedDict(a=2)),
    "a partial": (lambda: functools.partial(max, 1), lambda: functools.partial(max, 2)),
    "a partial of another": (lambda: functools.partial(max, 1), lambda: functools.partial(min, 1)),
    "a bound method": (lambda: [1].append, lambda: [2].append),
    "an operator": (lambda: torch.relu, lambda: torch.tanh),
    "a class of PyTorch": (lambda: torch.optim.SGD, lambda: torch.optim.Adam),
    "an attribute": (lambda: attribute("scale", 1.0), lambda: attribute("scale", 2.0)),
    "a parameter": (lambda: nn.Parameter(BIG), lambda: nn.Parameter(BIG, requires_grad=False)),
    "a mode": (nn.Dropout, lambda: nn.Dropout().eval()),
    "a hook": (lambda: hooked(1.0), lambda: hooked(2.0)),
    "a constant in forward": (lambda: of(FORWARD.format("* 1.0"), nn=nn), lambda: of(FORWARD.format("* 2.0"), nn=nn)),
    "an operation in forward": (lambda: of(FORWARD.format("* 1.0"), nn=nn), lambda: of(FORWARD.format("+ 1.0"), nn=nn)),
    "a helper": (lambda: of(HELPER.format(1)), lambda: of(HELPER.format(2))),
    "a global": (lambda: of(GLOBAL.format(1)), lambda: of(GLOBAL.format(2))),
    "a closure": (lambda: of(CLOSED.format(1)), lambda: of(CLOSED.format(2))),
    "a default": (lambda: of(DEFAULT.format(1)), lambda: of(DEFAULT.format(2))),
    "a function inside": (lambda: of(NESTED.format(1)), lambda: of(NESTED.format(2))),
    "a decorated function": (lambda: of(DECORATED.format(1)), lambda: of(DECORATED.format(2))),
    "a base class": (lambda: of(DERIVED.format(1)), lambda: of(DERIVED.format(2))),
    "a property": (lambda: cls_with(property(lambda self: 1)), lambda: cls_with(property(lambda self: 2))),
    "a static method": (lambda: cls_with(staticmethod(lambda: 1)), lambda: cls_with(staticmethod(lambda: 2))),
    "a cached function": (lambda: functools.lru_cache(of(DEFAULT.format(1))), lambda: functools.lru_cache(of(NESTED))),
    "a module that is read": (lambda: reading(1), lambda: reading(2)),
    "a module that is handed on": (lambda: handing_on(1), lambda: handing_on(2)),
    "something of PyTorch that was replaced": (
        lambda: of("def f(x):\n    return F.relu(x)", F=ModuleType("F")),
        lambda: of("def f(x):\n    return F.relu(x)", F=nn.functional),
    ),
}


def hooked(scale: float) -> nn.Module:
    made = nn.Identity()
    made.register_forward_hook(lambda module, x, y: y * scale)
    return made


def cls_with(held: object) -> type:
    return type("Held", (), {"held": held})


def helpers(scale: int) -> ModuleType:
    module = ModuleType("helpers")
    vars(module)["scale"] = scale
    return module


def reading(scale: int) -> Any:
    return of("def f(x):\n    return x * helpers.scale", helpers=helpers(scale))


def handing_on(scale: int) -> Any:
    return of("def f(x):\n    return getattr(helpers, 'sc' + 'ale')", helpers=helpers(scale))


@pytest.mark.parametrize("name", APART)
def test_what_differs_has_another_digest(name: str) -> None:
    first, second = APART[name]
    assert of_value(first()) != of_value(second())
    for made in (first, second):
        assert not of_value(made()).startswith(NOT_COMPARED)
        assert of_value(made()) == of_value(made()), "what is made alike is alike"


# name: two pieces of code that do the same
ALIKE = {
    "another line": (HELPER.format(1), "\n\n\n" + HELPER.format(1)),
    "a comment": (HELPER.format(1), HELPER.format(1).replace("def f", "# as before\ndef f")),
    "a global that is not read": (GLOBAL.format(1), "other = 5\n" + GLOBAL.format(1)),
}


@pytest.mark.parametrize("name", ALIKE)
def test_what_does_the_same_has_one_digest(name: str) -> None:
    first, second = ALIKE[name]
    assert of_value(of(first)) == of_value(of(second))


def test_other_attributes_of_a_module_do_not_count() -> None:
    module = helpers(1)
    read = of("def f(x):\n    return x * helpers.scale", helpers=module)
    before = of_value(read)
    vars(module)["calls"] = 7
    assert of_value(read) == before


def test_an_optimizer_is_the_same_before_and_after_its_first_instance() -> None:
    class Inherited(torch.optim.SGD):
        pass

    class Own(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    for cls in (Inherited, Own):
        before = of_value(cls)
        cls([torch.zeros(1)])
        assert of_value(cls) == before


@pytest.mark.parametrize("value", [threading.Lock(), (part for part in ()), [{"a": threading.Lock()}]], ids=type)
def test_what_cannot_be_read_says_so_and_equals_nothing(value: object) -> None:
    found = of_value(value)
    assert found.startswith(NOT_COMPARED) and "\n" not in found
    assert identity.differences({"part": found}, {"part": found}) == [f"part (which {found})"]


def test_where_something_cannot_be_read_is_named() -> None:
    assert "held.inner" in of_value(attribute("held", {"inner": threading.Lock()}))


def test_an_object_that_holds_itself() -> None:
    made: list[Any] = [1]
    made.append(made)
    assert not of_value(made).startswith(NOT_COMPARED)


def test_sets_have_no_order() -> None:
    words = [f"word {number}" for number in range(50)]
    assert of_value(set(words)) == of_value(set(reversed(words)))
    assert of_value({("a", 1), ("b", 2)}) != of_value({("a", 2), ("b", 1)})


def test_another_process_finds_the_same_digests() -> None:
    """Without addresses, and whatever the seed of hashing is."""
    script = "import test_digests as t\nprint(*t.all_digests(), sep='\\n')"
    path = f"{os.environ.get('PYTHONPATH', '')}{os.pathsep}{Path(__file__).parent}"
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": path}
    asked = subprocess.run([sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True)
    assert asked.stdout.split() == all_digests()


def all_digests() -> list[str]:
    return [of_value(make()) for pair in APART.values() for make in pair] + [of_value(Options), of_value(Color)]


def test_tensors_are_told_apart_by_order_kind_and_shape() -> None:
    a, b = torch.zeros(2), torch.ones(2)
    made = [of_tensors(a, b), of_tensors(b, a), of_tensors(a, b.double()), of_tensors(a, b.view(2, 1)), of_tensors(a)]
    assert len(set(made)) == len(made)
    assert of_tensors(b.view(1, 2).T) == of_tensors(b.view(2, 1)), "as numbers stand, not as they lie in memory"
    assert of_tensors(a[::2]) == of_tensors(a[:1].clone()), "one number has any stride"


# --- what lies among libraries, and is none ---------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [nn.Tanh, torch.optim.SGD, torch.optim.Adam, nn.Module])
def test_a_method_that_was_put_into_a_class_of_a_library(cls: type, monkeypatch: pytest.MonkeyPatch) -> None:
    derived = {nn.Module: nn.Linear}.get(cls, cls)  # of a base, too
    name = "forward" if cls is nn.Tanh else "step" if issubclass(cls, torch.optim.Optimizer) else "__call__"
    before, found = of_value(derived), []
    for factor in (1.0, 2.0, 1.0):
        monkeypatch.setattr(cls, name, lambda self, x=None, factor=factor: x * factor)
        found.append(of_value(derived))
    monkeypatch.undo()
    assert found[0] == found[2] and len({before, *found}) == 3 and of_value(derived) == before


def test_a_package_among_those_installed_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    found = []
    for number in (1, 2, 1):
        (folder / "lies_there.py").write_text(f"def double(x):\n    return x * {number}\n")
        monkeypatch.delitem(sys.modules, "lies_there", raising=False)
        module = ModuleType("lies_there")
        module.__file__ = str(folder / "lies_there.py")
        exec(compile((folder / "lies_there.py").read_text(), module.__file__, "exec"), vars(module))
        monkeypatch.setitem(sys.modules, "lies_there", module)
        found.append(of_value(module.double))
    assert found[0] == found[2] != found[1]
