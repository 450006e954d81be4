"""`fullcert report`: the page of a run, made again from its numbers."""

from pathlib import Path
from typing import Annotated

import typer

from fullcert import runs
from fullcert.commands import results
from fullcert.commands.pages import page_of


def report(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    out: Annotated[
        Path | None, typer.Option(help="Where to write the page.", show_default="report.html in RUN")
    ] = None,
    json: results.Json = None,
    quiet: results.Quiet = False,
) -> None:
    """Write the report of a run: one HTML file that needs nothing else."""
    evaluation = runs.read_json(runs.existing(run, runs.EVALUATION))
    target = out or run / runs.REPORT
    results.check(json)
    runs.check_writable(target)
    page = page_of(run)
    runs.write(target, page.encode())
    results.give(json, {"report": str(target), **dict(evaluation["headline"])})
    if not quiet and json != "-":
        print(f"report: {target}")
