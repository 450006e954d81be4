"""The other side of the bound: poisoned datasets inside the threat of a run, trained in plain PyTorch.

An attack shows that a label can be changed; that none was found shows nothing. So the accuracy that is left under
attack is an upper bound of every certificate of the same training, and every attack is a test of the certificate.
Nothing here uses the sets, rules and symbols that bounds are made of.
"""

from .attacking import ATTACKS, attack
from .membership import contains
from .poisoned import Poisoned
from .result import Attacked
from .search import Progress

__all__ = ["ATTACKS", "Attacked", "Poisoned", "Progress", "attack", "contains"]
