"""Deep Partition Aggregation (Levine, Feizi, ICLR 2021): one model for each part of the training data, and a vote.

With n_c votes for class c, ties going to the smaller class, the first class a stays the first as long as no more than

    floor( (n_a - max over b of (n_b + [b < a])) / 2 )

parts are touched, since one part can take a vote from a and give it to b. How many parts a change touches depends on
how the parts are made:

    by position   sample i belongs to part i mod k. Whatever is done to a sample in its place (features, label, or both)
                  touches one part. Insertions and removals that move others to another place are not covered.
    by content    a digest of the features alone says to which part. A sample put in or taken out touches one part, and
                  so does a changed label; changed features are one sample out and one in: two parts.

No noise and no confidence: the vote is a function of the data. So that members depend on their own part alone, all are
padded to one fixed length; of a part that is longer, its first samples are taken, in the order of their digests.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from fullcert.baselines.ensembles import Learner, counted


@dataclass(frozen=True)
class Partition:
    """Which samples each part holds: numbers (k, length), and 1 or 0 where a row only fills up."""

    members: Tensor
    weights: Tensor

    @classmethod
    def by_position(cls, samples: int, parts: int) -> Partition:
        """Sample i in part i mod k."""
        return cls._of([list(range(part, samples, parts)) for part in range(parts)], -(-samples // parts))

    @classmethod
    def by_content(cls, x: Tensor, parts: int, length: int | None = None) -> Partition:
        """By a digest of the features. ``length`` must be fixed beforehand; by default twice the mean of a part."""
        length = max(1, 2 * len(x) // parts) if length is None else length
        digests = [hashlib.sha256(sample.numpy().tobytes()).digest() for sample in x.detach().cpu().contiguous()]
        order = sorted(range(len(x)), key=lambda sample: digests[sample])
        groups: list[list[int]] = [[] for _ in range(parts)]
        for sample in order:
            groups[int.from_bytes(digests[sample], "big") % parts].append(sample)
        return cls._of([group[:length] for group in groups], length)

    @classmethod
    def _of(cls, groups: list[list[int]], length: int) -> Partition:
        members = torch.tensor([group + [0] * (length - len(group)) for group in groups])
        filled = torch.tensor([[1.0] * len(group) + [0.0] * (length - len(group)) for group in groups])
        return cls(members, filled)

    def votes(self, learner: Learner, x: Tensor, y: Tensor, points: Tensor, classes: int) -> Tensor:
        """How many members answer each class at each point (points, classes)."""
        members, weights = self.members.to(x.device), self.weights.to(x)
        shown = x[members] * weights.reshape(*weights.shape, *[1] * (x.dim() - 1))  # no trace of what fills up
        labels = y[members] * weights.long()
        return counted(learner.answers(learner.fit(shown, labels, weights), points), classes)


def first(votes: Tensor) -> Tensor:
    """The class with the most votes, the smaller one of a tie."""
    classes = votes.shape[1]
    return (votes * classes - torch.arange(classes, device=votes.device)).argmax(1)


def certified_parts(votes: Tensor) -> Tensor:
    """For each point, how many parts can be touched, whatever is done to them, with the first class staying so."""
    winner = first(votes)
    ahead = torch.arange(votes.shape[1], device=votes.device) < winner.unsqueeze(1)
    rivals = (votes + ahead.long()).scatter(1, winner.unsqueeze(1), -1)
    return (votes.gather(1, winner.unsqueeze(1)).squeeze(1) - rivals.amax(1)) // 2
