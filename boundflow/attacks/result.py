"""What attacks found: for every test point whether a poisoned dataset changes its label, and how near others came."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .poisoned import Poisoned

CERTIFIED, UNDECIDED, BROKEN = "certified", "undecided", "broken"


@dataclass(frozen=True)
class Attacked:
    """The result of `attack`.

    ``label`` is what the model trained on the observed data answers, ``right`` whether that is the true label (None if
    it is not known), ``broken`` whether some dataset that was found changes it, ``found_by`` the attack that did, and
    ``lead`` the smallest lead of the label that was found, negative where it changed. ``worst`` is the dataset that
    changes most labels that were right. ``certified`` is there if a certificate was held against the attacks.
    For regression nothing is broken, and ``-lead`` is how far an output was moved.
    """

    label: Tensor
    right: Tensor | None
    broken: Tensor
    lead: Tensor
    found_by: tuple[str | None, ...]
    worst: Poisoned
    worst_attack: str
    worst_breaks: int
    trainings: int
    outside: int  # datasets that left the threat and were not counted: none, unless there is a bug
    seconds: float
    certified: Tensor | None = None
    skipped: dict[str, str] = field(default_factory=dict)  # attacks that could not be made, and why
    settings: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.broken)

    @property
    def nominal_accuracy(self) -> float | None:
        """The share of the points that the observed model gets right."""
        return None if self.right is None else _share(self.right)

    @property
    def attacked_accuracy(self) -> float | None:
        """The share that is right and that no dataset found changes: no certificate of this training can have more."""
        return None if self.right is None else _share(self.right & ~self.broken)

    @property
    def certified_accuracy(self) -> float | None:
        if self.right is None or self.certified is None:
            return None
        return _share(self.right & self.certified)

    @property
    def gap(self) -> float | None:
        """Attacked less certified accuracy: what neither side knows."""
        attacked, certified = self.attacked_accuracy, self.certified_accuracy
        return None if attacked is None or certified is None else attacked - certified

    @property
    def states(self) -> list[str]:
        """Of each point: certified, undecided or broken."""
        known = torch.zeros_like(self.broken) if self.certified is None else self.certified
        pairs = zip(known.tolist(), self.broken.tolist(), strict=True)
        return [CERTIFIED if sure else BROKEN if broken else UNDECIDED for sure, broken in pairs]

    def as_data(self) -> dict[str, Any]:
        """Everything but the worst dataset, as JSON data."""
        counted = Counter(self.states)
        points = zip(self.label.tolist(), self.states, self.lead.tolist(), self.found_by, strict=True)
        return {
            "points": len(self),
            "nominal_accuracy": self.nominal_accuracy,
            "attacked_accuracy": self.attacked_accuracy,
            "certified_accuracy": self.certified_accuracy,
            "gap": self.gap,
            "states": {state: counted[state] for state in (CERTIFIED, UNDECIDED, BROKEN)},
            "found_by": dict(Counter(name for name in self.found_by if name is not None)),
            "worst": {"attack": self.worst_attack, "broken": self.worst_breaks},
            "trainings": self.trainings,
            "outside": self.outside,
            "skipped": self.skipped,
            "settings": self.settings,
            "seconds": self.seconds,
            "by_point": [
                {"point": n, "label": label, "state": state, "lead": lead, "found_by": by}
                for n, (label, state, lead, by) in enumerate(points)
            ],
        }


def _share(decisions: Tensor) -> float:
    return decisions.double().mean().item()
