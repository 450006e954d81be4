"""Bilinear operators f(a, b): products, matrix products, convolutions.

With a = ca + Ga xi + rho_a zeta, |a - ca| <= s_a, and the same for b:

    c   = f(ca, cb)
    G   = f(Ga, cb) + f(ca, Gb)
    rho = |f|(s_a, s_b) + |f|(|ca|, rho_b) + |f|(rho_a, |cb|)  +  gamma |f|(|ca| + sigma_a, |cb| + sigma_b)

Proof: expand f(ca + da, cb + db); f(ca, cb) and the terms linear in xi are c and G, f(ca, rho_b zeta) and
f(rho_a zeta, cb) are bounded by moduli, and so is f(da, db). The last term pays for rounding (`rounding.py`).

With K = 0 contractions use the first three lines as they stand (Rump 1999); elementwise products and quotients use
the exact hull of the four corners, and ``x * x`` with one and the same object is a square.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from .. import rounding
from ..bounded import aten, replaces, rule
from ..clean_state import Excess, OwnRows, Samples, without_own
from ..context import keeps_by_sample
from ..factors import Factors
from ..forms import Form
from ..rows import NO_ROWS, Rows
from ..sets import (
    Linear,
    Operand,
    Remainder,
    Set,
    States,
    as_set,
    concretised,
    has_own_rows,
    only_touched,
    plain,
    point,
    reference,
    same_kind,
    sample_axis,
    symbols_of,
    value,
    varies,
)
from ..tuning import SUM_TERMS
from .corners import within_corners
from .linear import as_tensor, combination
from .structural import selected

Product = Callable[[Tensor, Tensor], Tensor]


def linear_product(a: Operand, b: Operand, f: Product, left: Product, right: Product, axis: int | None) -> Linear:
    """The linear part; ``left`` and ``right`` are f with generator rows on its first or second operand.

    Own rows are rows like any other, because positions stay apart; ``axis`` is where the sample axis ends up.
    """
    generators, rows = _row_products(a, b, left, right)
    return Linear(center_of_product(a, b, f), generators, rows, axis if rows.batch is not None else None)


def _row_products(a: Operand, b: Operand, left: Product, right: Product) -> tuple[Tensor, Rows]:
    """``f(Ga, cb) + f(ca, Gb)`` over the common rows."""
    first, second = (x.form if isinstance(x, Set) and not x.exact else None for x in (a, b))
    rows = NO_ROWS
    for form in (first, second):
        rows = rows.union(form.rows) if form is not None else rows
    generators = None
    if first is not None and len(first.rows):
        other = second.center if second is not None else as_tensor(b, first.center)
        generators = left(rows.place(first.generators, first.rows), other)
    if second is not None and len(second.rows):
        other = first.center if first is not None else as_tensor(a, second.center)
        products = right(other, rows.place(second.generators, second.rows))
        generators = products if generators is None else generators.add_(products)
    assert generators is not None
    return generators, rows


def center_of_product(a: Operand, b: Operand, f: Product) -> Tensor:
    """``f(ca, cb)``."""
    first, second = (x.form.center if isinstance(x, Set) and not x.exact else None for x in (a, b))
    like = first if first is not None else second
    assert like is not None
    return f(as_tensor(a, like) if first is None else first, as_tensor(b, like) if second is None else second)


def radius_of_product(a: Operand, b: Operand, f: Product, terms: float) -> Tensor:
    """How far the product can be off its linear part."""
    like = reference(a, b)
    charge, lost = rounding.gamma(terms, like.dtype), rounding.tiny(terms, like.dtype)
    if varies(a) and varies(b):
        first, second = a.form, b.form
        rounded = charge * second.modulus
        radius = f(first.center.abs(), rounding.up(second.radius + rounded)) + f(first.reach, rounded)
        radius = radius + f(a.deviation, b.deviation) + f(first.radius, second.center.abs())
    elif varies(a):
        radius = f(rounding.up(a.form.radius + charge * a.form.modulus), as_tensor(b, a.bounds).abs())
    else:
        assert isinstance(b, Set)
        radius = f(as_tensor(a, b.bounds).abs(), rounding.up(b.form.radius + charge * b.form.modulus))
    return rounding.up(radius) + lost


def _ball_product(a: Set | Tensor, b: Set | Tensor, f: Product, terms: float) -> tuple[Tensor, Tensor]:
    """Rump's product of two balls, rounding included: three products, or two when one operand is a point."""
    like = reference(a, b)
    charge, lost = rounding.gamma(terms, like.dtype), rounding.tiny(terms, like.dtype)
    if varies(a) and varies(b):
        (center_a, radius_a), (center_b, radius_b) = _middle(a), _middle(b)
        modulus_b = center_b.abs()
        inner = torch.add(radius_b, modulus_b + radius_b, alpha=charge)
        radius = f(center_a.abs() + radius_a, inner).add_(f(radius_a, modulus_b))
        return f(center_a, center_b), radius.add_(lost)
    if isinstance(b, Set) and plain(a):
        y, (center, radius) = value(a), _middle(b)
        wide = radius + charge * (center.abs() + radius)
        return f(y, center), f(y.abs(), wide).add_(lost)
    y, (center, radius) = value(b), _middle(like)  # a is the set
    wide = radius + charge * (center.abs() + radius)
    return f(center, y), f(wide, y.abs()).add_(lost)


def _middle(x: Set) -> tuple[Tensor, Tensor]:
    """Middle and half width of the interval; the cached form has them when there are no rows."""
    if x.affine:
        return rounding.middle(x.bounds)
    return x.form.center, x.form.radius


Rule = Callable[[Set | Tensor, Set | Tensor], tuple[Set | Tensor, Set | Tensor, int | None]]


def apart(a: Set | Tensor, b: Set | Tensor) -> tuple[Set | Tensor, Set | Tensor, int | None]:
    """For operators that mix all positions: own rows are written out before."""
    a, b = (x.dense() if isinstance(x, Set) else x for x in (a, b))
    return a, b, None


def contraction(
    name: str,
    a: Set | Tensor,
    b: Set | Tensor,
    f: Product,
    left: Product,
    right: Product,
    terms: float,
    bias: Set | Tensor | None = None,
    samples: Rule = apart,
) -> Set:
    """A bilinear operator that sums ``terms`` products, and adds a bias (which counts among the terms).

    ``samples`` says where the sample axis of the operands ends up.
    """
    same_kind(a, b, bias)
    rounding.require_full_precision(reference(a, b))
    if any(isinstance(x, Set) and x.affine for x in (a, b, bias)):
        if bias is not None:
            product = _affine_contraction(name, a, b, f, left, right, terms, samples, sharp=False)
            factors = _factors(a, b, bias) if samples is matrix_samples else None
            product = combination(name, [(product, 1.0), (bias, 1.0)], terms=terms + 3, factors=factors)
        else:
            product = _affine_contraction(name, a, b, f, left, right, terms, samples)
        return within_corners(name, product, a, b, bias, terms) if samples is matrix_samples else product
    if samples is matrix_samples and _clean_samples(a, b) is not None:
        product = _affine_contraction(name, a, b, f, left, right, terms, samples)
        return product if bias is None else combination(name, [(product, 1.0), (bias, 1.0)], terms=terms + 3)

    def interval(a: Set | Tensor, b: Set | Tensor, bias: Set | Tensor | None = None) -> Tensor:
        center, radius = _ball_product(a, b, f, terms + 2)
        if bias is not None:
            ball: tuple[Tensor, Tensor | float] = _middle(bias) if varies(bias) else (value(bias), 0.0)
            middle, spread = ball
            center = center + middle
            radius = torch.add(radius + spread, middle.abs() + spread, alpha=rounding.gamma(terms + 2, center.dtype))
        return rounding.around(center, radius)

    if not any(isinstance(x, Set) and x.clean is not None for x in (a, b)):
        return concretised(name, interval(a, b, bias), None, symbols_of(a, b, bias))
    over = _apart_states(a, b, samples(a, b)[2], *(() if bias is None else (bias,)))
    views = [over.views[0], *(tuple(map(_interval_alone, view)) for view in over.views[1:])]
    return over.result(name, [Remainder(interval(*view), None) for view in views])


def _affine_contraction(
    name: str,
    a: Set | Tensor,
    b: Set | Tensor,
    f: Product,
    left: Product,
    right: Product,
    terms: float,
    samples: Rule,
    sharp: bool = True,
) -> Set:
    """Without a bias. With one, the sum is made sharp, not this."""
    affine = any(isinstance(x, Set) and x.affine for x in (a, b))
    excess, own = None, _own_terms(a, b) if samples is matrix_samples and _summed_over_samples(a, b) else None
    if samples is matrix_samples and _clean_samples(a, b) is not None:
        excess = _worst_product(a, b, terms, affine, own)
    bounds = excess.bounds() if excess is not None else rounding.around(*_ball_product(a, b, f, terms))
    if not affine:
        over = _apart_states(a, b, samples(a, b)[2] if excess is None else None)
        intervals = [bounds, *(_interval(x, y, f, terms) for x, y in over.views[1:])]
        return _with_excess(over.result(name, [Remainder(interval, None) for interval in intervals]), excess)
    if samples is matrix_samples and _summed_over_samples(a, b):
        form = _sample_sum_form(a, b, f, left, right, terms, excess, own)
        sharp = sharp and not keeps_by_sample()  # of all pieces together, not of each (`chunks.py`)
        return _with_excess(concretised(name, bounds, form, symbols_of(a, b), sharp=sharp), excess)
    a, b, axis = samples(a, b)
    linear = linear_product(a, b, f, left, right, axis)
    over = _apart_states(a, b, axis)
    remainders = [Remainder(bounds, radius_of_product(a, b, f, terms))]
    remainders += [Remainder(_interval(x, y, f, terms), radius_of_product(x, y, f, terms)) for x, y in over.views[1:]]
    factors = _factors(a, b, None) if samples is matrix_samples and sharp else None
    return over.result(name, remainders, linear, sharp=sharp, factors=factors)


def _factors(a: Set | Tensor, b: Set | Tensor, bias: Set | Tensor | None) -> Factors | None:
    """A product by its factors, if none of them lets samples meet; own rows are left to the product."""
    if sample_axis(b) is not None or (bias is not None and (bias.dim() != 1 or sample_axis(bias) is not None)):
        return None
    if sample_axis(a) not in (-2, None):
        return None
    return Factors(_without_own(a), _without_own(b), None if bias is None else _without_own(bias))


def _without_own(x: Set | Tensor) -> Form:
    form = as_set(x).form
    if form.rows.batch is None:
        return form
    rest, where, _ = form.rows.split()
    return Form(form.center, form.generators[where.to(form.center.device)], form.radius, rest)


def _with_excess(total: Set, excess: Excess | None) -> Set:
    total.excess = excess if keeps_by_sample() else None
    return total


def _apart_states(a: Set | Tensor, b: Set | Tensor, axis: int | None, *others: Set | Tensor) -> States[Set | Tensor]:
    """The states of a product that leaves samples apart, on this axis: one of the factors may know its clean state."""
    known = [x.clean for x in (a, b) if isinstance(x, Set) and x.clean is not None]
    if axis is None or len(known) != 1 or any(only_touched(x) for x in (a, b)):
        return States(a, b, *others, found=None)
    return States(a, b, *others, found=(known[0].samples, axis))


def _interval(a: Set | Tensor, b: Set | Tensor, f: Product, terms: float) -> Tensor:
    """The interval of a product of two intervals, whatever their forms are."""
    return rounding.around(*_ball_product(_interval_alone(a), _interval_alone(b), f, terms))


def _interval_alone(x: Set | Tensor) -> Set | Tensor:
    """An operand without its form: where samples were left alone, the form still has the center of the touched ones.

    A flipped label is at the other end of its interval; the ball around the middle that holds the clean end holds both.
    """
    return Set(x.bounds) if isinstance(x, Set) and not x.exact else x


def matrix_samples(a: Set | Tensor, b: Set | Tensor) -> tuple[Set | Tensor, Set | Tensor, int | None]:
    """Rows of a or columns of b may be samples, not both; sums over samples are handled apart."""
    if sample_axis(a) == -2 and sample_axis(b) is None:
        return a, b, -2
    if sample_axis(b) == -1 and sample_axis(a) is None:
        return a, b, -1
    return apart(a, b)


def first_samples(a: Set | Tensor, b: Set | Tensor) -> tuple[Set | Tensor, Set | Tensor, int | None]:
    """The first axis of a may be the samples, as in a convolution."""
    axis = sample_axis(a)
    if axis is not None and axis == -a.dim() and sample_axis(b) is None:
        return a, b, axis
    return apart(a, b)


def _summed_over_samples(a: Set | Tensor, b: Set | Tensor) -> bool:
    """Whether a matrix product contracts the sample axis of one operand or of both, and they agree on the samples."""
    marked = [x for x in (a, b) if isinstance(x, Set) and sample_axis(x) is not None]
    batches = {x.form.rows.batch for x in marked if x.affine and x.form.rows.batch is not None}
    owners = {x.clean.samples for x in marked if x.clean is not None}
    agree = bool(marked) and len(batches) <= 1 and len(owners) <= 1
    return agree and sample_axis(a) in (-1, None) and sample_axis(b) in (-2, None)


def _clean_samples(a: Set | Tensor, b: Set | Tensor) -> Samples | None:
    """The samples that a matrix product sums over, if it is known what the operands are where they were left alone."""
    known = [x.clean for x in (a, b) if isinstance(x, Set) and x.clean is not None]
    if not known or not _summed_over_samples(a, b) or any(only_touched(x) for x in (a, b)):
        return None
    return known[0].samples


def _outer(x: Tensor, y: Tensor) -> Tensor:
    """The terms of a matrix product, summed index first."""
    return x.transpose(-1, -2).unsqueeze(-1) * y.unsqueeze(-2)


def _pieces(a: Set | Tensor, b: Set | Tensor) -> Iterator[Set | Tensor]:
    """The first factor in pieces of rows, so that the terms of the product fit into memory."""
    size = max(1, SUM_TERMS // max(1, a.shape[1] * b.shape[1]))
    for begin in range(0, a.shape[0], size):
        yield _narrowed(a, begin, min(size, a.shape[0] - begin))


def _narrowed(a: Set | Tensor, begin: int, size: int) -> Set | Tensor:
    if not isinstance(a, Set):
        return a[begin : begin + size]
    return selected(a, lambda tensor, lead: tensor.narrow(lead, begin, size))


def _untouched(*operands: Set | Tensor) -> list[Set | Tensor]:
    return [x.untouched if isinstance(x, Set) else x for x in operands]


def _own_terms(a: Set | Tensor, b: Set | Tensor) -> OwnRows | None:
    """Own rows of the terms of a product over samples: ``a^f_mi b_ip + a_mi b^f_ip``."""
    values, made = None, None
    for x, y, flipped in ((a, b, False), (b, a, True)):
        if has_own_rows(x):
            batch, own = x.form.rows.batch, x.form.generators[x.form.rows.split()[2].to(x.device)]
            center = y.form.center if isinstance(y, Set) else y
            part = _outer(center, own) if flipped else _outer(own, center)
            values = part if values is None else values.add_(part)
            assert x.symbols is not None and batch is not None
            made = OwnRows.of(batch, values, x.symbols.table, _clean_samples(a, b))
    return made


def _worst_product(a: Set | Tensor, b: Set | Tensor, terms: float, affine: bool, own: OwnRows | None) -> Excess:
    """``sum_i a_mi b_ip`` where at most k samples i are touched: exact hulls, and radii, of every term."""
    samples = _clean_samples(a, b)
    assert samples is not None
    parts, begin = [], 0
    for piece in _pieces(a, b):
        here = slice(begin, begin + piece.shape[0])
        begin = here.stop
        inner_a, inner_b = _untouched(piece, b)
        touched, clean = _term_hulls(piece, b), _term_hulls(inner_a, inner_b)
        moduli = torch.maximum(touched.abs(), clean.abs()).amax(0)
        # every term was rounded once, here and in the plain run, then they were added up, in both
        lost = rounding.tiny(terms, moduli.dtype)
        charge = rounding.gamma(2 * terms + 4, moduli.dtype) * moduli.sum(0) + lost
        interval = rounding.widened(clean.sum(1), charge)
        beyond = torch.stack((clean[0] - touched[0], touched[1] - clean[1])).clamp_min(0.0)
        radius = more = None
        if affine:
            before = radius_of_product(inner_a, inner_b, _outer, terms)
            more = rounding.up(radius_of_product(piece, b, _outer, terms) - before).clamp_min(0.0)
            radius = before.sum(0) * (1 + rounding.gamma(terms, before.dtype))
            own_here = None if own is None else OwnRows(own.rows[:, :, here], own.zero_when_clean)
            more = without_own(touched, clean, more, own_here, moduli, terms)
        part = Excess(samples, interval, beyond, radius, more)
        parts.append(part if keeps_by_sample() else part.settled())
    return Excess.beside(parts)


def _term_hulls(a: Set | Tensor, b: Set | Tensor) -> Tensor:
    ends = [list(x.bounds) if varies(x) else [value(x)] for x in (a, b)]
    corners = torch.stack([_outer(x, y) for x in ends[0] for y in ends[1]])
    return torch.stack((corners.amin(0), corners.amax(0)))


def _sample_sum_form(
    a: Set | Tensor,
    b: Set | Tensor,
    f: Product,
    left: Product,
    right: Product,
    terms: float,
    excess: Excess | None,
    own: OwnRows | None,
) -> Form:
    """``sum_i a_mi b_ip`` over samples i: own row f at i becomes a row of its own."""
    center, radius = center_of_product(a, b, f), radius_of_product(a, b, f, terms)
    batches = [x.form.rows.batch for x in (a, b) if isinstance(x, Set) and x.affine]
    batch = next((batch for batch in batches if batch is not None), None)
    first, second = (
        Set(x.bounds, _without_own(x), x.symbols) if isinstance(x, Set) and x.affine else x for x in (a, b)
    )
    generators, rows = center.new_zeros(0, *center.shape), NO_ROWS
    if any(isinstance(x, Set) and x.affine for x in (first, second)):
        generators, rows = _row_products(first, second, left, right)
    if batch is not None and own is not None:
        union = rows.union(batch.distinct)
        written = union.place(batch.written_out(own.rows), batch.distinct)
        generators, rows = union.place(generators, rows) + written, union
    form = Form(center, generators, radius, rows)
    return form if excess is None else excess.around(form)


# --- matrix products ------------------------------------------------------------------------------------------------


@rule(aten.mm.default, example=lambda t: (t(2, 3), t(3, 4)))
def mm(a: Set | Tensor, b: Set | Tensor) -> Set:
    return contraction("mm", a, b, torch.mm, torch.matmul, torch.matmul, a.shape[1], samples=matrix_samples)


@rule(aten.bmm.default, example=lambda t: (t(2, 2, 3), t(2, 3, 2)))
def bmm(a: Set | Tensor, b: Set | Tensor) -> Set:
    return contraction("bmm", a, b, torch.bmm, torch.matmul, torch.matmul, a.shape[2])


@rule(aten.mv.default, example=lambda t: (t(2, 3), t(3)))
def mv(a: Set | Tensor, b: Set | Tensor) -> Set:
    return contraction("mv", a, b, torch.mv, torch.matmul, _matrix_by_rows, a.shape[1])


@replaces(torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__)
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """PyTorch multiplies a vector by a matrix with an in-place squeeze, which would change the shape of a set."""
    if a.dim() == 1 and b.dim() > 1:
        return matmul(a.unsqueeze(0), b).squeeze(-2)
    with torch._C.DisableTorchFunctionSubclass():
        return torch.matmul(a, b)


def _matrix_by_rows(matrix: Tensor, rows: Tensor) -> Tensor:
    return rows @ matrix.transpose(0, 1)


@rule(aten.dot.default, example=lambda t: (t(4), t(4)))
def dot(a: Set | Tensor, b: Set | Tensor) -> Set:
    return contraction("dot", a, b, torch.dot, torch.matmul, lambda x, rows: rows @ x, a.shape[0])


@rule(aten.addmm.default, example=lambda t: (t(2, 4), t(2, 3), t(3, 4)))
def addmm(bias: Set | Tensor, a: Set | Tensor, b: Set | Tensor, *, beta: float = 1, alpha: float = 1) -> Set:
    return _biased("addmm", bias, a, b, beta, alpha, torch.mm, a.shape[1])


@rule(aten.baddbmm.default, example=lambda t: (t(2, 2, 2), t(2, 2, 3), t(2, 3, 2)))
def baddbmm(bias: Set | Tensor, a: Set | Tensor, b: Set | Tensor, *, beta: float = 1, alpha: float = 1) -> Set:
    return _biased("baddbmm", bias, a, b, beta, alpha, torch.bmm, a.shape[2])


def _biased(
    name: str, bias: Set | Tensor, a: Set | Tensor, b: Set | Tensor, beta: float, alpha: float, f: Product, terms: int
) -> Set:
    """``beta bias + alpha a b``."""
    if not isinstance(a, Set) and not isinstance(b, Set):
        a = point(a)
    samples = matrix_samples if f is torch.mm else apart
    if beta == 1 and alpha == 1:
        return contraction(name, a, b, f, torch.matmul, torch.matmul, terms, bias, samples)
    product = contraction(name, a, b, f, torch.matmul, torch.matmul, terms, None, samples)
    return combination(name, [(product, float(alpha)), (bias, float(beta))], terms=terms + 3)
