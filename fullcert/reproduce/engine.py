"""Runs cases seed by seed. What is finished is written at once, and never run again by the same code.

    folder/ID/DIGEST.json      one outcome; the digest is of everything that changes the value

An interrupted run goes on where it was; two processes may share a folder; a quick run, whose epochs are capped, has
other digests than a full one. A recipe has a name, and what it does stands in the code: so the digest is of that, too.
"""

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

import boundflow
import fullcert
from boundflow.same_program.identity import versions
from fullcert.experiment import runs
from fullcert.reproduce.experiments import Case, Experiment, Scale, load
from fullcert.system import widening
from fullcert.system.jobs import Progress, Times, followed, in_processes, in_turn
from fullcert.system.unpacking import JSON, content, parsed_json

Row = dict[str, Any]


class Work(NamedTuple):
    """One seed of one case."""

    experiment: Experiment
    number: int  # of the case, among those of the experiment
    case: Case
    seed: int

    def key(self, device: torch.device) -> dict[str, Any]:
        """Everything that changes the value."""
        case = self.case
        named = {"id": self.experiment.id, "setting": case.setting, "domain": case.domain, "recipe": case.recipe}
        return {**named, "fixed": dict(case.fixed), "seed": self.seed, "made by": made_by(device.type)}

    def path(self, folder: Path, device: torch.device) -> Path:
        digest = hashlib.sha256(json.dumps(self.key(device), sort_keys=True).encode()).hexdigest()
        return folder / self.experiment.id / f"{digest[:20]}.json"

    @property
    def kind(self) -> tuple[str, str, str]:
        return self.experiment.id, self.case.domain, self.case.recipe

    def __str__(self) -> str:
        case = self.case
        told = [f"{name} {value}" for name, value in case.setting.items()] + [case.domain, case.recipe]
        return f"{self.experiment.id}: {', '.join(told)}, seed {self.seed}"


@lru_cache(maxsize=4)
def made_by(device: str) -> dict[str, str]:
    """What computes: versions, the kind of device, and the sources of both packages as they are when this is asked."""
    digest = hashlib.sha256()
    for package in (boundflow, fullcert):
        folder = Path(str(package.__file__)).parent
        for path in sorted(path for kind in ("*.py", "*.cu") for path in folder.rglob(kind)):
            content = path.read_bytes()
            digest.update(f"{package.__name__}/{path.relative_to(folder).as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return {"code": digest.hexdigest(), **versions(), "device": device}


def planned(experiments: list[Experiment], scale: Scale) -> list[Work]:
    """Everything that is wanted, in order."""
    return [
        Work(one, number, case, seed)
        for one in experiments
        for number, case in enumerate(one.cases(scale))
        for seed in scale.of(case)
    ]


def run(
    experiments: list[Experiment],
    scale: Scale,
    folder: Path,
    device: torch.device,
    jobs: int = 1,
    tell: Callable[[Progress], None] = lambda progress: None,
    only_finished: bool = False,
) -> list[Row]:
    """Run what is not finished yet, with so many processes, and give one row for every case.

    With ``only_finished`` nothing is run: the rows are of what is there.
    """
    plan = planned(experiments, scale)
    if only_finished:
        plan = [work for work in plan if finished(work, folder, device) is not None]
    left = [work for work in plan if finished(work, folder, device) is None]
    taken: Times = {}
    for work in plan:
        if (before := finished(work, folder, device)) is not None:
            taken.setdefault(work.kind, []).append(before["seconds"])
    if jobs == 1:
        ended = in_turn(left, lambda work: perform(work, folder, device))
    else:  # other processes find the case again by its number: functions do not travel
        where = str(folder), str(device)
        ended = in_processes(
            left, lambda work: (_elsewhere, work.experiment.id, scale, work.number, work.seed, *where), jobs
        )
    followed(len(plan), left, taken, ended, jobs, tell)
    return rows(plan, folder, device)


def _elsewhere(id: str, scale: Scale, number: int, seed: int, folder: str, device: str) -> float:
    torch.set_num_threads(1)
    one = load()[id]
    return perform(Work(one, number, one.cases(scale)[number], seed), Path(folder), torch.device(device))


def perform(work: Work, folder: Path, device: torch.device) -> float:
    """Run one seed of one case, write down what it gave, and say how long it took."""
    path = work.path(folder, device)
    path.parent.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with widening.told_by(None):  # rows say what became of them
        outcome = work.case.run(work.seed, device)
    seconds = time.perf_counter() - started
    if not math.isfinite(outcome.value):
        raise ValueError(f"{work} gave {outcome.value}")
    runs.write(path, runs.as_line({**work.key(device), **asdict(outcome), "seconds": round(seconds, 3)}).encode())
    return seconds


def finished(work: Work, folder: Path, device: torch.device) -> dict[str, Any] | None:
    """What an earlier run wrote down for this seed, if it did; a file that is not whole, or of another, is none."""
    try:
        found = parsed_json(content(work.path(folder, device), JSON))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or not found.keys() >= {"value", "nominal", "details", "seconds"}:
        return None
    key = parsed_json(json.dumps(work.key(device)))
    return found if {name: found.get(name) for name in key} == key else None


def rows(plan: list[Work], folder: Path, device: torch.device) -> list[Row]:
    """One row for every case, with the mean and the standard deviation over its seeds."""
    cases: dict[tuple[str, int], list[Work]] = {}
    for work in plan:
        cases.setdefault((work.experiment.id, work.number), []).append(work)
    found = [_row(works, [finished(work, folder, device) or {} for work in works]) for works in cases.values()]
    experiments = {work.experiment.id: work.experiment for work in plan}
    groups = {id: [row for row in found if row["id"] == id] for id in experiments}
    return [row for id, group in groups.items() for row in [*group, *experiments[id].derive(group)]]


def _row(works: list[Work], found: list[dict[str, Any]]) -> Row:
    case, values = works[0].case, [one["value"] for one in found]
    mean = sum(values) / len(values)
    squares = sum((value - mean) ** 2 for value in values)
    nominal = [one["nominal"] for one in found if one["nominal"] is not None]
    return {
        "id": works[0].experiment.id,
        "setting": case.setting,
        "domain": case.domain,
        "recipe": case.recipe,
        "paper": case.paper,
        "mean": mean,
        "std": math.sqrt(squares / max(1, len(values) - 1)),  # of a sample, as in the paper
        "seeds": len(values),
        "values": values,
        "nominal": sum(nominal) / len(nominal) if nominal else None,
        "seconds": sum(one["seconds"] for one in found) / len(found),
        "fixed": dict(case.fixed),
        "details": [one["details"] for one in found],
    }
