"""Losses by name. All but ce tell two classes apart by the sign of one output.

The library's mse is regression. Here it regresses onto -1 and +1, so that the sign decides as it does for the other
losses, and the record says that the task is to tell classes apart.
"""

from dataclasses import replace

import numpy as np

import boundflow as bf
from boundflow.training import LOSSES
from fullcert.mistakes import Mistake, check_known


def outputs(loss: str, classes: int) -> int:
    """How many outputs the network needs, if the loss can tell that many classes apart."""
    check_known("loss", loss, LOSSES)
    if loss == "ce":
        return classes
    if classes != 2:
        raise Mistake(f"the loss {loss!r} tells two classes apart, and this dataset has {classes}: use ce")
    return 1


def targets(loss: str, labels: np.ndarray) -> np.ndarray:
    """What the outputs are compared with."""
    return 2 * labels - 1 if loss == "mse" else labels


def of_classes(certificate: bf.Certificate) -> bf.Certificate:
    """The same certificate, whose answers are classes whatever the loss."""
    return replace(certificate, record={**certificate.record, "task": "classification"})
