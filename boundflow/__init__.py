"""BoundFlow: a set of tensors is a tensor, so PyTorch's own training loop runs on sets, soundly."""

from . import errors, losses, rounding, rules, threats
from .bounded import Bounded
from .certificate import Accuracy, Certificate, Prediction, load
from .errors import (
    BoundFlowError,
    CrossedBounds,
    MixedSymbols,
    MixedTensors,
    PlainTarget,
    StaleAlias,
    Undecided,
    UnsafePrecision,
    UnsupportedOperator,
    VoidBounds,
)
from .lift import ball, centers, interval, lift
from .symbols import Symbols
from .training import Step, certify
from .version import __version__

__all__ = [
    "Accuracy",
    "BoundFlowError",
    "Bounded",
    "Certificate",
    "CrossedBounds",
    "MixedSymbols",
    "MixedTensors",
    "PlainTarget",
    "Prediction",
    "StaleAlias",
    "Step",
    "Symbols",
    "Undecided",
    "UnsafePrecision",
    "UnsupportedOperator",
    "VoidBounds",
    "__version__",
    "ball",
    "centers",
    "certify",
    "errors",
    "interval",
    "lift",
    "load",
    "losses",
    "rounding",
    "rules",
    "threats",
]
