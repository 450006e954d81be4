"""Run the commands of docs/howto/wrong-labels.md on Adult, one after the other, and write a row for each.

    BOUNDFLOW_DATA=folder-with-adult python benchmarks/wrong_labels.py --json docs/figures/wrong-labels.json

A row is what the command prints with ``--json``, without its long lists, beside the command itself and the seconds
of processor time it took. The curve has a row for each number of wrong labels. About a quarter of an hour of one core.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FLIPS = "5,10,20,50,100"
# columns with "?", and the most frequent word of each, which fills its cells
WORDS = {"workclass": "Private", "occupation": "Prof-specialty", "native-country": "United-States"}
UNKNOWN = ("--missing-mark", "?", *(part for column in WORDS for part in ("--missing", column)))
LISTS = ("by_point", "predictions", "rows", "settles", "advice")


def used() -> float:
    """Seconds of processor time of all commands that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def ran(case: str, folder: Path, *command: str) -> dict[str, Any]:
    """What a command prints, and what it took."""
    before = used()
    arguments = [sys.executable, "-m", "fullcert", *command, "--quiet", "--json", "-"]
    result = subprocess.run(arguments, stdout=subprocess.PIPE, text=True, cwd=folder)
    if result.returncode:
        sys.exit(result.returncode)  # it has said why
    row = {"case": case, "command": " ".join(("fullcert", *command)), "processor_seconds": round(used() - before, 1)}
    print(row, flush=True)
    return row | short(json.loads(result.stdout))


def short(found: dict[str, Any]) -> dict[str, Any]:
    """What was found, with the number of entries in place of long lists."""
    kept = {name: len(value) if name in LISTS else value for name, value in found.items()}
    return {name: short(value) if isinstance(value, dict) else value for name, value in kept.items()}


def fill(path: Path) -> None:
    """Write the most frequent word into every cell that is missing in a row of the list."""
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    for row in rows:
        for column, word in WORDS.items():
            if column in header and column in row[header.index("missing")]:
                row[header.index(column)] = word
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="adult", help="another one for a quick look: without the missing cells")
    parser.add_argument("--flips", default=FLIPS)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = ("--dataset", given.dataset)
        audited = given.flips.split(",")[-2]  # the largest run answers for all budgets, this one about its rows
        swept = ran("sweep", folder, "sweep", *data, "--flips", given.flips, "--out", "stands")
        (curve,) = swept.pop("curves")
        rows = [swept | {"withstands": curve["withstands"], "nominal_accuracy": curve["nominal_accuracy"]}]
        rows += [{"case": "curve", **point} for point in curve["points"]]
        run = str(next(folder.glob(f"stands/runs/flip-labels-{audited}-*")).relative_to(folder))
        rows.append(ran("attack", folder, "attack", run, "--targets", "10", "--steps", "1", "--restarts", "1"))
        rows.append(ran("audit", folder, "audit", run, "--budget", "50"))
        if given.dataset == "adult":
            rows.append(ran("unknown", folder, "train", *data, *UNKNOWN, "--out", "unknown"))
            rows.append(ran("fill", folder, "audit", "unknown", "--budget", "50", "--out", "fill.csv"))
            fill(folder / "fill.csv")
            rows.append(ran("filled", folder, "audit", "unknown", "--verified", "fill.csv"))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
