"""Charts as SVG text: lines over an axis, and bars beside names.

Colours, dashes and fonts are left to the style sheet of the page, through the classes of the parts, so that a chart
follows its dark mode and its font. Every chart comes with its values as a table: the alternative for those who cannot
see it, and what the page reads out under the pointer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

from fullcert.report.axes import Axis, axis_for
from fullcert.system.numbers_as_text import number

WIDTH, HEIGHT = 440, 240
LEFT, RIGHT, TOP, BOTTOM = 54, 428, 12, 194  # of the plot in the chart
MARKED = 25  # points of a line up to which each has a mark
DRAWN = 240  # points of a line that are drawn; of longer ones the extremes are kept
ROW, NAME = 40, 32  # height of a row of bars, and characters of a name that fit


MARKS = {"nominal": "m0-4l4 4-4 4-4-4z", "attacked": "m-3-3h6v6h-6z"}


# What is drawn from one point to the next: what holds at the next one holds before it (of what only falls, a lower
# bound), or what held at the last one holds until then (an upper bound).
BETWEEN = {"straight": "L{x:g} {y:g}", "next": "V{y:g}H{x:g}", "last": "H{x:g}V{y:g}"}


@dataclass(frozen=True)
class Line:
    """A line of a chart: its kind decides colour, dash and mark, and ``between`` what is known between its points."""

    name: str
    kind: str  # certified, nominal, attacked or single
    points: Sequence[tuple[float, float]]
    between: str = "straight"


@dataclass(frozen=True)
class Row:
    """One row of the table of a chart: its cells, and where they are drawn."""

    cells: tuple[str, ...]
    across: float | None = None
    down: tuple[float, ...] = ()


@dataclass(frozen=True)
class Chart:
    """A chart, with its title, its legend and its values."""

    title: str
    svg: str
    header: tuple[str, ...]
    rows: list[Row]
    legend: list[tuple[str, str]] = field(default_factory=list)  # kind and name of each line
    caption: str = ""


def line_chart(
    title: str,
    across: str,
    lines: Sequence[Line],
    *,
    show: Callable[[float], str] = number,
    caption: str = "",
    whole: bool = False,
    **limits: Any,
) -> Chart:
    """Lines over a common axis; `show` writes a value of a line, `limits` go to its axis. ``whole``: no tick at 0.5."""
    lines = [replace(line, points=thinned(line.points)) for line in lines if line.points]
    horizontal = axis_for([x for line in lines for x, _ in line.points], parts=5, whole=whole)
    vertical = axis_for([y for line in lines for _, y in line.points], **limits)
    parts = [grid(horizontal, vertical, across), *(drawn(line, horizontal, vertical) for line in lines)]
    header = (across, *(line.name for line in lines))
    legend = [(line.kind, line.name) for line in lines]
    described = f"{title}. {summary(across, lines, show)}"
    rows = table(lines, horizontal, vertical, show)
    return Chart(title, svg(WIDTH, HEIGHT, described, parts), header, rows, legend, caption)


def svg(width: int, height: int, described: str, parts: Sequence[str]) -> str:
    """A picture with a description in words."""
    view = f'viewBox="0 0 {width} {height}" data-top="{TOP}" data-bottom="{BOTTOM}"'
    return f'<svg class="chart" {view} role="img" aria-label="{escape(described)}">{"".join(parts)}</svg>'


def text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def horizontally(axis: Axis, value: float) -> float:
    return round(LEFT + axis.place(value) * (RIGHT - LEFT), 1)


def vertically(axis: Axis, value: float) -> float:
    return round(BOTTOM - axis.place(value) * (BOTTOM - TOP), 1)


def grid(horizontal: Axis, vertical: Axis, across: str) -> str:
    """Both axes with their labels, and faint lines across."""
    parts = [f'<path class="axis" d="M{LEFT} {BOTTOM}H{RIGHT}"/>']
    for value, label in vertical.ticks:
        y = vertically(vertical, value)
        parts += [f'<path class="grid" d="M{LEFT} {y:g}H{RIGHT}"/>', text(LEFT - 8, y + 4, label, "tick", "end")]
    for value, label in horizontal.ticks:
        x = horizontally(horizontal, value)
        parts += [f'<path class="axis" d="M{x:g} {BOTTOM}v4"/>', text(x, BOTTOM + 19, label, "tick", "middle")]
    return "".join([*parts, text((LEFT + RIGHT) / 2, HEIGHT - 8, across, "label", "middle")])


def drawn(line: Line, horizontal: Axis, vertical: Axis) -> str:
    """The line itself, and its marks where they would not crowd."""
    places = [(horizontally(horizontal, x), vertically(vertical, y)) for x, y in line.points]
    (first_x, first_y), *others = places
    path = "".join(BETWEEN[line.between].format(x=x, y=y) for x, y in others)
    shape = f'<path class="line {line.kind}" d="M{first_x:g} {first_y:g}{path}"/>'
    if len(places) > MARKED:
        return shape
    mark = MARKS.get(line.kind, "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z")
    marks = "".join(f"M{x:g} {y:g}{mark}" for x, y in places)
    return f'{shape}<path class="mark {line.kind}" d="{marks}"/>'


def table(lines: Sequence[Line], horizontal: Axis, vertical: Axis, show: Callable[[float], str]) -> list[Row]:
    """The values of all lines, one row for each place where at least one has a value."""
    values = [dict(line.points) for line in lines]
    rows = []
    for x in sorted({x for line in values for x in line}):
        cells = (number(x, 6), *(show(line[x]) if x in line else "" for line in values))
        down = tuple(vertically(vertical, line[x]) for line in values if x in line)
        rows.append(Row(cells, horizontally(horizontal, x), down))
    return rows


def summary(across: str, lines: Sequence[Line], show: Callable[[float], str]) -> str:
    """The two ends of every line, in words."""
    words = []
    for line in lines:
        (first, start), (last, end) = line.points[0], line.points[-1]
        words.append(
            f"{line.name}: {show(start)} at {across} {number(first, 6)}, {show(end)} at {across} {number(last, 6)}"
        )
    return "; ".join(words) + "." if words else ""


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most DRAWN points: of each stretch the lowest and the highest, of the whole both ends."""
    if len(points) <= DRAWN:
        return list(points)
    inner, size = points[1:-1], -(-2 * (len(points) - 2) // (DRAWN - 2))
    kept = [points[0]]
    for start in range(0, len(inner), size):
        stretch = inner[start : start + size]
        extremes = {min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])}
        kept += sorted(extremes)
    return [*kept, points[-1]]


# --- bars -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """A bar from zero to a value, and a whisker from there to the largest."""

    name: str
    value: float | None
    largest: float | None
    words: str  # beside the name


def bar_chart(title: str, across: str, bars: Sequence[Bar], header: tuple[str, ...], rows: list[Row]) -> Chart:
    """A row for each bar: its name and words, and the bar below them."""
    values = [value for bar in bars for value in (bar.value, bar.largest) if value is not None]
    axis = axis_for([0.0, *values] if any(values) else [0.0, 1.0], parts=5)
    bottom = 8 + ROW * len(bars)
    parts = [scale(axis, bottom, across), *(bar_row(bar, axis, 8 + ROW * index) for index, bar in enumerate(bars))]
    described = f"{title}. " + "; ".join(f"{bar.name}: {bar.words}" for bar in bars) + "."
    return Chart(title, svg(WIDTH, bottom + 46, described, parts), header, rows)


def scale(axis: Axis, bottom: int, across: str) -> str:
    """The axis under the bars, which begins at the left edge."""
    parts = [f'<path class="axis" d="M2 {bottom}H{RIGHT}"/>']
    for value, label in axis.ticks:
        x = along(axis, value)
        anchor = "start" if x < 12 else "middle"
        parts += [f'<path class="grid" d="M{x:g} 4V{bottom}"/>', text(x, bottom + 18, label, "tick", anchor)]
    return "".join([*parts, text((2 + RIGHT) / 2, bottom + 38, across, "label", "middle")])


def bar_row(bar: Bar, axis: Axis, top: int) -> str:
    """One bar under its name."""
    short = bar.name if len(bar.name) <= NAME else "…" + bar.name[1 - NAME :]  # names of layers differ at their ends
    names = text(2, top + 14, short, "name") + text(RIGHT, top + 14, bar.words, "tick", "end")
    if bar.value is None:
        return names
    end, middle = along(axis, bar.value), top + 25
    shape = f'<path class="bar" d="M2 {middle - 5}H{end:g}v10H2z"/>'
    if bar.largest is not None:
        shape += f'<path class="whisker" d="M{end:g} {middle}H{along(axis, bar.largest):g}m0-5v10"/>'
    return names + shape


def along(axis: Axis, value: float) -> float:
    return round(2 + axis.place(value) * (RIGHT - 2), 1)
