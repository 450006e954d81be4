"""Where the results of a command go: JSON to a file or to standard output, and the rest to people."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fullcert.experiment import runs

Json = Annotated[str | None, typer.Option(help="File for the result; - is standard output.", rich_help_panel="Run")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show neither progress nor table.", rich_help_panel="Run")]


def check(json: str | None) -> None:
    """Refuse a file that could not be written, before the work starts."""
    if json and json != "-":
        runs.check_writable(Path(json))


def give(json: str | None, result: dict[str, Any]) -> None:
    """Write the result where it was asked for."""
    if json == "-":
        print(runs.as_json(result), end="", flush=True)
    elif json:
        runs.write(Path(json), runs.as_json(result).encode())
