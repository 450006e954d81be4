"""What the estimators answer: numpy arrays, one entry a row.

Probabilities are monotone in the outputs of a model: one for two classes grows with its output, and that of a class
among several grows with its own output and falls with all others. So bounds on the outputs give bounds on them, by the
rules of the library for sigmoid and softmax, rounded outwards.
"""

from dataclasses import dataclass

import numpy as np
import torch

import boundflow as bf
from fullcert.networks.probabilities import probabilities


@dataclass(frozen=True)
class CertifiedLabels:
    """Answers of a classifier. Where ``certified``, every model on every allowed input answers ``label``.

    Elsewhere ``label`` is that of the plain model. ``lower`` and ``upper`` bound the decision function and have its
    shape; ``margin`` is the lower bound on the lead of the most certain class over all others.
    """

    label: np.ndarray
    certified: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    margin: np.ndarray


@dataclass(frozen=True)
class CertifiedValues:
    """Answers of a regressor: the value of the plain model, and bounds on that of every model and allowed input."""

    value: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    width: np.ndarray


@dataclass(frozen=True)
class CertifiedProbabilities:
    """Probabilities of the classes, (n, classes): those of the plain model, and bounds over every model and input."""

    probability: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


@dataclass(frozen=True)
class Withstood:
    """For each prediction the largest value at which no allowed data can change it: -1 where not even at none.

    ``unit`` is "k" touched samples, "epsilon" of a move, or a "share" of radii that differ by feature. Nothing was
    asked beyond ``most``.
    """

    label: np.ndarray
    value: np.ndarray
    unit: str
    most: float


def conventional(outputs: np.ndarray) -> np.ndarray:
    """One number a row where there is one output, as scikit-learn has it."""
    return outputs[:, 0] if outputs.shape[1] == 1 else outputs


def bounded_probabilities(lower: torch.Tensor, upper: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and largest probabilities of outputs between the bounds; 0 and 1 where there are none."""
    known = (torch.isfinite(lower) & torch.isfinite(upper)).all(1)
    low, high = (torch.zeros(len(lower), max(2, lower.shape[1]), dtype=lower.dtype) for _ in range(2))
    high += 1.0
    if bool(known.any()):
        found = probabilities(bf.interval(lower[known], upper[known]))
        low[known], high[known] = found.lower, found.upper  # type: ignore[attr-defined]
    return low.clamp(0.0, 1.0).numpy(), high.clamp(0.0, 1.0).numpy()
