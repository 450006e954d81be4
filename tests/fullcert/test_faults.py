"""What can happen to a run from outside: signals, a folder that goes away, a full disk, and too little memory."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from commands import Command, Result, run_main, sentence

from fullcert.results.step_log import StepLog
from fullcert.system.mistakes import Mistake

ROOT = Path(__file__).parents[2]
FLAGS = ("train", "--dataset", "iris", "--epochs", "4", "--batch-size", "15", "--epsilon", "0.0001", "--quiet")
STEPS = 24
At = Callable[[int, Callable[[], object]], None]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing has happened to."""
    run = tmp_path_factory.mktemp("whole") / "run"
    assert run_main(*FLAGS, "--out", run) == 0
    return run


@pytest.fixture
def at_step(monkeypatch: pytest.MonkeyPatch) -> At:
    """Have something happen at a step, before its line is written."""
    measured = StepLog._measured

    def arrange(number: int, event: Callable[[], object]) -> None:
        def happens(self: StepLog, step: Any, seconds: float) -> dict[str, float]:
            if step.number == number:
                monkeypatch.setattr(StepLog, "_measured", measured)
                event()
            return measured(self, step, seconds)

        monkeypatch.setattr(StepLog, "_measured", happens)

    return arrange


def same(run: Path, other: Path) -> bool:
    certificates = [(folder / "certificate.safetensors").read_bytes() for folder in (run, other)]
    return certificates[0] == certificates[1] and sorted(os.listdir(run)) == sorted(os.listdir(other))


# --- signals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_leaves_a_checkpoint_of_the_last_step(
    command: Command, at_step: At, tmp_path: Path, whole: Path, number: signal.Signals
) -> None:
    at_step(7, lambda: os.kill(os.getpid(), number))
    told = f"fullcert: stopped by {number.name}; with --out, fullcert train --resume goes on from the last step\n"
    assert command(*FLAGS, "--out", tmp_path / "run") == Result(128 + number, "", told)
    left = ["checkpoint.safetensors", "identity.json", "metrics.jsonl", "options.toml"]
    assert sorted(os.listdir(tmp_path / "run")) == left
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 6
    assert command("train", "--resume", "--out", tmp_path / "run", "--quiet").code == 0
    assert same(tmp_path / "run", whole)


def test_runs_that_are_killed_at_random_moments_end_the_same() -> None:
    """A cut of the script, which takes any number of faults."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))}
    faults = ("--kill", "2", "--terminate", "1", "--full-disk", "1")
    command = [sys.executable, str(ROOT / "tests" / "kill_runs.py"), *faults]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0 and "the same in the end" in result.stdout, result.stderr


# --- the folder -----------------------------------------------------------------------------------------------


def test_a_finished_run_is_replaced_only_when_asked(command: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert command(*FLAGS, "--out", run).code == 0
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    told = f"there is a finished run in {run}: use another --out, or --overwrite to replace it"
    assert sentence(command(*FLAGS, "--seed", "1", "--out", run)) == told
    assert "use one of them" in sentence(command(*FLAGS, "--out", run, "--overwrite", "--resume"))
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    (run / "notes.txt").write_text("of the user")
    assert command(*FLAGS, "--seed", "1", "--out", run, "--overwrite").code == 0
    assert "seed = 1" in (run / "options.toml").read_text() and (run / "notes.txt").exists()
    assert (run / "certificate.safetensors").read_bytes() != before["certificate.safetensors"]


def test_a_run_that_ends_while_another_is_loading_is_not_overwritten(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fullcert.experiment.training import Recipe

    class Slow(Recipe):
        def __init__(self, options: Any) -> None:
            super().__init__(options)
            (tmp_path / "metrics.json").write_text("{}")

    monkeypatch.setattr("fullcert.experiment.training.Recipe", Slow)
    assert "there is a finished run" in sentence(command(*FLAGS, "--out", tmp_path))
    assert os.listdir(tmp_path) == ["metrics.json"]


def test_parts_of_files_that_a_killed_run_left_are_removed(command: Command, tmp_path: Path) -> None:
    for name in (".checkpoint.safetensors.part", ".metrics.json.x1y2", ".others"):
        (tmp_path / name).write_text("half of a")
    assert command(*FLAGS, "--out", tmp_path).code == 0
    assert [path.name for path in tmp_path.glob(".*")] == [".others"]


def gone(folder: Path) -> str:
    told = f"the folder {folder} was removed or moved while a run wrote there"
    return f"{told}: the run has ended, and its steps since the last checkpoint are lost"


def test_a_folder_that_is_removed_while_training(command: Command, at_step: At, tmp_path: Path) -> None:
    run = tmp_path / "run"
    at_step(5, lambda: shutil.rmtree(run))
    assert sentence(command(*FLAGS, "--out", run)) == gone(run) and not run.exists()


def test_a_folder_that_is_removed_at_the_last_step(command: Command, at_step: At, tmp_path: Path) -> None:
    run = tmp_path / "run"
    at_step(STEPS, lambda: shutil.rmtree(run))
    assert sentence(command(*FLAGS, "--out", run)) == gone(run) and not run.exists()


def test_a_folder_that_is_removed_while_testing(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fullcert.results import evaluation

    run, on_test = tmp_path / "run", evaluation.on_test
    monkeypatch.setattr(evaluation, "on_test", lambda *given: (shutil.rmtree(run), on_test(*given))[1])
    assert sentence(command(*FLAGS, "--out", run)) == gone(run) and not run.exists()


def test_a_folder_that_became_that_of_another_run(command: Command, at_step: At, tmp_path: Path) -> None:
    run = tmp_path / "run"

    def replace() -> None:
        run.rename(tmp_path / "moved")
        run.mkdir()
        (run / "checkpoint.safetensors").write_text("of another run")

    at_step(5, replace)
    assert sentence(command(*FLAGS, "--out", run)) == gone(run)
    assert [path.read_text() for path in run.iterdir()] == ["of another run"]


# --- the disk -------------------------------------------------------------------------------------------------


def test_a_log_on_a_full_disk_is_named() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no device that is always full")
    step = SimpleNamespace(number=1, total=9, loss=0.5, width=0.1, record={"task": "regression"})
    with StepLog(Path("/dev/full"), (torch.zeros(1), torch.zeros(1)), None) as log:
        with pytest.raises(Mistake, match="cannot write /dev/full: No space left on device"):
            log(step)


def test_a_resumed_run_never_shortens_its_log(
    command: Command, at_step: At, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines before are in place until they are there again, with the first new one to come."""
    run, replace = tmp_path / "run", os.replace
    at_step(7, lambda: os.kill(os.getpid(), signal.SIGTERM))
    command(*FLAGS, "--out", run)
    before = (run / "metrics.jsonl").read_text()

    def full(source: str, target: Any) -> None:
        if Path(target).name == "metrics.jsonl":
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    told = f"cannot write {run / 'metrics.jsonl'}: No space left on device"
    assert sentence(command("train", "--resume", "--out", run, "--quiet")) == told
    assert (run / "metrics.jsonl").read_text() == before


# --- memory ---------------------------------------------------------------------------------------------------


def device_is_full() -> None:
    raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


MEMORY: dict[str, Callable[[], object]] = {
    "torch": lambda: torch.empty(10**16),
    "numpy": lambda: np.empty(10**16),
    "python": lambda: bytearray(10**17),
    "device": device_is_full,
}


@pytest.mark.parametrize("who", MEMORY)
def test_too_little_memory_is_one_sentence_with_advice(
    command: Command, at_step: At, tmp_path: Path, whole: Path, who: str
) -> None:
    at_step(5, MEMORY[who])
    said = sentence(command(*FLAGS, "--out", tmp_path / "run"))
    assert said.startswith("there is not enough memory: ")
    assert all(flag in said for flag in ("--batch-size", "--order", "--memory", "--domain interval"))
    assert command("train", "--resume", "--out", tmp_path / "run", "--quiet", "--memory", "2").code == 0
    assert same(tmp_path / "run", whole)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on memory")
@pytest.mark.parametrize("kilobytes", [450_000, 900_000])
def test_a_machine_with_too_little_memory(kilobytes: int) -> None:
    """For its libraries, and for the run."""
    arguments = f"{sys.executable} -m fullcert train --dataset digits --flip-labels 3 --quiet"
    ended = subprocess.run(
        ["bash", "-c", f"ulimit -v {kilobytes}; {arguments}"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 2 and ended.stderr.startswith("fullcert: there is not enough memory: ")
    assert ended.stderr.count("\n") == 1


def test_too_little_memory_for_answers(
    command: Command, tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b,c,d\n0.5,1,0,0.1\n")
    monkeypatch.setattr("fullcert.results.answering.answers", lambda *_, **__: torch.empty(10**16))
    said = sentence(command("certify", whole, rows))
    assert said.startswith("there is not enough memory: ") and "--batch-size" not in said


def test_other_errors_keep_their_traceback(command: Command, at_step: At, tmp_path: Path) -> None:
    def wrong() -> None:
        raise RuntimeError("a bug of ours")

    at_step(5, wrong)
    with pytest.raises(RuntimeError, match="a bug of ours"):
        command(*FLAGS, "--out", tmp_path / "run")
