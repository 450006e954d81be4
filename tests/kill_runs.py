"""Kill runs at random moments, resume them, and compare every byte with a run that nobody disturbed.

    python tests/kill_runs.py 100              # a hundred runs, each with up to three faults
    python tests/kill_runs.py 100 --seed 7     # other moments

    kill        SIGKILL, which nothing can answer: the folder is as the disk has it, half-written files included
    terminate   SIGTERM, answered with a checkpoint
    full disk   no file may grow beyond some size: the options, the steps, a checkpoint or the report do not fit

Checkpoints are written after every step here, so that faults fall into them. Each run is a process forked from this
one, which has imported everything already: most of the time is spent in runs and not before them.
"""

import argparse
import importlib
import inspect
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from commands import run_main

import boundflow as bf

FLAGS = ("--dataset", "iris", "--epochs", "8", "--batch-size", "15", "--lr", "0.3", "--epsilon", "0.0001", "--quiet")
FAULTS = ("kill", "terminate", "full disk")
TERMINATED = 128 + signal.SIGTERM
LEAVES = {  # -SIGTERM: a resumed run that had not begun yet
    "kill": {0, -signal.SIGKILL},
    "terminate": {0, TERMINATED, -signal.SIGTERM},
    "full disk": {0, 2},
    "none": {0},
}
IMPORTED = ("fullcert.commands", "fullcert.training", "fullcert.evaluation", "fullcert.report")
LARGEST = 200_000  # bytes: most files of the run are smaller


def begin(run: Path, limit: int | None = None) -> int:
    """Start the run, or go on with it, in a process of its own."""
    resume = ["--resume"] if (run / "options.toml").exists() else []
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        words = os.open(said(run), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(words, 1)
        os.dup2(words, 2)
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        code = run_main("train", *(() if resume else FLAGS), *resume, "--quiet", "--out", run)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def said(run: Path) -> Path:
    """Where a process writes what it has to say."""
    return run.with_name(f"{run.name}.said")


def has_made_a_step(run: Path) -> bool:
    path = run / "metrics.jsonl"
    return path.exists() and path.stat().st_size > 0


def undisturbed(run: Path) -> float:
    """Make the run, and say how many seconds it takes after its first step."""
    child = begin(run)
    while not has_made_a_step(run):
        time.sleep(0.001)
    began = time.monotonic()
    check(run, "none", left(child))
    return time.monotonic() - began


def disturbed(run: Path, fault: str, seconds: float, chance: random.Random) -> int:
    """The exit code of a run with one fault, at a moment of so many seconds after its first step."""
    if fault == "full disk":
        return left(begin(run, round(LARGEST ** chance.uniform(0.4, 1.0))))
    child = begin(run)
    while not has_made_a_step(run):
        time.sleep(0.001)
    time.sleep(chance.uniform(0.0, seconds))
    os.kill(child, signal.SIGKILL if fault == "kill" else signal.SIGTERM)  # one that has ended still waits to be asked
    return left(child)


def left(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def check(run: Path, fault: str, code: int) -> None:
    """One sentence at most, and an exit code that says what has happened."""
    words = said(run).read_text().splitlines()
    if code not in LEAVES[fault] or len(words) != (code in (2, TERMINATED)):
        sys.exit(f"{run}: after {fault} the exit code is {code}, and it says: {' / '.join(words)}")


def content(run: Path) -> dict[str, Any]:
    """All that the run has written, without how long it took; and the names of its files."""
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {
        "names": sorted(path.name for path in run.iterdir()),
        "certificate": (run / "certificate.safetensors").read_bytes(),
        "options": (run / "options.toml").read_bytes(),
        "metrics": {**json.loads((run / "metrics.json").read_text()), "seconds": 0},
        "steps": [(step["step"], step["loss"], step["width"]) for step in steps],
    }


def compare(run: Path, whole: dict[str, Any]) -> None:
    found = content(run)
    different = [name for name in whole if found[name] != whole[name]]
    if different:
        sys.exit(f"{run}: {', '.join(different)} differ from those of the run that was not disturbed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repetitions", type=int)
    parser.add_argument("--seed", type=int, default=0, help="of the moments and the order of faults")
    options = parser.parse_args()
    for name in IMPORTED:
        importlib.import_module(name)
    chance = random.Random(options.seed)
    inspect.unwrap(bf.certify).__kwdefaults__["checkpoint_every"] = 0.0
    count = dict.fromkeys(FAULTS, 0)
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        seconds, expected = undisturbed(whole), content(whole)
        for number in range(options.repetitions):
            run = Path(folder) / f"run-{number}"
            for fault in chance.choices(FAULTS, k=chance.randint(1, 3)) if number else FAULTS:  # each at least once
                code = disturbed(run, fault, seconds, chance)
                check(run, fault, code)
                count[fault] += code != 0
            check(run, "none", left(begin(run)))
            compare(run, expected)
    print(f"{options.repetitions} runs, each the same in the end: {', '.join(f'{n} x {f}' for f, n in count.items())}")


if __name__ == "__main__":
    main()
