"""How many planted wrong labels are among the first that fullcert audit --suspects lists, beside cross-validation.

    PYTHONPATH=.:tests:tests/fullcert python benchmarks/suspects.py --draws 10 --json suspects.json

A row is 5,000 rows of a table with 58 labels exchanged: of customers, drawn anew each time, and of Adult, the next
5,000 rows each time. The cross-validated logistic regression is scikit-learn's with its columns scaled.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import test_suspects as test

from fullcert.data import suspects
from fullcert.experiment import tasks
from fullcert.experiment.options import resolve


def row(name: str, rows: tuple[np.ndarray, np.ndarray], seed: int) -> dict[str, int | str]:
    """What both find of one planting."""
    inputs, labels = rows
    made, wrong = test.planted(labels, seed)
    first = suspects.of_labels(inputs, made, 2).first(len(wrong))
    found = {"suspects": len(np.intersect1d(first, wrong))}
    for parts in (5, 10):
        found[f"cross-validation in {parts}"] = test.found_by_cross_validation(inputs, made, wrong, parts)
    return {"table": name, "draw": seed, "planted": len(wrong), **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(given.draws):
            rows.append(row("customers", test.customers(Path(folder), seed), seed))
            print(rows[-1], flush=True)
    if (Path(given.data_dir) / "adult").exists():
        train = tasks.load(resolve({"dataset": "adult", "data_dir": given.data_dir}, {})).data.train
        for seed in range(min(given.draws, len(train.labels) // test.ROWS)):
            part = slice(test.ROWS * seed, test.ROWS * (seed + 1))
            rows.append(row("adult", (train.inputs[part], train.labels[part]), seed))
            print(rows[-1], flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
