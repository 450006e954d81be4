"""Colours and lines of pictures of decision barriers that matplotlib draws; the report draws its own."""

from typing import Any

from matplotlib.axes import Axes
from torch import Tensor

# Blue and orange of Okabe and Ito, told apart by colour-blind readers; markers differ in shape too.
DEEP = ("#0072B2", "#C05A00")
PALE = ("#B8DCF0", "#FBD9A5")
UNDECIDED = "#F4F4F4"
MARKERS = ("o", "^")


def zero_line(axes: Axes, across: Tensor, down: Tensor, values: Tensor, **style: Any) -> None:
    """Where the values are zero, if they are anywhere; matplotlib warns if they are not."""
    if values.min() < 0 < values.max():
        axes.contour(across, down, values, levels=[0], linewidths=1.2, **style)
