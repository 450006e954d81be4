"""`python -m fullcert.reproduce ID`: as `fullcert reproduce`, on a machine that has torch and numpy alone."""

import argparse
import sys
from pathlib import Path

from fullcert.reproduce import writing
from fullcert.reproduce.experiments import Scale, load
from fullcert.reproduce.page import write as write_page
from fullcert.reproduce.running import DOMAINS, FOLDER, Request
from fullcert.system.jobs import Progress, time_left
from fullcert.system.mistakes import Mistake


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m fullcert.reproduce", description="Published figures and tables, and ours."
    )
    made.add_argument("ids", nargs="*", metavar="ID", help="which experiments; --list shows them")
    made.add_argument("--list", action="store_true", help="show the experiments")
    made.add_argument("--all", action="store_true", help="all experiments, one after the other")
    made.add_argument("--quick", action="store_true", help="two seeds, few epochs: not to be compared")
    made.add_argument("--seeds", type=int, help="the first so many seeds only")
    made.add_argument("--domain", choices=DOMAINS, default="both")
    made.add_argument("--recipe", help="the cases of one recipe only, such as paper or best")
    made.add_argument("--finished", action="store_true", help="run nothing: show what is finished in --out")
    made.add_argument(
        "--out", type=Path, default=FOLDER, help="folder for finished values; what is there is not run again"
    )
    made.add_argument("--rows", type=Path, help="take rows from this JSON instead of running")
    made.add_argument("--device", default="cpu")
    made.add_argument("--jobs", type=int, default=1, help="processes")
    made.add_argument("--json", help="file for the rows; - is standard output")
    made.add_argument("--csv", type=Path)
    made.add_argument("--latex", type=Path)
    made.add_argument("--page", type=Path, help="write this page from the rows in the folder of its name, and end")
    made.add_argument("--figure", type=Path, help=".svg, .pdf or .png (needs matplotlib)")
    return made


def main(arguments: list[str] | None = None) -> int:
    options = vars(parser().parse_args(arguments))
    page = options.pop("page")
    if options.pop("list") or not (options["ids"] or options["all"] or page):
        for one in load().values():
            print(f"{one.id:20s} {one.title} ({one.source})")
        return 0
    scale = Scale(options.pop("quick"), options.pop("seeds"), options.pop("domain"), options.pop("recipe"))
    options["only_finished"] = options.pop("finished")
    try:
        if page is not None:
            write_page(page)
            return 0
        rows = Request(everything=options.pop("all"), scale=scale, **options).perform(tell)
    except Mistake as mistake:
        print(f"fullcert: {mistake}", file=sys.stderr)
        return 2
    if options["json"] != "-":
        print(f"\n{writing.shown(rows, scale.quick)}", end="")
    return 0


def tell(progress: Progress) -> None:
    print(
        f"{progress.done}/{progress.total}, {time_left(progress.seconds_left)}: {progress.now}",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
