"""scikit-learn estimators whose predictions come with bounds over every dataset the training data could have been.

`fit` is `bf.certify`: it trains the plain model, which answers `predict` and `score`, and the set of all models that
the threat allows, which answers `predict_certified` and `certified_score`. The threat is a few numbers, or any of
`boundflow.threats`. The certificate speaks of the algorithm with its choices fixed: the parameters of the estimator,
the seed, the classes, and the scaler where it is declared so (`fullcert/scaling.py`).
"""

import copy
import functools
import itertools
import operator
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

import boundflow as bf
from boundflow import rounding
from boundflow.recipe import DOMAINS
from boundflow.threats import AtMost, Labels, Linf, Missing, Removal, Threat
from boundflow.training_state import space_of
from fullcert import losses, recipes
from fullcert.mistakes import Mistake, check_known
from fullcert.models import ACTIVATIONS
from fullcert.training import DTYPES, OPTIMIZERS

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.metrics import r2_score
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data
except ModuleNotFoundError as error:
    raise ImportError("fullcert.sklearn needs scikit-learn: pip install 'boundflow[sklearn]'") from error

from fullcert.scaling import ScalerNotCovered, scaling

LOG, SQUARED = "log", "squared"
GIVEN = ("momentum", "epochs", "batch_size", "order")  # what goes by rule unless it is given, and the learning rate


class NothingCertified(UserWarning):
    """The bounds became void during training: the plain model is there, and nothing about it is certified."""


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


@dataclass(kw_only=True, eq=False, repr=False)
class _Certified(BaseEstimator):
    """What both estimators share. A dataclass writes the constructor that scikit-learn wants: it stores and no more."""

    epsilon: Any = 0.0  # every training feature moved by at most this: a number, or one per feature
    at_most: int | None = None  # only so many samples are moved
    remove: int = 0  # at most so many samples removed: weight 0 in their slots
    threat: Threat | None = None  # any threat, instead of the numbers
    test_epsilon: Any = 0.0  # every feature of an input moved by at most this, unless a call says otherwise
    scaler: Any = None  # StandardScaler() and others that are affine: the threat is then in raw units
    scaled: str | None = None  # "beforehand": the data come scaled by numbers fixed beforehand
    hidden: tuple[int, ...] = ()  # widths of hidden layers; none: a linear model, which starts from zero
    activation: str = "tanh"
    model: Any = None  # (features, outputs) -> nn.Module, instead of hidden and activation; or a module to start from
    optimizer: str = "sgd"
    learning_rate: float | None = None  # None, here and below: by the rules of `fullcert/recipes.py`
    momentum: float | None = None
    weight_decay: float = 0.0
    clip_gradients: float | None = None  # the norm to which the gradient of every sample is clipped
    epochs: int | None = None  # bounds grow with every step: a few large ones certify more than many small ones
    batch_size: int | None = None  # 0: all samples in every step
    order: int | None = None
    domain: str = "zonotope"
    dtype: str = "float64"  # the data are converted to it, and the threat speaks of the converted data
    random_state: Any = 0
    verbose: bool = False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = _about_missing(self.threat)
        return tags

    # --- training -------------------------------------------------------------------------------------------------

    def _fit(self, x: np.ndarray, targets: np.ndarray, outputs: int, loss: str) -> bf.Certificate:
        """Train on the observed data, and on every dataset the threat allows."""
        self.threat_ = self._made_threat(x.shape[1])
        used = scaling(self.scaler, self.scaled, x, self.threat_, type(self).__name__)
        optimizer, taken = _chosen("optimizer", self.optimizer, OPTIMIZERS)
        _known("domain", self.domain, DOMAINS)
        values = self._recipe(loss, outputs)
        options = {**values, "weight_decay": self.weight_decay}
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        network = self._network(x.shape[1], outputs, seed, values["init_scale"])
        certificate = bf.certify(
            network if used.layer is None else nn.Sequential(used.layer, network),
            (torch.tensor(x), torch.tensor(targets)),
            threat=self.threat_,
            loss=loss,
            optimizer=optimizer,
            optimizer_options={name: options[name] for name in taken},
            epochs=values["epochs"],
            steps=values["steps"],
            batch_size=values["batch_size"] or None,
            seed=seed,
            domain=self.domain,
            order=values["order"],
            clip_gradients=self.clip_gradients,
            dtype=self._dtype,
            progress=bool(self.verbose),
        )
        certificate.record |= {"preprocessing": used.record, "recipe": self.recipe_}
        self.scaler_, self.n_iter_ = used.scaler, values["epochs"]
        _check_trained(certificate)
        return certificate

    def _recipe(self, loss: str, outputs: int) -> dict[str, Any]:
        """How the network is trained: what was given, and the rest by rule, which never looks at the data."""
        own, rate = self.model is not None, losses.learning_rate(loss, outputs)
        smooth = not own and self.activation in recipes.SMOOTH
        depth = 2 if own else len(self.hidden)
        faced = recipes.Situation(
            depth=depth,
            smooth=smooth,
            domain=self.domain,
            regression=loss == "mse",
        )
        numbers = {"lr": self.learning_rate, **{name: getattr(self, name) for name in GIVEN}}
        values = recipes.completed(faced, {name: value for name, value in numbers.items() if value is not None})
        values["lr"] = rate if values["lr"] is None else values["lr"]
        self.recipe_ = recipes.record(faced, values, rate)
        return values

    def _made_threat(self, features: int) -> Threat:
        if self.threat is not None:
            if not isinstance(self.threat, Threat):
                raise ValueError(f"threat must be one of boundflow.threats, not {self.threat!r}")
            numbers = ("epsilon", "at_most", "remove", "flip_labels", "target_epsilon")
            given = [
                name for name in numbers if getattr(self, name, None) is not None and _positive(getattr(self, name))
            ]
            if given:
                raise ValueError(f"threat= stands instead of {', '.join(given)}: write all of it as one threat")
            return self.threat
        _check_radius("epsilon", self.epsilon, features)
        moved = ([Linf(self.epsilon)] if _positive(self.epsilon) else []) + self._moved_targets()
        parts = [functools.reduce(operator.and_, moved)] if moved else []
        if self.at_most is not None:
            parts = [AtMost(self.at_most, part) for part in parts]
        parts += self._flipped() + ([AtMost(self.remove, Removal())] if self.remove else [])
        return functools.reduce(operator.and_, parts) if parts else Linf(0.0)

    def _moved_targets(self) -> list[Threat]:
        return []

    def _flipped(self) -> list[Threat]:
        return []

    def _network(self, features: int, outputs: int, seed: int, scale: float) -> nn.Module:
        """The network before training. The seed fixes it; the caller's random state is left alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            own = self.model is not None
            network = self._own_model(features, outputs) if own else self._layers(features, outputs, scale)
        network = network.to(self._dtype)
        with torch.no_grad():
            made = tuple(network(torch.zeros(2, features, dtype=self._dtype)).shape)
        if made != (2, outputs):
            raise ValueError(f"the model must put out {outputs} numbers for each sample, and two samples give {made}")
        return network

    def _layers(self, features: int, outputs: int, scale: float) -> nn.Module:
        """Linear layers with activations between them; the first is multiplied by ``scale``, for a linear model 0."""
        activation = _chosen("activation", self.activation, ACTIVATIONS)
        layers: list[nn.Module] = []
        for inward, outward in itertools.pairwise((features, *self.hidden, outputs)):
            layers += [nn.Linear(inward, outward), activation()]
        with torch.no_grad():
            for parameter in layers[0].parameters():
                parameter.mul_(scale)
        return nn.Sequential(*layers[:-1])

    def _own_model(self, features: int, outputs: int) -> nn.Module:
        return self.model if isinstance(self.model, nn.Module) else self.model(features, outputs)

    # --- answers --------------------------------------------------------------------------------------------------

    @property
    def _dtype(self) -> torch.dtype:
        return _chosen("dtype", self.dtype, DTYPES)

    def _checks(self, *threats: Threat | None) -> dict[str, Any]:
        """How inputs are validated: NaN is for threats about missing values."""
        missing = any(map(_about_missing, threats))
        dtype = np.float32 if self._dtype is torch.float32 else np.float64
        return {"dtype": dtype, "ensure_all_finite": "allow-nan" if missing else True}

    def _outputs(self, X: Any) -> np.ndarray:
        """What the plain model puts out."""
        check_is_fitted(self)
        x = torch.tensor(validate_data(self, X, reset=False, **self._checks(self.threat_)))
        with torch.no_grad():
            return self.certificate_.nominal(self.threat_.observed(x)).numpy()

    def _answers(self, X: Any, epsilon: Any, threat: Threat | None, cuts: int) -> bf.Prediction:
        """What every model puts out; without a threat every feature is moved by ``epsilon`` or ``test_epsilon``."""
        check_is_fitted(self)
        x = validate_data(self, X, reset=False, **self._checks(self.threat_, threat))
        if epsilon is None:
            epsilon = 0.0 if threat is not None else self.test_epsilon
        _check_radius("epsilon", epsilon, x.shape[1])
        return self.certificate_.predict(torch.tensor(x), epsilon, threat=threat, cuts=cuts)


@dataclass(kw_only=True, eq=False, repr=False)
class CertifiedClassifier(ClassifierMixin, _Certified):
    """A classifier that says which of its labels no allowed training data could have changed.

    ``flip_labels``: at most so many training labels are wrong. ``loss``: "log", the logistic loss, or "squared", least
    squares onto one-hot labels, in which labels are linear: with more than two classes it certifies more flips. With
    "log" a model for two classes has one output.
    """

    flip_labels: int = 0
    loss: str = LOG

    def fit(self, X: Any, y: Any) -> "CertifiedClassifier":
        """Train the plain model and the set of all models that the threat allows."""
        x, y = validate_data(self, X, y, **self._checks(self.threat))
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        count = len(self.classes_)
        if count < 2:
            raise ValueError(f"there must be at least two classes to tell apart, and y has {count} class")
        _known("loss", self.loss, (LOG, SQUARED))
        if self.loss == SQUARED:
            certificate = losses.of_task(self._fit(x, np.eye(count, dtype=x.dtype)[codes], count, "mse"), count)
            certificate = _second_less_first(certificate) if count == 2 else certificate
        else:
            certificate = self._fit(x, codes, *((1, "bce") if count == 2 else (count, "ce")))
        certificate.record["classes"] = self.classes_.tolist()
        self.certificate_ = certificate
        return self

    def _flipped(self) -> list[Threat]:
        return [AtMost(self.flip_labels, Labels())] if self.flip_labels else []

    def decision_function(self, X: Any) -> np.ndarray:
        """What the plain model puts out: (n,) for two classes, positive for the second; (n, classes) for more."""
        return _conventional(self._outputs(X))

    def predict(self, X: Any) -> np.ndarray:
        """The labels of the plain model."""
        decisions = self.decision_function(X)
        return self.classes_[(decisions > 0).astype(int) if decisions.ndim == 1 else decisions.argmax(1)]

    def predict_certified(
        self, X: Any, epsilon: Any = None, threat: Threat | None = None, cuts: int = 0
    ) -> CertifiedLabels:
        """Labels, and whether any allowed training data together with any allowed input could change them.

        ``epsilon``: every feature of an input moved by at most this; None: by ``test_epsilon``. ``threat``: any threat
        to inputs instead. ``cuts``: the box of an input that stays undecided is cut in halves up to so many times over.
        """
        answer = self._answers(X, epsilon, threat, cuts)
        lower, upper = (_conventional(bound.numpy()) for bound in (answer.lower, answer.upper))
        label = self.classes_[answer.label.numpy()]
        return CertifiedLabels(label, answer.certified.numpy(), lower, upper, answer.margin.numpy())

    def certified_score(
        self, X: Any, y: Any, epsilon: Any = None, threat: Threat | None = None, cuts: int = 0
    ) -> float:
        """The share of labels that are right and certified: the accuracy of every allowed model is at least this."""
        answer, y = self.predict_certified(X, epsilon, threat, cuts), column_or_1d(y)
        check_consistent_length(answer.label, y)
        return float(np.mean(answer.certified & (answer.label == y)))


@dataclass(kw_only=True, eq=False, repr=False)
class CertifiedRegressor(RegressorMixin, _Certified):
    """A regressor whose values come with bounds over all allowed training data.

    ``target_epsilon``: every training target is moved by at most this. With ``at_most`` only so many samples have moved
    features or targets.
    """

    target_epsilon: float = 0.0

    def fit(self, X: Any, y: Any) -> "CertifiedRegressor":
        """Train the plain model and the set of all models that the threat allows."""
        x, y = validate_data(self, X, y, y_numeric=True, **self._checks(self.threat))
        self.certificate_ = self._fit(x, y.astype(x.dtype), 1, "mse")
        return self

    def _moved_targets(self) -> list[Threat]:
        return [Labels(float(self.target_epsilon))] if _positive(self.target_epsilon) else []

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


# --- parts ------------------------------------------------------------------------------------------------------------


def _second_less_first(certificate: bf.Certificate) -> bf.Certificate:
    """Two outputs made one whose sign decides, by a fixed last layer: models subtract, and their bounds follow."""
    last = nn.Linear(2, 1, bias=False).requires_grad_(False).to(next(certificate.nominal.parameters()).dtype)
    last.weight.copy_(torch.tensor([[-1.0, 1.0]]))
    model, nominal = certificate.model, nn.Sequential(certificate.nominal, last).eval()
    if model is not None:
        symbols = space_of(model)
        model = nn.Sequential(model, bf.lift(copy.deepcopy(last), symbols)).eval()
    return replace(certificate, model=model, nominal=nominal)


def _check_trained(certificate: bf.Certificate) -> None:
    if not all(bool(torch.isfinite(parameter).all()) for parameter in certificate.nominal.parameters()):
        raise ValueError(
            "training diverged: scale the features, for instance with scaler=StandardScaler(), or lower learning_rate"
        )
    if certificate.void_at_step is not None:
        warnings.warn(
            f"the bounds became void at step {certificate.void_at_step} of {certificate.record['steps']}: nothing is "
            "certified. Fewer or smaller steps, a smaller threat or scaled features keep them finite",
            NothingCertified,
            stacklevel=4,  # the caller of fit
        )


def _check_radius(name: str, radius: Any, features: int) -> None:
    if np.shape(radius) not in ((), (features,)):
        raise ValueError(f"{name} must be a number or one for each of the {features} features, not {radius!r}")


def _positive(radius: Any) -> bool:
    """Whether a radius is anything but zero; what is wrong with it is said by the threat."""
    return bool(np.any(np.asarray(radius) != 0))


def _about_missing(threat: Threat | None) -> bool:
    return isinstance(threat, Threat) and any(isinstance(change, Missing) for change in threat.changes)


def _conventional(outputs: np.ndarray) -> np.ndarray:
    return outputs[:, 0] if outputs.shape[1] == 1 else outputs


def _known(kind: str, name: str, names: Collection[str]) -> None:
    """What the command calls a mistake is a ValueError in scikit-learn."""
    try:
        check_known(kind, name, names)
    except Mistake as mistake:
        raise ValueError(str(mistake)) from None


def _chosen(kind: str, name: str, table: Mapping[str, Any]) -> Any:
    _known(kind, name, table)
    return table[name]


__all__ = [
    "CertifiedClassifier",
    "CertifiedLabels",
    "CertifiedRegressor",
    "CertifiedValues",
    "NothingCertified",
    "ScalerNotCovered",
]
