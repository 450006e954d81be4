"""Advice that knows the run: every sentence rests on something that the run itself has measured."""

import json
import shlex
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from commands import Command, people, run_main, sentence, write_csv

from fullcert.experiment.advice import advice, audited, smaller
from fullcert.experiment.advice import typed as with_command
from fullcert.experiment.options import Options, command_for, given_for, resolve
from fullcert.experiment.training import Recipe

INCOME = ("--target", "income", "--ignore", "pay")


def recipe(table: Path, **options: Any) -> Recipe:
    return Recipe(resolve({"data": str(table), "target": "income", "ignore": ("pay",), **options}, {}))


def metrics(**changes: Any) -> dict[str, Any]:
    return {"certified_accuracy": 0.1, "nominal_accuracy": 0.9, "majority_accuracy": 0.5, "steps": 5, **changes}


def typed(advised: str) -> list[str]:
    """The words of the command that a sentence ends with."""
    said, _, words = advised.rpartition("fullcert train ")
    assert said.endswith((": ", "with ")), advised
    return ["train", *shlex.split(words)]


def test_the_curve_of_the_run_and_its_plain_model(table: Path) -> None:
    made = recipe(table, flip_labels=1, steps=2)
    certificate = made.certify([])
    steps = [{"step": 1, "certified_accuracy": 0.725}, {"step": 5, "certified_accuracy": 0.1}]
    said = advice(made, certificate, metrics(), steps)
    assert said[0].startswith("Its own curve peaked at step 1 with 72.5 % of some validation samples (a choice made on")
    assert said[0].endswith("--flip-labels 1 --steps 1")
    poor = advice(made, certificate, metrics(nominal_accuracy=0.51), [])
    assert any("The plain model is right for 51.0 %" in advised and "50.0 %" in advised for advised in poor)
    assert advice(made, certificate, metrics(certified_accuracy=0.8), steps) == []
    longer = recipe(table, flip_labels=1, steps=9)
    void = advice(longer, certificate, metrics(void_at_step=8), steps)
    assert void[0].startswith("The bounds became void at step 8, and half as many stop well before: fullcert train")
    assert void[0].endswith("--flip-labels 1 --steps 4")
    first = advice(longer, certificate, metrics(void_at_step=1), [])
    assert first[0].endswith("--flip-labels 1 --lr 0.1 --steps 9")


SITUATIONS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "labels": ({"flip_labels": 12}, {}, "--flip-labels 6"),
    "column": ({"tolerance": ("hours=12",), "test_tolerance": ()}, {}, "--tolerance hours=6"),
    "share of a column": ({"tolerance": ("hours=50%",)}, {}, "--tolerance hours=25%"),
    "presence": ({"remove": 10}, {}, "--remove 5"),
    "all columns": ({"epsilon": 0.5}, {}, "--epsilon 0.2"),
    "category": ({"any_category": ("town",)}, {}, "--ignore town --epsilon 0"),
    "intervals": ({"tolerance": ("hours=12",), "domain": "interval"}, {}, "--tolerance hours=12"),
    "kinks": ({"tolerance": ("hours=12",), "hidden": "3", "activation": "relu"}, {}, "--hidden 3"),
    "void": ({"flip_labels": 2, "steps": 9}, {"void_at_step": 8}, "--steps 4"),
    "nothing learnt": (
        {"flip_labels": 2, "tolerance": ("hours=12",)},
        {"nominal_accuracy": 0.5},
        "--epsilon 0 --steps 50",
    ),
}


@pytest.mark.parametrize("case", SITUATIONS)
def test_each_advice_is_a_command_that_changes_the_run(table: Path, case: str, command: Command) -> None:
    """Followed as it is typed: the run trains with other options, and what it says is about other numbers."""
    options, changes, flags = SITUATIONS[case]
    made = recipe(table, **{"steps": 1, **options})
    found = advice(made, made.certify([]), metrics(**changes), [])
    assert found and any(flags in advised for advised in found), found
    for advised in found:
        words = typed(advised)
        followed = command(*words, "--json", "-", "--quiet")
        assert followed.code == 0 and followed.err == "", followed
        told = json.loads(followed.out)
        now = resolve(given(words), {})
        assert now != made.asked
        assert told["threat"] != "" and told["steps"] == (now.steps or told["steps"])


def given(words: list[str]) -> dict[str, Any]:
    """The options that a typed command gives."""
    found: dict[str, Any] = {}
    kinds = {entry.name: entry.type for entry in fields(Options)}
    for flag, value in zip(words[1::2], words[2::2], strict=True):
        name = flag.removeprefix("--").replace("-", "_")
        if kinds[name] == tuple[str, ...]:
            found[name] = (*found.get(name, ()), value)
        else:
            number = {int: int, float: float, int | None: int, float | None: float}.get(kinds[name], str)
            found[name] = number(value)
    return found


def test_behind_a_configuration_nothing_stays_that_the_advice_takes_away(command: Command, tmp_path: Path) -> None:
    """--epsilon 0 --steps 50 behind the configuration of a run kept its flips, and its 0 %."""
    coins = {"day": [row % 7 for row in range(90)], "side": [["heads", "tails"][row // 2 % 2] for row in range(90)]}
    (tmp_path / "run.toml").write_text('flip-labels = 20\ntarget = "side"\n')
    run = ("--config", tmp_path / "run.toml", "--data", write_csv(tmp_path / "coins.csv", coins))
    first = command("train", *run, "--quiet", "--json", "-")
    assert json.loads(first.out)["certified_robustness"] == 0.0
    found = json.loads(first.out)["advice"]
    (plain,) = (advised for advised in found if "without a threat" in advised)
    told = json.loads(command(*typed(plain), "--json", "-", "--quiet").out)
    assert told["certified_robustness"] == 1.0 and "flip" not in json.dumps(told["threat"])


def test_a_label_that_cannot_be_fewer(
    table: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one flip there is no half: a run with --flip-labels 1 was told to try --flip-labels 1."""
    made = recipe(table, flip_labels=1)
    assert smaller(made.asked) == {} and with_command(made.asked, "Ask about less") == ""
    monkeypatch.chdir(tmp_path)
    train, audit = audited(made.asked).split(" && ")
    assert command(*shlex.split(train)[1:], "--quiet").code == 0
    assert command(*shlex.split(audit)[1:], "--json", "-", "--quiet").code == 0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"data": "my table.csv", "target": "y", "regression": True, "epochs": 3, "test_tolerance": ("none",)},
        {"dataset": "mnist-1-7", "model": "cnn", "flip_labels": 3, "domain": "interval", "lr": 0.1},
        {"dataset": "half-moons", "epsilon": 1 / 3, "at_most": 7, "missing_mark": ("?", "-")},
    ],
)
def test_a_command_is_read_again_as_the_options_it_was_written_from(options: dict[str, Any]) -> None:
    wanted = resolve(options, {})
    assert resolve(given_for(wanted), {}) == wanted
    assert command_for(given_for(resolve({}, {}))) == "fullcert train --dataset two-moons --epsilon 0.001"


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
