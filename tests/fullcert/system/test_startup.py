"""Threads of the command: they sleep where they wait, and there are as many as the work is worth."""

import os
import subprocess
import sys

import pytest

from fullcert.system import startup


def test_small_steps_get_one_thread_and_large_ones_all() -> None:
    assert startup.threads_for(81, 100, None) == 1
    assert startup.threads_for(101, 1000, 20 * 101) == 1
    assert startup.threads_for(10**6, 1000, None) == startup.cores()


class Allocator:
    """Remembers what it was told."""

    def __init__(self, library: None):
        self.told: list[tuple[int, int]] = []
        TOLD.append(self.told)

    def mallopt(self, name: int, value: int) -> int:
        self.told.append((name, value))
        return 1


TOLD: list[list[tuple[int, int]]] = []


@pytest.mark.parametrize(
    ("given", "kept"), [({"OMP_WAIT_POLICY": "ACTIVE"}, True), ({"MALLOC_ARENA_MAX": "1"}, False)], ids=str
)
def test_threads_sleep_and_memory_is_kept_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], kept: bool
) -> None:
    monkeypatch.setattr(sys, "modules", {name: part for name, part in sys.modules.items() if name != "torch"})
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(startup.ctypes, "CDLL", Allocator)
    monkeypatch.setattr(os, "environ", dict(given))
    TOLD.clear()
    startup.before_torch()
    assert os.environ == {**startup.PASSIVE, **given}
    assert TOLD == ([[startup.NO_MMAP, startup.NO_TRIM]] if kept else [])


PROGRAM = """
import os, sys
sys.argv[1:] = ["train", "--dataset", "two-moons", "--hidden", "4", "--steps", "1", "--quiet", *sys.argv[1:]]
from fullcert.cli.command import main
try:
    main()
except SystemExit as end:
    import torch
    print(end.code, torch.get_num_threads(), os.environ["OMP_WAIT_POLICY"])
"""


@pytest.mark.parametrize(("flags", "threads"), [((), 1), (("--threads", "2"), 2)], ids=["by-work", "wanted"])
def test_the_command_sets_threads_before_torch_is_there(flags: tuple[str, ...], threads: int) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    command = [sys.executable, "-c", PROGRAM, *flags]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.stdout.split() == ["0", str(threads), "PASSIVE"], result.stderr


def test_a_run_refuses_no_threads() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "fullcert", "train", "--threads", "0"], capture_output=True, text=True
    )
    assert result.returncode == 2 and "threads" in result.stderr


TYPED_WRONG = """
import sys
from fullcert.cli.application import run
from fullcert.system.mistakes import Mistake
for case in [
    ["audit", "nowhere"], ["audit", ".", "no.csv"], ["audit", ".", "--verified", "no.csv"], ["attack", "nowhere"],
    ["attack", ".", "--out", "no/x.npz"], ["verify", "nowhere"], ["verify", ".", "--key", "no.pub"],
    ["sign", "nowhere", "--key", "no"], ["sign", ".", "--key", "no"], ["certify", "nowhere", "no.csv"],
    ["certify", "nowhere", "--withstands"],
    ["report", "nowhere"], ["inspect", "no.csv"], ["train", "--data", "no.csv", "--target", "x"],
    ["train", "--config", "no.toml"], ["tune", "--data", "no.csv", "--target", "x"], ["tune", "--out", "no/x.toml"],
    ["sweep", "--data", "no.csv", "--target", "x", "--flips", "1"], ["sweep", "--flips", "1", "--recipe", "no.toml"],
    ["bench", "--json", "no/x.json"], ["reproduce", "epsilon", "--figure", "no/x.svg"],
]:
    try:
        run(case)
    except Mistake as mistake:
        assert len(str(mistake).splitlines()) == 1, case
    else:
        raise AssertionError(f"{case} went through")
    assert "torch" not in sys.modules, case
"""


def test_a_path_that_is_typed_wrong_is_told_before_torch_is_imported(tmp_path: object) -> None:
    """Which takes seconds, and a typed error is answered in less than one."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", TYPED_WRONG]
    result = subprocess.run(command, cwd=str(tmp_path), env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr


def test_the_names_of_attacks_are_those_of_the_library() -> None:
    from boundflow.attacks import ATTACKS
    from fullcert.cli.attack import NAMES

    assert tuple(ATTACKS) == NAMES
