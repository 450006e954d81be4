"""Fitted scaling is part of the training algorithm: applied to the set of datasets, and said to be covered or not.

A scaler that is affine in every feature, ``x -> weight x + shift``, becomes a frozen first layer of the network. The
raw data are lifted with a threat in raw units, and the layer runs on the set; so epsilon means what it says in the
units of the data, for training and for test inputs.

Its numbers are another matter. Mean and deviation of a poisoned dataset are others than those of the observed one:

- a threat to labels alone leaves the features as they are, and every allowed dataset gives the same scaler: covered;
- a scaler fitted beforehand on other data is a choice that was fixed before training, like the seed: declared;
- a scaler fitted on data inside the threat is fixed at what was observed: declared, not covered, and `fit` warns.

So ``scaler="auto"``, the default of the estimators, scales features of very different size where labels or targets
alone are in doubt, and leaves them where features are, whose scaling has to be somebody's decision.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted
from torch import nn

from boundflow.threats import Linf, Threat

BEFOREHAND = "beforehand"
HANDFUL = 5  # fewer samples have mean 0 and deviation 1 too easily
CLOSE = 1e-6

ALREADY_SCALED = (
    "every column of X has mean 0 and deviation 1, as after a StandardScaler: its mean and deviation were fitted on "
    "data inside the threat, and epsilon would be in scaled units. Use {name}(scaler=StandardScaler(), epsilon=...) on "
    "the raw data instead, or say with scaled='beforehand' that the scaling was fixed beforehand and that epsilon is "
    "in its units"
)


class ScalerNotCovered(UserWarning):
    """The scaler was fitted on data inside the threat: its numbers are fixed and declared, not covered."""


class Scaling(NamedTuple):
    """The scaler as it was used, as a frozen first layer, and what a certificate says of it."""

    scaler: Any
    layer: nn.Linear | None
    record: str


def scaling(scaler: Any, scaled: str | None, x: np.ndarray, threat: Threat, name: str) -> Scaling:
    """What is done to the features before training by the estimator called ``name``."""
    if scaled not in (None, BEFOREHAND):
        raise ValueError(f"scaled must be None or {BEFOREHAND!r}, not {scaled!r}")
    if scaler is None:
        if scaled is None and changes_features(threat) and standardised(x):
            raise ValueError(ALREADY_SCALED.format(name=name))
        beforehand = "scaled beforehand, by numbers fixed before training: declared"
        return Scaling(None, None, "none by the estimator" if scaled is None else beforehand)
    if scaled is not None:
        raise ValueError("scaled says that the data come scaled, and scaler= would scale them again: give one of them")
    return _scaling_by(scaler.estimator if isinstance(scaler, FrozenEstimator) else scaler, x, threat)


def _scaling_by(scaler: Any, x: np.ndarray, threat: Threat) -> Scaling:
    """A scaler as it is where it was fitted beforehand, and otherwise fitted on the observed data."""
    check_affine(scaler)
    kind = type(scaler).__name__
    if is_fitted(scaler):
        if scaler.n_features_in_ != x.shape[1]:
            raise ValueError(f"X has {x.shape[1]} features, and the scaler was fitted on {scaler.n_features_in_}")
        return Scaling(scaler, frozen_layer(scaler), f"{kind}, fitted beforehand: declared")
    said = f"{kind}, fitted on the observed features, which are the same in every allowed dataset: covered"
    if changes_features(threat):
        said = f"{kind}, fitted on the observed features, which the threat changes: fixed and declared, not covered"
        warnings.warn(
            f"the {kind} is fitted on data inside the threat: the bounds hold for its numbers as they are now, and not "
            "for those that poisoned data would give; a scaler fitted beforehand on trusted data is a fixed choice",
            ScalerNotCovered,
            stacklevel=5,  # the caller of fit
        )
    scaler = clone(scaler).fit(x)
    return Scaling(scaler, frozen_layer(scaler), said)


def changes_features(threat: Threat) -> bool:
    """Whether some allowed dataset has other features, or other samples, than the observed one."""
    return any(
        change.about != "targets" and not (isinstance(change, Linf) and not bool((change.epsilon > 0).any()))
        for change in threat.changes
    )


def standardised(x: np.ndarray) -> bool:
    """Whether every column that is not constant has mean 0 and deviation 1: what a fitted StandardScaler leaves."""
    if len(x) < HANDFUL:
        return False
    known = ~np.isnan(x)
    count = known.sum(0).clip(1)
    values = np.where(known, x, 0.0).astype(np.float64)
    mean = values.sum(0) / count
    deviation = np.sqrt((np.where(known, values - mean, 0.0) ** 2).sum(0) / count)
    varies = deviation > CLOSE
    return bool(varies.any() and (np.abs(mean) < CLOSE)[varies].all() and (np.abs(deviation - 1) < CLOSE)[varies].all())


# --- scalers that are affine in every feature -------------------------------------------------------------------------


def _divided(center: np.ndarray | None, scale: np.ndarray | None, features: int) -> tuple[np.ndarray, np.ndarray]:
    """``(x - center) / scale`` as weight and shift."""
    weight = np.ones(features) if scale is None else 1 / np.asarray(scale, dtype=np.float64)
    return weight, np.zeros(features) if center is None else -np.asarray(center, dtype=np.float64) * weight


# scaler -> weight and shift of its affine map
AFFINE: dict[type, Callable[[Any], tuple[np.ndarray, np.ndarray]]] = {
    StandardScaler: lambda scaler: _divided(scaler.mean_ if scaler.with_mean else None, scaler.scale_, _width(scaler)),
    RobustScaler: lambda scaler: _divided(scaler.center_, scaler.scale_, _width(scaler)),
    MaxAbsScaler: lambda scaler: _divided(None, scaler.scale_, _width(scaler)),
    MinMaxScaler: lambda scaler: (scaler.scale_, scaler.min_),
}


def _width(scaler: Any) -> int:
    return scaler.n_features_in_


def check_affine(scaler: Any) -> None:
    """Refuse what is not known to be affine in every feature: a subclass may do anything."""
    if type(scaler) not in AFFINE:
        names = ", ".join(kind.__name__ for kind in AFFINE)
        raise ValueError(f"scaler must be affine in every feature, one of {names}, not {scaler!r}")
    if getattr(scaler, "clip", False):
        raise ValueError(f"{type(scaler).__name__}(clip=True) is not affine: use clip=False")


def is_fitted(scaler: Any) -> bool:
    try:
        check_is_fitted(scaler)
    except NotFittedError:
        return False
    return True


def frozen_layer(scaler: Any) -> nn.Linear:
    """The scaler as a layer that is not trained. A plain Linear, so that a certificate file can name it."""
    weight, shift = (torch.as_tensor(np.array(part, dtype=np.float64)) for part in AFFINE[type(scaler)](scaler))
    layer = nn.Linear(len(weight), len(weight), dtype=torch.float64).requires_grad_(False)
    layer.weight.copy_(weight.diag())
    layer.bias.copy_(shift)
    return layer
