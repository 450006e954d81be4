"""Ensemble: members trained on parts of the data, each with certificates of its own, and their certified vote.

Sample i belongs to member ``i mod P``, by its position alone. Members share the initial weights and the recipe, which
are fixed beforehand, and nothing that was fitted on data: whatever is done to a sample in its place (its label, its
presence, the sample itself) touches one member. Every certificate says which samples of which data its member was
trained on, and members that share one, or do not say it, are refused: a change of a shared sample would count once and
touch all of them. Equal rows in different places are different samples. What each member withstands, by its own
certificates, says what overtaking the vote costs (`votes.py`).

A few budgets, 0, 1, 4, 16, ... up to k, serve each member better than one: errors of training grow with the budget, and
a member counts with the best of its certificates (`withstanding.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..answers.certificate import Certificate, load
from ..answers.prediction import threat_to_inputs
from ..errors import BoundFlowError, DifferentRuns, WrongContent
from ..operators.losses import as_targets
from ..same_program import identity
from ..tensor.lift import Given
from ..threats import AtMost, Linf, Threat
from ..training.certified_training import certify
from . import votes
from .withstanding import Curve, Withstood, curve_of, require_one_kind, require_one_training, withstands

FORMAT = 1
LISTED = "ensemble.json"
FACTOR = 4


@dataclass(frozen=True)
class Vote:
    """The vote on a batch of inputs: the label, what it withstands, and the members (N, P) behind it."""

    label: Tensor
    withstood: Tensor  # how many changes, at least; -1 if it is uncertain untouched
    members: Tensor  # what each member answers
    stands: Tensor  # how many changes of its own part each member withstands
    classes: int

    def __len__(self) -> int:
        return len(self.label)

    def certified(self, k: int) -> Tensor:
        """Which votes stay the same whoever changed at most k samples."""
        return self.withstood >= k

    @property
    def by_members(self) -> Tensor:
        """What the vote would withstand if every touched member were lost: Deep Partition Aggregation."""
        return votes.withstood(self.members, torch.zeros_like(self.stands), self.classes)


@dataclass
class Ensemble:
    """For every part of the data the certificates of its member, for one budget or for several."""

    members: list[list[Certificate]]

    def __post_init__(self) -> None:
        if not self.members or not all(self.members):
            raise ValueError("an ensemble needs members, each with a certificate")
        for certificates in self.members:
            require_one_training(certificates)
            for certificate in certificates:
                _require_one_budget(certificate)
        require_one_kind([certificate for certificates in self.members for certificate in certificates], "k")
        _require_apart([certificates[0].record.get("part") for certificates in self.members])
        shapes = {tuple(one.record.get("input_shape", ())) for member in self.members for one in member}
        if len(shapes) > 1:
            raise DifferentRuns("members of one ensemble answer for inputs of one shape")

    @classmethod
    def certify(
        cls,
        model: nn.Module,
        data: tuple[Given, Given],
        *,
        members: int,
        threat: Threat,
        budgets: Sequence[int] | None = None,
        tell: Callable[[int, int], None] = lambda done, total: None,
        **recipe: Any,
    ) -> Ensemble:
        """Train ``members`` models, one after the other, each on its part of the data, for several budgets.

        ``threat`` is ``AtMost(k, ...)``: labels, removals, replacements (with ``clip_gradients``), or moves.
        ``budgets`` are those that members are trained for, by default 0, 1, 4, 16, ... and k. The rest is as for
        `certify`. ``tell`` is called with the number of trainings that are done, and of all.
        """
        x, y = (torch.as_tensor(part) for part in data)
        whole = Whole((x, y))
        parts, made = partition(len(x), members), list[list[Certificate]]()
        chosen = budgets_of(threat, budgets)
        for number, part in enumerate(parts):
            some = (x[part], y[part])
            own = _of_part(recipe, part, len(x))
            made.append([])
            for place, budget in enumerate(chosen):
                found = certify(model, some, threat=_counted(threat, budget), **{"progress": False, **own})
                made[-1].append(whole.member(found, part))
                tell(number * len(chosen) + place + 1, len(parts) * len(chosen))
        return cls(made)

    @classmethod
    def of(
        cls, members: Sequence[Sequence[Certificate]], data: tuple[Given, Given], parts: Sequence[Given]
    ) -> Ensemble:
        """Members that were trained one by one, each on these samples (numbers or a mask) of the same data."""
        if len(members) != len(parts):
            raise ValueError(f"{len(members)} members and {len(parts)} parts of the data: give as many of each")
        whole = Whole(data)
        pairs = zip(members, parts, strict=True)
        return cls([[whole.member(certificate, part) for certificate in each] for each, part in pairs])

    @property
    def samples(self) -> int:
        """Of the whole data."""
        return sum(int(certificates[0].record["samples"]) for certificates in self.members)

    # --- answers ------------------------------------------------------------------------------------------------------

    def predict(
        self,
        x: Given,
        epsilon: Given = 0.0,
        clip: tuple[float, float] | None = None,
        *,
        threat: Threat | None = None,
        chunk: int = 256,
        tell: Callable[[int, int], None] = lambda done, total: None,
    ) -> Vote:
        """The vote on inputs of which every feature may have moved by at most ``epsilon``, or under another threat."""
        threat = threat_to_inputs(epsilon, clip, threat)
        labels, stands = [], []
        for number, certificates in enumerate(self.members):
            found = withstands(certificates, x, threat=threat, over="k", chunk=chunk)
            labels.append(found.label.cpu())
            stands.append(found.value.cpu())
            tell(number + 1, len(self.members))
        members, stand = torch.stack(labels, 1), torch.stack(stands, 1)
        classes = self._classes(x, threat)
        label = votes.first(votes.counted(members, classes))
        withstood = votes.withstood(members, stand, classes).clamp_max(self.samples)  # there are no more to change
        return Vote(label, withstood, members, stand, classes)

    def withstands(self, x: Given, epsilon: Given = 0.0, **asked: Any) -> Withstood:
        """For each vote how many samples, of the whole data, can be changed without changing it."""
        return self._withstood(self.predict(x, epsilon, **asked))

    def curve(self, x: Given, y: Given, *, values: Sequence[float] | None = None, **asked: Any) -> Curve:
        """Certified accuracy of the vote against the number of changed samples."""
        return curve_of(self.withstands(x, **asked), y, values)

    def _withstood(self, found: Vote) -> Withstood:
        return Withstood(found.label, found.withstood, "k", float(self.samples))

    def _classes(self, x: Given, threat: Threat) -> int:
        """Of all members: one may know more of them than another."""
        found = [2]
        for certificate in (certificates[0]._in_evaluation_mode() for certificates in self.members):
            with torch.no_grad():
                found.append(certificate._plain(certificate._checked(x, threat)[:1], threat).shape[1])
        return max(found)

    # --- files --------------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """A folder with one file for each certificate, and a list of them."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for number, certificates in enumerate(self.members):
            for place, certificate in enumerate(certificates):
                certificate.save(folder / member_file(number, place))
        self.write_list(folder)

    def write_list(self, folder: Path) -> None:
        """The list of members, where each has its file already: the last thing to be written."""
        listed = []
        for number, certificates in enumerate(self.members):
            names = [member_file(number, place) for place in range(len(certificates))]
            listed.append({"files": names, "data": certificates[0].record.get("data")})
        text = json.dumps({"format": FORMAT, "samples": self.samples, "members": listed}, indent=1)
        (folder / LISTED).write_text(text + "\n")

    @classmethod
    def load(cls, folder: str | Path, model: nn.Module | None = None) -> Ensemble:
        """Read what `save` has written; ``model`` is as for `bf.load`."""
        listed = _listed(Path(folder))
        members = [[load(Path(folder) / name, model) for name in entry["files"]] for entry in listed["members"]]
        for entry, certificates in zip(listed["members"], members, strict=True):
            if any(certificate.record.get("data") != entry["data"] for certificate in certificates):
                raise WrongContent(f"{folder}: a member is not of the part of the data that {LISTED} names")
        made = cls(members)
        if made.samples != listed["samples"]:
            raise WrongContent(f"{folder}: the parts of the members are not all of the data")
        return made


class Whole:
    """The data of which every member of a vote is trained on a part."""

    def __init__(self, data: tuple[Given, Given]):
        self.x, self.y = (torch.as_tensor(part).detach() for part in data)
        self._read: dict[tuple[str, str], tuple[Tensor, Tensor, str]] = {}

    def member(self, certificate: Certificate, part: Given) -> Certificate:
        """A certificate that says on which samples of these data it was trained; others than it was are refused."""
        chosen = np.asarray(part.detach().cpu() if isinstance(part, Tensor) else part)
        if chosen.dtype.kind not in "biu" or (chosen.dtype == bool and chosen.shape != (len(self.x),)):
            raise ValueError("the part of a member are numbers of samples, or a mask over all of them")
        positions = (np.flatnonzero(chosen) if chosen.dtype == bool else chosen.reshape(-1)).tolist()
        if len(set(positions)) < len(positions) or not all(0 <= position < len(self.x) for position in positions):
            raise ValueError(f"the samples of a member are counted from 0 to {len(self.x) - 1}, each once")
        x, y, digest = self._as_trained(certificate)
        index = torch.tensor(positions, dtype=torch.long, device=x.device)
        if identity.of_tensors(x[index], y[index]) != certificate.record["data"]:
            raise DifferentRuns(
                "a member was trained on other data than this part: give the data and the parts as they were"
            )
        told = {"data": digest, "samples": len(x), "positions": positions}
        return replace(certificate, record={**certificate.record, "part": told})

    def _as_trained(self, certificate: Certificate) -> tuple[Tensor, Tensor, str]:
        """Inputs and targets as a training has read them, and their digest."""
        dtype, loss = certificate.record["dtype"], certificate.record["loss"]
        if (dtype, loss) not in self._read:
            x = self.x.to(getattr(torch, dtype))
            y = as_targets(loss, self.y, x.dtype)
            self._read[dtype, loss] = x, y, identity.of_tensors(x, y)
        return self._read[dtype, loss]


def _require_apart(parts: Sequence[dict[str, Any] | None]) -> None:
    """Refuse members that share a sample, or of which nobody can tell."""
    owners: dict[int, int] = {}
    for member, part in enumerate(parts):
        if part is None:
            raise DifferentRuns(
                f"member {member} does not say on which samples of the data it was trained, so it may share some with "
                "another: use bf.Ensemble.certify, or bf.Ensemble.of(members, data, parts), which compares them"
            )
        if parts[0] is not None and any(part[name] != parts[0][name] for name in ("data", "samples")):
            raise DifferentRuns(
                f"members 0 and {member} are not of parts of the same data: train all members on parts of one dataset"
            )
        for position in part["positions"]:
            other = owners.setdefault(position, member)
            if other != member:
                raise DifferentRuns(
                    f"members {other} and {member} were both trained on sample {position}, so one change of it would "
                    "touch two of them: train members on parts that share no sample"
                )


def partition(samples: int, members: int) -> list[Tensor]:
    """The samples of each member, by position: sample i belongs to member i mod P."""
    if isinstance(members, bool) or not 1 <= members <= samples:
        raise ValueError(f"members must be a whole number from 1 to the {samples} samples, not {members!r}")
    return [torch.arange(member, samples, members) for member in range(members)]


def _of_part(fields: dict[str, Any], part: Tensor, samples: int) -> dict[str, Any]:
    """The fields of `certify` for one member, whose samples take their weights with them."""
    weights = fields.get("sample_weights", getattr(fields.get("recipe"), "sample_weights", None))
    if weights is None:
        return fields
    if weights.shape != (samples,):
        raise ValueError(f"sample_weights must be {samples} finite numbers of at least 0, one for each sample")
    return {**fields, "sample_weights": weights[part.to(weights.device)]}


def budgets_of(threat: Threat, budgets: Sequence[int] | None = None) -> list[int]:
    """The budgets that members are trained for: those given, or 0, 1, 4, 16, ... and that of the threat."""
    if not isinstance(threat, AtMost):
        raise ValueError(
            "votes are certified against a budget, bf.threats.AtMost(k, ...): whoever touches all samples "
            "touches all members"
        )
    if any(change.samples is not None for change in threat.changes):
        raise ValueError("members number the samples of their own part: give a threat to all samples")
    if budgets is None:
        below = [FACTOR**power for power in range(threat.k.bit_length()) if FACTOR**power < threat.k]
        return [0, *below, threat.k]
    if not budgets or any(isinstance(k, bool) or int(k) != k or k < 0 for k in budgets):
        raise ValueError(f"budgets must be whole numbers of at least 0, not {list(budgets)}")
    return sorted({int(k) for k in budgets})


def _counted(threat: Threat, k: int) -> Threat:
    assert isinstance(threat, AtMost)
    return AtMost(k, threat.threat) if k else Linf(0.0)  # nobody touched anything: sets as wide as rounding


def _require_one_budget(certificate: Certificate) -> None:
    clauses = certificate.record.get("clauses")
    if clauses is None or len(clauses) > 1 or any(clause["budget"] is None for clause in clauses):
        raise BoundFlowError("a member of an ensemble needs a certificate against one budget, AtMost(k, ...)")


def member_file(number: int, place: int) -> str:
    """The name of a certificate of a member."""
    return f"member-{number:04d}-{place}.safetensors"


def _listed(folder: Path) -> dict[str, Any]:
    """The list of the members, looked at before anything is opened."""
    try:
        found = json.loads((folder / LISTED).read_text())
    except OSError as error:
        raise BoundFlowError(f"{folder} is not the folder of an ensemble: {error.strerror}") from None
    except (ValueError, RecursionError):
        found = None
    known = isinstance(found, dict) and found.get("format") == FORMAT and isinstance(found.get("members"), list)
    if not known or not all(_entry(entry) for entry in found["members"]):
        raise WrongContent(f"{folder / LISTED} is not a list of members that was written here")
    names = [name for entry in found["members"] for name in entry["files"]]
    if len(set(names)) != len(names):
        raise WrongContent(f"{folder / LISTED} names a member twice")
    listed: dict[str, Any] = found
    return listed


def _entry(entry: object) -> bool:
    if not isinstance(entry, dict):
        return False
    known = isinstance(entry.get("files"), list) and isinstance(entry.get("data"), str)
    return known and all(
        isinstance(name, str) and re.fullmatch(r"member-\d{4,9}-\d{1,4}\.safetensors", name) for name in entry["files"]
    )
