"""A network from a file of the user: `path/to/file.py:make_model`.

The function returns a plain `nn.Module`. It may take `features` (how many numbers one input has), `shape` (the shape of
one input) and `outputs`, or nothing. The file is run as it stands, under a private module name and with its own folder
importable meanwhile; what is wrong with it is told in one sentence, before any training. What it imports from its
folder is read anew every time, from its source: the digests of what was run are those of the files as they are.
"""

import ast
import copy
import hashlib
import inspect
import math
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from boundflow.same_program.batch_independence import told_apart
from fullcert.system.mistakes import Mistake

EXAMPLE = "net.py:make_model"


def is_file(spec: str) -> bool:
    """Whether a model is named by a file, and not by its own name."""
    return ":" in spec or spec.endswith(".py")


def place_of(spec: str) -> Path:
    """The file of a spec such as `net.py:make_model`."""
    return Path(spec.rpartition(":")[0])


def load_factory(spec: str, code: dict[str, str] | None = None) -> Callable[..., nn.Module]:
    """The function that a spec such as `net.py:make_model` names; ``code`` takes the digests of the files it is in."""
    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise Mistake(f"{spec!r} names no model: write the file and the function in it, such as {EXAMPLE}")
    module = _imported(Path(place), {} if code is None else code)
    if not hasattr(module, name):
        raise Mistake(f"{place} has nothing called {name!r}: name the function that makes the model")
    factory = getattr(module, name)
    if not callable(factory):
        raise Mistake(
            f"{name} in {place} is of type {type(factory).__name__}: it must be a function that makes a model"
        )
    return factory


def build_model(
    spec: str, shape: tuple[int, ...], outputs: int, seed: int = 0, code: dict[str, str] | None = None
) -> nn.Module:
    """The user's network in float64, checked on two inputs.

    The seed fixes it; the caller's random state is left alone. ``code`` is as for `load_factory`.
    """
    factory = load_factory(spec, code)
    known = {"features": math.prod(shape), "shape": tuple(shape), "outputs": outputs}
    arguments = _arguments(spec, factory, known)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        with _told(spec, f"{spec} raised"):
            model = factory(**arguments)
    if not isinstance(model, nn.Module):
        raise Mistake(f"{spec} returned {type(model).__name__}: it must return an nn.Module")
    return _checked(spec, model, shape, outputs)


def code_now(spec: str, names: Iterable[str]) -> dict[str, str]:
    """The digests of the file of a model, which has no name, and of others beside it that are there; nothing is run."""
    place, found = place_of(spec), {}
    for name in names:
        try:
            found[name] = _digest((place.parent / name if name else place).read_bytes())
        except OSError:
            continue
    return found


def _digest(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()


class _Neighbour(SourceFileLoader):
    """Runs what stands in a file: a compiled copy may be of other code that had its size and time."""

    def __init__(self, name: str, path: str, kept: "_Neighbours"):
        super().__init__(name, path)
        self.kept = kept

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = self.get_data(path)
        self.kept.code[Path(path).relative_to(self.kept.folder).as_posix()] = _digest(source)
        _NEIGHBOURS[fullname] = path
        _require_neighbours(ast.parse(source), self.kept.folder)
        return self.source_to_code(source, path)


class _Neighbours:
    """Finds what the file of a model imports from its own folder, and keeps the digests of it."""

    def __init__(self, folder: Path, code: dict[str, str]):
        self.folder, self.code = folder, code

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        for place in map(Path, [str(self.folder)] if path is None else path):
            if place.is_relative_to(self.folder):
                loader = (lambda name, path: _Neighbour(name, path, self), SOURCE_SUFFIXES)
                found = FileFinder(str(place), loader).find_spec(name)  # type: ignore[arg-type]
                if found is not None and found.loader is not None:
                    return found
        return None


def _require_neighbours(code: ast.AST, folder: Path) -> None:
    """Refuse a name under which Python would give out another module than the one that stands in the folder."""
    parts = list(ast.walk(code))
    names = [alias.name for part in parts if isinstance(part, ast.Import) for alias in part.names]
    names += [part.module for part in parts if isinstance(part, ast.ImportFrom) and part.module and not part.level]
    for name in sorted({name.partition(".")[0] for name in names}):
        held, found = sys.modules.get(name), PathFinder.find_spec(name, [str(folder)])
        if held is None or name in _NEIGHBOURS or found is None or not isinstance(found.loader, SourceFileLoader):
            continue
        if Path(getattr(held, "__file__", None) or "").resolve() != Path(found.origin or "").resolve():
            raise Mistake(f"{name} is the name of another module, which would stand in for {found.origin}: rename that")


_NEIGHBOURS: dict[str, str] = {}  # modules that files of models have imported from their folders, and their files


@contextmanager
def _importable(folder: Path, code: dict[str, str]) -> Iterator[None]:
    """The folder of a model can be imported from; nothing in it counts as imported by an earlier file."""
    for name, file in _NEIGHBOURS.items():
        if getattr(sys.modules.get(name), "__file__", None) == file:
            del sys.modules[name]
    _NEIGHBOURS.clear()
    finder = _Neighbours(folder, code)
    place = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
    sys.meta_path.insert(place, finder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        if str(folder) in sys.path:
            sys.path.remove(str(folder))


def _imported(path: Path, digests: dict[str, str]) -> ModuleType:
    """The file, run under a name that no other module has; its folder can be imported from meanwhile."""
    try:
        source = path.read_bytes()
        code = compile(source, str(path), "exec")
    except OSError as error:
        raise Mistake(f"cannot read the model file {path}: {error.strerror}") from None
    except SyntaxError as error:
        raise Mistake(f"{path} is not valid Python: {error.msg} on line {error.lineno}") from None
    except (ValueError, ArithmeticError, RecursionError, MemoryError) as error:  # a null byte, a thousand parentheses
        raise Mistake(f"{path} is not valid Python: {error}") from None
    module = ModuleType(f"_fullcert_model_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and copies of its classes look it up there
    digests[""] = _digest(source)
    try:
        with _importable(path.resolve().parent, digests), _told(f"{path}:", f"{path} raised"):
            _require_neighbours(ast.parse(source), path.resolve().parent)
            exec(code, module.__dict__)
    except Mistake:
        del sys.modules[module.__name__]
        raise
    return module


def _arguments(spec: str, factory: Callable[..., Any], known: dict[str, Any]) -> dict[str, Any]:
    """Those of the known arguments that the function takes."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # made in C: it says nothing of its arguments
        return {}
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for parameter in parameters:
        optional = parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        )
        if not optional and (parameter.kind is parameter.POSITIONAL_ONLY or parameter.name not in known):
            raise Mistake(f"{spec} wants an argument {parameter.name!r}: it may take features, shape and outputs only")
    return {name: value for name, value in known.items() if name in named}


def _checked(spec: str, model: nn.Module, shape: tuple[int, ...], outputs: int) -> nn.Module:
    """The model in float64, if it can be trained and answers a batch of two inputs."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise Mistake(f"the model of {spec} has no parameter to train")
    asked = f"the model of {spec} raised, given two inputs of shape {shape},"
    narrow = _answer(model, shape, torch.float32)
    with _told(spec, asked):
        if isinstance(narrow, Exception):
            raise narrow
    wide = _answer(model, shape, torch.float64)
    if isinstance(wide, Exception) or (isinstance(wide, Tensor) and wide.dtype is not torch.float64):
        raise Mistake(
            f"the model of {spec} does not accept float64 input: let its own tensors follow the input (dtype=x.dtype)"
        )
    if not isinstance(wide, Tensor) or tuple(wide.shape) != (2, outputs):
        given = f"shape {tuple(wide.shape)}" if isinstance(wide, Tensor) else f"type {type(wide).__name__}"
        two = isinstance(wide, Tensor) and tuple(wide.shape) == (2, 2) and outputs == 1
        raise Mistake(
            f"the model of {spec} answers two inputs of shape {shape} with an output of {given}: "
            f"it must be a tensor of shape (2, {outputs})"
            + (", since two classes need one output; --loss ce takes two" if two else "")
        )
    model = model.double()
    with _told(spec, asked):
        apart = told_apart(model, torch.ones(2, *shape, dtype=torch.float64), training=False)
    if apart is False:  # what cannot be told is told when operators are tried
        raise Mistake(
            f"the model of {spec} lets the inputs of a batch meet: it must answer each input as it would on its own"
        )
    return model


def _answer(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
    """What a copy of the model answers in evaluation mode, or the exception it raises."""
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            return copy.deepcopy(model).to(dtype).eval()(torch.ones(2, *shape, dtype=dtype))
    except Exception as error:
        return error


@contextmanager
def _told(spec: str, what: str) -> Iterator[None]:
    """An exception of the user's code as one sentence, with its line in the user's file."""
    try:
        yield
    except Mistake:
        raise
    except (Exception, SystemExit) as error:
        place = str(Path(spec.rpartition(":")[0]))  # as the code was compiled: ./net.py is net.py
        frames = traceback.extract_tb(error.__traceback__)
        line = next((frame.lineno for frame in reversed(frames) if frame.filename == place), None)
        where = "" if line is None else f" on line {line}"
        message = " ".join(str(error).split())
        raise Mistake(f"{what} {type(error).__name__}{where}{f': {message}' if message else ''}") from None
