"""Changes valid files of every reader and reports what the readers do not refuse as they should.

    python tests/fuzz_readers.py                          # every reader for a minute, one after the other
    python tests/fuzz_readers.py npz json --seconds 300   # two of them, five minutes each

A reader may take a file or refuse it with its documented exception (a `Mistake`, or a `BoundFlowError` of the library),
in one line. Any other exception is a finding, and so is a file that takes too long, or a reader that takes more than a
gigabyte of memory, torch and everything else included. Each reader has a process of its own. `readers.py` has them.
"""

import argparse
import contextlib
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from readers import NAMES, File, Readers, Unwritable

import boundflow as bf
from fullcert.system.mistakes import Mistake

SLOW = 20.0  # seconds that no small file should take
MOST = 10**9  # bytes of memory


@dataclass
class Findings:
    """What was tried, and what came out that should not have."""

    tried: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def once(file: File, folder: Path, pick: random.Random, found: Findings) -> None:
    """One changed file."""
    path = folder / file.name
    try:
        path.write_bytes(file.change(file.valid, pick))
    except Unwritable:
        return
    attempt(file, path, found)


def attempt(file: File, path: Path, found: Findings) -> None:
    """Read a file, and note what it should not have done."""
    found.tried[file.name] = found.tried.get(file.name, 0) + 1
    before, began = len(found.wrong), time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            file.read(path)
        found.taken[file.name] = found.taken.get(file.name, 0) + 1
    except (Mistake, bf.BoundFlowError) as refusal:
        if "\n" in str(refusal):
            found.wrong.append(f"{file.name}: more than a line: {refusal!r}")
    except Exception as error:
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = "" if place is None else f" at {Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}"
        found.wrong.append(f"{file.name}: {type(error).__name__}{where}: {str(error)[:200]}")
    if time.monotonic() - began > SLOW:
        found.wrong.append(f"{file.name}: took {time.monotonic() - began:.0f} s")
    if len(found.wrong) > before:
        with contextlib.suppress(OSError):
            shutil.copy(path, path.with_name(f"wrong-{len(found.wrong)}-{path.name}"))


def fuzz(readers: Readers, name: str, seed: int, seconds: float, most: int | None = None) -> Findings:
    """Change the files of a reader for so many seconds, or so many of them; first each as it is, which is taken."""
    pick, files, found = random.Random(f"{name} {seed}"), readers.files(name), Findings()
    place = readers.folder / f"changed-{name}"
    place.mkdir()
    for file in files:
        (place / file.name).write_bytes(file.valid)
        file.read(place / file.name)
    until, count = time.monotonic() + seconds, 0
    while time.monotonic() < until and (most is None or count < most):
        once(files[count % len(files)], place, pick, found)
        count += 1
    return found


def told(name: str, seed: int, seconds: float) -> int:
    """Fuzz one reader and print what was found; 1 if anything was."""
    folder = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
    found = fuzz(Readers(folder), name, seed, seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 2**10
    if peak > MOST:
        found.wrong.append(f"{name}: took {peak:,} bytes of memory")
    kinds = ", ".join(f"{kind} {count} ({found.taken.get(kind, 0)} taken)" for kind, count in found.tried.items())
    print(f"{name}: {sum(found.tried.values())} files, {len(found.wrong)} findings, peak {peak / 1e6:,.0f} MB: {kinds}")
    if found.wrong:
        print(*found.wrong, f"files in {folder}", sep="\n  ", flush=True)
        return 1
    shutil.rmtree(folder)
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", help=f"some of {', '.join(NAMES)}; all if left out")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each reader")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    codes = []
    for name in chosen.readers or NAMES:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            code = 99
            try:
                code = told(name, chosen.seed, chosen.seconds)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    sys.exit(any(codes))


if __name__ == "__main__":
    main()
