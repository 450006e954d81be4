"""How much each sample counts: numbers that are fixed before training, whatever the data are.

    loss = sum_i w_i loss_i / sum_i w_i

so that a weight of 2 is a sample that is there twice, and a weight of 0 one that is not there. They are divided by
their mean here, and the training divides by the number of samples.
"""

from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight


def combined(given: Any, by_class: np.ndarray | None, x: np.ndarray) -> np.ndarray | None:
    """Weights of samples times those of their classes, with mean 1; None where all count the same."""
    if given is None and by_class is None:
        return None
    weights = np.ones(len(x)) if given is None else _check_sample_weight(given, x, dtype=np.float64).copy()
    if by_class is not None:
        weights = weights * by_class
    if not (weights >= 0).all() or not weights.any():
        raise ValueError("sample_weight must be numbers of at least 0, and not all of them 0")
    return (weights / weights.mean()).astype(x.dtype)
