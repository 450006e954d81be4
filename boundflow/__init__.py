"""BoundFlow: a set of tensors is a tensor, so PyTorch's own training loop runs on sets, soundly."""

from . import errors, losses, rounding, rules, threats
from .bounded import Bounded
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

__version__ = "0.1.0"

__all__ = [
    "BoundFlowError",
    "Bounded",
    "CrossedBounds",
    "MixedSymbols",
    "MixedTensors",
    "PlainTarget",
    "StaleAlias",
    "Symbols",
    "Undecided",
    "UnsafePrecision",
    "UnsupportedOperator",
    "VoidBounds",
    "ball",
    "centers",
    "errors",
    "interval",
    "lift",
    "losses",
    "rounding",
    "rules",
    "threats",
]
