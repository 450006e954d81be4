"""`fullcert tune`: steps and learning rate, chosen on trusted data or on a declared part."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fullcert.cli import results
from fullcert.cli.flags import check_files, takes_options
from fullcert.experiment import runs
from fullcert.experiment.options import Options, as_toml


@takes_options
def tune(
    resolve: Callable[[dict[str, Any]], Options],
    *,
    out: Annotated[
        Path | None, typer.Option(help="TOML file for the options that were chosen.", rich_help_panel="Run")
    ] = None,
    most_steps: Annotated[
        int, typer.Option(min=1, max=1000, help="Try up to this many steps.", rich_help_panel="Run")
    ] = 20,
    rate: Annotated[
        list[float] | None,
        typer.Option(
            help="A learning rate to try. Can be repeated.",
            show_default="1/4 to 2 of the rule's",
            rich_help_panel="Run",
        ),
    ] = None,
    json: results.Json = None,
    quiet: results.Quiet = False,
) -> None:
    """Choose steps and learning rate on --trusted data, or on the validation samples, which is then declared.

    Train with the result: fullcert train --config FILE --out RUN. The scope of its report says where it was chosen.
    """
    from rich.console import Console

    from fullcert.system.mistakes import Mistake

    results.check(json)
    if out is not None:
        runs.check_writable(out)
    rates = tuple(rate or ())
    if any(not 0 < value < 1e6 for value in rates):
        raise Mistake("--rate must be a positive number")
    options = resolve({})
    check_files(options)

    from fullcert.cli.display import working
    from fullcert.experiment import tuning
    from fullcert.system.stopping import stoppable

    with stoppable(), working("loading", hidden=quiet) as progress:
        chosen, tried = tuning.tuned(options, most_steps, rates, progress)
    if out is not None:
        runs.write(out, as_toml(chosen).encode())
    found = {
        "lr": chosen.lr,
        "steps": chosen.steps,
        "tuned_on": chosen.tuned_on.partition(":")[0],
        "tried": [t._asdict() for t in tried],
    }
    results.give(json, found)
    if not quiet:
        show(found, out, Console(stderr=json == "-"))


def show(found: dict[str, Any], out: Path | None, console: Any) -> None:
    """The best number of steps of every learning rate, and the choice."""
    from rich.table import Table

    from fullcert.cli.display import share

    table = Table("learning rate", "best steps", "certified", "plain model")
    for lr in dict.fromkeys(part["lr"] for part in found["tried"]):
        mine = [part for part in found["tried"] if part["lr"] == lr]
        best = max(mine, key=lambda part: (part["certified_accuracy"], -part["steps"]))
        table.add_row(f"{lr:g}", str(best["steps"]), share(best["certified_accuracy"]), share(best["nominal_accuracy"]))
    console.print(table)
    covered = (
        "trusted data: fixed beforehand"
        if found["tuned_on"] == "trusted"
        else "validation samples: declared, not covered"
    )
    console.print(f"Chosen on {covered}: --lr {found['lr']:g} --steps {found['steps']}", highlight=False)
    if out is not None:
        console.print(f"next: fullcert train --config {out} --out RUN", soft_wrap=True, highlight=False, markup=False)
