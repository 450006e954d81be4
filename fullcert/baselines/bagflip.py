"""BagFlip: bagging with flipping noise (Zhang, Albarghouthi, D'Antoni, NeurIPS 2022).

A base model is trained on a bag: e samples drawn with replacement, every feature (one of K categories) and the label
kept with a fixed probability and otherwise any other category. The smoothed classifier answers with the class that is
the most probable over bags. N base models estimate the probabilities (`binomial.py`); what an attacker can make of them
is exact (`likelihood.py`). FL1: of each of at most r training samples one feature or the label was changed.

**What the confidence covers.** With probability at least 1 - alpha over the draw of the N base models, *all* points of
one call of `certified` are right at once: alpha is divided by the number of points and of bounds for each. Right means:
the smoothed classifiers of the observed data and of every dataset within the threat give the label. It is a statement
about smoothed classifiers, not about N models trained on poisoned data, and it takes pseudo-random numbers for random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from fullcert.baselines import binomial
from fullcert.baselines.ensembles import Learner, counted
from fullcert.baselines.likelihood import Flip, Shifts, worst


@dataclass(frozen=True)
class BagFlip:
    """The noise: bags of ``bag`` samples, features of ``categories`` categories, labels of ``classes`` classes."""

    bag: int
    keep: float  # the probability that a feature stays; 1 is bagging without noise
    categories: int = 2
    classes: int = 2
    keep_label: float | None = None  # None: as features

    def flip(self, features: bool = True, labels: bool = True) -> Flip:
        """The noise on a coordinate that the attacker can change, in the worst case."""
        label = Flip.uniform(self.keep if self.keep_label is None else self.keep_label, self.classes)
        return worst([*([Flip.uniform(self.keep, self.categories)] if features else []), *([label] if labels else [])])

    def shifts(self, samples: int, touched: Mapping[int, int], features: bool = True, labels: bool = True) -> Shifts:
        """Of a threat in which ``touched[s]`` of all samples have at most s coordinates changed; FL1 is {1: r}."""
        shares = {changed: Fraction(number, samples) for changed, number in touched.items() if number}
        return Shifts.of_bag(self.bag, shares, self.flip(features, labels))

    def bags(self, x: Tensor, y: Tensor, number: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Bags of samples with noise (number, bag, ...), from categories (n, ...) and classes (n,) as whole numbers.

        Numbers are drawn in float64, whose steps of 2^-53 make every probability exact that is a float itself.
        """
        chosen = _below(len(x), (number, self.bag), x.device, generator)
        keep_label = self.keep if self.keep_label is None else self.keep_label
        return (
            _flipped(x[chosen], self.keep, self.categories, generator),
            _flipped(y[chosen], keep_label, self.classes, generator),
        )

    def votes(
        self,
        learner: Learner,
        data: tuple[Tensor, Tensor],
        points: Tensor,
        models: int = 1000,
        seed: int = 0,
        encoded: Callable[[Tensor], Tensor] = Tensor.float,
        at_a_time: int = 100,
    ) -> Tensor:
        """How many of the base models answer each class at each point (points, classes).

        Points are categories as the training data are; ``encoded`` makes inputs of the network of them.
        """
        x, y = data
        generator = torch.Generator(x.device).manual_seed(seed)
        votes = torch.zeros(len(points), self.classes, dtype=torch.long, device=x.device)
        for start in range(0, models, at_a_time):
            bags, labels = self.bags(x, y, min(at_a_time, models - start), generator)
            votes += counted(learner.answers(learner.fit(encoded(bags), labels), encoded(points)), self.classes)
        return votes


def certified(votes: Tensor, shifts: Shifts, alpha: float = 0.001) -> Tensor:
    """Which points keep the class with the most votes, whatever the attacker did."""
    points, classes = votes.shape
    # a lower bound for the class that turns out to be the first, and upper ones for all others: any may be the first
    level = Fraction(alpha) / (points * (classes if classes == 2 else 2 * classes))
    known: dict[tuple[int, ...], bool] = {}
    for row in set(map(tuple, votes.tolist())):
        models, first = sum(row), max(range(classes), key=lambda each: row[each])
        low = binomial.lower(row[first], models, level)
        others = [
            1 - low if classes == 2 else min(1 - low, binomial.upper(row[each], models, level))
            for each in range(classes)
            if each != first
        ]
        known[row] = all(shifts.lowest(low) > shifts.highest(other) for other in others)
    return torch.tensor([known[tuple(row)] for row in votes.tolist()], device=votes.device)


def _below(end: int, shape: tuple[int, ...], device: torch.device, generator: torch.Generator) -> Tensor:
    """Whole numbers below ``end``, each as likely as the others."""
    drawn = torch.rand(shape, dtype=torch.float64, device=device, generator=generator)
    return (drawn * end).long().clamp_max(end - 1)


def _flipped(values: Tensor, keep: float, categories: int, generator: torch.Generator) -> Tensor:
    """Every value kept with this probability, and any other category otherwise."""
    shape = tuple(values.shape)
    flips = torch.rand(shape, dtype=torch.float64, device=values.device, generator=generator) >= keep
    step = flips.to(values.dtype)
    if categories > 2:
        step = step * (1 + _below(categories - 1, shape, values.device, generator)).to(values.dtype)
    return (values + step) % categories
