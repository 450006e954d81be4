"""What a prediction withstands: the largest k, or epsilon, at which it is certain; and curves of certified accuracy.

A certificate for k answers for every smaller budget (`smaller_threats.py`), and a prediction that is certain for j
samples is certain for fewer, since these are fewer datasets. So the largest certain level is looked for by halving.
Each answer is a proof of its own, and the result is a lower bound whether or not the bounds are monotone in the level.

A run in which nothing could be changed (`Linf(0.0)`), whose sets are as wide as rounding, answers for 0 changes, where
the others are left with none either.
Several certificates of one training speak of the same models: the largest of their answers holds. They are of one
training if all but the budget, or the radius, that is asked about is the same, the plain parameters to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..answers.prediction import classes, share, threat_to_inputs
from ..errors import BoundFlowError, DifferentRuns
from ..same_program import identity
from ..same_program.batch_independence import samples_meet
from ..threats import Threat
from .largest_budgets import fits, is_linear, largest_budgets
from .smaller_threats import Levels, levels, require_tracked

if TYPE_CHECKING:
    from ..answers.certificate import Certificate

UNCERTAIN = -1  # what a prediction withstands that is not certain even if nothing was done
# of the record, beside what the training rests on: how answers are asked and read, and what was done to the set since
ASKED = ("rounding", "task", "input_shape", "state", "part", "verified", "filled", "classes", "class_weight")
ASKED_TOO = ("preprocessing",)


@dataclass(frozen=True)
class Withstood:
    """For each prediction the label, and the largest value at which it is certain: -1 if it is not even at none.

    ``unit`` says what the value counts: "k" samples, an "epsilon", or a "share" of radii that differ by feature.
    ``most`` is the largest value that was asked about: a prediction that withstands it may withstand more.
    """

    label: Tensor
    value: Tensor
    unit: str
    most: float

    def __len__(self) -> int:
        return len(self.label)

    def certain(self, value: float) -> Tensor:
        """Which predictions are certain at a value."""
        if not value >= 0:
            raise ValueError(f"ask about a value of 0 or more, and not {value}")
        if value > self.most:
            raise ValueError(f"nothing is known beyond {self.unit} = {self.most:g}, for which the sets were made")
        return self.value >= value


@dataclass(frozen=True)
class Curve:
    """Certified accuracy (right for every model) and robustness (certain, right or not) against k or epsilon."""

    unit: str
    values: list[float]
    certified: list[float]
    robustness: list[float]
    nominal: float
    samples: int
    withstood: Withstood
    attacked: list[float] | None = None  # no certificate can have more: what attacks at these values or below left

    def as_data(self) -> dict[str, Any]:
        """What a file holds of it."""
        named = {"value": self.values, "certified_accuracy": self.certified, "certified_robustness": self.robustness}
        if self.attacked is not None:
            named["attacked_accuracy"] = self.attacked
        points = [dict(zip(named, point, strict=True)) for point in zip(*named.values(), strict=True)]
        return {"unit": self.unit, "nominal_accuracy": self.nominal, "samples": self.samples, "points": points}


def withstands(
    certificates: Sequence[Certificate],
    x: Any,
    epsilon: Any = 0.0,
    clip: tuple[float, float] | None = None,
    *,
    threat: Threat | None = None,
    over: str | None = None,
    chunk: int = 256,
) -> Withstood:
    """What predictions withstand, by several certificates of one training: for each the best of all of them.

    ``epsilon``, ``clip`` and ``threat`` are those of the test inputs, as in `Certificate.predict`; ``over`` says what
    is varied, "k" or "epsilon". A certificate whose rows were not tracked answers at its own threat alone.
    """
    if not certificates:
        raise ValueError("there are no certificates to ask")
    certificates = [one._in_evaluation_mode() for one in certificates]
    require_one_training(certificates)
    require_one_kind(certificates, over)
    asked = sorted((levels(one, over) for one in certificates), key=lambda found: found.most)
    unit = next((found.unit for found in asked if found.count), asked[0].unit)
    if any(found.count and found.unit != unit for found in asked):
        raise DifferentRuns("these certificates measure what was changed in different units")
    first = asked[0].certificate
    threat = threat_to_inputs(epsilon, clip, threat)
    x = first._checked(x, threat)
    if samples_meet(first.nominal, threat.observed(x), training=False):
        raise BoundFlowError(
            "this network lets the inputs of a batch meet: what one of them withstands would depend on the others"
        )
    first._rehearse(threat.observed(x), chunk)  # the others have the same plain model
    with torch.no_grad():
        label = torch.cat([classes(first._plain(part, threat)) for part in torch.split(x, chunk)])
    best = torch.full((len(x),), float(UNCERTAIN), dtype=torch.float64, device=x.device)
    for found in reversed(asked):  # what is certain at the largest threat need not be asked about at smaller ones
        best = _raised(found, x, label, threat, chunk, best)
    return Withstood(label, best.long() if unit == "k" else best, unit, asked[-1].most)


def _raised(found: Levels, x: Tensor, label: Tensor, threat: Threat, chunk: int, best: Tensor) -> Tensor:
    """What inputs withstand, with one more certificate: only what is more than is known already is asked for."""
    known = torch.tensor([found.value(level) for level in range(found.count + 1)], dtype=best.dtype, device=best.device)
    low = torch.searchsorted(known, best, right=True) - 1  # the last level that is known to be withstood
    high = torch.full_like(low, found.count)
    _ask(found, found.count, (low < high).nonzero()[:, 0], x, label, threat, chunk, low, high)
    if found.tracked and found.clause is not None:
        done = _in_one_pass(found, x, label, threat, chunk, low, high)
        high = torch.where(done, low, high)
    while found.tracked and bool((low < high).any()):
        middle = (low + high + 1) // 2
        for level in sorted(set(middle[low < high].tolist())):
            _ask(found, level, ((middle == level) & (low < high)).nonzero()[:, 0], x, label, threat, chunk, low, high)
    return torch.where(low >= 0, torch.maximum(best, known[low.clamp_min(0)]), best)


def _in_one_pass(
    found: Levels, x: Tensor, label: Tensor, threat: Threat, chunk: int, low: Tensor, high: Tensor
) -> Tensor:
    """Raise what is known of inputs that are left, by all budgets at once; says which need not be asked again."""
    certificate, done = found.certificate, torch.zeros_like(low, dtype=torch.bool)
    assert found.clause is not None
    for inputs in torch.split((low < high).nonzero()[:, 0], chunk):
        ahead = certificate._ahead(x[inputs], threat, label[inputs]) if len(inputs) else None
        if ahead is None or not fits(ahead):
            continue
        budgets = largest_budgets(ahead, found.clause, found.count)
        if budgets.shape[1] > 1:  # a class is never ahead of itself
            own = torch.nn.functional.one_hot(label[inputs], budgets.shape[1]).bool()
            budgets = budgets.masked_fill(own, found.count)
        low[inputs] = torch.maximum(low[inputs], torch.minimum(budgets.amin(1), high[inputs]))
        done[inputs] = is_linear(certificate.nominal)
    return done


def _ask(
    found: Levels,
    level: int,
    inputs: Tensor,
    x: Tensor,
    label: Tensor,
    threat: Threat,
    chunk: int,
    low: Tensor,
    high: Tensor,
) -> None:
    """Ask about one level, and narrow down where the largest certain one is."""
    if not len(inputs):
        return
    asked, parts = found.at(level), zip(torch.split(x[inputs], chunk), torch.split(label[inputs], chunk), strict=True)
    certain = torch.cat([asked._certain(part, threat, wanted) for part, wanted in parts])
    low[inputs] = torch.where(certain, level, low[inputs])
    high[inputs] = torch.where(certain, high[inputs], level - 1)


def of_one(certificate: Certificate, x: Any, **asked: Any) -> Withstood:
    """What predictions withstand by one certificate, whose rows must have been tracked."""
    require_tracked(levels(certificate, asked.get("over")))
    return withstands([certificate], x, **asked)


def curve(
    certificates: Sequence[Certificate],
    x: Any,
    y: Any,
    *,
    values: Sequence[float] | None = None,
    broken: Mapping[float, Tensor] | None = None,
    **asked: Any,
) -> Curve:
    """Certified accuracy against k or epsilon, from a few certificates of one training, at geometric values say.

    At each of ``values`` (by default all at which it changes, and the ends) every prediction counts with the best of
    all certificates. ``broken``: which labels attacks with so many changes, or so far ones, have changed
    (`bf.attack(...).broken`), for the attacked accuracy. See `withstands` for what else can be given.
    """
    return curve_of(withstands(certificates, x, **asked), y, values, broken)


def curve_of(
    found: Withstood, y: Any, values: Sequence[float] | None = None, broken: Mapping[float, Tensor] | None = None
) -> Curve:
    """The curve of what predictions withstand."""
    y = torch.as_tensor(y).to(found.label.device).reshape(-1)
    if len(y) != len(found):
        raise ValueError(f"{len(found)} inputs and {len(y)} labels")
    right = found.label == y
    require_unbroken(found, broken or {})
    if values is None:
        reached = {0.0, *(float(value) for value in set(found.value.tolist()) if value >= 0)}
        end = min(found.most, max(reached) + 1) if found.unit == "k" else found.most
        values = sorted({*reached, end, *(float(value) for value in broken or () if value <= found.most)})
    at = [found.certain(value) for value in values]
    chosen = [int(value) if found.unit == "k" else float(value) for value in values]
    certified, robustness = [share(sure & right) for sure in at], [share(sure) for sure in at]
    attacked = None if broken is None else [share(right & ~broken_at(value, broken, right)) for value in values]
    return Curve(found.unit, [*chosen], certified, robustness, share(right), len(found), found, attacked)


def require_unbroken(found: Withstood, broken: Mapping[float, Tensor]) -> None:
    """Refuse attacks that changed what is certain: they are about another training, or the bounds are wrong."""
    for value, labels in broken.items():
        if len(labels) != len(found):
            raise ValueError(f"{len(found)} inputs, and attacks on {len(labels)}")
        changed = int((labels.to(found.label.device) & (found.value >= value)).sum())
        if changed:
            raise BoundFlowError(
                f"attacks at {found.unit} = {value:g} changed {changed} predictions that are certain there: they are "
                "about another training, or the bounds are wrong"
            )


def broken_at(value: float, broken: Mapping[float, Tensor], like: Tensor) -> Tensor:
    """Which labels can be changed at a value: what fewer or shorter changes did, is done by more of them, too."""
    known = torch.zeros_like(like)
    for reached, labels in broken.items():
        if reached <= value:
            known |= labels.to(like.device)
    return known


def require_one_training(certificates: Sequence[Certificate]) -> None:
    """Refuse certificates that are not about the same training on the same data."""
    first = certificates[0]
    for other in certificates[1:]:
        then, now = first.record.get("identity"), other.record.get("identity")
        if then is None or now is None:
            raise DifferentRuns(
                "these certificates do not all say what they rest on, like files of earlier versions, so nobody can "
                "tell whether they are of one training: train again with this version"
            )
        found = identity.differences(then, now, but=identity.OF_BOUNDS)
        found += [name for name in (*ASKED, *ASKED_TOO) if first.record.get(name) != other.record.get(name)]
        if found:
            raise DifferentRuns(
                f"these certificates are of different trainings: they differ in {identity.listed(found)}"
            )
        if not _identical(first, other):
            raise DifferentRuns(
                "these certificates are of different trainings: their plain parameters are not the same to the last "
                "bit. Fix one recipe (learning rate, steps, seed) for all values of k or epsilon"
            )
    if first.record.get("task") == "regression":
        raise BoundFlowError("what a prediction withstands is for classes: a regression is never certain of one number")


def require_one_kind(certificates: Sequence[Certificate], over: str | None) -> None:
    """The same changes in the same clauses: only what is asked about may differ, the budget or the one radius.

    Otherwise five samples that move by 0.01 would count as five that move by 0.5. A run in which nothing could be
    changed is the case of no changes, unless the others can be left with some: flips, where no feature moves.
    """
    found = [one.record["clauses"] for one in certificates if one.record.get("clauses")]
    if not found:
        return
    over = over or ("k" if any(clause["budget"] is not None for clause in found[0]) else "epsilon")
    if len(found) < len(certificates) and any(_is_left_with_changes(clauses, over) for clauses in found):
        none = "where no sample was changed" if over == "k" else "where no feature was moved"
        raise DifferentRuns(
            f"nothing could be changed in one of these runs, and {none} the others still have changes of another kind: "
            "leave that run out"
        )
    if len(found) < 2:
        return
    if any("kind" not in change for clauses in found for clause in clauses for change in clause["changes"]):
        raise DifferentRuns("these certificates do not say of which kind their threats are: train again")
    if any(_kind(clauses, over) != _kind(found[0], over) for clauses in found[1:]):
        varied = "how many samples were changed" if over == "k" else "how far all features were moved"
        raise DifferentRuns(f"these certificates are of different kinds of threats: they may differ in {varied} alone")


def _is_left_with_changes(clauses: list[dict[str, Any]], over: str) -> bool:
    """Whether something can have been changed at 0 samples, or at radius 0."""
    if over == "k":
        return len(clauses) > 1 or clauses[0]["budget"] is None
    return any(change["shrinks"] is None for clause in clauses for change in clause["changes"])


def _kind(clauses: list[dict[str, Any]], over: str) -> list[Any]:
    """What certificates must have in common, of which what is varied is asked."""
    moves = [change for clause in clauses for change in clause["changes"] if change["shrinks"] is not None]
    one_radius = over == "epsilon" and len(moves) == 1 and moves[0]["shrinks"]["epsilon"] is not None
    names = [[change["kind" if one_radius else "exactly"] for change in clause["changes"]] for clause in clauses]
    budgets = [clause["budget"] is None if over == "k" else clause["budget"] for clause in clauses]
    return [budgets, names]


def _identical(first: Certificate, second: Certificate) -> bool:
    """Whether the plain models hold the same numbers to the last bit, in tensors and in what they keep beside."""
    kept = [[*one.nominal.named_parameters(), *one.nominal.named_buffers(), *_kept(one)] for one in (first, second)]
    digests = [{name: identity.of_value(_number(value)) for name, value in held} for held in kept]
    return not identity.differences(*digests)


def _kept(certificate: Certificate) -> list[tuple[str, Any]]:
    """What the plain model has kept outside of buffers, by name."""
    model = certificate.nominal
    apart = [(name, *name.rpartition(".")[::2]) for name in certificate.record.get("state", ())]
    return [(name, getattr(model.get_submodule(path), last)) for name, path, last in apart]


def _number(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value  # a file does not say what was trained
