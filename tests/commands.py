"""For tests of the command: running it in this process, the one sentence of a mistake, and a small table of people."""

import csv
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fullcert.cli.command import main


class Result(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Result]


def run_main(*arguments: object) -> int:
    """The exit code of the command; what it prints goes where this process prints."""
    before, sys.argv = sys.argv, ["fullcert", *map(str, arguments)]
    try:
        main()
    except SystemExit as left:
        return int(left.code or 0)
    finally:
        sys.argv = before
    raise AssertionError("the command did not exit")


def sentence(result: Result) -> str:
    """The one sentence of a mistake, which is all that was printed."""
    lines = result.err.splitlines()
    assert result.code == 2 and result.out == "" and len(lines) == 1 and lines[0].startswith("fullcert: "), result
    return lines[0].removeprefix("fullcert: ")


def as_nobody(*arguments: object) -> Result:
    """The command, run by a user who may not do everything."""
    outward, out = os.pipe()
    onward, err = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        code = 99
        try:
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            code = run_main(*arguments)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    os.close(out)
    os.close(err)
    with os.fdopen(outward) as said, os.fdopen(onward) as told:
        words = said.read(), told.read()
    return Result(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), *words)


# --- tables ---------------------------------------------------------------------------------------------------

Columns = dict[str, list[Any]]


def people(count: int = 90, seed: int = 0) -> Columns:
    """Age, hours, town and pay of people; those who are older and work more earn much."""
    random = np.random.RandomState(seed)
    age, hours = random.randint(20, 70, count), random.randint(10, 60, count)
    town = random.choice(["north", "south", "west"], count)
    pay = age / 10 + hours / 10 + 2.0 * (town == "north") + random.normal(0, 0.5, count)
    rich = np.where(pay > np.median(pay), "much", "little")
    return {
        "age": [int(value) for value in age],
        "hours": [int(value) for value in hours],
        "town": [str(value) for value in town],
        "pay": [round(float(value), 3) for value in pay],
        "income": [str(value) for value in rich],
    }


def write_csv(path: Path, columns: Mapping[str, Sequence[Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path
