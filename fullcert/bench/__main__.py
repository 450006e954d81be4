"""`python -m fullcert.bench`: as `fullcert bench`, on a machine that has torch and numpy alone."""

import argparse
import sys
from pathlib import Path

from fullcert.bench.cases import load
from fullcert.bench.page import write
from fullcert.bench.running import HEADS, Request, cells
from fullcert.system.mistakes import Mistake


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m fullcert.bench", description="How long bounds take.")
    made.add_argument("--case", action="append", default=[], dest="cases", help="which cases; --list shows them")
    made.add_argument("--list", action="store_true", help="show the cases")
    made.add_argument("--json", help="file for the rows; - is standard output")
    made.add_argument("--page", type=Path, help="write this page from the rows in the folder of its name, and end")
    return made


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        if options.page is not None:
            write(options.page)
            return 0
        if options.list:
            for one in load().values():
                print(f"{one.name:26s} {one.title}")
            return 0
        rows = Request(options.cases, options.json).perform(lambda now: print(now, file=sys.stderr, flush=True))
    except Mistake as mistake:
        print(f"fullcert: {mistake}", file=sys.stderr)
        return 2
    if options.json != "-":
        print("  ".join(f"{head:>12s}" for head in HEADS))
        for row in rows:
            print("  ".join(f"{cell:>12s}" for cell in cells(row)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
