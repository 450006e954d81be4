"""Set: a set of tensors, the value that rules compute with.

    S = { c + sum_k G_k xi_k + rho zeta  :  xi the symbols, zeta in [-1, 1]^shape }  intersected with  [lower, upper]

The interval is always there, stacked as ``bounds = (lower, upper)``; the affine form is there when there are
generator rows (K > 0). With K = 0 the interval is the whole set, and center and radius are read off it.

Why the intersection is sound: for every execution w (one dataset, one order of roundings) there is *one* value
xi(w) of the symbols such that every tensor T satisfies both ``T(w) = c + G xi(w) + rho zeta(w)`` and
``lower <= T(w) <= upper``. So slopes and gates may be chosen on the interval although the affine form leaves it.
Never move c to the middle of the interval or shrink G and rho to fit it: that would change what xi means.

A set is never changed: an in-place operator gives its tensor another set. `Bounded` is the tensor that PyTorch sees.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeGuard, TypeVar, overload

import numpy as np
import torch
from torch import Tensor

from . import rounding
from .clean_state import Clean, Excess, Samples
from .context import thread
from .errors import CrossedBounds, MixedTensors, VoidBounds
from .factors import Factors
from .forms import Form, ball_form
from .rows import Rows
from .symbols import Symbols

if TYPE_CHECKING:
    from .rules.linear import Remembered


class Set:
    """A set of tensors. ``clean`` says what it is where its own sample was left alone."""

    __slots__ = (
        "_form",
        "adds_to_one",
        "affine",
        "bounds",
        "clean",
        "device",
        "dtype",
        "exact",
        "excess",
        "nonnegative",
        "parameter",
        "remembered",
        "symbols",
    )

    def __init__(
        self,
        bounds: Tensor,
        form: Form | None = None,
        symbols: Symbols | None = None,
        exact: bool = False,
        nonnegative: bool = False,
        clean: Clean | None = None,
    ):
        self.bounds = bounds
        self.dtype, self.device = bounds.dtype, bounds.device
        self._form = form
        self.affine = form is not None and len(form.rows) > 0  # whether there are generator rows
        self.symbols = symbols
        self.exact = exact  # a point by construction: lower is upper
        self.nonnegative = nonnegative  # by construction, as squares are: rounding must not make it negative
        if clean is not None and form is not None and form.rows.batch is not None:
            # one sample axis, one batch: otherwise own rows of other samples would be taken for clean
            same = clean.axis == form.axis and np.array_equal(clean.samples.numbers, form.rows.batch.samples)
            clean = clean if same else None
        self.clean = clean
        self.excess: Excess | None = None  # what touched samples add to a sum over a piece of a batch
        self.adds_to_one = False  # class weights of a target, whichever class it is: known to the loss alone
        self.parameter = False  # of a model that is being trained
        self.remembered: Remembered | None = None

    # --- as a tensor ------------------------------------------------------------------------------------------

    @property
    def shape(self) -> torch.Size:
        return self.bounds.shape[1:]

    def dim(self) -> int:
        return self.bounds.dim() - 1

    def numel(self) -> int:
        return self.bounds.numel() // 2

    def is_floating_point(self) -> bool:
        return self.bounds.is_floating_point()

    def __len__(self) -> int:
        return self.bounds.shape[1]

    # --- as a set ---------------------------------------------------------------------------------------------

    @property
    def form(self) -> Form:
        """The affine form; of an interval, the ball around its middle."""
        if self._form is None:
            low = self.bounds[0]
            self._form = ball_form(*((low, torch.zeros_like(low)) if self.exact else rounding.middle(self.bounds)))
        return self._form

    @property
    def deviation(self) -> Tensor:
        """s of every rule: how far a value can be from the center, by the interval or by the form, the smaller."""
        return torch.minimum(rounding.deviation(self.bounds, self.form.center), self.form.reach)

    @property
    def step(self) -> int | None:
        """How many optimizer steps its space has seen: what errors report."""
        return self.symbols.steps if self.symbols is not None else None

    def dense(self) -> Set:
        """The same set with every own row written out, and without a sample axis: for rules that mix positions."""
        if self.clean is None and (self._form is None or self._form.rows.batch is None):
            return self
        form = self._form.dense if self._form is not None else None
        return Set(self.bounds, form, self.symbols, self.exact, self.nonnegative)

    def without_clean(self) -> Set:
        """The same set, of which it is not known any more what it is where a sample was left alone: always sound."""
        return Set(self.bounds, self._form, self.symbols, self.exact, self.nonnegative)

    @property
    def untouched(self) -> Set:
        """The set where the own sample of each position was left alone: same center and rows, a smaller radius."""
        if self.clean is None:
            return self
        form = self.form
        if self.clean.radius is not None:
            form = Form(form.center, form.generators, self.clean.radius, form.rows, form.axis)
            form.__dict__["reach"] = self.form.reach
        else:
            form = ball_form(form.center, rounding.deviation(self.clean.bounds, form.center))
        return Set(self.clean.bounds, form, self.symbols, nonnegative=self.nonnegative)


Operand = Set | Tensor | float  # of a rule; where one has a shape in any case, ``Set | Tensor``
Part = TypeVar("Part", Set, Set | Tensor, Operand)


class Remainder(NamedTuple):
    """What is known besides the linear part: the interval, and how far values are off the form (None without rows)."""

    bounds: Tensor
    radius: Tensor | None


class Linear(NamedTuple):
    """The linear part of an affine form: it is one and the same in every state."""

    center: Tensor
    generators: Tensor
    rows: Rows
    axis: int | None


class States(Generic[Part]):
    """The states of an operator's operands: as they are, and, under a budget, where the own sample was left alone.

    A rule says what it does to the linear part, once, and what it does to a remainder, for each state:

        over = States(a, b)
        over.result("mul", [remainder(x, y) for x, y in over.views], linear, ...)

    The second state is there if all operands agree on whose samples they hold.
    """

    def __init__(self, *operands: Part, found: tuple[Samples, int] | None | bool = True):
        self.operands: tuple[Part, ...] = operands
        self.views: list[tuple[Part, ...]] = [operands]
        if found is True:
            found = None
            for x in operands:
                if type(x) is Set and x.clean is not None:
                    found = samples_of(*operands)
                    break
        self.found: tuple[Samples, int] | None = found or None
        if self.found is not None:
            self.views.append(tuple(x.untouched if isinstance(x, Set) else x for x in operands))

    def result(
        self,
        name: str,
        remainders: Sequence[Remainder],
        linear: Linear | None = None,
        *,
        nonnegative: bool = False,
        sharp: bool = True,
        factors: Factors | None = None,
        keeps_order: bool = False,
    ) -> Set:
        """The set with this linear part and these remainders, one for each state."""
        (bounds, radius), form = remainders[0], None
        if linear is not None:
            assert radius is not None
            form = Form(linear.center, linear.generators, radius, linear.rows, linear.axis)
        clean = None
        if self.found is not None:
            samples, axis = self.found
            clean = Clean(*remainders[1], axis, samples)
        symbols = symbols_of(*self.operands)
        keeps_order = keeps_order and not (sharp and form is not None)
        return concretised(name, bounds, form, symbols, nonnegative, clean, sharp, factors, keeps_order)


def checked(operator: str, bounds: Tensor, symbols: Symbols | None) -> None:
    """Raise unless ``lower <= upper`` and both are finite. NaN fails every comparison, so it raises too."""
    if not bounds.numel():
        return
    lower, upper = bounds.unbind(0)
    if thread.arithmetic.deferred is not None:
        width = upper - lower
        thread.arithmetic.deferred.append(((width >= 0) & (width < math.inf)).all())
        return
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
    keeps_order: bool = False,
) -> Set:
    """The set that is both in the interval and in the affine form.

    Where the interval is known to be as tight as the form can be, ``sharp=False`` saves the support function; of a
    product, its ``factors`` may make it cheaper. Where ends are clamped and nothing is added, the interval of a
    checked set ``keeps_order`` and is finite: it is not checked again.
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
        bounds = _within(bounds, form.center, reach[0] if apart else reach, form.radius)
        if clean is not None and clean.radius is not None:
            inner = _within(clean.bounds, form.center, reach[1] if apart else reach, clean.radius)
            clean = clean.but(inner, clean.radius)
    if not keeps_order:
        checked(operator, bounds, symbols)
    if clean is not None:
        inner = clean.bounds.clamp_min(0.0) if nonnegative else clean.bounds
        checked(operator, inner, symbols)
        clean = clean.but(inner, clean.radius if form is not None else None)
        if form is not None and clean.radius is not None:  # the form holds it where the sample was left alone, too
            form = Form(form.center, form.generators, form.radius.maximum(clean.radius), form.rows, form.axis)
    return Set(bounds, form, symbols, nonnegative=nonnegative, clean=clean)


def intersected(operator: str, x: Set, bounds: Tensor) -> Set:
    """The same set, whose interval is cut by another one; its form stays as it is."""
    bounds = _intersection(x.bounds, bounds)
    checked(operator, bounds, x.symbols)
    return Set(bounds, x._form, x.symbols, nonnegative=x.nonnegative, clean=x.clean)


def _within(bounds: Tensor, center: Tensor, reach: Tensor, radius: Tensor) -> Tensor:
    """Bounds intersected with ``center`` minus and plus what the symbols and the radius reach."""
    return _intersection(bounds, rounding.widened(center.expand(2, *center.shape), rounding.up(reach + radius)))


def _intersection(first: Tensor, second: Tensor) -> Tensor:
    return torch.stack((torch.maximum(first[0], second[0]), torch.minimum(first[1], second[1])))


def point(value: Tensor, symbols: Symbols | None = None) -> Set:
    """The set of one plain tensor."""
    rounding.unit(value.dtype)
    inner = value.detach().contiguous()  # as in a file, so that sets that were read again have the same bits
    return Set(inner.expand(2, *inner.shape), None, symbols, exact=True)


def as_set(x: Set | Tensor) -> Set:
    """A plain tensor as the set of itself; a set, or the set of a tensor that has one."""
    if isinstance(x, Set):
        return x
    found: Set | None = getattr(x, "set", None)
    return found if found is not None else point(x)


def nonnegative(*operands: Operand) -> bool:
    """Whether every operand is known, by construction, never to be negative."""
    return all(x.nonnegative if isinstance(x, Set) else isinstance(x, int | float) and x >= 0 for x in operands)


def plain(x: Operand | None) -> bool:
    """Whether an operand is one known value rather than a set."""
    if type(x) is Set:
        return x.exact
    assert getattr(x, "set", None) is None, "rules are given sets, not the tensors that hold them"
    return True


def varies(x: Operand | None) -> TypeGuard[Set]:
    """Whether an operand is a set of several values: one that is not plain."""
    if type(x) is Set:
        return not x.exact
    assert getattr(x, "set", None) is None, "rules are given sets, not the tensors that hold them"
    return False


@overload
def value(x: Set | Tensor) -> Tensor: ...


@overload
def value(x: float) -> float: ...


def value(x: Operand) -> Tensor | float:
    """The value of a plain operand."""
    return x.bounds[0] if isinstance(x, Set) else x


def own_axis(*operands: Part) -> tuple[list[Part], int | None]:
    """Operands of an elementwise operator and their common sample axis; own rows that do not fit are written out."""
    marked = [x for x in operands if type(x) is Set and x.affine and x.form.rows.batch is not None]
    if not marked:
        return list(operands), None
    form, shape = marked[0].form, _together(operands)
    assert form.axis is not None and form.rows.batch is not None
    fits = all(x.form.rows.batch is form.rows.batch and x.form.axis == form.axis for x in marked)
    written = (x.form.rows for x in operands if isinstance(x, Set) and x.affine)
    apart = not any(rows.meets(form.rows.batch) for rows in written)  # else the same symbol would count twice
    if fits and apart and shape[form.axis] == len(form.rows.batch):
        return list(operands), form.axis
    return [x.dense() if isinstance(x, Set) else x for x in operands], None


def _together(operands: Iterable[Operand | None]) -> torch.Size:
    """The shape of an elementwise operator on these operands."""
    shapes = (x.shape for x in operands if isinstance(x, Tensor | Set))
    shape: torch.Size = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    return shape


def sample_axis(x: Operand | None) -> int | None:
    """The axis of a tensor's samples, if it has own rows or knows what it is where its own sample was left alone."""
    if not isinstance(x, Set):
        return None
    if x.affine and x.form.axis is not None:
        return x.form.axis
    return x.clean.axis if x.clean is not None else None


def samples_of(*operands: Operand | None) -> tuple[Samples, int] | None:
    """The samples along an axis on which all operands of an elementwise operator agree, and the axis."""
    known = [x.clean for x in operands if type(x) is Set and x.clean is not None]
    if not known:
        return None
    samples, axis = known[0].samples, known[0].axis
    if any(clean.samples is not samples or clean.axis != axis for clean in known):
        return None
    if any(only_touched(x) for x in operands):
        return None
    shape = _together(operands)
    return (samples, axis) if len(shape) >= -axis and shape[axis] == samples.count else None


def reference(a: Operand, b: Operand) -> Set:
    """The first of two operands that is a set: one of them is."""
    if isinstance(a, Set):
        return a
    assert isinstance(b, Set)
    return b


def has_own_rows(x: Operand | None) -> TypeGuard[Set]:
    """Whether some rows of a tensor belong to the sample of each position."""
    return isinstance(x, Set) and x.affine and x.form.rows.batch is not None


def only_touched(x: Operand | None) -> bool:
    """Whether a tensor has own rows but no clean state."""
    return has_own_rows(x) and x.clean is None


def symbols_of(*operands: Operand | None) -> Symbols | None:
    """The symbol space of several operands."""
    found: Symbols | None = None
    for operand in operands:
        if type(operand) is Set and operand.symbols is not found:
            found = Symbols.common(found, operand.symbols)
    return found


def same_kind(*operands: Operand | None) -> None:
    """Refuse to mix dtypes or devices; 0-dimensional plain tensors and integers convert as in PyTorch."""
    for reference in operands:
        if type(reference) is Set and reference.dtype is not torch.bool:
            break
    else:
        return
    dtype, device = reference.dtype, reference.device
    for x in operands:
        if x is reference or isinstance(x, int | float) or x is None or (x.dim() == 0 and type(x) is not Set):
            continue
        if x.device != device:
            raise MixedTensors(f"tensors on {x.device} and {device} met: move one with .to()")
        if x.dtype is not dtype and x.is_floating_point():
            raise MixedTensors(f"{x.dtype} and {dtype} met: convert one with .to(), which widens it")
