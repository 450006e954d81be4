"""One run a folder: whoever comes second is told who was first, and a run that was killed blocks nobody."""

import errno
import os
import platform
from pathlib import Path

import pytest
from commands import Command, sentence

from fullcert.experiment import runs
from fullcert.system import locks
from fullcert.system.locks import Lock
from fullcert.system.mistakes import Mistake

FLAGS = ("train", "--dataset", "iris", "--steps", "1", "--epsilon", "0.0001", "--quiet")


@pytest.fixture(params=["locks of the system", "no such module", "a disk without locks"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    if request.param != "locks of the system":
        monkeypatch.setattr(locks, "flock", None if request.param == "no such module" else refuse)
    return request.param


def test_the_second_run_is_refused_and_changes_nothing(command: Command, tmp_path: Path, system: str) -> None:
    run = tmp_path / "run"
    with runs.begun(run) as lock:
        assert lock and (run / ".lock").read_text() == f"{os.getpid()} {platform.node()}\n"
        told = f"process {os.getpid()} is writing a run into {run}: wait for it, or use another --out"
        said = sentence(command(*FLAGS, "--out", run))
        assert said == told + ("" if lock.by_system else f"; if that process is gone, delete {run / '.lock'}")
        assert [path.name for path in run.iterdir()] == [".lock"]
    assert list(run.iterdir()) == []
    assert command(*FLAGS, "--out", run).code == 0 and not (run / ".lock").exists()


def test_a_lock_that_a_killed_run_left_behind(command: Command, tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("a process that was killed, with a longer name than ours\n")
    lock = Lock(tmp_path)
    assert (tmp_path / ".lock").read_text().split()[0] == str(os.getpid())
    lock.release()
    (tmp_path / ".lock").write_text("")
    assert command(*FLAGS, "--out", tmp_path).code == 0 and not (tmp_path / ".lock").exists()


@pytest.mark.parametrize(("words", "who"), [(b"", "another process"), (b"\xff", "another"), (b"7 far\n", "7 on far")])
def test_who_holds_it_may_be_unknown_or_far(tmp_path: Path, words: bytes, who: str) -> None:
    lock = Lock(tmp_path)
    (tmp_path / ".lock").write_bytes(words)
    with pytest.raises(Mistake, match=f"{who}.* is writing a run"):
        Lock(tmp_path)
    lock.release()


def test_a_lock_that_was_given_back_between_opening_and_locking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that is locked then has no name any more: another run could lock a new one."""
    first, calls = Lock(tmp_path), []

    def late(handle: int, how: int) -> None:
        if not calls:
            first.release()
        calls.append(handle)

    monkeypatch.setattr(locks, "flock", late)
    second = Lock(tmp_path)
    assert len(calls) == 2 and second.in_place()
    second.release()


def test_a_folder_that_is_another_one_by_now(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    lock = Lock(tmp_path / "run")
    lock.check()
    (tmp_path / "run").rename(tmp_path / "moved")
    for other in (False, True):
        if other:
            (tmp_path / "run").mkdir()
            (tmp_path / "run" / ".lock").write_text("of another run")
        with pytest.raises(Mistake, match="removed or moved"):
            lock.check()
    lock.release()
    assert (tmp_path / "run" / ".lock").read_text() == "of another run"


def test_a_lock_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(Mistake, match=r"cannot write .*absent/.lock: No such file"):
        Lock(tmp_path / "absent")
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(Mistake, match=r"cannot write .*\.lock: No space left"):
        Lock(tmp_path)
    assert list(tmp_path.iterdir()) == []
