"""The rules, one file per algebraic family, and the operators that are nothing else."""

from . import bilinear, contractions, linear, products_over_samples, structural, unary

__all__ = ["bilinear", "contractions", "linear", "products_over_samples", "structural", "unary"]
