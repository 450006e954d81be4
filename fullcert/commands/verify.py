"""`fullcert verify`: what holds of a run, check by check."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fullcert import runs
from fullcert.commands import results
from fullcert.mistakes import Mistake

if TYPE_CHECKING:
    from rich.console import Console

    from fullcert.verifying import Check


def verify(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    key: Annotated[
        Path | None, typer.Option(help="Public key that must have signed the run.", show_default="no signature asked")
    ] = None,
    json: results.Json = None,
    quiet: results.Quiet = False,
) -> None:
    """Check the format, digest and content of a certificate, and with --key its signature; exit with 0 if all hold.

    No code of the run is executed: a network from a file of the user is not made here, as certify does.
    """
    from rich.console import Console

    results.check(json)
    runs.check_there(run)  # before torch is imported, which takes seconds

    from fullcert import verifying

    found = verifying.checks(run, key)
    results.give(json, verifying.as_data(run, found))
    if not quiet:
        show(found, Console(stderr=json == "-"))
    failed = [check for check in found if check.result == verifying.FAILED]
    if failed:
        raise Mistake(f"{run} does not hold: its {failed[0].check} failed, {failed[0].detail}")


def show(found: "list[Check]", console: "Console") -> None:
    """A line for every check."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("check", "result", "")
    for check in found:
        table.add_row(check.check, check.result, escape(check.detail))
    console.print(table)
