"""The weights of a linear model as intervals on a common axis with a zero line, one row a feature.

The features with the largest weights are drawn first; the others, on the same axis, when they are asked for.
"""

from dataclasses import replace
from typing import Any

from fullcert.report.axes import Axis, linear
from fullcert.report.charts import Chart, Row, svg, text
from fullcert.system.numbers_as_text import above, below, number

WIDTH, NAME, PITCH, TOP = 640, 240, 26, 8  # of the chart, of the names, of a row
LONGEST = 31  # letters of a name
FIRST = 12  # features that are drawn at once
PLOT = WIDTH - NAME - 20


def feature_charts(evaluation: dict[str, Any]) -> list[Chart]:
    """A named interval for every feature, and whether its sign is certain: the first ones, and the others."""
    given = evaluation.get("features") or {}
    rows = given.get("rows", [])
    if not rows:
        return []
    several = len({row["towards"] for row in rows}) > 1
    low, high = min(0.0, *(row["lower"] for row in rows)), max(0.0, *(row["upper"] for row in rows))
    axis = linear(low, high, parts=5)
    low, high = min(low, axis.ticks[0][0]), max(high, axis.ticks[-1][0])
    labels = ("wrong labels its sign withstands",) if any("withstands" in row for row in rows) else ()
    header = ("feature", *(("class",) if several else ()), "lower", "upper", "plain model", "sign", *labels)
    values = [_row(row, several) for row in rows]
    first = Chart("Weights by feature", drawn(rows[:FIRST], several, axis, low, high), header, values)
    found = [replace(first, caption=caption(rows, given))]
    if rows[FIRST:]:
        found.append(Chart("", drawn(rows[FIRST:], several, axis, low, high), header, values[FIRST:]))
    return found


def drawn(rows: list[dict[str, Any]], several: bool, axis: Axis, low: float, high: float) -> str:
    """Some of the features, between the two ends of the axis."""

    def place(value: float) -> float:
        return round(NAME + PLOT * (value - low) / ((high - low) or 1.0), 1)

    bottom = TOP + PITCH * len(rows)
    parts = [f'<path class="grid" d="M{place(tick)} {TOP}V{bottom}"/>' for tick, _ in axis.ticks]
    parts += [text(place(tick), bottom + 18, label, "tick", "middle") for tick, label in axis.ticks]
    parts.append(f'<path class="zero strong" d="M{place(0)} {TOP}V{bottom}"/>')
    names = [titled(row, several) for row in rows]
    parts.append(f'<g style="--letters: {max(map(len, names))}">')  # by which a narrow page makes them smaller
    for number_of_row, name in enumerate(names):
        parts.append(text(NAME - 10, TOP + PITCH * (number_of_row + 0.5) + 4, name, "name", "end"))
    parts.append("</g>")
    for number_of_row, row in enumerate(rows):
        y = TOP + PITCH * (number_of_row + 0.5)
        start, end = place(row["lower"]), place(row["upper"])
        kind = "sure" if sign(row) else "unsure"
        parts.append(f'<path class="bound {kind}" d="M{start} {y}H{max(end, start + 2)}"/>')
        parts.append(f'<circle class="dot" cx="{place(row["plain"])}" cy="{y}" r="2.6"/>')
    certain = sum(1 for row in rows if sign(row))
    words = f"Weights of {len(rows)} feature{'' if len(rows) == 1 else 's'}. The sign of {certain} is certain."
    return svg(WIDTH, bottom + 28, words, parts)


def caption(rows: list[dict[str, Any]], given: dict[str, Any]) -> str:
    certain, towards = sum(1 for row in rows if sign(row)), {row["towards"] for row in rows}
    class_of = f" towards “{next(iter(towards))}”" if len(towards) == 1 and "" not in towards else ""
    left = f" The {given['left_out']} smallest are left out." if given.get("left_out") else ""
    some = f" Drawn first are the {FIRST} largest." if len(rows) > FIRST else ""
    return (
        f"The bounds of the weight of each feature{class_of}, whatever the attacker did, with columns in units of "
        f"their scales; the dot is the plain model. The sign of {certain} of {len(rows)} weights is certain: their "
        f"bars do not touch the zero line.{some}{left}"
    )


def sign(row: dict[str, Any]) -> str:
    """The sign of a weight, where it is certain."""
    return "+" if row["lower"] > 0 else "−" if row["upper"] < 0 else ""


def titled(row: dict[str, Any], several: bool) -> str:
    """The name of a row; where it is cut, something of the class stays: it tells rows of one feature apart."""
    if not several:
        return shortened(str(row["name"]))
    towards = shortened(str(row["towards"]), 11)
    return f"{shortened(str(row['name']), LONGEST - 3 - len(towards))} → {towards}"


def shortened(name: str, length: int = LONGEST) -> str:
    return name if len(name) <= length else name[: length - 1] + "…"


def _row(row: dict[str, Any], several: bool) -> Row:
    ends = number(below(row["lower"], 3), 3), number(above(row["upper"], 3), 3)
    towards = (str(row["towards"]),) if several else ()
    labels = (str(max(0, row["withstands"])),) if "withstands" in row else ()
    return Row((str(row["name"]), *towards, *ends, number(row["plain"], 3), sign(row) or "not certain", *labels))
