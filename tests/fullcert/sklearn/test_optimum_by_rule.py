"""Estimators at the optimum, where labels or targets alone are in doubt: answers hold for refits, and by one rule."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine, make_classification
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import boundflow as bf
from fullcert.networks import optimum_rules
from fullcert.sklearn import (
    CertifiedClassifier,
    CertifiedRegressor,
    ClassWeightNotCovered,
    NothingCertified,
    predict_certified,
    predict_proba_certified,
)

SLOW = ("check_classifiers_train", "check_estimators_dtypes")


@parametrize_with_checks(
    [CertifiedClassifier(flip_labels=1), CertifiedRegressor(target_epsilon=0.1, at_most=2)],
    expected_failed_checks=lambda estimator: {
        "check_sample_weight_equivalence_on_dense_data": "kernel and ridge go by rows, however much each counts"
    },
)
def test_scikit_learn_checks_at_the_optimum(estimator, check) -> None:
    if check.func.__name__ not in SLOW:
        with warnings.catch_warnings():
            for kind in (NothingCertified, ClassWeightNotCovered):
                warnings.simplefilter("ignore", kind)
            check(estimator)


def some(classes: int, rows: int = 80) -> tuple[np.ndarray, ...]:
    shape = {"n_informative": 4, "n_redundant": 0, "n_clusters_per_class": 1, "class_sep": 2.0}
    x, y = make_classification(rows + 40, 5, n_classes=classes, random_state=1, **shape)
    names = np.array(["a", "b", "c"])[y]
    x[:, 0] = np.exp(3 * x[:, 0])  # one column in another unit
    return x[:rows], names[:rows], x[rows:], names[rows:]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("features", [None, "random:50", "none"])
def test_refits_on_wrong_labels_are_inside(classes: int, features: str | None) -> None:
    x, y, test, truth = some(classes)
    asked = CertifiedClassifier(flip_labels=3, features=features).fit(x, y)
    assert isinstance(asked.certificate_, bf.OptimumCertificate)
    answers, shares = asked.predict_certified(test), asked.predict_proba_certified(test)
    assert (answers.label == asked.predict(test)).all()
    assert 0.2 < asked.certified_score(test, truth) <= asked.score(test, truth)
    withstood = asked.withstands(test).value
    assert ((withstood >= 3) == answers.certified).all()
    rng = np.random.RandomState(0)
    for _ in range(15):
        wrong, places = y.copy(), rng.choice(len(y), 3, replace=False)
        wrong[places] = rng.choice([name for name in asked.classes_], 3)
        other = clone(asked).fit(x, wrong)
        assert other.certificate_.record["recipe"] == asked.certificate_.record["recipe"]
        assert (other.predict(test) == answers.label)[answers.certified].all()
        found = other.decision_function(test)
        assert ((answers.lower <= found) & (found <= answers.upper)).all()
        likely = other.predict_proba(test)
        assert ((shares.lower <= likely) & (likely <= shares.upper)).all()
        assert np.array_equal(asked.classes_[likely.argmax(1)], other.predict(test))


def test_targets_that_are_off() -> None:
    x, y = load_diabetes(return_X_y=True)
    x, y = x[:150], y[:150] / 100
    asked = CertifiedRegressor(target_epsilon=0.5, at_most=3).fit(x[:100], y[:100])
    answers, rng = asked.predict_certified(x[100:]), np.random.RandomState(0)
    for _ in range(20):
        off = y[:100].copy()
        off[rng.choice(100, 3, replace=False)] += rng.choice([-0.5, 0.5], 3)
        found = clone(asked).fit(x[:100], off).predict(x[100:])
        assert ((answers.lower <= found) & (found <= answers.upper)).all()
    assert asked.certified_score(x[100:], y[100:]) < asked.score(x[100:], y[100:])


def test_the_optimum_is_scikit_learns() -> None:
    x, y = load_diabetes(return_X_y=True)
    x = x * np.arange(1, 11)
    scaler = StandardScaler().fit(x)
    asked = CertifiedRegressor(target_epsilon=0.1, features="none", scaler=StandardScaler(), l2=0.01).fit(x, y)
    ridge = make_pipeline(scaler, Ridge(alpha=0.01 * len(x))).fit(x, y)
    assert np.allclose(asked.predict(x), ridge.predict(x), rtol=1e-9)
    assert np.allclose(x @ asked.coef_ + asked.intercept_, asked.predict(x), rtol=1e-9)
    for classes in (2, 3):
        x, y, test, _ = some(classes)
        asked = CertifiedClassifier(flip_labels=1, features="none").fit(x, y)
        found = test @ asked.coef_.T + asked.intercept_
        assert np.allclose(np.squeeze(found), asked.decision_function(test), atol=1e-9)
    assert not hasattr(CertifiedClassifier(flip_labels=1).fit(x, y), "coef_")


def test_what_shares_a_unit() -> None:
    share = {load.__name__: optimum_rules.share_a_unit(load(return_X_y=True)[0]) for load in
             (load_iris, load_digits, load_wine, load_breast_cancer, load_diabetes)}  # fmt: skip
    assert share == {
        "load_iris": True, "load_digits": True, "load_wine": False, "load_breast_cancer": False, "load_diabetes": False
    }  # fmt: skip
    scaled = StandardScaler().fit_transform(load_iris(return_X_y=True)[0])
    spans = scaled / np.ptp(scaled, axis=0)
    assert not optimum_rules.share_a_unit(scaled) and not optimum_rules.share_a_unit(spans)
    assert optimum_rules.share_a_unit(np.ones((5, 2)))


def test_the_rule_goes_by_rows_columns_and_threat() -> None:
    x, y, _, _ = some(2)
    recipe = CertifiedClassifier(flip_labels=4).fit(x, y).recipe_
    assert recipe["by_rule"] == {
        "columns": "normal scores", "features": "kernel", "length": 2.0, "loss": "squared", "ridge": 0.7 * 4 / 80,
        "l2": 0.7 * 4 / 80,
    }  # fmt: skip
    given = CertifiedClassifier(flip_labels=4, l2=0.5, scaler=None).fit(x, y).recipe_["given"]
    assert given == {"columns": "as they are", "l2": 0.5}
    assert optimum_rules.chosen(optimum_rules.Situation(5000, True, False, 10)).features == "random:2000"
    scores = CertifiedClassifier(flip_labels=4).fit(x, y)
    pipe = make_pipeline(StandardScaler(), CertifiedClassifier(flip_labels=4)).fit(x, y)  # scores are the same
    assert (predict_certified(pipe, x).certified == scores.predict_certified(x).certified).all()
    assert predict_proba_certified(pipe, x).lower.shape == (80, 2)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"flip_labels": 1, "way": "optimum", "epochs": 3}, "leave out epochs"),
        ({"epsilon": 0.1, "way": "optimum"}, "labels or targets alone"),
        ({"epsilon": 0.1, "features": "kernel"}, "features are for fits to the optimum"),
        ({"flip_labels": 1, "epochs": 2, "l2": 0.1}, "l2 are for fits to the optimum"),
        ({"flip_labels": 1, "features": "cubic"}, "none, kernel, or random:"),
        ({"flip_labels": 1, "way": "fast"}, "optimum"),
        ({"flip_labels": 1, "way": "optimum", "loss": "log"}, "give l2"),
        ({"flip_labels": 1, "l2": -1.0}, "l2 must be above 0"),
        ({"flip_labels": 200}, "the budget exceeds the data"),
    ],
)
def test_refusals_are_sentences(options: dict, sentence: str) -> None:
    x, y, _, _ = some(2)
    with pytest.raises(ValueError, match=sentence):
        CertifiedClassifier(**options).fit(x, y)


def test_other_ways_stay() -> None:
    x, y, test, _ = some(2)
    for options in ({"way": "steps"}, {"epochs": 2}, {"hidden": (3,)}, {"loss": "log"}, {"epsilon": 0.001}):
        asked = CertifiedClassifier(flip_labels=1, scaler=StandardScaler(), **options)
        with pytest.warns() if "epsilon" in options else np.errstate():
            assert isinstance(asked.fit(x, y).certificate_, bf.Certificate)
    logistic = CertifiedClassifier(flip_labels=1, way="optimum", loss="log", l2=0.1, features="none").fit(x, y)
    assert logistic.certificate_.record["loss"] == "logistic" and logistic.predict_certified(test).certified.any()
    boxes = CertifiedClassifier(flip_labels=1, test_epsilon=0.01).fit(x, y)
    assert boxes.recipe_["given"] == {"features": "none"} or boxes.recipe_["by_rule"]["features"] == "none"
    assert boxes.predict_certified(test).certified.sum() <= boxes.predict_certified(test, epsilon=0.0).certified.sum()


def test_pickles_answer_and_changed_ones_do_not() -> None:
    x, y, test, _ = some(2)
    asked = pickle.loads(pickle.dumps(CertifiedClassifier(flip_labels=2, dtype="float32").fit(x, y)))
    assert asked.predict_certified(test).certified.any()
    asked.certificate_.optima[0].weights[0, 0] += 1
    with pytest.raises(ValueError, match="was changed after it was fitted"):
        asked.predict_certified(test)
