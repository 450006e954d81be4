"""The report of a run: one HTML file that needs nothing else, made from its evaluation and what was found out later.

The page asks for nothing from outside: style, pictures, script and data are inside, and a content security policy
forbids everything else, scripts other than this one included. Without a script it still has everything but the table of
samples.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from math import isfinite
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fullcert.report import claims, decisions, regions
from fullcert.report.charts import Bar, Chart, Line, Row, bar_chart, line_chart
from fullcert.report.feature_weights import feature_charts
from fullcert.results.beside import require_format
from fullcert.system.numbers_as_text import above, below, count, nearest, number, percent, width

RESULT = "result"  # all sections that are drawn from the evaluation; others have files of their own
BARS = 20  # layers that are drawn; the widest ones, if there are more
SOMETIMES = (
    "line",
    "id",
    "votes",
    "withstands",
)  # what samples of some runs carry: of a table, and of members that vote


@dataclass(frozen=True)
class Vouched:
    """Whose signature there is; the file of each section, and what keeps it from being covered, if it is not."""

    who: str
    files: dict[str, str] = field(default_factory=dict)
    apart: dict[str, str] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """What the signature does not cover."""
        return [f"the signature does not cover {self.files[name]}, {why}" for name, why in self.apart.items()]


UNSIGNED = Vouched("none when this page was made: whoever could write the files of the run could change what it shows")


def render(
    evaluation: dict[str, Any], beside: dict[str, dict[str, Any]] | None = None, vouched: Vouched = UNSIGNED
) -> str:
    """The report as the text of an HTML file.

    ``beside`` is what was found out about the run afterwards, by name; ``vouched`` who has signed it (`of_run.py`).
    """
    beside = beside or {}
    require_format(evaluation)
    script = source("report.js")
    template = environment().get_template("report.html")
    page = template.render(
        evaluation=evaluation,
        headline=evaluation["headline"],
        claim=claims.claim(evaluation),
        short=claims.short(evaluation),
        facts=claims.facts(evaluation),
        key_figures=claims.key_figures(evaluation),
        parts=claims.parts(evaluation),
        attack=claims.attack_claim(beside["attack"]) if "attack" in beside else None,
        attack_parts=claims.attack_parts(beside["attack"]) if "attack" in beside else [],
        decisions=decisions.decisions(evaluation),
        by_class=decisions.by_class(evaluation),
        beside=beside,
        vouched=vouched,
        placed=any("line" in row for row in evaluation["samples"]),
        named=any("id" in row for row in evaluation["samples"]),
        voted=any("votes" in row for row in evaluation["samples"]),
        features=feature_charts(evaluation),
        training=training_charts(evaluation),
        radii=radius_chart(evaluation),
        curve=withstood_chart(beside.get("curve")),
        picture=picture(evaluation),
        data=data_block(samples(evaluation)),
        style=Markup(source("report.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    # half a surrogate in a name must not keep the page from being written
    return page.encode("utf-8", "replace").decode()


def source(name: str) -> str:
    """A file beside the template that goes into the page as it is."""
    return (files("fullcert.report") / "templates" / name).read_text("utf-8")


@cache
def environment() -> Environment:
    """The template. What comes from the evaluation is escaped wherever it stands."""
    pages = Environment(
        loader=PackageLoader("fullcert.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters.update(count=count, number=number, percent=unbroken, drawing=Markup, flags=flags)
    pages.filters["sentence"] = lambda words: words[:1].upper() + words[1:]
    return pages


def unbroken(fraction: float | None) -> str:
    """A share in words: no line ends between the number and its sign."""
    return percent(fraction).replace(" ", "\u00a0")


def flags(words: str) -> Markup:
    """A sentence in which no line ends within a flag, or between it and its value."""
    parts = re.split(r"(--[a-z][a-z-]*(?: [\w.:=]+\b)?)", words)
    kept = [Markup('<span class="flag">{}</span>').format(part) if part[:2] == "--" else part for part in parts]
    return Markup("").join(kept)


# --- charts -------------------------------------------------------------------------------------------------------


def series(entries: Iterable[dict[str, Any]], across: str, down: str) -> list[tuple[float, float]]:
    """The points of a line; entries without a value are left out."""
    return [(entry[across], entry[down]) for entry in entries if entry.get(down) is not None]


def training_charts(evaluation: dict[str, Any]) -> list[Chart]:
    """Accuracy, width and loss over the steps, and width by layer."""
    steps = evaluation["steps"]
    accuracy = accuracy_chart(
        "Accuracy over the steps",
        "step",
        whole=True,
        caption=measured_on(evaluation),
        certified=series(steps, "step", "certified_accuracy"),
        nominal=series(steps, "step", "nominal_accuracy"),
    )
    widths = line_chart(
        "Mean width of the parameters",
        "step",
        [Line("mean width", "single", series(steps, "step", "width"))],
        show=width,
        whole=True,
        caption="How far, at most, the training data could have moved a parameter, on average.",
    )
    losses = line_chart(
        "Loss",
        "step",
        [Line("loss", "single", series(steps, "step", "loss"))],
        whole=True,
        caption="At the center of the set of all models.",
    )
    return [chart for chart in (accuracy, widths, losses, layer_chart(evaluation["layers"])) if chart.rows]


def measured_on(evaluation: dict[str, Any]) -> str:
    """On which samples the accuracies over the steps were measured: not those of the headline."""
    given = evaluation.get("measured")
    if not given:
        return "Measured on some samples while it trained: the headline is of the whole test set, and differs."
    samples, split = count(given["samples"]), given["split"]
    return f"Measured on {samples} {split} samples while it trained: the headline is of all test samples, and differs."


def accuracy_chart(
    title: str,
    across: str,
    caption: str = "",
    whole: bool = False,
    between: dict[str, str] | None = None,
    **lines: list[tuple[float, float]],
) -> Chart:
    """Shares of the test samples, as lines in percent, over numbers or over ``whole`` ones."""
    names = {
        "certified": "certified accuracy",
        "nominal": "nominal accuracy",
        "robustness": "certified robustness",
        "attacked": "accuracy under attack",
    }
    kinds = {"robustness": "nominal"}
    return line_chart(
        title,
        across,
        [
            Line(names[name], kinds.get(name, name), points, (between or {}).get(name, "straight"))
            for name, points in lines.items()
        ],
        show=percent,
        caption=caption,
        whole=whole,
        within=(0.0, 1.0),
        label=lambda share: f"{number(100 * share)} %",
    )


def radius_chart(evaluation: dict[str, Any]) -> Chart | None:
    """What stays certified when test inputs move further."""
    radii = evaluation["radii"]
    if not radii:
        return None
    if evaluation["task"] == "regression":
        lines = [Line("mean width", "single", series(radii, "epsilon", "mean_width"), "next")]
        return line_chart("Mean width of the predictions", "test radius", lines, show=width)
    return accuracy_chart(
        "Certified accuracy against the test radius",
        "test radius",
        between=KNOWN,
        certified=series(radii, "epsilon", "certified_accuracy"),
        robustness=series(radii, "epsilon", "certified_robustness"),
    )


def withstood_chart(curve: dict[str, Any] | None) -> Chart | None:
    """Certified accuracy against how many samples were changed, or how far: what the predictions withstand."""
    if curve is None or not curve["points"]:
        return None
    across, points = UNITS[curve["unit"]], curve["points"]
    nominal = float(curve["nominal_accuracy"])
    lines = {
        "certified": series(points, "value", "certified_accuracy"),
        "nominal": [(points[0]["value"], nominal), (points[-1]["value"], nominal)],
        "attacked": series(points, "value", "attacked_accuracy"),
    }
    caption = f"On {count(curve['samples'])} test samples, each with the best of the runs that were asked."
    counted = curve["unit"] == "k"
    if counted:
        lines |= {"certified": stepped(lines["certified"]), "attacked": held(lines["attacked"])}
    title = "Certified accuracy against the size of the threat"
    return accuracy_chart(title, across, caption, counted, None if counted else KNOWN, **lines)


# Between two sizes of a threat what is certain at the larger one is; what an attack broke stays broken.
KNOWN = {"certified": "next", "robustness": "next", "attacked": "last"}
UNITS = {"k": "changed training samples", "epsilon": "training radius", "share": "share of the training radii"}


def stepped(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points between whole numbers of samples: between two, the accuracy is that of the next larger one."""
    made: list[tuple[float, float]] = []
    for value, accuracy in points:
        if made and value > made[-1][0] + 1:
            made.append((made[-1][0] + 1, accuracy))
        made.append((value, accuracy))
    return made


def held(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points between attacks: what one broke stays broken, and nothing more is known until the next."""
    made: list[tuple[float, float]] = []
    for value, accuracy in points:
        if made and value - 1 > made[-1][0]:
            made.append((value - 1, made[-1][1]))
        made.append((value, accuracy))
    return made


def layer_chart(layers: list[dict[str, Any]]) -> Chart:
    """The width of the parameters, layer by layer."""
    widest = sorted(layers, key=lambda layer: layer["mean_width"] or 0.0, reverse=True)[:BARS]
    drawn = [layer for layer in layers if layer in widest]
    header = ("parameters", "shape", "mean width", "largest width", "typical size")
    rows = [
        Row(
            (
                layer["name"],
                shape(layer),
                width(layer["mean_width"]),
                width(layer["largest_width"]),
                number(layer["typical_size"], 3),
            )
        )
        for layer in layers
    ]
    bars = [
        Bar(f"{layer['name']}  {shape(layer)}", layer["mean_width"], layer["largest_width"], relative(layer))
        for layer in drawn
    ]
    chart = bar_chart("Width of the parameters by layer", "width", bars, header, rows)
    left_out = len(layers) - len(drawn)
    note = f" The {count(left_out)} narrowest are in the table only." if left_out else ""
    words = "Bar: mean; line: up to the largest; in brackets: mean over typical size."
    return Chart(chart.title, chart.svg, chart.header, chart.rows, caption=words + note)


def shape(layer: dict[str, Any]) -> str:
    return "×".join(map(str, layer["shape"])) or "1"


def relative(layer: dict[str, Any]) -> str:
    """The mean width of a layer, alone and as a share of its typical size."""
    mean, size = layer["mean_width"], layer["typical_size"]
    if mean is None:
        return "no bounds"
    return f"{width(mean)} ({width(100 * mean / size)} %)" if size else width(mean)


def picture(evaluation: dict[str, Any]) -> regions.Picture | None:
    """The certified regions of the plane, if the data have two features."""
    if evaluation["plane"] is None:
        return None
    shares = {
        entry["epsilon"]: f"; certified accuracy on the test samples {percent(entry['certified_accuracy'])}"
        for entry in evaluation["radii"]
        if entry.get("certified_accuracy") is not None
    }
    return regions.picture(evaluation["plane"], evaluation["classes"], shares)


# --- samples ------------------------------------------------------------------------------------------------------


def samples(evaluation: dict[str, Any]) -> dict[str, Any]:
    """The table of samples, column by column, which is far shorter than row by row. Bounds are rounded outwards."""
    rows = evaluation["samples"]
    lower, upper = ([row[side] or [] for row in rows] for side in ("lower", "upper"))
    columns = {
        "task": evaluation["task"],
        "classes": evaluation["classes"],
        "row": [row["row"] for row in rows],
        **{name: [row.get(name) for row in rows] for name in SOMETIMES if any(name in row for row in rows)},
        "certified": [int(row["certified"]) for row in rows],
        "margin": [compact(row.get("margin"), below) for row in rows],
        "lower": [[compact(value, below) for value in values] for values in lower],
        "upper": [[compact(value, above) for value in values] for values in upper],
        "width": [compact(widest(*pair), above) for pair in zip(lower, upper, strict=True)],
    }
    answers = {name: [row[name] for row in rows] for name in ("true", "label")}
    if evaluation["task"] == "regression":
        return columns | {name: [compact(value, nearest) for value in values] for name, values in answers.items()}
    return columns | numbered(evaluation["classes"], answers)


def numbered(classes: list[str], answers: dict[str, list[str | None]]) -> dict[str, Any]:
    """Classes as numbers, and the names they stand for: those of the task first, then others that occur."""
    others = sorted({name for names in answers.values() for name in names if name is not None} - set(classes))
    place = {name: index for index, name in enumerate([*classes, *others])}
    columns = {key: [None if name is None else place[name] for name in names] for key, names in answers.items()}
    return {"names": list(place), **columns}


def widest(lower: list[float | None], upper: list[float | None]) -> float | None:
    """The width of the widest output, if all are bounded."""
    if not lower or None in lower or None in upper:
        return None
    largest = max(high - low for low, high in zip(lower, upper, strict=True))  # type: ignore[operator]
    return largest if isfinite(largest) else None


def compact(value: float | None, rounded: Callable[[float, int], float]) -> float | int | None:
    """The value with three digits; whole numbers without a point."""
    if value is None:
        return None
    short = rounded(value, 3)
    return int(short) if abs(short) < 1e15 and short == int(short) else short


def data_block(values: dict[str, Any]) -> Markup:
    """Data for a script element: no name in it can end the element, or begin a line in the middle of a text."""
    text = json.dumps(values, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)
