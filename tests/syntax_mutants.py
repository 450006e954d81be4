"""Plant bugs that are drawn from the syntax tree of fullcert and of the analyses, and show that the tests catch them.

Run with `make syntax-mutants`, or with words of some bugs: `python tests/syntax_mutants.py tables.py`. What is drawn
says `syntax_bugs.py`: one bug for every thirty lines of every module. Each is tried by the tests that run its lines
(`executed_lines.py`, recorded once), the quick and narrow ones first, then by all other tests of their files; first of
all by the test that caught it the last time, which `syntax_mutants.json` remembers. Prints each bug with the test that
caught it, and exits with 1 if one is neither caught nor in `syntax_mutants_that_stay.py`, where the reasons are.
A bug that does not run, because a name in it is gone, is replaced by the next one of its file.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import executed_lines
import planting
import syntax_bugs
from syntax_bugs import FILES, ROOT, Bug
from syntax_mutants_that_stay import STAYS

REMEMBERED = ROOT / "tests" / "syntax_mutants.json"  # bug -> test, or why it does not run
DOES_NOT_RUN = "DOES NOT RUN: "
TIMED = {"test_help_takes_less_than_half_a_second"}  # of which a copy without compiled files is no measure
AT_ONCE = 60.0  # seconds of tests in one run: those that are tried together

LOCK = threading.Lock()

Timed = tuple[str, float]


def draw(file: str, tests: dict[str, str]) -> Iterator[Bug]:
    """The bugs of a file that are drawn; those that are known not to run are replaced."""
    left = syntax_bugs.count(file)
    for bug in syntax_bugs.drawn(file):
        if left and not tests.get(bug.name, "").startswith(DOES_NOT_RUN):
            left -= 1
            yield bug
        if not left:
            return


@cache
def _record() -> dict[str, dict[str, Any]]:
    if not executed_lines.RECORD.exists():
        raise SystemExit("record first which tests run which lines: .venv/bin/python tests/executed_lines.py")
    found = json.loads(executed_lines.RECORD.read_text())
    return {test: ran for test, ran in found.items() if test.partition("::")[2] not in TIMED}


def tests_of(bug: Bug) -> Iterator[list[Timed]]:
    """Tests that run the lines of a bug, then the others of their files; at the top of a module, all that run it."""
    found = running(bug)
    seconds = {test: ran["seconds"] for test, ran in _record().items()}
    yield from _batches([(test, seconds[test]) for test in sorted(found, key=lambda test: found[test])])
    files = {test.partition("::")[0] for test in found}
    yield from _batches(
        [(test, seconds[test]) for test in seconds if test not in found and test.partition("::")[0] in files]
    )


def running(bug: Bug) -> dict[str, float]:
    """The tests that run the lines of a bug, with how much each takes for what it does in this file.

    Where none does, as of the default value of an argument, they are all that run its function.
    """
    text, found, called = (ROOT / bug.file).read_text(), dict[str, float](), dict[str, float]()
    name, first = executed_lines.function_at(text, bug.lines[0])
    lines = set(range(first, first + bug.lines[1] - bug.lines[0] + 1))
    for test, ran in _record().items():
        of_file = {place: own for place, own in ran["lines"].items() if place.startswith(f"{bug.file} ")}
        here = of_file.get(f"{bug.file} {name}", []) if name else lines if of_file else []
        if here:
            called[test] = (ran["seconds"] + 0.05) * len(ran["lines"]) / len(of_file)
            found |= {test: called[test]} if lines & set(here) else {}
    return found or called


def _batches(tests: list[Timed]) -> Iterator[list[Timed]]:
    batch: list[Timed] = []
    for test in tests:
        batch.append(test)
        if sum(seconds for _, seconds in batch) > AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def tried(bug: Bug, remembered: str | None, most: float) -> Outcome:
    """Plant a bug, and let the tests run until one fails, or until they have taken so many seconds."""
    begin, failure = time.perf_counter(), None
    with tempfile.TemporaryDirectory() as folder:
        planting.copied(folder, {bug.file: bug.planted})
        try:
            if remembered is not None:
                failure = planting.failing(folder, [remembered], forgotten=True)
            for batch in at_most(most, tests_of(bug)) if failure is None else ():
                failure = failure or planting.failing(folder, batch)
        except planting.Nonsense as error:
            failure = planting.Failure(f"{DOES_NOT_RUN}{error}".splitlines()[0], "")
    test, why = failure or (None, "")
    return Outcome(bug, test, " ".join(why.split())[:150], time.perf_counter() - begin)


def at_most(most: float, batches: Iterator[list[Timed]]) -> Iterator[list[Timed]]:
    """Batches of tests until they take so many seconds."""
    spent = 0.0
    for batch in batches:
        kept = []
        for test, seconds in batch:
            spent += seconds
            if spent <= most:
                kept.append((test, seconds))
        if kept:
            yield kept
        if spent > most:
            return


class Outcome(NamedTuple):
    """What became of a bug: the test that caught it, what that said, and the seconds."""

    bug: Bug
    test: str | None
    why: str
    seconds: float

    @property
    def end(self) -> str:
        if self.test is not None:
            return "nonsense" if self.test.startswith(DOES_NOT_RUN) else "caught"
        return "stays" if self.bug.name in STAYS else "ALIVE"

    def told(self) -> str:
        after = self.test or STAYS.get(self.bug.name) or f"{len(running(self.bug))} tests run it"
        lines = [f"{self.end:8s}{self.seconds:5.0f} s  [{self.bug.kind}] {self.bug.name}", after, self.why]
        return f"\n{'':18s}".join(line for line in lines if line)


def of_file(wanted: list[Bug], tests: dict[str, str], most: float) -> list[Outcome]:
    """What became of the bugs of one file, and of those that are drawn for them where they do not run."""
    found, waiting, known = [], list(wanted), {bug.name for bug in wanted}
    while waiting:
        bug = waiting.pop(0)
        outcome = tried(bug, tests.get(bug.name), most)
        found.append(outcome)
        remember(outcome, tests)
        if outcome.end == "nonsense":
            added = [bug for bug in draw(bug.file, tests) if bug.name not in known and bug.name not in tests]
            waiting += added
            known |= {bug.name for bug in added}
        print(outcome.told(), flush=True)
    return found


def remember(outcome: Outcome, tests: dict[str, str]) -> None:
    with LOCK:
        tests.pop(outcome.bug.name, None)
        if outcome.test is not None:
            tests[outcome.bug.name] = outcome.test
        REMEMBERED.write_text(json.dumps(dict(sorted(tests.items())), indent=1) + "\n")


def remembered() -> dict[str, str]:
    """What is known of bugs that are there."""
    tests = json.loads(REMEMBERED.read_text()) if REMEMBERED.exists() else {}
    there = {bug.name for file in FILES for bug in syntax_bugs.bugs(file)}
    return {name: test for name, test in tests.items() if name in there}


def chosen(given: argparse.Namespace, tests: dict[str, str]) -> dict[str, list[Bug]]:
    """File -> bugs to be tried."""
    found = {file: list(draw(file, tests)) for file in FILES}
    every = [bug.name for drawn in found.values() for bug in drawn]
    sample = set(every[:: -(-len(every) // given.sample)]) if given.sample else set(every)

    def wanted(bug: Bug) -> bool:
        known = given.new and (bug.name in tests or bug.name in STAYS)
        return not known and bug.name in sample and (not given.words or any(word in bug.name for word in given.words))

    return {file: [bug for bug in drawn if wanted(bug)] for file, drawn in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--new", action="store_true", help="only bugs that no test is remembered for and nobody judged")
    parser.add_argument("--list", action="store_true", help="print the bugs and what is remembered of each, and end")
    parser.add_argument("--sample", type=int, help="only so many of them, spread over all files")
    parser.add_argument("--seconds", type=float, default=math.inf, help="at most so many of tests for a bug")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("words", nargs="*", help="only bugs whose file, function or line has one of these words")
    given, begin, tests = parser.parse_args(), time.perf_counter(), remembered()
    wanted = chosen(given, tests)
    if given.list:
        for bug in (bug for drawn in wanted.values() for bug in drawn):
            print(f"[{bug.kind}] {bug.name}\n    {tests.get(bug.name) or STAYS.get(bug.name) or '-'}")
        return
    with ThreadPoolExecutor(given.jobs) as pool:
        rows = [
            row for rows in pool.map(lambda bugs: of_file(bugs, tests, given.seconds), wanted.values()) for row in rows
        ]
    ends, minutes = Counter(row.end for row in rows), (time.perf_counter() - begin) / 60
    print(
        f"{len(rows)} drawn bugs in {minutes:.1f} minutes: {', '.join(f'{n} {end}' for end, n in ends.most_common())}"
    )
    broken = planting.failing_without_a_bug(sorted({row.test for row in rows if row.end == "caught" and row.test}))
    if broken:
        print(f"{broken} fails without a bug, so what it caught does not count")
    raise SystemExit(1 if ends["ALIVE"] or broken else 0)


if __name__ == "__main__":
    main()
