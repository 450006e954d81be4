"""What the estimators refuse and warn of: ValueErrors, as scikit-learn wants them, and warnings one can filter."""

import fractions
import numbers
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch

import boundflow as bf
from boundflow.threats import Change, Linf, Missing, Threat
from fullcert.system.mistakes import Mistake, check_known

LARGE, SPREAD = 10.0, 500.0  # features of a larger root mean square, or that vary so much more, are not scaled
SAMPLES = 200  # of the training data are asked about


class NothingCertified(UserWarning):
    """The bounds became void during training: the plain model is there, and nothing about it is certified."""


class UnscaledFeatures(UserWarning):
    """Features of very different size: a few steps learn from the largest alone."""


class NoThreat(UserWarning):
    """Nothing is said to be wrong with the data: what is certain is certain of these data alone."""


class ClassWeightNotCovered(UserWarning):
    """Weights were taken from labels inside the threat: they are fixed and declared, not covered."""


def check_trained(certificate: bf.Certificate) -> None:
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


def check_threatened(threat: Threat) -> None:
    """Warn where nobody was said to have touched anything: every answer is then certain, and none means anything."""
    if not any(map(moves, threat.changes)):
        warnings.warn(
            "there is no threat, so nothing was certified against: say what may be wrong with the data, for instance "
            "flip_labels=5, or epsilon=0.1",
            NoThreat,
            stacklevel=4,  # the caller of fit
        )


def counted(name: str, value: float, samples: int) -> int:
    """How many samples a number means: so many, or, below 1, such a share of them, rounded down."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or value < 0:
        raise ValueError(f"{name} must be at least 1 sample, or a share of them below 1, not {value!r}")
    if value >= 1 or value == 0:
        if int(value) != value:
            raise ValueError(f"{name} must be a whole number of samples, or a share of them below 1, not {value!r}")
        return int(value)
    count = int(fractions.Fraction(repr(float(value))) * samples)  # 0.07 of 100 is 7
    if not count:
        raise ValueError(f"{name}={value!r} of {samples} samples is not even one: give a larger share, or a number")
    return count


def check_radius(name: str, radius: Any, features: int) -> None:
    if np.shape(radius) not in ((), (features,)):
        raise ValueError(f"{name} must be a number or one for each of the {features} features, not {radius!r}")


def positive(radius: Any) -> bool:
    """Whether a radius is anything but zero; what is wrong with it is said by the threat."""
    return bool(np.any(np.asarray(radius) != 0))


def about_missing(threat: Threat | None) -> bool:
    return isinstance(threat, Threat) and any(isinstance(change, Missing) for change in threat.changes)


def known(kind: str, name: str, names: Collection[str]) -> None:
    """What the command calls a mistake is a ValueError in scikit-learn."""
    try:
        check_known(kind, name, names)
    except Mistake as mistake:
        raise ValueError(str(mistake)) from None


def chosen(kind: str, name: str, table: Mapping[str, Any]) -> Any:
    known(kind, name, table)
    return table[name]


def moves(change: Change) -> bool:
    """Whether a change is anything but a move by nothing."""
    return not (isinstance(change, Linf) and not bool((change.epsilon > 0).any()))


def unscaled(x: np.ndarray) -> tuple[float, float] | None:
    """The smallest and the largest deviation of features that are to be scaled first; None: they are of unit size.

    Steps of gradient descent go by how far features are from zero, not from their mean: ages of 45 are large.
    """
    deviation, size = np.nanstd(x, axis=0), np.sqrt(np.nanmean(np.square(x), axis=0))
    deviation, size = deviation[deviation > 0], size[deviation > 0]
    far = len(size) and (size.max() > LARGE or deviation.max() > SPREAD * deviation.min())
    return (deviation.min(), deviation.max()) if far else None


def check_scaled(x: np.ndarray) -> None:
    """Warn of features that are to be scaled first: the default steps are for numbers of about unit size."""
    far = unscaled(x)
    if far is not None:
        warnings.warn(
            f"the features vary by {far[0]:.2g} to {far[1]:.2g}, and the steps are for about 1: give "
            "scaler=StandardScaler(), or scale them before",
            UnscaledFeatures,
            stacklevel=4,  # the caller of fit
        )


def check_certifies(certificate: bf.Certificate | bf.OptimumCertificate, x: np.ndarray, threat: Threat) -> None:
    """Warn where bounds are finite, and still none of the training samples has a certain label."""
    if certificate.void_at_step is None and not bool(certified(certificate, x, threat).any()):
        steps = "" if isinstance(certificate, bf.OptimumCertificate) else "fewer or smaller steps, scaled features or "
        warnings.warn(
            f"none of {min(SAMPLES, len(x))} training samples has a label that is certain: {steps}a smaller threat may "
            "help",
            NothingCertified,
            stacklevel=4,
        )


def certified(certificate: bf.Certificate | bf.OptimumCertificate, x: np.ndarray, threat: Threat) -> torch.Tensor:
    return certificate.predict(threat.observed(torch.tensor(x[:SAMPLES]))).certified
