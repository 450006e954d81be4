"""`fullcert certify`: what a certificate says of new rows, and what its answers withstand."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fullcert.cli import reading, results
from fullcert.experiment import runs


def certify(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    data: Annotated[
        Path | None,
        typer.Argument(
            help="Rows like those of training: CSV, Parquet or NPZ. With --withstands: the test set if left out.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File for the answers: .csv, .parquet or .json.", show_default="a table here")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Every feature may have moved by this much.", show_default="as in the run")
    ] = None,
    tolerance: Annotated[
        list[str] | None,
        typer.Option(help="COLUMN=AMOUNT, or none.", metavar="COLUMN=...", show_default="as in the run"),
    ] = None,
    cuts: Annotated[
        int, typer.Option(min=0, max=16, help="Cut the box of an undecided row in halves, up to this many times over.")
    ] = 0,
    withstands: Annotated[
        bool,
        typer.Option("--withstands", help="Say for each row how many changed samples, or how far, it withstands."),
    ] = False,
    over: Annotated[
        str | None,
        typer.Option(help="What --withstands varies: k or epsilon.", show_default="k where samples are counted"),
    ] = None,
    encoding: reading.Encoding = None,
    separator: reading.Separator = None,
    decimal: reading.Decimal = None,
    thousands: reading.Thousands = None,
    json: results.Json = None,
    quiet: results.Quiet = False,
) -> None:
    """Certify rows with a finished run: label, certified or abstained, bounds and margin of each.

    If the run names a network of its own (model in options.toml), that file is run: read it first if it is not yours.
    """
    from fullcert.data import tables
    from fullcert.data.dialects import Said
    from fullcert.system.mistakes import Mistake

    results.check(json)
    said = Said(encoding, separator, decimal, thousands)
    said.alone()
    if over is not None and not withstands:
        raise Mistake("--over says what --withstands varies: give both")
    if over not in (None, "k", "epsilon"):
        raise Mistake(f"--over is k (how many samples) or epsilon (how far), not {over}")
    if data is None and not withstands:
        raise Mistake("give the rows to certify: a CSV, Parquet or NPZ file")
    if out is not None:
        runs.check_writable(out)
        if out.suffix not in tables.WRITERS:
            tables.written({}, out.suffix)
    runs.check_there(run)  # before torch is imported, which takes seconds
    if data is None:
        given = {"--epsilon": epsilon is not None, "--tolerance": bool(tolerance), "--cuts": bool(cuts)}
        given |= {f"--{name}": value is not None for name, value in said._asdict().items()}
        if any(given.values()):
            flag = next(name for name in given if given[name])
            raise Mistake(f"{flag} is about rows of a file, and the test set is asked as it was tested: leave it out")
        return of_the_test_set(run, out, over, json, quiet)
    tables.check(data)
    of_rows(run, data, out, (epsilon, tolerance, cuts, said), over if withstands else None, withstands, json, quiet)


def of_rows(
    run: Path, data: Path, out: Path | None, asked: Any, over: str | None, withstands: bool, json: Any, quiet: bool
) -> None:
    """The answers for the rows of a file."""
    from rich.console import Console

    from fullcert.cli.display import show_answers, working
    from fullcert.data import tables
    from fullcert.report.claims import claim
    from fullcert.results import answering, withstood_answers

    epsilon, tolerance, cuts, said = asked
    stands: dict[str, Any] = {}
    with working("certifying", hidden=quiet) as progress:
        if withstands:
            question = answering.asked(run, data, epsilon, tolerance, said)
            rows, threat, void_at_step, unknown = answering.told(question, data, cuts)
            progress("asking what the answers withstand")
            if "withstands" not in rows:  # a vote says it anyway
                found = question.withstood(over)
                rows["withstands"] = withstood_answers.column(found)
                stands = {"withstands": withstood_answers.summary(found)}
        else:
            rows, threat, void_at_step, unknown = answering.answers(run, data, epsilon, tolerance, cuts, said)
    if out is not None:
        runs.write(out, tables.written(rows, out.suffix))
    summary = answering.summary(rows) | stands
    task = "regression" if "value" in rows else "classification"
    told = claim({"task": task, "threat": threat, "headline": {**summary, "void_at_step": void_at_step}})
    summary |= {"threat": threat, "claim": told, "unknown_categories": unknown}
    results.give(json, {**summary, "rows": tables.by_row(rows)})
    if not quiet:
        console = Console(stderr=json == "-")
        show_answers(rows, summary, out, console)
        if stands:
            sentence = withstood_answers.sentence(stands["withstands"], len(rows["row"]))
            console.print(sentence, highlight=False, markup=False)


def of_the_test_set(run: Path, out: Path | None, over: str | None, json: str | None, quiet: bool) -> None:
    """What the answers for the test set of the run withstand; the curve is kept with the run, for its report."""
    from rich.console import Console

    from fullcert.cli.display import show_curve, working
    from fullcert.data import tables
    from fullcert.results import withstood_answers
    from fullcert.sweeps import attacked_curves

    with working("loading", hidden=quiet) as progress:
        test = withstood_answers.Tested(run)
        progress("asking what the answers withstand")
        found = withstood_answers.of_test_set(test, (), over)
    changed = attacked_curves.broken(run)  # by attacks with the whole threat of the run, where it was attacked
    broken = {found.most: changed} if changed is not None and len(changed) == len(found) else None
    rows, curve = test.rows(found), withstood_answers.curve(found, test.y, None, broken)
    if out is not None:
        runs.write(out, tables.written(rows, out.suffix))
    curve = withstood_answers.write_curve(run, curve)
    told = withstood_answers.summary(found)
    results.give(json, {"withstands": told, "curve": curve, "rows": tables.by_row(rows)})
    if not quiet:
        console = Console(stderr=json == "-")
        show_curve(curve, console)
        console.print(withstood_answers.sentence(told, len(found)), highlight=False, markup=False)
        console.print(f"curve: {run / runs.CURVE}; fullcert report {run} draws it", soft_wrap=True, highlight=False)
