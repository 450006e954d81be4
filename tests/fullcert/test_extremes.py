"""Numbers at the edge of what floats are: an answer, or one sentence, never a traceback and never an infinity."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from commands import Command, sentence, write_csv

from fullcert.data.encoding import SCALED
from fullcert.data.tables import LARGEST
from fullcert.experiment.options import Options
from fullcert.experiment.training import Recipe
from fullcert.system.mistakes import Mistake

ROWS = 30
NUMBERS = (0.0, 1.0, -1.0, 5e-324, 1e-320, 1e-200, 1e-38, 1e9, 1e15, 1e30, 1e38, 3.5e38, 1e149, -1e149, 1e151, 1.7e308)
AMOUNTS = (0.0, 5e-324, 1e-300, 1e-45, 1e-25, 1e-9, 0.5, 1e10, 1e16, 1e38, 1e149, 1.7e308)


def rows(pick: random.Random) -> list[float]:
    return [round(pick.gauss(0, 1), 3) for _ in range(ROWS)]


def numbers_of(pick: random.Random) -> list[float]:
    """A column: ordinary, with one odd number, of odd numbers alone, always the same, or of another size."""
    kind, column = pick.randrange(6), rows(pick)
    if kind == 1:
        column[pick.randrange(ROWS)] = pick.choice(NUMBERS)
    elif kind == 2:
        column = [pick.choice(NUMBERS) for _ in range(ROWS)]
    elif kind == 3:
        column = [pick.choice(NUMBERS)] * ROWS
    elif kind == 4:
        size = pick.choice((1e-320, 1e-200, 1e-40, 1e30, 1e148))
        column = [size * value for value in column]
    return column


def drawn(seed: int, folder: Path) -> Options:
    pick = random.Random(seed)
    regression = pick.random() < 0.3
    target = numbers_of(pick) if regression else [pick.choice("ab") for _ in range(ROWS)]
    data = {"x": numbers_of(pick), "z": rows(pick), "d": ["0001-01-01", "9999-12-31"] * (ROWS // 2), "y": target}

    def some(share: float, make: str) -> tuple[str, ...]:
        return (make,) if pick.random() < share else ()

    chosen = {
        "regression": regression,
        "dates": ("d",),
        "scale": some(0.5, f"x={pick.choice(NUMBERS)!r}:{pick.choice(NUMBERS)!r}"),
        "tolerance": some(0.5, f"x={pick.choice(AMOUNTS)!r}{pick.choice(('', '%'))}")
        + some(0.2, f"d={pick.choice(AMOUNTS)!r}"),
        "epsilon": pick.choice((0.0, 0.0, pick.choice(AMOUNTS))),
        "target_tolerance": pick.choice(AMOUNTS) if regression else 0.0,
        "flip_labels": int(not regression),
        "dtype": pick.choice(("float32", "float64")),
        "hidden": "none",
        "steps": 1,
        "batch_size": 0,
    }
    return Options(data=str(write_csv(folder / "t.csv", data)), target="y", **chosen)


def test_extremes_are_scaled_or_refused(tmp_path: Path) -> None:
    trained = 0
    for seed in range(120):
        try:
            recipe = Recipe(drawn(seed, tmp_path))
        except Mistake as mistake:
            assert len(str(mistake).splitlines()) == 1 and "inf" not in str(mistake).split()
            continue
        for split in (recipe.data.train, recipe.data.test):
            assert abs(split.inputs).max() <= SCALED and abs(split.labels).max() <= SCALED
        if trained < 5:  # and what is let in can be trained on, or its bounds are void
            recipe.certify([])
        trained += 1
    assert trained > 10


SAID = {
    ("--scale", "x=0:1e-320"): "the scale must be at least 1e-150",
    ("--scale", "x=1e308:1e-308"): "such as age=40:16, with numbers up to 1e+150, not 'x=1e308:1e-308'",
    ("--scale", "x=nan:1"): "with numbers up to 1e+150",
    ("--scale", "x=1:nan"): "with numbers up to 1e+150",
    ("--scale", "x=1e20:1"): "the center at most 1e+15 times as large",
    ("--scale", "x=0:1e-60"): "at most 1e+15 can be computed with: use another --scale x=...",
    ("--tolerance", "x=1e200"): "such as age=1",
    ("--tolerance", "x=1e-40"): "must be from 1e-30 to 1e+15 once it is scaled",
    ("--tolerance", "x=1e-40%"): "must be 0%, or from 1e-28 to 1e+17%",
    ("--epsilon", "1e30"): "up to 1e+15",
    ("--epsilon", "1e-310"): "normal numbers in float64",
    ("--missing", "x=0:1e200"): "with numbers up to 1e+150",
    ("--missing", "x=0:1e40"): "at most 1e+15 can be computed with",
    ("--impute", "x=1e200"): "that column holds numbers",
    ("--lr", "1e31"): "below 1e+30",
    ("--dates", "x"): "is no date",
}


@pytest.mark.parametrize("flags", SAID, ids=" ".join)
def test_what_is_said(command: Command, tmp_path: Path, flags: tuple[str, ...]) -> None:
    pick = random.Random(0)
    path = write_csv(tmp_path / "t.csv", {"x": rows(pick), "y": ["a", "b"] * (ROWS // 2)})
    said = sentence(command("train", "--data", path, "--target", "y", "--flip-labels", "1", *flags, "--quiet"))
    assert SAID[flags] in said, said


def test_a_column_that_is_lost_among_roundings_is_refused(tmp_path: Path) -> None:
    for value, refused in ((1e14, False), (1e16, True)):
        data = write_csv(tmp_path / "t.csv", {"x": [value] * ROWS, "z": rows(random.Random(0)), "y": ["a", "b"] * 15})
        chosen = Options(data=str(data), target="y", flip_labels=1, hidden="none")
        if refused:
            with pytest.raises(Mistake, match="'x' holds values around 1e\\+16 whose deviation is 0"):
                Recipe(chosen)
        else:
            Recipe(chosen)
    for value in (LARGEST, 1.001 * LARGEST):
        data = write_csv(tmp_path / "t.csv", {"x": [value, 0.0] * 15, "y": ["a", "b"] * 15})
        if value > LARGEST:
            with pytest.raises(Mistake, match="infinite or too large, beyond 1e\\+150, in 'x'"):
                Recipe(Options(data=str(data), target="y", flip_labels=1))
        else:
            Recipe(Options(data=str(data), target="y", flip_labels=1, hidden="none"))


def test_training_that_diverges_is_told_as_such(command: Command, tmp_path: Path) -> None:
    """The plain model has no answers left, nor have its bounds."""
    pick = random.Random(0)
    path = write_csv(tmp_path / "t.csv", {"x": rows(pick), "z": rows(pick), "y": rows(pick)})
    flags = ("--regression", "--target-tolerance", "0.1", "--lr", "1e29", "--steps", "9", "--dtype", "float32")
    out = ("--out", tmp_path / "run", "--quiet", "--json", "-")
    found = json.loads(command("train", "--data", path, "--target", "y", *flags, *out).out)
    assert found["mean_absolute_error"] is None and found["void_at_step"] is not None
    answered = command("certify", tmp_path / "run", path, "--quiet", "--json", "-")
    assert {row["value"] for row in json.loads(answered.out)["rows"]} == {None}


def test_a_plane_of_one_point_can_be_drawn(command: Command, tmp_path: Path) -> None:
    columns = {"x": [123456789.0] * ROWS, "z": [-0.001] * ROWS, "y": ["a", "b"] * 15}
    path = write_csv(tmp_path / "t.csv", columns)
    flags = ("--scale", "x=0:1", "--scale", "z=0:1", "--flip-labels", "1", "--quiet", "--out", tmp_path / "run")
    assert command("train", "--data", path, "--target", "y", *flags).code == 0
    assert (tmp_path / "run" / "barriers.svg").exists()
