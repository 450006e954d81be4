"""What code computes, as plain values: its bytecode, and all that it refers to.

    function    bytecode without line numbers, defaults, cells of its closure, globals that it reads
    class       what it defines, metaclass and bases
    module      where only its attributes are read, these; otherwise everything in it
    library     PyTorch, NumPy, Python, this package and whatever was installed: by name, and by what is installed;
                what somebody has put in the place of a method of such a class is code like any other

Nothing is run, and no source is needed. Line numbers and comments are not part of it, names of files are not, and of
globals only those that are read, with what they hold now. Other versions of Python write other bytecode.
"""

from __future__ import annotations

import builtins
import dis
import hashlib
import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch

from ..version import __version__
from .former_paths import FORMER

Parts = list[tuple[str, object]]

ABSENT = "<no value>"  # of a name that nothing stands for yet
READS = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"))
ATTRIBUTE = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
C_TYPE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: no class that is written in Python has it
# what Python, pickle, typing and autograd note beside the code of a class
NOTED = frozenset(
    "__module__ __qualname__ __doc__ __dict__ __weakref__ __annotations__ __annotate__ __annotate_func__ "
    "__annotations_cache__ __firstlineno__ __static_attributes__ __slotnames__ _abc_impl __orig_bases__ __parameters__ "
    "_autograd_function_id _backward_cls _compiled_autograd_backward_state".split()
)


# --- functions and classes --------------------------------------------------------------------------------------------


def of_function(function: FunctionType) -> Parts:
    """All that decides what a function does."""
    if named_in_library(function):
        return [("library", name(function))]
    code = function.__code__
    parts: Parts = [("code", of_code(code)), ("defaults", function.__defaults__), ("options", function.__kwdefaults__)]
    parts += [(name, _content(cell)) for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True)]
    if library_of(code.co_filename) is None:
        parts += _read_globals(code, function.__globals__)
    else:  # a function that a library has made, whose globals are those of the library
        parts.append(("library", library_of(code.co_filename)))
    return [*parts, *sorted((name, value) for name, value in vars(function).items() if name != "__wrapped__")]


@lru_cache(maxsize=4096)
def of_code(code: CodeType) -> tuple[object, ...]:
    """Bytecode and its constants, without where it stands."""
    numbers = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    constants = tuple(of_code(part) if isinstance(part, CodeType) else part for part in code.co_consts)
    return code.co_code, code.co_exceptiontable, numbers, names, constants


def of_class(cls: type) -> Parts:
    """All that a class defines, and what it is derived from."""
    if named_in_library(cls):
        return [("library", name(cls)), *_put_there(cls)]
    held = {name: value for name, value in vars(cls).items() if name not in NOTED}
    if issubclass(cls, torch.optim.Optimizer):
        held = _before_hooks(cls, held)
    parts: Parts = [("name", cls.__name__), ("metaclass", type(cls)), ("bases", cls.__bases__)]
    return [*parts, *sorted(held.items())]


def _put_there(cls: type) -> Parts:
    """Methods of a class of a library, and of its bases, that somebody has replaced or added."""
    found: Parts = []
    for base in cls.__mro__ if not cls.__flags__ & C_TYPE else ():
        for name, value in vars(base).items() if _library(base) is not None else ():
            hooked = getattr(value, "hooked", False)  # by an optimizer
            inner = getattr(value, "__wrapped__", value) if hooked else value
            if isinstance(inner, FunctionType) and _is_written_here(inner):
                found.append((f"{base.__qualname__}.{name}", inner))
    return sorted(found, key=lambda part: part[0])


def _is_written_here(function: FunctionType) -> bool:
    """Whether a function is of no library, neither by the module that it names nor by the file of its code."""
    file = function.__code__.co_filename
    return _library(function) is None or (library_of(file) is None and not file.startswith("<"))


def _before_hooks(cls: type, held: dict[str, Any]) -> dict[str, Any]:
    """An optimizer's own step, which PyTorch wraps when the first of its class is made."""
    step = held.get("step")
    if not getattr(step, "hooked", False):
        return held
    inner = getattr(step, "__wrapped__", None)
    inherited = getattr(super(cls, cls), "step", None)
    if inner in (inherited, getattr(inherited, "__wrapped__", inherited)):
        return {name: value for name, value in held.items() if name != "step"}
    return {**held, "step": inner}


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # a name that has no value yet
        return ABSENT


# --- what code reads by name ------------------------------------------------------------------------------------------


def _read_globals(code: CodeType, known: dict[str, Any]) -> Parts:
    parts: Parts = []
    for name, *attributes in names_read(code):
        if name.startswith("import "):
            value: object = sys.modules.get(name.removeprefix("import "), ABSENT)
        else:
            value = known.get(name, getattr(builtins, name, ABSENT))
        while isinstance(value, ModuleType) and attributes:
            name, value = f"{name}.{attributes[0]}", getattr(value, attributes.pop(0), ABSENT)
        parts.append((name, value))
    return parts


@lru_cache(maxsize=4096)
def names_read(code: CodeType) -> tuple[tuple[str, ...], ...]:
    """Globals that code reads, each with the attributes that are read of it at once; code within it included."""
    found: dict[tuple[str, ...], None] = {}
    chain: list[str] = []
    for step in dis.get_instructions(code):
        if chain and step.opname in ATTRIBUTE:
            chain.append(step.argval)
            continue
        if chain and not (step.opname == "IMPORT_FROM" and chain[0].startswith("import ")):
            found[tuple(chain)] = None
            chain = []
        if step.opname in READS:
            chain = [step.argval]
        elif step.opname == "IMPORT_NAME":
            chain = [f"import {step.argval}"]
        elif step.opname == "IMPORT_FROM":
            found[(chain[0], step.argval)] = None
            chain = chain[:1]
    return (*found, *(chain for part in code.co_consts if isinstance(part, CodeType) for chain in names_read(part)))


def of_module(module: ModuleType) -> Parts:
    """All that a module holds, where it is used as a value."""
    found = _library_named(module.__name__)
    if found is not None and sys.modules.get(module.__name__) is module:
        return [("library", (FORMER.get(module.__name__, module.__name__), found))]
    return sorted((name, value) for name, value in vars(module).items() if not name.startswith("__"))


# --- libraries --------------------------------------------------------------------------------------------------------


def named_in_library(thing: Any) -> bool:
    """Whether a function or class is what a library has under its name."""
    if _library(thing) is None:
        return False
    if isinstance(thing, type) and thing.__flags__ & C_TYPE:
        return True
    value: Any = sys.modules.get(thing.__module__)
    for name in thing.__qualname__.split("."):
        value = getattr(value, name, None)
    return value is thing


def name(thing: Any) -> tuple[str | None, ...]:
    """What stands for a function or class of a library."""
    return FORMER.get(thing.__module__, thing.__module__), thing.__qualname__, _library(thing)


def _library(thing: Any) -> str | None:
    """The library of a function or class, by the module that it names."""
    name = getattr(thing, "__module__", None) or "builtins"
    if not isinstance(name, str):  # a descriptor of what is made by the class
        return None
    return _library_named(name)


def _library_named(name: str) -> str | None:
    """The library of the module of this name."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is not None:
        return library_of(file)
    python = name in sys.builtin_module_names or name.partition(".")[0] in sys.stdlib_module_names
    return _PYTHON if python else None


_OWN = {  # folders
    str(Path(torch.__file__).parent): f"torch {torch.__version__}",
    str(Path(np.__file__).parent): f"numpy {np.__version__}",
    str(Path(__file__).parents[1]): f"boundflow {__version__}",
}
_PYTHON = f"python {sys.version_info.major}.{sys.version_info.minor}"
_INSTALLED = ("site-packages", "dist-packages")


@lru_cache(maxsize=4096)
def library_of(file: str) -> str | None:
    """The library that a file belongs to, with its version; None: somebody wrote it here."""
    if file.startswith("<frozen "):
        return _PYTHON
    for folder, library in _OWN.items():
        if file.startswith(folder + os.sep):
            return library
    parts = Path(file).parts
    installed = [number for number, part in enumerate(parts) if part in _INSTALLED]
    if installed:  # or put there by hand, of which nothing says what it is
        return _installed(parts[installed[-1] + 1].partition(".")[0])
    return _PYTHON if file.startswith(str(Path(os.__file__).parent) + os.sep) else None


@lru_cache(maxsize=256)
def _installed(package: str) -> str | None:
    """What is installed under a name: version, and digest of the files as they were installed; None if nothing is."""
    for name in _distributions(package):
        lines = (metadata.distribution(name).read_text("RECORD") or "").splitlines()
        code = sorted(line for line in lines if line.partition(",")[0].endswith((".py", ".so")))
        digest = hashlib.sha256("\n".join(code).encode()).hexdigest()
        return f"{name} {metadata.version(name)} {digest[:16]}"
    return None


def _distributions(package: str) -> Iterator[str]:
    try:
        metadata.distribution(package)
        yield package
    except metadata.PackageNotFoundError:
        yield from metadata.packages_distributions().get(package, ())
