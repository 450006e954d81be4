"""`fullcert datasets`: what datasets there are, which of them are here, and how to get the others."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fullcert.experiment import runs
from fullcert.system.mistakes import Mistake

datasets = typer.Typer()

Folder = Annotated[Path, typer.Option("--data-dir", help="Where datasets are kept on disk.", envvar="BOUNDFLOW_DATA")]
Json = Annotated[str | None, typer.Option(help="File for the answer as JSON; - is standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show neither progress nor table.")]
DATA = Path("data")


@datasets.callback(invoke_without_command=True, epilog="Example: fullcert datasets list")
def overview(context: typer.Context) -> None:
    """List, fetch and verify datasets."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@datasets.command("list", epilog="Example: fullcert datasets list --data-dir data")
def show_list(data_dir: Folder = DATA, json: Json = None, quiet: Quiet = False) -> None:
    """List the datasets, and say which are here."""
    from fullcert.data.datasets.holdings import listing

    check_json(json)
    known = listing(data_dir)
    tell({"folder": str(data_dir), "datasets": known}, [shortened(row) for row in known], json, quiet)


@datasets.command(epilog="Example: fullcert datasets fetch mnist fashion-mnist --data-dir data")
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Datasets to fetch; mnist-1-7 fetches mnist.")],
    data_dir: Folder = DATA,
    json: Json = None,
    quiet: Quiet = False,
) -> None:
    """Download datasets from their publishers, and check them."""
    from fullcert.cli.downloads import progress_bars
    from fullcert.data.datasets.holdings import obtain

    check_json(json)
    with progress_bars(hidden=quiet) as bar:
        files = obtain(names, data_dir, bar)
    tell({"folder": str(data_dir), "files": files}, files, json, quiet)


@datasets.command(epilog="Example: fullcert datasets verify mnist --data-dir data")
def verify(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Datasets to check; all that are here if none is named.")
    ] = None,
    data_dir: Folder = DATA,
    json: Json = None,
    quiet: Quiet = False,
) -> None:
    """Compare the files that are here with the digests of their publishers."""
    from fullcert.data.datasets.holdings import inspect

    check_json(json)
    files = inspect(names or [], data_dir)
    rows = [{**row, "digest": row["digest"].partition(":")[0]} for row in files]
    tell({"folder": str(data_dir), "files": files}, rows, json, quiet)
    damaged = [row for row in files if row["state"] == "damaged"]
    if damaged:
        paths, names = ([*dict.fromkeys(str(row[key]) for row in damaged)] for key in ("path", "dataset"))
        fetch = f"fullcert datasets fetch {' '.join(names)}"
        raise Mistake(
            f"not as published: {', '.join(str(data_dir / path) for path in paths)}; get it again with {fetch}"
        )


@datasets.command(epilog="Example: BOUNDFLOW_DATA=data fullcert datasets where")
def where(data_dir: Folder = DATA, json: Json = None, quiet: Quiet = False) -> None:
    """Print the folder of datasets, and which of their files are in it."""
    from fullcert.data.datasets.holdings import present

    check_json(json)
    files = present(data_dir)
    answer = {"folder": str(data_dir.absolute()), "exists": data_dir.is_dir(), "files": files}
    tell(answer, files, json, quiet)


def check_json(json: str | None) -> None:
    """Find out before the work that the answer cannot be written."""
    if json and json != "-":
        runs.check_writable(Path(json))


def tell(answer: dict[str, Any], rows: list[dict[str, Any]], json: str | None, quiet: bool) -> None:
    """Write the answer as JSON where it is wanted, and show its rows as a table unless that is not."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if json == "-":
        print(runs.as_json(answer), end="")
    elif json:
        runs.write(Path(json), runs.as_json(answer).encode())
    if quiet:
        return
    console, table = Console(stderr=json == "-"), Table()
    for column in rows[0] if rows else ():
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell(value)) for value in row.values()))
    console.print(f"folder of datasets: {answer['folder']}", soft_wrap=True, highlight=False, markup=False)
    console.print(table if rows else "no files")


def shortened(row: dict[str, Any]) -> dict[str, Any]:
    """A dataset in one line: all samples together; [-A-B] says that two of its classes are a dataset as well."""
    return {
        "name": row["name"] + "[-A-B]" * row["pairs"],
        "samples": sum(row["samples"]),
        "shape": "x".join(map(str, row["shape"])),
        **{key: row[key] for key in ("classes", "here", "licence")},
    }


def cell(value: Any) -> str:
    """A value as it stands in a table."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value or "-")
