"""`fullcert inspect`: every problem of every column of a table, and an options file that `fullcert train` takes."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fullcert.cli import results
from fullcert.data.dialects import Said
from fullcert.experiment import runs
from fullcert.system.mistakes import Mistake

if TYPE_CHECKING:
    from rich.console import Console

    from fullcert.data.column_questions import Finding
    from fullcert.data.inspecting import Inspection

INDENT = "  "  # of what belongs to the comment above


def inspect(
    table: Annotated[Path, typer.Argument(help="The table: CSV, Parquet or NPZ.")],
    target: Annotated[
        str | None, typer.Option(help="The column that is predicted.", show_default="a guess, to be confirmed")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for the options.", show_default="the table's name with .toml, here; a new one each time"
        ),
    ] = None,
    encoding: Annotated[str | None, typer.Option(help="Encoding of the table.", show_default="found out")] = None,
    separator: Annotated[
        str | None, typer.Option(help="What stands between cells: , ; | or tab.", show_default="found out")
    ] = None,
    decimal: Annotated[str | None, typer.Option(help="The decimal sign: . or ,", show_default="found out")] = None,
    thousands: Annotated[
        str | None, typer.Option(help="What stands between thousands: , . ' space or none.", show_default="found out")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of options.")] = False,
    json: results.Json = None,
    quiet: results.Quiet = False,
) -> None:
    """List what is to be decided about a table, and write options for `fullcert train` that decide it."""
    from rich.console import Console

    from fullcert.data import tables
    from fullcert.data.inspecting import inspected

    written = beside(Path(f"{table.stem}.toml"), overwrite) if out is None else out
    said = Said(encoding, separator, decimal, thousands)
    said.alone()
    tables.check(table)
    results.check(json)
    runs.check_writable(written)
    if written.exists() and not overwrite and not runs.is_device(written):
        raise Mistake(f"{written} is there already: use another --out, or --overwrite to replace it")
    found = inspected(table, said, target)
    runs.write(written, as_toml(found).encode())
    following = f"fullcert train --config {shlex.quote(str(written))} --out {shlex.quote(f'runs/{table.stem}')}"
    results.give(json, {**data_of(found), "written": str(written), "next": following})
    if not quiet:
        show(found, written, following, Console(stderr=json == "-"))


def beside(path: Path, overwrite: bool) -> Path:
    """This file, or one beside it where it is there: somebody may have decided things in it."""
    number, free = 1, path
    while free.exists() and not overwrite:
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    return free


def data_of(found: "Inspection") -> dict[str, Any]:
    """What was found, for programs."""
    return {
        "table": str(found.path),
        "rows": found.rows,
        "columns": list(found.columns),
        "findings": [{**asdict(finding), "decide": finding.undecided} for finding in found.findings],
        "to_decide": found.undecided,
        "options": found.options,
    }


def as_toml(found: "Inspection") -> str:
    """The options, each with the findings that it comes from beside it, and what else could be done about them."""
    from fullcert.experiment.options import written_value

    lines = [f"# proposed by fullcert inspect for {found.path.name}: {found.rows} rows, {len(found.columns)} columns"]
    findings = {key: [finding for finding in found.findings if finding.key == key] for key in found.options}
    findings["target"] = [finding for finding in found.findings if finding.key is None and finding.undecided]
    for key, value in found.options.items():
        lines += [line for finding in findings[key] for line in reasons(finding)]
        if key in ("flip_labels", "target_tolerance"):
            lines.append("# what an attacker could have done: change it to what you fear")
        entry = tuple(value) if isinstance(value, list) else value
        lines.append(f"{key} = {written_value(entry)}")
        if key == "missing":
            instead = tuple(other.entry for finding in findings[key] for other in finding.others if other.entry)
            lines += ["# or, instead of the line above, one fixed value in each column:"]
            lines += [_comment(f"impute = {written_value(instead)}")]
    return "\n".join(lines) + "\n"


def reasons(finding: "Finding") -> list[str]:
    """A finding as comments: what was seen and is proposed, what that costs, and the other ways."""
    from fullcert.experiment.options import written_value

    mark = "DECIDE: " if finding.undecided else ""
    what = f"{finding.column}: " if finding.column else ""
    lines = [_comment(f"{mark}{what}{finding.seen}: {finding.proposed}")]
    if finding.costs:
        lines.append(_comment(f"{INDENT}costs: {finding.costs}"))
    for other in finding.others:
        way = (
            "without this entry" if other.key is None else f"with {other.key} = {written_value((other.entry,))} instead"
        )
        lines.append(_comment(f"{INDENT}or {way}: {other.costs}"))
    return lines


def _comment(words: str) -> str:
    """One line, whatever a cell of the table holds."""
    indent = INDENT if words.startswith(INDENT) else ""
    return "# " + indent + "".join(sign if sign.isprintable() else " " for sign in " ".join(words.split()))


def show(found: "Inspection", written: Path, following: str, console: "Console") -> None:
    """The findings, those that a person must decide first, and what to type next."""
    from rich.markup import escape
    from rich.table import Table

    title = f"{found.path.name}: {found.rows:,} rows, {len(found.columns)} columns"
    table = Table("column", "what", "proposed", title=escape(title), title_justify="left")
    for finding in sorted(found.findings, key=lambda one: not one.undecided):
        told = f"[bold]decide:[/] {escape(finding.proposed)}" if finding.undecided else escape(finding.proposed)
        table.add_row(escape(finding.column or "the file"), escape(f"{finding.kind}: {finding.seen}"), told)
    console.print(table)
    known = len({finding.column for finding in found.findings} - {""})
    console.print(f"Columns about which there is nothing to say: {len(found.columns) - known}.", highlight=False)
    if found.undecided:
        things = "1 thing is" if found.undecided == 1 else f"{found.undecided} things are"
        console.print(f"{things} for you to decide: look at the lines marked DECIDE in the file.", highlight=False)
    for what, words in (("options", str(written)), ("next", following)):
        console.print(f"{what}: {words}", soft_wrap=True, highlight=False, markup=False)
