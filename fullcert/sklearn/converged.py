"""`certify`: a certificate of a scikit-learn model that was fitted as usual, with its weights as they are.

    LogisticRegression   two classes: every solver; liblinear penalises the intercept
    LinearSVC            two classes, squared hinge, which penalises the intercept
    RidgeClassifier      any number of classes; its targets -1 and 1 are twice the one-hot ones, less 1
    Ridge                numbers

alone or at the end of a pipeline. Each minimises a convex objective, and the certificate is about the optimum of that
objective on every allowed dataset (`boundflow/optimum`). Steps before it must see no label: they are fitted again
without labels, and must give the same numbers. What a solver leaves of the gradient on other data is said by
``tolerance``, by default the ``tol`` of the model where its solver stops at one.
"""

from __future__ import annotations

import fractions
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.pipeline import Pipeline
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d
from torch import nn

from boundflow.analysis.audit import Audit
from boundflow.analysis.withstanding import Curve
from boundflow.optimum.certify_optimum import certify_optimum
from boundflow.optimum.optimum_certificate import OptimumCertificate
from boundflow.threats import AtMost, Labels, Threat
from fullcert.sklearn.answers import CertifiedLabels, CertifiedValues, Withstood, conventional
from fullcert.sklearn.checks import counted

GRADIENT = ("lbfgs", "newton-cg", "newton-cholesky")  # solvers that stop at a gradient, its largest entry
STEPWISE = "train it step by step with CertifiedClassifier or CertifiedRegressor"


class NotCovered(ValueError):
    """A model, or an option of one, whose optimum under other labels cannot be bounded here."""


class Objective(NamedTuple):
    """What a fitted model minimises, and the weights that it has, (outputs, d) and (outputs)."""

    loss: str
    ridge: float  # of the sum over samples
    penalised: bool
    weights: np.ndarray | None
    intercept: np.ndarray | None
    tolerance: float
    class_weights: tuple[float, float] | None = None


def certify(
    model: Any,
    X: Any,
    y: Any,
    *,
    flip_labels: float = 0,
    target_epsilon: float = 0.0,
    at_most: float | None = None,
    threat: Threat | None = None,
    sample_weight: Any = None,
    tolerance: float | None = None,
) -> CertifiedModel:
    """The certificate of a fitted model for every dataset that differs in labels or targets as the threat allows.

    ``X`` and ``y`` are what it was fitted on. ``flip_labels``: at most so many labels are wrong; below 1, such a share.
    ``target_epsilon``: targets that are numbers are off by at most this, ``at_most`` so many of them.
    """
    steps, last = (model[:-1], model[-1]) if isinstance(model, Pipeline) and len(model) > 1 else (None, _alone(model))
    check_is_fitted(last)
    inputs = _inputs(steps, X)
    if steps is not None:
        _require_without_labels(steps, X, inputs)
    classes, codes = _codes(last, y)
    check_consistent_length(inputs, codes)
    objective = _objective(last, inputs.shape[1])
    allowed = _threat(threat, flip_labels, target_epsilon, at_most, len(inputs), classes is not None)
    outputs = 1 if classes is None or objective.loss != "squared" else len(classes)
    head, given = _head(objective, inputs.shape[1], outputs)
    found = certify_optimum(
        head,
        (torch.from_numpy(inputs), torch.from_numpy(codes)),
        threat=allowed,
        loss=objective.loss,
        l2=objective.ridge / len(inputs),
        penalise_bias=objective.penalised,
        class_weights=objective.class_weights,
        sample_weights=None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64),
        fitted=given,
        tolerance=objective.tolerance if tolerance is None else tolerance,
    )
    return CertifiedModel(model, steps, found, classes)


class CertifiedModel:
    """A fitted model with its certificate: answers in its own labels."""

    def __init__(self, model: Any, steps: Pipeline | None, certificate: OptimumCertificate, classes: np.ndarray | None):
        self.model, self.steps, self.certificate, self.classes = model, steps, certificate, classes

    def predict(self, X: Any, epsilon: Any = 0.0, seconds: float = 0.0) -> CertifiedLabels | CertifiedValues:
        """Labels or values, with what holds for every allowed dataset.

        ``epsilon`` is in units that reach the model. ``seconds``: so long, labels of a LogisticRegression that stay
        open are looked at further.
        """
        found = self.certificate.predict(self._asked(X), epsilon, seconds=seconds)
        lower, upper = (conventional(bound.numpy()) for bound in (found.lower, found.upper))
        if self.classes is None:
            return CertifiedValues(conventional(found.label.numpy()), lower, upper, upper - lower)
        return CertifiedLabels(
            self.classes[found.label.numpy()], found.certified.numpy(), lower, upper, found.margin.numpy()
        )

    def score(self, X: Any, y: Any, epsilon: Any = 0.0) -> float:
        """The share of labels that are right and certified."""
        answer, y = self.predict(X, epsilon), column_or_1d(y)
        if not isinstance(answer, CertifiedLabels):
            raise ValueError("a share of right labels is for classes: use predict(...).lower and .upper")
        return float(np.mean(answer.certified & (answer.label == y)))

    def withstands(self, X: Any) -> Withstood:
        """For each label how many training labels can be wrong without changing it."""
        found = self.certificate.withstands(self._asked(X))
        assert self.classes is not None
        return Withstood(self.classes[found.label.numpy()], found.value.numpy(), found.unit, found.most)

    def curve(self, X: Any, y: Any) -> Curve:
        """Certified accuracy against the number of wrong labels."""
        assert self.classes is not None
        codes = np.searchsorted(self.classes, column_or_1d(y))
        return self.certificate.curve(self._asked(X), codes)

    def audit(self, X: Any, budget: int = 0) -> Audit:
        """The training rows that uncertain predictions lean on, and which to check first."""
        return self.certificate.audit(self._asked(X), budget=budget)

    def verified(self, samples: Any) -> CertifiedModel:
        """The same where these training labels are known to be right."""
        return CertifiedModel(self.model, self.steps, self.certificate.verified(samples), self.classes)

    def _asked(self, X: Any) -> torch.Tensor:
        return torch.from_numpy(_inputs(self.steps, X))


def _alone(model: Any) -> Any:
    return model[-1] if isinstance(model, Pipeline) else model


def _inputs(steps: Pipeline | None, X: Any) -> np.ndarray:
    found = X if steps is None else steps.transform(X)
    found = found.toarray() if hasattr(found, "toarray") else np.asarray(found)
    if found.ndim != 2 or not np.issubdtype(found.dtype, np.number):
        raise NotCovered(
            f"the model must be given a table of numbers, and not one of {found.dtype} and {found.ndim} axes"
        )
    return np.ascontiguousarray(found, dtype=np.float64)


def _require_without_labels(steps: Pipeline, X: Any, inputs: np.ndarray) -> None:
    """Steps fitted again without labels give the same numbers, so no label has gone into them."""
    try:
        again = _inputs(clone(steps).fit(X), X)
    except Exception as error:
        raise NotCovered(
            f"the steps before the model need labels ({str(error).splitlines()[0]}), so other labels would give other "
            "features: use steps that see none"
        ) from error
    if again.shape != inputs.shape or not np.array_equal(again, inputs):
        raise NotCovered(
            "the steps before the model give other numbers when they are fitted again without labels: they look at "
            "labels, were fitted on other data, or draw numbers without a random_state"
        )


def _codes(model: Any, y: Any) -> tuple[np.ndarray | None, np.ndarray]:
    y = column_or_1d(y)
    if isinstance(model, Ridge):
        return None, y.astype(np.float64)
    classes = getattr(model, "classes_", None)
    if classes is None:
        return None, y
    found = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    if not np.array_equal(classes[found], y):
        raise ValueError("y has labels that the model was not fitted on")
    return classes, found.astype(np.int64)


def _threat(
    threat: Threat | None, flips: float, epsilon: float, at_most: float | None, samples: int, classes: bool
) -> Threat:
    if threat is not None:
        if flips or epsilon or at_most is not None:
            raise ValueError("threat= stands instead of the numbers: write all of it as one threat")
        return threat
    if classes:
        if epsilon or at_most is not None:
            raise ValueError("target_epsilon and at_most are for numbers as targets: use flip_labels")
        if not flips:
            raise ValueError("say how many labels may be wrong, for instance flip_labels=5")
        return AtMost(counted("flip_labels", flips, samples), Labels())
    if flips or not epsilon:
        raise ValueError("say how far targets may be off, for instance target_epsilon=0.5, and how many with at_most")
    moved = Labels(epsilon)
    return moved if at_most is None else AtMost(counted("at_most", at_most, samples), moved)


def _head(objective: Objective, width: int, outputs: int) -> tuple[nn.Linear, bool]:
    head = nn.Linear(width, outputs, bias=objective.intercept is not None).double()
    if objective.weights is None:
        return head, False
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(np.atleast_2d(objective.weights)))
        if objective.intercept is not None:
            head.bias.copy_(torch.from_numpy(np.atleast_1d(objective.intercept)))
    return head, True


# --- what each model minimises ----------------------------------------------------------------------------------------


def _objective(model: Any, width: int) -> Objective:
    for kind, found in ((LogisticRegression, _logistic), (LinearSVC, _svc), (RidgeClassifier, _ridge), (Ridge, _ridge)):
        if type(model) is kind:
            return found(model)
    raise NotCovered(
        f"{type(model).__name__} is none of LogisticRegression, LinearSVC, RidgeClassifier and Ridge, whose optimum "
        f"under other labels is known: {STEPWISE}"
    )


def _refuse(model: Any, what: str, advice: str) -> NotCovered:
    return NotCovered(f"{type(model).__name__} with {what} is not covered: {advice}")


def _without_class_weight(model: Any) -> None:
    if model.class_weight is not None:
        raise _refuse(
            model,
            "class_weight",
            "weights that go by labels change with them; give fixed weights as sample_weight, to fit and to certify",
        )


def _class_weights(model: Any) -> tuple[float, float] | None:
    """How much each of two classes counts, by its name; 1 for what is not named."""
    if model.class_weight is None:
        return None
    if not isinstance(model.class_weight, dict):
        raise _refuse(
            model,
            f"class_weight={model.class_weight!r}",
            "other labels would change the weights of all rows; name the weights, class_weight={...}",
        )
    first, second = (float(model.class_weight.get(name, 1.0)) for name in model.classes_.tolist())
    return first, second


def _two_classes(model: Any) -> None:
    if len(model.classes_) != 2:
        raise _refuse(
            model, f"{len(model.classes_)} classes", "use RidgeClassifier, which is certified for any number of classes"
        )


def _logistic(model: Any) -> Objective:
    _two_classes(model)
    penalty = model.get_params().get("penalty", "deprecated")
    if model.l1_ratio or penalty not in ("deprecated", "l2"):
        raise _refuse(model, "another penalty than l2", "the optimum is bounded by its ridge")
    if not np.isfinite(model.C):
        raise _refuse(model, f"C={model.C}", "without a ridge one wrong label can move anything; use a smaller C")
    if model.dual:
        raise _refuse(model, "dual=True", "use dual=False")
    primal = model.solver == "liblinear"
    if primal and model.fit_intercept and model.intercept_scaling != 1:
        raise _refuse(model, "intercept_scaling", "use intercept_scaling=1")
    tolerance = model.tol if model.solver in GRADIENT else 0.0
    ridge = float(1 / fractions.Fraction(float(model.C)))
    return Objective("logistic", ridge, primal, model.coef_, _intercept(model), tolerance, _class_weights(model))


def _svc(model: Any) -> Objective:
    _two_classes(model)
    if model.loss != "squared_hinge" or model.penalty != "l2":
        raise _refuse(model, "another loss than squared_hinge with l2", "use loss='squared_hinge', penalty='l2'")
    if model.fit_intercept and model.intercept_scaling != 1:
        raise _refuse(model, "intercept_scaling", "use intercept_scaling=1")
    ridge = float(1 / (2 * fractions.Fraction(float(model.C))))
    return Objective("squared_hinge", ridge, True, model.coef_, _intercept(model), 0.0, _class_weights(model))


def _ridge(model: Any) -> Objective:
    if isinstance(model, RidgeClassifier):
        _without_class_weight(model)
    if model.positive:
        raise _refuse(model, "positive=True", "use positive=False")
    if np.ndim(model.alpha):
        raise _refuse(model, "several alphas", "use one")
    if model.solver in ("sag", "saga", "sparse_cg", "lsqr", "lbfgs"):
        raise _refuse(model, f"solver={model.solver!r}", "it stops before the optimum; use solver='cholesky' or 'svd'")
    if not isinstance(model, RidgeClassifier):
        if np.ndim(model.coef_) != 1:
            raise _refuse(model, "several targets", "certify one target at a time")
        return Objective("squared", float(model.alpha), False, model.coef_, _intercept(model), 0.0)
    if not model.fit_intercept:
        return Objective("squared", float(model.alpha), False, None, None, 0.0)
    weights, intercept = np.atleast_2d(model.coef_) / 2, np.atleast_1d(model.intercept_) / 2
    if len(model.classes_) == 2:
        weights, intercept = np.concatenate((-weights, weights)), np.concatenate((-intercept, intercept))
    return Objective("squared", float(model.alpha), False, weights, intercept + 0.5, 0.0)


def _intercept(model: Any) -> np.ndarray | None:
    return np.atleast_1d(model.intercept_) if model.fit_intercept else None
