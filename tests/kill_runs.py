"""Kill runs at random moments, resume them, and compare every byte with a run that nobody disturbed.

    python tests/kill_runs.py                                          # 200 kills, 50 and 50 of the others
    python tests/kill_runs.py --kill 50 --terminate 12 --full-disk 12 --seed 7    # fewer, at other moments

    kill        SIGKILL, which nothing can answer: the folder is as the disk has it, half-written files included
    terminate   SIGTERM, answered with a checkpoint
    full disk   no file may grow beyond some size: the options, the steps, a checkpoint or the report do not fit

A run has up to three faults, and goes on after each. What comes when a run has ended already does not count.
Checkpoints are written after every step here, so that faults fall into them. Each run is a process forked from this
one, which has made the run once and imported everything: most of the time is spent in runs and not before them.
"""

import argparse
import inspect
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from commands import run_main

import boundflow as bf

FLAGS = ("--dataset", "iris", "--epochs", "8", "--batch-size", "15", "--lr", "0.3", "--epsilon", "0.0001", "--quiet")
FAULTS = {"kill": 200, "terminate": 50, "full disk": 50}
TERMINATED = 128 + signal.SIGTERM
LEAVES = {  # -SIGTERM: a resumed run that had not begun yet
    "kill": {0, -signal.SIGKILL},
    "terminate": {0, TERMINATED, -signal.SIGTERM},
    "full disk": {0, 2},
    "none": {0},
}
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
    for fault, count in FAULTS.items():
        parser.add_argument(f"--{fault.replace(' ', '-')}", type=int, default=count, dest=fault)
    parser.add_argument("--seed", type=int, default=0, help="of the moments and the order of faults")
    options = vars(parser.parse_args())
    chance = random.Random(options["seed"])
    inspect.unwrap(bf.certify).__kwdefaults__["checkpoint_every"] = 0.0
    left_over, number, began = {fault: options[fault] for fault in FAULTS}, 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run_main("train", *FLAGS, "--out", Path(folder) / "here")
        whole = Path(folder) / "whole"
        seconds, expected = undisturbed(whole), content(whole)
        while any(left_over.values()):
            run, number = Path(folder) / f"run-{number}", number + 1
            for _ in range(min(chance.randint(1, 3), sum(left_over.values()))):
                fault = chance.choices(list(left_over), list(left_over.values()))[0]
                code = disturbed(run, fault, seconds, chance)
                check(run, fault, code)
                if code == 0:
                    break
                left_over[fault] -= 1
            check(run, "none", left(begin(run)))
            compare(run, expected)
            shutil.rmtree(run)
    told = ", ".join(f"{options[fault]} x {fault}" for fault in FAULTS)
    print(f"{told}: {number} runs, each the same in the end, in {(time.monotonic() - began) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
