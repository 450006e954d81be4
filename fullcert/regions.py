"""The plane of a two-dimensional task as SVG: where each class is certified, for every test radius.

What was computed is a grid of points. A region is the union of the cells around its points; its outline is found by
walking along the sides between a cell of the region and one outside, with the region on the right, and is smoothed over
a few cells. So a line is true to about half a cell: only the points themselves were certified.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

from fullcert.axes import linear
from fullcert.charts import text
from fullcert.numerals import number, percent

WIDTH, LEFT, TOP, EDGE = 560, 50, 14, 14  # of the picture, and around the plot
PLOT = WIDTH - LEFT - EDGE
SHARPNESS = 10  # steps of a coordinate in one cell: coordinates are whole numbers
PASSES = 4  # of smoothing
UNDECIDED, NOTHING = ".", " "
RING = 2  # cells around the grid
MARKS = ("m-2 0a2 2 0 1 0 4 0a2 2 0 1 0-4 0z", "m0-2.8l2.7 4.7h-5.4z", "m-2-2h4v4h-4z", "m0-3l3 3-3 3-3-3z")

Corner = tuple[int, int]
Grid = list[str]


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
        grid = rows(certified, points)
        radii.append(Radius(epsilon, certified_regions(grid, height), class_names(grid, classes, height), words))
    overlay = boundary(rows(plane["nominal"], points), height) + samples(plane, height)
    present = sorted({*labels(plane["nominal"]), *(int(sample[2]) for sample in plane["train"])})
    return Picture(radii, overlay, frame(plane, height), present, height)


def ratio(plane: dict[str, Any]) -> float:
    """Height over width: one scale for both features, unless that makes the picture a strip."""
    (left, right), (low, high) = plane["across"], plane["down"]
    true = (high - low) / (right - left)
    return true if 0.4 <= true <= 1.25 else 0.75


def rows(cells: str, points: int) -> Grid:
    """The rows of the grid from top to bottom, its edge repeated once, in a ring of nothing.

    So outlines run on beyond the picture and close outside of it.
    """
    lines = [cells[start : start + points] for start in range(0, points * points, points)][::-1]
    lines = [f"{NOTHING}{line[0]}{line}{line[-1]}{NOTHING}" for line in (lines[0], *lines, lines[-1])]
    ring = NOTHING * (points + 2 * RING)
    return [ring, *lines, ring]


def labels(cells: str) -> list[int]:
    """The classes in the cells."""
    return sorted(int(label) for label in set(cells) - {UNDECIDED, NOTHING})


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


# --- outlines ---------------------------------------------------------------------------------------------------


def traced(grid: Grid, inside: str, outside: Collection[str]) -> list[list[Corner]]:
    """The chains of corners between cells of `inside` and cells of `outside`; closed ones end where they begin."""
    following: dict[Corner, list[Corner]] = {}
    for start, end in sides(grid, inside, outside):
        following.setdefault(start, []).append(end)
    ends = {end for after in following.values() for end in after}
    starts = [corner for corner in following if corner not in ends]
    chains = []
    while following:
        chain = [starts.pop() if starts else next(iter(following))]
        while chain[-1] in following:
            chain.append(turned(chain, following))
        chains.append(chain)
    return chains


def sides(grid: Grid, inside: str, outside: Collection[str]) -> Iterator[tuple[Corner, Corner]]:
    """The directed sides of cells, with the region on the right. No cell of a region lies in the outermost ring."""
    for y, line in enumerate(grid):
        x = line.find(inside)
        while x >= 0:
            if grid[y - 1][x] in outside:
                yield (x, y), (x + 1, y)
            if line[x + 1] in outside:
                yield (x + 1, y), (x + 1, y + 1)
            if grid[y + 1][x] in outside:
                yield (x + 1, y + 1), (x, y + 1)
            if line[x - 1] in outside:
                yield (x, y + 1), (x, y)
            x = line.find(inside, x + 1)


def turned(chain: list[Corner], following: dict[Corner, list[Corner]]) -> Corner:
    """The next corner; where two cells touch at a corner only, the turn to the right, which keeps them apart."""
    here = chain[-1]
    choices = following[here]
    if len(choices) > 1 and len(chain) > 1:
        across, down = here[0] - chain[-2][0], here[1] - chain[-2][1]
        right = (here[0] - down, here[1] + across)
        choices.sort(key=lambda corner: corner == right)
    after = choices.pop()
    if not choices:
        del following[here]
    return after


def smoothed(chain: list[Corner]) -> list[tuple[float, float]]:
    """The middles of the sides, each averaged with its neighbours a few times."""
    closed = chain[0] == chain[-1]
    points = [((a + c) / 2, (b + d) / 2) for (a, b), (c, d) in zip(chain, chain[1:], strict=False)]
    for _ in range(PASSES):
        before, after = [points[-1], *points[:-1]], [*points[1:], points[0]]
        if not closed:
            before[0], after[-1] = points[0], points[-1]
        points = [
            ((a + 2 * c + e) / 4, (b + 2 * d + f) / 4)
            for (a, b), (c, d), (e, f) in zip(before, points, after, strict=True)
        ]
    return points


def path(chains: list[list[Corner]], closed: bool) -> str:
    """The chains as one path of whole numbers, each relative to the one before."""
    words = []
    for chain in chains:
        points = [(round(x * SHARPNESS), round(y * SHARPNESS)) for x, y in smoothed(chain)]
        steps = " ".join(f"{c - a} {d - b}" for (a, b), (c, d) in zip(points, points[1:], strict=False))
        ending = "z" if closed or chain[0] == chain[-1] else ""
        words.append(f"M{points[0][0]} {points[0][1]}l{steps}{ending}" if steps else "")
    return "".join(words).replace(" -", "-")


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
    parts = [f'<path class="axis" d="M{LEFT} {TOP}h{PLOT}v{height}h{-PLOT}z"/>']
    (left, right), (low, high) = plane["across"], plane["down"]
    for value, label in linear(left, right, parts=6).ticks:
        if left <= value <= right:
            x = LEFT + PLOT * (value - left) / (right - left)
            parts += [f'<path class="axis" d="M{x:.1f} {TOP + height}v4"/>']
            parts += [text(round(x, 1), TOP + height + 19, label, "tick", "middle")]
    for value, label in linear(low, high, parts=5).ticks:
        if low <= value <= high:
            y = TOP + height * (high - value) / (high - low)
            parts += [
                f'<path class="axis" d="M{LEFT} {y:.1f}h-4"/>',
                text(LEFT - 8, round(y + 4, 1), label, "tick", "end"),
            ]
    first, second = (shortened(str(name), 40) for name in plane["features"])
    parts.append(text(LEFT + PLOT / 2, TOP + height + 42, first, "label", "middle"))
    middle = TOP + height / 2
    turned_text = f'<text class="label" text-anchor="middle" transform="translate(13 {middle:g}) rotate(-90)">'
    return "".join([*parts, f"{turned_text}{escape(second)}</text>"])
