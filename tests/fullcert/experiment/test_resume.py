"""A run that is interrupted goes on where it was, and ends as if nothing had happened."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from commands import Command, sentence

from fullcert.cli.command import INTERRUPTED

FLAGS = ("train", "--dataset", "iris", "--epochs", "12", "--batch-size", "15", "--lr", "0.3", "--epsilon", "0.0001")
STEPS = 72
# whoever starts this process may have had it ignore the signal
SIGNAL = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
PROGRAM = SIGNAL + "from fullcert.cli.command import main; main()"


def lines(run: Path) -> list[dict[str, Any]]:
    path = run / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("whole") / "run"
    subprocess.run([sys.executable, "-c", PROGRAM, *FLAGS, "--quiet", "--out", str(run)], check=True)
    return run


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A run that got an interrupt after some steps, and how it left."""
    run = tmp_path_factory.mktemp("stopped") / "run"
    command = [sys.executable, "-c", PROGRAM, *FLAGS, "--quiet", "--out", str(run)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        until = time.monotonic() + 60
        while len((run / "metrics.jsonl").read_text().splitlines()) < 3 if (run / "metrics.jsonl").exists() else True:
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    return run, subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.fixture
def run(stopped: tuple[Path, Any], tmp_path: Path) -> Path:
    """A copy of the interrupted run."""
    shutil.copytree(stopped[0], tmp_path / "run")
    return tmp_path / "run"


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_interrupt_is_one_sentence_and_leaves_a_checkpoint(
    stopped: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, left = stopped
    assert left.returncode == INTERRUPTED == 130 and left.stdout == ""
    assert len(left.stderr.splitlines()) == 1 and "--resume" in left.stderr
    written = {"options.toml", "identity.json", "metrics.jsonl", "checkpoint.safetensors"}
    assert {path.name for path in folder.iterdir()} == written
    assert 3 <= len(lines(folder)) < STEPS


def test_whoever_asks_an_interrupted_run_is_told_how_to_go_on(
    command: Command, stopped: tuple[Path, subprocess.CompletedProcess[str]], table: Path
) -> None:
    folder, _ = stopped
    for question in (("certify", folder, table), ("report", folder)):
        told = sentence(command(*question, "--quiet"))
        assert told == f"the run in {folder} was interrupted: fullcert train --resume --out {folder} goes on with it"


def test_a_resumed_run_ends_like_one_that_was_never_interrupted(
    command: Command, run: Path, uninterrupted: Path
) -> None:
    begun = len(lines(run))
    result = command("train", "--resume", "--out", run, "--quiet")
    assert result == (0, "", "")
    assert content(run)["certificate.safetensors"] == content(uninterrupted)["certificate.safetensors"]
    assert content(run)["options.toml"] == content(uninterrupted)["options.toml"]
    assert content(run).keys() == content(uninterrupted).keys()
    found, whole = lines(run), lines(uninterrupted)
    assert [line["step"] for line in found] == list(range(1, STEPS + 1)) and begun < STEPS
    assert [(line["loss"], line["width"]) for line in found] == [(line["loss"], line["width"]) for line in whole]
    assert all(a["seconds"] <= b["seconds"] for a, b in zip(found, found[1:], strict=False))
    metrics = json.loads(content(run)["metrics.json"])
    assert {**metrics, "seconds": 0} == {**json.loads(content(uninterrupted)["metrics.json"]), "seconds": 0}


def test_the_same_command_goes_on_as_well(command: Command, run: Path, uninterrupted: Path) -> None:
    """The command as it was typed, with --resume added, and half a line left by a crash."""
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "lo')
    assert command(*FLAGS, "--resume", "--out", run, "--quiet").code == 0
    assert content(run)["certificate.safetensors"] == content(uninterrupted)["certificate.safetensors"]
    assert [line["step"] for line in lines(run)] == list(range(1, STEPS + 1))


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (("--lr", "0.1"), "--lr 0.3 and not 0.1"),
        (("--seed", "1"), "--seed"),
        (("--test-epsilon", "0.1"), "--test-epsilon"),
        (("--dataset", "two-moons"), "--dataset"),
        (("--hidden", "5"), "--hidden"),
        (("--loss", "mse"), "--loss"),
    ],
)
def test_other_options_are_refused_and_nothing_changes(
    command: Command, run: Path, flags: tuple[str, str], word: str
) -> None:
    before = content(run)
    assert word in sentence(command("train", "--resume", "--out", run, "--quiet", *flags))
    assert content(run) == before


def test_a_damaged_checkpoint_is_refused(command: Command, run: Path) -> None:
    checkpoint = run / "checkpoint.safetensors"
    whole = checkpoint.read_bytes()
    for damaged in (whole[:-9], b"", whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:]):
        checkpoint.write_bytes(damaged)
        before = content(run)
        assert "checkpoint" in sentence(command("train", "--resume", "--out", run, "--quiet"))
        assert content(run) == before


def test_what_cannot_be_resumed(command: Command, tmp_path: Path) -> None:
    assert "--resume needs --out" in sentence(command(*FLAGS, "--resume"))
    assert "there is no run" in sentence(command(*FLAGS, "--resume", "--out", tmp_path / "absent"))
    assert "has no options.toml" in sentence(command(*FLAGS, "--resume", "--out", tmp_path))
    assert not (tmp_path / "absent").exists() and not list(tmp_path.iterdir())


def test_a_finished_run_shows_its_result(command: Command, uninterrupted: Path) -> None:
    before = content(uninterrupted)
    result = command("train", "--resume", "--out", uninterrupted, "--json", "-")
    assert result.code == 0 and json.loads(result.out) == json.loads(before["metrics.json"])
    assert "certified accuracy" in result.err and content(uninterrupted) == before
    assert "--lr" in sentence(command("train", "--resume", "--out", uninterrupted, "--lr", "7", "--quiet"))


def test_a_finished_run_with_a_damaged_result(command: Command, uninterrupted: Path, tmp_path: Path) -> None:
    shutil.copytree(uninterrupted, tmp_path / "run")
    for damaged in ("{", "[]", "{}", '{"dataset": 3}'):
        (tmp_path / "run" / "metrics.json").write_text(damaged)
        result = command("train", "--resume", "--out", tmp_path / "run")
        assert "metrics.json is damaged" in sentence(result)


def test_a_new_run_takes_the_place_of_an_old_one(command: Command, run: Path) -> None:
    """Without --resume nothing of the interrupted run is used."""
    result = command("train", "--dataset", "iris", "--seed", "5", "--steps", "1", "--out", run, "--quiet")
    assert result.code == 0 and [line["step"] for line in lines(run)] == [1]
    assert not (run / "checkpoint.safetensors").exists() and "seed = 5" in (run / "options.toml").read_text()


def test_an_interrupt_between_two_logs_loses_no_step(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uninterrupted: Path
) -> None:
    """While accuracies are measured, the step is made and its line is not written yet."""
    from fullcert.results.step_log import StepLog

    measured, calls = StepLog._measured, []

    def interrupted(self: StepLog, *arguments: Any) -> dict[str, float]:
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return measured(self, *arguments)

    monkeypatch.setattr(StepLog, "_measured", interrupted)
    result = command(*FLAGS, "--out", tmp_path / "run", "--quiet")
    assert result.code == INTERRUPTED and len(lines(tmp_path / "run")) == 4
    assert command("train", "--resume", "--out", tmp_path / "run", "--quiet").code == 0
    assert [line["step"] for line in lines(tmp_path / "run")] == list(range(1, STEPS + 1))
    assert content(tmp_path / "run")["certificate.safetensors"] == content(uninterrupted)["certificate.safetensors"]


def test_an_interrupt_while_testing_keeps_the_training(
    command: Command, monkeypatch: pytest.MonkeyPatch, table: Path, tmp_path: Path
) -> None:
    from fullcert.results import evaluation

    flags = ("train", "--data", table, "--target", "income", "--steps", "2", "--flip-labels", "1", "--quiet")

    def interrupted(*arguments: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

    with monkeypatch.context() as patched:
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        patched.setattr(evaluation, "evaluate", interrupted)
        assert command(*flags, "--out", tmp_path / "run").code == INTERRUPTED
        signal.signal(signal.SIGINT, before)
    assert len(lines(tmp_path / "run")) == 2 and not (tmp_path / "run" / "metrics.json").exists()
    result = command("train", "--resume", "--out", tmp_path / "run", "--quiet")
    assert result == (0, "", "") and [line["step"] for line in lines(tmp_path / "run")] == [1, 2]
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()
