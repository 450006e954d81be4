"""`fullcert certify`: what a certificate says of new rows."""

from pathlib import Path
from typing import Annotated

import typer

from fullcert import runs
from fullcert.commands import results


def certify(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    data: Annotated[Path, typer.Argument(help="Rows like those of training: CSV, Parquet or NPZ.")],
    out: Annotated[
        Path | None, typer.Option(help="File for the answers: .csv, .parquet or .json.", show_default="a table here")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Every feature may have moved by this much.", show_default="as in the run")
    ] = None,
    tolerance: Annotated[
        list[str] | None,
        typer.Option(help="COLUMN=AMOUNT, or none.", metavar="COLUMN=...", show_default="as in the run"),
    ] = None,
    cuts: Annotated[
        int, typer.Option(min=0, max=16, help="Cut the box of an undecided row in halves, up to so many times over.")
    ] = 0,
    json: results.Json = None,
    quiet: results.Quiet = False,
) -> None:
    """Certify rows with a finished run: label, certified or abstained, bounds and margin of each.

    If the run names a network of its own (model in options.toml), that file is run: read it first if it is not yours.
    """
    from rich.console import Console

    from fullcert import tables

    results.check(json)
    if out is not None:
        runs.check_writable(out)
        if out.suffix not in tables.WRITERS:
            tables.written({}, out.suffix)
    runs.existing(run, runs.CERTIFICATE)  # before torch is imported, which takes seconds
    tables.check(data)

    from fullcert import answering
    from fullcert.commands.display import show_answers, working
    from fullcert.report.claims import claim

    with working("certifying", hidden=quiet):
        rows, threat, void_at_step, unknown = answering.answers(run, data, epsilon, tolerance, cuts)
    if out is not None:
        runs.write(out, tables.written(rows, out.suffix))
    summary = answering.summary(rows)
    task = "regression" if "value" in rows else "classification"
    told = claim({"task": task, "threat": threat, "headline": {**summary, "void_at_step": void_at_step}})
    summary |= {"threat": threat, "claim": told, "unknown_categories": unknown}
    results.give(json, {**summary, "rows": tables.by_row(rows)})
    if not quiet:
        show_answers(rows, summary, out, Console(stderr=json == "-"))
