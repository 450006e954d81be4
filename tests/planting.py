"""Bugs planted in a copy of the packages, and the tests that fail there: what every tool that plants bugs shares.

A process that has PyTorch and pytest loaded, but nothing of ours, forks for every run of tests: a bug costs what its
tests cost, and about a second. A run that does not end, or that wants more memory than there is, has failed too.
"""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = ("boundflow", "fullcert")
PASSED, FAILED, INTERRUPTED, MISUSED, EMPTY = 0, 1, 2, 4, 5  # exit codes of pytest; a name it does not find is misuse
DOES_NOT_RUN = re.compile(r"(?:Name|UnboundLocal|Attribute|Syntax|Indentation|Import)Error")
LOADED: tuple[str, ...] = (
    "torch",
    "numpy",
    "pytest",
    "hypothesis",
    "hypothesis.extra.numpy",
    "sklearn.utils.estimator_checks",
)
LOADED += ("matplotlib.figure", "typer", "rich", "jinja2", "safetensors.torch", "pyarrow.parquet", "cryptography")
MEMORY = 8 * 2**30  # bytes of addresses that a run of tests may have
SILENT = 600  # seconds without the end of a test
SLOW = 20.0  # seconds of a core for a test, beside ten times what it usually takes


class Nonsense(Exception):
    """A planted bug that does not run."""


class Failure(NamedTuple):
    test: str
    why: str


def copied(folder: str | Path, changed: dict[str, Callable[[str], str]]) -> None:
    """The packages in another folder, with the text of some files changed."""
    os.chmod(folder, 0o755)  # some tests run the command as a user who may not do everything
    for name in PACKAGES:
        shutil.copytree(
            ROOT / name, Path(folder) / name, dirs_exist_ok=True
        )  # with what Python made of them, and times
    for file, change in changed.items():
        path = Path(folder) / file
        path.write_bytes(change(path.read_bytes().decode()).encode())
        compiled = path.parent / "__pycache__"
        for old in compiled.glob(f"{path.stem}.*"):
            old.unlink()


def failing(folder: str | Path, tests: Sequence[str | tuple[str, float]], forgotten: bool = False) -> Failure | None:
    """The first of the tests that fails on the packages in this folder. ``forgotten``: a test may be there no more.

    Tests come as pytest takes them, or with the seconds they usually take: ``(test, seconds)``.
    """
    result = _server().run(str(folder), tests)
    if result["code"] == MISUSED and not forgotten:  # the bug changes what a test is called
        files = dict.fromkeys(_name(test).partition("::")[0] for test in tests)
        result = _server().run(str(folder), list(files))
    if result["code"] == PASSED or (forgotten and result["code"] in (MISUSED, EMPTY)):
        return None
    if result.get("test") is None:
        raise SystemExit(f"pytest did not run: {result}")
    if DOES_NOT_RUN.match(result["why"]):
        raise Nonsense(result["why"])
    return Failure(result["test"], result["why"])


def failing_without_a_bug(tests: Sequence[str]) -> str | None:
    """One of the tests that caught something but fails on the packages as they are."""
    with tempfile.TemporaryDirectory() as folder:
        copied(folder, {})
        failure = failing(folder, tests) if tests else None
    return failure.test if failure else None


def _name(test: str | Sequence[Any]) -> str:
    return test if isinstance(test, str) else str(test[0])


# --- the process that forks -----------------------------------------------------------------------------------------

_servers = threading.local()


def _server() -> _Server:
    if not hasattr(_servers, "here"):
        _servers.here = _Server()
    return _servers.here  # type: ignore[no-any-return]


class _Server:
    """One for each thread: it is asked in lines of JSON, and answers in lines of JSON."""

    def __init__(self) -> None:
        for name in PACKAGES:
            compileall.compile_dir(ROOT / name, quiet=2)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": ""}
        command = [sys.executable, __file__]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
        )

    def run(self, folder: str, tests: Sequence[str | tuple[str, float]]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([folder, tests]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())  # type: ignore[no-any-return]


def _serve() -> None:
    for name in LOADED:
        with contextlib.suppress(ImportError):
            __import__(name)
    for line in sys.stdin:
        folder, tests = json.loads(line)
        Path(folder, "result.json").unlink(missing_ok=True)
        child = os.fork()
        if not child:
            try:
                _run(folder, tests)
            finally:
                os._exit(99)
        code = _ended(child, Path(folder, "ticks"))
        found = Path(folder, "result.json")
        result = json.loads(found.read_text()) if found.exists() else {"test": None, "why": f"left with {code}"}
        if result["test"] is None and code in (-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT):
            result["test"] = Path(folder, "ticks").read_text() or tests[0]
        print(json.dumps({**result, "code": code}), flush=True)


def _ended(child: int, ticks: Path) -> int:
    """The exit code of a run; one that says nothing for long is killed, with what it started."""
    begin = time.time()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            return os.waitstatus_to_exitcode(status)
        heard = ticks.stat().st_mtime if ticks.exists() else begin
        if time.time() - max(heard, begin) > SILENT:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.02)


def _run(folder: str, tests: list[Any]) -> None:
    """In the child: run the tests on the packages in this folder."""
    import pytest

    os.setsid()
    os.chdir(folder)
    out = os.open("output", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    empty = os.open(os.devnull, os.O_RDONLY)
    for old, new in ((0, empty), (1, out), (2, out)):
        os.dup2(new, old)
    os.environ["PYTHONPATH"] = folder
    sys.path[0:1] = [folder, str(ROOT / "tests")]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    named = [_name(test) for test in tests]
    watch = _Watch({test[0]: test[1] for test in tests if not isinstance(test, str)})
    options = ["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", f"--basetemp={folder}/tmp", f"--rootdir={ROOT}"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-c", str(ROOT / "pyproject.toml")]
    options += ["-o", f"pythonpath={folder} {ROOT / 'tests'}"]
    code = pytest.main([*options, *(f"{ROOT}/{name.removeprefix(f'{ROOT}/')}" for name in named)], plugins=[watch])
    os._exit(int(code))


class _Watch:
    """Notes the first failure, and ends what does not end."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds, self.now = seconds, ""
        signal.signal(signal.SIGPROF, self.too_long)

    def note(self, test: str, why: str) -> None:
        if not Path("result.json").exists():
            Path("result.json").write_text(json.dumps({"test": test, "why": why[:300]}))

    def too_long(self, *_: object) -> None:
        self.note(self.now, "does not end")
        os._exit(FAILED)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.now = nodeid
        Path("ticks").write_text(nodeid)
        signal.setitimer(signal.ITIMER_PROF, SLOW + 10 * self.seconds.get(nodeid, 30.0))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.note(report.nodeid, crash.message if crash is not None else str(report.longrepr))

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.note(report.nodeid, str(report.longrepr).rpartition("\nE ")[2].strip() or str(report.longrepr))


if __name__ == "__main__":
    _serve()
