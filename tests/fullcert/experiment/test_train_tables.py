"""`fullcert train` on tables of the user: every threat, every kind of target, and poisoned tables that land inside."""

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import Columns, Command, people, sentence, write_csv

import boundflow as bf
from boundflow.same_program.identity import of_tensors
from fullcert.data.encoding import FIXED, SAME
from fullcert.experiment.options import read_options, resolve
from fullcert.experiment.training import Recipe

QUICK = ("--steps", "2", "--quiet")
INCOME = ("--target", "income", "--ignore", "pay")
PAY = ("--target", "pay", "--ignore", "income", "--regression")
FILES = {
    *("options.toml", "columns.json", "metrics.json", "metrics.jsonl", "certificate.safetensors"),
    *("evaluation.json", "identity.json", "report.html"),
}


def metrics(command: Command, *arguments: object) -> dict[str, Any]:
    result = command("train", *QUICK, "--json", "-", *arguments)
    assert result.code == 0 and result.err == "", result
    return json.loads(result.out)


def sources(run: Path) -> dict[str, str]:
    return {column["name"]: column["source"] for column in json.loads((run / "columns.json").read_text())["columns"]}


def evaluated(run: Path) -> dict[str, Any]:
    return json.loads((run / "evaluation.json").read_text())


# --- every threat ---------------------------------------------------------------------------------------------

THREATS: dict[str, tuple[tuple[str, ...], str]] = {
    "epsilon": (("--epsilon", "0.01"), "Linf([0.01"),
    "tolerance": (("--tolerance", "age=0.5"), "Tolerance"),
    "shares": (("--tolerance", "age=0.5", "--tolerance", "hours=1%"), "Tolerance"),
    "any-category": (("--any-category", "town", "--at-most", "1"), "AtMost(1, Categor"),
    "at-most": (("--tolerance", "age=1", "--at-most", "3"), "AtMost(3, Tolerance"),
    "labels": (("--flip-labels", "2"), "AtMost(2, Labels("),
    "remove": (("--remove", "2"), "AtMost(2, Removal("),
    "replace": (("--replace", "1", "--clip-gradients", "0.5"), "AtMost(1, Replacement("),
    "all": (
        ("--tolerance", "age=0.1", "--flip-labels", "1", "--remove", "1", "--any-category", "town", "--at-most", "1"),
        "&",
    ),
    "interval": (("--flip-labels", "1", "--domain", "interval"), "AtMost(1, Labels("),
    "narrow": (("--tolerance", "age=0.5", "--dtype", "float32"), "Tolerance"),
}


@pytest.mark.parametrize("name", THREATS)
def test_a_threat_to_a_table(command: Command, table: Path, tmp_path: Path, name: str) -> None:
    flags, formal = THREATS[name]
    found = metrics(command, "--data", table, *INCOME, *flags, "--out", tmp_path / "run")
    assert formal in found["threat"] and found["test_samples"] == 18 and found["steps"] == 2
    assert 0 <= found["certified_accuracy"] <= found["nominal_accuracy"] and found["nominal_accuracy"] > 0.7
    assert "validation_certified_accuracy" not in found, "only of built-in datasets: no choice rests on it here"
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2] and lines[-1]["certified_accuracy"] <= 1
    shown = evaluated(tmp_path / "run")
    assert shown["headline"]["certified_accuracy"] == found["certified_accuracy"] and len(shown["samples"]) == 18
    assert {sample["true"] for sample in shown["samples"]} == {"much", "little"}


def test_a_larger_threat_certifies_no_more(command: Command, table: Path) -> None:
    certified = [
        metrics(command, "--data", table, *INCOME, "--flip-labels", count)["certified_accuracy"] for count in (1, 5, 20)
    ]
    assert certified[0] >= certified[1] >= certified[2] and certified[0] > certified[2]


def test_missing_values(command: Command, tmp_path: Path) -> None:
    columns = people()
    for row in range(0, 90, 9):
        columns["age"][row] = ""
    path = write_csv(tmp_path / "holes.csv", columns)
    said = sentence(command("train", "--data", path, *INCOME, *QUICK, "--out", tmp_path / "run"))
    assert "'age'" in said and "--missing age=LOW:HIGH" in said and not (tmp_path / "run").exists()
    wide = metrics(command, "--data", path, *INCOME, "--missing", "age=20:70", "--out", tmp_path / "run")
    narrow = metrics(command, "--data", path, *INCOME, "--missing", "age=44:46")
    observed = metrics(command, "--data", path, *INCOME, "--missing", "age")
    assert "Missing" in wide["threat"] and wide["certified_accuracy"] <= narrow["certified_accuracy"]
    assert observed["certified_accuracy"] >= wide["certified_accuracy"]
    assert "filled in the missing values of age" in evaluated(tmp_path / "run")["threat"]["training"]


def test_missing_values_of_a_plane_can_be_drawn(command: Command, tmp_path: Path) -> None:
    columns = people()
    columns["age"][::7] = [""] * 13  # in test rows, too
    columns["hours"][70] = ""
    path = write_csv(tmp_path / "holes.csv", columns)
    flags = ("--ignore", "town", "--missing", "age=20:70", "--missing", "hours=10:60", "--out", tmp_path / "run")
    metrics(command, "--data", path, *INCOME, *flags, "--tensorboard", tmp_path / "board")
    plane = evaluated(tmp_path / "run")["plane"]
    assert plane["features"] == ["age", "hours"] and len(plane["nominal"]) == plane["points"] ** 2
    told = [label for _, pairs in evaluated(tmp_path / "run")["details"] for label, _ in pairs]
    assert ("curve over the test radius" in told) == bool(evaluated(tmp_path / "run")["radii"])
    assert (tmp_path / "run" / "barriers.svg").exists()


def test_a_table_of_words_alone(command: Command, table: Path, tmp_path: Path) -> None:
    flags = ("--target", "income", "--ignore", "pay", "--ignore", "age", "--ignore", "hours", "--flip-labels", "1")
    found = metrics(command, "--data", table, *flags, "--out", tmp_path / "run")
    assert found["nominal_accuracy"] > 0.4 and evaluated(tmp_path / "run")["radii"] == []
    said = sentence(command("train", "--data", table, *flags, "--epsilon", "0.1", *QUICK))
    assert "--epsilon moves numbers" in said


# --- targets --------------------------------------------------------------------------------------------------


def test_regression(command: Command, table: Path, tmp_path: Path) -> None:
    flags = ("--data", table, *PAY, "--steps", "10")
    found = metrics(command, *flags, "--target-tolerance", "0.1", "--out", tmp_path / "run")
    assert "Labels(epsilon=" in found["threat"] and "certified_accuracy" not in found
    assert found["mean_absolute_error"] < 1.0, "the targets have a deviation of about two"
    assert found["mean_absolute_error"] <= found["certified_mean_absolute_error"] and found["mean_width"] > 0
    rows = evaluated(tmp_path / "run")["samples"]
    assert all(row["lower"][0] <= row["label"] <= row["upper"][0] for row in rows)
    assert {round(row["true"], 3) for row in rows} <= set(people()["pay"])
    moved = metrics(command, *flags, "--epsilon", "0.01", "--tensorboard", tmp_path / "board")
    assert moved["mean_width"] > 0 and os.listdir(tmp_path / "board")


def test_a_result_stands_beside_what_one_constant_answer_would_reach(
    command: Command, table: Path, tmp_path: Path
) -> None:
    rows = people(40, seed=3)
    rows["income"] = ["much"] * 27 + ["little"] * 13
    test = write_csv(tmp_path / "test.csv", rows)
    shared = ("--data", table, "--test-data", test, "--steps", "2")
    shown = command("train", *shared, *INCOME, "--flip-labels", "1", "--out", tmp_path / "run").out
    headline = evaluated(tmp_path / "run")["headline"]
    assert headline["majority_accuracy"] == 27 / 40 and headline["median_mean_absolute_error"] is None
    assert re.search(r"always the most frequent class +│ +67\.5%", shown)
    assert "most frequent class of the test set" in (tmp_path / "run" / "report.html").read_text()

    shown = command("train", *shared, *PAY, "--target-tolerance", "0.1", "--out", tmp_path / "number").out
    error = np.abs(np.array(rows["pay"]) - np.median(rows["pay"])).mean()
    headline = evaluated(tmp_path / "number")["headline"]
    assert headline["median_mean_absolute_error"] == pytest.approx(error) and headline["majority_accuracy"] is None
    assert "always the median" in shown
    assert "the median of the test set" in (tmp_path / "number" / "report.html").read_text()


def test_many_classes(command: Command, tmp_path: Path) -> None:
    columns = people()
    columns["band"] = [int(pay // 3) for pay in columns["pay"]]
    path = write_csv(tmp_path / "bands.csv", columns)
    flags = ("--data", path, "--target", "band", "--ignore", "pay", "--ignore", "income", "--seed", "3")
    found = metrics(command, *flags, "--flip-labels", "1", "--out", tmp_path / "run")
    shown = evaluated(tmp_path / "run")
    assert shown["classes"] == sorted(map(str, set(columns["band"]))) and len(shown["classes"]) > 2
    assert len(shown["samples"][0]["lower"]) == len(shown["classes"])
    assert found["certified_accuracy"] <= found["nominal_accuracy"]
    assert bf.load(tmp_path / "run" / "certificate.safetensors").record["loss"] == "ce"
    assert "use ce" in sentence(command("train", *flags, *QUICK, "--loss", "bce"))


@pytest.mark.parametrize(("target", "lr"), [("two", 1.0), ("three", 1 / 3), ("number", 0.1)])
def test_the_learning_rate_of_a_table_goes_by_the_loss(
    command: Command, tmp_path: Path, target: str, lr: float
) -> None:
    kind = [row % 3 for row in range(60)]
    columns = {"x": [k + row / 90 for row, k in enumerate(kind)], "three": [f"k{k}" for k in kind]}
    columns |= {"two": [f"k{min(k, 1)}" for k in kind], "number": [float(k) for k in kind]}
    table = write_csv(tmp_path / "data.csv", columns)
    others = [flag for name in ("two", "three", "number") if name != target for flag in ("--ignore", name)]
    threat = ("--regression", "--target-tolerance", "0.1") if target == "number" else ("--flip-labels", "1")
    run = tmp_path / "run"
    metrics(command, "--data", table, "--target", target, *others, *threat, "--out", run)
    assert tomllib.loads((run / "options.toml").read_text())["lr"] == lr
    metrics(command, "--config", run / "options.toml", "--lr", "0.2", "--out", tmp_path / "other")
    assert tomllib.loads((tmp_path / "other" / "options.toml").read_text())["lr"] == 0.2


def test_three_classes_are_certified_with_the_defaults(command: Command, tmp_path: Path) -> None:
    wine = pytest.importorskip("sklearn.datasets").load_wine()
    columns = dict(zip(wine.feature_names, wine.data.T.tolist(), strict=True))
    table = write_csv(tmp_path / "wine.csv", columns | {"kind": [f"kind {kind}" for kind in wine.target]})
    result = command("train", "--data", table, "--target", "kind", "--flip-labels", "1", "--quiet", "--json", "-")
    assert json.loads(result.out)["certified_accuracy"] > 0.8


def test_two_classes_learn_the_same_with_one_output_as_with_two(command: Command, table: Path) -> None:
    """The lead of a class is one output, or the difference of two outputs, each of which moves at half the rate."""
    leads = []
    for loss in ("bce", "ce"):
        options = resolve({"data": str(table), "target": "income", "ignore": ("pay",), "loss": loss}, {})
        recipe = Recipe(options)
        outputs = recipe.certify([]).nominal(recipe.tensors(recipe.data.test)[0]).detach()
        leads.append(outputs[:, -1] - (outputs[:, 0] if loss == "ce" else 0))
    torch.testing.assert_close(*leads)


def test_more_classes_than_digits_in_a_plane(command: Command, tmp_path: Path) -> None:
    """The picture of a plane has one sign for every class."""
    across = np.repeat(np.arange(12), 10)
    columns = {"x": across.tolist(), "y": [(7 * row) % 11 for row in range(120)], "name": [f"c{k:02}" for k in across]}
    path = write_csv(tmp_path / "many.csv", columns)
    metrics(command, "--data", path, "--target", "name", "--epsilon", "0.001", "--out", tmp_path / "run")
    plane = evaluated(tmp_path / "run")["plane"]
    assert plane is None or len(plane["nominal"]) == plane["points"] ** 2


# --- columns --------------------------------------------------------------------------------------------------


def test_a_test_table_of_its_own(command: Command, table: Path, tmp_path: Path) -> None:
    test = write_csv(tmp_path / "test.csv", people(25, seed=1))
    found = metrics(command, "--data", table, *INCOME, "--test-data", test, "--flip-labels", 1, "--out", tmp_path / "r")
    assert found["test_samples"] == 25 and bf.load(tmp_path / "r" / "certificate.safetensors").record["samples"] == 90
    assert [row["true"] for row in evaluated(tmp_path / "r")["samples"]] == people(25, seed=1)["income"]


def test_categories_that_are_numbers(command: Command, tmp_path: Path) -> None:
    columns = people()
    columns["code"] = [{"north": 1, "south": 2, "west": 30}[town] for town in columns.pop("town")]
    path = write_csv(tmp_path / "codes.csv", columns)
    flags = ("--data", path, *INCOME, "--any-category", "code", "--at-most", "1")
    assert "name it with --categorical too" in sentence(command("train", *QUICK, *flags))
    metrics(command, *flags, "--categorical", "code", "--out", tmp_path / "run")
    columns_made = json.loads((tmp_path / "run" / "columns.json").read_text())["columns"]
    assert [c["values"] for c in columns_made if c["name"] == "code"] == [["1", "2", "30"]]


def test_sources_of_the_encoding(command: Command, table: Path, tmp_path: Path) -> None:
    flags = ("--data", table, *INCOME)
    metrics(command, *flags, "--flip-labels", "1", "--out", tmp_path / "labels")
    assert sources(tmp_path / "labels") == {"age": SAME, "hours": SAME, "town": SAME}
    metrics(command, *flags, "--remove", "1", "--scale", "age=45:16", "--out", tmp_path / "gone")
    found = sources(tmp_path / "gone")
    assert found["age"] == FIXED and found["hours"].startswith("declared") and found["town"].startswith("declared")
    details = dict(evaluated(tmp_path / "gone")["details"])
    assert any("hours, town" in told for _, told in details["What is not covered"])


# --- trusted data, frozen layers, networks --------------------------------------------------------------------


def test_trusted_data_come_first(command: Command, table: Path, tmp_path: Path) -> None:
    """Where certified training starts is where plain training on the trusted table alone ends."""
    clean = write_csv(tmp_path / "clean.csv", people(40, seed=1))
    scales = (*INCOME, "--scale", "age=45:16", "--scale", "hours=35:16", "--quiet")
    trusting = ("--data", table, *scales, "--flip-labels", "1", "--trusted", clean)
    assert command("train", *trusting, "--steps", "1", "--out", tmp_path / "run").code == 0
    assert set(sources(tmp_path / "run").values()) == {FIXED}
    alone = ("--data", clean, "--test-data", table, *scales, "--epsilon", "0", "--epochs", "20")
    assert command("train", *alone, "--out", tmp_path / "alone").code == 0
    trained = bf.load(tmp_path / "alone" / "certificate.safetensors").nominal
    recipe = Recipe(resolve({}, read_options(tmp_path / "run" / "options.toml")))
    for ours, theirs in zip(recipe.initial.parameters(), trained.parameters(), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-9) and bool((ours != 0).any())
    started = bf.load(tmp_path / "run" / "certificate.safetensors").record["initial_weights"]
    assert started == of_tensors(*recipe.initial.state_dict().values())


def test_trusted_data_without_values_are_told(command: Command, table: Path, tmp_path: Path) -> None:
    columns = people(40, seed=1)
    columns["age"][0] = ""
    clean = write_csv(tmp_path / "clean.csv", columns)
    result = command("train", "--data", table, *INCOME, *QUICK, "--trusted", clean, "--missing", "age=20:70")
    assert "trusted" in sentence(result) and "missing" in sentence(result)


def test_frozen_layers_stay(command: Command, table: Path, tmp_path: Path) -> None:
    flags = ("--data", table, *INCOME, "--hidden", "4", "--flip-labels", "1")
    metrics(command, *flags, "--frozen", "1", "--out", tmp_path / "run")
    certificate = bf.load(tmp_path / "run" / "certificate.safetensors")
    assert certificate.record["frozen"] == ["0.weight", "0.bias"] and certificate.model is not None
    widths = [float((p.upper - p.lower).max()) for p in certificate.model.parameters()]
    assert widths[:2] == [0, 0] and min(widths[2:]) > 0
    assert "leaves nothing to train" in sentence(command("train", *QUICK, *flags, "--frozen", "2"))


NETWORK = """
from torch import nn


class Net(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.inward, self.outward = nn.Linear(features, 3), nn.Linear(3, outputs)

    def forward(self, x):
        return self.outward(self.inward(x).tanh())


def make_model(features, outputs):
    return Net(features, outputs)
"""


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(NETWORK)
    return path


def test_a_network_from_a_file(command: Command, table: Path, network: Path, tmp_path: Path) -> None:
    flags = ("--data", table, *INCOME, "--flip-labels", "1", "--model", f"{network}:make_model")
    metrics(command, *flags, "--out", tmp_path / "run")
    assert "inward.weight" in {layer["name"] for layer in evaluated(tmp_path / "run")["layers"]}
    result = command("certify", tmp_path / "run", table, "--json", "-", "--quiet")
    assert result.code == 0 and json.loads(result.out)["samples"] == 90


def test_a_network_from_a_file_on_a_built_in_dataset(command: Command, network: Path, tmp_path: Path) -> None:
    metrics(command, "--dataset", "iris", "--model", f"{network}:make_model", "--out", tmp_path / "run")
    rows = write_csv(tmp_path / "rows.csv", {"a": [0.5, 1], "b": [1, 0.25], "c": [0, 0.5], "d": [0.1, 0.9]})
    result = command("certify", tmp_path / "run", rows, "--json", "-", "--quiet")
    answers = json.loads(result.out)["rows"]
    assert len(answers) == 2 and {row["label"] for row in answers} <= {"setosa", "versicolor", "virginica"}


def images(path: Path, count: int = 40, size: int = 6, scale: float = 1.0, seed: int = 0) -> Path:
    """Images of one channel whose left or right half is bright."""
    random = np.random.RandomState(seed)
    labels = np.arange(count) % 2
    pixels = random.randint(0, 90, (count, 1, size, size))
    for image, label in zip(pixels, labels, strict=True):
        image[:, :, : size // 2] += 150 * (label == 0)
        image[:, :, size // 2 :] += 150 * (label == 1)
    made = pixels.astype(np.uint8) if scale == 1.0 else pixels * scale
    np.savez(path, images=made, side=np.array(["left", "right"])[labels])
    return path


def test_a_convolutional_network_on_images(command: Command, tmp_path: Path) -> None:
    flags = ("--model", "cnn", "--channels", "2", "--target", "side", "--epsilon", "0.001", "--steps", "4")
    path = images(tmp_path / "images.npz")
    found = metrics(command, "--data", path, *flags, "--out", tmp_path / "run")
    assert found["nominal_accuracy"] == 1 and "clip" in found["threat"]
    result = command("certify", tmp_path / "run", path, "--json", "-", "--quiet")
    assert result.code == 0 and json.loads(result.out)["accuracy"] > 0.9
    wrong = images(tmp_path / "large.npz", size=8)
    assert "shape (1, 8, 8), not (1, 6, 6)" in sentence(command("certify", tmp_path / "run", wrong, "--quiet"))


def test_images_out_of_range_are_told(command: Command, tmp_path: Path) -> None:
    path = images(tmp_path / "images.npz", scale=1.01)
    said = sentence(command("train", "--data", path, "--target", "side", "--epsilon", "0.001", *QUICK))
    assert "from 0 to 1" in said


# --- the same run again ---------------------------------------------------------------------------------------


def test_the_options_of_a_run_give_the_same_bytes(command: Command, table: Path, tmp_path: Path) -> None:
    flags = ("--data", table, *INCOME, "--tolerance", "age=0.5", "--flip-labels", "1", "--hidden", "3", "--seed", "7")
    metrics(command, *flags, "--out", tmp_path / "first")
    again = command("train", "--quiet", "--config", tmp_path / "first" / "options.toml", "--out", tmp_path / "second")
    assert again.code == 0
    for name in ("options.toml", "columns.json", "certificate.safetensors"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_a_file_of_options_with_flags_before_it(command: Command, table: Path, tmp_path: Path) -> None:
    config = tmp_path / "people.toml"
    config.write_text(
        f'data = "{table}"\ntarget = "income"\nignore = ["pay"]\nflip-labels = 3\nsteps = 1\ntolerance = "age=0.5"\n'
    )
    result = command("train", "--config", config, "--quiet", "--flip-labels", "1", "--out", tmp_path / "run")
    assert result.code == 0
    options = tomllib.loads((tmp_path / "run" / "options.toml").read_text())
    assert options["flip_labels"] == 1 and options["steps"] == 1 and options["tolerance"] == ["age=0.5"]
    assert options["hidden"] == "none" and options["loss"] == "bce"


@pytest.mark.parametrize("dataset", ["iris", "digits"])
def test_small_datasets(command: Command, tmp_path: Path, dataset: str) -> None:
    flags = ("--domain", "interval") if dataset == "digits" else ()
    found = metrics(command, "--dataset", dataset, "--steps", 1, "--epsilon", "1e-4", *flags, "--out", tmp_path / "run")
    assert found["certified_accuracy"] > 0.4 and found["steps"] == 1
    assert not (tmp_path / "run" / "columns.json").exists()


# --- mistakes -------------------------------------------------------------------------------------------------

MISTAKES: list[tuple[tuple[str, ...], str]] = [
    (("--target", "wage"), "no column 'wage'"),
    (("--target", "income", "--ignore", "wage"), "no column 'wage'"),
    (("--target", "pay"), "is this --regression"),
    (("--target", "income", "--regression"), "needs numbers"),
    ((*INCOME, "--tolerance", "wage=1"), "'wage'"),
    ((*INCOME, "--tolerance", "wage=1%"), "'wage'"),
    ((*INCOME, "--tolerance", "pay=1"), "'pay'"),
    ((*INCOME, "--tolerance", "town=1"), "use --any-category town"),
    ((*INCOME, "--tolerance", "town=1%"), "use --any-category town"),
    ((*INCOME, "--tolerance", "age"), "such as age=1"),
    ((*INCOME, "--tolerance", "age=-1"), "such as age=1"),
    ((*INCOME, "--tolerance", "age=nan"), "such as age=1"),
    ((*INCOME, "--tolerance", "age=1", "--tolerance", "age=2%"), "twice"),
    ((*INCOME, "--tolerance", "age=5%", "--scale", "age=40:16"), "--scale age=0:"),
    ((*INCOME, "--any-category", "wage"), "'wage'"),
    ((*INCOME, "--missing", "wage=0:1"), "'wage'"),
    ((*INCOME, "--missing", "town=1:2"), "give no range"),
    ((*INCOME, "--missing", "town", "--any-category", "town"), "two threats to one column"),
    ((*INCOME, "--impute", "wage=1"), "'wage'"),
    ((*INCOME, "--impute", "age"), "COLUMN=VALUE"),
    ((*INCOME, "--impute", "age=old"), "holds numbers"),
    ((*INCOME, "--impute", "age=1", "--impute", "age=2"), "twice"),
    ((*INCOME, "--impute", "town=east"), "none of its categories"),
    ((*INCOME, "--impute", "town=mean"), "for numbers"),
    ((*INCOME, "--impute", "age=1", "--missing", "age"), "use one of them"),
    ((*INCOME, "--id", "number"), "'number'"),
    ((*INCOME, "--dates", "town"), "no date"),
    ((*INCOME, "--dates", "town=myd"), "for the order"),
    ((*INCOME, "--encoding", "base64"), "no such encoding"),
    ((*INCOME, "--separator", "/"), "--separator"),
    ((*INCOME, "--decimal", ";"), "--decimal"),
    ((*INCOME, "--missing", "age=1"), "such as age=17:90"),
    ((*INCOME, "--missing", "age=nan:1"), "such as age=17:90"),
    ((*INCOME, "--missing", "age=0:inf"), "such as age=17:90"),
    ((*INCOME, "--missing", "age=0:1", "--missing", "age=0:2"), "twice"),
    ((*INCOME, "--scale", "age=40"), "--scale"),
    ((*INCOME, "--scale", "age"), "--scale"),
    ((*INCOME, "--scale", "age=40:0"), "--scale"),
    ((*INCOME, "--scale", "age=nan:1"), "--scale"),
    ((*INCOME, "--scale", "town=0:1"), "--scale"),
    ((*INCOME, "--flip-labels", "1000"), "exceeds the 65 training samples"),
    ((*INCOME, "--remove", "1000"), "exceeds the 65 training samples"),
    ((*INCOME, "--replace", "1000", "--clip-gradients", "1"), "exceeds the 65 training samples"),
    ((*INCOME, "--at-most", "1000", "--epsilon", "1"), "exceeds the 65 training samples"),
    ((*INCOME, "--at-most", "1", "--flip-labels", "1"), "--at-most counts samples"),
    ((*INCOME, "--target-tolerance", "1"), "use --flip-labels"),
    ((*PAY, "--flip-labels", "1"), "use --target-tolerance"),
    ((*PAY, "--loss", "bce"), "trained with mse"),
    ((*INCOME, "--flip-labels", "1", "--loss", "mse"), "bce, ce and hinge"),
    ((*INCOME, "--replace", "1"), "--clip-gradients"),
    ((*INCOME, "--model", "cnn"), "takes images"),
    ((*INCOME, "--frozen", "1"), "leaves nothing to train"),
    ((*INCOME, "--test-data", "absent.csv"), "absent.csv"),
    ((*INCOME, "--trusted", "absent.csv"), "absent.csv"),
    ((*INCOME, "--config", "absent.toml"), "absent.toml"),
    ((*INCOME, "--epsilon", "1.7e308"), "up to 1e+15"),
]


@pytest.mark.parametrize(("flags", "words"), MISTAKES, ids=[" ".join(flags[2:]) or flags[1] for flags, _ in MISTAKES])
def test_a_mistake_is_one_sentence_and_writes_nothing(
    command: Command, table: Path, tmp_path: Path, flags: tuple[str, ...], words: str
) -> None:
    said = sentence(command("train", "--data", table, *QUICK, *flags, "--out", tmp_path / "run"))
    assert words in said, said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "flags",
    [
        *(("--trusted", "x.csv"), ("--test-data", "x.csv"), ("--target", "x"), ("--regression",), ("--ignore", "x")),
        *(("--categorical", "x"), ("--scale", "x=0:1"), ("--tolerance", "x=1"), ("--any-category", "x")),
        ("--missing", "x"),
    ],
    ids=lambda flags: flags[0],
)
def test_flags_of_tables_are_told_for_a_built_in_dataset(command: Command, flags: tuple[str, ...]) -> None:
    said = sentence(command("train", "--dataset", "two-moons", *QUICK, *flags))
    assert flags[0] in said and "--data" in said


def test_tables_that_cannot_be_trained_on(command: Command, tmp_path: Path) -> None:
    columns = people(9)
    few = write_csv(tmp_path / "few.csv", columns)
    assert "too few" in sentence(command("train", "--data", few, *INCOME, *QUICK))
    test = people(20, seed=1)
    test["income"][3] = "some"
    other = write_csv(tmp_path / "other.csv", test)
    table = write_csv(tmp_path / "people.csv", people())
    said = sentence(command("train", "--data", table, *INCOME, *QUICK, "--test-data", other))
    assert "'some'" in said and "'little', 'much'" in said
    test["pay"][2], test["hours"][0] = "lots", "many"
    write_csv(other, test)
    said = sentence(command("train", "--data", table, *PAY, *QUICK, "--test-data", other, "--ignore", "hours"))
    assert "'pay'" in said
    said = sentence(command("train", "--data", table, *INCOME, *QUICK, "--test-data", other))
    assert "'hours'" in said and "numbers" in said


# --- inclusion ------------------------------------------------------------------------------------------------


def poisoned(columns: Columns, how: str, random: np.random.RandomState) -> Columns:
    """The training table as an attacker within the threat could have left it, in the units of its columns."""
    changed = {name: list(values) for name, values in columns.items()}
    count = len(changed["age"])
    toward = random.choice([-1, 1])
    if how == "tolerance":
        for row in range(count):
            side = toward if changed["income"][row] == "much" else -toward
            changed["age"][row] += 0.5 * side
            changed["hours"][row] *= 1 + 0.01 * side * random.choice([-1, 1])
    rows = [row for row in random.permutation(count) if changed["income"][row] == ("much", "little")[int(toward > 0)]][
        :3
    ]
    for row in rows:
        if how == "labels":
            changed["income"][row] = {"much": "little", "little": "much"}[changed["income"][row]]
        if how == "categories":
            changed["town"][row] = random.choice(["north", "south", "west"])
    return changed


@pytest.mark.parametrize(
    ("how", "threat"),
    [
        ("tolerance", ("--tolerance", "age=0.5", "--tolerance", "hours=1%", "--test-tolerance", "none")),
        ("labels", ("--flip-labels", "3")),
        ("categories", ("--any-category", "town", "--at-most", "3")),
    ],
)
def test_poisoned_tables_change_no_certified_label(
    command: Command, tmp_path: Path, how: str, threat: tuple[str, ...]
) -> None:
    columns, scales = people(), ("--scale", "age=45:16", "--scale", "hours=0:32", "--epochs", "4", "--quiet")
    test = write_csv(tmp_path / "test.csv", people(60, seed=1))
    table = write_csv(tmp_path / "train.csv", columns)
    flags = (*INCOME, "--test-data", test, *scales)
    assert command("train", "--data", table, *flags, *threat, "--out", tmp_path / "certified").code == 0
    certified = evaluated(tmp_path / "certified")["samples"]
    assert sum(row["certified"] for row in certified) > 30
    random, changed = np.random.RandomState(0), 0
    for attempt in range(4):
        attacked = write_csv(tmp_path / "attacked.csv", poisoned(columns, how, random))
        run = tmp_path / f"attempt{attempt}"
        assert command("train", "--data", attacked, *flags, "--epsilon", "0", "--out", run).code == 0
        made, mine = (json.loads((folder / "columns.json").read_text()) for folder in (run, tmp_path / "certified"))
        assert [{**c, "source": ""} for c in made["columns"]] == [{**c, "source": ""} for c in mine["columns"]]
        for sure, plain in zip(certified, evaluated(run)["samples"], strict=True):
            assert not sure["certified"] or sure["label"] == plain["label"]
            assert sure["lower"][0] <= plain["upper"][0] and plain["lower"][0] <= sure["upper"][0]
            assert sure["lower"][0] <= plain["lower"][0] and plain["upper"][0] <= sure["upper"][0]
            changed += plain["lower"] != sure["lower"]
    assert changed, "the attacks did something"


def test_the_report_names_the_threat_in_the_units_of_the_table(command: Command, table: Path, tmp_path: Path) -> None:
    flags = ("--tolerance", "age=0.5", "--flip-labels", "1")
    metrics(command, "--data", table, *INCOME, *flags, "--out", tmp_path / "run")
    assert evaluated(tmp_path / "run")["threat"]["formal"] == "--tolerance age=0.5 --flip-labels 1"
