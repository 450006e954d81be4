"""Pieces of work in turn and in processes: one that fails, or is ended by the system, does not end the others."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fullcert.cli.display import counting
from fullcert.system.jobs import UNFOLLOWED, Counted, Progress, in_processes, in_turn
from fullcert.system.mistakes import Mistake


class Piece(NamedTuple):
    name: str
    kind: str = "one"


PIECES = [Piece(name) for name in "abcd"]


def perform(name: str, folder: str) -> float:
    """Fine, wrong, or killed: once, when a file says so, and always."""
    marker = Path(folder, name)
    if marker.exists():
        told = marker.read_text()
        if told == "once":
            marker.unlink()
        if told == "wrong":
            raise ValueError(f"{name} is wrong")
        if told == "mistake":
            raise Mistake("no such file")
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    return 1.0


def names(ended: Iterator[tuple[Piece, float]]) -> list[str]:
    return sorted(piece.name for piece, _ in ended)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_piece_that_fails_is_told_when_the_others_are_finished(jobs: int, tmp_path: Path) -> None:
    (tmp_path / "b").write_text("wrong")
    done: list[str] = []
    with pytest.raises(ValueError, match="b is wrong") as caught:
        for piece, _ in ways(jobs, tmp_path)():
            done.append(piece.name)
    assert sorted(done) == ["a", "c", "d"] and "1 failed, all else is finished" in caught.value.__notes__[0]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_mistake_of_the_user_is_told_at_once(jobs: int, tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / name).write_text("mistake")
    with pytest.raises(Mistake, match="no such file"):
        list(ways(jobs, tmp_path)())


def test_a_process_that_was_killed_does_not_end_the_others(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("once")
    assert names(ways(2, tmp_path)()) == ["a", "b", "c", "d"]


def test_a_piece_that_is_killed_every_time_is_told(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("always")
    with pytest.raises(Mistake, match="most often for memory"):
        list(ways(2, tmp_path)())


def ways(jobs: int, folder: Path) -> Callable[[], Iterator[tuple[Piece, float]]]:
    if jobs == 1:
        return lambda: in_turn(PIECES, lambda piece: perform(piece.name, str(folder)))
    return lambda: in_processes(PIECES, lambda piece: (perform, piece.name, str(folder)), jobs)


def test_like_parts_are_counted_and_the_rest_takes_as_long_for_each() -> None:
    told: list[Progress] = []
    clock = iter([0.0, 1.0, 2.0, 5.0])
    follow = Counted(10, told.append, lambda: next(clock))
    follow.now("testing")
    part = follow.part()
    part(2, 4)
    part(4, 4)
    follow.now("drawing")
    assert [(one.done, one.seconds_left, one.now) for one in told] == [
        (0, None, "testing"),
        (2, 4.0, "testing"),
        (4, 3.0, "testing"),
        (4, 7.5, "drawing"),
    ]


def test_no_more_is_done_than_there_is() -> None:
    told: list[Progress] = []
    Counted(3, told.append).count(8)
    assert [(one.done, one.seconds_left) for one in told] == [(3, 0.0)]
    UNFOLLOWED.part()(5, 5)
    assert UNFOLLOWED.done == 0


def test_what_is_counted_is_shown_while_it_lasts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a terminal a bar with what is done and how long it still takes; a log gets none that is gone again."""
    for terminal in (True, False):
        monkeypatch.setenv("TTY_COMPATIBLE", "1" if terminal else "0")
        with counting(False, "testing") as tell:
            tell(Progress(3, 4, 12.0, "varying the test radius"))
        shown = capsys.readouterr().err
        assert terminal == all(words in shown for words in ("testing", "3/4", "12 s left", "varying the test radius"))
        assert terminal or not shown
