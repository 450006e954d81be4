"""What is shown on the terminal: a bar while a run trains, a table when it is done, and a table of answers."""

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import boundflow as bf
from fullcert.experiment import runs
from fullcert.results.step_log import StepLog
from fullcert.system import jobs
from fullcert.system.numbers_as_text import above, below, number, percent, width

SHOWN = 20  # answers


class Following(NamedTuple):
    """A bar that follows a run: what its steps are given to, and a line above it."""

    update: Callable[[bf.Step], None]
    tell: Callable[[str], None]


@contextmanager
def following(log: StepLog, hidden: bool, forecast: str = "", order: int = 0) -> Iterator[Following]:
    """A bar on standard error: the steps, the loss at the center of the set, the mean width, and how good it is.

    Until the first step is made it says what was forecast, and then how much time is left at the pace of this run; with
    an order, where steps take as long as they have rows.
    """
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[told]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), disable=hidden) as bar:
        task = bar.add_task("", total=None, told=forecast)
        began, first = time.monotonic(), len(log.steps)

        @bf.only_looks
        def update(step: bf.Step) -> None:
            told = f"loss {step.loss:.3f}, width {step.width:.0e}"
            if log.latest:
                told += f", certified {share(log.latest['certified_accuracy'])}"  # more would not fit in 80 columns
            left = (time.monotonic() - began) * still_to_do(first, step.number, step.total, order)
            told += f", {timedelta(seconds=round(left))} left" if step.number < step.total else ""
            bar.update(task, completed=step.number, total=step.total, told=told)

        def tell(sentence: str) -> None:
            if not hidden:
                bar.console.print(sentence, highlight=False, markup=False)

        yield Following(update, tell)


def still_to_do(first: int, done: int, total: int, order: int) -> float:
    """What is left of a run that began after its ``first`` steps, as a multiple of what it has done.

    Each step adds as many rows of errors as there are scalars, up to ``order`` for each, and takes as long as it has.
    """
    rows = [1 + min(order, step) for step in range(total)]
    return sum(rows[done:]) / max(1, sum(rows[first:done]))


@contextmanager
def counting(hidden: bool, doing: str = "") -> Iterator[Callable[[jobs.Progress], None]]:
    """A bar on standard error: how many pieces of work are done, how long the rest takes, and what is run now.

    With a word for what it is ``doing`` it is gone when that is done: the result follows.
    """
    columns = (BarColumn(20), MofNCompleteColumn(), TextColumn("{task.fields[left]}"), TextColumn("{task.fields[now]}"))
    named, console = (TextColumn("{task.description}"), *columns) if doing else columns, Console(stderr=True)
    hidden = hidden or (bool(doing) and not console.is_terminal)  # a log has no use for what is gone again
    with Progress(*named, console=console, disable=hidden, transient=bool(doing)) as bar:
        task = bar.add_task(doing, total=None, left="", now="")

        def tell(progress: jobs.Progress) -> None:
            left = jobs.time_left(progress.seconds_left)
            bar.update(task, completed=progress.done, total=progress.total, left=left, now=escape(progress.now))

        yield tell


@contextmanager
def working(doing: str, hidden: bool) -> Iterator[Callable[[str], None]]:
    """A line on standard error that says what is being done, and for how long."""
    columns, console = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()), Console(stderr=True)
    with Progress(*columns, console=console, disable=hidden or not console.is_terminal, transient=True) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda now: bar.update(task, description=now)


def show(metrics: dict[str, Any], out: Path | None, console: Console) -> None:
    """The table of results, and where the report is."""
    how = "at the optimum" if metrics.get("fit") == "optimum" else metrics["domain"]
    table = Table(title=escape(f"{metrics['dataset']}, {how}"), title_justify="left")
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
    if "members" in metrics:
        table.add_section()
        table.add_row("members", str(metrics["members"]))
        table.add_row("changed samples that half of the votes withstand", str(metrics["median_withstood"]))
        table.add_row("by counting members alone", str(metrics["median_withstood_by_members"]))
    table.add_section()
    if metrics.get("fit") == "optimum":
        table.add_row("fit", "to the optimum")
    else:
        table.add_row("steps", str(metrics["steps"]))
    table.add_row("seconds", f"{metrics['seconds']:.1f}")
    console.print(table)
    if "claim" in metrics:
        console.print(metrics["claim"], highlight=False, markup=False)
    if metrics.get("advice"):
        console.print("What this run shows, and what to type:", highlight=False)
    for sentence in metrics.get("advice", []):
        console.print(f"- {sentence}", soft_wrap=True, highlight=False, markup=False)  # a command is copied whole
    if out:
        for name, file in WRITTEN:
            if (out / file).exists():
                console.print(f"{name}: {out / file}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"next: {next_command(metrics, out)}", soft_wrap=True, highlight=False, markup=False)


WRITTEN = (
    *(("decision barriers", runs.PICTURE), ("certificate", runs.CERTIFICATE), ("options", runs.OPTIONS)),
    ("report", runs.REPORT),
)


def next_command(metrics: dict[str, Any], out: Path | None) -> str:
    """What to type after a run: with a folder, answers for new rows; without one, the same run with a folder."""
    if out is None:
        return "the same command with --out runs/NAME keeps the certificate and writes a report"
    rows = "NEW.npz" if metrics["dataset"].startswith(("mnist", "fashion", "cifar", "pneumonia")) else "NEW.csv"
    return f"fullcert certify {shlex.quote(str(out))} {rows} --out answers.csv"


def show_answers(rows: dict[str, list[Any]], told: dict[str, Any], out: Path | None, console: Console) -> None:
    """The first rows as a table, and the sum of it. Probabilities, and the bounds of several outputs, would not fit."""
    if out is None:
        several = "lower_1" in rows
        hidden = ("probability_", "unseen", *(("lower_", "upper_") if several else ()))
        names = [name for name in rows if not name.startswith(hidden)]
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
        note += "" if out is None else " The column unseen marks it."
        console.print(note, highlight=False, markup=False)
    if out is not None:
        console.print(f"answers: {out}", soft_wrap=True, highlight=False, markup=False)


def show_curve(curve: dict[str, Any], console: Console) -> None:
    """Certified accuracy against k or epsilon: at most some points, the first and the last among them."""
    points = curve["points"]
    stride = max(1, -(-len(points) // SHOWN))
    chosen = [point for number, point in enumerate(points) if number % stride == 0 or number == len(points) - 1]
    table = Table(curve["unit"], "certified accuracy", "certified robustness")
    for point in chosen:
        accuracies = (share(point[name]) for name in ("certified_accuracy", "certified_robustness"))
        table.add_row(f"{point['value']:g}", *accuracies)
    console.print(table)
    console.print(f"nominal accuracy {share(curve['nominal_accuracy'])}", highlight=False)


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
