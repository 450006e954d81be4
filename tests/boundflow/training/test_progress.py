"""The progress bar: what it shows, when it is silent, and that looking at a run does not change it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn as nn
from moons import moons, network

import boundflow as bf
from boundflow.training import progress
from boundflow.training.progress import Bar, Step

X, Y = moons(300, 0)
RECIPE: dict[str, Any] = {"threat": bf.threats.Linf(1e-3), "loss": "bce", "optimizer_options": {"lr": 0.3}, "order": 4}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Watched(Step):
    """A step whose answers take a known time."""

    clock: Clock
    seconds = 0.0
    counts: list[int]

    def accuracy(self, x: Any, y: Any, epsilon: Any = 0.0) -> bf.Accuracy:
        self.clock.now += self.seconds * len(x)
        self.counts.append(len(x))
        return bf.Accuracy(0.75, 0.5, 0.5)


@pytest.fixture
def follow() -> Callable[..., tuple[str, list[int], float]]:
    """Run a bar over steps of so many seconds each; gives its text, the samples of each measurement, and the time."""

    def run(stream: io.StringIO, steps: int, lasting: float, seconds: float, samples: int = 200) -> Any:
        clock, counts = Clock(), []
        step = type("Step", (Watched,), {"clock": clock, "seconds": seconds, "counts": counts})
        with Bar(X[:samples], Y[:samples], piece=10**9, stream=stream, clock=clock) as bar:
            for number in range(1, steps + 1):
                clock.now += lasting
                bar(step(number, steps, 0.123456, 0.001, nn.Identity(), nn.Identity()))
        return stream.getvalue(), counts, clock.now - 100

    return run


def test_short_runs_are_silent(follow: Callable) -> None:
    assert follow(Terminal(), 19, 0.1, 0.001) == ("", [], pytest.approx(1.9))


def test_what_the_line_says(follow: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    text, _, _ = follow(Terminal(), 40, 0.25, 0.0001)
    assert text.startswith("\r") and text.endswith("\n") and text.count("\n") == 1
    last = text.split("\r")[-1]
    assert last == "40/40 [####################] 0:00 left, accuracy 75.0%, certified 50.0%, loss 0.1235, width 0.001\n"
    assert any(line.startswith("20/40 [##########..........] 0:05 left") for line in text.split("\r"))


@pytest.mark.parametrize("columns", [20, 79, 80, 90])
def test_the_line_fits_the_terminal(columns: int, follow: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = follow(Terminal(), 100, 0.1, 0.0001)[0].removesuffix("\n").split("\r")
    assert all(len(line) < columns for line in lines) and ("certified 50" in lines[-1]) == (columns > 20)
    assert ("#" in lines[-1]) == (columns > 80)


def test_logs_get_lines(follow: Callable) -> None:
    text, _, _ = follow(io.StringIO(), 400, 0.1, 0.0001)
    lines = text.splitlines()
    assert 5 <= len(lines) <= 7 and "\r" not in text and lines[-1].startswith("400/400 [#")
    assert "certified 50.0%" in lines[-1]


@pytest.mark.parametrize("seconds", [0.0001, 0.003, 0.05, 0.5])
def test_measuring_takes_a_tenth_of_the_time(seconds: float, follow: Callable) -> None:
    """Whatever a sample costs. Only the trial, which finds that out, is not paid for beforehand."""
    _, counts, elapsed = follow(Terminal(), 1000, 0.1, seconds)
    spent = sum(counts) * seconds
    assert spent <= 0.1 * elapsed + 16 * seconds and counts[0] == 16
    assert len(counts) <= 2 + elapsed / 2  # every two seconds, after the trial and what follows it at once
    if seconds <= 0.003:
        assert len(counts) > elapsed / 3 and counts[-1] >= 60


def test_small_sets_are_measured_whole(follow: Callable) -> None:
    text, counts, _ = follow(Terminal(), 100, 0.1, 0.0001, samples=7)
    assert set(counts) == {7} and "samples" not in text


def certify(**options: Any) -> bf.Certificate:
    return bf.certify(network(), (X[:30], Y[:30]), **{**RECIPE, "epochs": 4, **options})


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar that does not wait."""
    monkeypatch.setattr(progress, "QUIET", 0.0)
    monkeypatch.setattr(progress, "SHARE", 1e9)


@pytest.mark.parametrize("shown", [None, True, False])
@pytest.mark.parametrize("terminal", [True, False])
def test_when_it_is_shown(shown: bool | None, terminal: bool, eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    certify(progress=shown, domain="interval")
    assert bool(stream.getvalue()) == (terminal if shown is None else shown)


@pytest.mark.parametrize("domain", ["interval", "zonotope"])
def test_looking_changes_nothing(domain: str, eager: None, capsys: pytest.CaptureFixture, tmp_path: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Dropout(0.4), nn.Linear(5, 1)).double()
    recipe = {**RECIPE, "domain": domain, "epochs": 2, "batch_size": 10}
    look = {"progress": True, "validation": (X[30:60], Y[30:60]), "test_epsilon": 1e-3}
    look["callbacks"] = [lambda step: step.model[0].weight.symbols.fresh(3)]
    torch.manual_seed(7)
    for name, options in (("plain", {"progress": False}), ("watched", look)):
        bf.certify(model, (X[:30], Y[:30]), **recipe, **options).save(tmp_path / name)
    assert (tmp_path / "plain").read_bytes() == (tmp_path / "watched").read_bytes()
    assert torch.random.initial_seed() == 7 and "certified" in capsys.readouterr().err


def test_the_accuracy_is_that_of_the_certificate(eager: None, capsys: pytest.CaptureFixture) -> None:
    """At the last step, the bar and a callback say what the certificate says."""
    test, seen = moons(50, 3), []
    options = {"validation": test, "test_epsilon": 0.1, "progress": True}
    certificate = certify(callbacks=[lambda step: seen.append(step.accuracy(*test, epsilon=0.1))], **options)
    accuracy = certificate.accuracy(*test, epsilon=0.1)
    assert seen[-1] == accuracy and accuracy.certified < accuracy.nominal
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"accuracy {accuracy.nominal:.1%}, certified {accuracy.certified:.1%}," in last


def test_steps_answer_in_evaluation_mode() -> None:
    model = nn.Sequential(nn.Linear(2, 5), nn.Dropout(0.9), nn.Linear(5, 1)).double()
    answers, modes = [], []

    def look(step: Step) -> None:
        answers.extend(step.accuracy(X[:20], Y[:20]) for _ in range(3))
        modes.extend((step.model.training, step.nominal[1].training))

    bf.certify(model, (X[:30], Y[:30]), callbacks=[look], **RECIPE)
    assert len(set(answers)) == 1 and modes == [True, True]


def test_regression_shows_the_width_of_the_outputs(eager: None, capsys: pytest.CaptureFixture) -> None:
    recipe = {**RECIPE, "loss": "mse", "optimizer_options": {"lr": 0.05}}
    certificate = bf.certify(network(), (X[:30], X[:30].sum(1)), epochs=3, progress=True, **recipe)
    prediction = certificate.predict(X[:30])
    width = float((prediction.upper - prediction.lower).mean())
    assert f"output width {width:.3g}," in capsys.readouterr().err.splitlines()[-1]


def test_missing_values_are_measured_with_their_stand_ins(eager: None, capsys: pytest.CaptureFixture) -> None:
    x = X[:30].clone()
    x[3, 0] = float("nan")
    recipe = {**RECIPE, "threat": bf.threats.Missing((-1.0, 1.0))}
    bf.certify(network(), (x, Y[:30]), progress=True, **recipe)
    assert "accuracy" in capsys.readouterr().err


def test_the_line_is_finished_when_a_run_breaks(eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(step: Step) -> None:
        if step.number == 3:
            raise KeyboardInterrupt

    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    with pytest.raises(KeyboardInterrupt):
        certify(callbacks=[fail], domain="interval")
    assert stream.getvalue().endswith("\n") and "2/4 " in stream.getvalue()


def test_void_bounds_and_models_that_cannot_be_measured(
    eager: None, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = {**RECIPE, "threat": bf.threats.Linf(1.0), "optimizer_options": {"lr": 50.0}, "domain": "interval"}
    certificate = certify(progress=True, **{**recipe, "loss": "mse", "epochs": 100})
    assert f"bounds void at step {certificate.void_at_step}," in capsys.readouterr().err.splitlines()[-1]

    def unknown(*arguments: Any) -> bf.Accuracy:
        raise bf.UnsupportedOperator("no rule")

    monkeypatch.setattr(Step, "accuracy", unknown)
    certify(progress=True)
    assert "accuracy unknown: UnsupportedOperator," in capsys.readouterr().err.splitlines()[-1]


def test_wrong_validation_sets_are_refused_before_training() -> None:
    for message, validation, epsilon in (
        ("do not fit", (torch.zeros(4, 3), Y[:4]), 0.0),
        ("4 validation inputs and 3 targets", (X[:4], Y[:3]), 0.0),
        ("NaN", (torch.full((4, 2), float("nan")), Y[:4]), 0.0),
        ("epsilon", (X[:4], Y[:4]), -1.0),
    ):
        with pytest.raises(ValueError, match=message):
            certify(validation=validation, test_epsilon=epsilon, callbacks=[pytest.fail])
    with pytest.raises(ValueError, match="validation"):
        certify(test_epsilon=0.1)


def test_what_happens_aside_leaves_the_numbers_of_the_run_alone() -> None:
    symbols = bf.Symbols(bf.threats.Linf(0.1))
    symbols.lift(X[:2], Y[:2].double(), torch.arange(2))
    expansion = symbols.expansion
    with pytest.raises(ZeroDivisionError), symbols.aside():
        kept = symbols.lift(X[2:9], Y[2:9].double(), torch.arange(2, 9))[0]
        symbols.fresh(5000)
        raise ZeroDivisionError
    assert symbols.fresh(1).numbers == [4] and symbols.expansion is expansion
    assert int(kept.form.dense.rows.numbers.min()) >= 2**40  # and what was made keeps numbers nobody else gets
    with symbols.aside():
        again = symbols.lift(X[2:9], Y[2:9].double(), torch.arange(2, 9))[0]
        other = symbols.lift(X[9:12], Y[9:12].double(), torch.arange(9, 12))[0]
    assert float((kept - again).spread.max()) < 1e-12
    assert not set(kept.form.dense.rows.numbers.tolist()) & set(other.form.dense.rows.numbers.tolist())
