"""The operators of PyTorch, by what they compute, and the losses: each as what a rule makes of sets.

Importing this package and `boundflow.rules` fills `boundflow.tensor.rule_table.RULES`.
"""

from . import (
    constants,
    convolution,
    dropout_and_noise,
    functions,
    gates,
    indexed_writes,
    item_and_bool,
    matrices,
    normalisation,
    optimizer_update,
    pooling,
    products,
    selections,
    slopes,
    softmax,
)

__all__ = [
    "constants",
    "convolution",
    "dropout_and_noise",
    "functions",
    "gates",
    "indexed_writes",
    "item_and_bool",
    "matrices",
    "normalisation",
    "optimizer_update",
    "pooling",
    "products",
    "selections",
    "slopes",
    "softmax",
]
