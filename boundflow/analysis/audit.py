"""What the certainty of predictions leans on, and which samples to check first.

The lead of the plain class over a rival is ``center + sum_k G_k xi_k + radius zeta``. Its lower bound is the center
less what each sample can take off it, its *term* (`owner_terms.py`), and what belongs to no sample: errors of
relaxations and roundings, and the symbols of the test input itself. For a regression a term is what a sample adds to
the width of the output. Terms explain a bound; they are sums of floats and no bounds themselves. What a list of samples
settles is answered again with their symbols fixed (`verified_rows.py`), which is a certificate like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..arithmetic.thread_context import using
from ..sets.forms import Form
from ..symbols.space import Symbols
from ..tensor.bounded import Bounded
from ..threats import Threat
from .checklist import ClauseTerms, Elements, choice
from .owner_terms import Coefficients, by_column, by_owner, coefficients, columns_of, total, without_inputs
from .verified_rows import Tracked, fixed, tracked

if TYPE_CHECKING:
    from ..answers.certificate import Certificate
    from ..answers.prediction import Prediction

NUMBERS = 2**24  # coefficients at a time
LEADING = 20  # samples that are named for each prediction
SHORT = Context(prec=3, rounding=ROUND_CEILING)  # how widths are written


@dataclass(frozen=True)
class Checklist:
    """Samples to check, in the order of their choice, and the inputs that are certain if all prove as recorded.

    With ``forecast`` some of them have ``missing`` cells, by column: what is certain after filling them in is not known
    before.
    """

    samples: np.ndarray
    settles: np.ndarray  # places among the inputs that were asked for
    forecast: bool
    width_before: float | None = None  # of a regression, on average
    width_after: float | None = None
    missing: tuple[tuple[int, ...], ...] = ()  # columns of each sample in which nothing is recorded

    def __str__(self) -> str:
        rows, many = len(self.samples), len(self.settles)
        if not rows:
            return "No row was found whose checking would make a prediction more certain."
        if_so = f"If {'this row proves' if rows == 1 else f'these {rows:,} rows prove'} as recorded"
        if self.width_after is not None:
            widths = (self.width_after, self.width_before)
            after, before = (format(SHORT.create_decimal_from_float(width or 0.0), "g") for width in widths)
            return f"{if_so}, predictions are {after} wide on average, and not {before}."
        more = f"{many:,} more prediction{' is' if many == 1 else 's are'} certain" if many else ""
        if self.forecast:
            if_so += f", and what is missing in {'it' if rows == 1 else 'them'} is filled in"
            more = f"about {more}" if many else "hardly another prediction is certain"
        tail = " (a forecast: fill it in and answer again)" if self.forecast else ""
        return f"{if_so}, {more or 'no further prediction is certain'}{tail}."


@dataclass(frozen=True)
class Audit:
    """What the certainty of some predictions leans on, one entry for each of ``inputs``.

    Predictions were ``asked`` for, of which some are ``certain``.

    ``reach`` is how far below its center the lead of the plain class is bounded (for a regression, the width), and
    ``owned`` the part of it that belongs to samples; the rest belongs to nobody. ``leading`` are the samples with the
    largest terms and ``terms`` these; ``by_column`` is how far each of ``columns`` reaches alone, and ``totals`` the
    terms of each of ``samples`` that count, summed over the predictions.
    """

    inputs: np.ndarray
    label: np.ndarray
    rival: np.ndarray  # the class that comes nearest; -1 for a regression
    margin: np.ndarray
    certified: np.ndarray
    reach: np.ndarray
    owned: np.ndarray
    leading: np.ndarray
    terms: np.ndarray
    samples: np.ndarray
    totals: np.ndarray
    columns: np.ndarray
    by_column: np.ndarray
    names_columns: bool  # False: a file of an earlier version, which does not say
    checklist: Checklist
    asked: int
    certain: int

    def __len__(self) -> int:
        return len(self.inputs)


class _Leads(NamedTuple):
    """Leads of the plain class over rivals, or outputs of a regression, as one form of elements."""

    prediction: np.ndarray
    rival: np.ndarray
    form: Form
    reach: Tensor  # of the lower bound, or of both


class _Found(NamedTuple):
    prediction: np.ndarray
    rival: np.ndarray
    lower: np.ndarray
    reach: np.ndarray
    owned: np.ndarray
    terms: np.ndarray
    owners: np.ndarray
    candidates: np.ndarray  # places of owners whose checking takes off most
    columns: np.ndarray
    by_clause: np.ndarray  # (n, clauses, L): the largest terms of each
    whose: np.ndarray  # and whose they are


class Auditor:
    """One audit of a certificate under a threat to test inputs."""

    def __init__(self, certificate: Certificate, threat: Threat, budget: int, chunk: int):
        self.certificate, self.threat, self.budget, self.chunk = certificate, threat, budget, chunk
        self.known: Tracked = tracked(certificate.model)
        self.samples = np.unique(self.known.owners[self.known.owners >= 0])
        space, parts = self.known.space, self.known.space.owners_and_parts(self.known.symbols)[1]
        clauses = sorted({space.table[part].clause for part in np.unique(parts[parts >= 0]).tolist()})
        self.budgets = [space.budgets[clause] for clause in clauses]  # of clauses that have rows
        self.totals = np.zeros(len(self.samples))
        self.columns = np.unique(columns_of(self.known.space, self.known.symbols[self.known.owners >= 0]))
        self.regression = certificate.record.get("task") == "regression"

    def audit(self, x: Tensor, which: np.ndarray, answers: Prediction) -> Audit:
        """Of the inputs ``which``, of whose prediction this is the answer."""
        asked = len(answers), int(answers.certified.sum())
        if not len(which):
            return self._nothing(*asked)
        holes = torch.isnan(x[torch.from_numpy(which).to(x.device)]).flatten(1).any(1).cpu().numpy()
        order = which[np.argsort(holes, kind="stable")]  # inputs without missing values come as points
        parts = [
            self._found(chunk, leads)
            for begin in range(0, len(which), self.chunk)
            for chunk in [order[begin : begin + self.chunk]]
            for leads in self._leads(x[torch.from_numpy(chunk).to(x.device)])
        ]
        found = _Found(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        worst = _nearest(found, which)
        label = answers.label.cpu().numpy()[which]
        certified = answers.certified.cpu().numpy()[which]
        shown = slice(0, LEADING)
        return Audit(
            which, label, found.rival[worst], found.lower[worst], certified, found.reach[worst], found.owned[worst],
            self.samples[found.owners[worst][:, shown]], found.terms[worst][:, shown], self.samples, self.totals,
            self.columns, found.columns[worst], self.known.space.says_what_is_recorded,
            self._checklist(x, which, certified, found), *asked,
        )  # fmt: skip

    def _nothing(self, asked: int, certain: int) -> Audit:
        """The audit of no predictions: all are certain."""
        none, empty = np.empty(0, dtype=np.int64), np.empty(0)
        return Audit(
            none, none, none, empty, none.astype(bool), empty, empty, none.reshape(0, 0), empty.reshape(0, 0),
            self.samples, self.totals, self.columns, np.empty((0, len(self.columns))),
            self.known.space.says_what_is_recorded, Checklist(none, none, False), asked, certain,
        )  # fmt: skip

    # --- elements -------------------------------------------------------------------------------------------------

    def _leads(self, x: Tensor) -> Iterator[_Leads]:
        """The leads of some inputs; places are those among them."""
        with torch.no_grad():
            plain = self.certificate._plain(x, self.threat)
            space = self.certificate._space(self.threat)
            logits = self.certificate._logits(x, self.threat, space)
            if self.regression or logits.shape[1] == 1:
                sign = torch.ones_like(plain) if self.regression else torch.where(plain > 0, 1.0, -1.0).to(plain.dtype)
                yield _signed(logits, sign, self.regression)
                return
            label = plain.argmax(1)
            for name in sorted(set(label.tolist())):
                mine = (label == name).nonzero()[:, 0]
                others = [c for c in range(logits.shape[1]) if c != name]
                difference: Any = logits[:, name : name + 1] - logits
                yield _over_others(difference, mine, others)

    def _found(self, places: np.ndarray, leads: _Leads) -> _Found:
        """Terms of the leads, some elements at a time."""
        space, form = self.certificate._space(self.threat), leads.form
        size = max(1, NUMBERS // max(1, len(self.known.symbols)))
        parts = []
        with torch.no_grad(), using(space.arithmetic):
            for begin in range(0, form.center.numel(), size):
                part = slice(begin, begin + size)
                given = coefficients(space, _elements(form, part))
                parts.append(self._terms(space, given))
        joined = (np.concatenate(values) for values in zip(*parts, strict=True))
        lower, reach = (form.center - leads.reach).cpu().numpy(), leads.reach.cpu().numpy()
        return _Found(places[leads.prediction], leads.rival, lower, reach, *joined)

    def _terms(self, space: Symbols, given: Coefficients) -> tuple[np.ndarray, ...]:
        """What is owned, the largest terms and whose they are, and the reach of every column."""
        clauses, count = by_owner(space, given), len(self.samples)
        counted = given.values.new_zeros(len(given.values), count)
        alone, kept = counted.clone(), []  # what checking one sample alone takes off; the largest terms by clause
        for clause in clauses:
            places = torch.from_numpy(np.searchsorted(self.samples, clause.owners)).to(counted.device)
            values = counted.new_zeros(counted.shape).index_add_(1, places, self._one(clause.values))
            counted.index_add_(1, places, self._one(clause.counted()))
            kept.append(torch.topk(values, self._kept, dim=1))
            k = count if clause.budget is None else clause.budget
            following = kept[-1].values[:, k : k + 1] if k < count else torch.zeros_like(values[:, :1])
            alone += (values - following).clamp_min(0.0) + 1e-9 * values
        self.totals += counted.sum(0).double().cpu().numpy()
        distinct, reaches = by_column(space, given)
        columns = counted.new_zeros(len(counted), len(self.columns))
        columns[:, torch.from_numpy(np.searchsorted(self.columns, distinct))] = self._one(reaches)
        terms, owners = torch.topk(counted, min(count, LEADING), dim=1)
        candidates = torch.topk(alone, min(count, max(1, 2 * self.budget)), dim=1).indices
        largest = (torch.stack([getattr(part, name) for part in kept], 1) for name in ("values", "indices"))
        found = (self._one(total(clauses)), terms, owners, candidates, columns, *largest)
        return tuple(part.cpu().numpy() for part in found)

    @property
    def _kept(self) -> int:
        """How many terms of a clause decide what checking takes off."""
        return min(len(self.samples), 1 + 2 * self.budget + max((k for k in self.budgets if k is not None), default=0))

    def _one(self, values: Tensor) -> Tensor:
        """What is taken off a lead; of a regression, what is added to its width."""
        return values.sum(0) if self.regression else values[0]

    # --- the list -------------------------------------------------------------------------------------------------

    def _checklist(self, x: Tensor, which: np.ndarray, certified: np.ndarray, found: _Found) -> Checklist:
        undecided = which[~certified] if not self.regression else which
        if not self.budget or not len(undecided):
            return Checklist(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), False)
        if self.regression:
            order = np.argsort(-self.totals, kind="stable")[: self.budget]
            chosen = self.samples[order[self.totals[order] > 0]]
        else:
            held = np.isin(found.prediction, undecided) & (found.lower <= 0)
            chosen = self.samples[choice(self._elements(found, held), self.totals, self.budget)]
        if not len(chosen) or not self.known.space.says_what_is_recorded:
            return Checklist(chosen, np.empty(0, dtype=np.int64), True)
        return self._answered_again(x, undecided, chosen)

    def _elements(self, found: _Found, held: np.ndarray) -> Elements:
        clauses = tuple(
            ClauseTerms(found.by_clause[held, number], found.whose[held, number], budget)
            for number, budget in enumerate(self.budgets)
        )
        return Elements(found.prediction[held], -found.lower[held], clauses, found.candidates[held])

    def _answered_again(self, x: Tensor, undecided: np.ndarray, chosen: np.ndarray) -> Checklist:
        """What is certain if the chosen samples are as recorded, and their missing cells as they stand in training."""
        certificate, asked = self.certificate, x[torch.from_numpy(undecided).to(x.device)]
        open_cells = fixed(self.known, chosen, None, stand_in=True).filled != []
        other = certificate._with_fixed(chosen, None, stand_in=True)
        after, missing = other.predict(asked, threat=self.threat, chunk=self.chunk), self._missing(chosen)
        if not self.regression:
            return Checklist(chosen, undecided[after.certified.cpu().numpy()], open_cells, missing=missing)
        before = certificate.predict(asked, threat=self.threat, chunk=self.chunk)
        narrower, wider = (float(answers.width.double().mean()) for answers in (after, before))
        return Checklist(chosen, np.empty(0, dtype=np.int64), open_cells, wider, narrower, missing)

    def _missing(self, chosen: np.ndarray) -> tuple[tuple[int, ...], ...]:
        """The columns of each sample in which nothing is recorded."""
        space, recorded = self.known.space, self.known.space.recorded()
        assert recorded is not None
        recorded = recorded.among(self.known.symbols[np.isin(self.known.owners, chosen)])
        numbers = recorded.numbers[recorded.is_open]
        owners, columns = space.owners_and_parts(numbers)[0], columns_of(space, numbers)
        return tuple(tuple(np.unique(columns[owners == sample]).tolist()) for sample in chosen.tolist())


def _nearest(found: _Found, which: np.ndarray) -> np.ndarray:
    """The elements with the lowest bound of each of some predictions."""
    order = np.lexsort((found.lower, found.prediction))
    nearest: np.ndarray = order[np.searchsorted(found.prediction[order], which)]
    return nearest


def _signed(logits: Bounded, sign: Tensor, both: bool) -> _Leads:
    """One output times a sign; of a regression every output, with the whole of its width."""
    form, (lower, upper) = without_inputs(logits.form), logits.set.bounds
    down, up = form.center - lower, upper - form.center
    reach = down + up if both else torch.where(sign > 0, down, up)
    flat = Form((form.center * sign).flatten(), (form.generators * sign).flatten(1), form.radius.flatten(), form.rows)
    places = np.repeat(np.arange(len(sign)), form.center.shape[1])
    rival = np.full(len(places), -1) if both else (sign[:, 0] < 0).long().cpu().numpy()
    return _Leads(places, rival, flat, reach.flatten())


def _over_others(difference: Bounded, mine: Tensor, others: list[int]) -> _Leads:
    """The leads of one class over the others, at the inputs that it is the answer to."""
    form, lower = without_inputs(difference.form), difference.set.bounds[0]
    center, radius, generators, low = (
        part[..., mine, :][..., others] for part in (form.center, form.radius, form.generators, lower)
    )
    flat = Form(center.flatten(), generators.flatten(1), radius.flatten(), form.rows)
    places = np.repeat(mine.cpu().numpy(), len(others))
    return _Leads(places, np.tile(np.array(others), len(mine)), flat, (center - low).flatten())


def _elements(form: Form, part: slice) -> Form:
    return Form(form.center[part], form.generators[:, part], form.radius[part], form.rows)
