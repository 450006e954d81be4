"""`fullcert report`: the page of a run, made again from its numbers."""

from pathlib import Path
from typing import Annotated

import typer

from fullcert import runs
from fullcert.commands import results
from fullcert.mistakes import Mistake
from fullcert.unpacking import DAMAGE


def report(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    out: Annotated[
        Path | None, typer.Option(help="Where to write the page.", show_default="report.html in RUN")
    ] = None,
    json: results.Json = None,
    quiet: results.Quiet = False,
) -> None:
    """Write the report of a run: one HTML file that needs nothing else."""
    from jinja2 import TemplateError

    from fullcert.report import render

    broken: tuple[type[Exception], ...] = (*DAMAGE, TemplateError)
    evaluation = runs.read_json(runs.existing(run, runs.EVALUATION))
    curve = runs.read_json(run / runs.CURVE) if (run / runs.CURVE).is_file() else None
    target = out or run / runs.REPORT
    results.check(json)
    runs.check_writable(target)
    try:
        page, headline = render(evaluation, curve), dict(evaluation["headline"])
    except broken as error:
        why = " ".join(str(error).split())
        files = f"{run / runs.EVALUATION}{f' or {runs.CURVE}' if curve is not None else ''}"
        raise Mistake(f"{files} is damaged or of another version: {why}") from None
    runs.write(target, page.encode())
    results.give(json, {"report": str(target), **headline})
    if not quiet and json != "-":
        print(f"report: {target}")
