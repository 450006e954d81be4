"""The rules, one file per algebraic family. Importing this package fills `boundflow.bounded.RULES`."""

from . import bilinear, gates, layers, linear, selections, unary

__all__ = ["bilinear", "gates", "layers", "linear", "selections", "unary"]
