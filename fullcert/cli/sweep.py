"""`fullcert sweep`: one recipe at several k, epsilon, seeds or other options; and how much the model can stand."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fullcert.cli import results
from fullcert.cli.flags import check_files, takes_options
from fullcert.experiment.options import Options, read_options

PANEL = "Sweep"
Values = Annotated[str | None, typer.Option(rich_help_panel=PANEL)]


@takes_options
def sweep(
    resolve: Callable[[dict[str, Any]], Options],
    *,
    flips: Annotated[
        str | None,
        typer.Option(help="Numbers of wrong labels, such as 1,3,10,30: --over flip-labels=...", rich_help_panel=PANEL),
    ] = None,
    epsilons: Annotated[
        str | None,
        typer.Option(help="Radii of the training features, such as 1e-3,1e-2.", rich_help_panel=PANEL),
    ] = None,
    removals: Annotated[
        str | None, typer.Option(help="Numbers of samples that should not be there.", rich_help_panel=PANEL)
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            help="Any option with one value. Can be repeated.", metavar="OPTION=A,B,...", rich_help_panel=PANEL
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds, such as 0,1,2.", show_default="that of --seed", rich_help_panel=PANEL)
    ] = None,
    recipe: Annotated[
        list[Path] | None,
        typer.Option(help="A TOML file with options. Can be repeated: one curve each.", rich_help_panel=PANEL),
    ] = None,
    attacked: Annotated[
        bool,
        typer.Option("--attacked", help="Attack every run, too: the curve has an upper bound.", rich_help_panel=PANEL),
    ] = False,
    targets: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Test samples attacked one by one, smallest leads first.",
            show_default="all",
            rich_help_panel=PANEL,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the sweep.", rich_help_panel="Run")] = Path("runs/sweep"),
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time.", rich_help_panel="Run")] = 1,
    on: Annotated[str, typer.Option(help="auto, ray or processes.", rich_help_panel="Run")] = "auto",
    address: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster.", show_default=False, rich_help_panel="Run")
    ] = None,
    json: results.Json = None,
    quiet: results.Quiet = False,
) -> None:
    """Train one recipe at several k, epsilon or seeds; one table, one plot, and the curve of all runs together.

    What is finished in --out is not run again; killed, the same command goes on with what is left.
    """
    from fullcert.system import jobs as work

    results.check(json)
    resolve = stepwise(resolve)
    if targets is not None and not attacked:
        raise _mistake("--targets says how many test samples --attacked attacks one by one: give both")
    place = work.place_of(on, address)
    given = {"flip_labels": flips, "epsilon": epsilons, "remove": removals}
    axes, numbers = axes_of(given, over or []), seeds_of(seeds)
    said = {path.stem: read_options(path) for path in recipe or []} or {"": {}}
    if len(said) != len(recipe or [""]):
        raise _mistake("two recipes have the same name: give files of different names")
    for each in said.values():
        check_files(resolve(each))

    import matplotlib  # noqa: F401  (what the results need: if it is missing, say so before training)

    from fullcert.cli.display import counting, working
    from fullcert.experiment import runs
    from fullcert.sweeps import sweep_tables, swept_runs
    from fullcert.system.stopping import stoppable

    told = told_test_epsilon(resolve, said)
    plan = swept_runs.planned(out, resolve, said, axes, numbers or (resolve({}).seed,), told)
    with stoppable():
        check_first(plan)
        runs.make_folder(out)
        with counting(quiet) as tell:
            swept_runs.run_all(plan, jobs, place, address, tell)
        if attacked:
            attack_all(plan, targets, quiet)
        with working("combining the runs", hidden=quiet):
            found = sweep_tables.write(out, plan, axes)
    results.give(json, found)
    if not quiet:
        show(found, out, json)


def stepwise(resolve: Callable[[dict[str, Any]], Options]) -> Callable[[dict[str, Any]], Options]:
    """Options that train step by step unless something is said: runs are joined, and a ridge goes by the threat."""
    return lambda further: resolve({"fit": "steps", **further})


def attack_all(plan: Any, targets: int | None, quiet: bool) -> None:
    """Attack every run that was not attacked like this before."""
    from fullcert.cli.display import working
    from fullcert.sweeps import attacked_curves

    with working("attacking", hidden=quiet) as progress:
        attacked_curves.attack_all(
            [run.path for run in plan],
            {"steps": 3, "restarts": 2, "targets": targets, "seed": 0},
            lambda run, now: progress(
                f"attacking {run}{now.attack}, {now.done} of {now.planned} trainings, {now.broken} broken"
            ),
        )


def axes_of(given: dict[str, str | None], over: list[str]) -> list[Any]:
    """What is varied, each option once."""
    from fullcert.sweeps import swept_runs

    typed = {"flip_labels": "--flips", "epsilon": "--epsilons", "remove": "--removals"}
    axes = [swept_runs.axis_of(name, text, typed[name]) for name, text in given.items() if text is not None]
    for text in over:
        name, equals, values = text.partition("=")
        if not equals:
            raise _mistake(f"--over must be OPTION=A,B,..., such as flip-labels=1,3,10, not {text!r}")
        axes.append(swept_runs.axis_of(name, values))
    names = [axis.name for axis in axes]
    if not axes:
        raise _mistake("a sweep varies something: give --flips, --epsilons, --removals or --over OPTION=A,B,...")
    if len(set(names)) != len(names):
        raise _mistake("an option is varied twice")
    if "seed" in names:
        raise _mistake("seeds are given with --seeds")
    return axes


def seeds_of(text: str | None) -> tuple[int, ...]:
    from fullcert.sweeps import swept_runs

    return () if text is None else swept_runs.axis_of("seed", text, "--seeds").values


def told_test_epsilon(resolve: Callable[[dict[str, Any]], Options], said: dict[str, dict[str, Any]]) -> bool:
    """Whether a flag says how far test inputs moved: then it is what it says, whatever the training radius."""
    first = next(iter(said.values()))
    radii = {resolve({**first, "epsilon": radius}).test_epsilon for radius in (0.125, 0.25)}
    return len(radii) == 1


def check_first(plan: Any) -> None:
    """Mistakes of the options are found before the first run, not in it."""
    from fullcert.experiment.training import Recipe

    largest = max(plan, key=lambda run: [value if isinstance(value, int | float) else 0 for _, value in run.point])
    for run in (plan[0], largest) if largest is not plan[0] else (largest,):
        if run.metrics is None:
            Recipe(run.options)


def show(found: dict[str, Any], out: Path, json: str | None) -> None:
    """The table, and how much the answers withstand."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from fullcert.cli.display import share
    from fullcert.results import withstood_answers

    console = Console(stderr=json == "-")
    names = list(dict.fromkeys(name for row in found["rows"] for name in row["setting"]))
    table = Table("recipe", *(name.replace("_", " ") for name in names), "certified", "nominal", "seeds")
    for row in found["rows"]:
        shares = [share(row[name]) if name in row else "-" for name in ("certified_accuracy", "nominal_accuracy")]
        table.add_row(
            escape(row["recipe"] or "-"), *(f"{row['setting'][name]}" for name in names), *shares, f"{row['seeds']}"
        )
    console.print(table)
    for curve in found["curves"]:
        told = curve.get("why_not") or withstood_answers.sentence(curve["withstands"], curve["samples"])
        console.print(told, highlight=False, markup=False)
    for name in ("table.csv", "table.json", "table.tex", "plot.svg"):
        console.print(f"{out / name}", soft_wrap=True, highlight=False, markup=False)
    for curve in found["curves"]:
        if "largest_run" in curve:
            page = Path(curve["largest_run"]) / "report.html"
            console.print(f"report with the curve: {page}", soft_wrap=True, highlight=False, markup=False)


def _mistake(words: str) -> Exception:
    from fullcert.system.mistakes import Mistake

    return Mistake(words)
