"""scikit-learn estimators whose predictions come with bounds over every dataset the training data could have been.

certified.py    what both share: a threat in a few numbers, and `fit`, which is `bf.certify`
classifier.py   labels and probabilities             regressor.py   values
answers.py      what they answer                     checks.py      what they refuse and warn of
linear_weights.py      how much each sample counts          through.py     the same through pipelines and searches
fitted.py       what a fit has found, known again        converged.py   certificates of models fitted as usual
"""

try:
    import sklearn  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError("fullcert.sklearn needs scikit-learn: pip install scikit-learn") from error

from fullcert.sklearn.answers import CertifiedLabels, CertifiedProbabilities, CertifiedValues, Withstood
from fullcert.sklearn.checks import ClassWeightNotCovered, NothingCertified, NoThreat, UnscaledFeatures
from fullcert.sklearn.classifier import CertifiedClassifier
from fullcert.sklearn.converged import CertifiedModel, NotCovered, certify
from fullcert.sklearn.fitted import OtherVersions
from fullcert.sklearn.regressor import CertifiedRegressor
from fullcert.sklearn.scaling import ScalerNotCovered
from fullcert.sklearn.through import certified_score, predict_certified, predict_proba_certified, withstands

__all__ = [
    "CertifiedClassifier",
    "CertifiedLabels",
    "CertifiedModel",
    "CertifiedProbabilities",
    "CertifiedRegressor",
    "CertifiedValues",
    "ClassWeightNotCovered",
    "NoThreat",
    "NotCovered",
    "NothingCertified",
    "OtherVersions",
    "ScalerNotCovered",
    "UnscaledFeatures",
    "Withstood",
    "certified_score",
    "certify",
    "predict_certified",
    "predict_proba_certified",
    "withstands",
]
