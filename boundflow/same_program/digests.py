"""The digest of a value is that of its content: the same in every process, another where anything differs.

    numbers, text     by kind and value               tensors, arrays     dtype, shape and bytes
    list, dict        their items in order            set                 its items, whatever their order
    functions         their code (`written_code.py`)  objects             their class and all that they hold

An object that comes twice is told from two equal ones. What cannot be read (a lock, an open file, a running generator)
has no digest: `of_value` then gives a sentence that begins with ``cannot be compared``, which equals nothing, not even
itself (`identity.py`).
"""

from __future__ import annotations

import copyreg
import enum
import functools
import hashlib
import struct
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from . import written_code

NOT_COMPARED = "cannot be compared"
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
NOT_ATTRIBUTES = frozenset(("training", "_parameters", "_buffers", "_modules"))


class Unreadable(Exception):
    """A value that has no content to compare."""


def of_tensors(*tensors: Tensor) -> str:
    """sha256 of some tensors, in this order: dtype, shape and bytes of each."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(_numbers(tensor))
    return digest.hexdigest()


def of_value(value: object) -> str:
    """sha256 of the content of any value; ``cannot be compared: ...`` where it cannot be read."""
    reader = _Reader()
    try:
        reader.read(value)
    except Unreadable as error:
        return f"{NOT_COMPARED}: {error}"
    except Exception as error:  # of code of the user, which says what its objects hold
        return f"{NOT_COMPARED}: a {type(value).__name__} ({type(error).__name__})"
    return reader.hash.hexdigest()


def attributes(module: nn.Module) -> dict[str, Any]:
    """What a module holds besides parameters, buffers, submodules and hooks."""
    return {
        name: value
        for name, value in vars(module).items()
        if name not in NOT_ATTRIBUTES and not name.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called"))
    }


def hooks(module: nn.Module) -> list[object]:
    """The hooks of a module, in the order in which they are called, each with how it is called."""
    held = vars(module)
    ways = [held.get(name, {}) for name in held if name.endswith(("_hooks_with_kwargs", "_hooks_always_called"))]
    return [
        (name, hook, *(number in way for way in ways)) for name in HOOKS for number, hook in held.get(name, {}).items()
    ]


def _numbers(tensor: Tensor) -> memoryview | bytes:
    """The numbers of a tensor in their order; copied only where they do not lie so."""
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().flatten()
    apart = flat.as_strided(flat.shape, (1,))  # of one number the stride may be any
    return apart.view(torch.uint8).numpy().data if flat.numel() else b""


def _dense(tensor: Tensor) -> tuple[Tensor, ...]:
    """The dense tensors that a tensor holds."""
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor,)


class _Reader:
    """Feeds values into a hash, each as a tag and its content."""

    def __init__(self, seen: dict[int, int] | None = None):
        self.hash = hashlib.sha256()
        self.seen = dict(seen or {})  # objects by where they came first
        self.alive: list[object] = []  # or others could take their place in memory
        self.where: list[str] = []

    def read(self, value: Any) -> None:
        kind = type(value)
        if kind in PLAIN:
            self.put(kind.__name__, PLAIN[kind](value))
        elif kind is tuple or kind is torch.Size:
            self.items(kind.__name__, value)
        elif id(value) in self.seen:
            self.put("again", str(self.seen[id(value)]).encode())
        else:
            self.seen[id(value)] = len(self.seen)
            self.alive.append(value)
            reads = EXACT.get(kind) or next((how for base, how in DERIVED if isinstance(value, base)), _Reader.object)
            reads(self, value)

    def put(self, tag: str, content: bytes | memoryview = b"") -> None:
        self.hash.update(f"{tag} {len(content)}:".encode())
        self.hash.update(content)

    def items(self, tag: str, values: Sequence[object]) -> None:
        self.put(tag, str(len(values)).encode())
        for value in values:
            self.read(value)

    def named(self, tag: str, parts: Sequence[tuple[str, object]]) -> None:
        self.put(tag, str(len(parts)).encode())
        for name, value in parts:
            self.put("name", str(name).encode())
            self.where.append(str(name))
            self.read(value)
            self.where.pop()

    def refuse(self, value: object) -> None:
        place = f" in {'.'.join(self.where)}" if self.where else ""
        raise Unreadable(f"a {type(value).__name__}{place}")

    # --- kinds of values ----------------------------------------------------------------------------------------------

    def dict(self, value: dict[Any, Any]) -> None:
        self.put("dict", str(len(value)).encode())
        for key, held in value.items():
            self.read(key)
            self.where.append(key if isinstance(key, str) else type(key).__name__)
            self.read(held)
            self.where.pop()

    def set(self, value: Any) -> None:
        self.items("set", sorted(value, key=self._apart))

    def _apart(self, value: object) -> bytes:
        if type(value) in PLAIN:
            return type(value).__name__.encode() + PLAIN[type(value)](value)
        reader = _Reader(self.seen)
        reader.read(value)
        return reader.hash.digest()

    def tensor(self, value: Tensor) -> None:
        value = getattr(value, "_bounds", value)  # of a set
        kind = type(value)
        self.read((value.dtype, tuple(value.shape), value.requires_grad, str(value.layout)))
        try:
            for part in _dense(value):
                self.put("numbers", _numbers(part))
        except (RuntimeError, TypeError, NotImplementedError):  # of a kind that numpy does not know
            self.refuse(value)
        self.named(kind.__name__, sorted(vars(value).items()))
        if kind not in (Tensor, nn.Parameter, nn.Buffer):
            self.read(kind)

    def array(self, value: np.ndarray) -> None:
        self.read((value.dtype, value.shape))
        if value.dtype.hasobject:
            self.items("objects", value.flatten().tolist())
        else:
            self.put("numbers", np.ascontiguousarray(value).tobytes())

    def generator(self, value: torch.Generator) -> None:
        self.put("generator", str(value.device).encode())
        self.put("state", _numbers(value.get_state()))

    def module(self, value: nn.Module) -> None:
        """A network: parameters, buffers and submodules in their order, attributes, hooks, and its code."""
        if isinstance(value, torch.jit.ScriptModule):
            self.refuse(value)
        inner = ("_parameters", "_buffers", "_modules")
        self.named("module", [("class", type(value)), ("training", value.training), ("hooks", hooks(value))])
        for name in inner:
            self.named(name, list(vars(value)[name].items()))
        self.named("attributes", sorted(attributes(value).items()))

    def function(self, value: types.FunctionType) -> None:
        self.named("function", written_code.of_function(value))

    def cls(self, value: type) -> None:
        self.named("class", written_code.of_class(value))

    def builtin(self, value: types.BuiltinFunctionType) -> None:
        self.items("builtin", (value.__qualname__, value.__self__))

    def descriptor(self, value: Any) -> None:
        self.items("descriptor", (value.__name__, value.__objclass__))

    def operator(self, value: Any) -> None:
        """An operator of PyTorch by its name; the kernels of others cannot be read."""
        name = str(value)
        if name.partition(".")[0] not in ("aten", "prims"):
            self.refuse(value)
        self.put("operator", name.encode())

    def ufunc(self, value: np.ufunc) -> None:
        if getattr(np, value.__name__, None) is not value:
            self.refuse(value)
        self.put("ufunc", value.__name__.encode())

    def object(self, value: Any) -> None:
        """Whatever else: its class and what it holds, as `copy` and `pickle` find it."""
        kind = type(value)
        if isinstance(getattr(value, "__qualname__", None), str) and written_code.named_in_library(value):
            self.items("named", written_code.name(value))  # a function in C
            return
        self.named("object", [("class", kind)])
        if not written_code.named_in_library(kind):  # which may give pickle less than it holds
            slots = [name for base in kind.__mro__ for name in _slots(base)]
            self.named("slots", [(name, getattr(value, name)) for name in slots if hasattr(value, name)])
            self.named("held", sorted(getattr(value, "__dict__", {}).items()))
        try:
            registered = copyreg.dispatch_table.get(kind)
            how: Any = value.__reduce_ex__(4) if registered is None else registered(value)
        except Exception:  # code of the user, and what Python refuses
            self.refuse(value)
        if isinstance(how, str):  # by its name alone
            if not written_code.named_in_library(kind):
                self.refuse(value)
            self.put("called", how.encode())
            return
        made, given, *rest = how
        state, listed, pairs = (*rest, None, None, None)[:3]
        self.items("made", (made, given, state, list(listed or ()), list(pairs or ())))


def _slots(base: type) -> tuple[str, ...]:
    found = vars(base).get("__slots__", ())
    names = (found,) if isinstance(found, str) else tuple(found)
    mangled = [f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") else name for name in names]
    return tuple(name for name in mangled if name not in ("__dict__", "__weakref__"))


def _parts(*names: str) -> Callable[[_Reader, Any], None]:
    """Reads some attributes of a value, and nothing else of it."""

    def read(reader: _Reader, value: Any) -> None:
        reader.named(type(value).__name__, [(name, getattr(value, name)) for name in names])

    return read


def _pieces(value: Any) -> bytes:
    return f"{value.start!r} {value.stop!r} {value.step!r}".encode()


# values without anything inside, by their exact type
PLAIN: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda value: b"",
    type(...): lambda value: b"",
    type(NotImplemented): lambda value: b"",
    bool: lambda value: b"1" if value else b"0",
    int: lambda value: hex(value).encode(),
    float: lambda value: struct.pack(">d", value),
    complex: lambda value: struct.pack(">dd", value.real, value.imag),
    str: lambda value: value.encode("utf-8", "surrogatepass"),
    bytes: bytes,
    range: _pieces,
    torch.dtype: lambda value: str(value).encode(),
    torch.device: lambda value: str(value).encode(),
    torch.layout: lambda value: str(value).encode(),
    torch.memory_format: lambda value: str(value).encode(),
}
EXACT: dict[type, Callable[[_Reader, Any], None]] = {
    list: lambda reader, value: reader.items("list", value),
    dict: _Reader.dict,
    types.MappingProxyType: _Reader.dict,
    set: _Reader.set,
    frozenset: _Reader.set,
    np.ndarray: _Reader.array,
    np.memmap: _Reader.array,
    types.FunctionType: _Reader.function,
    types.CodeType: lambda reader, value: reader.read(written_code.of_code(value)),
    types.ModuleType: lambda reader, value: reader.named("module", written_code.of_module(value)),
    types.CellType: _parts("cell_contents"),
    types.MethodType: _parts("__func__", "__self__"),
    types.BuiltinFunctionType: _Reader.builtin,
    types.MethodDescriptorType: _Reader.descriptor,
    types.WrapperDescriptorType: _Reader.descriptor,
    types.GetSetDescriptorType: _Reader.descriptor,
    types.MemberDescriptorType: _Reader.descriptor,
    types.ClassMethodDescriptorType: _Reader.descriptor,
    types.MethodWrapperType: _parts("__name__", "__self__"),
    slice: _parts("start", "stop", "step"),
    property: _parts("fget", "fset", "fdel"),
    staticmethod: _parts("__func__"),
    classmethod: _parts("__func__"),
    functools.cached_property: _parts("func", "attrname"),
    functools.partial: _parts("func", "args", "keywords", "__dict__"),
    functools.partialmethod: _parts("func", "args", "keywords"),
    type(functools.lru_cache(len)): _parts("__wrapped__"),
    weakref.ref: lambda reader, value: reader.items("weakref", (value(),)),
    np.ufunc: _Reader.ufunc,
    torch.Generator: _Reader.generator,
    torch._ops.OpOverload: _Reader.operator,
    torch._ops.OpOverloadPacket: _Reader.operator,
}
DERIVED: tuple[tuple[type, Callable[[_Reader, Any], None]], ...] = (
    (Tensor, _Reader.tensor),
    (nn.Module, _Reader.module),
    (type, _Reader.cls),
    (enum.Enum, _parts("__class__", "name", "value")),
    (np.dtype, lambda reader, value: reader.put("dtype", f"{value.descr} {value}".encode())),
    (np.generic, lambda reader, value: reader.put(value.dtype.str, value.tobytes())),
)
