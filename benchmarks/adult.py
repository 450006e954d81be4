"""What the command certifies on Adult (census income), a table of 32,561 people with numbers and words.

Three cases: an attacker who flipped some of the training labels; ages and weekly hours that are known to within one
year and one hour, in training and at test; and "?" as what it says, a category that nobody knows, which may have been
any of its column (in 7 % of the rows, of training and of test). The table is written as two CSV files, as a user would
have it, and `fullcert train` is run on them; each of the first two cases takes about one minute on two CPU cores:

    BOUNDFLOW_DATA=folder-with-adult python benchmarks/adult.py --json out.json
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fullcert.data.datasets import adult_columns
from fullcert.system.mistakes import Mistake

FLIPS = 50
CASES: dict[str, tuple[str, ...]] = {
    "flips": ("--flip-labels", str(FLIPS)),
    # hours vary by 12.3, and with an hour more or less the nearest power of two is not sure: so it is fixed beforehand
    "tolerances": ("--tolerance", "age=1", "--tolerance", "hours-per-week=1", "--scale", "hours-per-week=40:16"),
    "missing": (
        "--missing-mark",
        "?",
        "--missing",
        "workclass",
        "--missing",
        "occupation",
        "--missing",
        "native-country",
    ),
}


def write_csv(path: Path, columns: Mapping[str, np.ndarray], rows: int | None) -> Path:
    """The first rows of a table, with a header."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(column[:rows] for column in columns.values()), strict=True))
    return path


def measure(case: str, train: Path, test: Path, steps: int, out: Path) -> dict[str, Any]:
    """The metrics of one case, by the command in a process of its own."""
    arguments = ["--data", str(train), "--test-data", str(test), "--target", "income", "--steps", str(steps)]
    command = [sys.executable, "-m", "fullcert", "train", *arguments, *CASES[case], "--out", str(out)]
    result = subprocess.run([*command, "--quiet", "--json", "-"], stdout=subprocess.PIPE, text=True)
    if result.returncode:
        sys.exit(result.returncode)  # it has said why
    metrics = json.loads(result.stdout)
    columns = json.loads((out / "columns.json").read_text())["columns"]
    return {"case": case, **metrics, "declared": [c["name"] for c in columns if c["source"].startswith("declared")]}


def show(results: list[dict[str, Any]]) -> None:
    """The results as a table."""
    print(f"{'case':<12}{'nominal':>9}{'certified':>11}{'robust':>8}{'steps':>7}{'seconds':>9}  declared columns")
    for found in results:
        shares = (found[name] for name in ("nominal_accuracy", "certified_accuracy", "certified_robustness"))
        nominal, certified, robust = (f"{share:.1%}" for share in shares)
        declared = ", ".join(found["declared"]) or "none"
        print(f"{found['case']:<12}{nominal:>9}{certified:>11}{robust:>8}", end="")
        print(f"{found['steps']:>7}{found['seconds']:>9.1f}  {declared}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rows", type=int, help="only so many rows of training and of test, for a quick look")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args()
    try:
        tables = adult_columns(Path(os.environ.get("BOUNDFLOW_DATA", "data")))
    except Mistake as mistake:
        parser.error(str(mistake))
    with tempfile.TemporaryDirectory() as folder:
        train, test = (
            write_csv(Path(folder) / f"adult-{name}.csv", columns, options.rows)
            for name, columns in zip(("train", "test"), tables, strict=True)
        )
        results = [measure(case, train, test, options.steps, Path(folder) / case) for case in options.case]
    show(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
