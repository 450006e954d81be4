"""Certificates of scikit-learn models that were fitted as usual: their labels, and those of refits on wrong labels."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_wine, make_regression
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_selection import SelectKBest
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import HuberRegressor, LogisticRegression, Ridge, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from fullcert.sklearn import CertifiedClassifier, NotCovered, certify

MODELS = [
    LogisticRegression(C=0.01),
    LogisticRegression(C=0.01, solver="newton-cg"),
    LogisticRegression(C=0.01, solver="newton-cholesky"),
    LogisticRegression(C=0.01, solver="saga", max_iter=500),
    LogisticRegression(C=0.01, solver="liblinear"),
    LogisticRegression(C=0.01, fit_intercept=False),
    LogisticRegression(C=0.01, class_weight={"benign": 2.0}),
    LinearSVC(C=0.001),
    LinearSVC(C=0.001, class_weight={"malignant": 1.2}),
    RidgeClassifier(alpha=300),
    RidgeClassifier(alpha=300, fit_intercept=False),
]


def halves() -> tuple[np.ndarray, ...]:
    x, y = load_breast_cancer(return_X_y=True)
    names = np.array(["malignant", "benign"])[y]
    return x[::3], names[::3], x[1::3], names[1::3]


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_labels_are_those_of_the_model_and_hold_for_refits(model) -> None:
    x, y, test, truth = halves()
    fitted = make_pipeline(StandardScaler(), model).fit(x, y)
    certificate = certify(fitted, x, y, flip_labels=3)
    answers = certificate.predict(test)
    assert (answers.label == fitted.predict(test)).all()
    assert 0.7 < certificate.score(test, truth) <= fitted.score(test, truth)
    rng, steps, last = np.random.RandomState(0), fitted[:-1], fitted[-1]
    inputs, asked = steps.transform(x), steps.transform(test)
    for _ in range(10):
        other, places = y.copy(), rng.choice(len(y), 3, replace=False)
        other[places] = np.where(y[places] == "benign", "malignant", "benign")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            refitted = type(last)(**last.get_params()).fit(inputs, other)
        found = refitted.predict(asked)
        assert (found == answers.label)[answers.certified].all()
    withstood = certificate.withstands(test)
    assert ((withstood.value >= 3) == answers.certified).all()


def test_solvers_stay_within_the_gradient_that_the_statement_names() -> None:
    x, y, test, _ = halves()
    scaler = StandardScaler().fit(x)
    inputs, asked = scaler.transform(x), scaler.transform(test)
    codes = (y == "malignant").astype(int)
    model = LogisticRegression(C=0.1, tol=1e-3).fit(inputs, codes)
    answers = certify(model, inputs, codes, flip_labels=2).predict(asked)
    rng, inside = np.random.RandomState(1), 0
    for _ in range(40):
        other, places = codes.copy(), rng.choice(len(codes), 2, replace=False)
        other[places] = 1 - other[places]
        refitted = LogisticRegression(C=0.1, tol=1e-3).fit(inputs, other)
        slopes = refitted.predict_proba(inputs)[:, 1] - other
        gradient = np.r_[inputs.T @ slopes + 10 * refitted.coef_[0], slopes.sum()] / len(other)
        if np.abs(gradient).max() <= 1e-3:
            inside += 1
            logits = refitted.decision_function(asked)
            assert (answers.lower <= logits).all() and (logits <= answers.upper).all()
    assert inside > 20


def test_several_classes_and_numbers() -> None:
    x, y = load_wine(return_X_y=True)
    fitted = make_pipeline(StandardScaler(), PCA(random_state=0), RidgeClassifier(alpha=100)).fit(x[::2], y[::2])
    certificate = certify(fitted, x[::2], y[::2], flip_labels=2)
    assert (certificate.predict(x[1::2]).label == fitted.predict(x[1::2])).all()
    assert certificate.score(x[1::2], y[1::2]) > 0.6
    curve = certificate.curve(x[1::2], y[1::2])
    assert curve.values[0] == 0 and curve.certified == sorted(curve.certified, reverse=True)
    audit = certificate.audit(x[1::2], budget=5)
    if len(audit.checklist.settles):
        after = certificate.verified(audit.checklist.samples).predict(x[1::2])
        assert after.certified[audit.checklist.settles].all()
    x, y = make_regression(60, 4, random_state=0)
    fitted = Ridge(alpha=3.0).fit(x, y)
    values = certify(fitted, x, y, target_epsilon=1.0, at_most=2).predict(x[:5])
    other = y.copy()
    other[[3, 7]] += [1.0, -1.0]
    refitted = Ridge(alpha=3.0).fit(x, other).predict(x[:5])
    assert (values.lower <= refitted).all() and (refitted <= values.upper).all()
    np.testing.assert_allclose(values.value, fitted.predict(x[:5]))


REFUSED = {
    "another model": (HuberRegressor(), "none of LogisticRegression"),
    "class weights": (RidgeClassifier(class_weight="balanced"), "class_weight"),
    "balanced weights": (LogisticRegression(class_weight="balanced"), "weights of all rows"),
    "an l1 penalty": (LogisticRegression(l1_ratio=1.0, solver="saga", max_iter=5), "l2"),
    "no ridge": (LogisticRegression(C=np.inf, max_iter=5), "C=inf"),
    "a hinge": (LinearSVC(loss="hinge", max_iter=5), "squared_hinge"),
    "a solver that stops before": (RidgeClassifier(solver="sag"), "cholesky"),
    "steps that see labels": (make_pipeline(SelectKBest(k=5), RidgeClassifier()), "labels"),
    "discriminants": (make_pipeline(LinearDiscriminantAnalysis(), RidgeClassifier()), "labels"),
    "steps that draw": (make_pipeline(RBFSampler(), RidgeClassifier()), "random_state"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_covered_is_refused_in_one_sentence(name: str) -> None:
    x, y, _, _ = halves()
    model, word = REFUSED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        codes = (y == "benign").astype(int)
        fitted = model.fit(StandardScaler().fit_transform(x), codes)
    with pytest.raises(NotCovered, match=word) as refused:
        certify(fitted, StandardScaler().fit_transform(x), codes, flip_labels=2)
    assert "\n" not in str(refused.value)


def test_what_is_missing_is_said() -> None:
    x, y, _, _ = halves()
    model = RidgeClassifier(alpha=10.0).fit(x, y)
    with pytest.raises(ValueError, match="flip_labels=5"):
        certify(model, x, y)
    with pytest.raises(ValueError, match="not fitted on"):
        certify(model, x, np.where(y == "benign", "other", y), flip_labels=2)
    other = StandardScaler().fit(x[:50])
    with pytest.raises(NotCovered, match="fitted on other data"):
        certify(make_pipeline(other, model), x, y, flip_labels=2)


def test_the_optimum_and_training_step_by_step_agree() -> None:
    x, y, test, truth = halves()
    scaler = StandardScaler().fit(x)
    x, test = scaler.transform(x), scaler.transform(test)
    model = LogisticRegression(C=0.01, solver="liblinear", tol=1e-8).fit(x, y)  # a ridge on the intercept, too
    at_optimum = certify(model, x, y, flip_labels=1)
    steps = CertifiedClassifier(
        flip_labels=1, learning_rate=1.0, momentum=0.0, epochs=20, batch_size=0, weight_decay=100 / len(x),
        scaled="beforehand",
    ).fit(x, y)  # fmt: skip
    np.testing.assert_allclose(steps.decision_function(test), model.decision_function(test), atol=1e-4)
    assert abs(at_optimum.score(test, truth) - steps.certified_score(test, truth)) <= 0.01
