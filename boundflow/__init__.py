"""BoundFlow: a set of tensors is a tensor, so PyTorch's own training loop runs on sets, soundly."""

from .same_program import former_paths, namesake

namesake.require_ours()  # before anything of another package could be taken for ours
former_paths.install(__name__)  # before any room is imported

from . import errors, rules, threats
from .analysis.audit import Audit, Checklist
from .analysis.ensemble import Ensemble, Vote
from .analysis.withstanding import Curve, Withstood, curve, withstands
from .answers.certificate import Certificate
from .answers.prediction import Accuracy, Prediction
from .arithmetic import rounding
from .attacks import Attacked, attack
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
from .operators import losses
from .optimum import OptimumCertificate, certify_optimum
from .optimum.load_either_way import load
from .same_program.tripwire import check
from .symbols.space import Symbols
from .tensor.bounded import Bounded
from .tensor.lift import ball, centers, interval, lift
from .training.certified_training import certify
from .training.joint_trainings import certify_many
from .training.progress import Step, only_looks
from .training.recipe import Recipe
from .version import __version__

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

former_paths.keep_public_names(__name__)
