"""Figures from rows alone, so that rows made on one machine are drawn on another. The suffix says SVG, PDF or PNG."""

import io
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fullcert.experiment import runs
from fullcert.reproduce.experiments import load
from fullcert.reproduce.writing import Row, by_experiment, told
from fullcert.system.mistakes import Mistake

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".pdf", ".png")
# Colours of Okabe and Ito, told apart by colour-blind readers.
COLOURS = {"paper": "#333333", "interval": "#C05A00", "zonotope": "#0072B2", "-": "#009E73"}
FILLS = {"paper": 0.45, "best": 1.0}


FEW = 6  # labels of bars that stand beside each other; more of them are turned


def check(path: Path) -> None:
    """Refuse a figure that could not be written, before the work starts."""
    import matplotlib  # noqa: F401

    if path.suffix not in SUFFIXES:
        raise Mistake(f"--figure is a file that ends with {', '.join(SUFFIXES)}, not {path.name}")
    runs.check_writable(path)


def draw(rows: list[Row], path: Path) -> None:
    """The figure of every experiment in the rows; of several, each in a file with its name before the suffix."""
    groups = by_experiment(rows)
    for id, group in groups.items():
        target = path if len(groups) == 1 else path.with_name(f"{path.stem}-{id}{path.suffix}")
        runs.write(target, drawn(id, group, path.suffix[1:]))


def drawn(id: str, rows: list[Row], form: str) -> bytes:
    """One figure as a file."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    one = load()[id]
    # without a date and with a fixed salt, the same rows give the same bytes
    with matplotlib.rc_context({"svg.hashsalt": id, "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(6.4, 3.8), layout="constrained")
        FigureCanvasAgg(figure)
        (one.draw or chart)(rows, figure)
        buffer = io.BytesIO()
        metadata: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form, {})
        figure.savefig(buffer, format=form, metadata=metadata)
    return buffer.getvalue()


def _differing(settings: list[dict[str, Any]], axes: Any) -> list[str]:
    """What tells settings apart, each once; a single name stands below the axis instead."""
    names = [name for name in dict.fromkeys(name for one in settings for name in one)]
    names = [name for name in names if len({str(one.get(name)) for one in settings}) > 1]
    told_apart = [{name: one[name] for name in names if name in one} for one in settings]
    if len(names) == 1:
        axes.set_xlabel(names[0])
        return list(dict.fromkeys(told(one).removeprefix(names[0]).strip() for one in told_apart))
    return list(dict.fromkeys(told(one) for one in told_apart))


def chart(rows: list[Row], figure: "Figure") -> None:
    """Bars side by side: what was printed, and each domain and recipe, for every setting."""
    axes = figure.add_subplot()
    one = load()[rows[0]["id"]]
    settings = list(dict.fromkeys(told(row["setting"]) for row in rows))
    series = list(dict.fromkeys((row["domain"], row["recipe"]) for row in rows))
    width = 0.8 / (len(series) + 1)
    printed = {told(row["setting"]): row["paper"] for row in rows if row["paper"] is not None}
    places = [settings.index(setting) - 0.4 + width / 2 for setting in printed]
    axes.bar(places, list(printed.values()), 0.9 * width, color=COLOURS["paper"], label="printed")
    for number, (domain, recipe) in enumerate(series, 1):
        group = [row for row in rows if (row["domain"], row["recipe"]) == (domain, recipe)]
        axes.bar(
            [settings.index(told(row["setting"])) - 0.4 + (number + 0.5) * width for row in group],
            [row["mean"] for row in group],
            0.9 * width,
            yerr=[row["std"] for row in group] if any(row["seeds"] > 1 for row in group) else None,
            color=COLOURS.get(domain, COLOURS["-"]),
            alpha=FILLS.get(recipe, 0.7),
            label=f"{domain}, {recipe} recipe",
        )
    labels = _differing([row["setting"] for row in rows], axes)
    if len(labels) <= FEW:
        labels = [textwrap.fill(label, 60 // len(labels)) for label in labels]
    else:
        axes.tick_params(axis="x", rotation=90)
        wide, high = figure.get_size_inches()
        figure.set_size_inches(wide, high + 0.075 * max(map(len, labels)))
    axes.set_xticks(range(len(labels)), labels)
    axes.set(ylabel=textwrap.fill(one.value, 40))
    axes.set_title(textwrap.fill(one.title, 75), loc="left", fontsize=10)
    figure.legend(loc="outside lower center", ncols=min(3, len(series) + 1), frameon=False)
