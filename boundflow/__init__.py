"""BoundFlow: a set of tensors is a tensor, so PyTorch's own training loop runs on sets, soundly."""

from . import errors, losses, rounding, rules, threats
from .bounded import Bounded
from .certificate import Certificate, load
from .errors import (
    BoundFlowError,
    CrossedBounds,
    MixedSymbols,
    MixedTensors,
    OutsideBounds,
    PlainTarget,
    StaleAlias,
    Undecided,
    UnsafePrecision,
    UnsupportedOperator,
    UnsupportedProgram,
    VoidBounds,
    WideBounds,
    WrongContent,
)
from .lift import ball, centers, interval, lift
from .many import certify_many
from .prediction import Accuracy, Prediction
from .progress import Step, only_looks
from .recipe import Recipe
from .symbols import Symbols
from .training import certify
from .tripwire import check
from .version import __version__

__all__ = [
    "Accuracy",
    "BoundFlowError",
    "Bounded",
    "Certificate",
    "CrossedBounds",
    "MixedSymbols",
    "MixedTensors",
    "OutsideBounds",
    "PlainTarget",
    "Prediction",
    "Recipe",
    "StaleAlias",
    "Step",
    "Symbols",
    "Undecided",
    "UnsafePrecision",
    "UnsupportedOperator",
    "UnsupportedProgram",
    "VoidBounds",
    "WideBounds",
    "WrongContent",
    "__version__",
    "ball",
    "centers",
    "certify",
    "certify_many",
    "check",
    "errors",
    "interval",
    "lift",
    "load",
    "losses",
    "only_looks",
    "rounding",
    "rules",
    "threats",
]
