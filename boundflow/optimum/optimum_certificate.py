"""A certificate of a converged model: answers that hold for the optimum of every dataset the threat allows.

"Every optimum" is that of the objective in the record, for every allowed dataset, whichever solver finds it: weights
that leave a gradient of at most ``tolerance`` in every entry are covered, too. Where several ridges are given, an
answer is certain if it is the same under each of them, so a ridge that was chosen among them by any rule is covered.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..analysis.audit import LEADING, Audit, Checklist
from ..analysis.checklist import ClauseTerms, Elements, choice
from ..analysis.verified_rows import numbers_of
from ..analysis.withstanding import Curve, Withstood, curve_of
from ..answers.prediction import Accuracy, Prediction, classes, share, threat_to_inputs
from ..arithmetic import rounding
from ..errors import BoundFlowError, NoSmallerThreat
from ..symbols.recorded_values import LABEL
from ..tensor.bounded import Bounded
from ..tensor.lift import Given
from ..threats import Threat
from . import optimum_files
from .branching import Branched, branched
from .linearised import largest_budget
from .logit_bounds import Answers, Inputs, Optimum, difference
from .ranges import Observed
from .squared import SquaredOptimum


@dataclass
class OptimumCertificate:
    """Given weights, as a plain model, and the optima of every allowed dataset around them, one for each ridge."""

    nominal: nn.Module  # features and head, in evaluation mode
    features: nn.Module | None
    optima: tuple[Optimum, ...]
    record: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    data: tuple[Tensor, Tensor, Tensor | None] | None = None  # inputs, targets, and how much each row counts

    # --- answers --------------------------------------------------------------------------------------------------

    @property
    def regression(self) -> bool:
        return bool(self.record["task"] == "regression")

    @property
    def void_at_step(self) -> None:
        """There are no steps."""
        return None

    @property
    def knows(self) -> bool:
        """Whether anything can be certified: ranges were found, and the ridge is strong enough for floats."""
        return all(optimum.linear(None) is not None for optimum in self.optima)

    def predict(
        self,
        x: Given,
        epsilon: Given = 0.0,
        clip: tuple[float, float] | None = None,
        *,
        threat: Threat | None = None,
        cuts: int = 0,
        chunk: int = 2**16,
        tell: Callable[[int, int], None] = lambda done, total: None,
        seconds: float = 0.0,
    ) -> Prediction:
        """Answers for inputs of which every feature may have moved by at most ``epsilon``, or by another threat.

        ``seconds``: so long, answers of the logistic loss that stay open are looked at further (`branching.py`). The
        others are as for `Certificate.predict`; boxes are not cut here.
        """
        if cuts:
            raise ValueError("cuts are for certificates of training step by step: use cuts=0")
        given, parts = self._checked(x), list[Prediction]()
        for part in torch.split(given, max(1, chunk)):
            parts.append(self._predict(part, threat_to_inputs(epsilon, clip, threat), seconds * len(part) / len(given)))
            tell(min(max(1, chunk) * len(parts), len(given)), len(given))
        return Prediction.joined(parts)

    def _predict(self, x: Tensor, threat: Threat, seconds: float) -> Prediction:
        inputs, plain = self._inputs(x, 0.0, None, threat)
        lower, upper, lead = zip(
            *(self._bounds(optimum, own, plain) for optimum, own in zip(self.optima, inputs, strict=True)), strict=True
        )
        low, high = torch.stack(lower).amin(0), torch.stack(upper).amax(0)
        if self.regression:
            return Prediction(plain, torch.isfinite(high - low).all(1), low, high)
        leads = torch.stack(lead).amin(0)
        open_ = (leads.amax(1) <= 0).nonzero()[:, 0]
        if seconds and len(open_):
            leads = leads.clone()
            label = classes(plain[open_])
            leads[open_, label] = self.branched([own.at(open_) for own in inputs], label, seconds).lead
        margin, label = leads.max(1)
        certified = margin > 0
        return Prediction(torch.where(certified, label, classes(plain)), certified, low, high, leads)

    def accuracy(
        self,
        x: Given,
        y: Given,
        epsilon: Given = 0.0,
        clip: tuple[float, float] | None = None,
        *,
        threat: Threat | None = None,
    ) -> Accuracy:
        """Nominal and certified accuracy on labelled inputs."""
        self._require_classes("accuracy")
        inputs, plain = self._inputs(x, epsilon, clip, threat)
        y = torch.as_tensor(y).to(plain.device).reshape(-1)
        if len(y) != len(plain):
            raise ValueError(f"{len(plain)} inputs and {len(y)} labels")
        certain = self._certain(inputs, classes(plain), None)
        right = classes(plain) == y
        return Accuracy(share(right), share(right & certain), share(certain))

    def withstands(
        self,
        x: Given,
        epsilon: Given = 0.0,
        clip: tuple[float, float] | None = None,
        *,
        threat: Threat | None = None,
        over: str | None = None,
        chunk: int | None = None,
    ) -> Withstood:
        """For each prediction the largest k at which it is certain, up to the budget of the threat.

        With squared loss one fit answers for every k, so up to all rows in doubt, and what is not withstood can be
        done: the number is the true one, unless two classes are as good to within roundings.
        """
        self._require_classes("what a prediction withstands")
        if over not in (None, "k"):
            raise NoSmallerThreat(f"at the optimum wrong labels are counted: over is 'k', and not {over!r}")
        inputs, plain = self._inputs(x, epsilon, clip, threat)
        label = classes(plain)
        pairs = zip(self.optima, inputs, strict=True)
        found = torch.stack([self._withstood(optimum, own, label) for optimum, own in pairs]).amin(0)
        return Withstood(label, found, "k", float(self._most))

    def curve(self, x: Given, y: Given, *, values: Sequence[float] | None = None, **asked: Any) -> Curve:
        """Certified accuracy against k."""
        return curve_of(self.withstands(x, **asked), y, values)

    # --- samples behind the answers -----------------------------------------------------------------------------------

    def verified(self, samples: Given, cells: Given | None = None) -> OptimumCertificate:
        """The certificate where the targets of these training samples are known to be as recorded.

        ``cells`` are for missing values, of which there are none here.
        """
        if cells is not None:
            raise ValueError("no cells were missing: labels or targets alone are in doubt at the optimum")
        chosen = numbers_of(samples, self.record["samples"])
        record = {**self.record, "verified": sorted({*self.record.get("verified", ()), *chosen.tolist()})}
        optima = tuple(optimum.within(optimum.changes.but(chosen)) for optimum in self.optima)  # type: ignore[attr-defined]
        return replace(self, optima=optima, record=record)

    def audit(
        self,
        x: Given,
        *,
        threat: Threat | None = None,
        budget: int = 0,
        every: bool = False,
        chunk: int | None = None,
    ) -> Audit:
        """What abstained predictions (or, with ``every``, all) lean on, and up to ``budget`` samples to check first."""
        if isinstance(budget, bool) or budget != int(budget) or budget < 0:
            raise ValueError(f"budget is how many samples can be checked, a whole number, and not {budget!r}")
        inputs, plain = self._inputs(x, 0.0, None, threat)
        answers = self.predict(x, threat=threat)
        which = torch.arange(len(plain))
        if not every and not self.regression:
            which = which[~answers.certified.cpu()]
        return _audit(self, inputs, plain, answers, which, int(budget))

    def coefficients(self) -> tuple[Tensor, Tensor]:
        """Bounds of every coefficient of every optimum, (outputs, d) each, the intercept last."""
        ends = []
        for optimum in self.optima:
            unit = torch.eye(len(optimum.weights), dtype=torch.float64, device=optimum.weights.device)
            pairs = [Answers(optimum, None).coefficients(q) for q in unit]
            ends.append(torch.stack([torch.stack(side) * optimum.rows.scale for side in zip(*pairs, strict=True)]))
        found = torch.stack(ends)
        return found[:, 0].amin(0), found[:, 1].amax(0)

    def along(self, direction: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Coefficients along a direction of the outputs, (d) each, the intercept last: bounds, and the plain ones.

        With squared loss, also how many wrong labels the sign of each withstands.
        """
        parts, counts = [], []
        for optimum in self.optima:
            q = direction.to(optimum.weights)
            low, high = (end * optimum.rows.scale for end in Answers(optimum, None).coefficients(q))
            parts.append((low, high, q @ optimum.weights * optimum.rows.scale))
            if isinstance(optimum, SquaredOptimum) and optimum.changes.budget is not None:
                counts.append(_signs(optimum, q, self._most))
        low, high, plain = (torch.stack(part) for part in zip(*parts, strict=True))
        return low.amin(0), high.amax(0), plain[0], torch.stack(counts).amin(0) if counts else None

    def changeable(self, x: Given, seconds: float = 60.0) -> Branched:
        """Which predictions are certain and which can be changed, as far as is found out within so long.

        For the logistic loss and one ridge. ``lead`` is a lower bound where a prediction is certain; ``ended`` says
        that nothing is open but what roundings leave.
        """
        self._require_classes("what can be changed")
        inputs, plain = self._inputs(x, 0.0, None, None)
        return self.branched(inputs, classes(plain), seconds)

    def branched(self, inputs: list[Inputs], label: Tensor, seconds: float) -> Branched:
        """Decide inputs by branching on the rows that are wrong."""
        first, budget = self.optima[0], self.optima[0].changes.budget
        if len(self.optima) > 1 or not isinstance(first, Observed) or not first.tilts:
            raise BoundFlowError("branching is for the logistic loss with one ridge and no weights of classes")
        if budget is None:
            raise NoSmallerThreat("branching is for one budget: write AtMost(k, Labels())")
        return branched(first, inputs[0], label, budget, seconds)

    # --- files ------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """One safetensors file without code: data, features and given weights, from which `bf.load` encloses again."""
        assert self.data is not None
        if self.data[0].dim() != 2:
            raise BoundFlowError("files hold tables: certify features(x), and give features(x) of what is asked, too")
        given = [optimum.weights * optimum.rows.scale for optimum in self.optima]
        optimum_files.write(path, self.record, self.nominal, self.features, self.data, given, self.optima[0].changes)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _checked(self, x: Given) -> Tensor:
        x = torch.as_tensor(x).detach().to(self.optima[0].rows.inputs)
        shape = tuple(self.record["input_shape"])
        x = x.unsqueeze(0) if tuple(x.shape) == shape else x
        if tuple(x.shape[1:]) != shape:
            raise ValueError(f"inputs of shape {tuple(x.shape[1:])} do not fit a model for inputs of shape {shape}")
        if not len(x):
            raise ValueError("there are no inputs to answer for")
        if not bool(torch.isfinite(x).all()):
            raise ValueError("a test input is NaN or infinite")
        return x

    def _inputs(
        self, x: Given, epsilon: Given, clip: tuple[float, float] | None, threat: Threat | None
    ) -> tuple[list[Inputs], Tensor]:
        """Inputs in the coordinates of each optimum, and what the plain model answers."""
        threat = threat_to_inputs(epsilon, clip, threat)
        x = self._checked(x)
        lifted = threat.at_test_time(None, x)
        with torch.no_grad():
            plain = self.nominal(x.to(next(self.nominal.parameters()).dtype)).double()
            found = x if self.features is None else self.features(x)
            moved = None
            if isinstance(lifted, Bounded) and not bool((lifted.lower == lifted.upper).all()):
                moved = lifted if self.features is None else self.features(lifted)
        return [_in_coordinates(optimum, found, moved) for optimum in self.optima], plain

    def _bounds(self, optimum: Optimum, own: Inputs, plain: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Bounds of all outputs, and of the lead of every class."""
        answers, parts = Answers(optimum, None), []
        for piece in answers.pieces(len(plain)):
            part = own.at(piece)
            asked = answers.asked(part)
            low, high = answers.logits(part, asked)
            if self.regression:
                lead = low
            elif low.shape[1] == 1:
                lead = torch.cat((-high, low), 1)
            elif low.shape[1] == 2:
                pair = [difference(c, 1 - c, 2).to(part.center) for c in (0, 1)]
                lead = torch.stack([answers.direction(part, asked, q).lower for q in pair], 1)
            else:
                label = classes(plain[piece])
                ahead = answers.leads(part, asked, label).amin(1, keepdim=True)
                others = torch.stack([low[:, c] - _others(high, c) for c in range(low.shape[1])], 1)
                others = rounding.outward(torch.stack((others, others)))[0]
                lead = others.scatter(1, label[:, None], torch.maximum(ahead, others.gather(1, label[:, None])))
            parts.append((low, high, lead))
        low, high, lead = (torch.cat(part) for part in zip(*parts, strict=True))
        return low, high, lead

    def _certain(self, inputs: list[Inputs], label: Tensor, budget: int | None) -> Tensor:
        """Whether every optimum answers these labels."""
        certain = torch.ones_like(label, dtype=torch.bool)
        for optimum, own in zip(self.optima, inputs, strict=True):
            answers = Answers(optimum, budget)
            for piece in answers.pieces(len(label)):
                part = own.at(piece)
                certain[piece] &= _ahead(answers, part, label[piece]) > 0
        return certain

    def _withstood(self, optimum: Optimum, own: Inputs, label: Tensor) -> Tensor:
        """The largest budget at which each label is certain, by halving: what is certain at k is so at fewer."""
        most = self._most
        if isinstance(optimum, SquaredOptimum):
            return _withstood_exactly(optimum, own, label, most)
        low, high = torch.full_like(label, -1), torch.full_like(label, most)
        middle = high.clone()
        while bool((low < high).any()):
            for level in sorted(set(middle[low < high].tolist()), reverse=True):
                places = ((low < high) & (middle == level)).nonzero()[:, 0]
                sure = _ahead(Answers(optimum, level), own.at(places), label[places]) > 0
                low[places] = torch.where(sure, level, low[places])
                high[places] = torch.where(sure, high[places], level - 1)
            middle = (low + high + 1) // 2
        return low

    @property
    def _most(self) -> int:
        """The largest budget that can be asked about."""
        changes = self.optima[0].changes
        if len(changes.clauses) != 1 or changes.budget is None:
            raise NoSmallerThreat("what predictions withstand is counted within one budget: write AtMost(k, Labels())")
        squared = all(isinstance(optimum, SquaredOptimum) for optimum in self.optima)
        return int(changes.clauses[0].touched.sum()) if squared else changes.budget

    def _require_classes(self, what: str) -> None:
        if self.regression:
            raise BoundFlowError(f"{what} is for classes: use predict(...).lower and .upper for regression")


def _others(high: Tensor, c: int) -> Tensor:
    kept = torch.arange(high.shape[1], device=high.device) != c
    return high[:, kept].amax(1)


def _in_coordinates(optimum: Optimum, found: Tensor, moved: Any) -> Inputs:
    if moved is None:
        return Inputs(optimum.rows.asked(found))
    low, high = (optimum.rows.asked(end) for end in (moved.lower, moved.upper))
    center = (low + high) / 2
    return Inputs(center, rounding.deviation(torch.stack((low, high)), center))


def _ahead(answers: Answers, inputs: Inputs, label: Tensor) -> Tensor:
    """A lower bound of the lead of each label over all others."""
    asked, outputs = answers.asked(inputs), len(answers.optimum.weights)
    if outputs > 1:
        return answers.leads(inputs, asked, label).amin(1)
    sides = []
    for side in (-1.0, 1.0):
        q = torch.tensor([side], dtype=torch.float64, device=label.device)
        sides.append(answers.direction(inputs, asked, q).lower)
    return torch.where(label == 1, sides[1], sides[0])


def _signs(optimum: SquaredOptimum, direction: Tensor, most: int) -> Tensor:
    """How many wrong labels the sign of every coefficient along a direction withstands, (d)."""
    answers, width = Answers(optimum, None), optimum.rows.width
    inputs = Inputs(torch.eye(width, dtype=direction.dtype, device=direction.device))
    positive = direction @ optimum.weights > 0
    best = torch.full((width,), -1, dtype=torch.long, device=direction.device)
    for side, mine in ((1.0, positive), (-1.0, ~positive)):
        places = mine.nonzero()[:, 0]
        if len(places):
            part = inputs.at(places)
            asked = answers.asked(part)
            assert asked is not None
            ahead = answers.direction(part, asked, side * direction)
            loss = optimum.exact.loss(asked, side * direction)
            best[places] = largest_budget(loss, loss.terms[0], ahead.value - ahead.charge, most)
    return best


def _withstood_exactly(optimum: SquaredOptimum, inputs: Inputs, label: Tensor, most: int) -> Tensor:
    answers, outputs, found = Answers(optimum, None), len(optimum.weights), torch.full_like(label, most)
    for piece in answers.pieces(len(label)):
        part, names = inputs.at(piece), label[piece]
        asked, best = answers.asked(part), found[piece]
        assert asked is not None
        for name in sorted(set(names.tolist())):
            mine = (names == name).nonzero()[:, 0]
            for rival in range(outputs):
                if rival != name:
                    q = difference(name, rival, outputs).to(inputs.center)
                    ahead = answers.direction(part.at(mine), asked.at(mine), q)
                    loss = optimum.exact.loss(asked.at(mine), q)
                    room = ahead.value - ahead.charge
                    best[mine] = torch.minimum(best[mine], largest_budget(loss, loss.terms[0], room, most))
    return found


def _audit(
    certificate: OptimumCertificate,
    inputs: list[Inputs],
    plain: Tensor,
    answers: Prediction,
    which: Tensor,
    budget: int,
) -> Audit:
    """Of the first optimum: others differ in the ridge alone."""
    optimum = certificate.optima[0]
    asked_of, changes = Answers(optimum, None), optimum.changes
    touched = torch.stack([clause.touched for clause in changes.clauses]).any(0)
    samples = touched.nonzero()[:, 0].cpu().numpy()
    clause, totals, rows = changes.clauses[0], np.zeros(len(samples)), []
    outputs = len(optimum.weights)
    for place in which.tolist():
        part = inputs[0].at(slice(place, place + 1))
        asked = asked_of.asked(part)
        if asked is None:
            break
        assert asked_of.linear is not None
        label = int(classes(plain[place : place + 1])) if not certificate.regression else 0
        best: tuple[float, int, Tensor, Tensor] | None = None
        for rival, q in _directions(label, outputs, certificate.regression):
            found = asked_of.direction(part, asked, q.to(part.center))
            loss = asked_of.linear.loss(asked, q.to(part.center))
            terms = torch.stack(loss.terms).amax(0)[0][touched]
            if best is None or float(found.lower) < best[0]:
                best = float(found.lower), rival, found.down, terms
        assert best is not None
        lower, rival, down, terms = best
        counted = _counted(terms, clause.budget)
        totals += counted.cpu().numpy()
        rows.append((place, label, rival, lower, float(down), float(counted.sum()), terms.cpu().numpy()))
    return _audit_of(certificate, rows, answers, samples, totals, clause.budget, budget, inputs)


def _directions(label: int, outputs: int, regression: bool) -> list[tuple[int, Tensor]]:
    if outputs == 1:
        side = 1.0 if regression or label == 1 else -1.0
        return [(-1 if regression else 1 - label, torch.tensor([side], dtype=torch.float64))]
    return [(rival, difference(label, rival, outputs)) for rival in range(outputs) if rival != label]


def _counted(terms: Tensor, budget: int | None) -> Tensor:
    """The terms that count within the budget; 0 for the others."""
    if budget is None or budget >= len(terms):
        return terms
    kept = torch.topk(terms, budget).indices
    return torch.zeros_like(terms).scatter(0, kept, terms[kept])


def _audit_of(
    certificate: OptimumCertificate,
    rows: list[tuple[int, int, int, float, float, float, np.ndarray]],
    answers: Prediction,
    samples: np.ndarray,
    totals: np.ndarray,
    limit: int | None,
    budget: int,
    inputs: list[Inputs],
) -> Audit:
    none = np.empty(0, dtype=np.int64)
    asked = len(answers), int(answers.certified.sum())
    if not rows:
        return Audit(
            none, none, none, np.empty(0), none.astype(bool), np.empty(0), np.empty(0), none.reshape(0, 0),
            np.empty((0, 0)), samples, totals, none, np.empty((0, 0)), False, Checklist(none, none, False), *asked,
        )  # fmt: skip
    place, label, rival, lower, down, owned, terms = (np.array(column) for column in zip(*rows, strict=True))
    order = np.argsort(-terms, 1, kind="stable")
    leading = order[:, :LEADING]
    certified = answers.certified.cpu().numpy()[place]
    checklist = _checklist(certificate, place, lower, terms, order, totals, samples, limit, budget, certified, inputs)
    return Audit(
        place, label, rival, lower, certified, down, owned, samples[leading], np.take_along_axis(terms, leading, 1),
        samples, totals, np.array([LABEL]), owned[:, None], True, checklist, *asked,
    )  # fmt: skip


def _checklist(
    certificate: OptimumCertificate,
    place: np.ndarray,
    lower: np.ndarray,
    terms: np.ndarray,
    order: np.ndarray,
    totals: np.ndarray,
    samples: np.ndarray,
    limit: int | None,
    budget: int,
    certified: np.ndarray,
    inputs: list[Inputs],
) -> Checklist:
    none = np.empty(0, dtype=np.int64)
    if not budget or certificate.regression or certified.all():
        return Checklist(none, none, False)
    held = ~certified & np.isfinite(lower)
    largest = order[:, : min(len(samples), 1 + 2 * budget + (limit or 0))]
    clause = ClauseTerms(np.take_along_axis(terms, largest, 1)[held], largest[held], limit)
    elements = Elements(np.arange(len(place))[held], -lower[held], (clause,), largest[:, : max(1, 2 * budget)][held])
    chosen = samples[choice(elements, totals, budget)]
    if not len(chosen):
        return Checklist(none, none, False)
    other = certificate.verified(chosen)
    undecided = torch.from_numpy(place[~certified])
    again = [own.at(undecided) for own in inputs]
    label = torch.tensor(_labels(certificate, inputs, undecided), device=inputs[0].center.device)
    settled = other._certain(again, label, None).cpu().numpy()
    return Checklist(chosen, place[~certified][settled], False)


def _labels(certificate: OptimumCertificate, inputs: list[Inputs], places: Tensor) -> list[int]:
    """The labels by the given weights of the first optimum."""
    optimum = certificate.optima[0]
    return classes(inputs[0].center[places] @ optimum.weights.T).tolist()


def evaluated(module: nn.Module) -> nn.Module:
    """A copy that answers: no masks, nothing trained."""
    return copy.deepcopy(module).eval().requires_grad_(False)
