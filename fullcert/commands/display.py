"""What is shown on the terminal: a bar while a run trains, a table when it is done, and a table of answers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import ROUND_CEILING, ROUND_FLOOR
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import boundflow as bf
from fullcert import runs
from fullcert.numerals import above, below, number, percent, width
from fullcert.stepping import StepLog

SHOWN = 20  # answers
ADVICE = "a smaller threat, fewer epochs, a smaller learning rate, a smooth activation or the zonotope"


@contextmanager
def following(log: StepLog, hidden: bool) -> Iterator[Callable[[bf.Step], None]]:
    """A bar on standard error: the steps, the loss at the center of the set, the mean width, and how good it is."""
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[told]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), disable=hidden) as bar:
        task = bar.add_task("", total=None, told="")

        @bf.only_looks
        def update(step: bf.Step) -> None:
            told = f"loss {step.loss:.4f}, width {step.width:.1e}"
            if log.latest:
                told += f", certified {share(log.latest['certified_accuracy'])}"  # more would not fit in 80 columns
            bar.update(task, completed=step.number, total=step.total, told=told)

        yield update


@contextmanager
def working(doing: str, hidden: bool) -> Iterator[Callable[[str], None]]:
    """A line on standard error that says what is being done, and for how long."""
    columns, console = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()), Console(stderr=True)
    with Progress(*columns, console=console, disable=hidden or not console.is_terminal, transient=True) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda now: bar.update(task, description=now)


def show(metrics: dict[str, Any], out: Path | None, console: Console) -> None:
    """The table of results, and where the report is."""
    table = Table(title=escape(f"{metrics['dataset']}, {metrics['domain']}"), title_justify="left")
    table.add_column("on the test set")
    table.add_column("", justify="right")
    for key in ("nominal_accuracy", "certified_accuracy", "certified_robustness"):
        if key in metrics:
            table.add_row(key.replace("_", " "), share(metrics[key]))
    if "majority_accuracy" in metrics:
        table.add_row("always the most frequent class", share(metrics["majority_accuracy"], ROUND_CEILING))
    for key in ("mean_absolute_error", "certified_mean_absolute_error", "mean_width"):
        if key in metrics:
            table.add_row(key.replace("_", " "), "none" if metrics[key] is None else width(metrics[key]))
    if "median_mean_absolute_error" in metrics:
        table.add_row("error of always the median", number(below(metrics["median_mean_absolute_error"], 3), 3))
    table.add_section()
    table.add_row("steps", str(metrics["steps"]))
    table.add_row("seconds", f"{metrics['seconds']:.1f}")
    console.print(table)
    if "claim" in metrics:
        console.print(metrics["claim"], highlight=False, markup=False)
    little = metrics.get("certified_accuracy", 1.0) < metrics.get("majority_accuracy", 0.0)
    if "void_at_step" in metrics or little:
        console.print(f"What may help: {ADVICE}.", highlight=False)
    if out:
        for name, file in (("decision barriers", runs.PICTURE), ("report", runs.REPORT)):
            if (out / file).exists():
                console.print(f"{name}: {out / file}", soft_wrap=True, highlight=False, markup=False)


def show_answers(rows: dict[str, list[Any]], told: dict[str, Any], out: Path | None, console: Console) -> None:
    """The first rows as a table, and the sum of it. The bounds of several outputs would not fit."""
    if out is None:
        several = "lower_1" in rows
        names = [name for name in rows if not (several and name.startswith(("lower_", "upper_")))]
        table = Table(*names)
        for row in range(min(SHOWN, len(rows["row"]))):
            table.add_row(*(escape(_cell(name, rows[name][row])) for name in names))
        console.print(table)
        left = len(rows["row"]) - SHOWN
        missing = [f"{left} more rows"] * (left > 0) + ["the bounds of every output"] * several
        if missing:
            console.print(f"... and {' and '.join(missing)}: use --out FILE for all of them")
    console.print(told["claim"], highlight=False, markup=False)
    if not told["threat"]["test"]:
        console.print("The rows themselves are taken as they are.", highlight=False)
    for name, count in told["unknown_categories"].items():
        rows_have = "1 row has" if count == 1 else f"{count} rows have"
        note = f"Note: {rows_have} a category in {name} that training did not have; it counts as none of them."
        console.print(note, highlight=False, markup=False)
    if out is not None:
        console.print(f"answers: {out}", soft_wrap=True, highlight=False, markup=False)


def _cell(name: str, value: Any) -> str:
    """What is rounded keeps the claim true."""
    if isinstance(value, bool):
        return "certified" if value else "abstained"
    if not isinstance(value, float):
        return "" if value is None else str(value)
    if name.startswith("lower") or name == "margin":
        return f"{below(value):.4g}"
    return f"{above(value) if name.startswith(('upper', 'width')) else value:.4g}"


def share(fraction: float, rounding: str = ROUND_FLOOR) -> str:
    """In per cent, rounded down unless others are held against it."""
    return percent(fraction, rounding).replace(" ", "")
