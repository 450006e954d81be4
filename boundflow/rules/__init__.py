"""The rules, one file per algebraic family. Importing this package fills `boundflow.bounded.RULES`."""

from . import (
    bilinear,
    constants,
    convolution,
    elementwise,
    functions,
    gates,
    linear,
    normalisation,
    placing,
    pooling,
    randomness,
    selections,
    slopes,
    softmax,
    structural,
    unary,
)

__all__ = [
    "bilinear",
    "constants",
    "convolution",
    "elementwise",
    "functions",
    "gates",
    "linear",
    "normalisation",
    "placing",
    "pooling",
    "randomness",
    "selections",
    "slopes",
    "softmax",
    "structural",
    "unary",
]
