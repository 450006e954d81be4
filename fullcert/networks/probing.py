"""Which operators a training step asks for, where, and which of them sets can do.

A `Probe` is a plain tensor that takes the same path through PyTorch as a set: the same functions are caught before
autograd, and every ATen operator that would reach a set reaches it. There the operator is tried on small sets around
its very arguments, the answer is written down, and the walk goes on with plain values. So one walk finds every operator
that has no rule, where a step on sets would stop at the first. Operators on plain tensors alone need no rule and are
not seen: what is not a set is taken for what it holds.

Backward operators belong to the layer whose forward pass made their node in the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_iter, tree_map

import boundflow as bf
from boundflow.sets.set import Set
from boundflow.tensor.bounded import FUNCTIONS, RULES, Bounded

RADIUS = 1e-6  # of the sets that operators are tried on
RULE, FUNCTION, QUESTION, REFUSED, NO_RULE = (
    "rule",
    "handled as part of a function",
    "a question",
    "refused",
    "no rule",
)
QUESTIONS = ("aten._local_scalar_dense", "Tensor.__bool__")


@dataclass(frozen=True)
class Place:
    """Where an operator was called: a layer, and the function caught there, if one was."""

    layer: str
    function: str | None = None


@dataclass(frozen=True)
class Found:
    """An operator at a place, and what sets make of it."""

    operator: str
    layer: str
    verdict: str
    function: str | None = None  # that it is part of
    reason: str = ""

    @property
    def unsupported(self) -> bool:
        return self.verdict in (REFUSED, NO_RULE)


@dataclass
class Walk:
    """What a walk found, in order, and the arguments of the first call of every layer."""

    found: dict[Found, None] = field(default_factory=dict)
    calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=dict)
    inner: set[str] = field(default_factory=set)  # layers that called layers
    stack: list[Place] = field(default_factory=list)
    error: Exception | None = None  # that ended it

    def note(self, operator: str, verdict: str, reason: str = "") -> None:
        place = self.stack[-1]
        self.found[Found(operator, place.layer, verdict, place.function, reason)] = None

    @contextmanager
    def at(self, place: Place, arguments: Any) -> Iterator[list[Any]]:
        """Everything inside happens at this place; what is appended to the list are results made there."""
        self.mark(arguments)
        self.stack.append(place)
        results: list[Any] = []
        try:
            yield results
            self.mark(results)
        finally:
            self.stack.pop()

    def mark(self, tensors: Any) -> None:
        """The part of the graph that has no place yet was made here: its backward pass happens here too."""
        waiting: list[Any] = [tensor.grad_fn for tensor in tree_iter(tensors) if isinstance(tensor, Tensor)]
        while waiting:
            node = waiting.pop()
            if node is not None and "place" not in node.metadata:
                place = self.stack[-1]
                if "CopySlices" in node.name():  # sets refuse the change itself, and never get here
                    place = Place(place.layer, "a change through a view")
                node.metadata["place"] = place
                node.register_prehook(lambda grads, place=place: self._goto(place))
                waiting += [parent for parent, _ in node.next_functions]

    def _goto(self, place: Place) -> None:
        self.stack[-1] = place


class Probe(Tensor):
    """A plain tensor that asks, at every operator, what a set would do."""

    walk: ClassVar[Walk]
    value: Tensor

    @staticmethod
    def __new__(cls, value: Tensor) -> Probe:
        self: Probe = Tensor._make_wrapper_subclass(
            cls, value.shape, strides=value.stride(), dtype=value.dtype, device=value.device
        )
        self.value = value
        return self

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Probe({self.value})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Probe:
        return memo.setdefault(id(self), Probe(self.value.clone()).requires_grad_(self.requires_grad))

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, walk = kwargs or {}, cls.walk
        if func not in FUNCTIONS or func is Tensor.add_:  # what writes into a set is known by its operator
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        name = _name(func)
        with torch._C.DisableTorchFunctionSubclass():
            refusal = _tried(lambda: _with_gradient(FUNCTIONS[func], *_on_sets((args, kwargs))))
            verdict, reason = _verdict(name, refusal, FUNCTION)
            with walk.at(Place(walk.stack[-1].layer, name), (args, kwargs)) as results:
                walk.note(name, verdict, reason)
                results.append(func(*args, **kwargs))
        return results[0]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs, walk = kwargs or {}, cls.walk
        if walk.stack[-1].function is not None:
            walk.note(str(func), FUNCTION)
        elif func not in RULES:
            walk.note(str(func), NO_RULE)
        else:
            walk.note(str(func), *_verdict(str(func), _tried(lambda: _called(func, args, kwargs)), RULE))
        result = func(*_plain(args), **_plain(kwargs))
        written = next((i for i, a in enumerate(func._schema.arguments) if a.is_write), None)
        if written is not None and written < len(args) and isinstance(result, Tensor):
            if torch.Tag.inplace_view in func.tags:  # its shape changes, and that of the wrapper with it
                with no_dispatch():
                    func(*args, **kwargs)
            return args[written]
        return tree_map(_probed, result)


def _plain(arguments: Any) -> Any:
    return tree_map(lambda x: x.value if isinstance(x, Probe) else x, arguments)


def _probed(x: Any) -> Any:
    """What would be a set if an operand was: numbers and truths, not indices."""
    return Probe(x) if isinstance(x, Tensor) and (x.is_floating_point() or x.dtype is torch.bool) else x


def _on_sets(arguments: Any) -> Any:
    """The same arguments, with a small set around every probe."""

    def lifted(x: Any) -> Any:
        if not isinstance(x, Probe):
            return x
        value = x.value.detach().clone()
        if value.dtype is torch.bool:
            return Bounded(Set(torch.stack((value, value))))
        return bf.ball(value, RADIUS).requires_grad_(x.requires_grad)

    return tree_map(lifted, arguments)


def _with_gradient(function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """A function on sets and its backward pass."""
    for result in tree_iter(function(*args, **kwargs)):
        if isinstance(result, Bounded) and result.requires_grad:
            result.sum().backward()


def _called(func: OpOverload, args: Any, kwargs: Any) -> None:
    """One operator on sets. A leaf that requires gradients could not be written to, so none is asked for."""
    args, kwargs = tree_map(lambda x: x.detach() if isinstance(x, Bounded) else x, _on_sets((args, kwargs)))
    with torch.no_grad():
        func(*args, **kwargs)


def _tried(attempt: Callable[[], None]) -> Exception | None:
    """The exception that sets raise; bounds that blow up are a matter of numbers, not of operators."""
    try:
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            attempt()
    except bf.VoidBounds:
        return None
    except Exception as error:
        return error
    return None


def _verdict(name: str, refusal: Exception | None, otherwise: str) -> tuple[str, str]:
    if name.startswith(QUESTIONS):
        return QUESTION, ""
    return (otherwise, "") if refusal is None else (REFUSED, sentence(refusal))


def sentence(error: Exception) -> str:
    """What an exception says, on one line; exceptions of other kinds than ours say which they are."""
    message = " ".join(str(error).split())
    return message if isinstance(error, bf.BoundFlowError) else f"{type(error).__name__}: {message}"


def _name(function: Any) -> str:
    """A function as one writes it: F.dropout, torch.max, Tensor.data."""
    if hasattr(function, "__objclass__"):
        return f"Tensor.{function.__name__}"
    if function.__name__ in ("__get__", "__set__"):
        return f"Tensor.{function.__self__.__name__}"
    module = (function.__module__ or "torch").replace("torch.nn.functional", "F").replace("torch._tensor", "Tensor")
    return f"{module}.{function.__name__}"


def probe(model: nn.Module, step: Callable[[nn.Module, Walk], None]) -> Walk:
    """Walk through a training step of `model`, whose parameters become probes, as far as the step gets."""
    walk = Probe.walk = Walk(stack=[Place("")])
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in made:
                value = Probe(parameter.detach().clone())
                made[id(parameter)] = nn.Parameter(value, requires_grad=parameter.requires_grad)
            setattr(module, name, made[id(parameter)])
    _watch(model, walk)
    walk.found.clear()
    try:
        step(model, walk)
    except Exception as error:
        walk.error = error
    return walk


def _watch(model: nn.Module, walk: Walk) -> None:
    """Let the walk know in which layer it is."""

    def watch(name: str, module: nn.Module) -> None:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            walk.mark((args, kwargs))
            walk.inner.add(walk.stack[-1].layer)
            walk.calls.setdefault(name, _plain((args, kwargs)))
            walk.stack.append(Place(name))

        def leave(module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
            walk.mark(result)
            walk.stack.pop()

        module.register_forward_pre_hook(enter, with_kwargs=True)
        module.register_forward_hook(leave, with_kwargs=True)

    for name, module in model.named_modules():
        watch(name, module)
