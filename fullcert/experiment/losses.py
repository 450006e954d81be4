"""Losses by name. All but ce tell two classes apart by the sign of one output.

The library's mse is regression. For classes it regresses onto -1 and +1 here, so that the sign decides as it does for
the other losses, and the record says that the task is to tell classes apart.
"""

from dataclasses import replace

import numpy as np

import boundflow as bf
from boundflow.operators.losses import LOSSES
from fullcert.system.mistakes import Mistake, check_known


def chosen(loss: str, classes: int) -> str:
    """The loss by name; auto goes by the task. Regression has no classes."""
    if loss == "auto":
        return {0: "mse", 2: "bce"}.get(classes, "ce")
    check_known("loss", loss, ("auto", *LOSSES))
    if classes == 0 and loss != "mse":
        raise Mistake(f"--regression is trained with mse, not {loss}")
    return loss


def outputs(loss: str, classes: int) -> int:
    """How many outputs the network needs, if the loss can tell that many classes apart."""
    if LOSSES[loss].outputs == "classes":
        return classes
    if classes > 2:
        raise Mistake(f"the loss {loss!r} tells two classes apart, and this dataset has {classes}: use ce")
    return 1


def learning_rate(loss: str, classes: int) -> float:
    """For a linear model of scaled columns: the more a gradient turns, the shorter the step.

    The curvature in the outputs is at most 1/4 for bce and 2 for mse; hinge has none, and the slopes of bce. Two
    classes with ce at half the rate of bce are bce, step by step: the lead of a class is a difference of two outputs.
    The more classes, the fewer samples each has, and the more the same attack weighs among them.
    """
    if LOSSES[loss].outputs == "classes":
        return 1 / classes
    return 0.1 if LOSSES[loss].outputs == "values" else 1.0


def targets(loss: str, classes: int, labels: np.ndarray) -> np.ndarray:
    """What the outputs are compared with."""
    return 2 * labels - 1 if loss == "mse" and classes else labels


def of_task(certificate: bf.Certificate, classes: int) -> bf.Certificate:
    """The same certificate, whose answers are classes whatever the loss."""
    if not classes:
        return certificate
    return replace(certificate, record={**certificate.record, "task": "classification"})
