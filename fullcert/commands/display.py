"""What a run shows on the terminal: a bar while it trains, a table when it is done."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import boundflow as bf


@contextmanager
def progress_bar(hidden: bool) -> Iterator[Callable[[bf.Step], None]]:
    """A bar on standard error: the steps, the loss at the center of the set and the mean width of the parameters."""
    numbers = TextColumn("loss {task.fields[loss]:.4f}, width {task.fields[width]:.2e}")
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), numbers)
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), disable=hidden) as bar:
        task = bar.add_task("", total=None, loss=0.0, width=0.0)
        yield lambda step: bar.update(task, completed=step.number, total=step.total, loss=step.loss, width=step.width)


def show(metrics: dict[str, Any], picture: Path | None, console: Console) -> None:
    """The table of results, and where the picture is."""
    table = Table(title=f"{metrics['dataset']}, {metrics['domain']}", title_justify="left")
    table.add_column("on the test set")
    table.add_column("", justify="right")
    for key in ("nominal_accuracy", "certified_accuracy", "certified_robustness"):
        table.add_row(key.replace("_", " "), f"{metrics[key]:.1%}")
    table.add_section()
    table.add_row("epsilon in training", f"{metrics['epsilon']:g}")
    table.add_row("epsilon at test", f"{metrics['test_epsilon']:g}")
    table.add_row("steps", str(metrics["steps"]))
    table.add_row("seconds", f"{metrics['seconds']:.1f}")
    console.print(table)
    if "void_at_step" in metrics:
        console.print(
            f"The bounds became void at step {metrics['void_at_step']}, so nothing is certified: "
            "try fewer epochs, a smaller learning rate, a smooth activation or the zonotope."
        )
    if picture:
        console.print(f"decision barriers: {picture}", soft_wrap=True, highlight=False)
