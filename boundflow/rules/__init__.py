"""The rules, one file per algebraic family. Importing this package fills `boundflow.bounded.RULES`."""

from . import (
    bilinear,
    constants,
    convolution,
    functions,
    gates,
    linear,
    normalisation,
    placing,
    pooling,
    products,
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
    "functions",
    "gates",
    "linear",
    "normalisation",
    "placing",
    "pooling",
    "products",
    "randomness",
    "selections",
    "slopes",
    "softmax",
    "structural",
    "unary",
]
