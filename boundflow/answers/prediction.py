"""What is answered: labels, whether they are certain, bounds, and accuracies."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..arithmetic import rounding
from ..rules.linear import sub
from ..rules.structural import selected
from ..sets.set import Set
from ..tensor.bounded import Bounded
from ..tensor.lift import Given
from ..threats import Linf, Threat


@dataclass(frozen=True)
class Prediction:
    """Answers for a batch of inputs.

    ``lead`` (N, classes) are lower bounds on the lead of every class over all others; ``margin`` is that of the most
    certain class, and an answer is certified if it is positive. ``width`` is how far the outputs can differ at most.
    For regression ``label`` is the nominal value, ``certified`` says that the bounds are finite, and there is no lead.
    """

    label: Tensor
    certified: Tensor
    lower: Tensor
    upper: Tensor
    lead: Tensor | None = None

    def __len__(self) -> int:
        return len(self.label)

    @staticmethod
    def joined(parts: Sequence[Prediction]) -> Prediction:
        """Answers for several batches of inputs, one after the other."""
        label, certified, lower, upper = (
            torch.cat([getattr(part, name) for part in parts]) for name in ("label", "certified", "lower", "upper")
        )
        leads = [part.lead for part in parts if part.lead is not None]
        return Prediction(label, certified, lower, upper, torch.cat(leads) if leads else None)

    def at(self, places: Tensor) -> Prediction:
        """The answers for some of the inputs, in this order."""
        lead = None if self.lead is None else self.lead[places]
        return Prediction(self.label[places], self.certified[places], self.lower[places], self.upper[places], lead)

    @property
    def width(self) -> Tensor:
        """``upper - lower``, the largest of an input's outputs, rounded up: infinite where nothing is known."""
        return rounding.up(self.upper - self.lower).flatten(1).amax(1)

    @property
    def margin(self) -> Tensor:
        """The lower bound on the lead of the most certain class."""
        if self.lead is not None:
            return self.lead.amax(1)
        warnings.warn(
            "the margin of a regression is its width, larger is worse: use .width (margin ends with version 0.3)",
            DeprecationWarning,
            stacklevel=2,
        )
        width = (self.upper - self.lower).flatten(1).amax(1)
        return width.masked_fill(torch.isinf(width), -torch.inf)


@dataclass(frozen=True)
class Accuracy:
    """Fractions of a test set: right for the plain model, and right for every model in the set."""

    nominal: float
    certified: float
    robustness: float


def leads(logits: Bounded) -> Tensor:
    """Lower bounds on the lead of every class, (N, classes); one logit is the lead of class 1 over class 0.

    Only one class can lead for certain, that of the center: its differences are taken as sets, where common symbols
    cancel. The others get those of the intervals.
    """
    if logits.shape[1] == 1:
        return torch.cat((-logits.upper, logits.lower), 1)
    every = torch.arange(logits.shape[1], device=logits.device)
    found = [logits.lower[:, c] - logits.upper[:, every != c].amax(1) for c in every.tolist()]
    lead = rounding.outward(torch.stack(found, 1).expand(2, -1, -1))[0]
    best = logits.form.center.argmax(1, keepdim=True)
    others = every[:-1] + (every[:-1] >= best)
    sharp = sub(_taken(logits.set, best), _taken(logits.set, others)).bounds[0].amin(1, keepdim=True)
    return lead.scatter(1, best, torch.maximum(sharp, lead.gather(1, best)))


def _taken(logits: Set, classes: Tensor) -> Set:
    """The logits of these classes of each sample, (N, any number)."""

    def taken(tensor: Tensor, leading: int) -> Tensor:
        return torch.take_along_dim(tensor, classes.view(*[1] * leading, *classes.shape), -1)

    return selected(logits, taken)


def plain_leads(logits: Tensor, label: Tensor) -> Tensor:
    """The lead of a label in plain logits."""
    if logits.shape[1] == 1:
        return torch.where(label > 0, logits[:, 0], -logits[:, 0])
    own = torch.nn.functional.one_hot(label, logits.shape[1]).bool()
    return logits[own] - logits.masked_fill(own, -torch.inf).amax(1)


def classes(logits: Tensor) -> Tensor:
    """The class that logits answer; one logit decides between two by its sign."""
    return (logits[:, 0] > 0).long() if logits.shape[1] == 1 else logits.argmax(1)


def threat_to_inputs(epsilon: Given, clip: tuple[float, float] | None, threat: Threat | None) -> Threat:
    """What test inputs are under: every feature moved by at most epsilon, or any other threat instead."""
    if threat is None:
        return Linf(epsilon, clip)
    if clip is not None or bool((torch.as_tensor(epsilon) != 0).any()):
        raise ValueError("give a radius or a threat for the test inputs, not both")
    return threat


def share(decisions: Tensor) -> float:
    """The fraction that is true."""
    return decisions.double().mean().item()
