"""Poisoned files through the plain command: which of the labels that a run has certified can somebody change?

    python tests/poisoned_files.py --files 5000        # in one process; 0 changed labels are allowed

A setting is drawn at random: columns of numbers, of dates and of categories, in units of their own, with missing cells,
a decimal sign, scales that are declared or not, trusted rows, a network, a precision, and a threat. `fullcert train`
certifies it once. Then files are written as an attacker within the threat could have left them, in the words and
numbers of a table; they are read, encoded, split and trained on by plain PyTorch
(`fullcert/evidence/plain_training.py`, which knows nothing of bounds), and its answers for the test rows are held
against those of the run. Three of four attackers go to the limit in all they do.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import torch
from commands import run_main

from fullcert.data.encoding import DECLARED, Encoding, Number
from fullcert.evidence import plain_training, retraining
from fullcert.evidence.poisoning import Data
from fullcert.experiment import runs, tasks
from fullcert.experiment.options import Options

Row = dict[str, Any]  # numbers as decimals; a missing cell is None

TOWNS = ("north", "south", "west")
UNKNOWN = "elsewhere"
LOW, HIGH = Decimal(10), Decimal(60)  # of hours, where they are missing
DAYS = [
    f"20{year:02d}-{month:02d}-{day:02d}" for year in range(10, 24) for month in (1, 4, 8, 12) for day in (1, 9, 28)
]


@dataclass(frozen=True)
class Setting:
    """A table, how it is read and trained on, and by how much an attacker changes it."""

    rows: list[Row]
    test: list[Row]
    trusted: list[Row]
    flags: tuple[str, ...]
    comma: bool
    moves: dict[str, Decimal]  # how far a number, or the target, may be from the truth
    at_most: int | None  # rows with moved numbers and other categories
    any_category: bool
    flips: int
    regression: bool
    fills: bool  # whether hours are missing somewhere

    @staticmethod
    def drawn(number: int) -> Setting:
        pick = random.Random(number)
        regression, comma, fills = pick.random() < 0.25, pick.random() < 0.3, pick.random() < 0.5
        rows, test, trusted = (people(pick, count, fills and count == 60) for count in (60, 40, 30))
        kind = pick.choice(["moves", "categories", "labels", "missing", "all"])
        moves: dict[str, Decimal] = {}
        if kind in ("moves", "all"):
            moves["age"] = Decimal(pick.choice(["0.5", "0.05", "1.25"]))
            moves |= {"since": Decimal(pick.choice([1, 30]))} if pick.random() < 0.5 else {}
        categories, flips = kind in ("categories", "all"), pick.randint(1, 3) if kind in ("labels", "all") else 0
        if regression and flips:
            flips, moves["pay"] = 0, Decimal("0.05")
        counted = (categories or "age" in moves) and (categories or pick.random() < 0.5)
        at_most = pick.randint(1, 4) if counted else None
        if kind == "missing" or not (moves or categories or flips):
            fills = True
            rows = people(pick, 60, True)
        flags = ["--target", "pay" if regression else "income", "--ignore", "income" if regression else "pay"]
        flags += ["--regression"] if regression else []
        flags += ["--decimal", ",", "--separator", ";"] if comma else []
        flags += ["--dates", "since", "--test-tolerance", "none", "--quiet"]
        for name, amount in moves.items():
            flags += ["--target-tolerance", str(amount)] if name == "pay" else ["--tolerance", f"{name}={amount}"]
        flags += ["--any-category", "town"] if categories else []
        flags += ["--at-most", str(at_most)] if at_most else []
        flags += ["--flip-labels", str(flips)] if flips else []
        flags += ["--missing", f"hours={LOW}:{HIGH}"] if fills else []
        flags += ["--scale", "age=40:16"] if pick.random() < 0.5 else []
        flags += ["--hidden", "3"] if pick.random() < 0.2 else ["--hidden", "none"]
        flags += ["--dtype", pick.choice(["float64", "float64", "float32"]), "--seed", str(pick.randint(0, 9))]
        flags += ["--epochs", str(pick.randint(2, 4)), "--batch-size", pick.choice(["0", "0", "20"])]
        flags += ["--optimizer", "adam", "--lr", "0.05"] if pick.random() < 0.15 else []
        trusted = trusted if pick.random() < 0.3 else []
        return Setting(rows, test, trusted, tuple(flags), comma, moves, at_most, categories, flips, regression, fills)

    def poisoned(self, pick: random.Random) -> list[Row]:
        """The rows as somebody within the threat could have left them."""
        limit, toward = pick.random() < 0.75, pick.choice([-1, 1])
        rows = [dict(row) for row in self.rows]
        touched = range(len(rows)) if self.at_most is None else pick.sample(range(len(rows)), self.at_most)
        for row in rows:
            if row["hours"] is None:
                row["hours"] = (
                    pick.choice([LOW, HIGH]) if limit else LOW + (HIGH - LOW) * Decimal(pick.randint(0, 99)) / 99
                )
            if self.regression and "pay" in self.moves:
                row["pay"] += self._by("pay", pick, limit, toward)
        for place in touched:
            row = rows[place]
            side = toward if row["income"] == "much" else -toward
            for name in self.moves.keys() - {"pay"}:
                move = self._by(name, pick, limit, side)
                row[name] = str(day_after(row[name], int(move))) if name == "since" else row[name] + move
            if self.any_category:
                row["town"] = pick.choice([*TOWNS, UNKNOWN])
        for row in pick.sample(rows, self.flips):
            row["income"] = {"much": "little", "little": "much"}[row["income"]]
        return rows

    def _by(self, name: str, pick: random.Random, limit: bool, side: int) -> Decimal:
        most = self.moves[name]
        if limit:
            return side * most
        return Decimal(pick.randint(-int(most), int(most))) if name == "since" else most * pick.randint(-100, 100) / 100

    def written(self, path: Path, rows: list[Row]) -> Path:
        def cell(value: Any) -> str:
            return "" if value is None else str(value).replace(".", "," if self.comma else ".")

        between = ";" if self.comma else ","
        lines = [between.join(rows[0]), *(between.join(map(cell, row.values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
        return path


def people(pick: random.Random, count: int, holes: bool) -> list[Row]:
    """Those who are older and work more earn much."""
    rows: list[Row] = []
    for _ in range(count):
        age, hours, town = Decimal(pick.randint(200, 700)) / 10, Decimal(pick.randint(10, 60)), pick.choice(TOWNS)
        pay = age / 10 + hours / 10 + 2 * (town == "north") + Decimal(round(pick.gauss(0, 0.5), 2))
        missing = holes and pick.random() < 0.1
        row = {"age": age, "hours": None if missing else hours, "town": town, "since": pick.choice(DAYS)}
        rows.append({**row, "pay": pay, "income": "much" if pay > Decimal("8.6") else "little"})
    return rows


def day_after(day: str, days: int) -> Any:
    import datetime

    return datetime.date.fromisoformat(day) + datetime.timedelta(days=days)


class Certified:
    """A setting that the command has certified, in a folder."""

    def __init__(self, setting: Setting, folder: Path):
        self.setting, self.folder = setting, folder
        data, test = (setting.written(folder / f"{name}.csv", getattr(setting, name)) for name in ("rows", "test"))
        flags = ["--data", data, "--test-data", test, *setting.flags]
        if setting.trusted:
            flags += ["--trusted", setting.written(folder / "trusted.csv", setting.trusted)]
        told = io.StringIO()
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            code = run_main("train", *flags, "--out", folder / "run")
        if code:
            raise SystemExit(f"fullcert train {' '.join(map(str, flags))}: {told.getvalue()}")
        self.recipe = retraining.recipe_of(folder / "run")
        evaluation = json.loads((folder / "run" / runs.EVALUATION).read_text())
        self.samples = evaluation["samples"]
        encoding = self.recipe.task.encoding
        assert encoding is not None
        self.encoding: Encoding = encoding

    def answered(self, rows: list[Row]) -> Any:
        """What plain training on a file of these rows answers for the test rows, in the numbers of the network."""
        path = self.setting.written(self.folder / "poisoned.csv", rows)
        options, recipe = replace(self.recipe.options, data=str(path)), self.recipe
        self._require_same_scales(options)
        table = tasks.read(options, path)
        train = tasks.split_rows(options.seed, len(rows), has_test=True)["train"]
        inputs = torch.as_tensor(self.encoding.inputs(table)[train], dtype=recipe.dtype)
        target = self.encoding.target
        labels = torch.from_numpy(target.encoded(table.column(target.name))[train])
        data = Data(inputs, labels, torch.ones(len(train), dtype=torch.bool))
        with torch.no_grad():
            test = recipe.tensors(recipe.data.test)[0]
        return plain_training.trained(recipe, data)(test).detach()

    def _require_same_scales(self, options: Options) -> None:
        """What is said to be the same for every allowed dataset is."""
        mine = {column.name: column for column in self.encoding.columns if isinstance(column, Number)}
        found = tasks.load(options).encoding
        assert found is not None
        for column in found.columns:
            if isinstance(column, Number) and mine[column.name].source != DECLARED:
                same = (column.center, column.scale) == (mine[column.name].center, mine[column.name].scale)
                assert same, f"{column.name} has another scale, which is said to be the same"

    def changed(self, outputs: Any) -> tuple[int, int]:
        """How many certified answers there are, and how many of them a plain training answers otherwise."""
        target, held = self.encoding.target, [sample["certified"] for sample in self.samples]
        if self.setting.regression:
            values = (outputs[:, 0].double() * target.scale + target.center).tolist()
            ends = [(sample["lower"][0], sample["upper"][0]) for sample in self.samples]
            wrong = [not low <= value <= high for value, (low, high) in zip(values, ends, strict=True)]
        else:
            classes = (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(1)
            names = [target.classes[number] for number in classes.tolist()]
            wrong = [name != sample["label"] for name, sample in zip(names, self.samples, strict=True)]
        return sum(held), sum(sure and bad for sure, bad in zip(held, wrong, strict=True))


@dataclass
class Counts:
    """What was compared."""

    settings: int = 0
    files: int = 0
    compared: int = 0
    changed: int = 0
    other_answers: int = 0  # of which none was certified: attackers did something

    def told(self) -> str:
        return (
            f"{self.settings} settings, {self.files:,} poisoned files, {self.compared:,} certified answers compared, "
            f"{self.changed} changed; {self.other_answers:,} outputs are others than without poison"
        )


def tried(number: int, files: int, counts: Counts) -> None:
    """One setting with so many poisoned files."""
    setting, pick = Setting.drawn(number), random.Random(1000 + number)
    with tempfile.TemporaryDirectory() as folder:
        certified = Certified(setting, Path(folder))
        first = None
        for _ in range(files):
            outputs = certified.answered(setting.poisoned(pick))
            first = outputs if first is None else first
            sure, changed = certified.changed(outputs)
            counts.files, counts.compared, counts.changed = (
                counts.files + 1,
                counts.compared + sure,
                counts.changed + changed,
            )
            counts.other_answers += int((outputs != first).any(1).sum())
            if changed:
                print(
                    f"setting {number}: {changed} certified answers changed: {' '.join(setting.flags)}", file=sys.stderr
                )
    counts.settings += 1


def numbers(given: argparse.Namespace) -> Iterator[int]:
    yield from range(given.first, given.first + -(-given.files // given.each))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=5000, help="poisoned files in all")
    parser.add_argument("--each", type=int, default=100, help="files of a setting")
    parser.add_argument("--first", type=int, default=0, help="the number of the first setting")
    given, counts, begin = parser.parse_args(), Counts(), time.perf_counter()
    for number in numbers(given):
        tried(number, given.each, counts)
        print(f"{time.perf_counter() - begin:6.0f} s  {counts.told()}", flush=True)
    raise SystemExit(1 if counts.changed else 0)


if __name__ == "__main__":
    main()
