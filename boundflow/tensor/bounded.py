"""Bounded: a set of tensors that is a tensor.

PyTorch sees a wrapper subclass around a `Set`. Autograd and optimizers run above it; what reaches
``__torch_dispatch__`` are ATen operators, and ``RULES`` says what each does to sets: tensors become sets, the rule is
run in the arithmetic of their run, and the set that comes out becomes a tensor with the layout that the plain result
would have. An operator that is not in the table raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, SupportsIndex

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_map

from ..arithmetic import rounding
from ..arithmetic.thread_context import Arithmetic, thread
from ..errors import BoundFlowError, MixedTensors, PlainTarget, StaleAlias, UnsupportedOperator, UnsupportedProgram
from ..fast.memory.out_of_memory import ran_out
from ..sets.forms import Form
from ..sets.sample_axis import SampleAxis
from ..sets.set import Set, concretised, point
from ..symbols.rows import Rows
from ..symbols.space import Symbols
from . import layout
from .rule_table import FUNCTIONS as FUNCTIONS
from .rule_table import RULES as RULES
from .rule_table import Rule as Rule
from .rule_table import aten as aten
from .rule_table import replaces as replaces
from .rule_table import rule as rule

Parts = tuple[Tensor, Tensor, Tensor, np.ndarray]  # of a form: center, rows, radius, and the numbers of the rows
Context = tuple[Rows | None, SampleAxis | None, Symbols | None, bool, bool]


class Bounded(torch.Tensor):
    """A tensor whose value is only known to lie in a set. Make one with `bf.ball`, `bf.interval` or `bf.lift`."""

    set: Set
    _recorded: int

    @staticmethod
    def __new__(
        cls, found: Set, requires_grad: bool = False, strides: tuple[int, ...] | None = None, version: int = 0
    ) -> Bounded:
        """A view starts with the version of the tensor that it is a view of."""
        self: Bounded = torch.Tensor._make_wrapper_subclass(
            cls,
            found.shape,
            strides=strides,
            dtype=found.dtype,
            device=found.device,
            requires_grad=requires_grad,
        )
        self.set = found
        self._recorded = version
        return self

    # --- the set ----------------------------------------------------------------------------------------------

    @property
    def lower(self) -> Tensor:
        """The smallest value each element can have."""
        return self._checked().set.bounds[0]

    @property
    def upper(self) -> Tensor:
        """The largest value each element can have."""
        return self._checked().set.bounds[1]

    @property
    def center(self) -> Tensor:
        return self.form.center

    @property
    def radius(self) -> Tensor:
        return self.form.radius

    @property
    def generators(self) -> Tensor:
        """Rows of shape (K, *shape); K = 0 for an interval."""
        return self.form.dense.generators

    @property
    def spread(self) -> Tensor:
        """The largest distance of a value from the center."""
        return rounding.deviation(self._checked().set.bounds, self.form.center)

    @property
    def symbols(self) -> Symbols | None:
        return self.set.symbols

    @property
    def form(self) -> Form:
        """The affine form; of an interval, the ball around its middle."""
        return self._checked().set.form

    @property
    def affine(self) -> bool:
        """Whether there are generator rows."""
        return self.set.affine

    def contains(self, value: Tensor) -> Tensor:
        """Whether each element of a plain tensor lies within its bounds."""
        return (self.lower <= value) & (value <= self.upper)

    def _checked(self) -> Bounded:
        if self._version != self._recorded:
            raise StaleAlias(
                "this bounded tensor was changed in place under another name (a view, detach() or .data), and its "
                "bounds no longer belong to its value. Write to the tensor itself, or use an out-of-place operator."
            )
        return self

    def replace_form(self, symbols: Symbols, rows: Rows, generators: Tensor, one_row_each: bool = False) -> None:
        """Write the same set with other rows and no radius, through the in-place operator `copy_`.

        The new rows reach no less far than the old ones, so the interval stays and no support is asked for.
        """
        form = Form(self.form.center, generators, torch.zeros_like(self.form.radius), rows)
        if one_row_each:
            form.__dict__["one_row_each"] = True
        same = concretised("reduction", self.set.bounds, form, symbols, self.set.nonnegative, sharp=False)
        self.copy_(Bounded(same))

    # --- the tensor -------------------------------------------------------------------------------------------

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]
        name = f"Bounded(shape={tuple(self.shape)}, {str(self.dtype).removeprefix('torch.')}"
        if self.device.type != "cpu":
            name += f", {self.device}"
        if self._version != self._recorded:
            return f"{name}, stale)"
        if self.dtype is torch.bool:
            return f"{name}, undecided={int((self.set.bounds[0] != self.set.bounds[1]).sum())})"
        if self.numel() == 0:
            return f"{name})"
        if self.numel() == 1:
            low, high = (f"{float(bound):.6g}" for bound in self.set.bounds.flatten())
            name += f", [{low}, {high}]"
        else:
            width = self.set.bounds[1] - self.set.bounds[0]
            name += f", in [{float(self.set.bounds[0].min()):.4g}, {float(self.set.bounds[1].max()):.4g}]"
            name += f", width mean {float(width.mean()):.3g} max {float(width.max()):.3g}"
        if self.affine:
            name += f", rows={len(self.form.rows)}"
        return name + (", requires_grad=True)" if self.requires_grad else ")")

    def __deepcopy__(self, memo: dict[int, Any]) -> Bounded:
        if id(self) in memo:
            known: Bounded = memo[id(self)]
            return known
        if not self.is_leaf:
            raise BoundFlowError("only leaf tensors can be copied with deepcopy: use .detach().clone()")
        copied = Bounded(self._checked().set, self.requires_grad, self.stride())
        memo[id(self)] = copied
        if self.grad is not None:
            copied.grad = self.grad.__deepcopy__(memo)  # type: ignore[no-untyped-call]
        for name, value in self.__dict__.items():
            copied.__dict__.setdefault(name, value)
        return copied

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Callable[..., Bounded], tuple[object, ...]]:
        found = self._checked().set.dense()
        form = found._form
        parts = (form.center, form.generators, form.radius, form.rows.numbers) if form else None
        kind = (found.exact, found.nonnegative)
        is_parameter = isinstance(self, torch.nn.Parameter)
        return _rebuild, (found.bounds, parts, found.symbols, kind, self.requires_grad, is_parameter)

    def __tensor_flatten__(self) -> tuple[list[str], Context]:
        found = self.set
        names = ["_bounds"] + (["_center", "_generators", "_radius"] if found._form is not None else [])
        rows, along = (found.form.rows, found.form.along) if found._form is not None else (None, None)
        return names, (rows, along, found.symbols, found.exact, found.nonnegative)

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], context: Context, size: object, stride: object) -> Bounded:
        rows, along, symbols, exact, nonnegative = context
        form = None
        if rows is not None:
            form = Form(inner["_center"], inner["_generators"], inner["_radius"], rows, along)
        return Bounded(Set(inner["_bounds"], form, symbols, exact, nonnegative))

    _bounds = property(lambda self: self.set.bounds)
    _center = property(lambda self: self.set.form.center)
    _generators = property(lambda self: self.set.form.generators)  # own rows as they are
    _radius = property(lambda self: self.set.form.radius)

    @classmethod
    def __torch_function__(cls, func: Callable[..., Any], types: object, args: Any = (), kwargs: Any = None) -> Any:
        replacement = FUNCTIONS.get(func)
        if replacement is not None:
            try:
                return replacement(*args, **(kwargs or {}))
            except Exception as error:
                _tell(func, args, kwargs or {}, error)
                raise
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        rule = RULES.by_identity.get(id(func))
        if rule is None:
            raise UnsupportedOperator(
                f"{func} has no rule for bounded tensors. Guessing one would give bounds that may be wrong, so "
                "nothing was computed. See docs/extending.md to add a rule; it is a few lines."
            )
        with torch._C.DisableTorchFunctionSubclass():
            if torch.is_inference_mode_enabled():
                raise UnsupportedOperator(
                    "inference mode does not count versions, so a change under another name would go unnoticed: "
                    "use torch.no_grad()"
                )
            kwargs = kwargs or {}
            operands, arithmetic = unwrapped_all(args)
            before, thread.arithmetic = thread.arithmetic, arithmetic
            try:
                if rule.writes is not None:
                    return _written(rule, args, operands, kwargs)
                result = rule.apply(*(args if rule.of_tensors else operands), **kwargs)
            except Exception as error:
                _tell(func, args, kwargs, error)
                raise
            finally:
                thread.arithmetic = before
            strides = rule.layout(func, args, kwargs)
            return wrapped(result, strides, args[0]._version if rule.view else 0)


def _tell(func: Callable[..., Any], args: Any, kwargs: dict[str, Any], error: Exception) -> None:
    """Where a rule fails: raise what PyTorch does for plain tensors, or that there is no rule for these arguments."""
    if isinstance(error, BoundFlowError) or ran_out(error):
        return

    def plain(x: Any) -> Any:
        return x.set.bounds[0].clone() if isinstance(x, Bounded) else x

    try:
        with torch.no_grad():
            func(*tree_map(plain, args), **tree_map(plain, kwargs))
    except Exception as own:
        if isinstance(error, ValueError):  # which rules raise in words of their own
            return
        raise own from error
    name = getattr(func, "__name__", func) if not isinstance(func, OpOverload) else func
    raise UnsupportedOperator(
        f"{name} has no rule for bounded tensors with these arguments "
        f"({type(error).__name__}: {' '.join(str(error).split())}), so nothing was computed"
    ) from error


def _written(rule: Rule, args: tuple[Any, ...], operands: list[Any], kwargs: Any) -> Bounded:
    """Compute out of place, then replace the inner tensors of the target.

    The version counter goes up after we return, so the version to expect is one more than now.
    """
    target = args[rule.writes] if isinstance(rule.writes, int) else kwargs.pop(rule.writes)
    if not isinstance(target, Bounded):
        raise PlainTarget(
            f"{rule.operator} would store a set in a plain tensor, which would silently lose the bounds. Write "
            "`total = total + loss` instead of `total += loss`; lift a model before its optimizer keeps state."
        )
    if rule.apart and any(_owner(x) is _owner(target) for x in _read(args, rule.writes)):
        raise UnsupportedProgram(
            f"{rule.operator} reads the tensor that it writes to, and PyTorch reads numbers there that it has "
            "overwritten by then: write the result to another tensor"
        )
    result = rule.apply(*operands, **kwargs)
    if result.shape != target.shape or result.dtype != target.dtype:
        raise MixedTensors(
            f"{rule.operator} gives {tuple(result.shape)} {result.dtype}, "
            f"which does not fit its target of {tuple(target.shape)} {target.dtype}"
        )
    made = Set(result.bounds, result._form, result.symbols or target.set.symbols, False, result.nonnegative)
    made.clean, made.along, made.excess = result.clean, result.along, result.excess
    made.parameter = target.is_leaf and target.requires_grad
    target.set = made
    target._recorded = target._version + 1
    return target


def _read(operands: Iterable[object], writes: object = None) -> Iterator[Bounded]:
    """The sets that an operator reads, besides the one that it writes to."""
    for place, x in enumerate(operands):
        if isinstance(x, list | tuple):
            yield from _read(x)
        elif isinstance(x, Bounded) and place != writes:
            yield x


def _owner(x: Tensor) -> Tensor:
    """The tensor whose memory this one stands for."""
    return x if x._base is None else x._base


def exact(value: Tensor, symbols: Symbols | None = None) -> Bounded:
    """The set of one plain tensor, as a tensor that is laid out as it is."""
    return Bounded(point(value, symbols), strides=layout.of(value))


def unwrapped(x: Any) -> Any:
    """The set of a bounded tensor, and those in a list of tensors; everything else as it is."""
    if type(x) is Bounded:
        return x._checked().set
    return type(x)(unwrapped(part) for part in x) if isinstance(x, list | tuple) else x


def unwrapped_all(operands: Iterable[object]) -> tuple[list[Any], Arithmetic]:
    """Operands as sets, and the arithmetic of the run they belong to, or of this thread. Stale ones are refused.

    Where a set without a threat, made with roundings switched off, meets a run that charges them, they are charged.
    """
    found: Arithmetic | None = None
    space: Symbols | None = None  # of the operand before
    sets: list[Any] = []
    for operand in operands:
        if type(operand) is Bounded:
            held = operand._checked().set
            sets.append(held)
            if held.symbols is not space:
                space = held.symbols
                if space is not None and (found is None or space.arithmetic.prevails(found)):
                    found = space.arithmetic
        elif isinstance(operand, Tensor):
            sets.append(_normalised(operand))
        elif isinstance(operand, list | tuple) and any(type(part) is Bounded for part in operand):
            inner, arithmetic = unwrapped_all(operand)
            sets.append(type(operand)(inner))
            found = arithmetic if found is None or arithmetic.prevails(found) else found
        else:
            sets.append(operand)
    return sets, found or thread.arithmetic


def _normalised(x: Tensor) -> Set | Tensor:
    """A plain operand as the set of itself, without a copy: what rules make of it must not share its memory.

    Tensors of no dimension are numbers, which adapt to the dtype of the sets they meet; integers and conditions are
    indices and masks. Both stay what they are.
    """
    if not x.dim() or not x.is_floating_point():
        return x
    inner = x.detach()
    return Set(inner.expand(2, *inner.shape), exact=True)


def wrapped(x: Any, strides: Sequence[layout.Strides] = (), version: int = 0) -> Any:
    """Sets as tensors of a version, with the strides of plain results; those without any are contiguous."""
    if isinstance(x, Set):
        return Bounded(x, False, strides[0] if strides else None, version)
    if isinstance(x, list | tuple):
        return type(x)(wrapped(part, (wanted,), version) for part, wanted in zip_longest(x, strides))
    return x


def _rebuild(
    bounds: Tensor,
    parts: Parts | None,
    symbols: Symbols | None,
    kind: tuple[bool, bool],
    requires_grad: bool,
    parameter: bool,
) -> Bounded:
    form = None
    if parts is not None:
        center, generators, radius, numbers = parts
        form = Form(center, generators, radius, Rows(numbers))
    rebuilt = Bounded(Set(bounds, form, symbols, *kind), requires_grad)
    return torch.nn.Parameter(rebuilt, requires_grad) if parameter else rebuilt  # type: ignore[return-value]
