"""`fullcert verify --rerun --trainings --balls`: evidence for a certificate that does not rest on its file."""

import copy
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import threat_cases
import torch
from commands import Command, people, run_main, sentence, write_csv
from forging import forged, taken_over

import boundflow as bf
from boundflow.attacks import Poisoned, contains
from boundflow.files import certificate_files
from fullcert.evidence import ball_training, figures, plain_training, poisoning, retraining
from fullcert.experiment.options import resolve
from fullcert.experiment.runs import CERTIFICATE
from fullcert.experiment.training import Recipe

SMALL = ("--hidden", "3", "--steps", "4", "--quiet")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evidence") / "run"
    assert run_main("train", *SMALL, "--momentum", "0.5", "--weight-decay", "0.01", "--out", folder) == 0
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the run, to change."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def verified(command: Command, *arguments: object) -> tuple[int, dict[str, Any]]:
    found = command("verify", *arguments, "--quiet", "--json", "-")
    said = json.loads(found.out)
    assert said["code"] == found.code
    return found.code, {check["check"]: check for check in said["checks"]}


def test_a_run_that_holds(command: Command, finished: Path) -> None:
    code, found = verified(command, finished, "--rerun", "--trainings", 3, "--balls", 1)
    assert code == 0
    assert {found[name]["result"] for name in ("rerun", "trainings", "balls")} == {"held"}
    assert "the same bytes, and the same numbers for its report" in found["rerun"]["detail"]


def shrunk(record: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """A forgery that no digest shows: all bounds drawn in towards the plain model."""
    for name in [name for name in tensors if name.startswith("bounds.")]:
        plain = tensors["nominal." + name.removeprefix("bounds.")]
        tensors[name] = plain + 0.02 * (tensors[name] - plain)
    return record


def test_bounds_that_were_drawn_in(command: Command, run: Path) -> None:
    """Format, digest and content hold; the training again, poisoned trainings and exact ones each tell."""
    forged(run / CERTIFICATE, certificate_files.KEY, shrunk, run / CERTIFICATE)
    taken_over(run)
    wanted = (("--rerun",), 3), (("--rerun", "--elsewhere"), 3), (("--trainings", "20"), 4), (("--balls", "3"), 5)
    for asked, code in wanted:
        found, checks = verified(command, run, *asked)
        assert found == code, checks
        assert all(checks[name]["result"] == "held" for name in ("format", "digest", "content"))
        assert checks[asked[0].removeprefix("--")]["result"] == "failed"
        assert not re.search(r"\b0 numbers", checks[asked[0].removeprefix("--")]["detail"])


def test_nothing_follows_from_trainings_inside_void_bounds(command: Command, tmp_path: Path) -> None:
    void = ("--epsilon", "10", "--hidden", "8", "--lr", "1e20", "--dtype", "float32", "--quiet")
    path = write_csv(tmp_path / "people.csv", people(60))
    table = ("--data", path, "--target", "income", "--ignore", "pay")
    assert command("train", *table, *void, "--out", tmp_path / "run").code == 0
    code, checks = verified(command, tmp_path / "run", "--trainings", 1, "--balls", 1)
    assert code == 6
    for name in ("trainings", "balls"):
        assert checks[name]["result"] == "not done" and "became void at step" in checks[name]["detail"]


def test_weights_that_the_options_do_not_name_are_not_trained(command: Command, run: Path) -> None:
    """They are held neither for wrong bounds nor for right ones."""
    forged(run / CERTIFICATE, certificate_files.KEY, lambda said, _: {**said, "sample_weights": "x"}, run / CERTIFICATE)
    taken_over(run)
    code, checks = verified(command, run, "--trainings", 1, "--balls", 1)
    assert code == 6
    for name in ("trainings", "balls"):
        assert checks[name]["result"] == "not done" and "weights of their own" in checks[name]["detail"]
    assert "weights" in sentence(command("attack", run, "--quiet"))


def rewritten(path: Path, change: Callable[[Any], object]) -> None:
    said = json.loads(path.read_text())
    change(said)
    path.write_text(json.dumps(said))


FORGERIES: dict[str, Callable[[Any], object]] = {
    "threat": lambda data: data["threat"].update(training="changed every training sample in any way"),
    "samples": lambda data: data["samples"][0].update(margin=1e9),
    "radii": lambda data: data["radii"][-1].update(certified_accuracy=1.0),
    "plane": lambda data: data["plane"].update(certified=["1" * 3600] * len(data["plane"]["certified"])),
    "details": lambda data: data["details"].pop(),
    "notes": lambda data: data.update(notes=["Nothing is left out."]),
    "classes": lambda data: data.update(classes=["good", "bad"]),
}


def test_numbers_of_a_report_that_fit_and_are_forged(command: Command, finished: Path, run: Path) -> None:
    """No check of files finds what fits; the training made again says what its certificate answers."""
    for name, forge in FORGERIES.items():
        rewritten(run / "evaluation.json", forge)
        assert verified(command, run)[0] == 0
        code, checks = verified(command, run, "--rerun")
        assert code == 3 and checks["rerun"]["detail"].endswith(f"test samples: {name} of evaluation.json")
        shutil.copy(finished / "evaluation.json", run)
    rewritten(run / "metrics.json", lambda data: data.update(test_epsilon=0.5))
    code, checks = verified(command, run, "--rerun")
    assert code == 3 and "test_epsilon of metrics.json" in checks["rerun"]["detail"]


def test_a_headline_of_another_machine_is_near(run: Path) -> None:
    headline = json.loads((run / "evaluation.json").read_text())["headline"]
    samples, certified = headline["samples"], headline["certified"]
    assert figures._headlines(headline, {**headline, "certified": certified - 1}) is None
    assert "certified predictions" in str(figures._headlines({**headline, "certified": certified // 2}, headline))
    assert "nominal accuracy" in str(figures._headlines({**headline, "nominal_accuracy": 0.1}, headline))
    assert "number of test samples" in str(figures._headlines({**headline, "samples": samples + 1}, headline))


def test_a_run_of_another_machine(command: Command, run: Path) -> None:
    """Another version, another last digit: the bounds are compared, and the setting is named."""

    def another_digit(record: Any, tensors: dict[str, torch.Tensor]) -> Any:
        for name in [name for name in tensors if name.startswith("bounds.")]:
            ends = torch.tensor([-1.0, 1.0]).view(2, *(1,) * (tensors[name].dim() - 1)).to(tensors[name])
            tensors[name] = tensors[name] * (1 + 1e-15 * ends * tensors[name].sign())
        return record

    def made_elsewhere(record: Any, tensors: dict[str, torch.Tensor]) -> Any:
        return another_digit({**record, "torch": "2.11.0"}, tensors)

    kept = (run / CERTIFICATE).read_bytes()
    forged(run / CERTIFICATE, certificate_files.KEY, another_digit, run / CERTIFICATE)
    taken_over(run)
    for asked, expected in ((), 3), (("--elsewhere",), 0), (("--device", "cpu"), 0):
        code, checks = verified(command, run, "--rerun", *asked)
        assert code == expected and ("made elsewhere" in checks["rerun"]["detail"]) is (not code), asked
    (run / CERTIFICATE).write_bytes(kept)
    forged(run / CERTIFICATE, certificate_files.KEY, made_elsewhere, run / CERTIFICATE)
    taken_over(run)
    code, checks = verified(command, run, "--rerun")
    assert code == 0 and "torch is 2.11.0 there" in checks["rerun"]["detail"]
    assert "agree" in checks["rerun"]["detail"]


def test_other_data(command: Command, tmp_path: Path) -> None:
    table = write_csv(tmp_path / "people.csv", people(60))
    options = ("--data", table, "--target", "income", "--flip-labels", "1", "--steps", "2", "--quiet")
    assert command("train", *options, "--out", tmp_path / "run").code == 0
    assert verified(command, tmp_path / "run", "--rerun", "--trainings", 2, "--balls", 1)[0] == 0
    write_csv(table, people(60, seed=1))
    code, checks = verified(command, tmp_path / "run", "--rerun")
    assert code == 3 and "was trained with another" in checks["rerun"]["detail"]
    code, checks = verified(command, tmp_path / "run", "--trainings", 1)
    assert code == 4 and "was trained with another" in checks["trainings"]["detail"]


def test_records_differ_in_what_only_one_of_them_says() -> None:
    kept = {"data": "a", "torch": "1", "run": {"table": "x", "data": "a"}}
    assert retraining.differences(kept, dict(kept)) == {}
    changes: list[dict[str, Any]] = [
        *({"sample_weights": "w"}, {"data": "b"}, {"torch": "2"}, {"steps": 3}),
        *({"run": {"table": "y", "data": "a"}}, {"run": {"table": "x", "data": "b"}}, {"run": {"data": "a"}}),
        *({"run": {**kept["run"], "code in net.py": "z"}}, {"identity": {"table": "y"}}),
    ]
    for change in changes:
        (only,) = retraining.differences(kept, {**kept, **change})
        assert retraining.differences({**kept, **change}, kept).keys() == {only}


def test_what_cannot_be_checked_is_said(command: Command, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\n\ndef make_model(shape, outputs):\n    return torch.nn.Linear(shape[0], outputs)\n"
    )
    model = f"{tmp_path / 'net.py'}:make_model"
    assert command("train", "--model", model, "--steps", "2", "--quiet", "--out", tmp_path / "own").code == 0
    code, checks = verified(command, tmp_path / "own", "--trainings", 1)
    assert code == 6 and "--run-code" in checks["trainings"]["detail"]
    assert verified(command, tmp_path / "own", "--trainings", 2, "--rerun", "--run-code")[0] == 0
    assert command("train", *SMALL, "--optimizer", "adam", "--out", tmp_path / "adam").code == 0
    code, checks = verified(command, tmp_path / "adam", "--trainings", 1, "--balls", 1)
    assert code == 6 and checks["trainings"]["result"] == "held" and "sgd" in checks["balls"]["detail"]


THREATS = {
    "features": {"epsilon": 0.05},
    "labels": {"flip_labels": 3},
    "removal": {"remove": 2},
    "a budget": {"epsilon": 0.3, "at_most": 5},
    "replacement": {"replace": 1, "clip_gradients": 0.5, "batch_size": 30},
}


@pytest.mark.parametrize("threat", THREATS)
def test_members_of_a_threat(threat: str) -> None:
    """No more samples are touched than the budget, and none further than allowed."""
    recipe = Recipe(resolve({**THREATS[threat], "steps": 1, "hidden": "3"}, {}))
    x, y = retraining.observed(recipe)
    for seed in range(4):
        made = poisoning.member(recipe.threats.training, x, y, 2, np.random.default_rng(seed))
        moved = (made.inputs != x).any(1)
        touched = {"features": len(x), "labels": 3, "removal": 2, "a budget": 5, "replacement": 1}[threat]
        changed = moved | (made.targets != y) | ~made.there
        assert 0 < int(changed.sum()) <= touched
        if threat in ("features", "a budget"):
            assert float((made.inputs - x).abs().max()) <= recipe.options.epsilon


@pytest.mark.parametrize("loss", ["bce", "ce", "mse"])
@pytest.mark.parametrize("activation", ["tanh", "relu", "sigmoid"])
def test_ball_arithmetic_is_the_training_of_pytorch(loss: str, activation: str) -> None:
    """Up to the roundings of float64: another derivation of the same numbers."""
    chosen = {"loss": loss, "activation": activation, "hidden": "3", "steps": 3, "momentum": 0.9, "lr_decay": 0.1}
    recipe = Recipe(resolve({**chosen, "weight_decay": 0.02, "batch_size": 20, "frozen": 0}, {}))
    x, y = retraining.observed(recipe)
    data = poisoning.member(recipe.threats.training, x, y, 2, np.random.default_rng(1))
    plain = dict(plain_training.trained(recipe, data).named_parameters())
    for name, balls in ball_training.trained(recipe, data).items():
        found = torch.tensor([float(ball) for ball in balls], dtype=torch.float64).view(plain[name].shape)
        assert torch.allclose(found, plain[name], rtol=1e-11, atol=1e-13), name
        assert max(float(ball.rad()) for ball in balls) < 1e-50


@pytest.mark.parametrize("name", ["missing categories", "missing numbers and categories, a few labels"])
def test_members_with_categories_that_were_missing(name: str) -> None:
    threat, _, task, change = threat_cases.THREATS[name]
    data = change(threat_cases.observed(task, torch.float64))
    y = torch.nn.functional.one_hot(data.y, 3).double()
    for seed in range(6):
        made = poisoning.member(threat, data.x, data.y, 3, np.random.default_rng(seed))
        targets = torch.nn.functional.one_hot(made.targets, 3).double()
        poisoned = Poisoned(made.inputs[None], targets[None], made.there.double()[None])
        assert not bool(torch.isnan(made.inputs).any()) and bool(contains(threat, data.x, y, poisoned))


def test_a_plain_training_is_that_of_the_library() -> None:
    """On the observed data it is the plain model of the certificate, up to a unit in the last place."""
    recipe = Recipe(resolve({"steps": 4, "hidden": "3", "momentum": 0.9, "lr_decay": 0.1, "batch_size": 20}, {}))
    x, y = retraining.observed(recipe)
    mine = plain_training.trained(recipe, poisoning.Data(x, y, torch.ones(len(x), dtype=torch.bool)))
    theirs = recipe.certify([]).nominal
    for name, value in theirs.named_parameters():
        assert torch.allclose(mine.get_parameter(name), value, rtol=1e-13, atol=0), name


def test_one_number_of_a_plain_model_outside_the_bounds_of_another_run_is_enough() -> None:
    x = torch.linspace(-1, 1, 10, dtype=torch.float64).reshape(5, 2)
    data, model = (x, (x[:, 0] > 0).long()), torch.nn.Linear(2, 1).double()
    kept = bf.certify(model, data, threat=bf.threats.Linf(0.1), loss="bce", progress=False)
    made = copy.deepcopy(kept)
    assert "each plain model is inside" in retraining.compared(kept, made)
    for one, other in ((kept, made), (made, kept)):
        with torch.no_grad():
            before = one.nominal.weight[0, 1].clone()
            one.nominal.weight[0, 1] = one.model.weight.upper[0, 1] + 1e-3
        with pytest.raises(retraining.Refuted, match="the plain weight of one run is outside the bounds of the other"):
            retraining.compared(one, other)
        with pytest.raises(retraining.Refuted, match="the plain weight of one run is outside the bounds of the other"):
            retraining.compared(other, one)
        with torch.no_grad():
            one.nominal.weight[0, 1] = before
