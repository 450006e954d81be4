"""`load`: a certificate from its file, whichever way it was made.

Training step by step and an optimum leave different things to hold: sets of parameters (`certificate_files.py`), or the
data around whose optimum all others are enclosed (`optimum/optimum_files.py`). The format of a file says which.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from ..answers import certificate
from ..answers.certificate import Certificate
from ..files import certificate_files
from . import loading, optimum_files
from .optimum_certificate import OptimumCertificate


def load(path: str | Path, model: nn.Module | None = None) -> Certificate | OptimumCertificate:
    """Read a certificate. ``model``: a freshly made module of the same architecture, needed for custom modules.

    At the optimum it is the module that makes the features.
    """
    if is_at_optimum(path):
        return loading.load(path, model)
    return certificate.load(path, model)


def is_at_optimum(path: str | Path) -> bool:
    """Whether a file says that it holds a certificate at the optimum."""
    return optimum_files.text_of(path).get("format") == optimum_files.FORMAT


def record_of(path: str | Path) -> dict[str, Any]:
    """What a file says of itself, without its tensors, and so before its digest can be looked at."""
    return optimum_files.text_of(path) if is_at_optimum(path) else certificate_files.record_of(path)


def input_shape(path: str | Path) -> tuple[int, ...]:
    """The shape of one input, as a file says, without making its models."""
    if is_at_optimum(path):
        return tuple(optimum_files.opened(path).record["input_shape"])
    return certificate_files.input_shape(path)
