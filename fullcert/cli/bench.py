"""`fullcert bench`: how long certified training takes, beside plain training."""

from pathlib import Path
from typing import Annotated

import typer

from fullcert.cli import results


def bench(
    case: Annotated[
        list[str] | None, typer.Option(help="Which case. Can be repeated.", show_default="those that take seconds")
    ] = None,
    *,
    show_list: Annotated[bool, typer.Option("--list", help="Show the cases.")] = False,
    page: Annotated[
        Path | None, typer.Option(help="Write this page from the rows in the folder of its name, and end.")
    ] = None,
    json: results.Json = None,
    quiet: results.Quiet = False,
) -> None:
    """Measure how long bounds take, beside plain PyTorch on this machine."""
    results.check(json)  # before torch is imported, which takes seconds

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from fullcert.bench.cases import load
    from fullcert.bench.running import HEADS, Request, cells
    from fullcert.cli.display import working

    if page is not None:
        from fullcert.bench.page import write

        return write(page)
    console = Console(stderr=json == "-")
    if show_list:
        table = Table("case", "what")
        for one in load().values():
            table.add_row(one.name, escape(one.title))
        return console.print(table)
    with working("measuring", hidden=quiet) as progress:
        rows = Request(list(case or ()), json).perform(progress)
    if not quiet:
        table = Table(*HEADS)
        for row in rows:
            table.add_row(*map(escape, cells(row)))
        console.print(table)
