"""The decision barriers of all models on Two-Moons (Fig. 2): where they agree, and the band where they may not.

Every point of the plane, moved by epsilon, is certified for one class or the other, or some model answers otherwise.
The bounds at the points of a grid are kept, so that the figure is drawn from JSON alone.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fullcert.data.datasets import Dataset, load
from fullcert.data.plane_grid import grid_around
from fullcert.reproduce import best, published
from fullcert.reproduce.experiments import Case, Outcome, Scale, experiment
from fullcert.reproduce.published import Published, Sets, Source

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EPSILON, SEED, POINTS, SHOWN = 1e-2, 10123310, 45, 200
# blue and orange of Okabe and Ito, told apart by colour-blind readers; markers differ in shape too
DEEP = ("#0072B2", "#C05A00")
PALE = ("#B8DCF0", "#FBD9A5")
UNDECIDED = "#F4F4F4"
MARKERS = ("o", "^")


def picture(data: Dataset, points: int, lower: Tensor, upper: Tensor, plain: Tensor) -> dict[str, Any]:
    """Bounds and plain outputs on the grid, and some training samples, with three digits: a picture needs no more."""
    across, down, _ = grid_around(torch.tensor(data.train.inputs), points)
    grids = {"lower": lower, "upper": upper, "plain": plain}
    shown = {name: [_short(value) for value in grid.flatten().tolist()] for name, grid in grids.items()}
    samples = [[_short(value) for value in sample] for sample in data.train.inputs[:SHOWN].tolist()]
    axes = {"across": [_short(value) for value in across.tolist()], "down": [_short(value) for value in down.tolist()]}
    return {**axes, **shown, "samples": samples, "labels": data.train.labels[:SHOWN].tolist()}


def _short(value: float) -> float:
    return float(f"{max(-1e6, min(1e6, value)):.3g}")


def as_published(run: Published, points: int, seed: int, device: torch.device) -> Outcome:
    """The published recipe, and the plane at its best epoch."""
    data = load("two-moons", Path("."), seed)
    grid = grid_around(torch.tensor(data.train.inputs, dtype=torch.float32), points)[2].to(device)
    seen: dict[str, Any] = {}

    def look(sets: Sets) -> None:
        with torch.no_grad():
            seen.update(picture(data, points, *sets.bounds(grid), sets.plain(grid)))

    reached = published.train(data, run, Source(seed), device, look)
    return Outcome(100 * reached.certified, 100 * reached.nominal, {"epoch": reached.epoch, **seen})


def ours(points: int, seed: int, device: torch.device) -> Outcome:
    """Our recipe, and the plane after its last step."""
    data, setting = load("two-moons", Path("."), seed), best.setting_of("two-moons", EPSILON)
    certificate, _ = best.certified(setting, data, seed, str(device))
    grid = grid_around(torch.tensor(data.train.inputs), points)[2].to(device)
    found = certificate.predict(grid, EPSILON)
    with torch.no_grad():
        plain = certificate.nominal(grid)
    accuracy = certificate.accuracy(data.test.inputs, data.test.labels, EPSILON)
    seen = picture(data, points, found.lower, found.upper, plain)
    return Outcome(100 * accuracy.certified, 100 * accuracy.nominal, seen)


def draw(rows: list[dict[str, Any]], figure: "Figure") -> None:
    """One panel for each row: both certified regions, the undecided band between them, and the plain barrier."""
    for number, row in enumerate(rows):
        axes, seen = figure.add_subplot(1, len(rows), number + 1), row["details"][0]
        across, down = seen["across"], seen["down"]
        lower, upper, plain = (
            torch.tensor(seen[name]).reshape(len(down), len(across)) for name in ("lower", "upper", "plain")
        )
        axes.set_facecolor(UNDECIDED)
        samples, labels = np.array(seen["samples"]), np.array(seen["labels"])
        for label, lead in enumerate((-upper, lower)):
            if lead.max() > 0:
                axes.contourf(across, down, lead, levels=[0, torch.inf], colors=[PALE[label]])
            zero_line(axes, torch.tensor(across), torch.tensor(down), lead, colors=DEEP[label])
            chosen = samples[labels == label]
            axes.scatter(chosen[:, 0], chosen[:, 1], s=3, linewidths=0, c=DEEP[label], marker=MARKERS[label])
        zero_line(axes, torch.tensor(across), torch.tensor(down), plain, colors="#333333", linestyles="dashed")
        axes.set(aspect="equal", xticks=[], yticks=[])
        axes.set_title(f"{row['domain']}, {row['recipe']}: {row['mean']:.1f} %", fontsize=9)


def zero_line(axes: "Axes", across: Tensor, down: Tensor, values: Tensor, **style: Any) -> None:
    """Where the values are zero, if they are anywhere; matplotlib warns if they are not."""
    if values.min() < 0 < values.max():
        axes.contour(across, down, values, levels=[0], linewidths=1.2, **style)


@experiment(
    "barriers",
    title="Two-Moons, epsilon 0.01: the decision barriers of all models",
    source="FullCert, Fig. 2",
    differs="The paper does not say which run it draws, so the setting of its tables is drawn.",
    draw=draw,
)
def barriers(scale: Scale) -> list[Case]:
    points, cases = 15 if scale.quick else POINTS, []
    for domain in ("interval", "zonotope"):
        epochs = {"interval": 20, "zonotope": 2}[domain] if scale.quick else 200
        run = partial(as_published, Published(EPSILON, epochs=epochs, domain=domain), points)
        fixed = {"epochs": epochs, "points": points}
        cases.append(Case({"epsilon": EPSILON}, domain, "paper", run, None, (SEED,), fixed=fixed))
    fixed = {"points": points}
    best_case = Case({"epsilon": EPSILON}, "zonotope", "best", partial(ours, points), None, (SEED,), fixed=fixed)
    return [*cases, best_case]
