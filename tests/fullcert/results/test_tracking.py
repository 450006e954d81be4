"""What is written for TensorBoard is what the run did: read back from the event file."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import Command
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

import boundflow as bf
from fullcert.results.tracking import TensorBoard
from fullcert.system.mistakes import Mistake

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(30, 3, dtype=torch.float64, generator=GENERATOR)
Y = (X[:, 0] > 0).long()


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def certified(callbacks: list[Any], **options: Any) -> bf.Certificate:
    recipe: dict[str, Any] = {
        "epochs": 5,
        "optimizer_options": {"lr": 0.3},
        "threat": bf.threats.Linf(0.01),
        "order": 2,
    }
    return bf.certify(model(), (X, Y), callbacks=callbacks, **{**recipe, **options})


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]
    } | {
        name: [(event.step, float(event.tensor_proto.double_val[0])) for event in events.Tensors(name)]
        for name in events.Tags()["tensors"]
    }


def test_every_step_is_written_as_it_was(tmp_path: Path) -> None:
    steps: list[bf.Step] = []
    with TensorBoard(tmp_path / "board", validation=(X, Y), epsilon=0.01, every=2) as board:
        certificate = certified([board, steps.append])
    written = read(tmp_path / "board")
    assert written["loss"] == [(step.number, pytest.approx(step.loss)) for step in steps]
    assert written["width/all"] == [(step.number, pytest.approx(step.width)) for step in steps]
    assert [step for step, _ in written["accuracy/certified"]] == [2, 4, 5]
    last = certificate.accuracy(X, Y, epsilon=0.01)
    assert written["accuracy/nominal"][-1] == (5, pytest.approx(last.nominal))
    assert written["accuracy/certified"][-1] == (5, pytest.approx(last.certified))
    assert set(written) == {
        *("loss", "width/all", "width/0", "width/2", "seconds per step", "accuracy/nominal", "accuracy/certified"),
    }
    assert certificate.model is not None
    head = certificate.model[2]  # type: ignore[index]
    values = torch.cat([(p.upper - p.lower).flatten() for p in (head.weight, head.bias)])
    assert written["width/2"][-1] == (5, pytest.approx(float(values.mean())))


def test_the_certificate_is_the_same_with_and_without(tmp_path: Path) -> None:
    with TensorBoard(tmp_path / "board", validation=(X, Y), every=1) as board:
        certified([board]).save(tmp_path / "with")
    certified([]).save(tmp_path / "without")
    assert (tmp_path / "with").read_bytes() == (tmp_path / "without").read_bytes()


def test_seconds_are_those_of_the_step_alone(tmp_path: Path) -> None:
    ticks = iter([0.0, 10.0, 11.0, 15.0, 19.0, 25.0, 100.0, 200.0])
    with TensorBoard(tmp_path, clock=lambda: next(ticks)) as board:  # made at 0, entered at 10
        certified([board], epochs=2)
    assert read(tmp_path)["seconds per step"] == [(1, 1.0), (2, 4.0)]  # 10 to 11; 15 to 19


def test_regression_writes_the_width_of_the_outputs(tmp_path: Path) -> None:
    with TensorBoard(tmp_path, validation=(X, X[:, :2]), every=5) as board:
        certificate = bf.certify(
            model(), (X, X[:, :2]), threat=bf.threats.Linf(0.01), loss="mse", epochs=5, callbacks=[board],
            optimizer_options={"lr": 0.1}, order=2,
        )  # fmt: skip
    found = certificate.predict(X)
    assert read(tmp_path)["output width"] == [(5, pytest.approx(float((found.upper - found.lower).mean())))]


def test_an_interrupted_run_keeps_its_steps_and_goes_on(tmp_path: Path) -> None:
    def interrupt(step: bf.Step) -> None:
        if step.number == 3:
            raise KeyboardInterrupt

    recipe: dict[str, Any] = {"checkpoint": tmp_path / "checkpoint", "resume": True}
    with pytest.raises(KeyboardInterrupt), TensorBoard(tmp_path / "board") as board:
        certified([board, interrupt], **recipe)
    assert [step for step, _ in read(tmp_path / "board")["loss"]] == [1, 2, 3]
    with TensorBoard(tmp_path / "board") as board:
        certified([board], **recipe)
    assert [step for step, _ in read(tmp_path / "board")["loss"]] == [1, 2, 3, 4, 5]


def test_no_step_leaves_no_file(tmp_path: Path) -> None:
    with TensorBoard(tmp_path / "board"):
        pass
    assert list((tmp_path / "board").iterdir()) == []


def test_the_command_measures_once_for_its_log_and_the_board(
    command: Command, monkeypatch: pytest.MonkeyPatch, table: Path, tmp_path: Path
) -> None:
    accuracy, asked = bf.Step.accuracy, []

    def counted(step: bf.Step, *arguments: Any, **options: Any) -> bf.Accuracy:
        asked.append(step.number)
        return accuracy(step, *arguments, **options)

    monkeypatch.setattr(bf.Step, "accuracy", counted)
    flags = ("--data", table, "--target", "income", "--ignore", "pay", "--flip-labels", "1", "--steps", "3", "--quiet")
    assert command("train", *flags, "--out", tmp_path / "run", "--tensorboard", tmp_path / "board").code == 0
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert asked == [line["step"] for line in lines if "certified_accuracy" in line] and asked
    written = read(tmp_path / "board")
    for kind in ("nominal", "certified"):
        told = [(line["step"], line[f"{kind}_accuracy"]) for line in lines if f"{kind}_accuracy" in line]
        assert written[f"accuracy/{kind}"] == [(step, pytest.approx(value)) for step, value in told]


def test_void_outputs_are_not_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def void(step: bf.Step, *arguments: Any, **options: Any) -> None:
        raise bf.VoidBounds("no bounds")

    monkeypatch.setattr(bf.Step, "accuracy", void)
    with TensorBoard(tmp_path, validation=(X, Y), every=1) as board:
        certified([board])
    assert len(read(tmp_path)["loss"]) == 5 and "accuracy/certified" not in read(tmp_path)


def test_mistakes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here before")
    with pytest.raises(Mistake, match="cannot make the folder"):
        TensorBoard(tmp_path / "file" / "board")
    with pytest.raises(Mistake, match="every 0"):
        TensorBoard(tmp_path, every=0)


def test_a_missing_extra_says_what_to_install() -> None:
    script = """
import sys
sys.modules["tensorboard"] = None
from fullcert.system.mistakes import Mistake
from fullcert.results.tracking import TensorBoard
try:
    TensorBoard("never-made")
except Mistake as mistake:
    assert "pip install tensorboard" in str(mistake), mistake
else:
    raise AssertionError
import pathlib
assert not pathlib.Path("never-made").exists()
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
