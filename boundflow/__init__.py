"""BoundFlow: a set of tensors is a tensor, so PyTorch's own training loop runs on sets, soundly."""

from . import namesake

namesake.require_ours()  # before anything of another package could be taken for ours

from . import errors, losses, rounding, rules, threats
from .attacks import Attacked, attack
from .audit import Audit, Checklist
from .bounded import Bounded
from .certificate import Certificate, load
from .ensemble import Ensemble, Vote
from .errors import (
    BoundFlowError,
    CrossedBounds,
    DifferentRuns,
    LostRank,
    MixedSymbols,
    MixedTensors,
    NoSmallerThreat,
    OutsideBounds,
    PlainTarget,
    SpreadRows,
    StaleAlias,
    TooLittleMemory,
    Undecided,
    UnsafePrecision,
    UnsupportedOperator,
    UnsupportedProgram,
    Violation,
    VoidBounds,
    WideBounds,
    WrongContent,
)
from .lift import ball, centers, interval, lift
from .many import certify_many
from .optimum import OptimumCertificate, certify_optimum
from .prediction import Accuracy, Prediction
from .progress import Step, only_looks
from .recipe import Recipe
from .symbols import Symbols
from .training import certify
from .tripwire import check
from .version import __version__
from .withstanding import Curve, Withstood, curve, withstands

__all__ = [
    "Accuracy",
    "Attacked",
    "Audit",
    "BoundFlowError",
    "Bounded",
    "Certificate",
    "Checklist",
    "CrossedBounds",
    "Curve",
    "DifferentRuns",
    "Ensemble",
    "LostRank",
    "MixedSymbols",
    "MixedTensors",
    "NoSmallerThreat",
    "OptimumCertificate",
    "OutsideBounds",
    "PlainTarget",
    "Prediction",
    "Recipe",
    "SpreadRows",
    "StaleAlias",
    "Step",
    "Symbols",
    "TooLittleMemory",
    "Undecided",
    "UnsafePrecision",
    "UnsupportedOperator",
    "UnsupportedProgram",
    "Violation",
    "VoidBounds",
    "Vote",
    "WideBounds",
    "Withstood",
    "WrongContent",
    "__version__",
    "attack",
    "ball",
    "centers",
    "certify",
    "certify_many",
    "certify_optimum",
    "check",
    "curve",
    "errors",
    "interval",
    "lift",
    "load",
    "losses",
    "only_looks",
    "rounding",
    "rules",
    "threats",
    "withstands",
]
