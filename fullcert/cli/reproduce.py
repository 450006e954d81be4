"""`fullcert reproduce`: published figures and tables, run again beside ours."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fullcert.cli import results
from fullcert.experiment import runs

if TYPE_CHECKING:
    from rich.console import Console


def reproduce(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Which experiments.", show_default="a list")
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All experiments, one after the other.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Two seeds, few epochs: not to be compared.")] = False,
    seeds: Annotated[int | None, typer.Option(help="Only this many seeds, the first ones.", show_default="all")] = None,
    domain: Annotated[str, typer.Option(help="interval, zonotope or both.")] = "both",
    recipe: Annotated[
        str | None, typer.Option(help="The cases of one recipe only, such as paper or best.", show_default="all")
    ] = None,
    finished: Annotated[bool, typer.Option("--finished", help="Run nothing: show what is finished in --out.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for finished values; what is there is not run again.")] = Path(
        "runs/reproduce"
    ),
    rows: Annotated[
        Path | None, typer.Option(help="Take rows from this JSON instead of running.", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    jobs: Annotated[int, typer.Option(help="Processes.")] = 1,
    csv: Annotated[Path | None, typer.Option(help="File for the rows as CSV.")] = None,
    latex: Annotated[Path | None, typer.Option(help="File for the rows as LaTeX tables.")] = None,
    figure: Annotated[Path | None, typer.Option(help="File for the figure: .svg, .pdf or .png.")] = None,
    page: Annotated[
        Path | None, typer.Option(help="Write this page from the rows in the folder of its name, and end.")
    ] = None,
    json: results.Json = None,
    quiet: results.Quiet = False,
) -> None:
    """Run a published figure or table again, beside ours. Without ID: the list of them.

    What is finished is kept in --out, so an interrupted run goes on where it was.
    """
    from rich.console import Console

    results.check(json)  # before torch is imported, which takes seconds
    for path in (csv, latex, figure):
        if path is not None:
            runs.check_writable(path)

    from fullcert.reproduce import writing
    from fullcert.reproduce.experiments import Scale
    from fullcert.reproduce.running import Request

    if page is not None:
        from fullcert.reproduce.page import write

        return write(page)
    console = Console(stderr=json == "-")
    if not ids and not everything:
        return show_list(console)
    scale = Scale(quick, seeds, domain, recipe)
    named = list(ids or ())
    request = Request(named, everything, scale, out, rows, device, jobs, finished, json, csv, latex, figure)
    request.checked()
    found = follow(request, hidden=quiet)
    if not quiet:
        console.print(writing.shown(found, quick), markup=False, highlight=False, soft_wrap=True, end="")


def follow(request: Any, hidden: bool) -> list[dict[str, Any]]:
    """A bar on standard error: how many values are there, how long the rest takes, and what is run now."""
    from fullcert.cli.display import counting

    with counting(hidden) as tell:
        return request.perform(tell)


def show_list(console: "Console") -> None:
    """Every experiment in a line."""
    from rich.markup import escape
    from rich.table import Table

    from fullcert.reproduce.experiments import load

    table = Table("ID", "what", "source")
    for one in load().values():
        table.add_row(one.id, escape(one.title), escape(one.source))
    console.print(table)
