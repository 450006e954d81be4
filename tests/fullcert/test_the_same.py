"""Nothing is taken for the same that is not: each reuse compares what it rests on, byte for byte.

A world is a folder with tables, a model file and runs, finished and interrupted ones. A case does something to a copy
of it and gives a command, and says the sentence in which that is refused, or that its answers are those of before.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import Columns, Command, people, run_main, sentence, write_csv

from fullcert import jobs, sweeps
from fullcert.training import Recipe

TABLE = ("--target", "income", "--ignore", "pay", "--flip-labels", "1", "--steps", "2", "--quiet")
PLAIN = ("--data", "people.csv", *TABLE)
RUNS: dict[str, tuple[str, ...]] = {
    "run": PLAIN,
    "other": ("--data", "other.csv", *TABLE),
    "tested": (*PLAIN, "--test-data", "test.csv"),
    "trusted": (*PLAIN, "--trusted", "trusted.csv"),
    "net": (*PLAIN, "--model", "net.py:make"),
    "vote": (*PLAIN, "--members", "3"),
    "other-vote": ("--data", "other.csv", *TABLE, "--members", "3"),
}
NET = "from layers import Half\nfrom torch import nn\n\n\ndef make(features, outputs):\n    return {}\n"
NETWORK = "nn.Sequential(nn.Linear(features, 4), Half(), nn.Linear(4, outputs))"
LAYERS = "from torch import nn\n\n\nclass Half(nn.Module):\n    def forward(self, x):\n        return x * {}\n"


class Killed(BaseException):
    """What ends a process at once."""


def changed(columns: Columns) -> Columns:
    """The same table after somebody has corrected it: other numbers in two columns, one other category."""
    ages = [age + 30 for age in columns["age"]]
    return {**columns, "age": ages, "town": ["east" if town == "west" else town for town in columns["town"]]}


def killed(*arguments: object) -> None:
    """A run that is killed when its first training begins: all before that is written, nothing of it is."""

    def never(*_: object, **__: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recipe, "certify", never)
        with contextlib.suppress(Killed):
            run_main("train", *arguments)


@contextlib.contextmanager
def within(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    write_csv(folder / "people.csv", people(60))
    write_csv(folder / "other.csv", changed(people(60)))
    write_csv(folder / "test.csv", people(30, 2))
    write_csv(folder / "trusted.csv", people(40, 3))
    write_csv(folder / "rows.csv", people(12, 4))
    (folder / "net.py").write_text(NET.format(NETWORK))
    (folder / "layers.py").write_text(LAYERS.format(0.5))
    with within(folder):
        for name, flags in RUNS.items():
            assert run_main("train", *flags, "--out", name) == 0, name
            killed(*flags, "--out", f"begun-{name}")
    return folder


@pytest.fixture
def world(made: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(made, tmp_path / "world")
    with within(tmp_path / "world"):
        yield tmp_path / "world"


def answers(command: Command, run: str, rows: str = "rows.csv") -> list[dict[str, Any]]:
    told = command("certify", run, rows, "--json", "-", "--quiet")
    assert told.code == 0, told
    found: list[dict[str, Any]] = json.loads(told.out)["rows"]
    return found


# --- what was found ---------------------------------------------------------------------------------------------------


def test_a_table_that_was_corrected_before_the_first_checkpoint(command: Command, world: Path) -> None:
    """The report and `certify` say the same of the same rows, or nothing is said."""
    write_csv(world / "people.csv", changed(people(60)))
    told = command("train", "--resume", "--out", "begun-run", "--quiet")
    assert "people.csv" in sentence(told)
    assert command("train", *PLAIN, "--out", "begun-run").code == 0  # afresh, as the sentence says
    tested = json.loads((world / "begun-run" / "evaluation.json").read_text())["samples"]
    kept = {row["line"]: (row["label"], row["certified"]) for row in tested}
    found = {row["line"]: (row["label"], row["certified"]) for row in answers(command, "begun-run", "people.csv")}
    assert {line: found[line] for line in kept} == kept


def test_a_vote_takes_no_member_of_other_data(command: Command, world: Path) -> None:
    shutil.copytree(world / "other-vote" / "members", world / "begun-vote" / "members")
    assert command("train", "--resume", "--out", "begun-vote", "--quiet").code == 0
    for path in (world / "vote" / "members").glob("*.safetensors"):
        assert path.read_bytes() == (world / "begun-vote" / "members" / path.name).read_bytes()


@pytest.fixture
def in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs of a sweep are made in this process."""

    def perform(run: sweeps.Run, _: object = None) -> float:
        began = ["--resume"] if (run.path / "options.toml").exists() else []
        plan = Path(run.folder) / "plans" / f"{run.name}.toml"
        assert run_main("train", "--config", plan, *began, "--out", run.path, "--quiet") == 0
        return 1.0

    monkeypatch.setattr(sweeps, "perform", perform)
    monkeypatch.setattr(jobs, "in_threads", lambda left, work, *_: [(run, work(run)) for run in left])


@pytest.mark.usefixtures("in_turn")
def test_a_sweep_is_of_one_dataset(command: Command, world: Path) -> None:
    swept = (*PLAIN, "--out", "swept", "--flips", "0,1", "--on", "processes")
    assert command("sweep", *swept).code == 0
    before = (world / "swept" / "table.json").read_bytes()
    assert command("sweep", *swept).code == 0 and (world / "swept" / "table.json").read_bytes() == before
    shutil.rmtree(next((world / "swept" / "runs").iterdir()))
    write_csv(world / "people.csv", changed(people(60)))
    assert "people.csv" in sentence(command("sweep", *swept))
    assert (world / "swept" / "table.json").read_bytes() == before


def test_what_a_test_set_withstands_is_asked_of_that_test_set(command: Command, world: Path) -> None:
    columns = people(60)
    columns["income"] = ["much" if income == "little" else "little" for income in columns["income"]]
    write_csv(world / "people.csv", columns)
    assert "people.csv" in sentence(command("certify", "run", "--withstands", "--quiet"))
    assert not (world / "run" / "curve.json").exists()
