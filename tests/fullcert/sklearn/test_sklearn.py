"""scikit-learn estimators: its own checks, poisoned retrainings inside the bounds, and what is said about scalers."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import (
    load_breast_cancer,
    load_iris,
    load_wine,
    make_blobs,
    make_classification,
    make_regression,
)
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, QuantileTransformer, RobustScaler, StandardScaler
from sklearn.utils.estimator_checks import check_classifiers_train, check_regressors_train, parametrize_with_checks

import boundflow as bf
from boundflow.same_program.identity import versions
from boundflow.threats import AtMost, Labels, Linf, Missing, Removal, Replacement
from fullcert.sklearn import (
    CertifiedClassifier,
    CertifiedRegressor,
    ClassWeightNotCovered,
    NothingCertified,
    NoThreat,
    ScalerNotCovered,
    UnscaledFeatures,
    certified_score,
    fitted,
    predict_certified,
    predict_proba_certified,
    withstands,
)

pytestmark = pytest.mark.filterwarnings("ignore::fullcert.sklearn.NoThreat")  # many tests ask about plain training

QUICK = {"epochs": 6, "order": 5}


# fewer epochs than by default, for speed alone
@parametrize_with_checks(
    [CertifiedClassifier(**QUICK), CertifiedRegressor(**QUICK, learning_rate=0.2)],
    expected_failed_checks=lambda estimator: {
        "check_class_weight_classifiers": "features that vary by 20 are not learnt from in six steps"
    },
)
def test_scikit_learn_checks(estimator, check) -> None:
    with warnings.catch_warnings():
        for kind in (NothingCertified, UnscaledFeatures):  # some of its data are not scaled
            warnings.simplefilter("ignore", kind)
        check(estimator)


def test_defaults_learn_what_scikit_learn_asks_for() -> None:
    check_classifiers_train("CertifiedClassifier", CertifiedClassifier())
    check_regressors_train("CertifiedRegressor", CertifiedRegressor())


def two_classes(samples: int = 60, features: int = 3) -> tuple[np.ndarray, np.ndarray]:
    x, y = make_classification(
        samples, features, n_informative=2, n_redundant=0, class_sep=1.5, flip_y=0.0, random_state=1
    )
    return x, np.array(["no", "yes"])[y]


def three_classes(samples: int = 60) -> tuple[np.ndarray, np.ndarray]:
    x, y = make_blobs(samples, 2, centers=[[-2, 0], [2, 0], [0, 3]], cluster_std=0.6, random_state=0)
    return x, np.array(["a", "b", "c"])[y]


def moved(x: np.ndarray, epsilon: np.ndarray | float, random: np.random.Generator) -> np.ndarray:
    """A dataset within epsilon, at a corner or inside, and no further even after rounding."""
    size = random.choice([-1.0, 1.0], x.shape) if random.random() < 0.5 else random.uniform(-1, 1, x.shape)
    return x + 0.999999 * epsilon * size


def flipped(y: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """Other labels for a few samples."""
    poisoned, classes = y.copy(), np.unique(y)
    for sample in random.choice(len(y), count, replace=False):
        poisoned[sample] = random.choice(classes[classes != y[sample]])
    return poisoned


def check_inside(answer, retrained, tests: np.ndarray) -> None:
    """A retrained plain model agrees with every certified label, and its decisions lie within the bounds."""
    decisions = retrained.decision_function(tests)
    assert (answer.lower <= decisions).all() and (decisions <= answer.upper).all()
    assert (retrained.predict(tests) == answer.label)[answer.certified].all()


@pytest.mark.parametrize("data", [two_classes, three_classes])
@pytest.mark.parametrize("recipe", [{}, {"hidden": (4,), "epochs": 6}, {"batch_size": 20, "epochs": 3}])
def test_poisoned_features_stay_inside(data, recipe) -> None:
    x, y = data()
    random, epsilon, reach = np.random.default_rng(0), 0.01, 0.02
    certified = CertifiedClassifier(epsilon=epsilon, test_epsilon=reach, **recipe).fit(x, y)
    answer = certified.predict_certified(x)
    assert answer.certified.mean() > 0.5
    assert (answer.label == certified.predict(x)).all()
    cut = certified.predict_certified(x, cuts=2)
    assert (cut.lower >= answer.lower).all() and (cut.upper <= answer.upper).all()
    assert certified.certified_score(x, y, cuts=2) >= certified.certified_score(x, y)
    for _ in range(6):
        # the same program: with no threat and nothing given, an estimator would take more steps
        same = clone(certified).set_params(epsilon=0.0, domain="interval", epochs=certified.n_iter_)
        retrained = same.fit(moved(x, epsilon, random), y)
        for each in (answer, cut):
            check_inside(each, retrained, moved(x, reach, random))


@pytest.mark.parametrize("loss", ["log", "squared"])
@pytest.mark.parametrize("data", [two_classes, three_classes])
def test_flipped_labels_stay_inside_and_a_scaler_is_covered(data, loss) -> None:
    """The scaler is refitted at every retraining: no flip of labels changes it."""
    x, y = data(80)
    x, random = 7 * x + 3, np.random.default_rng(1)
    certified = CertifiedClassifier(flip_labels=2, loss=loss, scaler=StandardScaler(), epochs=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        certified.fit(x, y)
    assert "same in every allowed dataset: covered" in certified.certificate_.record["preprocessing"]
    assert not hasattr(certified.scaler, "mean_"), "the scaler that was given stays as it is, for other data"
    answer = certified.predict_certified(x)
    assert answer.certified.mean() > 0.5
    assert answer.lower.shape == certified.decision_function(x).shape
    for _ in range(6):
        retrained = clone(certified).set_params(flip_labels=0, domain="interval").fit(x, flipped(y, 2, random))
        check_inside(answer, retrained, x)


def test_poisoned_regression_stays_inside() -> None:
    x, y = make_regression(50, 3, noise=5.0, random_state=0)
    y = y / y.std()
    random, sample = np.random.default_rng(2), np.arange(50)
    certified = CertifiedRegressor(epsilon=0.05, target_epsilon=0.2, at_most=3, test_epsilon=0.01).fit(x, y)
    assert certified.certificate_.record["threat"] == "AtMost(3, Linf(0.05) & Labels(epsilon=0.2))"
    answer, at_least = certified.predict_certified(x), certified.certified_score(x, y)
    assert (answer.width > 0).all() and np.array_equal(answer.value, certified.predict(x))
    for _ in range(6):
        touched = np.isin(sample, random.choice(sample, 3, replace=False))
        poisoned = np.where(touched[:, None], moved(x, 0.05, random), x), np.where(touched, moved(y, 0.2, random), y)
        retrained = CertifiedRegressor(domain="interval").fit(*poisoned)
        values = retrained.predict(moved(x, 0.01, random))
        assert (answer.lower <= values).all() and (values <= answer.upper).all()
        assert r2_score(y, values) >= at_least
    assert 0 < at_least < certified.score(x, y)
    assert certified.certified_score(x, y, epsilon=0.1) < at_least
    worst = np.maximum((answer.lower - y) ** 2, (answer.upper - y) ** 2).sum()
    assert at_least == pytest.approx(1 - worst / ((y - y.mean()) ** 2).sum())


def test_removed_samples_stay_inside() -> None:
    """A removed sample has weight 0 in its slot: plain PyTorch with weights lands inside."""
    x, y = two_classes(30)
    certified = CertifiedClassifier(remove=2, epochs=5, momentum=0.0, learning_rate=0.5).fit(x, y)
    answer, random = certified.predict_certified(x), np.random.default_rng(3)
    inputs, targets = torch.tensor(x), torch.tensor((y == "yes").astype(float)).reshape(-1, 1)
    for _ in range(5):
        weights = torch.ones(30, 1, dtype=torch.float64)
        weights[random.choice(30, 2, replace=False)] = 0.0
        layer = torch.nn.Linear(3, 1, dtype=torch.float64)
        torch.nn.init.zeros_(layer.weight), torch.nn.init.zeros_(layer.bias)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
        for _ in range(5):
            optimizer.zero_grad()
            torch.nn.functional.binary_cross_entropy_with_logits(layer(inputs), targets, weights).backward()
            optimizer.step()
        decisions = layer(inputs).detach().numpy()[:, 0]
        assert (answer.lower <= decisions).all() and (decisions <= answer.upper).all()


def test_the_numbers_make_the_threat() -> None:
    x, y = two_classes(30)
    both = CertifiedClassifier(epsilon=[0.1, 0.0, 0.2], at_most=4, flip_labels=2, remove=1, epochs=1).fit(x, y)
    written = "AtMost(4, Linf([0.1, 0.0, 0.2])) & AtMost(2, Labels()) & AtMost(1, Removal())"
    assert both.certificate_.record["threat"] == written
    threat = AtMost(1, Labels() & Removal())
    own = CertifiedClassifier(threat=threat, epochs=1).fit(x, y)
    assert own.certificate_.record["threat"] == repr(threat) and own.threat_ is threat


def test_scores_labels_and_record() -> None:
    x, y = three_classes(90)
    certified = CertifiedClassifier(flip_labels=1, epsilon=0.005).fit(x, y)
    assert certified.classes_.tolist() == certified.certificate_.record["classes"] == ["a", "b", "c"]
    rule = certified.certificate_.record["recipe"]
    assert rule == certified.recipe_ and rule["rule"] == "linear" and not rule["given"]
    assert certified.n_iter_ == rule["by_rule"]["epochs"] and certified.n_features_in_ == 2
    answer = certified.predict_certified(x, epsilon=0.01)
    assert certified.certified_score(x, y, epsilon=0.01) == np.mean(answer.certified & (answer.label == y))
    scores = [certified.certified_score(x, y, epsilon=reach) for reach in (0.0, 0.05, 1.0)]
    assert certified.score(x, y) >= scores[0] >= scores[1] >= scores[2]
    by_threat = certified.predict_certified(x, threat=Linf(0.01))
    assert np.array_equal(by_threat.margin, answer.margin) and (answer.margin > 0).tolist() == answer.certified.tolist()
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        certified.certified_score(x, y[:-1])


def test_one_wrong_label_is_certified_with_defaults() -> None:
    for load, least in ((load_wine, 0.9), (load_breast_cancer, 0.9), (load_iris, 0.65)):
        x, x_test, y, y_test = train_test_split(*load(return_X_y=True), random_state=0)
        certified = CertifiedClassifier(flip_labels=1, scaler=StandardScaler()).fit(x, y)
        assert certified.certified_score(x_test, y_test) >= least


def test_pickles_and_files_give_the_same_answers(tmp_path) -> None:
    x, y = two_classes()
    for loss in ("log", "squared"):
        certified = CertifiedClassifier(epsilon=0.01, loss=loss, scaler=StandardScaler().fit(x), epochs=5).fit(x, y)
        answer = certified.predict_certified(x, 0.01)
        again = pickle.loads(pickle.dumps(certified)).predict_certified(x, 0.01)
        for name in ("label", "certified", "lower", "upper", "margin"):
            assert np.array_equal(getattr(answer, name), getattr(again, name))
        certified.certificate_.save(tmp_path / "certificate")
        loaded = bf.load(tmp_path / "certificate")
        assert np.array_equal(loaded.predict(torch.tensor(x), 0.01).certified.numpy(), answer.certified)
        assert loaded.record["preprocessing"] == "StandardScaler, fitted beforehand: declared"


def test_an_estimator_that_was_changed_after_its_fit_is_refused() -> None:
    """Attributes that were replaced, numbers within them, and what is only set for the next fit."""
    x, y = two_classes()
    made = CertifiedClassifier(epsilon=0.01, epochs=5).fit(x, y)
    other = CertifiedClassifier(epsilon=0.01, epochs=5).fit(x, y[::-1])
    answer = made.predict_certified(x)

    def scaled(certified: CertifiedClassifier) -> None:
        with torch.no_grad():
            next(certified.certificate_.nominal.parameters()).mul_(-1)

    changes = {
        "certificate_": lambda e: setattr(e, "certificate_", other.certificate_),
        "classes_": lambda e: setattr(e, "classes_", e.classes_[::-1]),
        "threat_": lambda e: setattr(e, "threat_", bf.threats.Linf(0.5)),
        "program_": lambda e: setattr(e, "program_", other.program_),
        "n_features_in_": lambda e: setattr(e, "n_features_in_", 7),
        "feature_names_in_": lambda e: setattr(e, "feature_names_in_", np.array(list("abc"), dtype=object)),
        "numbers of its models": scaled,
        "classes_ *": lambda e: e.classes_.__setitem__(0, "cow"),
        "record of its certificate": lambda e: e.certificate_.record.update(task="regression"),
        "code of its model": lambda e: e.certificate_.nominal.append(torch.nn.Tanh()),
    }
    for told, change in changes.items():
        for copied in (copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
            changed = copied(made)
            assert np.array_equal(changed.predict_certified(x).margin, answer.margin)
            change(changed)
            for ask in (changed.predict, changed.predict_certified, changed.withstands, changed.predict_proba):
                with pytest.raises(ValueError, match=f"changed after it was fitted, in .*{told}"):
                    ask(x)
    assert np.array_equal(changed.fit(x, y).predict_certified(x).margin, answer.margin)
    kept = copy.deepcopy(made).set_params(epsilon=0.5, loss="squared", hidden=(3,), random_state=5)
    assert np.array_equal(kept.predict_certified(x).margin, answer.margin)  # for the next fit
    assert not hasattr(clone(made), "certificate_") and not hasattr(clone(made), "_fitted")
    del kept._fitted
    with pytest.raises(ValueError, match="like those of earlier versions: fit again"):
        kept.predict(x)


class Own(torch.nn.Module):
    """A network whose code lies in a file of the user."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(features, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def test_an_estimator_that_is_read_beside_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = two_classes()
    made = pickle.dumps(CertifiedClassifier(model=Own, epsilon=0.01, epochs=2).fit(x, y))
    assert pickle.loads(made).predict_certified(x).certified.any()
    monkeypatch.setattr(Own, "forward", lambda self, x: -self.layer(x))
    changed = pickle.loads(made)
    for ask in (changed.predict, changed.predict_certified):
        with pytest.raises(ValueError, match="changed after it was fitted, in code of its model: fit again"):
            ask(x)


@pytest.mark.parametrize("model", [None, Own])
@pytest.mark.parametrize("name", ["torch", "boundflow", "numpy", "python"])
def test_an_estimator_of_other_versions_says_so(monkeypatch: pytest.MonkeyPatch, name: str, model: Any) -> None:
    """Of sets of another boundflow, or of code that cannot be compared, nothing certified is said."""
    x, y = two_classes()
    fit = CertifiedClassifier(model=model, epsilon=0.01, epochs=2).fit(x, y)
    made = pickle.dumps(fit)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pickle.loads(made)
    monkeypatch.setattr(fitted, "versions", lambda: {**versions(), name: "9.9"})
    with pytest.warns(fitted.OtherVersions, match=f"was fitted with {name}"):
        read = pickle.loads(made)
    assert np.array_equal(read.predict(x), fit.predict(x))
    if model is None and name in ("torch", "numpy"):
        read.predict_certified(x)
    else:
        with pytest.raises(ValueError, match=f"was fitted with {name} .*fit again"):
            read.predict_certified(x)


# --- scalers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler((-1, 1)), MaxAbsScaler(), RobustScaler()], ids=repr)
def test_a_scaler_inside_is_scaling_by_hand(scaler) -> None:
    """The threat is in raw units: the same bounds as on scaled data with epsilon divided by the scale."""
    x, y = two_classes()
    x = x * [1.0, 20.0, 0.1] + [0.0, 100.0, -3.0]
    scaler.fit(x)
    epsilon, unit = np.array([0.01, 0.2, 0.001]), scaler.transform(x + 1) - scaler.transform(x)
    inside = CertifiedClassifier(epsilon=epsilon, scaler=scaler, epochs=5).fit(x, y)
    by_hand = CertifiedClassifier(epsilon=epsilon * unit[0], scaled="beforehand", epochs=5).fit(scaler.transform(x), y)
    raw = inside.predict_certified(x, epsilon)
    scaled = by_hand.predict_certified(scaler.transform(x), epsilon * unit[0])
    assert np.ptp(raw.upper - raw.lower) > 0
    np.testing.assert_allclose(raw.lower, scaled.lower, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(raw.upper, scaled.upper, rtol=1e-6, atol=1e-9)
    assert np.array_equal(raw.certified, scaled.certified)


def test_poisoned_features_under_a_fixed_scaler_stay_inside() -> None:
    x, y = two_classes()
    x, random = 50 * x + 10, np.random.default_rng(4)
    fixed = FrozenEstimator(StandardScaler().fit(50 * two_classes(40)[0]))  # other data; survives clone
    certified = CertifiedClassifier(epsilon=0.5, scaler=fixed, epochs=8).fit(x, y)
    answer = certified.predict_certified(x)
    assert answer.certified.any()
    for _ in range(6):
        retrained = clone(certified).set_params(epsilon=0.0, domain="interval").fit(moved(x, 0.5, random), y)
        check_inside(answer, retrained, x)


@pytest.mark.parametrize("threat", [{"epsilon": 0.1}, {"remove": 1}, {"threat": AtMost(1, Linf(0.1) & Labels())}])
def test_a_scaler_fitted_inside_the_threat_is_not_covered(threat) -> None:
    x, y = two_classes()
    certified = CertifiedClassifier(scaler=StandardScaler(), epochs=2, **threat)
    with pytest.warns(ScalerNotCovered, match="fitted on data inside the threat") as caught:
        certified.fit(x, y)
    assert sum(issubclass(one.category, ScalerNotCovered) for one in caught) == 1
    assert caught[0].filename == __file__
    assert "declared, not covered" in certified.certificate_.record["preprocessing"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fixed = clone(certified).set_params(scaler=StandardScaler().fit(x[:40])).fit(x, y)
    assert fixed.certificate_.record["preprocessing"] == "StandardScaler, fitted beforehand: declared"
    assert np.array_equal(fixed.scaler_.mean_, x[:40].mean(0))


def test_scalers_that_are_not_affine_are_refused() -> None:
    x, y = two_classes()
    for scaler, words in (
        (QuantileTransformer(n_quantiles=10), "affine in every feature"),
        (MinMaxScaler(clip=True), "clip=False"),
        (StandardScaler().fit(x[:, :2]), "X has 3 features, and the scaler was fitted on 2"),
    ):
        with pytest.raises(ValueError, match=words):
            CertifiedClassifier(scaler=scaler).fit(x, y)


def test_pipelines_work_for_flips_and_are_refused_for_epsilon() -> None:
    x, y = two_classes()
    x = 5 * x + 2
    pipe = make_pipeline(StandardScaler(), CertifiedClassifier(flip_labels=2, epochs=5)).fit(x, y)
    answer = pipe[-1].predict_certified(pipe[:-1].transform(x))
    assert answer.certified.any() and (answer.label == pipe.predict(x))[answer.certified].all()
    for threat in ({"epsilon": 0.1}, {"remove": 1}, {"flip_labels": 1, "epsilon": [0.1, 0.0, 0.0], "at_most": 2}):
        with pytest.raises(ValueError, match=r"scaled units.*CertifiedClassifier\(scaler=StandardScaler\(\)"):
            make_pipeline(StandardScaler(), CertifiedClassifier(**threat)).fit(x, y)
    declared = make_pipeline(StandardScaler(), CertifiedClassifier(epsilon=0.01, scaled="beforehand", epochs=2))
    assert "declared" in declared.fit(x, y)[-1].certificate_.record["preprocessing"]
    for column, share in ((0, 1.0), (1, -1.0)):  # data that are not scaled are nobody's mistake
        other = StandardScaler().fit_transform(x)
        other[:, column] += share
        CertifiedClassifier(epsilon=0.1, epochs=1).fit(other, y)
        other = StandardScaler().fit_transform(x)
        other[:, column] *= 1 + share / 2
        CertifiedClassifier(epsilon=0.1, epochs=1).fit(other, y)
    constant = np.column_stack((x, np.ones(len(x))))
    with pytest.raises(ValueError, match="CertifiedRegressor"):
        make_pipeline(StandardScaler(), CertifiedRegressor(epsilon=0.1)).fit(constant, y == "yes")
    with pytest.raises(ValueError, match="give one of them"):
        CertifiedClassifier(scaler=StandardScaler(), scaled="beforehand").fit(x, y)


# --- among scikit-learn's tools ---------------------------------------------------------------------------------------


def test_searches_and_cross_validation() -> None:
    x, y = two_classes()

    def certified(estimator, X, y) -> float:
        return estimator.certified_score(X, y)

    search = GridSearchCV(
        CertifiedClassifier(flip_labels=1, scaler=StandardScaler()), {"epochs": [1, 4]}, scoring=certified, cv=2
    )
    search.fit(x, y)
    assert 0 < search.best_score_ <= 1 and search.best_estimator_.certified_score(x, y) > 0
    assert cross_val_score(CertifiedClassifier(epochs=4), x, y, cv=3).mean() > 0.8
    x, y = make_regression(60, 3, random_state=0)
    assert cross_val_score(CertifiedRegressor(order=2), x, y / y.std(), cv=2).mean() > 0.8


def test_own_models_and_threats() -> None:
    x, y = three_classes(30)

    def network(features: int, outputs: int) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(features, 4), torch.nn.Softplus(), torch.nn.Linear(4, outputs))

    own = CertifiedClassifier(model=network, epochs=2, dtype="float32").fit(x, y)
    assert own.decision_function(x).shape == (30, 3) and own.decision_function(x).dtype == np.float32
    start = network(2, 3)
    before = [parameter.clone() for parameter in start.parameters()]
    CertifiedClassifier(model=start, epochs=2).fit(x, y)
    assert all(map(torch.equal, before, start.parameters()))
    with pytest.raises(ValueError, match="must return 3 numbers"):
        CertifiedClassifier(model=lambda features, outputs: torch.nn.Linear(features, 2)).fit(x, y)
    replaced = CertifiedClassifier(threat=AtMost(1, Replacement()), clip_gradients=0.1, epochs=1).fit(x, y)
    assert replaced.predict_certified(x).certified.any()


def test_missing_values() -> None:
    x, y = two_classes()
    x[::9, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        CertifiedClassifier().fit(x, y)
    ranges = Missing([(-3, 3)] * 3)
    certified = CertifiedClassifier(threat=ranges, scaler=StandardScaler().fit(x), epochs=4).fit(x, y)
    assert np.isfinite(certified.decision_function(x)).all()
    answer = certified.predict_certified(x, threat=ranges)
    assert (answer.upper - answer.lower)[::9].mean() > (answer.upper - answer.lower)[1::9].mean()
    with pytest.raises(ValueError, match="NaN"):
        certified.predict_certified(x)


def test_the_seed_fixes_everything() -> None:
    x, y = two_classes(30)
    recipe = {"hidden": (4,), "batch_size": 10, "epochs": 2, "order": 2}
    torch.manual_seed(5)
    first = CertifiedClassifier(random_state=3, **recipe).fit(x, y).decision_function(x)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1))  # the caller's random state is left alone
    assert np.array_equal(first, CertifiedClassifier(random_state=3, **recipe).fit(x, y).decision_function(x))
    assert not np.array_equal(first, CertifiedClassifier(random_state=4, **recipe).fit(x, y).decision_function(x))


def test_void_bounds_and_divergence_are_said() -> None:
    x, y = make_regression(40, 3, random_state=0)
    with pytest.warns(NothingCertified, match="nothing is certified"):
        void = CertifiedRegressor(epsilon=20.0, domain="interval", epochs=200).fit(x, y / y.std())
    answer = void.predict_certified(x)
    assert np.isinf(answer.width).all() and void.certified_score(x, y / y.std()) == -np.inf
    assert np.isfinite(void.predict(x)).all()
    with pytest.raises(ValueError, match="training diverged: scale the features"), pytest.warns(UnscaledFeatures):
        CertifiedRegressor(dtype="float32", scaler=None).fit(1e6 * x, y)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"epsilon": -1.0}, "not negative"),
        ({"epsilon": [0.1, 0.1]}, "one for each of the 3 features"),
        ({"flip_labels": -1}, "at least 1"),
        ({"flip_labels": 100}, "exceeds the data"),
        ({"at_most": 0, "epsilon": 0.1}, "at least 1"),
        ({"threat": 0.1}, "boundflow.threats"),
        ({"optimizer": "newton"}, "no optimizer called 'newton'"),
        ({"activation": "sine"}, "no activation called 'sine'"),
        ({"domain": "box"}, "no domain called 'box'"),
        ({"dtype": "float16"}, "no dtype called 'float16'"),
        ({"loss": "hinge"}, "no loss called 'hinge'"),
        ({"scaled": "yes"}, "beforehand"),
        ({"threat": AtMost(1, Replacement())}, "clip_gradients"),
        ({"epochs": 0}, "at least 1"),
    ],
    ids=repr,
)
def test_mistakes_are_told(wrong, words) -> None:
    with pytest.raises(ValueError, match=words):
        CertifiedClassifier(**{"hidden": (2,), **wrong}).fit(*two_classes(20))


def test_numbers_beside_a_threat_are_refused() -> None:
    x, y = make_blobs(20, centers=2, random_state=0)
    for numbers in ({"epsilon": 0.1}, {"flip_labels": 1}, {"remove": 1}, {"at_most": 2}):
        with pytest.raises(ValueError, match="threat= replaces"):
            CertifiedClassifier(threat=bf.threats.Linf(0.01), epochs=1, **numbers).fit(x, y)


def test_asking_before_fitting() -> None:
    for estimator in (CertifiedClassifier(), CertifiedRegressor()):
        for ask in (estimator.predict, estimator.predict_certified):
            with pytest.raises(NotFittedError):
                ask(np.zeros((1, 2)))


def test_a_fit_that_fails_leaves_nothing_of_the_one_before() -> None:
    """Labels of other data, certified by the certificate of the data before."""
    x, y = make_blobs(40, centers=2, random_state=0)
    asked = CertifiedClassifier(flip_labels=1).fit(x, np.where(y == 1, "a", "b"))
    with pytest.raises(ValueError, match="budget exceeds"):
        asked.set_params(flip_labels=100).fit(x, np.where(y == 1, "cat", "dog"))
    with pytest.raises(NotFittedError):
        asked.predict_certified(x[:4])
    asked = CertifiedRegressor(target_epsilon=0.1).fit(x, y.astype(float))
    with pytest.raises(ValueError, match="at least 0|negative"):
        asked.set_params(target_epsilon=-0.1).fit(2 * x, y.astype(float))
    with pytest.raises(NotFittedError):
        asked.predict_certified(x[:4])


def test_parameters_that_change_after_the_fit_change_no_answer() -> None:
    x, y = make_blobs(40, centers=2, random_state=0)
    asked = CertifiedClassifier(flip_labels=1, loss="squared", way="steps").fit(x, y)
    before = asked.predict_certified(x)
    asked.set_params(loss="log", dtype="float32")
    assert not hasattr(asked, "predict_proba"), "sigmoids of least squares are no probabilities"
    assert np.array_equal(asked.predict_certified(x).lower, before.lower)


def test_without_scikit_learn_the_import_says_what_to_install() -> None:
    script = "import sys; sys.modules['sklearn'] = None; import fullcert.sklearn"
    root = Path(__file__).parents[3]
    result = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert "ImportError: fullcert.sklearn needs scikit-learn: pip install scikit-learn" in result.stderr


# --- pipelines, probabilities and weights ---------------------------------------------------------------------


def test_certified_answers_through_pipelines_and_searches() -> None:
    x, y = three_classes()
    pipe = make_pipeline(StandardScaler(), CertifiedClassifier(flip_labels=1, **QUICK)).fit(x, y)
    inner, scaled = pipe[-1], pipe[:-1].transform(x)
    assert certified_score(pipe, x, y) == inner.certified_score(scaled, y) > 0.5
    assert np.array_equal(predict_certified(pipe, x).lower, inner.predict_certified(scaled).lower)
    search = GridSearchCV(pipe, {"certifiedclassifier__epochs": [2, 4]}, scoring=certified_score, cv=2).fit(x, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all() and search.best_score_ > 0.5
    assert certified_score(search, x, y) == certified_score(search.best_estimator_, x, y)
    assert certified_score(FrozenEstimator(pipe), x, y) == certified_score(pipe, x, y)
    assert np.isfinite(cross_val_score(pipe, x, y, scoring=certified_score, cv=2)).all()
    with pytest.raises(TypeError, match="no certified estimator at the end of StandardScaler"):
        certified_score(StandardScaler().fit(x), x, y)


@pytest.mark.parametrize("data", [two_classes, three_classes])
def test_probabilities_of_poisoned_retrainings_are_within_their_bounds(data) -> None:
    x, y = data()
    classifier = CertifiedClassifier(flip_labels=1, **QUICK).fit(x, y)
    found = predict_proba_certified(classifier, x)
    assert np.allclose(found.probability.sum(1), 1) and np.array_equal(found.probability, classifier.predict_proba(x))
    assert np.array_equal(classifier.classes_[found.probability.argmax(1)], classifier.predict(x))
    for row in range(0, len(y), 6):
        wrong = y.copy()
        wrong[row] = classifier.classes_[
            (np.flatnonzero(classifier.classes_ == y[row])[0] + 1) % len(classifier.classes_)
        ]
        other = CertifiedClassifier(**QUICK).fit(x, wrong).predict_proba(x)
        assert ((found.lower <= other) & (other <= found.upper)).all()
    assert (found.lower < found.upper).all() and (found.lower >= 0).all() and (found.upper <= 1).all()
    assert not hasattr(CertifiedClassifier(loss="squared", way="steps"), "predict_proba")


def test_probabilities_without_bounds_are_anything() -> None:
    from fullcert.sklearn.answers import bounded_probabilities

    lower, upper = bounded_probabilities(torch.tensor([[-np.inf], [0.0]]), torch.tensor([[np.inf], [0.0]]))
    assert lower[0].tolist() == [0, 0] and upper[0].tolist() == [1, 1]
    assert (lower[1] <= 0.5).all() and (0.5 <= upper[1]).all() and (upper[1] - lower[1] < 1e-5).all()


@pytest.mark.parametrize("threat", [{"flip_labels": 1}, {"epsilon": 0.02}, {"remove": 1}])
def test_poisoned_retrainings_with_weights_land_inside(threat) -> None:
    x, y = two_classes(40)
    weights = np.random.RandomState(0).choice([0.0, 0.5, 1.0, 3.0], 40)
    classifier = CertifiedClassifier(**threat, **QUICK).fit(x, y, sample_weight=weights)
    found = classifier.predict_certified(x)
    random = np.random.RandomState(1)
    for row in range(0, 40, 4):
        other_x, other_y = x.copy(), y.copy()
        if "flip_labels" in threat:
            other_y[row] = "yes" if y[row] == "no" else "no"
        elif "epsilon" in threat:
            other_x += 0.0199 * random.choice([-1, 1], x.shape)
        else:
            other = retrained_without(x, y, weights, row, classifier)
        if "remove" not in threat:
            other = CertifiedClassifier(**QUICK).fit(other_x, other_y, sample_weight=weights).decision_function(x)
        assert ((found.lower <= other) & (other <= found.upper)).all()


def retrained_without(x, y, weights, row, classifier) -> np.ndarray:
    """Plain training of a linear model by hand, with weight 0 in the slot of one sample and the divisor of all."""
    values = classifier.recipe_["by_rule"] | classifier.recipe_["given"]
    fixed = torch.tensor(weights / weights.mean())
    fixed[row] = 0.0
    model = torch.nn.Linear(x.shape[1], 1).double()
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=values["lr"], momentum=values["momentum"])
    inputs, targets = torch.tensor(x), torch.tensor(y == "yes").double()[:, None]
    for _ in range(QUICK["epochs"]):
        optimizer.zero_grad()
        losses = torch.nn.functional.binary_cross_entropy_with_logits(model(inputs), targets, reduction="none")[:, 0]
        ((losses * fixed).sum() / len(x)).backward()
        optimizer.step()
    return model(inputs)[:, 0].detach().numpy()


def test_class_weights_of_labels_inside_the_threat_are_declared() -> None:
    x, y = two_classes()
    with pytest.warns(ClassWeightNotCovered):
        declared = CertifiedClassifier(flip_labels=1, class_weight="balanced", **QUICK).fit(x, y)
    assert "not covered" in declared.certificate_.record["class_weight"]
    with pytest.warns(ClassWeightNotCovered):  # a removed sample has no label
        CertifiedClassifier(threat=AtMost(1, Removal()), class_weight="balanced", **QUICK).fit(x, y)
    covered = CertifiedClassifier(epsilon=0.01, class_weight={"no": 1, "yes": 5}, **QUICK).fit(x, y)
    assert "the same" in covered.certificate_.record["class_weight"] and "sample_weights" in covered.certificate_.record
    more, fewer = (model.predict(x) == "yes" for model in (covered, CertifiedClassifier(**QUICK).fit(x, y)))
    assert more.sum() >= fewer.sum()
    with pytest.raises(ValueError, match="at least 0"):
        CertifiedClassifier(**QUICK).fit(x, y, sample_weight=-np.ones(len(y)))


def test_unscaled_features_and_nothing_certified_are_said() -> None:
    x, y = load_wine(return_X_y=True)
    with pytest.warns(UnscaledFeatures, match="scaler=StandardScaler"), warnings.catch_warnings():
        warnings.simplefilter("ignore", NothingCertified)
        CertifiedClassifier(flip_labels=1, scaler=None, way="steps").fit(x, y)
    with pytest.warns(NothingCertified, match="label that is certain"):
        CertifiedClassifier(flip_labels=60, scaler=StandardScaler()).fit(x, y)


def test_unscaled_features_are_scaled_where_that_is_covered() -> None:
    """Wrong labels leave the features as they are; moved features do not, and their scaling is somebody's decision."""
    x, y = load_wine(return_X_y=True)
    scaled = CertifiedClassifier(flip_labels=1, way="steps").fit(x, y)
    assert scaled.certificate_.record["preprocessing"].endswith("the same in every allowed dataset: covered")
    by_hand = CertifiedClassifier(flip_labels=1, scaler=StandardScaler(), way="steps").fit(x, y)
    assert np.array_equal(scaled.decision_function(x), by_hand.decision_function(x))
    small = CertifiedClassifier(flip_labels=1, way="steps").fit(
        (x - x.mean(0)) / x.std(0), y
    )  # of unit size: left alone
    assert small.certificate_.record["preprocessing"] == "none by the estimator"
    with pytest.warns(UnscaledFeatures), warnings.catch_warnings():
        warnings.simplefilter("ignore", NothingCertified)
        moved = CertifiedClassifier(epsilon=0.01).fit(x, y)
    assert moved.certificate_.record["preprocessing"] == "none by the estimator"
    with warnings.catch_warnings():  # somebody's own network is given what somebody gives
        warnings.simplefilter("ignore")
        own = CertifiedClassifier(model=torch.nn.Linear(13, 3).double(), flip_labels=1, epochs=1).fit(x, y)
    assert own.certificate_.record["preprocessing"] == "none by the estimator"


class Kind(NamedTuple):
    """The type of a column, which lists categories where it has some."""

    categories: tuple[Any, ...] | None


class Frame:
    """As much of a table as frames of pandas and others share."""

    def __init__(self, columns: dict[str, Any], categories: dict[str, tuple[Any, ...]]):
        self.held, self.columns = {name: np.asarray(column) for name, column in columns.items()}, list(columns)
        self.dtypes = [Kind(categories.get(name)) for name in columns]

    def __len__(self) -> int:
        return len(self.held["age"])

    def __getitem__(self, name: str) -> np.ndarray:
        return self.held[name]


def people(kinds: dict[str, tuple[Any, ...]], rows: int = 120) -> tuple[Frame, np.ndarray]:
    """Ages far from zero, which are to be scaled, and towns."""
    random = np.random.RandomState(0)
    age, town = random.randint(20, 70, rows), random.choice(["north", "south"], rows)
    y = np.where((town == "north") & (age > 40), "rich", "poor")
    return Frame({"age": age, "town": town, "hours": random.rand(rows)}, kinds), y


TOWNS = {"town": ("north", "south", "west")}


def test_a_column_of_categories_is_a_column_for_each() -> None:
    table, y = people(TOWNS)
    fitted = CertifiedClassifier(flip_labels=2).fit(table, y)
    assert fitted.inputs_ == ["age", "town=north", "town=south", "town=west", "hours"]
    by_hand = np.stack([table["age"], *(table["town"] == town for town in TOWNS["town"]), table["hours"]], 1)
    other = CertifiedClassifier(flip_labels=2).fit(by_hand.astype(float), y)
    assert np.array_equal(fitted.decision_function(table), other.decision_function(by_hand.astype(float)))
    assert fitted.certificate_.record["inputs"] == fitted.inputs_ and "inputs" not in other.certificate_.record
    assert fitted.score(table, y) > 0.9, "ages of 45 make steps of rate 1 diverge unless they are scaled"
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict(table), fitted.predict(table))
    fitted.categories_ = {"town": ("south", "north", "west")}
    with pytest.raises(ValueError, match="changed after it was fitted, in categories_"):
        fitted.predict(table)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"town": ["elsewhere"] * 120}, "120 values of the column 'town' are none of its categories, such as"),
        ({"town": [float("nan")] * 120}, "give missing ones a category of their own"),
        ({"town": None}, "the columns must be age, town, hours, as in fit"),
    ],
)
def test_a_table_of_other_categories_or_columns_is_refused(changed: dict[str, Any], words: str) -> None:
    table, y = people(TOWNS)
    fitted = CertifiedClassifier(flip_labels=2).fit(table, y)
    held = {name: column for name, column in {**table.held, **changed}.items() if column is not None}
    with pytest.raises(ValueError, match=words):
        fitted.predict(Frame(held, TOWNS))
    with pytest.raises(ValueError, match="not an array without names"):
        fitted.predict(np.zeros((2, 3)))


@pytest.mark.parametrize("estimator", [CertifiedClassifier, CertifiedRegressor])
def test_without_a_threat_nothing_is_certified_against_and_that_is_said(estimator: type) -> None:
    x, y = two_classes()
    with pytest.warns(NoThreat, match="nothing was certified against"):
        estimator(**QUICK).fit(x, (y == "yes").astype(float))
    with warnings.catch_warnings():
        warnings.simplefilter("error", NoThreat)
        estimator(epsilon=0.001, **QUICK).fit(x, (y == "yes").astype(float))


@pytest.mark.filterwarnings("ignore::fullcert.sklearn.NothingCertified")  # 29 wrong labels of 100
def test_a_share_of_the_samples_is_so_many_of_them() -> None:
    """Rounded down, in decimals as they were typed: 0.07 of 100 are 7 and not 6."""
    x, y = make_classification(100, 3, n_informative=2, n_redundant=0, random_state=0)
    for share, count in ((0.05, 5), (0.07, 7), (0.29, 29), (0.019, 1), (3, 3), (3.0, 3)):
        assert repr(CertifiedClassifier(flip_labels=share, **QUICK).fit(x, y).threat_) == f"AtMost({count}, Labels())"
    for wrong, words in ((0.001, "not even one"), (1.5, "whole number"), (-0.1, "at least 1"), (True, "at least 1")):
        with pytest.raises(ValueError, match=words):
            CertifiedClassifier(flip_labels=wrong, **QUICK).fit(x, y)
    assert repr(CertifiedClassifier(remove=0.02, **QUICK).fit(x, y).threat_) == "AtMost(2, Removal())"


@pytest.mark.parametrize("data", [two_classes, three_classes])
def test_logarithms_of_probabilities(data) -> None:
    x, y = data()
    fitted = CertifiedClassifier(**QUICK).fit(x, y)
    assert np.allclose(fitted.predict_log_proba(x), np.log(fitted.predict_proba(x)), rtol=1e-12)
    assert np.isfinite(fitted.predict_log_proba(1e6 * x)).all()  # where a probability rounds to 0
    assert not hasattr(CertifiedClassifier(loss="squared", way="steps"), "predict_log_proba")


def test_what_labels_withstand_is_what_smaller_numbers_certify() -> None:
    """The largest k of one fit certifies what a fit for that k certifies or more, and nothing beyond its own."""
    x, y = two_classes()
    fitted = CertifiedClassifier(flip_labels=3, **QUICK).fit(x, y)
    found = fitted.withstands(x)
    assert found.unit == "k" and found.most == 3 and set(found.label) <= {"no", "yes"}
    assert np.array_equal(found.value >= 3, fitted.predict_certified(x).certified)
    assert np.array_equal(found.label, fitted.predict(x))
    pipe = make_pipeline(StandardScaler(), CertifiedClassifier(flip_labels=3, **QUICK)).fit(x, y)
    assert withstands(pipe, x).value.shape == (len(x),)


def test_without_a_threat_the_linear_model_is_near_logistic_regression() -> None:
    for load, less in ((load_wine, 0.05), (load_breast_cancer, 0.02)):
        x, x_test, y, y_test = train_test_split(*load(return_X_y=True), random_state=0)
        plain = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(x, y).score(x_test, y_test)
        assert CertifiedClassifier(scaler=StandardScaler()).fit(x, y).score(x_test, y_test) >= plain - less
