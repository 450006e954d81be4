"""`fullcert report`: the page of a run, made again from its numbers."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fullcert.cli import results
from fullcert.experiment import runs


def report(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    out: Annotated[
        Path | None, typer.Option(help="Where to write the page.", show_default="report.html in RUN")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="Public key that must have signed the run.", show_default="any, and it says so")
    ] = None,
    json: results.Json = None,
    quiet: results.Quiet = False,
) -> None:
    """Write the report of a run: one HTML file that needs nothing else.

    Of a run that is signed it says of each section whether the signature covers the file that it is drawn from.
    """
    from fullcert.report import UNSIGNED, made

    runs.existing(run, runs.EVALUATION)
    target = out or run / runs.REPORT
    results.check(json)
    page = made(run, key)
    runs.check_writable(target)
    signed = {} if page.vouched is UNSIGNED else {"signature": asdict(page.vouched)}
    another = bool(signed) and out is None and not (target.is_file() and target.read_bytes() == page.text.encode())
    runs.write(target, page.text.encode())
    results.give(json, {"report": str(target), **page.headline, **signed})
    if not quiet and json != "-":
        print(f"report: {target}")
        for note in page.vouched.notes:
            print(f"Note: {note}.")
        if another:
            print(f"Note: the page is another one than before, and {run} is signed: sign again, or use --out.")
