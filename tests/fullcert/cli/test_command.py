"""The command: fast help, one plain sentence for a mistake, and the files of a run."""

import inspect
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from commands import Command, sentence

import boundflow as bf
from fullcert.cli.application import application

QUICK = ("--epochs", "2", "--batch-size", "0", "--hidden", "3", "--order", "2")
KEYS = {
    "nominal_accuracy",
    "certified_accuracy",
    "certified_robustness",
    "majority_accuracy",
    "steps",
    "seconds",
    "epsilon",
    "test_epsilon",
    "domain",
    "dataset",
    "seed",
}
FILES = {
    *("metrics.json", "metrics.jsonl", "options.toml", "barriers.svg", "certificate.safetensors"),
    *("evaluation.json", "identity.json", "report.html"),
}


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


# --- start-up -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [("--help",), ("train", "--help"), ()])
def test_help_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    result = python("-X", "importtime", "-m", "fullcert", *arguments)
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert result.returncode == 0 and "fullcert.cli.application" in imported
    assert imported.isdisjoint({"torch", "numpy", "boundflow", "matplotlib"})


def test_help_takes_less_than_half_a_second() -> None:
    """Of processor time, so that a busy machine does not decide it."""

    def seconds() -> float:
        before = os.times()
        python("-m", "fullcert", "train", "--help")
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    assert min(seconds() for _ in range(5)) < 0.5


def test_help_ends_with_an_example(command: Command) -> None:
    assert "Example: fullcert train" in command("train", "--help").out.strip().splitlines()[-1]
    assert "Example: fullcert" in command().out.strip().splitlines()[-1]


def test_help_has_no_ragged_lines() -> None:
    """Lines of a paragraph after the first stay as they are written: longer ones would be broken a second time."""
    found = [command.callback for command in application.registered_commands if command.callback is not None]
    assert len(found) > 10
    for callback in found:
        paragraphs = inspect.cleandoc(callback.__doc__ or "").split("\n\n")[1:]
        lines = [line for paragraph in paragraphs if "\n" in paragraph for line in paragraph.splitlines()]
        assert not [line for line in lines if len(line) > 78], callback.__name__


def test_version(command: Command) -> None:
    assert command("--version").out.strip() == bf.__version__


@pytest.mark.parametrize("missing", ["typer", "rich", "jinja2", "safetensors"])
def test_a_missing_extra_is_one_sentence(missing: str) -> None:
    hide = f"import sys; sys.modules[{missing!r}] = None; sys.argv = ['fullcert', 'train']"
    result = python("-c", f"{hide}; from fullcert.cli.command import main; main()")
    assert result.returncode == 2 and result.stdout == ""
    assert len(result.stderr.splitlines()) == 1 and f"needs {missing}, which is not here: pip install " in result.stderr


# --- mistakes -------------------------------------------------------------------------------------------------

MISTAKES = [
    (("--dataset", "three-moons"), "three-moons"),
    (("--dataset", "adults"), "adult, breast-cancer"),
    (("--epsilon", "-1"), "--epsilon"),
    (("--epsilon", "nan"), "--epsilon"),
    (("--epsilon", "much"), "--epsilon"),
    (("--test-epsilon", "inf"), "--test-epsilon"),
    (("--epsilon", "1e200", "--dtype", "float32"), "--epsilon"),
    (("--epsilon", "1e-50", "--dtype", "float32"), "--epsilon"),
    (("--test-epsilon", "1e-310"), "--test-epsilon"),
    (("--hidden", "16;16"), "--hidden"),
    (("--domain", "octagon"), "octagon"),
    (("--model", "transformer"), "transformer"),
    (("--activation", "swish"), "swish"),
    (("--loss", "absolute"), "absolute"),
    (("--optimizer", "lbfgs"), "lbfgs"),
    (("--epochs", "0"), "--epochs"),
    (("--device", "quantum"), "quantum"),
    (("--device", "meta"), "meta"),
    (("--dtype", "int8"), "int8"),
    (("--json", "/nowhere/metrics.json"), "/nowhere"),
    (("--json", "/"), "cannot write"),
    (("--colour", "blue"), "--colour"),
    (("--epsilon",), "--epsilon"),
    (("extra",), "extra"),
]


@pytest.mark.parametrize(("arguments", "word"), MISTAKES)
def test_a_mistake_is_one_sentence_and_writes_nothing(
    command: Command, tmp_path: Path, arguments: tuple[str, ...], word: str
) -> None:
    result = command("train", "--out", tmp_path / "run", *QUICK, *arguments)
    assert result.code == 2 and result.out == ""
    assert len(result.err.splitlines()) == 1 and word in result.err
    assert not (tmp_path / "run").exists()


def test_an_unwritable_folder_is_a_mistake(command: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here before")
    result = command("train", "--out", tmp_path / "file" / "run", *QUICK)
    assert result.code == 2 and len(result.err.splitlines()) == 1 and result.out == ""


@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_a_threat_without_finite_bounds_is_a_mistake(command: Command, domain: str) -> None:
    result = command("train", "--quiet", "--epsilon", "1.7e308", "--domain", domain, *QUICK)
    assert result.code == 2 and len(result.err.splitlines()) == 1 and "normal numbers in" in result.err


def test_an_unknown_command_is_a_mistake(command: Command) -> None:
    result = command("fly")
    assert result.code == 2 and len(result.err.splitlines()) == 1 and "fly" in result.err


# --- runs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_a_run_writes_its_folder_and_shows_a_table(command: Command, tmp_path: Path, domain: str) -> None:
    result = command("train", "--out", tmp_path / "run", "--domain", domain, "--test-epsilon", "0.01", *QUICK)
    assert result.code == 0 and "certified accuracy" in result.out and "barriers.svg" in result.out
    assert "No one who moved every feature by up to 0.001 in every training sample" in " ".join(result.out.split())
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    options = tomllib.loads((tmp_path / "run" / "options.toml").read_text())
    assert metrics.keys() >= KEYS and "void_at_step" not in metrics
    assert metrics["certified_accuracy"] <= metrics["certified_robustness"] <= 1
    assert metrics["certified_accuracy"] <= metrics["nominal_accuracy"]
    assert metrics["steps"] == 2 and metrics["domain"] == options["domain"] == domain
    assert options["epsilon"] == 0.001 and options["test_epsilon"] == metrics["test_epsilon"] == 0.01
    assert (tmp_path / "run" / "barriers.svg").read_text().startswith("<svg ")
    record = bf.load(tmp_path / "run" / "certificate.safetensors").record
    assert record["threat"] == "Linf(0.001)" and record["domain"] == domain and record["steps"] == 2


def test_the_bar_shows_loss_and_width(command: Command) -> None:
    assert re.search(r"2/2 loss 0\.\d{3}, width \de-\d{2}", command("train", *QUICK).err)


def test_the_bar_fits_into_80_columns(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    bar = next(line for line in command("train", *QUICK).err.splitlines() if line.startswith("training"))
    assert "…" not in bar and "certified" in bar and re.search(r"\d:\d\d:\d\d\s*$", bar)


def test_defaults_predict_a_number_well(command: Command, tmp_path: Path) -> None:
    """Columns that say almost the same make the squares steep; the steps must not be too long for that."""
    rows = [(a, a + b / 9, a - b / 8, "xyz"[b % 3], 40 + 3 * a + b) for a in range(20) for b in range(5)]
    lines = ["a,b,c,word,value", *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    flags = ("--data", tmp_path / "t.csv", "--target", "value", "--regression", "--target-tolerance", "0.5")
    metrics = json.loads(command("train", *flags, "--quiet", "--json", "-").out)
    spread = metrics["median_mean_absolute_error"]
    assert metrics["mean_absolute_error"] < metrics["certified_mean_absolute_error"] < spread / 3


def test_json_on_standard_output_is_alone_there(command: Command) -> None:
    result = command("train", "--json", "-", *QUICK)
    assert json.loads(result.out).keys() >= KEYS and "certified accuracy" in result.err


def test_quiet_prints_nothing(command: Command, tmp_path: Path) -> None:
    result = command("train", "--quiet", "--json", tmp_path / "metrics.json", *QUICK)
    assert result == (0, "", "")
    assert json.loads((tmp_path / "metrics.json").read_text())["seed"] == 0


def test_a_run_can_be_repeated(command: Command) -> None:
    def metrics() -> dict[str, object]:
        result = command("train", "--json", "-", "--quiet", *QUICK, "--batch-size", "400")
        return {**json.loads(result.out), "seconds": None}

    assert metrics() == metrics()


def test_control_c_says_how_to_go_on(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fullcert.results.evaluation.on_test", interrupted)
    result = command("train", "--out", tmp_path / "run", *QUICK)
    assert result.code == 130 and "fullcert: interrupted" in result.err and "--resume" in result.err


def test_a_finished_run_is_not_shown_as_that_of_other_options(command: Command, tmp_path: Path) -> None:
    first = command("train", "--out", tmp_path / "run", "--json", "-", "--quiet", *QUICK)
    again = command("train", "--out", tmp_path / "run", "--json", "-", "--quiet", "--resume")
    assert first.code == again.code == 0 and first.out == again.out
    other = command("train", "--out", tmp_path / "run", "--resume", "--lr", "5")
    assert sentence(other).endswith("--lr 0.2 and not 5.0, and is finished: use another --out")


def test_when_nothing_is_certified_there_is_advice(command: Command) -> None:
    result = command("train", "--domain", "interval", "--epsilon", "0.5", *QUICK)
    out = " ".join(result.out.split())
    assert "None of these 200 predictions is certified" in out and "What this run shows, and what to type:" in out
    assert "Intervals certify least: fullcert train --dataset two-moons " in out and "--epsilon 0.5 --hidden 3" in out


@pytest.mark.parametrize(("certified", "advised"), [(0.5, True), (0.6, False)])
def test_there_is_advice_when_a_constant_answer_would_do_as_well(certified: float, advised: bool) -> None:
    from fullcert.experiment.advice import little

    assert little({"certified_accuracy": certified, "nominal_accuracy": 0.9, "majority_accuracy": 0.55}) == advised


def test_void_bounds_certify_nothing_and_say_when(command: Command, tmp_path: Path) -> None:
    result = command(
        *("train", "--domain", "interval", "--epsilon", "1", "--lr", "1e9", "--activation", "relu", "--hidden", "3"),
        *("--epochs", "6", "--batch-size", "100", "--momentum", "0.9", "--out", tmp_path / "run"),
    )
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert result.code == 0 and 1 <= metrics["void_at_step"] <= metrics["steps"] == 60
    assert metrics["certified_accuracy"] == metrics["certified_robustness"] == 0
    assert f"void at step {metrics['void_at_step']}" in " ".join(result.out.split())
    assert (tmp_path / "run" / "barriers.svg").exists()
    assert bf.load(tmp_path / "run" / "certificate.safetensors").void_at_step == metrics["void_at_step"]
