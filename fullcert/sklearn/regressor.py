"""A regressor whose values come with bounds over all allowed training data."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data

from boundflow import rounding
from boundflow.threats import Labels, Threat
from fullcert.sklearn import fitted
from fullcert.sklearn.answers import CertifiedValues
from fullcert.sklearn.certified import CertifiedEstimator
from fullcert.sklearn.checks import positive
from fullcert.sklearn.weights import combined


@dataclass(kw_only=True, eq=False, repr=False)
class CertifiedRegressor(RegressorMixin, CertifiedEstimator):
    """A regressor whose values come with bounds over all allowed training data.

    ``target_epsilon``: every training target is moved by at most this. With ``at_most`` only so many samples have moved
    features or targets.
    """

    target_epsilon: float = 0.0

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "CertifiedRegressor":
        """Train the plain model and the set of all models that the threat allows.

        ``sample_weight``: how much each sample counts, fixed before training.
        """
        self._forget()
        x, y = validate_data(self, self._learnt(X), y, y_numeric=True, **self._checks(self.threat))
        y, weights = y.astype(x.dtype), combined(sample_weight, None, x)
        self._threatened(x)
        converges = self._converges()
        self.certificate_ = (
            self._fit_optimum(x, y, None, None, weights) if converges else self._fit(x, y, 1, "mse", weights)
        )
        self._fitted = fitted.of(self)
        return self

    def _moved_targets(self) -> list[Threat]:
        return [Labels(float(self.target_epsilon))] if positive(self.target_epsilon) else []

    def _weights(self, weights: np.ndarray, intercepts: np.ndarray) -> tuple[Any, Any]:
        return weights[0], float(intercepts[0])

    def predict(self, X: Any) -> np.ndarray:
        """The values of the plain model."""
        return self._outputs(X)[:, 0]

    def predict_certified(
        self, X: Any, epsilon: Any = None, threat: Threat | None = None, cuts: int = 0
    ) -> CertifiedValues:
        """Values, and bounds on them over any allowed training data together with any allowed input.

        ``epsilon``: every feature of an input moved by at most this; None: by ``test_epsilon``. ``threat``: any threat
        to inputs instead. ``cuts``: the box of an input is cut in halves so many times over, for narrower bounds.
        """
        answer = self._answers(X, epsilon, threat, cuts)
        value, lower, upper = (part[:, 0] for part in (answer.label, answer.lower, answer.upper))
        width = rounding.width(torch.stack((lower, upper)))
        return CertifiedValues(value.numpy(), lower.numpy(), upper.numpy(), width.numpy())

    def certified_score(
        self, X: Any, y: Any, epsilon: Any = None, threat: Threat | None = None, cuts: int = 0
    ) -> float:
        """R^2 with every prediction at the bound that is farther from its target; minus infinity without bounds.

        The R^2 of every allowed model, on any allowed inputs, is at least this.
        """
        answer, y = self.predict_certified(X, epsilon, threat, cuts), column_or_1d(y, dtype=np.float64)
        check_consistent_length(answer.value, y)
        farther = np.where(np.abs(answer.lower - y) > np.abs(answer.upper - y), answer.lower, answer.upper)
        return float(r2_score(y, farther)) if np.isfinite(farther).all() else -np.inf
