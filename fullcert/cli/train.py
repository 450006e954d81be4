"""`fullcert train`: train a network on all datasets of a threat and certify its predictions on the test set."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from fullcert.cli import results
from fullcert.cli.flags import check_files, takes_options
from fullcert.experiment import runs
from fullcert.experiment.options import Options, as_toml, read_options
from fullcert.experiment.options import resolve as resolved
from fullcert.system import processes

Out = Annotated[Path | None, typer.Option(help="Folder for certificate, metrics and report.", rich_help_panel="Run")]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Go on with the interrupted run in --out, with its options.", rich_help_panel="Run"),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace the finished run in --out.", rich_help_panel="Run")
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1, max=4096, help="Threads on the processor.", show_default="by the work in a step", rich_help_panel="Run"
    ),
]
Board = Annotated[Path | None, typer.Option(help="Folder for a TensorBoard log.", rich_help_panel="Run")]


@takes_options
def train(
    resolve: Callable[[dict[str, Any]], Options],
    *,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    tensorboard: Board = None,
    threads: Threads = None,
    json: results.Json = None,
    quiet: results.Quiet = False,
) -> None:
    """Train on all datasets of a threat at once, and certify the test set.

    Defaults of Network and Training go by rules over data, network, domain and threat: see docs/command.md.
    """
    results.check(json)
    if processes.first():
        check_flags(out, resume, overwrite)
    quiet = quiet or not processes.first()
    before = earlier(out) if resume else {}
    options = resolve(before)
    check_files(options)  # before torch is imported, which takes seconds

    import jinja2  # noqa: F401  (what the results need: if it is missing, say so before training)
    import safetensors  # noqa: F401

    from fullcert.cli.display import working
    from fullcert.experiment import identity
    from fullcert.experiment.training import Recipe
    from fullcert.system.startup import use_threads
    from fullcert.system.stopping import stoppable

    if out and resume:
        runs.require_unchanged(out, options, resolved({}, before))
    with stoppable():
        with working("loading", hidden=quiet):
            with identity.resuming(out, options) if out and resume else nullcontext():
                recipe = Recipe(options)  # all mistakes are found here, before anything is written
            if out and resume and (out / runs.METRICS).exists():  # nothing is left to do
                return told_again(out, recipe, json, quiet) if processes.first() else None
            if options.members:
                check_votes(recipe, tensorboard)
            check_processes(options, tensorboard)
            use_threads(threads, recipe)
        if not processes.first():
            return followed(recipe, out, resume)
        with runs.begun(out) as lock:
            if lock:
                begin(lock.folder, recipe, resume, overwrite)
            if options.members:
                metrics = voted(recipe, lock, quiet)
            else:
                metrics = performed(recipe, lock, resume, tensorboard, quiet)
    told(metrics, out, json, quiet)


def performed(recipe: Any, lock: Any, resume: bool, tensorboard: Path | None, quiet: bool) -> dict[str, Any]:
    """Train and test; with a folder, whose lock this is, everything is written there."""
    from fullcert.cli.display import counting
    from fullcert.experiment.advice import advice
    from fullcert.report.claims import claim
    from fullcert.results.evaluation import asked, essence, evaluate, measure, on_test
    from fullcert.system.jobs import Counted

    certificate, steps = certified(recipe, lock, resume, tensorboard, quiet)
    with counting(quiet, "testing") as tell:
        follow = Counted(asked(recipe, drawn=lock is not None), tell)
        follow.now("asking about the test set")
        test = on_test(recipe, certificate, follow)
        metrics = measure(recipe, certificate, test, follow)
        metrics["claim"] = claim(essence(recipe, certificate, test, metrics))
        found = advice(recipe, certificate, metrics, steps)
        if found:
            metrics["advice"] = found
        if lock:
            evaluation = evaluate(recipe, certificate, test, metrics, steps, follow)
            follow.now("writing certificate and report")
            lock.check()
            metrics = finish(lock.folder, recipe, certificate, metrics, evaluation)
    return metrics


def certified(
    recipe: Any, lock: Any, resume: bool, tensorboard: Path | None, quiet: bool
) -> tuple[Any, list[dict[str, Any]]]:
    """Train, or fit the optimum; the certificate, and the steps that were logged."""
    from fullcert.cli.display import following, working
    from fullcert.experiment import identity
    from fullcert.results.step_log import StepLog

    if recipe.converges:
        with working("fitting", hidden=quiet):
            return recipe.certify([]), []
    folder = lock.folder if lock else None
    log = StepLog(
        folder / runs.STEPS if folder else None,
        recipe.tensors(recipe.data.validation),
        recipe.threats.test,
        resume,
        identity.of_value(recipe.identity)[:16],
    )
    several = processes.several()
    forecast, order = ("", 0) if quiet or several else forecast_of(recipe)
    with log, board_of(tensorboard, recipe, log) as board, following(log, quiet, forecast, order) as bar:
        callbacks = [*([lock.check] if lock else []), log, *([board] if board else []), bar.update]
        file = folder / runs.CHECKPOINT if folder else None
        certificate = recipe.certify(callbacks, file, resume, distributed=several, tell=bar.tell)
    return certificate, log.steps


def followed(recipe: Any, out: Path | None, resume: bool) -> None:
    """The share of a process that is not the first: it trains, and what it reads was written by the first one."""
    recipe.certify([], out / runs.CHECKPOINT if out else None, resume, distributed=True)


def check_processes(options: Options, tensorboard: Path | None) -> None:
    """Refuse what several processes cannot do together."""
    from fullcert.system.mistakes import Mistake

    if processes.several() and (options.members or tensorboard is not None):
        flag = "--members" if options.members else "--tensorboard"
        raise Mistake(f"{flag} is for a run of one process: leave it out, or start the command without torchrun")


def check_votes(recipe: Any, tensorboard: Path | None) -> None:
    """Refuse what members cannot do, before anything is written."""
    from fullcert.results import voting
    from fullcert.system.mistakes import Mistake

    voting.check(recipe)
    if tensorboard is not None:
        raise Mistake("--tensorboard follows the steps of one model: leave it out, or leave out --members")


def voted(recipe: Any, lock: Any, quiet: bool) -> dict[str, Any]:
    """Train the members and test their vote; with a folder, a member that is there is not trained again."""
    import time

    from fullcert.cli.display import working
    from fullcert.report import page_of
    from fullcert.report.claims import claim
    from fullcert.results import beside, voting

    folder, started = lock.folder if lock else None, time.perf_counter()
    with working("training", hidden=quiet) as tell:
        where = None if folder is None else folder / runs.MEMBERS
        ensemble = voting.trained(recipe, where, tell, lock.check if lock else lambda: None)
        seconds = time.perf_counter() - started
        test = voting.Tested(recipe, ensemble, tell)
        metrics = test.metrics(seconds)
        metrics["claim"] = claim(test.essence(metrics))
        if folder is not None:
            lock.check()
            beside.write(folder, runs.CURVE, test.curve())
            beside.write(folder, runs.EVALUATION, test.evaluation(metrics))
            runs.write(folder / runs.REPORT, page_of(folder).encode())
            metrics = beside.write(folder, runs.METRICS, metrics)
    return metrics


def forecast_of(recipe: Any) -> tuple[str, int]:
    """How long training will take, in words, where that is long enough to be asked.

    And the order of the zonotopes where steps are long and grow with it: there is no forecast then, and a warning.
    """
    from rich.console import Console

    from fullcert.cli.display import working
    from fullcert.experiment import forecasting

    with working("forecasting", hidden=False):
        expected = forecasting.seconds(recipe)
    if expected is not None:
        return f"{forecasting.told(expected)}, then testing", 0
    warning = forecasting.warning(forecasting.training_of(recipe))
    if warning is None:
        return "", 0
    Console(stderr=True).print(f"fullcert: {warning}", highlight=False, markup=False)
    return "", recipe.options.order


def told(metrics: dict[str, Any], out: Path | None, json: str | None, quiet: bool) -> None:
    """The result, for programs and for people."""
    from rich.console import Console

    from fullcert.cli.display import show

    results.give(json, metrics)
    if not quiet:
        show(metrics, out, Console(stderr=json == "-"))


def told_again(out: Path, recipe: Any, json: str | None, quiet: bool) -> None:
    """The result of a run that has nothing left to do, as far as it is one of this recipe and its file still is one."""
    from fullcert.experiment import identity
    from fullcert.system.mistakes import Mistake

    identity.require_finished(out, recipe.identity, recipe.options)
    try:
        told(finished(out), out, json, quiet)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise Mistake(f"{out / runs.METRICS} is damaged: it does not hold what a run writes there") from None


def finished(out: Path) -> dict[str, Any]:
    """The result of a run that has nothing left to do, and that of the certificate that is there."""
    from fullcert.report.claims import claim
    from fullcert.results.beside import Beside
    from fullcert.system.mistakes import Mistake

    run, metrics = Beside(out), runs.read_json(out / runs.METRICS)
    if not metrics.keys() >= {"dataset", "domain", "threat", "test_epsilon", "steps", "seconds"}:
        raise Mistake(f"{out / runs.METRICS} is damaged: it does not hold what a run writes there")
    metrics = run.fitting(runs.METRICS, metrics)
    if metrics.get("claim") != claim(run.evaluation):
        raise Mistake(f"{out / runs.METRICS} is damaged: its claim is not that of its numbers")
    return metrics


def check_flags(out: Path | None, resume: bool, overwrite: bool) -> None:
    """Refuse what would lose a result, before the work starts."""
    from fullcert.system.mistakes import Mistake

    if resume and overwrite:
        raise Mistake("--resume goes on with a run and --overwrite replaces it: use one of them")
    if out and not resume and not overwrite:
        runs.check_unfinished(out)


def earlier(out: Path | None) -> dict[str, Any]:
    """The options of the run that is to go on."""
    from fullcert.system.mistakes import Mistake

    if out is None:
        raise Mistake("--resume needs --out, the folder of the interrupted run")
    return read_options(runs.existing(out, runs.OPTIONS))


def board_of(folder: Path | None, recipe: Any, log: Any) -> AbstractContextManager[Any]:
    """The TensorBoard callback, if one is wanted; the accuracies are those that the log has measured."""
    if folder is None:
        return nullcontext()
    from fullcert.results.tracking import TensorBoard

    if recipe.task.regression:  # of which the log measures nothing
        x, y = (part[:200] for part in recipe.tensors(recipe.data.validation))
        return TensorBoard(folder, (x, y), threat=recipe.threats.test)
    names = {"nominal_accuracy": "accuracy/nominal", "certified_accuracy": "accuracy/certified"}
    return TensorBoard(folder, measured=lambda: {names[name]: value for name, value in log.measured.items()})


def begin(out: Path, recipe: Any, resume: bool, overwrite: bool) -> None:
    """What is known before the first step. A new run takes the place of one that was interrupted."""
    from fullcert.experiment import identity

    if not overwrite:
        runs.check_unfinished(out)  # again: it may have ended since, and now nobody else writes here
    if resume:
        identity.require_begun(out, recipe.identity, recipe.options)
    runs.remove_parts(out)
    if not resume:
        runs.remove(out)
    if recipe.task.encoding is not None:
        runs.write(out / runs.COLUMNS, runs.as_json(recipe.task.encoding.as_data()).encode())
    identity.write(out, recipe.identity)
    if not resume:  # the last: where it is, so is what it rests on
        runs.write(out / runs.OPTIONS, as_toml(recipe.options).encode())


def finish(
    out: Path, recipe: Any, certificate: Any, metrics: dict[str, Any], evaluation: dict[str, Any]
) -> dict[str, Any]:
    """The result of a run, and no checkpoint any more; gives the metrics as they are written."""
    from fullcert.report import page_of
    from fullcert.report.barriers import drawn
    from fullcert.results import beside

    certificate.save(out / runs.CERTIFICATE)
    picture = drawn(evaluation)
    if picture is not None:
        runs.write(out / runs.PICTURE, picture.encode())
    beside.write(out, runs.EVALUATION, evaluation)
    runs.write(out / runs.REPORT, page_of(out).encode())
    metrics = beside.write(out, runs.METRICS, metrics)
    (out / runs.CHECKPOINT).unlink(missing_ok=True)
    return metrics
