"""The table of a sweep: means and standard deviations over the seeds, as JSON, CSV, LaTeX and a plot, and its curve."""

import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fullcert.data import tables
from fullcert.experiment import runs
from fullcert.experiment.options import flag_of
from fullcert.results import withstood_answers
from fullcert.sweeps.attacked_curves import broken_by_value
from fullcert.sweeps.swept_runs import COUNTS, MEASURED, Axis, Run
from fullcert.system.mistakes import Mistake

Row = dict[str, Any]


def rows(plan: Sequence[Run]) -> list[Row]:
    """One row for every recipe and point, in the order of the plan."""
    groups: dict[Any, list[Run]] = {}
    for run in plan:
        groups.setdefault(run.kind, []).append(run)
    return [_row(group) for group in groups.values()]


def _row(group: list[Run]) -> Row:
    found = [run.metrics or {} for run in group]
    row: Row = {"recipe": group[0].recipe, "setting": dict(group[0].point), "seeds": len(group)}
    for name in MEASURED:
        values = [float(metrics[name]) for metrics in found if metrics.get(name) is not None]
        if values:
            mean = sum(values) / len(values)
            squares = sum((value - mean) ** 2 for value in values)
            row |= {name: mean, f"{name}_std": math.sqrt(squares / max(1, len(values) - 1))}
    return row | {"folders": [str(run.path) for run in group]}


def heads(table: list[Row]) -> list[str]:
    names = list(dict.fromkeys(name for row in table for name in row["setting"]))
    measured = [name for name in MEASURED if any(name in row for row in table)]
    return ["recipe", *names, "seeds", *(part for name in measured for part in (name, f"{name}_std"))]


def as_csv(table: list[Row]) -> bytes:
    flat = [{**row, **row["setting"]} for row in table]
    return tables.as_csv({name: [row.get(name) for row in flat] for name in heads(table)})


def as_latex(table: list[Row]) -> str:
    """A tabular with the certified and the nominal accuracy in per cent, as mean and deviation."""
    names = list(dict.fromkeys(name for row in table for name in row["setting"]))
    titles = ["recipe", *(name.replace("_", " ") for name in names), "certified", "nominal", "seeds"]
    lines = [
        f"\\begin{{tabular}}{{l{'r' * (len(titles) - 1)}}}",
        "\\toprule",
        " & ".join(titles) + " \\\\",
        "\\midrule",
    ]
    for row in table:
        recipe = str(row["recipe"]).replace("_", "\\_")
        cells = [recipe, *(str(row["setting"].get(name, "")).replace("_", "\\_") for name in names)]
        cells += [share(row, "certified_accuracy"), share(row, "nominal_accuracy"), str(row["seeds"])]
        lines.append(" & ".join(cells) + " \\\\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


def share(row: Row, name: str) -> str:
    if name not in row:
        return "-"
    spread = f" \\pm {100 * row[f'{name}_std']:.1f}" if row["seeds"] > 1 else ""
    return f"${100 * row[name]:.1f}{spread}$"


# --- the combined curve -------------------------------------------------------------------------------------------


def varied(axes: Sequence[Axis]) -> Axis | None:
    """The one axis over which a curve goes: a number of samples, or epsilon; None where there is none, or several."""
    found = [axis for axis in axes if axis.name in (*COUNTS, "epsilon")]
    return found[0] if len(found) == 1 else None


def curves(plan: Sequence[Run], axes: Sequence[Axis]) -> list[dict[str, Any]]:
    """For every recipe and every other setting the curve over k or epsilon, with the mean over the seeds.

    Each prediction counts with the best of all runs. Where runs cannot be combined, the curve says why.
    """
    axis = varied(axes)
    if axis is None:
        return []
    groups: dict[Any, dict[int, list[Run]]] = {}
    for run in plan:
        others = tuple(pair for pair in run.point if pair[0] != axis.name)
        groups.setdefault((run.recipe, others), {}).setdefault(run.options.seed, []).append(run)
    return [
        {"recipe": recipe, "setting": dict(others), "option": axis.name, **_curve(list(seeds.values()), axis)}
        for (recipe, others), seeds in groups.items()
    ]


def _curve(by_seed: list[list[Run]], axis: Axis) -> dict[str, Any]:
    over = "epsilon" if axis.name == "epsilon" else "k"
    try:
        found = [withstood_answers.of_runs([run.path for run in group], over) for group in by_seed]
    except Mistake as mistake:
        return {"why_not": str(mistake)}
    broken = [broken_by_value({dict(run.point)[axis.name]: run.path for run in group}) for group in by_seed]
    values = sorted({value for stands, _ in found for value in withstood_answers.values_of(stands)}.union(*broken))
    pairs = zip(found, broken, strict=True)
    each = [withstood_answers.curve(withstood, y, values, labels) for (withstood, y), labels in pairs]
    points = [averaged([curve["points"][place] for curve in each]) for place in range(len(values))]
    return {
        "unit": each[0]["unit"],
        "seeds": len(each),
        "samples": each[0]["samples"],
        "nominal_accuracy": sum(curve["nominal_accuracy"] for curve in each) / len(each),
        "withstands": withstood_answers.summary(found[0][0]),
        "largest_run": str(max(by_seed[0], key=lambda run: dict(run.point)[axis.name]).path),
        "points": points,
    }


def averaged(points: list[dict[str, float]]) -> dict[str, float]:
    """One value of the curve: means over the seeds, and the deviation of the certified accuracy."""
    shared = [name for name in points[0] if all(name in point for point in points)]  # not all seeds may be attacked
    mean = {name: points[0][name] if name == "value" else sum(p[name] for p in points) / len(points) for name in shared}
    squares = sum((point["certified_accuracy"] - mean["certified_accuracy"]) ** 2 for point in points)
    return mean | {"certified_accuracy_std": math.sqrt(squares / max(1, len(points) - 1))}


# --- files ----------------------------------------------------------------------------------------------------------


def write(out: Path, plan: Sequence[Run], axes: Sequence[Axis]) -> dict[str, Any]:
    """All files of a finished sweep; the largest run of each curve keeps it, for its report."""
    table, found = rows(plan), curves(plan, axes)
    result = {"rows": table, "curves": found}
    runs.write(out / "table.json", (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
    runs.write(out / "table.csv", as_csv(table))
    runs.write(out / "table.tex", as_latex(table).encode())
    for curve in found:
        if "points" in curve:
            in_report(curve)
    if found and "points" in found[0]:
        runs.write(out / runs.CURVE, runs.as_json(found[0]).encode())
    runs.write(out / "plot.svg", drawn(table, found, axes))
    return result


def in_report(curve: dict[str, Any]) -> None:
    """Keep a curve with the run of its largest value, and draw it in the report of that run."""
    from fullcert.report import page_of

    folder = Path(curve["largest_run"])
    withstood_answers.write_curve(folder, curve)
    runs.write(folder / runs.REPORT, page_of(folder).encode())


def drawn(table: list[Row], found: list[dict[str, Any]], axes: Sequence[Axis]) -> bytes:
    """Certified accuracy of every run with its deviation, over the first axis, and the combined curves."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    name = (varied(axes) or (axes[0] if axes else Axis("seed", ()))).name
    with matplotlib.rc_context({"svg.hashsalt": "sweep", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(6.4, 3.8), layout="constrained")
        FigureCanvasAgg(figure)
        plot = figure.add_subplot()
        for label, points in series(table, name).items():
            across, mean, std = zip(*points, strict=True)
            plot.errorbar(across, mean, yerr=std, fmt="o", capsize=2, label=f"{label or 'runs'}, each alone")
        for curve in found:
            if "points" in curve:
                over = [point["value"] for point in curve["points"]]
                shares = [100 * point["certified_accuracy"] for point in curve["points"]]
                plot.plot(over, shares, drawstyle="steps-pre", label=labelled(curve))
                if all("attacked_accuracy" in point for point in curve["points"]):
                    left = [100 * point["attacked_accuracy"] for point in curve["points"]]
                    plot.plot(over, left, "--", drawstyle="steps-post", label=f"{labelled(curve)}, under attack")
        plot.set(xlabel=flag_of(name), ylabel="certified accuracy (%)")
        if plot.get_legend_handles_labels()[1]:
            plot.legend(frameon=False)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def labelled(curve: dict[str, Any]) -> str:
    told = [curve["recipe"], *(f"{name} {value}" for name, value in curve["setting"].items())]
    return ", ".join([*(part for part in told if part), "combined"])


def series(table: list[Row], name: str) -> dict[str, list[tuple[Any, float, float]]]:
    """Points by what is not on the axis."""
    found: dict[str, list[tuple[Any, float, float]]] = {}
    for row in table:
        if "certified_accuracy" in row:
            others = [row["recipe"], *(f"{key} {value}" for key, value in row["setting"].items() if key != name)]
            label = ", ".join(part for part in others if part)
            point = (row["setting"].get(name, 0), 100 * row["certified_accuracy"], 100 * row["certified_accuracy_std"])
            found.setdefault(label, []).append(point)
    return found
