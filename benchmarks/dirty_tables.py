"""Train on a dirty table and on the clean one: what is settled on the first cannot differ on the second.

    python benchmarks/dirty_tables.py --data-dir /path/with/dirty-tables --json dirty.json

The first pair is Breast Cancer Wisconsin of the REIN benchmark of data cleaning: nine measurements, whole numbers from
1 to 10. Cells that are none are unknown; of all others at most so many are wrong, column by column, and so many
classes. The budgets are what is really wrong, which the clean table tells. Where a threat leaves some of that out, the
clean table is none of its tables, and what is settled could differ. Without a clip a wrong cell may be out of the
range, which is what a tolerance of the command says. A row of the result is one threat and number of steps: what is
certified, how many answers of the clean training differ at all, and how many of the settled ones.

The second pair, NASA's airfoils, is a regression: five columns with the ranges that the experiment had, and a sound
level in decibels. No number is certain: a row says how wide bounds are, and how many answers of the clean training lie
outside of them.
"""

import argparse
import csv
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import boundflow as bf

LEAST, MOST = 1.0, 10.0  # of a measurement
CENTER, SCALE = 5.5, 3.0  # fixed beforehand
STEPS = (1, 2, 3, 5)
RANGE = ((LEAST - CENTER) / SCALE, (MOST - CENTER) / SCALE)
# of airfoils: the ends of frequency, angle, chord length, velocity and thickness; levels around so many decibels, in
# tens
AIRFOIL_STEPS = (1, 2)
AIRFOIL = ((200.0, 20000.0), (0.0, 22.2), (0.0254, 0.3048), (31.7, 71.3), (0.000400682, 0.0584113))
LEVEL, LEVELS = 125.0, 10.0


class Pair(NamedTuple):
    """Both tables as inputs, NaN where no measurement stands, with labels; and rows of the clean one to test with."""

    dirty: tuple[Tensor, Tensor]
    clean: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]

    @property
    def silent(self) -> list[int]:
        """How many cells of each column hold a measurement that is wrong."""
        (dirty, _), (clean, _) = self.dirty, self.clean
        return (~torch.isnan(dirty) & (dirty != clean)).sum(0).tolist()

    @property
    def silent_rows(self) -> int:
        """How many rows have such a cell."""
        (dirty, _), (clean, _) = self.dirty, self.clean
        return int((~torch.isnan(dirty) & (dirty != clean)).any(1).sum())

    @property
    def labels(self) -> int:
        """How many classes are wrong."""
        return int((self.dirty[1] != self.clean[1]).sum())


def read(folder: Path) -> Pair:
    """The pair: every fifth row is for testing."""
    dirty, clean = (table(folder / f"breast_cancer-{name}.csv") for name in ("dirty", "clean"))
    rows = torch.arange(len(clean[0]))
    tests = rows[(rows % 5 == 0) & ~torch.isnan(clean[0]).any(1)]
    training = rows[rows % 5 != 0]
    return Pair(*((x[part], y[part]) for (x, y), part in ((dirty, training), (clean, training), (clean, tests))))


def table(path: Path) -> tuple[Tensor, Tensor]:
    with path.open(newline="", encoding="utf-8") as file:
        _, *rows = csv.reader(file)
    x = torch.tensor([[measured(cell) for cell in row[2:11]] for row in rows], dtype=torch.float64)
    return x, torch.tensor([int(row[11] == "4") for row in rows])


def measured(cell: str) -> float:
    """A measurement, scaled; NaN for a cell that is none."""
    valid = cell.isascii() and cell.isdecimal() and LEAST <= int(cell) <= MOST
    return (int(cell) - CENTER) / SCALE if valid else float("nan")


def threat(
    labels: int = 0,
    silent: Sequence[int] = (),
    rows: int = 0,
    clip: tuple[float, float] | None = RANGE,
    ends: tuple[float, float] = RANGE,
) -> Any:
    """Unknown cells, so many wrong labels, so many wrong cells in each column, or so many rows of wrong cells."""
    parts: list[Any] = [bf.threats.Missing(ends)]
    parts += [bf.threats.AtMost(labels, bf.threats.Labels())] if labels else []
    anything = bf.threats.Linf(ends[1] - ends[0], clip=clip)
    parts += [bf.threats.AtMost(k, anything.on(features=[column])) for column, k in enumerate(silent) if k]
    parts += [bf.threats.AtMost(rows, anything)] if rows else []
    together = parts[0]
    for part in parts[1:]:
        together = together & part
    return together


def model() -> nn.Module:
    made = nn.Linear(9, 1).double()
    nn.init.zeros_(made.weight)
    nn.init.zeros_(made.bias)
    return made


def trained(data: tuple[Tensor, Tensor], against: Any, steps: int) -> bf.Certificate:
    recipe = bf.Recipe(
        loss="bce", optimizer_options={"lr": 1.0}, steps=steps, epochs=steps, batch_size=len(data[0]), order=2
    )
    return bf.certify(model(), data, recipe, threat=against, progress=False)


def read_airfoils(folder: Path) -> Pair:
    """The second pair, every column from -1 to 1 over its range: every fifth row is for testing."""
    dirty, clean = (airfoils(folder / f"nasa-{name}.csv") for name in ("dirty", "clean"))
    rows = torch.arange(len(clean[0]))
    parts = rows % 5 != 0, rows % 5 == 0
    return Pair(*((x[part], y[part]) for (x, y), part in ((dirty, parts[0]), (clean, parts[0]), (clean, parts[1]))))


def airfoils(path: Path) -> tuple[Tensor, Tensor]:
    with path.open(newline="", encoding="utf-8") as file:
        _, *rows = csv.reader(file)
    cells = [[number_in(cell, *ends) for cell, ends in zip(row, AIRFOIL, strict=False)] for row in rows]
    levels = [(float(row[5]) - LEVEL) / LEVELS for row in rows]
    return torch.tensor(cells, dtype=torch.float64), torch.tensor(levels, dtype=torch.float64)[:, None]


def number_in(cell: str, low: float, high: float) -> float:
    """A number as a share of its range, from -1 to 1; NaN for a cell that holds none in it."""
    try:
        number = float(cell)
    except ValueError:
        return float("nan")
    return (2 * number - low - high) / (high - low) if low <= number <= high else float("nan")


def regressed(data: tuple[Tensor, Tensor], against: Any, steps: int) -> bf.Certificate:
    model = nn.Linear(5, 1).double()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    recipe = bf.Recipe(
        loss="mse", optimizer_options={"lr": 0.3}, steps=steps, epochs=steps, batch_size=len(data[0]), order=2
    )
    return bf.certify(model, data, recipe, threat=against, progress=False)


def row_of_airfoils(pair: Pair, name: str, against: Any, steps: int) -> dict[str, Any]:
    """One threat: how narrow bounds are on the dirty table, and whether what the clean one answers lies within."""
    x, y = pair.test
    started = time.process_time()
    found = regressed(pair.dirty, against, steps).predict(x)
    clean = regressed(pair.clean, bf.threats.Linf(0.0), steps).predict(x).label
    return {
        "pair": "nasa",
        "threat": name,
        "steps": steps,
        "tests": len(x),
        "error": LEVELS * float((found.label - y).abs().mean()),
        "error_on_clean": LEVELS * float((clean - y).abs().mean()),
        "error_of_constant": LEVELS * float((y - y.median()).abs().mean()),
        "width": LEVELS * float(found.width.mean()),
        "outside": int(((clean < found.lower) | (clean > found.upper)).sum()),
        "seconds": round(time.process_time() - started, 1),
    }


def row(pair: Pair, name: str, against: Any, steps: int) -> dict[str, Any]:
    """One threat: what is settled on the dirty table, and what is answered on the clean one."""
    x, y = pair.test
    started = time.process_time()
    found = trained(pair.dirty, against, steps).predict(x)
    clean = trained(pair.clean, bf.threats.Missing(RANGE), steps).predict(x)  # a few cells of its own are unknown
    other = found.label != clean.label
    return {
        "pair": "breast cancer",
        "threat": name,
        "steps": steps,
        "tests": len(x),
        "right": float((found.label == y).double().mean()),
        "right_on_clean": float((clean.label == y).double().mean()),
        "settled": float(found.certified.double().mean()),
        "differ": int(other.sum()),
        "settled_that_differ": int((other & found.certified).sum()),
        "seconds": round(time.process_time() - started, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    pair, rows = read(given.data_dir / "dirty-tables"), []
    unknown = int(torch.isnan(pair.dirty[0]).sum())
    print(f"{len(pair.dirty[0])} rows, {unknown} unknown cells, {pair.labels} wrong labels")
    print(f"wrong cells by column {pair.silent}, in {pair.silent_rows} rows")
    cases = {
        "unknown cells": threat(),
        "and wrong labels": threat(pair.labels),
        "and wrong cells, by column": threat(pair.labels, pair.silent),
        "and wrong cells, by row": threat(pair.labels, rows=pair.silent_rows),
        "the same, but out of range, too": threat(pair.labels, rows=pair.silent_rows, clip=None),
    }
    for steps in STEPS:
        for name, against in cases.items():
            rows.append(row(pair, name, against, steps))
            print(rows[-1], flush=True)
    pair = read_airfoils(given.data_dir / "dirty-tables")
    unknown = int(torch.isnan(pair.dirty[0]).sum())
    print(f"{len(pair.dirty[0])} rows, {unknown} unknown cells, wrong cells by column {pair.silent}")
    unit = (-1.0, 1.0)
    wider = {
        "unknown cells": threat(ends=unit),
        "and wrong cells, by column": threat(silent=pair.silent, clip=unit, ends=unit),
        "and wrong cells, by row": threat(rows=pair.silent_rows, clip=unit, ends=unit),
    }
    for steps in AIRFOIL_STEPS:
        for name, against in wider.items():
            rows.append(row_of_airfoils(pair, name, against, steps))
            print(rows[-1], flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
