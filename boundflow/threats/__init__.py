"""Threats are symbol sets: what an attacker could have done to the training data.

A *change* is one thing that can differ about a sample: its features, its label, its presence. Changes are joined with
``&`` (the attacker can do both), restricted with ``on`` (only these samples, only these features), and put under a
budget with ``AtMost(k, ...)``: no more than k samples of the whole dataset are touched, in the whole run.

Every change is one class in one file: `base.py` says what it must define and what follows from that.
"""

from ..symbols.budgets import Kind
from .balls import L1, L2, Linf, Trigger
from .base import AtMost, Both, Change, Clause, Threat
from .categories import Categories, Category
from .deviation import Deviation, Diagonal
from .labels import Labels
from .lifting import Lifted
from .missing import Missing
from .missing_categories import MissingCategory
from .quantised import Quantised
from .removal import Removal
from .replacement import Replacement
from .tolerance import Tolerance

__all__ = [
    "L1",
    "L2",
    "AtMost",
    "Both",
    "Categories",
    "Category",
    "Change",
    "Clause",
    "Deviation",
    "Diagonal",
    "Kind",
    "Labels",
    "Lifted",
    "Linf",
    "Missing",
    "MissingCategory",
    "Quantised",
    "Removal",
    "Replacement",
    "Threat",
    "Tolerance",
    "Trigger",
]
