"""`fullcert attack`: which predictions of a run can really be changed?"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fullcert.cli import results
from fullcert.experiment import runs
from fullcert.system.mistakes import Mistake, check_known

if TYPE_CHECKING:
    from rich.console import Console

    from boundflow.attacks import Progress

NAMES = ("class-shifts", "random-corners", "hypergradients", "influence", "enumeration")  # as in the library


def attack(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    attacks: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(NAMES)}. Can be repeated.", metavar="NAME", show_default="all"),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps along each hypergradient.")] = 3,
    restarts: Annotated[int, typer.Option(min=1, help="Starting points: the observed data, then random ones.")] = 2,
    targets: Annotated[
        int | None,
        typer.Option(min=1, help="Test samples attacked one by one, smallest leads first.", show_default="all"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Fixes the random starting points.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="NPZ file for the dataset that breaks most.", show_default="not written")
    ] = None,
    json: results.Json = None,
    quiet: results.Quiet = False,
) -> None:
    """Attack a finished run: train it again on poisoned datasets that its threat allows.

    What is found is written to attack.json in RUN, and its report shows it.
    Data and initial weights are made again as in training. If the run names a
    network of its own (model in options.toml), that file is run.
    """
    results.check(json)
    names = tuple(attacks or NAMES)
    for name in names:
        check_known("attack", name, NAMES)
    if out is not None:
        runs.check_writable(out)
    runs.check_there(run)  # before torch is imported, which takes seconds
    runs.check_writable(run / runs.ATTACK)

    from rich.console import Console

    from fullcert.cli.display import working
    from fullcert.results import attacked_run, beside

    with working("loading", hidden=quiet):
        recipe, certificate = attacked_run.loaded(run)
    with following(quiet) as bar:
        found = attacked_run.attacked(
            run, recipe, certificate, names, bar, steps=steps, restarts=restarts, targets=targets, seed=seed
        )
    data = found.as_data()
    if recipe.task.regression and recipe.task.encoding is not None:  # in the units of the user
        data["largest_move"] = -float(found.lead.min()) * recipe.task.encoding.target.scale
    data = beside.write(run, runs.ATTACK, data)
    if out is not None:
        runs.write(out, attacked_run.dataset(found.worst))
    report_again(run)
    results.give(json, data)
    if not quiet:
        show(data, run, out, Console(stderr=json == "-"))


def report_again(run: Path) -> None:
    """The report of the run, which now tells of the attack, if the run has what it is made of."""
    from fullcert.report import page_of

    if (run / runs.EVALUATION).is_file():
        try:
            page = page_of(run)
        except Mistake:
            return  # `fullcert report` says what is wrong with it
        runs.write(run / runs.REPORT, page.encode())


@contextmanager
def following(hidden: bool) -> "Iterator[Callable[[Progress], None]]":
    """A bar on standard error: the attack, its trainings, what is broken by now, and the time that is left."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[told]}"))
    console = Console(stderr=True)
    with Bar(*columns, TimeRemainingColumn(), console=console, disable=hidden or not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def update(now: "Progress") -> None:
            if now.attack not in tasks:
                tasks[now.attack] = bar.add_task(now.attack, total=now.planned, told="")
            bar.update(tasks[now.attack], completed=now.done, told=f"{now.broken} of {now.points} broken")

        yield update


def show(data: dict[str, Any], run: Path, out: Path | None, console: "Console") -> None:
    """A table of what is known, from both sides."""
    from decimal import ROUND_CEILING

    from rich.table import Table

    from fullcert.cli.display import share
    from fullcert.report.claims import attack_claim

    table = Table(title=f"{data['trainings']:,} poisoned trainings", title_justify="left")
    table.add_column("on the test set")
    table.add_column("", justify="right")
    for key, words, rounding in (
        ("nominal_accuracy", "nominal accuracy", None),
        ("attacked_accuracy", "attacked accuracy, an upper bound", ROUND_CEILING),
        ("certified_accuracy", "certified accuracy, a lower bound", None),
    ):
        if data[key] is not None:
            table.add_row(words, share(data[key], *([rounding] if rounding else [])))
    if "largest_move" in data:
        table.add_row("largest move of a prediction found", f"{data['largest_move']:.4g}")
    table.add_section()
    for state, count in data["states"].items():
        table.add_row(state, f"{count:,}")
    for name, count in data["found_by"].items():
        table.add_row(f"  broken by {name}", f"{count:,}")
    console.print(table)
    console.print(attack_claim(data), highlight=False, markup=False)
    for name, reason in data["skipped"].items():
        console.print(f"Note: {name}: {reason}.", highlight=False, markup=False)
    for what, path in (("result", run / runs.ATTACK), ("worst dataset", out)):
        if path is not None:
            console.print(f"{what}: {path}", soft_wrap=True, highlight=False, markup=False)
