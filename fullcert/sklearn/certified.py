"""What both estimators share: `fit` fits the plain model, and encloses the models of all allowed data.

Where labels or targets alone are in doubt, a convex objective on fixed features is fitted to its optimum, and all
optima are enclosed (`bf.certify_optimum`), by the rule of `fullcert/networks/optimum_rules.py`. Otherwise, or with
``way="steps"``, a network is trained step by step on all datasets at once (`bf.certify`). The plain model answers
`predict` and `score`, and the set of all models `predict_certified` and `certified_score`. The threat is a few numbers,
or any of `boundflow.threats`. The certificate speaks of the algorithm with its choices fixed: the parameters of the
estimator, the seed, the classes, the weights of samples, and the scaler where it is declared so
(`fullcert/sklearn/scaling.py`).
"""

import functools
import itertools
import operator
import warnings
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

import boundflow as bf
from boundflow.threats import AtMost, Linf, Removal, Threat
from boundflow.training.recipe import DOMAINS
from fullcert.experiment import losses, recipes
from fullcert.experiment.threats import changes_labels_alone
from fullcert.experiment.training import DTYPES, OPTIMIZERS
from fullcert.networks import optimum_fitting, optimum_rules
from fullcert.networks.models import ACTIVATIONS
from fullcert.sklearn import categorical_columns, fitted
from fullcert.sklearn.checks import (
    about_missing,
    check_radius,
    check_scaled,
    check_threatened,
    check_trained,
    chosen,
    counted,
    known,
    moves,
    positive,
    unscaled,
)
from fullcert.sklearn.scaling import changes_features, scaling
from fullcert.system.mistakes import Mistake

AUTO, OPTIMUM, STEPS = "auto", "optimum", "steps"
# what is about steps, or about networks that have no one optimum
OF_STEPS = (
    *("hidden", "model", "optimizer", "learning_rate", "momentum", "weight_decay", "clip_gradients", "epochs"),
    *("batch_size", "order", "domain"),
)
OF_OPTIMUM = ("features", "l2")
COVERED = "from the observed features, which are the same in every allowed dataset: covered"
GIVEN = ("momentum", "epochs", "batch_size", "order")  # what goes by rule unless it is given, and the learning rate


@dataclass(kw_only=True, eq=False, repr=False)
class CertifiedEstimator(BaseEstimator):
    """What both estimators share. A dataclass writes the constructor that scikit-learn wants: it stores and no more."""

    epsilon: Any = 0.0  # every training feature moved by at most this: a number, or one per feature
    at_most: float | None = None  # only so many samples are moved; below 1, such a share of them
    remove: float = 0  # at most so many samples removed, or such a share: weight 0 in their slots
    threat: Threat | None = None  # any threat, instead of the numbers
    test_epsilon: Any = 0.0  # every feature of an input moved by at most this, unless a call says otherwise
    scaler: Any = "auto"  # StandardScaler() and others that are affine, or None; "auto": where needed and covered
    scaled: str | None = None  # "beforehand": the data come scaled by numbers fixed beforehand
    way: str = "auto"  # "optimum", where labels or targets alone are in doubt, or "steps"; "auto": by what is given
    features: str | None = None  # at the optimum "none", "kernel" or "random:2000"; None: by rule, and so is l2
    l2: float | None = None
    hidden: tuple[int, ...] = ()  # widths of hidden layers; none: a linear model, which starts from zero
    activation: str = "tanh"
    model: Any = None  # (features, outputs) -> nn.Module, instead of hidden and activation; or a module to start from
    optimizer: str = "sgd"
    learning_rate: float | None = None  # None, here and below: by the rules of `fullcert/experiment/recipes.py`
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
        tags.input_tags.allow_nan = about_missing(self.threat)
        return tags

    # --- training -------------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        """What an earlier `fit` found: its certificate, beside the classes of one that fails, speaks of other data."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)
        self.__dict__.pop("_fitted", None)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        fitted.warn(self)

    def _fit(
        self, x: np.ndarray, targets: np.ndarray, outputs: int, loss: str, weights: np.ndarray | None = None
    ) -> bf.Certificate:
        """Train on the observed data, and on every dataset the threat allows."""
        scaler = self._scaler(x)
        if scaler is None and self.scaled is None and self.learning_rate is None:
            check_scaled(x)
        used = scaling(scaler, self.scaled, x, self.threat_, type(self).__name__)
        optimizer, taken = chosen("optimizer", self.optimizer, OPTIMIZERS)
        known("domain", self.domain, DOMAINS)
        values = self._recipe(loss, outputs)
        options = {**values, "weight_decay": self.weight_decay}
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        network = self._network(x.shape[1], outputs, seed, values["init_scale"])
        self.initial_model_ = network if used.layer is None else nn.Sequential(used.layer, network)
        self.program_ = bf.Recipe(
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
            sample_weights=None if weights is None else torch.tensor(weights),
            dtype=self._dtype,
        )
        data = (torch.tensor(x), torch.tensor(targets))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the bounds became void", bf.WideBounds)  # said in words of its own below
            certificate = bf.certify(
                self.initial_model_, data, self.program_, threat=self.threat_, progress=bool(self.verbose)
            )
        certificate.record |= {"preprocessing": used.record, "recipe": self.recipe_}
        if self.categories_:
            certificate.record["inputs"] = self.inputs_  # by the types of the table, which are fixed beforehand
        self.scaler_, self.n_iter_ = used.scaler, values["epochs"]
        check_trained(certificate)
        return certificate

    # --- at the optimum -------------------------------------------------------------------------------------------

    def _threatened(self, x: np.ndarray) -> None:
        self.threat_ = self._made_threat(*x.shape)
        check_threatened(self.threat_)

    def _converges(self, loss_of_steps: bool = False) -> bool:
        """Whether the optimum is fitted; ``loss_of_steps``: the loss that was named is trained step by step."""
        known("way", self.way, (AUTO, OPTIMUM, STEPS))
        default = {entry.name: entry.default for entry in fields(self)}
        stepwise = [name for name in OF_STEPS if getattr(self, name) != default[name]]
        converged = [name for name in OF_OPTIMUM if getattr(self, name) is not None]
        labels = changes_labels_alone(self.threat_)
        if self.way == OPTIMUM and stepwise:
            raise ValueError(f"way='optimum' fits one layer without steps: leave out {', '.join(stepwise)}")
        if self.way == OPTIMUM and not labels:
            raise ValueError("way='optimum' is for threats to labels or targets alone: use way='steps'")
        found = labels and self.way != STEPS and not stepwise and (self.way == OPTIMUM or not loss_of_steps)
        if not found and converged:
            raise ValueError(f"{' and '.join(converged)} are for fits to the optimum, and this one goes step by step")
        return found

    def _fit_optimum(
        self, x: np.ndarray, targets: np.ndarray, classes: int | None, loss: str | None, weights: np.ndarray | None
    ) -> bf.OptimumCertificate:
        """Fit the optimum, and enclose those of all datasets that the threat allows."""
        automatic = isinstance(self.scaler, str)
        if automatic:
            known("scaler", self.scaler, (AUTO,))
        used = scaling(None if automatic else self.scaler, self.scaled, x, self.threat_, type(self).__name__)
        features = optimum_rules.NONE if self.features is None and positive(self.test_epsilon) else self.features
        given = optimum_fitting.Given(features, None if automatic else optimum_rules.AS_THEY_ARE, self.l2, loss)
        try:
            certificate = optimum_fitting.fitted(
                *(torch.tensor(x), torch.tensor(targets), classes, self.threat_, given),
                scaled=used.layer,
                sample_weights=None if weights is None else torch.tensor(weights),
                seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            )
        except (Mistake, bf.BoundFlowError) as error:
            raise ValueError(str(error)) from error
        self.recipe_ = certificate.record["recipe"]
        columns = {**self.recipe_["by_rule"], **self.recipe_["given"]}["columns"]
        said = used.record if not automatic or columns == optimum_rules.AS_THEY_ARE else f"{columns}, {COVERED}"
        certificate.record["preprocessing"] = said
        if self.categories_:
            certificate.record["inputs"] = self.inputs_
        self.scaler_ = used.scaler
        raw = optimum_fitting.raw_weights(certificate.nominal)
        if raw is not None:
            self.coef_, self.intercept_ = self._weights(*(part.numpy() for part in raw))
        return certificate

    def _weights(self, weights: np.ndarray, intercepts: np.ndarray) -> tuple[Any, Any]:
        """Weights and intercepts for raw columns, shaped as those of scikit-learn's linear models."""
        return weights, intercepts

    # --- step by step ---------------------------------------------------------------------------------------------

    def _scaler(self, x: np.ndarray) -> Any:
        """The scaler; "auto" scales features that need it, where that is covered and the network is one of ours."""
        if not isinstance(self.scaler, str):
            return self.scaler
        known("scaler", self.scaler, (AUTO,))
        own = self.model is not None or self.scaled is not None or self.learning_rate is not None
        return None if own or changes_features(self.threat_) or not unscaled(x) else StandardScaler()

    def _given(self) -> list[bool]:
        """Which of the numbers that go by rule were given."""
        return [getattr(self, name) is not None for name in ("learning_rate", *GIVEN)]

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
            unthreatened=not any(map(moves, self.threat_.changes)) and not any(self._given()),
        )
        numbers = {"lr": self.learning_rate, **{name: getattr(self, name) for name in GIVEN}}
        values = recipes.completed(faced, {name: value for name, value in numbers.items() if value is not None})
        values["lr"] = rate if values["lr"] is None else values["lr"]
        self.recipe_ = recipes.record(faced, values, rate)
        return values

    def _made_threat(self, samples: int, features: int) -> Threat:
        if self.threat is not None:
            if not isinstance(self.threat, Threat):
                raise ValueError(f"threat must be one of boundflow.threats, not {self.threat!r}")
            numbers = ("epsilon", "at_most", "remove", "flip_labels", "target_epsilon")
            given = [
                name for name in numbers if getattr(self, name, None) is not None and positive(getattr(self, name))
            ]
            if given:
                raise ValueError(f"threat= replaces {', '.join(given)}: write all of it as one threat")
            return self.threat
        check_radius("epsilon", self.epsilon, features)
        moved = ([Linf(self.epsilon)] if positive(self.epsilon) else []) + self._moved_targets()
        parts = [functools.reduce(operator.and_, moved)] if moved else []
        if self.at_most is not None:
            parts = [AtMost(counted("at_most", self.at_most, samples), part) for part in parts]
        parts += self._flipped(samples)
        parts += [AtMost(counted("remove", self.remove, samples), Removal())] if self.remove else []
        return functools.reduce(operator.and_, parts) if parts else Linf(0.0)

    def _moved_targets(self) -> list[Threat]:
        return []

    def _flipped(self, samples: int) -> list[Threat]:
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
            raise ValueError(f"the model must return {outputs} numbers for each sample, and two samples give {made}")
        return network

    def _layers(self, features: int, outputs: int, scale: float) -> nn.Module:
        """Linear layers with activations between them; the first is multiplied by ``scale``, for a linear model 0."""
        activation = chosen("activation", self.activation, ACTIVATIONS)
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
        return chosen("dtype", self.dtype, DTYPES)

    def _learnt(self, X: Any) -> Any:
        """A table to fit, as numbers where the types of its columns list categories; they are known from now on."""
        self.categories_ = categorical_columns.of_table(X)
        if self.categories_:
            self.columns_ = list(X.columns)
        return self._encoded(X)

    def _encoded(self, X: Any) -> Any:
        """A table as numbers, by the categories of the one that was fitted."""
        return categorical_columns.encoded(X, self.categories_, self.columns_) if self.categories_ else X

    @property
    def inputs_(self) -> list[str]:
        """What each input of the network is, where columns have categories: `town=north`."""
        return categorical_columns.encoded_names(self.categories_, self.columns_) if self.categories_ else []

    def _checks(self, *threats: Threat | None) -> dict[str, Any]:
        """How inputs are validated: NaN is for threats about missing values; once fitted, in the dtype of the fit."""
        missing = any(map(about_missing, threats))
        program = getattr(self, "program_", None)
        dtype = np.float32 if (self._dtype if program is None else program.dtype) is torch.float32 else np.float64
        return {"dtype": dtype, "ensure_all_finite": "allow-nan" if missing else True}

    def _outputs(self, X: Any) -> np.ndarray:
        """What the plain model puts out."""
        check_is_fitted(self, "certificate_")
        fitted.require(self, certified=False)
        x = torch.tensor(validate_data(self, self._encoded(X), reset=False, **self._checks(self.threat_)))
        x = self.threat_.observed(x)
        if isinstance(self.certificate_, bf.OptimumCertificate):
            x = x.double()
        with torch.no_grad():
            return self.certificate_.nominal(x).numpy()

    def _answers(self, X: Any, epsilon: Any, threat: Threat | None, cuts: int) -> bf.Prediction:
        """What every model puts out; without a threat every feature is moved by ``epsilon`` or ``test_epsilon``."""
        x, epsilon = self._asked(X, epsilon, threat)
        return self.certificate_.predict(x, epsilon, threat=threat, cuts=cuts)

    def _asked(self, X: Any, epsilon: Any, threat: Threat | None) -> tuple[torch.Tensor, Any]:
        """Inputs as the certificate takes them, and how far each feature of them has moved."""
        check_is_fitted(self, "certificate_")
        fitted.require(self, certified=True)
        x = validate_data(self, self._encoded(X), reset=False, **self._checks(self.threat_, threat))
        if epsilon is None:
            epsilon = 0.0 if threat is not None else self.test_epsilon
        check_radius("epsilon", epsilon, x.shape[1])
        return torch.tensor(x), epsilon
