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
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..arithmetic.thread_context import OUTWARD, thread, using
from ..fast.steps.deferred_checks import require_order
from ..symbols.space import Symbols
from .clean_state import Excess, Remainder
from .factors import Factors
from .forms import Form, ball_form
from .sample_axis import SampleAxis

if TYPE_CHECKING:
    from ..rules.linear import Remembered


class Set:
    """A set of tensors. ``clean`` says what it is where its own sample was left alone; ``along`` is the sample axis.

    The sample axis is there as long as there are own rows or a clean state, both of which speak of it.
    """

    __slots__ = (
        "_form",
        "adds_to_one",
        "affine",
        "along",
        "bounds",
        "clean",
        "device",
        "dtype",
        "exact",
        "excess",
        "nonnegative",
        "parameter",
        "product",
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
        clean: Remainder | None = None,
        along: SampleAxis | None = None,
    ):
        self.bounds = bounds
        self.dtype, self.device = bounds.dtype, bounds.device
        self._form = form
        self.affine = False  # whether there are generator rows
        self.symbols = symbols
        self.exact = exact  # a point by construction: lower is upper
        self.nonnegative = nonnegative  # by construction, as squares are: rounding must not make it negative
        self.clean = clean
        self.along = along if clean is not None else None
        if form is not None:
            self.affine = len(form.rows) > 0
            if form.along is not None:
                if along != form.along:
                    self.clean = None  # one sample axis: otherwise own rows of other samples would be taken for clean
                self.along = form.along
        assert self.clean is None or self.along is not None, "a clean state is that of samples along an axis"
        self.excess: Excess | None = None  # what touched samples add to a sum over a piece of a batch
        self.adds_to_one = False  # class weights of a target, whichever class it is: known to the loss alone
        self.parameter = False  # of a model that is being trained
        self.remembered: Remembered | None = None
        self.product: Factors | None = None  # the matrix product it is, if the first factor is a point: for a softmax

    @property
    def rough(self) -> Set:
        """The set with the bounds it has so far: those of a set that waits for its support are the same, or narrower.

        For rules that look at differences of its elements, which have supports of their own.
        """
        return self

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
            if self.exact:
                self._form = ball_form(self.bounds[0], torch.zeros_like(self.bounds[0]))
            else:
                with using(OUTWARD):  # it is kept, and may be asked for later where roundings are charged
                    self._form = ball_form(*rounding.middle(self.bounds))
        return self._form

    @property
    def center(self) -> Tensor:
        """The center of the form, which a set of one point need not make."""
        return self.bounds[0] if self.exact else self.form.center

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
        if self.along is None:
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
            form = replace(form, radius=self.clean.radius, taken=(form, lambda reach, lead: reach))
        else:
            form = ball_form(form.center, rounding.deviation(self.clean.bounds, form.center))
        return Set(self.clean.bounds, form, self.symbols, nonnegative=self.nonnegative)


class PendingSupport(NamedTuple):
    """A set before its support was asked for, and how to ask: of its own form alone, which nobody writes to.

    Both hold the same tensors, so either may be taken at any time.
    """

    rough: Set
    sharpened: Callable[[], Set]


class WaitingSet(Set):
    """A set whose ``bounds`` and ``clean`` are there once somebody asks for one of them, and its support with that."""

    __slots__ = ("waiting",)
    waiting: PendingSupport | None

    def __getattr__(self, name: str) -> Any:
        """What was waiting for somebody to ask; both are there now."""
        waiting = self.waiting if name in ("bounds", "clean") else None
        if waiting is None:
            return object.__getattribute__(self, name)  # made sharp by another thread meanwhile, or not there at all
        sharp = waiting.sharpened()
        self.clean, self.bounds = sharp.clean, sharp.bounds
        self.waiting = None
        return sharp.bounds if name == "bounds" else sharp.clean

    @property
    def rough(self) -> Set:
        waiting = self.waiting  # read once: another thread may ask meanwhile
        return self if waiting is None else waiting.rough

    @property
    def shape(self) -> torch.Size:
        """Known without the support."""
        return self.rough.bounds.shape[1:]


def _waiting(rough: Set, sharpened: Callable[[], Set]) -> WaitingSet:
    """The same set, whose support is asked for where somebody looks at its bounds: in the arithmetic of now.

    Rows are looked through the expansion of now, too. Where that is gone, after a reduction, the rough set has to do.
    """
    symbols, arithmetic = rough.symbols, thread.arithmetic
    assert symbols is not None
    expansion = symbols.expansion

    def asked() -> Set:
        if symbols.expansion is not expansion:
            return rough
        with using(arithmetic):
            return sharpened()

    made = WaitingSet(rough.bounds, rough._form, symbols, False, rough.nonnegative, rough.clean, rough.along)
    made.waiting = PendingSupport(rough, asked)
    del made.bounds, made.clean
    return made


class Check(Enum):
    """What is still to be looked at where an interval is made."""

    EVERYTHING = 1
    OVERFLOW = 2  # ends are in order: a center -+ a radius, or monotone operations on ends in order, moved outwards
    NOTHING = 3  # ends of a checked set, clamped


def checked(operator: str, bounds: Tensor, symbols: Symbols | None, check: Check = Check.EVERYTHING) -> None:
    """Raise unless ``lower <= upper`` and both are finite. NaN fails every comparison, so it raises too.

    Numbers with a finite sum are all finite: of ends that are in order nothing else needs to be looked at.
    """
    if check is Check.NOTHING or not bounds.numel():
        return
    arithmetic = thread.arithmetic
    at_once = arithmetic.deferred is None and arithmetic.late is None
    if check is Check.OVERFLOW and at_once and math.isfinite(bounds.sum().item()):
        return
    lower, upper = bounds.unbind(0)
    if arithmetic.deferred is not None:
        width = upper - lower
        arithmetic.deferred.append(((width >= 0) & (width < math.inf)).all())
        return
    least, most = torch.aminmax(upper - lower)
    late = arithmetic.late
    if late is not None and not late.over and bounds.is_cuda:
        late.hold(operator, symbols.steps if symbols is not None else None, least, most)
    elif not (least.item() >= 0 and most.item() < math.inf):
        crossed = int((lower > upper).sum())
        which = f"{crossed or int((~torch.isfinite(upper - lower)).sum())} of {lower.numel()}"
        step = symbols.steps if symbols is not None else None
        require_order(operator, step, -1.0 if crossed else 0.0, math.inf, which)


def concretised(
    operator: str,
    bounds: Tensor,
    form: Form | None,
    symbols: Symbols | None,
    nonnegative: bool = False,
    clean: Remainder | None = None,
    sharp: bool = True,
    factors: Factors | None = None,
    check: Check = Check.EVERYTHING,
    along: SampleAxis | None = None,
    waits: bool = False,
    comes_again: bool = False,
) -> Set:
    """The set that is both in the interval and in the affine form.

    Where the interval is known to be as tight as the form can be, ``sharp=False`` saves the support function; of a
    product, its ``factors`` may make it cheaper. A set that ``waits`` gets its support where somebody asks for its
    bounds. Where its form ``comes_again``, times a number for each sample, its coefficients may be kept. ``check`` says
    what is not known of the interval yet; of one that is intersected with a form, nothing is.
    """
    if waits and sharp and form is not None and len(form.rows) and bool(torch.isfinite(bounds).all()):
        assert factors is None, "factors may share the memory of the user, who may write to it before somebody asks"
        ask = partial(concretised, operator, bounds, form, symbols, nonnegative, clean, True, along=along)
        return _waiting(concretised(operator, bounds, form, symbols, nonnegative, clean, False, along=along), ask)
    if nonnegative and check is not Check.NOTHING:
        bounds = bounds.clamp_min(0.0)
    bounds = _in_order(bounds)
    if form is None or not len(form.rows):
        form = None
    elif sharp:
        assert symbols is not None
        apart = clean is not None and form.rows.batch is not None
        reach = symbols.support(form, apart, factors, comes_again)
        bounds = _in_order(_within(bounds, form.center, reach[0] if apart else reach, form.radius))
        check = Check.EVERYTHING
        if clean is not None and clean.radius is not None:
            inner = _within(clean.bounds, form.center, reach[1] if apart else reach, clean.radius)
            clean = Remainder(inner, clean.radius)
    checked(operator, bounds, symbols, check)
    if clean is not None:
        inner = _in_order(clean.bounds.clamp_min(0.0) if nonnegative else clean.bounds)
        checked(operator, inner, symbols)
        clean = Remainder(inner, clean.radius if form is not None else None)
        if form is not None and clean.radius is not None:  # the form holds it where the sample was left alone, too
            form = form.with_radius(form.radius.maximum(clean.radius))
    return Set(bounds, form, symbols, nonnegative=nonnegative, clean=clean, along=along)


def _in_order(bounds: Tensor) -> Tensor:
    """With roundings switched off, ends that should be the same may be computed to differ in their last digits."""
    return bounds if thread.arithmetic.outward else torch.stack((bounds.amin(0), bounds.amax(0)))


def intersected(operator: str, x: Set, bounds: Tensor) -> Set:
    """The same set, whose interval is cut by another one; its form stays as it is."""
    bounds = _intersection(x.bounds, bounds)
    checked(operator, bounds, x.symbols)
    return Set(bounds, x._form, x.symbols, nonnegative=x.nonnegative, clean=x.clean, along=x.along)


def _within(bounds: Tensor, center: Tensor, reach: Tensor, radius: Tensor) -> Tensor:
    """Bounds intersected with ``center`` minus and plus what the symbols and the radius reach."""
    return _intersection(bounds, rounding.around(center, rounding.up(reach + radius)))


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
