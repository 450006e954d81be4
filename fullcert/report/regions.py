"""The plane of a two-dimensional task as SVG: where each class is certified, for every test radius.

What was computed is a grid of points, and only the points themselves were certified. A region is drawn as the union of
the cells around its points, with a smooth outline.
"""

from dataclasses import dataclass
from html import escape
from typing import Any

from fullcert.report.axes import linear
from fullcert.report.charts import text
from fullcert.report.outlines import RING, SHARPNESS, UNDECIDED, Grid, framed, labels, path, traced
from fullcert.system.numbers_as_text import number, percent

WIDTH, LEFT, TOP, EDGE = 560, 50, 14, 14  # of the picture, and around the plot
PLOT = WIDTH - LEFT - EDGE
MARKS = ("m-2 0a2 2 0 1 0 4 0a2 2 0 1 0-4 0z", "m0-2.8l2.7 4.7h-5.4z", "m-2-2h4v4h-4z", "m0-3l3 3-3 3-3-3z")


@dataclass(frozen=True)
class Radius:
    """The picture at one test radius, and what it says in words."""

    epsilon: float
    regions: str
    names: str
    words: str


@dataclass(frozen=True)
class Picture:
    """The parts of the picture that a slider puts together, and where its plot lies."""

    radii: list[Radius]
    overlay: str  # the plain model and the training samples
    frame: str
    classes: list[int]
    height: int  # of the plot
    start: int = 0  # the radius that is shown first
    left: int = LEFT
    top: int = TOP
    width: int = PLOT

    def mark(self, label: int) -> str:
        """The shape of a training sample of this class."""
        return MARKS[label % len(MARKS)]


def picture(plane: dict[str, Any], classes: list[str], shares: dict[float, str]) -> Picture:
    """The picture of a plane; `shares` holds what is known of the test set at a radius, in words."""
    points = plane["points"]
    height = round(PLOT * ratio(plane))
    radii = []
    for epsilon, certified in zip(plane["epsilons"], plane["certified"], strict=True):
        share = percent((len(certified) - certified.count(UNDECIDED)) / len(certified))
        words = f"Test radius {number(epsilon)}: {share} of the plane is certified{shares.get(epsilon, '')}."
        grid = framed(certified, points)
        radii.append(Radius(epsilon, certified_regions(grid, height), class_names(grid, classes, height), words))
    overlay = boundary(framed(plane["nominal"], points), height) + samples(plane, height)
    present = sorted({*labels(plane["nominal"]), *(int(sample[2]) for sample in plane["train"])})
    return Picture(radii, overlay, frame(plane, height), present, height, plane.get("start", 0))


def ratio(plane: dict[str, Any]) -> float:
    """Height over width: one scale for both features, unless that makes the picture a strip."""
    (left, right), (low, high) = plane["across"], plane["down"]
    true = (high - low) / (right - left)
    return true if 0.4 <= true <= 1.25 else 0.75


def placement(grid: Grid, height: int) -> tuple[float, float]:
    """The size of a cell in the picture. The outermost points lie on the edge of the plot."""
    return PLOT / (len(grid[0]) - 2 * RING - 1), height / (len(grid) - 2 * RING - 1)


def certified_regions(grid: Grid, height: int) -> str:
    """The region of every class."""
    found = set("".join(grid))
    shapes = ""
    for label in labels("".join(grid)):
        outlines = traced(grid, str(label), found - {str(label)})
        shapes += f'<path class="region class{label % 8}" d="{path(outlines, closed=True)}"/>'
    return placed(grid, height, shapes)


def boundary(grid: Grid, height: int) -> str:
    """Where the plain model changes its mind, each stretch once."""
    found = labels("".join(grid))
    stretches = [
        outline for label in found for outline in traced(grid, str(label), {str(a) for a in found if a > label})
    ]
    return placed(grid, height, f'<path class="boundary" d="{path(stretches, closed=False)}"/>')


def placed(grid: Grid, height: int, shapes: str) -> str:
    """Shapes in cells of the grid, moved to the plot."""
    across, down = placement(grid, height)
    corner = f"translate({LEFT - (RING + 0.5) * across:.3f} {TOP - (RING + 0.5) * down:.3f})"
    return f'<g transform="{corner} scale({across / SHARPNESS:.5f} {down / SHARPNESS:.5f})">{shapes}</g>'


# --- names, samples, frame ------------------------------------------------------------------------------------------


def class_names(grid: Grid, classes: list[str], height: int) -> str:
    """The name of each class where its region is widest; regions too small for one go without."""
    found = ""
    across, down = placement(grid, height)
    for label in labels("".join(grid)):
        depth, column, row = deepest(grid, str(label))
        name = classes[label] if label < len(classes) else str(label)
        x, y = LEFT + (column - RING) * across, TOP + (row - RING) * down
        found += text(round(x), round(y + 5), shortened(name), "class", "middle") if depth >= 4 else ""
    return found


def shortened(name: str, length: int = 16) -> str:
    return name if len(name) <= length else name[: length - 1] + "…"


def deepest(grid: Grid, label: str) -> tuple[int, int, int]:
    """The half width of the largest square of a class, and the column and row of its middle."""
    best, before = (0, 0, 0), [0] * len(grid[0])
    for y, line in enumerate(grid):
        sizes: list[int] = []
        for x, cell in enumerate(line):
            beside, above, corner = (sizes[-1], before[x], before[x - 1]) if x else (0, 0, 0)
            sizes.append(1 + min(beside, above, corner) if cell == label else 0)
        size = max(sizes)
        if size > 2 * best[0] + 1:
            best = (size // 2, sizes.index(size) - size // 2, y - size // 2)
        before = sizes
    return best


def samples(plane: dict[str, Any], height: int) -> str:
    """The training samples, one shape for each class."""
    (left, right), (low, high) = plane["across"], plane["down"]
    marks: dict[int, str] = {}
    for x, y, label in ((x, y, int(label)) for x, y, label in plane["train"]):
        across = LEFT + PLOT * (x - left) / (right - left)
        down = TOP + height * (high - y) / (high - low)
        marks[label] = marks.get(label, "") + f"M{across:.1f} {down:.1f}{MARKS[label % len(MARKS)]}"
    return "".join(f'<path class="sample class{label % 8}" d="{d}"/>' for label, d in sorted(marks.items()))


def frame(plane: dict[str, Any], height: int) -> str:
    """The edge of the plot, and both axes with round numbers and the names of the features."""
    bottom, middle = TOP + height, TOP + height / 2
    parts = [f'<path class="axis" d="M{LEFT} {TOP}h{PLOT}v{height}h{-PLOT}z"/>']
    for share, label in ticks(plane["across"], 6):
        x = round(LEFT + PLOT * share, 1)
        parts += [f'<path class="axis" d="M{x:g} {bottom}v4"/>', text(x, bottom + 19, label, "tick", "middle")]
    for share, label in ticks(plane["down"], 5):
        y = round(bottom - height * share, 1)
        parts += [f'<path class="axis" d="M{LEFT} {y:g}h-4"/>', text(LEFT - 8, y + 4, label, "tick", "end")]
    first, second = (shortened(str(name), 40) for name in plane["features"])
    upright = f'<text class="label" text-anchor="middle" transform="translate(13 {middle:g}) rotate(-90)">'
    return "".join(
        [*parts, text(LEFT + PLOT / 2, bottom + 42, first, "label", "middle"), upright, escape(second), "</text>"]
    )


def ticks(ends: list[float], parts: int) -> list[tuple[float, str]]:
    """The round numbers between both ends: where they lie, and their labels."""
    low, high = ends
    inside = [tick for tick in linear(low, high, parts=parts).ticks if low <= tick[0] <= high]
    return [((value - low) / (high - low), label) for value, label in inside]
