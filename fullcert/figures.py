"""The decision barriers of a two-dimensional task, as a picture.

Every point of the plane is certified for one class, certified for the other, or undecided: there the bounds of
the logit straddle zero, and some poisoned model or moved input may answer either way.
"""

import io
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from torch import Tensor, nn

import boundflow as bf
from fullcert.options import Options
from fullcert.planes import grid_around
from fullcert.training import Recipe

# Blue and orange of Okabe and Ito, told apart by colour-blind readers; markers differ in shape too.
DEEP = ("#0072B2", "#C05A00")
PALE = ("#B8DCF0", "#FBD9A5")
UNDECIDED = "#F4F4F4"
MARKERS = ("o", "^")


def barriers(recipe: Recipe, certificate: bf.Certificate, points: int = 60) -> bytes:
    """A PNG of the certified regions of both classes, the undecided band and the training samples."""
    train = recipe.data.train
    known = ~np.isnan(train.inputs).any(1)  # a sample of which a value is missing has no place in the plane
    across, down, grid = grid_around(
        torch.as_tensor(train.inputs[known], dtype=recipe.dtype, device=recipe.device), points
    )
    preference = preferring(certificate)
    bounds = preference.predict(grid, recipe.options.test_epsilon)
    with torch.no_grad():
        boundary = preference.nominal(grid).reshape(points, points).cpu()

    figure = Figure(figsize=(7.2, 5.6), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.set_facecolor(UNDECIDED)
    for label, bound in enumerate((-bounds.upper, bounds.lower)):
        lead = bound.reshape(points, points).cpu()
        if lead.max() > 0:
            axes.contourf(across, down, lead, levels=[0, torch.inf], colors=[PALE[label]])
        zero_line(axes, across, down, lead, colors=DEEP[label])
        chosen = train.inputs[known & (train.labels == label)]
        style: dict[str, Any] = {"c": DEEP[label], "marker": MARKERS[label]}
        axes.scatter(chosen[:, 0], chosen[:, 1], s=11, linewidths=0, alpha=0.75, zorder=3, **style)
    zero_line(axes, across, down, boundary, colors="#333333", linestyles="dashed")
    axes.set(xlabel="first feature", ylabel="second feature", aspect="equal")
    axes.set_title(title(recipe.options), loc="left", fontsize=11)
    figure.legend(handles=legend(), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return png(figure)


class Preference(nn.Module):
    """By how much class 1 is preferred to class 0, from one logit or two."""

    def forward(self, logits: Tensor) -> Tensor:
        return logits if logits.shape[1] == 1 else logits[:, 1:] - logits[:, :1]


def preferring(certificate: bf.Certificate) -> bf.Certificate:
    """The same certificate, with the preference as its output: its bounds are the leads of both classes."""
    model = None if certificate.model is None else nn.Sequential(certificate.model, Preference())
    return replace(certificate, model=model, nominal=nn.Sequential(certificate.nominal, Preference()))


def zero_line(axes: Axes, across: Tensor, down: Tensor, values: Tensor, **style: Any) -> None:
    """Where the values are zero, if they are anywhere; matplotlib warns if they are not."""
    if values.min() < 0 < values.max():
        axes.contour(across, down, values, levels=[0], linewidths=1.2, **style)


def title(options: Options) -> str:
    """What the picture is of."""
    return (
        f"{options.title}, {options.domain}: features move by {options.epsilon:g} in training "
        f"and {options.test_epsilon:g} at test"
    )


def legend() -> list[Patch | Line2D]:
    regions: list[Patch | Line2D] = [
        Patch(facecolor=PALE[label], edgecolor=DEEP[label], label=f"certified class {label}") for label in (0, 1)
    ]
    samples = [
        Line2D([], [], ls="", marker=MARKERS[label], color=DEEP[label], label=f"training class {label}")
        for label in (0, 1)
    ]
    undecided = Patch(facecolor=UNDECIDED, edgecolor="#999999", label="undecided")
    plain = Line2D([], [], color="#333333", linestyle="dashed", label="plain PyTorch model")
    return [regions[0], samples[0], regions[1], samples[1], undecided, plain]


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    return buffer.getvalue()
