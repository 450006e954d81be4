"""Certificates of models that have converged: the optimum of a convex objective on fixed features is enclosed itself.

certify_optimum.py        `certify_optimum`                      optimum_certificate.py  what it answers
logit_bounds.py   bounds of logits and leads             features.py             features that see no label
squared.py        squared loss, where bounds are exact   ranges.py               where training logits can go, otherwise
linearised.py     how far a logit of the optimum moves   logit_losses.py         losses of one logit: chords and secants
changes.py        what a threat lets each row add        fitting.py              the optimum of the observed data
training_rows.py  the training rows, scaled              inverse.py              directions, and what floats leave
branching.py      which rows are wrong, in order         many_rows.py            ranges of very many rows
patches.py        features of images                     pieces.py               long lists, and how far they are
"""

from .certify_optimum import certify_optimum
from .features import KernelFeatures, NormalScores, RandomFeatures, Standardised
from .optimum_certificate import OptimumCertificate
from .patches import PatchFeatures

__all__ = [
    "KernelFeatures",
    "NormalScores",
    "OptimumCertificate",
    "PatchFeatures",
    "RandomFeatures",
    "Standardised",
    "certify_optimum",
]
