"""A certificate held against every poisoned model: what it says must be true of all of them.

    lower <= parameter <= upper,     lower <= output <= upper,     the label of a certified point stays

What is found outside is trained once more by an ordinary module, one dataset alone, before it counts: only then is it a
`Violation`, which holds everything that is needed to see it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import Violation
from .points import Answers, Points
from .poisoned import Poisoned
from .trainings import Parameters, Trainings

if TYPE_CHECKING:
    from ..answers.certificate import Certificate
    from ..threats import Threat


class Watch:
    """The bounds of a certificate, and how often they were looked at."""

    def __init__(
        self,
        certificate: Certificate,
        trainings: Trainings,
        points: Points,
        x: Tensor,
        threat: Threat | None,
        options: dict[str, Any],
    ):
        self.trainings, self.points = trainings, points
        found = certificate.predict(x, threat=threat, **options)
        self.certified, self.label = found.certified, found.label
        self.lower, self.upper = found.lower, found.upper
        self.parameters: dict[str, tuple[Tensor, Tensor]] = {}
        for name, value in certificate.model.named_parameters() if certificate.model is not None else ():
            if name in trainings.trained:
                self.parameters[name] = (value.lower, value.upper)  # type: ignore[attr-defined]

    def look(self, attack: str, poisoned: Poisoned, fits: Tensor, stacked: Parameters, answers: Answers) -> None:
        """Raise if one of the models is what the certificate excludes."""
        suspects = self._outside(stacked, answers) & fits
        for number in torch.nonzero(suspects).flatten().tolist():
            self._confirm(attack, poisoned.written_out().pick([number]))

    def _outside(self, stacked: Parameters, answers: Answers) -> Tensor:
        """Which of the models are outside, (D,)."""
        found = self._labels(answers).any(1) | self._outputs(answers).flatten(1).any(1)
        for name, (lower, upper) in self.parameters.items():
            found = found | (~((stacked[name] >= lower) & (stacked[name] <= upper))).flatten(1).any(1)
        return found

    def _labels(self, answers: Answers) -> Tensor:
        if self.points.regression:
            return torch.zeros_like(answers.changed)
        return self.certified & (answers.changed | (self.label != self.points.label))

    def _outputs(self, answers: Answers) -> Tensor:
        return (answers.low < self.lower) | (answers.high > self.upper)

    def _confirm(self, attack: str, poisoned: Poisoned) -> None:
        """Train the dataset alone and in the ordinary way, and raise if it is outside then, too."""
        model = self.trainings.plainly(poisoned)
        stacked = {name: value.detach()[None] for name, value in model.named_parameters()}
        answers = self.points.answers({name: stacked[name] for name in self.trainings.trained})
        labels, outputs = self._labels(answers)[0], self._outputs(answers)[0].flatten(1).any(1)
        evidence = {"attack": attack, "poisoned": poisoned, "parameters": {n: v[0] for n, v in stacked.items()}}
        if bool(labels.any()):
            point = int(labels.nonzero()[0])
            told = f"test point {point} is certified, and changes its label"
            raise Violation(_told(attack, told), {**evidence, "point": point, "what": told})
        if bool(outputs.any()):
            point = int(outputs.nonzero()[0])
            told = (
                f"test point {point} has outputs from {answers.low[0, point].tolist()} to "
                f"{answers.high[0, point].tolist()}, outside of {self.lower[point].tolist()} to "
                f"{self.upper[point].tolist()}"
            )
            raise Violation(_told(attack, told), {**evidence, "point": point, "what": told})
        for name, (lower, upper) in self.parameters.items():
            beyond = ~((stacked[name][0] >= lower) & (stacked[name][0] <= upper))
            if bool(beyond.any()):
                place = tuple(int(index) for index in beyond.nonzero()[0])
                value, low, high = (part[place].item() for part in (stacked[name][0], lower, upper))
                told = f"{name}{list(place)} is {value!r}, outside of {low!r} to {high!r}"
                raise Violation(_told(attack, told), {**evidence, "tensor": name, "what": told})


def _told(attack: str, what: str) -> str:
    return (
        f"the certificate is wrong: under a dataset that its threat allows, found by the attack {attack!r}, {what}. "
        "This is a bug, here or in a rule of your own: .evidence holds the dataset and the model"
    )
