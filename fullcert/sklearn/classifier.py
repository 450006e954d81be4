"""A classifier that says which of its labels no allowed training data could change, with bounds on probabilities."""

import copy
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data
from torch import nn

import boundflow as bf
from boundflow.files.training_state import space_of
from boundflow.threats import AtMost, Labels, Threat
from fullcert.experiment import losses
from fullcert.networks.probabilities import probabilities
from fullcert.sklearn import fitted
from fullcert.sklearn.answers import (
    CertifiedLabels,
    CertifiedProbabilities,
    Withstood,
    bounded_probabilities,
    conventional,
)
from fullcert.sklearn.certified import AUTO, STEPS, CertifiedEstimator
from fullcert.sklearn.checks import ClassWeightNotCovered, check_certifies, counted, known
from fullcert.sklearn.weights import combined

LOG, SQUARED = "log", "squared"
SHARPNESS = 4.0  # of probabilities from scores of squared loss; a power of two, so that products are exact


def _has_probabilities(estimator: Any) -> bool:
    if isinstance(getattr(estimator, "certificate_", None), bf.OptimumCertificate):
        return True
    program = getattr(estimator, "program_", None)  # by which it was trained, whatever its parameters say by now
    if program.loss == "mse" if program is not None else estimator.loss == SQUARED and estimator.way == STEPS:
        raise AttributeError("squared loss has no probabilities step by step: use way='optimum', or loss='log'")
    return True


@dataclass(kw_only=True, eq=False, repr=False)
class CertifiedClassifier(ClassifierMixin, CertifiedEstimator):
    """A classifier that says which of its labels no allowed training data could have changed.

    ``flip_labels``: at most so many training labels are wrong; below 1, such a share of them. ``loss``: "squared",
    least squares onto one-hot labels, in which labels are linear, or "log", the logistic loss; "auto" is squared at the
    optimum, and logistic step by step. At the optimum "log" is for two classes, and with ``l2``.
    """

    flip_labels: float = 0
    loss: str = AUTO
    class_weight: Any = None  # "balanced", or a number for each class: of the recorded labels, fixed before training

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "CertifiedClassifier":
        """Train the plain model and the set of all models that the threat allows.

        ``sample_weight``: how much each sample counts, fixed before training.
        """
        self._forget()
        x, y = validate_data(self, self._learnt(X), y, **self._checks(self.threat))
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        count = len(self.classes_)
        if count < 2:
            raise ValueError(f"there must be at least two classes to tell apart, and y has {count} class")
        known("loss", self.loss, (AUTO, LOG, SQUARED))
        by_class = None if self.class_weight is None else compute_sample_weight(self.class_weight, y)
        weights = combined(sample_weight, by_class, x)
        self._threatened(x)
        certificate: bf.Certificate | bf.OptimumCertificate
        if self._converges(self.loss == LOG):
            certificate = self._fit_optimum(x, codes, count, self._loss_at_optimum(count), weights)
        elif self.loss == SQUARED:
            made = losses.of_task(self._fit(x, np.eye(count, dtype=x.dtype)[codes], count, "mse", weights), count)
            certificate = second_less_first(made) if count == 2 else made
        else:
            certificate = self._fit(x, codes, *((1, "bce") if count == 2 else (count, "ce")), weights)
        certificate.record["classes"] = self.classes_.tolist()
        self._say_where_weights_come_from(certificate)
        self.certificate_ = certificate
        self._fitted = fitted.of(self)
        check_certifies(certificate, x, self.threat_)
        return self

    def _loss_at_optimum(self, classes: int) -> str | None:
        if self.loss != LOG:
            return None if self.loss == AUTO else self.loss
        if classes > 2 or self.l2 is None:
            raise ValueError(
                "loss='log' at the optimum is for two classes, and its ridge is not chosen by rule: give l2, or use "
                "loss='squared'"
            )
        return "logistic"

    def _say_where_weights_come_from(self, certificate: bf.Certificate | bf.OptimumCertificate) -> None:
        """Weights of classes go by the recorded labels: other labels would have given others."""
        if self.class_weight is None:
            return
        labels = self.threat_.touches("targets") or self.threat_.touches("weights") or self.threat_.touches("gradients")
        said = "by the recorded labels, which " + (
            "the threat changes: fixed and declared, not covered" if labels else "are the same in every allowed dataset"
        )
        certificate.record["class_weight"] = said
        if labels:
            warnings.warn(
                "class_weight goes by labels inside the threat: the bounds hold for the weights of the recorded labels "
                "and not for those that other labels would give; sample_weight fixes weights beforehand",
                ClassWeightNotCovered,
                stacklevel=3,  # the caller of fit
            )

    def _flipped(self, samples: int) -> list[Threat]:
        return [AtMost(counted("flip_labels", self.flip_labels, samples), Labels())] if self.flip_labels else []

    def decision_function(self, X: Any) -> np.ndarray:
        """What the plain model puts out: (n,) for two classes, positive for the second; (n, classes) for more."""
        return conventional(self._decided(self._outputs(X)))

    def _decided(self, outputs: np.ndarray) -> np.ndarray:
        """Outputs of two classes as one number, the second less the first."""
        return outputs[:, 1:] - outputs[:, :1] if len(self.classes_) == 2 and outputs.shape[1] == 2 else outputs

    def _weights(self, weights: np.ndarray, intercepts: np.ndarray) -> tuple[Any, Any]:
        return self._decided(weights.T).T, self._decided(intercepts[None])[0]

    def _bounds(self, answer: bf.Prediction) -> tuple[torch.Tensor, torch.Tensor]:
        """Bounds of the decision function, (n, 1) for two classes."""
        lead = answer.lead
        if answer.lower.shape[1] == 2 and lead is not None:  # how far each class is ahead, at least
            return lead[:, 1:], -lead[:, :1]
        return answer.lower, answer.upper

    def _logits(self, scores: torch.Tensor) -> torch.Tensor:
        """What the logistic function is taken of: scores of squared loss are sharpened by a fixed number."""
        optimum = isinstance(self.certificate_, bf.OptimumCertificate)
        squared = optimum and self.certificate_.record["loss"] == SQUARED
        return scores * SHARPNESS if squared else scores

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
        lower, upper = (conventional(bound.numpy()) for bound in self._bounds(answer))
        label = self.classes_[answer.label.numpy()]
        return CertifiedLabels(label, answer.certified.numpy(), lower, upper, answer.margin.numpy())

    def withstands(
        self, X: Any, epsilon: Any = None, threat: Threat | None = None, over: str | None = None
    ) -> Withstood:
        """For each label how many samples can be touched, or how far they can be moved, without changing it.

        ``epsilon`` and ``threat`` are about the inputs, as in `predict_certified`. ``over`` says what is varied, "k" or
        "epsilon", where both could be.
        """
        x, epsilon = self._asked(X, epsilon, threat)
        found = self.certificate_.withstands(x, epsilon, threat=threat, over=over)
        return Withstood(self.classes_[found.label.numpy()], found.value.numpy(), found.unit, found.most)

    def certified_score(
        self, X: Any, y: Any, epsilon: Any = None, threat: Threat | None = None, cuts: int = 0
    ) -> float:
        """The share of labels that are right and certified: the accuracy of every allowed model is at least this."""
        answer, y = self.predict_certified(X, epsilon, threat, cuts), column_or_1d(y)
        check_consistent_length(answer.label, y)
        return float(np.mean(answer.certified & (answer.label == y)))

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """The probabilities of the classes, from the plain model.

        Of squared loss they are a fixed rising map of its scores: the logistic function, or softmax, of 4 times them.
        """
        return probabilities(self._logits(torch.from_numpy(self._decided(self._outputs(X))))).numpy()

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithms of `predict_proba`, which do not become minus infinity where a probability rounds to 0."""
        outputs = self._logits(torch.from_numpy(self._decided(self._outputs(X))))
        if outputs.shape[1] == 1:
            return torch.nn.functional.logsigmoid(torch.cat((-outputs, outputs), 1)).numpy()
        return torch.log_softmax(outputs, 1).numpy()

    @available_if(_has_probabilities)
    def predict_proba_certified(
        self, X: Any, epsilon: Any = None, threat: Threat | None = None, cuts: int = 0
    ) -> CertifiedProbabilities:
        """Probabilities, and bounds on them over any allowed training data together with any allowed input."""
        answer = self._answers(X, epsilon, threat, cuts)
        lower, upper = (self._logits(bound) for bound in self._bounds(answer))
        return CertifiedProbabilities(self.predict_proba(X), *bounded_probabilities(lower, upper))


def second_less_first(certificate: bf.Certificate) -> bf.Certificate:
    """Two outputs made one whose sign decides, by a fixed last layer: models subtract, and their bounds follow."""
    last = nn.Linear(2, 1, bias=False).requires_grad_(False).to(next(certificate.nominal.parameters()).dtype)
    last.weight.copy_(torch.tensor([[-1.0, 1.0]]))
    model, nominal = certificate.model, nn.Sequential(certificate.nominal, last).eval()
    if model is not None:
        symbols = space_of(model)
        model = nn.Sequential(model, bf.lift(copy.deepcopy(last), symbols)).eval()
    return replace(certificate, model=model, nominal=nominal)
