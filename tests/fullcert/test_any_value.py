"""Any option with any value: the command runs, or says in one sentence what is wrong, and never shows a traceback.

Values are words, numbers at the edges of what floats and whole numbers are, and amounts of columns. Of all pairs some
are drawn; with BOUNDFLOW_THOROUGH=1 all are tried.
"""

import itertools
import os
import random
from dataclasses import fields
from pathlib import Path

import pytest
from commands import Command

from fullcert.experiment.options import Options, flag_of

NUMBERS = (*("", "0", "1", "-1", "2", "0.5", "1e308", "1e-308", "1e-320", "nan", "inf", "-inf"), "9" * 20, "1e5", "2,0")
WORDS = (
    *("abc", "None", "true", "age", "income", "a,b", "1,2", "/dev/null", "/", ".", ":make", "net.py:", "x" * 5000),
)
MARKS = ("-", "*", "--help", "=1")
AMOUNTS = tuple(
    f"age={amount}"
    for amount in ("", "1", "1e308", "1e-320", "0:1e-320", "1e308:1e-308", "nan:1", "-5:5", "5:-5", "10%", "1e400%")
)
VALUES = (*NUMBERS, *WORDS, *MARKS, *AMOUNTS)
THREATS = ([], ["--flip-labels", "1"], ["--epsilon", "0.01"], ["--remove", "1"], ["--any-category", "town"])
FLAGS = (*(flag_of(field.name) for field in fields(Options)), "--out", "--threads", "--json", "--tensorboard")
FOUND = (  # which were tracebacks
    *(("--encoding", "abc"), ("--steps", "9" * 20), ("--batch-size", "9" * 20), ("--threads", "9" * 20)),
    *(("--memory", "1e308"), ("--scale", "age=0:1e-320"), ("--scale", "age=1e308:1e-308")),
)


def tried() -> list[tuple[str, str]]:
    pairs = list(itertools.product(FLAGS, VALUES))
    if "BOUNDFLOW_THOROUGH" in os.environ:
        return pairs
    return sorted({*FOUND, *random.Random(0).sample(pairs, 120)})


@pytest.mark.filterwarnings("ignore")
def test_any_value_is_taken_or_refused_in_one_sentence(
    command: Command, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = ["train", "--data", table, "--target", "income", "--steps", 1, "--epochs", 1, "--memory", 0.3, "--quiet"]
    wrong = []
    for number, (flag, value) in enumerate(tried()):
        try:
            asked = command(*before, *THREATS[number % len(THREATS)], flag, value)
        except Exception as error:
            wrong.append((flag, value[:40], repr(error)[:200]))
            continue
        if asked.code not in (0, 2) or (asked.code == 2 and len(asked.err.splitlines()) != 1):
            wrong.append((flag, value[:40], asked.err[-200:]))
    assert not wrong
