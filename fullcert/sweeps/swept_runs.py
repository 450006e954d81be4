"""A sweep: one recipe at several k, epsilon, seeds or other options, every run in a folder of its own.

    OUT/plans/NAME.toml    the options of a run             OUT/table.json, .csv, .tex     means and deviations
    OUT/runs/NAME/         the run, as `fullcert train`      OUT/curve.json, plot.svg       the combined curve

The rules that choose a recipe are asked once, so that learning rate and steps are the same at every k and epsilon: only
then are the plain models the same, and their certificates can be combined (`boundflow/analysis/withstanding.py`). A
name ends with a digest of all options, so that a run which is finished is never repeated; it is taken over if it is of
these options, of the same data and code (`identity.py`), or else the sweep is refused. Every run is a process of
`fullcert train`: killed, it goes on from its last step.
"""

import hashlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from fullcert.experiment import runs
from fullcert.experiment.options import Options, as_toml, fitting, flag_of, read_options, resolve
from fullcert.results.beside import Beside
from fullcert.system import jobs, locks
from fullcert.system.mistakes import Mistake

LARGE = 1e12  # no share and no number of seconds; NaN is not below it either
COUNTS = ("flip_labels", "remove", "replace", "at_most")  # options that say how many samples were changed
MEASURED = ("certified_accuracy", "nominal_accuracy", "certified_robustness", "seconds")  # of which tables have means
NOT_SWEPT = ("data", "data_dir", "test_data", "target", "trusted")


@dataclass(frozen=True)
class Run:
    """One run of a sweep."""

    folder: str  # of the sweep
    recipe: str
    point: tuple[tuple[str, Any], ...]  # what was varied, without the seed
    options: Options

    @property
    def kind(self) -> tuple[str, tuple[tuple[str, Any], ...]]:
        return self.recipe, self.point

    @property
    def name(self) -> str:
        point = [f"{name.replace('_', '-')}-{value}" for name, value in self.point]
        told = "-".join([*([self.recipe] if self.recipe else []), *point, f"seed-{self.options.seed}"])
        plain = "".join(sign if sign.isalnum() or sign in "-._" else "_" for sign in told)[:80]
        return f"{plain}-{hashlib.sha256(as_toml(self.options).encode()).hexdigest()[:8]}"

    @property
    def path(self) -> Path:
        return Path(self.folder) / "runs" / self.name

    def __str__(self) -> str:
        told = [f"{flag_of(name)} {value}" for name, value in self.point]
        return ", ".join([*([self.recipe] if self.recipe else []), *told, f"seed {self.options.seed}"])

    @property
    def metrics(self) -> dict[str, Any] | None:
        """The result, if the run is finished."""
        path = self.path / runs.METRICS
        if not path.is_file():
            return None
        found = runs.read_json(path)
        for name in MEASURED:
            value = found.get(name)
            if value is not None and not (isinstance(value, int | float) and abs(value) < LARGE):
                raise Mistake(f"{path} is damaged: {name} is no number; delete {self.path}, and the run is made again")
        return Beside(self.path).fitting(runs.METRICS, found)


class Axis(NamedTuple):
    """An option, and the values it takes."""

    name: str
    values: tuple[Any, ...]


def axis_of(name: str, text: str, flag: str | None = None) -> Axis:
    """``flip-labels=1,3,10`` as an option and its values; ``flag`` is what the user has typed."""
    flag = flag or flag_of(name)
    field = {entry.name: entry.type for entry in fields(Options)}.get(name.replace("-", "_"))
    if field is None or name.replace("-", "_") in NOT_SWEPT or field == tuple[str, ...]:
        raise Mistake(f"--over {name} cannot be varied: give an option with one value, such as flip-labels=1,3,10")
    parts = [part.strip() for part in text.split(",")]
    values = tuple(_value(part, field, flag) for part in parts) if all(parts) else ()
    if not values or len(set(values)) != len(values):
        raise Mistake(f"{flag} needs values, each once and with commas between them, such as 1,3,10")
    return Axis(name.replace("-", "_"), values)


def _value(text: str, kind: Any, flag: str) -> Any:
    """One value, as the type of its option."""
    for read in (int, float):
        try:
            return fitting(read(text), kind, flag)
        except (ValueError, Mistake):
            continue
    if text in ("true", "false"):
        return fitting(text == "true", kind, flag)
    try:
        return fitting(text, kind, flag)
    except Mistake:
        raise Mistake(f"{flag} cannot be {text!r}") from None


def planned(
    folder: Path,
    resolve: Callable[[dict[str, Any]], Options],
    recipes: Mapping[str, dict[str, Any]],
    axes: Sequence[Axis],
    seeds: Sequence[int],
    given_test_epsilon: bool,
) -> list[Run]:
    """All runs. ``resolve`` makes options of what a recipe says, with the flags of the command before it."""
    plan = []
    for recipe, said in recipes.items():
        # the rules may ask whether there is a threat, so they are asked with the largest values
        largest = {axis.name: max(axis.values, key=_size) for axis in axes}
        base = resolve({**said, **largest})
        if any(axis.name == "epsilon" for axis in axes) and not given_test_epsilon and "test_epsilon" not in said:
            base = replace(base, test_epsilon=0.0)  # one test set for all radii: the inputs as they are
        for values in itertools.product(*(axis.values for axis in axes)):
            point = tuple((axis.name, value) for axis, value in zip(axes, values, strict=True))
            for seed in seeds:
                plan.append(Run(str(folder.absolute()), recipe, point, replace(base, **dict(point), seed=seed)))
    return plan


def _size(value: Any) -> tuple[bool, Any]:
    return (True, value) if isinstance(value, int | float) else (False, str(value))


# --- running --------------------------------------------------------------------------------------------------------


def run_all(
    plan: Sequence[Run], count: int, place: str, address: str | None, tell: Callable[[jobs.Progress], None]
) -> None:
    """Run what is not finished, ``count`` at a time."""
    require_same(plan)
    taken: jobs.Times = {}
    for run in plan:
        if (metrics := run.metrics) is not None:
            taken.setdefault(run.kind, []).append(float(metrics.get("seconds") or 0.0))
    left = [run for run in plan if run.metrics is None]
    for run in left:
        path = Path(run.folder) / "plans" / f"{run.name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        runs.write(path, as_toml(run.options).encode())
    children = jobs.Children()
    ended: Iterator[tuple[Run, float]]
    if place == "ray":
        ended = jobs.on_ray(left, perform, count, address)
    else:
        ended = jobs.in_threads(left, lambda run: perform(run, children), count, children.stop)
    jobs.followed(len(plan), left, taken, ended, count, tell)


def require_same(plan: Sequence[Run]) -> None:
    """Refuse runs in the folder that are of other data, code, options or versions than the ones that are left."""
    from fullcert.experiment import identity, tasks  # torch, which takes seconds

    samples: dict[Any, identity.Identity] = {}
    for run in plan:
        if not (run.path / runs.OPTIONS).is_file():
            continue
        options, before = run.options, read_options(run.path / runs.OPTIONS)
        given = {name: value for name, value in asdict(options).items() if value is not None}
        runs.require_unchanged(run.path, resolve(given, before), resolve({}, before))
        # what becomes of the columns of a table goes by all options
        built_in = as_toml(options) if options.dataset == "adult" else (options.dataset, options.data_dir, options.seed)
        if options.data is None and built_in not in samples:
            samples[built_in] = identity.of_samples(tasks.load(options).data)
        identity.require_sources(run.path, options, None if options.data is not None else samples[built_in])


def awaited(folder: Path) -> None:
    """Wait for a process of an earlier sweep that is still at this run: it goes on when the sweep itself was killed."""
    while locks.held(folder):
        time.sleep(0.2)


def perform(run: Run, children: jobs.Children | None = None) -> float:
    """One run, as a process of `fullcert train`; gives the seconds it took."""
    awaited(run.path)
    if (finished := run.metrics) is not None:
        return float(finished.get("seconds") or 0.0)
    began = (run.path / runs.OPTIONS).is_file()
    config = str(Path(run.folder) / "plans" / f"{run.name}.toml")
    how = ["--config", config, *(["--resume"] if began else [])]
    command = [sys.executable, "-m", "fullcert", "train", *how, "--out", str(run.path), "--quiet"]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    started = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        if children is not None:
            children.add(process)
        try:
            told = process.communicate()[1]
        finally:
            if children is not None:
                children.remove(process)
    if process.returncode:
        lines = told.strip().splitlines() or [f"it ended with code {process.returncode}"]
        raise Mistake(f"the run of {run} failed: {lines[-1].removeprefix('fullcert: ')}")
    return time.perf_counter() - started
