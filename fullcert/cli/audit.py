"""`fullcert audit`: what predictions lean on, and which training rows to check first."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fullcert.cli import reading, results
from fullcert.experiment import runs

if TYPE_CHECKING:
    from rich.console import Console

SHOWN = 10  # rows on the terminal


def audit(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    data: Annotated[
        Path | None, typer.Argument(help="Rows like those of training.", show_default="the test samples of the run")
    ] = None,
    budget: Annotated[int, typer.Option(min=0, help="How many training rows can be checked.")] = 50,
    verified: Annotated[
        Path | None,
        typer.Option(help="Rows that proved as recorded: a file with a column line, id or sample.", metavar="FILE"),
    ] = None,
    every: Annotated[
        bool, typer.Option("--every", help="Explain all predictions, not the abstained ones only.")
    ] = False,
    suspects: Annotated[
        bool,
        typer.Option("--suspects", help="Also list the training rows whose own label is unlikely."),
    ] = False,
    source: Annotated[
        str | None, typer.Option(help="A column of the training table that says where a row comes from.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File for the rows to check: .csv, .parquet or .json.", show_default="a table here"),
    ] = None,
    encoding: reading.Encoding = None,
    separator: reading.Separator = None,
    decimal: reading.Decimal = None,
    thousands: reading.Thousands = None,
    report: Annotated[bool, typer.Option("--report", help="Put it into the report of the run, too.")] = False,
    json: results.Json = None,
    quiet: results.Quiet = False,
) -> None:
    """Say which training rows and columns abstained predictions lean on, and which rows to check first.

    Another question is which labels are unlikely: --suspects lists those rows,
    and with --out writes them into a second file. Rows that prove as recorded
    go into --verified FILE; the answers then hold without training again.
    """
    from rich.console import Console

    from fullcert.data import tables
    from fullcert.data.dialects import UNSAID, Said
    from fullcert.system.mistakes import Mistake

    results.check(json)
    said = Said(encoding, separator, decimal, thousands)
    said.alone()
    if said != UNSAID and data is None and verified is None:
        raise Mistake("--encoding, --separator, --decimal and --thousands are about a file: give rows, or --verified")
    runs.check_there(run)  # before torch is imported, which takes seconds
    for path in (data, verified):
        if path is not None:
            tables.check(path)
    if out is not None:
        runs.check_writable(out)
        if out.suffix not in tables.WRITERS:
            tables.written({}, out.suffix)
    if report and data is not None:
        raise Mistake("--report is about the test samples of the run: leave out the rows, or --report")

    from fullcert.cli.display import working
    from fullcert.results import auditing

    with working("auditing", hidden=quiet):
        found = auditing.audited(run, data, budget, verified, every, source, said, suspects)
    if out is not None:
        runs.write(out, tables.written(to_check(found), out.suffix))
        if suspects:
            runs.write(beside(out), tables.written(of_suspects(found), out.suffix))
    if report:
        found = write_report(run, found)
    results.give(json, found)
    if not quiet:
        show(found, out, Console(stderr=json == "-"))


def to_check(found: dict[str, Any]) -> dict[str, list[Any]]:
    """The rows to check as columns, in the order of their choice, with empty columns for what is missing in them."""
    rows = found["checklist"]["rows"]
    names = [name for name in ("line", "id", "sample", "term", "share") if all(name in row for row in rows)]
    listed = {"rank": list(range(1, len(rows) + 1)), **{name: [row[name] for row in rows] for name in names}}
    missing = [row.get("missing", []) for row in rows]
    to_fill = [name for name in dict.fromkeys(name for part in missing for name in part) if name not in listed]
    if any(missing):
        listed["missing"] = [", ".join(part) for part in missing]
    listed |= {name: [""] * len(rows) for name in to_fill if name != "missing"}
    return listed | recorded_in(rows)


def recorded_in(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """What stands in the rows, the label first."""
    names = dict.fromkeys(name for row in rows for name in row["recorded"])
    return {f"recorded {name}": [row["recorded"].get(name, "") for row in rows] for name in names}


def of_suspects(found: dict[str, Any]) -> dict[str, list[Any]]:
    """The rows with unlikely labels as columns, the most unlikely first."""
    rows = found["suspects"]["rows"]
    told = rows[0] if rows else {}
    names = [name for name in dict.fromkeys(("line", "id", *told)) if name in told and name != "recorded"]
    listed = {"rank": list(range(1, len(rows) + 1)), **{name: [row[name] for row in rows] for name in names}}
    return listed | recorded_in(rows)


def beside(out: Path) -> Path:
    """The file of suspects: check.csv has check-suspects.csv beside it."""
    return out.with_stem(f"{out.stem}-suspects")


def write_report(run: Path, found: dict[str, Any]) -> dict[str, Any]:
    """Keep the audit with the run, and write its report again."""
    from fullcert.report import page_of
    from fullcert.results import beside

    about = beside.write(run, runs.AUDIT, found)
    runs.write(run / runs.REPORT, page_of(run).encode())
    return about


def show(found: dict[str, Any], out: Path | None, console: "Console") -> None:
    """What the predictions lean on, the first rows of each list under its question, and what the first would settle."""
    from fullcert.cli.display import share

    def say(words: str) -> None:
        console.print(words, highlight=False, markup=False)

    bounded = "have bounds" if found["task"] == "regression" else "are certain"
    say(f"{found['certified']:,} of {found['samples']:,} predictions {bounded}.")
    if "certified_before" in found:
        say(f"Without the {found['verified_rows']:,} verified rows: {found['certified_before']:,}.")
    rows = to_check(found)
    if found["audited"]:
        columns = ", ".join(f"{part['column']} {share(part['share'])}" for part in (found["columns"] or [])[:5])
        told = f"by column {columns}" if found["columns"] else "this file does not name columns: train again for those"
        many = "1 prediction leans" if found["audited"] == 1 else f"{found['audited']:,} predictions lean"
        say(f"What {many} on: {told}; {share(found['unowned_share'])} belongs to no row.")
        for part in found.get("sources", [])[:SHOWN]:
            say(f"  {part['source']}: {share(part['share'])} from {part['rows']:,} rows")
    if found["audited"] and found["budget"]:
        say(f"\n{found['checklist']['question']}")
        show_rows(rows, out, console)
        say(found["checklist"]["claim"])
    if "suspects" in found and found["budget"]:
        say(f"\n{found['suspects']['question']}")
        show_rows(of_suspects(found), out, console)
        say(found["suspects"]["score"])
    files = {"rows to check": out} | ({"rows with unlikely labels": beside(out)} if out and "suspects" in found else {})
    for what, file in files.items():
        if file is not None:
            console.print(f"{what}: {file}", soft_wrap=True, highlight=False, markup=False)
    if out is not None and rows["rank"]:
        fill = ", fill in what is missing" if "missing" in rows else ""
        say(
            f"next: check them{fill}, leave out those that are wrong, and run "
            f"fullcert audit {found['run']} --verified {out}"
        )


def show_rows(rows: dict[str, list[Any]], out: Path | None, console: "Console") -> None:
    """The first rows of a list with their label, where no file has them all."""
    from rich.table import Table

    if out is not None or not rows["rank"]:
        return
    label = next((name for name in rows if name.startswith("recorded ")), None)
    others = {name for name in rows if name.startswith("recorded ") and name != label}
    names = [name for name in rows if name not in others and any(cell != "" for cell in rows[name])]
    names = [name for name in names if not ("label" in rows and name == label)]
    table = Table(*names)
    for place in range(min(SHOWN, len(rows["rank"]))):
        table.add_row(*(_cell(name, rows[name][place]) for name in names))
    console.print(table)
    if len(rows["rank"]) > SHOWN:
        more = f"... and {len(rows['rank']) - SHOWN} more rows: use --out FILE for all of them"
        console.print(more, highlight=False, markup=False)


def _cell(name: str, value: Any) -> str:
    from rich.markup import escape

    from fullcert.cli.display import share

    return share(value) if name == "share" else f"{value:.3g}" if isinstance(value, float) else escape(str(value))
