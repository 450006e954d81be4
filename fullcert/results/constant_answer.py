"""Whether a model beats the constant answer, which needs no model at all.

    classes: right more often than the most frequent class of the test set
    numbers: a smaller mean absolute error than the median of the test set

A model that does not can be certified as far as 100 %, and says nothing: no change of the data alters what was not
learnt from them. So every place that says how much is certified says this, too.
"""

from collections.abc import Mapping
from typing import Any

from fullcert.system.numbers_as_text import below, number, percent, width


def beats(figures: Mapping[str, Any]) -> bool | None:
    """Whether the plain model of a run does; None where its figures do not say."""
    accuracy, majority = figures.get("nominal_accuracy"), figures.get("majority_accuracy")
    if accuracy is not None and majority is not None:
        return bool(accuracy > majority)
    error, median = figures.get("mean_absolute_error"), figures.get("median_mean_absolute_error")
    return None if error is None or median is None else bool(error < median)


def told(figures: Mapping[str, Any]) -> str:
    """A sentence about a model that does not; otherwise none."""
    if beats(figures) is not False:
        return ""
    if figures.get("nominal_accuracy") is not None:
        reached = f"it is right for {percent(figures['nominal_accuracy'])}"
        constant = f"always answering the most frequent class for {percent(figures['majority_accuracy'])}"
    else:
        reached = f"its mean absolute error is {width(figures['mean_absolute_error'])}"
        constant = f"that of always answering the median {number(below(figures['median_mean_absolute_error'], 3), 3)}"
    return f"The model does not beat a constant answer: {reached}, and {constant}."
