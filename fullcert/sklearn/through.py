"""Certified answers through whatever holds an estimator: pipelines, searches, and what is frozen.

A pipeline forwards only what scikit-learn knows. Its steps before the last are applied to X, which is what the
estimator was fitted on, and then the estimator itself is asked. `certified_score` is a scorer: ``GridSearchCV(pipe,
grid, scoring=certified_score)``. For what happens to inputs, epsilon is in the units that reach the estimator.
"""

from typing import Any

from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from fullcert.sklearn.certified import CertifiedEstimator


def reached(estimator: Any, X: Any) -> tuple[CertifiedEstimator, Any]:
    """The certified estimator inside another one, and X as it comes there."""
    if isinstance(estimator, Pipeline):
        return reached(estimator.steps[-1][1], estimator[:-1].transform(X) if len(estimator.steps) > 1 else X)
    if isinstance(estimator, FrozenEstimator):
        return reached(estimator.estimator, X)
    if hasattr(estimator, "best_estimator_"):
        return reached(estimator.best_estimator_, X)
    if not isinstance(estimator, CertifiedEstimator):
        raise TypeError(f"there is no certified estimator at the end of {type(estimator).__name__}")
    return estimator, X


def predict_certified(estimator: Any, X: Any, **options: Any) -> Any:
    """`predict_certified` of the estimator at the end of a pipeline, a search or a frozen one."""
    inner, x = reached(estimator, X)
    return inner.predict_certified(x, **options)


def predict_proba_certified(estimator: Any, X: Any, **options: Any) -> Any:
    """`predict_proba_certified` of the estimator at the end of a pipeline, a search or a frozen one."""
    inner, x = reached(estimator, X)
    return inner.predict_proba_certified(x, **options)


def withstands(estimator: Any, X: Any, **options: Any) -> Any:
    """`withstands` of the estimator at the end of a pipeline, a search or a frozen one."""
    inner, x = reached(estimator, X)
    return inner.withstands(x, **options)


def certified_score(estimator: Any, X: Any, y: Any, **options: Any) -> float:
    """`certified_score` of the estimator at the end of a pipeline, a search or a frozen one: a scorer."""
    inner, x = reached(estimator, X)
    score: float = inner.certified_score(x, y, **options)
    return score
