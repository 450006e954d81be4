"""`fullcert verify`: what holds of a run, check by check."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fullcert.cli import results
from fullcert.experiment import runs
from fullcert.system.mistakes import Mistake

if TYPE_CHECKING:
    from rich.console import Console

    from fullcert.evidence.verifying import Check


def verify(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    key: Annotated[
        Path | None, typer.Option(help="Public key that must have signed the run.", show_default="no signature asked")
    ] = None,
    rerun: Annotated[bool, typer.Option("--rerun", help="Train again: it must give the same bytes.")] = False,
    trainings: Annotated[
        int, typer.Option(min=0, help="How many plain trainings on poisoned data must be inside.")
    ] = 0,
    balls: Annotated[
        int, typer.Option(min=0, help="How many exact ones, in ball arithmetic; for small networks and sgd.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Which poisoned data are drawn.")] = 0,
    elsewhere: Annotated[
        bool, typer.Option("--elsewhere", help="It was made on another machine: compare bounds, not bytes.")
    ] = False,
    run_code: Annotated[
        bool, typer.Option("--run-code", help="Run the network of the run, if it is a file with code.")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="Train on this device.", show_default="that of the run; another is elsewhere")
    ] = None,
    json: results.Json = None,
    quiet: results.Quiet = False,
) -> None:
    """Check a certificate, the results beside it, and with --key the signature of all files; exit with 0 if all hold.

    --rerun trains again; --trainings and --balls train on poisoned data.
    Exit code 2: the file does not hold; 3: training again gave something else;
    4: a plain training was outside the bounds; 5: an exact one was; 6: a check
    that was asked for could not be made.
    No code of the run is executed without --run-code.
    """
    from rich.console import Console

    results.check(json)
    runs.check_there(run)  # before torch is imported, which takes seconds
    if key is not None and not key.exists():
        raise Mistake(f"cannot read the key {key}: No such file or directory")

    from fullcert.cli.display import working
    from fullcert.evidence import verifying

    asked = verifying.Asked(rerun, trainings, balls, seed, elsewhere, run_code, device)
    with working("checking", hidden=quiet) as progress:
        found = verifying.checks(run, key, asked, progress)
    results.give(json, verifying.as_data(run, found))
    if not quiet:
        show(found, Console(stderr=json == "-"))
    code, check = verifying.outcome(found)
    if check is not None and check.result == verifying.FAILED:
        raise Mistake(f"{run} does not hold: its {check.check} failed, {check.detail}", code)
    if check is not None:
        raise Mistake(f"not all of {run} was checked: its {check.check} was not done, {check.detail}", code)


def show(found: "list[Check]", console: "Console") -> None:
    """A line for every check."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("check", "result", "")
    for check in found:
        table.add_row(check.check, check.result, escape(check.detail))
    console.print(table)
