"""Bounded: a set of tensors that is a tensor.

    B = { c + sum_k G_k xi_k + rho zeta  :  xi the symbols, zeta in [-1, 1]^shape }  intersected with  [lower, upper]

The interval is always there, stacked as ``bounds = (lower, upper)``; the affine form is there when there are
generator rows (K > 0). With K = 0 the interval is the whole set, and center and radius are read off it.

Why the intersection is sound: for every execution w (one dataset, one order of roundings) there is *one* value
xi(w) of the symbols such that every tensor T satisfies both ``T(w) = c + G xi(w) + rho zeta(w)`` and
``lower <= T(w) <= upper``. So slopes and gates may be chosen on the interval although the affine form leaves it.
Never move c to the middle of the interval or shrink G and rho to fit it: that would change what xi means.

PyTorch sees a wrapper subclass. Autograd and optimizers run above it; what reaches ``__torch_dispatch__`` are ATen
operators, and ``RULES`` says what each does to sets. An operator that is not in the table raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload

from . import layout, rounding
from .clean import Clean, Excess, Samples
from .context import Arithmetic, thread, using
from .errors import (
    BoundFlowError,
    CrossedBounds,
    MixedTensors,
    PlainTarget,
    StaleAlias,
    Undecided,
    UnsupportedOperator,
    VoidBounds,
)
from .factors import Factors
from .forms import Form, ball_form
from .rows import Rows
from .symbols import Symbols

aten = torch.ops.aten


class Bounded(torch.Tensor):
    """A tensor whose value is only known to lie in a set. Make one with `bf.ball`, `bf.interval` or `bf.lift`."""

    _bounds: Tensor
    _form: Form | None
    _symbols: Symbols | None
    _exact: bool
    _nonnegative: bool
    _clean: Clean | None
    _excess: Excess | None = None  # what touched samples add to a sum over a piece of a batch
    _recorded: int
    _adds_to_one: bool = False  # class weights of a target, whichever class it is: known to the loss alone
    _sum: Any  # see `rules.linear.Remembered`

    @staticmethod
    def __new__(
        cls,
        bounds: Tensor,
        form: Form | None = None,
        symbols: Symbols | None = None,
        exact: bool = False,
        requires_grad: bool = False,
        nonnegative: bool = False,
        clean: Clean | None = None,
        strides: tuple[int, ...] | None = None,
    ) -> Bounded:
        self = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            bounds.shape[1:],
            strides=strides,
            dtype=bounds.dtype,
            device=bounds.device,
            requires_grad=requires_grad,
        )
        self._bounds = bounds
        self._form = form
        self._symbols = symbols
        self._exact = exact  # a point by construction: lower is upper
        self._nonnegative = nonnegative  # by construction, as squares are: rounding must not make it negative
        if clean is not None and form is not None and form.rows.batch is not None:
            # one sample axis, one batch: otherwise own rows of other samples would be taken for clean
            same = clean.axis == form.axis and np.array_equal(clean.samples.numbers, form.rows.batch.samples)
            clean = clean if same else None
        self._clean = clean  # what it is where its own sample was left alone
        self._recorded = 0
        return self

    # --- the set ----------------------------------------------------------------------------------------------

    @property
    def lower(self) -> Tensor:
        """The smallest value each element can have."""
        return self._checked()._bounds[0]

    @property
    def upper(self) -> Tensor:
        """The largest value each element can have."""
        return self._checked()._bounds[1]

    @property
    def center(self) -> Tensor:
        return self._checked().form.center

    @property
    def radius(self) -> Tensor:
        return self._checked().form.radius

    @property
    def generators(self) -> Tensor:
        """Rows of shape (K, *shape); K = 0 for an interval."""
        return self._checked().form.dense.generators

    @property
    def spread(self) -> Tensor:
        """The largest distance of a value from the center."""
        self._checked()
        return rounding.deviation(self._bounds, self.form.center)

    @property
    def deviation(self) -> Tensor:
        """s of every rule: how far a value can be from the center, by the interval or by the form, the smaller."""
        return torch.minimum(rounding.deviation(self._bounds, self.form.center), self.form.reach)

    @property
    def step(self) -> int | None:
        """How many optimizer steps its space has seen: what errors report."""
        return self._symbols.steps if self._symbols is not None else None

    @property
    def symbols(self) -> Symbols | None:
        return self._symbols

    @property
    def form(self) -> Form:
        """The affine form; of an interval, the ball around its middle."""
        if self._form is None:
            low = self._bounds[0]
            self._form = ball_form(*((low, torch.zeros_like(low)) if self._exact else rounding.middle(self._bounds)))
        return self._form

    @property
    def affine(self) -> bool:
        """Whether there are generator rows."""
        return self._form is not None and len(self._form.rows) > 0

    def dense(self) -> Bounded:
        """The same set with every own row written out, and without a sample axis: for rules that mix positions."""
        if self._clean is None and (self._form is None or self._form.rows.batch is None):
            return self
        form = self._form.dense if self._form is not None else None
        return Bounded(self._bounds, form, self._symbols, self._exact, nonnegative=self._nonnegative)

    @property
    def untouched(self) -> Bounded:
        """The set where the own sample of each position was left alone: same center and rows, a smaller radius."""
        if self._clean is None:
            return self
        form = self.form
        if self._clean.radius is not None:
            form = Form(form.center, form.generators, self._clean.radius, form.rows, form.axis)
            form.__dict__["reach"] = self.form.reach
        else:
            form = ball_form(form.center, rounding.deviation(self._clean.bounds, form.center))
        return Bounded(self._clean.bounds, form, self._symbols, nonnegative=self._nonnegative)

    def laid_out(self, strides: tuple[int, ...]) -> Bounded:
        """The same set in another order of memory (`layout.py`)."""
        kind = self._exact, self.requires_grad, self._nonnegative
        made = Bounded(self._bounds, self._form, self._symbols, *kind, self._clean, strides)
        made.__dict__.update({name: value for name, value in self.__dict__.items() if name not in made.__dict__})
        return made

    def laid_out_as(self, plain: Tensor) -> Bounded:
        """The same set in the order of memory of a plain tensor, where that has one: not where elements overlap."""
        return self if plain.is_contiguous() else self.laid_out(torch.empty_like(plain, device="meta").stride())

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

    def replace_form(self, symbols: Symbols, rows: Rows, generators: Tensor) -> None:
        """Write the same set with other rows and no radius, through the in-place operator `copy_`."""
        form = Form(self.form.center, generators, torch.zeros_like(self.form.radius), rows)
        self.copy_(concretised("reduction", self._bounds, form, symbols, self._nonnegative))

    # --- the tensor -------------------------------------------------------------------------------------------

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        name = f"Bounded(shape={tuple(self.shape)}, {str(self.dtype).removeprefix('torch.')}"
        if self.device.type != "cpu":
            name += f", {self.device}"
        if self._version != self._recorded:
            return f"{name}, stale)"
        if self.dtype is torch.bool:
            return f"{name}, undecided={int((self._bounds[0] != self._bounds[1]).sum())})"
        if self.numel() == 0:
            return f"{name})"
        if self.numel() == 1:
            low, high = (f"{float(bound):.6g}" for bound in self._bounds.flatten())
            name += f", [{low}, {high}]"
        else:
            width = self._bounds[1] - self._bounds[0]
            name += f", in [{float(self._bounds[0].min()):.4g}, {float(self._bounds[1].max()):.4g}]"
            name += f", width mean {float(width.mean()):.3g} max {float(width.max()):.3g}"
        if self.affine:
            name += f", rows={len(self.form.rows)}"
        return name + (", requires_grad=True)" if self.requires_grad else ")")

    def __deepcopy__(self, memo: dict[int, Any]) -> Bounded:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise BoundFlowError("only leaf tensors can be copied with deepcopy: use .detach().clone()")
        self._checked()
        kind = (self._exact, self.requires_grad, self._nonnegative)
        copied = Bounded(self._bounds, self._form, self._symbols, *kind, strides=self.stride())
        memo[id(self)] = copied
        if self.grad is not None:
            copied.grad = self.grad.__deepcopy__(memo)
        for name, value in self.__dict__.items():
            copied.__dict__.setdefault(name, value)
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        form = self._checked().dense()._form
        parts = (form.center, form.generators, form.radius, form.rows.numbers) if form else None
        is_parameter = isinstance(self, torch.nn.Parameter)
        kind = (self._exact, self.requires_grad, self._nonnegative)
        return _rebuild, (self._bounds, parts, self._symbols, kind, is_parameter)

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        names = ["_bounds"] + (["_center", "_generators", "_radius"] if self._form is not None else [])
        rows = self.form.rows if self._form is not None else None
        axis = self.form.axis if self._form is not None else None
        return names, (rows, axis, self._symbols, self._exact, self._nonnegative)

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], context: Any, size: Any, stride: Any) -> Bounded:
        rows, axis, symbols, exact, nonnegative = context
        form = None
        if rows is not None:
            form = Form(inner["_center"], inner["_generators"], inner["_radius"], rows, axis)
        return Bounded(inner["_bounds"], form, symbols, exact, nonnegative=nonnegative)

    _center = property(lambda self: self.form.center)
    _generators = property(lambda self: self.form.generators)  # own rows as they are
    _radius = property(lambda self: self.form.radius)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        replacement = FUNCTIONS.get(func)
        if replacement is not None:
            return replacement(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        rule = RULES.get(func)
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
            before, thread.arithmetic = thread.arithmetic, arithmetic_of(args)
            try:
                if rule.writes is not None:
                    return rule.write(args, kwargs)
                result = rule.apply(*args, **kwargs)
            finally:
                thread.arithmetic = before
            strides = layout.strides(func, args, kwargs)
            if strides is not None:
                result = _laid_out(result, strides)
            if rule.view:
                for view in result if isinstance(result, list | tuple) else (result,):
                    view._recorded = args[0]._version
            return result


def arithmetic_of(operands: Iterable[Any]) -> Arithmetic:
    """That of the run the operands belong to, or of this thread; stale operands are refused on the way.

    Where a set without a threat, made with roundings switched off, meets a run that charges them, they are charged.
    """
    found = None
    for operand in operands:
        parts = operand if isinstance(operand, list | tuple) else (operand,)
        for part in parts:
            if isinstance(part, Bounded):
                symbols = part._checked()._symbols
                if symbols is not None and (found is None or symbols.arithmetic.outward > found.outward):
                    found = symbols.arithmetic
    return found or thread.arithmetic


def _laid_out(result: Any, strides: Sequence[layout.Strides]) -> Any:
    """Results with the strides of plain ones; those without any are contiguous."""
    if not isinstance(result, list | tuple):
        wanted = strides[0] if strides else None
        return result.laid_out(wanted) if wanted is not None and isinstance(result, Bounded) else result
    return type(result)(_laid_out(x, [wanted]) for x, wanted in zip_longest(result, strides))


def _rebuild(bounds: Tensor, parts: Any, symbols: Any, kind: tuple[bool, bool, bool], parameter: bool) -> Bounded:
    form = None
    if parts is not None:
        center, generators, radius, numbers = parts
        form = Form(center, generators, radius, Rows(numbers))
    rebuilt = Bounded(bounds, form, symbols, *kind)
    return torch.nn.Parameter(rebuilt, kind[1]) if parameter else rebuilt  # type: ignore[return-value]


# --- the table of rules ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """What an operator does to sets, and an example that the law tests draw their operands from."""

    operator: OpOverload
    apply: Callable[..., Any]
    example: Callable[..., tuple] | None
    writes: int | str | None = None  # the argument it stores its result in
    view: bool = False

    def write(self, args: Any, kwargs: Any) -> Any:
        """Compute out of place, then replace the inner tensors of the target.

        The version counter goes up after we return, so the version to expect is one more than now.
        """
        target = args[self.writes] if isinstance(self.writes, int) else kwargs.pop(self.writes)
        if not isinstance(target, Bounded):
            raise PlainTarget(
                f"{self.operator} would store a set in a plain tensor, which would silently lose the bounds. Write "
                "`total = total + loss` instead of `total += loss`; lift a model before its optimizer keeps state."
            )
        result = self.apply(*args, **kwargs)
        if result.shape != target.shape or result.dtype != target.dtype:
            raise MixedTensors(
                f"{self.operator} gives {tuple(result.shape)} {result.dtype}, "
                f"which does not fit its target of {tuple(target.shape)} {target.dtype}"
            )
        target._bounds, target._form = result._bounds, result._form
        target._symbols, target._exact = result._symbols or target._symbols, False
        target._nonnegative, target._clean = result._nonnegative, result._clean
        target._excess = result._excess
        target.__dict__.pop("_sum", None)
        target.__dict__.pop("_adds_to_one", None)
        target._recorded = target._version + 1
        return target


RULES: dict[OpOverload, Rule] = {}
FUNCTIONS: dict[Any, Callable[..., Any]] = {}


def rule(
    *operators: OpOverload, example: Callable[..., tuple] | None, in_place: bool = True
) -> Callable[[Callable], Callable]:
    """Register a rule. Its in-place and ``out=`` partners follow from it, unless the result is of another kind.

    ``example`` takes a factory ``t(*shape, low=-1, high=1)`` of operands and returns arguments of the operator.
    """

    def register(apply: Callable) -> Callable:
        for operator in operators:
            RULES[operator] = Rule(operator, apply, example, view=operator.is_view)
            name, overload = operator._schema.name.removeprefix("aten::"), operator._overloadname
            partners = getattr(aten, name + "_", None) if in_place and not operator.is_view else None
            if partners is not None and overload in partners.overloads():
                partner = getattr(partners, overload)
                RULES[partner] = Rule(partner, apply, example, writes=0)
            packet = operator._overloadpacket
            if in_place and overload == "default" and "out" in packet.overloads():
                RULES[packet.out] = Rule(packet.out, apply, None, writes="out")
        return apply

    return register


def replaces(*functions: Any) -> Callable[[Callable], Callable]:
    """Register what a PyTorch function does when an argument is bounded, before autograd decomposes it."""

    def register(replacement: Callable) -> Callable:
        FUNCTIONS.update(dict.fromkeys(functions, replacement))
        return replacement

    return register


def internal(forward: Callable) -> Callable:
    """The forward pass of an autograd function made of rules: below `__torch_function__`, as rules are."""

    @wraps(forward)
    def run(ctx: Any, *args: Any) -> Any:
        ctx.arithmetic = arithmetic_of(args)
        with torch._C.DisableTorchFunctionSubclass(), using(ctx.arithmetic):
            return forward(ctx, *args)

    return run


def first_order(backward: Callable) -> Callable:
    """Its backward pass, in the arithmetic of the forward pass, whichever thread PyTorch runs it in.

    Refuses ``create_graph=True``: a backward pass made of rules is not itself recorded, so terms would be lost.
    """

    @wraps(backward)
    def run(ctx: Any, *args: Any) -> Any:
        if torch.is_grad_enabled():
            raise UnsupportedOperator("second derivatives of this operator have no rule: drop create_graph=True")
        with torch._C.DisableTorchFunctionSubclass(), using(ctx.arithmetic):
            return backward(ctx, *args)

    return run


# --- making sets ----------------------------------------------------------------------------------------------------


def checked(operator: str, bounds: Tensor, symbols: Symbols | None) -> None:
    """Raise unless ``lower <= upper`` and both are finite. NaN fails every comparison, so it raises too."""
    if not bounds.numel():
        return
    lower, upper = bounds.unbind(0)
    least, most = torch.aminmax(upper - lower)
    if least.item() >= 0 and most.item() < math.inf:
        return
    step = symbols.steps if symbols is not None else None
    when = f" after {step} optimizer steps" if step is not None else ""
    crossed = int((lower > upper).sum())
    if crossed:
        raise CrossedBounds(
            f"{operator}: {crossed} lower bounds exceed their upper bounds{when}; no sound rule can give an empty set. "
            "Please report this with the program that led to it."
        )
    void = int((~torch.isfinite(upper - lower)).sum())
    raise VoidBounds(
        f"{operator}: {void} of {lower.numel()} bounds are infinite{when}: "
        "the set has blown up and says nothing any more. Use a smaller radius, fewer or smaller steps, or zonotopes.",
        step,
    )


def concretised(
    operator: str,
    bounds: Tensor,
    form: Form | None,
    symbols: Symbols | None,
    nonnegative: bool = False,
    clean: Clean | None = None,
    sharp: bool = True,
    factors: Factors | None = None,
) -> Bounded:
    """The set that is both in the interval and in the affine form.

    Where the interval is known to be as tight as the form can be, ``sharp=False`` saves the support function; of a
    product, its ``factors`` may make it cheaper.
    """
    if nonnegative:
        bounds = bounds.clamp_min(0.0)
    if not thread.arithmetic.outward:  # ends that should be the same may be computed to differ in their last digit
        bounds = torch.stack((bounds.amin(0), bounds.amax(0)))
    if form is None or not len(form.rows):
        form = None
    elif sharp:
        assert symbols is not None
        apart = clean is not None and form.rows.batch is not None
        reach = symbols.support(form, apart, factors)
        bounds = _within(bounds, form.center, rounding.up(reach[0] if apart else reach), form.radius)
        if clean is not None and clean.radius is not None:
            inner = _within(clean.bounds, form.center, reach[1] if apart else reach, clean.radius)
            clean = Clean(inner, clean.radius, clean.axis, clean.samples)
    checked(operator, bounds, symbols)
    if clean is not None:
        inner = clean.bounds.clamp_min(0.0) if nonnegative else clean.bounds
        checked(operator, inner, symbols)
        clean = Clean(inner, clean.radius if form is not None else None, clean.axis, clean.samples)
        if form is not None and clean.radius is not None:  # the form holds it where the sample was left alone, too
            form = Form(form.center, form.generators, form.radius.maximum(clean.radius), form.rows, form.axis)
    return Bounded(bounds, form, symbols, nonnegative=nonnegative, clean=clean)


def intersected(operator: str, x: Bounded, bounds: Tensor) -> Bounded:
    """The same set, of which other bounds are known, too."""
    bounds = _intersection(x._bounds, bounds)
    checked(operator, bounds, x._symbols)
    return Bounded(bounds, x._form, x._symbols, nonnegative=x._nonnegative, clean=x._clean)


def _within(bounds: Tensor, center: Tensor, reach: Tensor, radius: Tensor) -> Tensor:
    """Bounds intersected with ``center`` minus and plus what the symbols and the radius reach."""
    return _intersection(bounds, rounding.widened(center.expand(2, *center.shape), rounding.up(reach + radius)))


def _intersection(first: Tensor, second: Tensor) -> Tensor:
    return torch.stack((torch.maximum(first[0], second[0]), torch.minimum(first[1], second[1])))


def point(value: Tensor, symbols: Symbols | None = None) -> Bounded:
    """The set of one plain tensor."""
    rounding.unit(value.dtype)
    inner = value.detach().contiguous()  # as in a file, so that sets that were read again have the same bits
    return Bounded(inner.expand(2, *inner.shape), None, symbols, exact=True).laid_out_as(value)


def as_set(x: Any) -> Bounded:
    """A plain tensor as the set of itself; a set as it is."""
    return x if isinstance(x, Bounded) else point(x)


def nonnegative(*operands: Any) -> bool:
    """Whether every operand is known, by construction, never to be negative."""
    return all(x._nonnegative if isinstance(x, Bounded) else isinstance(x, int | float) and x >= 0 for x in operands)


def plain(x: Any) -> bool:
    """Whether an operand is one known value rather than a set."""
    return not isinstance(x, Bounded) or x._exact


def value(x: Any) -> Any:
    """The value of a plain operand."""
    return x._bounds[0] if isinstance(x, Bounded) else x


def own_axis(*operands: Any) -> tuple[list[Any], int | None]:
    """Operands of an elementwise operator and their common sample axis; own rows that do not fit are written out."""
    marked = [x for x in operands if has_own_rows(x)]
    if not marked:
        return list(operands), None
    form, shape = marked[0].form, _together(operands)
    assert form.axis is not None and form.rows.batch is not None
    fits = all(x.form.rows.batch is form.rows.batch and x.form.axis == form.axis for x in marked)
    written = (x.form.rows for x in operands if isinstance(x, Bounded) and x.affine)
    apart = not any(rows.meets(form.rows.batch) for rows in written)  # else the same symbol would count twice
    if fits and apart and shape[form.axis] == len(form.rows.batch):
        return list(operands), form.axis
    return [x.dense() if isinstance(x, Bounded) else x for x in operands], None


def _together(operands: Iterable[Any]) -> torch.Size:
    """The shape of an elementwise operator on these operands."""
    return torch.broadcast_shapes(*(x.shape for x in operands if isinstance(x, Tensor)))


def sample_axis(x: Any) -> int | None:
    """The axis of a tensor's samples, if it has own rows or knows what it is where its own sample was left alone."""
    if not isinstance(x, Bounded):
        return None
    if x.affine and x.form.axis is not None:
        return x.form.axis
    return x._clean.axis if x._clean is not None else None


def samples_of(*operands: Any) -> tuple[Samples, int] | None:
    """The samples along an axis on which all operands of an elementwise operator agree, and the axis."""
    known = [x._clean for x in operands if isinstance(x, Bounded) and x._clean is not None]
    if not known:
        return None
    samples, axis = known[0].samples, known[0].axis
    if any(clean.samples is not samples or clean.axis != axis for clean in known):
        return None
    if any(only_touched(x) for x in operands):
        return None
    shape = _together(operands)
    return (samples, axis) if len(shape) >= -axis and shape[axis] == samples.count else None


def has_own_rows(x: Any) -> bool:
    """Whether some rows of a tensor belong to the sample of each position."""
    return isinstance(x, Bounded) and x.affine and x.form.rows.batch is not None


def only_touched(x: Any) -> bool:
    """Whether a tensor has own rows, and it is not known what it is without them."""
    return has_own_rows(x) and x._clean is None


def symbols_of(*operands: Any) -> Symbols | None:
    """The symbol space of several operands."""
    found: Symbols | None = None
    for operand in operands:
        if isinstance(operand, Bounded):
            found = Symbols.common(found, operand._symbols)
    return found


def same_kind(*operands: Any) -> None:
    """Refuse to mix dtypes or devices; 0-dimensional plain tensors and integers convert as in PyTorch."""
    reference = next((x for x in operands if isinstance(x, Bounded) and x.dtype is not torch.bool), None)
    if reference is None:
        return
    dtype, device = reference.dtype, reference.device
    for x in operands:
        if x is reference or not isinstance(x, Tensor) or (x.dim() == 0 and not isinstance(x, Bounded)):
            continue
        if x.device != device:
            raise MixedTensors(f"tensors on {x.device} and {device} met: move one with .to()")
        if x.dtype is not dtype and x.is_floating_point():
            raise MixedTensors(f"{x.dtype} and {dtype} met: convert one with .to(), which widens it")


def _decided(x: Bounded) -> float | bool:
    low, high = x._bounds.unbind(0)
    if not bool((low == high).all()):
        what = "this condition" if x.dtype is torch.bool else "this value"
        raise Undecided(
            f"{what} is not the same for every tensor in the set ({x!r}). Read the center explicitly for logging "
            "(`loss.center.item()`), or use .lower and .upper."
        )
    return low.item()


@rule(aten._local_scalar_dense.default, example=None)
def local_scalar(x: Bounded) -> float | bool:
    """``item()``: allowed when there is one answer."""
    return _decided(x)


@replaces(torch.Tensor.__bool__)
def truth(x: Bounded) -> bool:
    """``bool()``: a set that excludes zero is true."""
    x._checked()
    low, high = x._bounds.unbind(0)
    if x.dtype is not torch.bool and bool(((low > 0) | (high < 0)).all()):
        return True
    return bool(_decided(x))


@replaces(torch.Tensor.data.__get__, torch.Tensor.data.__set__)  # type: ignore[attr-defined]
def data(*args: Any) -> Any:
    """``.data`` gives a second name whose changes no version counter sees."""
    raise StaleAlias("`.data` hides changes from the bounds: use .detach(), .center, or an in-place operator")


@replaces(torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.__array__)
def to_numpy(x: Bounded, *args: Any, **kwargs: Any) -> Any:
    """A set has no single array."""
    raise Undecided("a set has no single array: use .center, .lower or .upper")
