"""The set of a threat, asked about a smaller one: fewer samples, or shorter moves.

For every dataset of the threat there is one choice xi of the symbols with ``theta = c + G xi + rho zeta`` and
``lower <= theta <= upper`` (`set.py`). A smaller threat has fewer datasets, and says more about their xi:

    fewer samples     A dataset with at most j <= k touched samples is one with at most k, so it has such an xi, and all
                      of its symbols but those of j samples are zero: the center is the observed value, for a budget
                      counts changes with a clean state only. The same rows hold with the budget j in the support.
    shorter moves     Where the center is the observed value, the symbols of a sample whose features moved by a share t
                      of their amounts are at most ``s = t + slack`` (`Moved.shrinks`). With ``xi = s xi'`` the same set
                      is ``c + (s G) xi' + rho zeta``, xi' from the whole symbol set: the rows of those changes are
                      multiplied by s, and what that rounds is added to the radius.

Errors of training (free rows, rho, the interval) stay those of the larger threat: sound, and why a run made for the
smaller one certifies more. Where rows were not tracked there is nothing to evaluate anew, and the set answers at its
own threat alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from ..arithmetic import rounding
from ..arithmetic.thread_context import using
from ..errors import NoSmallerThreat
from ..files.certificate_files import over_deep_rows
from ..sets.forms import Form
from ..sets.set import Set, concretised
from ..symbols.space import Symbols
from ..tensor.bounded import Bounded

if TYPE_CHECKING:
    from ..answers.certificate import Certificate

SHARES = 100  # into how many equal parts a radius is divided


@dataclass(frozen=True)
class Levels:
    """Threats from none (level 0) to that of the certificate (the last), and the certificate for each."""

    certificate: Certificate
    unit: str  # "k", "epsilon", or "share" where features have radii of their own
    count: int
    most: float  # what the last level stands for
    tracked: bool  # whether levels below the last can be asked
    make: Callable[[int], nn.Module]
    clause: int | None = None  # whose budget the levels count, if they do

    def value(self, level: int) -> float:
        """What a level stands for: so many samples, or so far."""
        return level if self.unit == "k" or not level else level / self.count * self.most

    def at(self, level: int) -> Certificate:
        """The certificate for a smaller threat."""
        if level == self.count or self.certificate.model is None:
            return self.certificate
        return replace(self.certificate, model=self.make(level))


def levels(certificate: Certificate, over: str | None = None) -> Levels:
    """The smaller threats of a certificate: over "k", how many samples, or over "epsilon", how far.

    Without a choice, over k where there is a budget. Where rows were not tracked, levels below the last are not there.
    """
    clauses = _clauses(certificate)
    if not clauses:  # nothing was touched
        return Levels(certificate, over or "k", 0, 0.0, False, lambda level: nn.Module())
    budgets = [number for number, clause in enumerate(clauses) if clause["budget"] is not None]
    over = over or ("k" if budgets else "epsilon")
    if over == "k":
        return _by_samples(certificate, clauses, budgets)
    if over == "epsilon":
        return _by_radius(certificate, clauses)
    raise ValueError(f'over must be "k" (how many samples) or "epsilon" (how far), not {over!r}')


def require_tracked(found: Levels) -> None:
    """Refuse a set that answers at its own threat alone."""
    if not found.count:
        raise NoSmallerThreat("nothing could have been changed in this run: there is no smaller threat to ask about")
    if not found.tracked:
        raise NoSmallerThreat(
            "rows of the samples were not tracked in this run, so its set says nothing about a smaller threat: "
            "give certificates of several threats to bf.withstands, or train zonotopes with more memory"
        )


def _clauses(certificate: Certificate) -> list[dict[str, Any]]:
    found = certificate.record.get("clauses")
    if found is None:
        raise NoSmallerThreat("this certificate does not say how its threat shrinks: train again with this version")
    clauses: list[dict[str, Any]] = found
    return clauses


def _tracked(certificate: Certificate) -> bool:
    record = certificate.record
    return record.get("domain") == "zonotope" and not record.get("not_tracked")


# --- fewer samples --------------------------------------------------------------------------------------------------


def _by_samples(certificate: Certificate, clauses: list[dict[str, Any]], budgets: list[int]) -> Levels:
    if len(budgets) != 1:
        many = "no budget" if not budgets else "several budgets"
        raise NoSmallerThreat(
            f"the threat has {many}: what a prediction withstands is counted with one, AtMost(k, ...)"
        )
    number = budgets[0]
    k = int(clauses[number]["budget"])

    def make(level: int) -> nn.Module:
        assert certificate.model is not None
        return with_budget(certificate.model, number, level)

    return Levels(certificate, "k", k, k, _tracked(certificate), make, number)


def with_budget(model: nn.Module, clause: int, budget: int) -> nn.Module:
    """The same set of models, for a smaller budget of one clause."""
    smaller = _smaller_space(model)
    if smaller is not None and clause < len(smaller.budgets):
        before = smaller.budgets[clause]
        assert before is not None and 0 <= budget <= before
        smaller.budgets[clause] = budget
    return _changed(model, smaller, lambda x: x.set._form)


# --- shorter moves --------------------------------------------------------------------------------------------------


def _by_radius(certificate: Certificate, clauses: list[dict[str, Any]]) -> Levels:
    changes = [change for clause in clauses for change in clause["changes"]]
    moves = [number for number, change in enumerate(changes) if change["shrinks"] is not None]
    about = [change for change in changes if change["about"] == "inputs"]
    if any(change["recentred"] for change in about):
        raise NoSmallerThreat("missing values have no radius to shrink: what stands in for them was never observed")
    if not moves:
        raise NoSmallerThreat(
            "no change of this threat has a radius that shrinks: it must move features (Linf, L2, L1 or Tolerance), "
            "without a valid range (clip), whose box is not around the observed value, and not on a grid (Quantised)"
        )
    if any(change["shrinks"] is None for change in about):
        raise NoSmallerThreat("a change of the features beside the moves has no radius to shrink with them")
    if certificate.model is not None and _keeps_sets(certificate.model):
        raise NoSmallerThreat("this model keeps sets of its own beside parameters and buffers, which would not shrink")
    epsilon = changes[moves[0]]["shrinks"]["epsilon"] if len(moves) == 1 else None
    slack = max(changes[number]["shrinks"]["slack"] for number in moves)

    def make(level: int) -> nn.Module:
        assert certificate.model is not None
        return with_share(certificate.model, moves, min(1.0, level / SHARES + slack))

    unit = "share" if epsilon is None else "epsilon"
    return Levels(certificate, unit, SHARES, 1.0 if epsilon is None else epsilon, _tracked(certificate), make)


def with_share(model: nn.Module, parts: list[int], factor: float) -> nn.Module:
    """The same set of models, where the symbols of some parts of the threat are at most ``factor``."""

    def shorter(x: Bounded) -> Form | None:
        form = over_deep_rows(x).set._form
        assert form is not None and x.symbols is not None
        owned = x.symbols.owners_and_parts(form.rows.numbers)[1]
        held = torch.from_numpy(np.flatnonzero(np.isin(owned, parts))).to(form.center.device)
        scaled, lost = rounding.shorter(form.generators[held], factor)
        generators = form.generators.index_copy(0, held, scaled)
        return Form(form.center, generators, rounding.up(form.radius + lost), form.rows)

    return _changed(model, _smaller_space(model), shorter)


def _keeps_sets(model: nn.Module) -> bool:
    """Whether a module holds a set as an attribute of its own."""
    return any(isinstance(value, Bounded) for module in model.modules() for value in vars(module).values())


# --- both -----------------------------------------------------------------------------------------------------------


def _smaller_space(model: nn.Module) -> Symbols | None:
    """A space beside that of the parameters, which knows all of its symbols; None where there are no rows."""
    found = next((p.symbols for p in model.parameters() if isinstance(p, Bounded) and p.affine), None)
    return found.child() if found is not None else None


def _changed(model: nn.Module, space: Symbols | None, form: Callable[[Bounded], Form | None]) -> nn.Module:
    """A copy of a model whose sets have other forms in another space, and bounds as tight as these allow."""
    changed = copy.deepcopy(model)
    if space is None:
        return changed
    with torch.no_grad(), using(space.arithmetic):
        for x in (*changed.parameters(), *changed.buffers()):
            if isinstance(x, Bounded):  # also those without rows: an answer takes its space from any of them
                other = form(x) if x.affine else None
                made = concretised("a smaller threat", x.set.bounds, other, space, x.set.nonnegative)
                x.set = Set(made.bounds, made._form, space, x.set.exact, x.set.nonnegative)
    return changed
