"""Advice that knows the run: every sentence rests on something that the run itself has measured."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from commands import Command, people, run_main, sentence, write_csv

from fullcert.advice import advice
from fullcert.options import resolve
from fullcert.training import Recipe

INCOME = ("--target", "income", "--ignore", "pay")


def recipe(table: Path, **options: Any) -> Recipe:
    return Recipe(resolve({"data": str(table), "target": "income", "ignore": ("pay",), **options}, {}))


def metrics(**changes: Any) -> dict[str, Any]:
    return {"certified_accuracy": 0.1, "nominal_accuracy": 0.9, "majority_accuracy": 0.5, "steps": 5, **changes}


def test_the_curve_of_the_run_and_its_plain_model(table: Path) -> None:
    made = recipe(table, flip_labels=1, steps=1)
    certificate = made.certify([])
    steps = [{"step": 1, "certified_accuracy": 0.725}, {"step": 5, "certified_accuracy": 0.1}]
    said = advice(made, certificate, metrics(), steps)
    assert said[0].startswith("Its own curve peaked at step 1 with 72.5 % of some validation samples: --steps 1 ")
    poor = advice(made, certificate, metrics(nominal_accuracy=0.51), [])
    assert any("The plain model is right for 51.0 %" in sentence and "50.0 %" in sentence for sentence in poor)
    void = advice(made, certificate, metrics(void_at_step=8), steps)
    assert void[0] == "The bounds became void at step 8: --steps 4 stops well before."
    assert advice(made, certificate, metrics(certified_accuracy=0.8), steps) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"flip_labels": 12}, "The largest term comes from the labels"),
        ({"tolerance": ("hours=12",)}, "The largest term comes from “hours”"),
        ({"tolerance": ("hours=12",)}, "--tolerance hours=..., or --ignore hours"),
        ({"remove": 10}, "--remove 5"),
        ({"tolerance": ("hours=12",), "domain": "interval"}, "Intervals certify least: --domain zonotope."),
        ({"tolerance": ("hours=12",), "hidden": "3", "activation": "relu"}, "--activation tanh"),
    ],
    ids=["labels", "column", "flags", "presence", "intervals", "kinks"],
)
def test_the_largest_term_and_the_flags_to_type(table: Path, options: dict[str, Any], words: str) -> None:
    made = recipe(table, steps=1, test_tolerance=(), **options)
    assert any(words in sentence for sentence in advice(made, made.certify([]), metrics(), []))


# --- tune ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("trusted") / "clean.csv", people(60, seed=5))


@pytest.mark.parametrize("where", ["trusted", "declared"])
def test_a_choice_says_where_it_was_made(
    command: Command, table: Path, trusted: Path, where: str, tmp_path: Path
) -> None:
    flags = ("--data", table, *INCOME, "--flip-labels", "2", *(("--trusted", trusted) if where == "trusted" else ()))
    tune = ("tune", *flags, "--most-steps", "4", "--rate", "0.5", "--rate", "1", "--out", tmp_path / "tuned.toml")
    result = command(*tune, "--json", "-", "--quiet")
    assert result.code == 0 and result.err == "", result
    found = json.loads(result.out)
    assert found["tuned_on"] == where and len(found["tried"]) == 8
    best = max(part["certified_accuracy"] for part in found["tried"])
    chosen = {"lr": found["lr"], "steps": found["steps"]}
    assert any(part["certified_accuracy"] == best and chosen.items() <= part.items() for part in found["tried"])
    assert run_main("train", "--config", tmp_path / "tuned.toml", "--out", tmp_path / "run", "--quiet") == 0
    details = dict(json.loads((tmp_path / "run" / "evaluation.json").read_text())["details"])
    group = details["What is covered" if where == "trusted" else "What is not covered"]
    assert any(name == "steps and learning rate" for name, _ in group)
    other = str(tmp_path / "other.csv")
    write_csv(tmp_path / "other.csv", people(60, seed=6))
    others = (("--lr", "0.7"), ("--steps", "9"), ("--trusted", other)) if where == "trusted" else ()
    for change in others:  # what was chosen otherwise, or on another table, is not what was tuned
        again = ("train", "--config", tmp_path / "tuned.toml", *change, "--out", tmp_path / "no", "--quiet")
        assert "--tuned-on names other steps" in sentence(command(*again)), change
        assert command(*again, "--tuned-on", "declared").code == 0
        shutil.rmtree(tmp_path / "no")
    shown = command("tune", *flags, "--most-steps", "2", "--rate", "1")
    assert shown.code == 0 and "--lr 1 --steps" in shown.out


def test_a_tuning_that_cannot_be(command: Command, table: Path, tmp_path: Path) -> None:
    few = write_csv(tmp_path / "few.csv", people(10))
    for flags, words in (
        (("--data", table, "--target", "pay", "--regression"), "for classes and not --regression"),
        (("--data", table, *INCOME, "--trusted", few), "has 10 rows, too few"),
        (("--data", table, *INCOME, "--rate", "-1"), "--rate must be a positive number"),
        (("--data", tmp_path / "none.csv", *INCOME), "cannot be read"),
        (("--data", table, *INCOME, "--tuned-on", "stars"), "--tuned-on must be one of"),
        (("--data", table, *INCOME, "--flip-labels", "1", "--members", "3"), "is for one model: leave --members out"),
        (("--data", table, *INCOME, "--out", tmp_path / "none" / "file.toml"), "cannot write"),
    ):
        assert words in sentence(command("tune", *flags, "--quiet")), flags
    shown = command("tune", "--help")
    assert shown.code == 0 and "--most-steps" in shown.out
