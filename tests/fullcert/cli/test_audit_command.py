"""`fullcert audit`: rows to check, in the lines of the user's own file, and what checking them settles."""

import csv
import json
import resource
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Command, people, run_main, sentence, write_csv
from forging import forged

from boundflow.files import certificate_files
from fullcert.data import tables
from fullcert.experiment import tasks
from fullcert.experiment.options import read_options, resolve
from fullcert.experiment.runs import CERTIFICATE
from fullcert.experiment.sample_lines import of_tests, of_training

INCOME = ("--target", "income", "--ignore", "pay", "--ignore", "clinic")


def table_with_holes() -> dict[str, list[Any]]:
    table = people(120)
    table["clinic"] = [f"clinic {number % 3}" for number in range(120)]
    table["hours"] = ["" if number % 10 == 0 else hours for number, hours in enumerate(table["hours"])]
    return table


@pytest.fixture(scope="module")
def holes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with missing cells, an empty line and a cell that goes over two lines."""
    path = write_csv(tmp_path_factory.mktemp("holes") / "people.csv", table_with_holes())
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:5], "", *lines[5:]]) + "\n")
    return path


@pytest.fixture(scope="module")
def run(holes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("audited") / "run"
    threat = ("--flip-labels", "3", "--missing", "hours=10:60", "--steps", "4")
    assert run_main("train", "--data", holes, *INCOME, *threat, "--out", out, "--quiet") == 0
    return out


def asked(command: Command, *arguments: object) -> dict[str, Any]:
    result = command("audit", *arguments, "--json", "-", "--quiet")
    assert result.code == 0 and result.err == "", result
    return json.loads(result.out)


def test_rows_are_named_by_their_lines(command: Command, run: Path, holes: Path, tmp_path: Path) -> None:
    found = asked(command, run, "--budget", "10", "--out", tmp_path / "check.csv", "--source", "clinic")
    assert found["samples"] == 24 and 0 < found["audited"] == 24 - found["certified"]
    assert {part["column"] for part in found["columns"]} >= {"income", "hours"}
    assert sum(part["share"] for part in found["columns"]) == pytest.approx(1)
    assert {part["source"] for part in found["sources"]} == {"clinic 0", "clinic 1", "clinic 2"}
    assert 0 <= found["unowned_share"] < 1 and found["checklist"]["claim"].startswith("If these")
    written = list(csv.DictReader((tmp_path / "check.csv").read_text().splitlines()))
    assert 0 < len(written) <= 10 and list(written[0])[:5] == ["rank", "line", "sample", "term", "share"]
    assert list(written[0])[5:8] == ["missing", "hours", "recorded income"] and {row["missing"] for row in written} == {
        "",
        "hours",
    }
    options = resolve({}, read_options(run / "options.toml"))
    train = tasks.load(options).data.train
    lines = holes.read_text().splitlines()
    table = tables.read(holes)
    for row in written:
        age = float(lines[int(row["line"]) - 1].split(",")[0])
        center, scale = (
            json.loads((run / "columns.json").read_text())["columns"][0][name] for name in ("center", "scale")
        )
        assert train.inputs[int(row["sample"]), 0] == (age - center) / scale
    assert len(of_training(options, len(train.labels)).rows) == len(train.labels)
    assert len(of_tests(options, 24).rows) == 24 and len(table.lines) == 120
    for prediction in found["predictions"]:
        assert prediction["label"] != prediction["rival"] and prediction["margin"] <= 0
        assert lines[prediction["line"] - 1].count(",") == 5 and 0 <= prediction["owned_share"] <= 1 + 1e-9


def test_verified_rows_answer_without_training_again(command: Command, run: Path, tmp_path: Path) -> None:
    """What the list said is what comes out, once missing cells have been filled in with what stood there."""
    before = asked(command, run, "--budget", "12", "--out", tmp_path / "check.csv")
    after = asked(command, run, "--verified", tmp_path / "check.csv")
    assert after["certified_before"] == before["certified"] <= after["certified"]
    assert after["verified_rows"] == len(before["checklist"]["rows"])
    assert before["checklist"]["forecast"]
    rows = list(csv.DictReader((tmp_path / "check.csv").read_text().splitlines()))
    alone = write_csv(tmp_path / "lines.csv", {"line": [row["line"] for row in rows]})
    assert asked(command, run, "--verified", alone)["certified"] == after["certified"]
    filled = write_csv(tmp_path / "filled.csv", {"line": [row["line"] for row in rows], "hours": [35] * len(rows)})
    middle = asked(command, run, "--verified", filled)  # the middle of the range: what the forecast assumed
    assert middle["certified"] == before["certified"] + len(before["checklist"]["settles"])
    other = write_csv(tmp_path / "other.csv", {"sample": [row["sample"] for row in rows], "hours": [58] * len(rows)})
    assert asked(command, run, "--verified", other)["certified"] >= 0


def test_new_rows_and_every_prediction(command: Command, run: Path, tmp_path: Path) -> None:
    rows = write_csv(tmp_path / "rows.csv", people(20, seed=1))
    found = asked(command, run, rows, "--every", "--budget", "0")
    assert found["audited"] == 20 and [row["row"] for row in found["predictions"]] == list(range(20))
    assert found["predictions"][3]["line"] == 5 and found["checklist"]["rows"] == []
    shown = command("audit", run, rows, "--budget", "3")
    assert shown.code == 0 and "belongs to no row" in " ".join(shown.out.split())


def test_a_built_in_dataset_has_numbers_instead_of_lines(command: Command, tmp_path: Path) -> None:
    flags = ("--dataset", "iris", "--flip-labels", "2", "--epochs", "2", "--quiet")
    assert run_main("train", *flags, "--out", tmp_path / "iris") == 0
    found = asked(command, tmp_path / "iris", "--budget", "5", "--every", "--report")
    assert "line" not in found["rows"][0] and found["rows"][0]["sample"] >= 0
    assert (tmp_path / "iris" / "audit.json").exists()
    for name in ("line", "id"):
        rows = write_csv(tmp_path / "rows.csv", {name: [2, 3]})
        said = sentence(command("audit", tmp_path / "iris", "--verified", rows))
        assert f"names the {name} 2, and no training row has it" in said


def test_rows_keep_their_lines_where_others_are_left_out(command: Command, tmp_path: Path) -> None:
    """Rows without a target are no samples, but stand in the file."""
    table = people(120)
    table["income"] = ["" if number % 5 == 0 else income for number, income in enumerate(table["income"])]
    path = write_csv(tmp_path / "people.csv", table)
    flags = ("--target", "income", "--ignore", "pay", "--drop-unlabelled", "--flip-labels", "2", "--steps", "4")
    assert run_main("train", "--data", path, *flags, "--out", tmp_path / "run", "--quiet") == 0
    found = asked(command, tmp_path / "run", "--budget", "5", "--every", "--out", tmp_path / "check.csv")
    for row in found["predictions"]:
        assert table["income"][row["line"] - 2] in ("little", "much"), row
    train = tasks.load(resolve({}, read_options(tmp_path / "run/options.toml"))).data.train
    for row in csv.DictReader((tmp_path / "check.csv").read_text().splitlines()):
        label = int(train.labels[int(row["sample"])])
        assert table["income"][int(row["line"]) - 2] == ("little", "much")[label], row


@pytest.fixture(scope="module")
def unknown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table whose towns are not all known, and whose rows have ids with zeros in front."""
    folder = tmp_path_factory.mktemp("unknown")
    table = {"id": [f"{number:03d}" for number in range(120)], **people(120)}
    table["town"] = ["?" if number % 8 == 0 else town for number, town in enumerate(table["town"])]
    path = write_csv(folder / "people.csv", table)
    flags = ("--target", "income", "--ignore", "pay", "--id", "id", "--missing", "town", "--missing-mark", "?")
    assert run_main("train", "--data", path, *flags, "--steps", "4", "--out", folder / "run", "--quiet") == 0
    return folder


def test_missing_categories_are_filled_in_and_answered_again(command: Command, unknown: Path, tmp_path: Path) -> None:
    run = unknown / "run"
    before = asked(command, run, "--budget", "6", "--out", tmp_path / "check.csv")
    assert [part["column"] for part in before["columns"]] == ["town"]
    rows = list(csv.DictReader((tmp_path / "check.csv").read_text().splitlines()))
    assert rows and all(row["missing"] == "town" and row["town"] == "" and len(row["id"]) == 3 for row in rows)
    still_open = asked(command, run, "--verified", tmp_path / "check.csv")
    assert still_open["certified"] == before["certified"]
    counts = set()
    for town in ("north", "south", "west"):
        given = {"id": [row["id"] for row in rows], "town": [town] * len(rows)}
        filled = write_csv(tmp_path / "filled.csv", given)
        counts.add(asked(command, run, "--verified", filled, "--budget", "0")["certified"])
    assert min(counts) >= before["certified"] and max(counts) > before["certified"]
    lines = [";".join(cells) for cells in zip(*([name, *column] for name, column in given.items()), strict=True)]
    (tmp_path / "theirs.csv").write_bytes("\r\n".join(lines).encode("utf-16"))  # as a spreadsheet may save it
    assert asked(command, run, "--verified", tmp_path / "theirs.csv", "--budget", "0")["verified_rows"] == len(rows)
    shown = command("audit", run, "--budget", "0").out
    assert "No row was found" not in shown
    elsewhere = write_csv(tmp_path / "elsewhere.csv", {"id": [rows[0]["id"]], "town": ["mars"]})
    assert "fills 'town' with 'mars', and training had 'north'" in sentence(
        command("audit", run, "--verified", elsewhere)
    )


def test_a_table_that_has_changed_is_refused(command: Command, unknown: Path, tmp_path: Path) -> None:
    """Its lines would be those of other rows than were trained on."""
    path = unknown / "people.csv"
    before = path.read_bytes()
    lines = before.splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], *lines[2:], lines[1]]))
    try:
        assert "was trained with another" in sentence(command("audit", unknown / "run"))
    finally:
        path.write_bytes(before)
    assert asked(command, unknown / "run", "--budget", "0")["samples"] == 24


def test_what_is_wrong_is_one_sentence(command: Command, run: Path, tmp_path: Path) -> None:
    nowhere = write_csv(tmp_path / "nowhere.csv", {"line": [3, 9999]})
    unnamed = write_csv(tmp_path / "unnamed.csv", {"row": [3]})
    broken = write_csv(tmp_path / "broken.csv", {"line": [3.5]})
    rows = write_csv(tmp_path / "rows.csv", people(5, seed=1))
    for flags, words in (
        ((tmp_path / "none",), "there is no run"),
        ((run, tmp_path / "none.csv"), "cannot be read"),
        ((run, "--verified", nowhere), "names the line 9999, and no training row has it"),
        ((run, "--verified", unnamed), "must have a column line, id or sample"),
        ((run, "--verified", broken), "whole numbers"),
        ((run, "--source", "colour"), "has no column 'colour'"),
        ((run, "--out", tmp_path / "check.txt"), ".csv"),
        ((run, rows, "--report"), "--report is about the test samples"),
        ((run, "--budget", "-1"), "'--budget'"),
    ):
        assert words in sentence(command("audit", *flags)), flags


def test_a_run_that_did_not_track_its_rows_is_refused(command: Command, holes: Path, tmp_path: Path) -> None:
    flags = (
        "--data",
        holes,
        *INCOME,
        "--ignore",
        "hours",
        "--epsilon",
        "0.001",
        "--domain",
        "interval",
        "--steps",
        "2",
    )
    assert run_main("train", *flags, "--out", tmp_path / "run", "--quiet") == 0
    assert "did not track its samples" in sentence(command("audit", tmp_path / "run"))


def test_help(command: Command) -> None:
    shown = command("audit", "--help")
    assert shown.code == 0 and "--verified" in shown.out and "Example: fullcert audit" in shown.out


def test_the_split_is_the_one_of_training() -> None:
    parts = tasks.split_rows(3, 50, False)
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(50))


def test_a_forged_number_of_samples_takes_no_memory(command: Command, run: Path, tmp_path: Path) -> None:
    """An array of two thousand million rows would take 17 GB."""
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    path = copy / CERTIFICATE
    forged(path, certificate_files.KEY, lambda said, _: {**said, "samples": 2**31}, path)
    limit, before = resource.RLIMIT_AS, resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(limit, (taken + 2**32, before[1]))
    try:
        result = command("audit", copy, "--budget", "2", "--json", "-", "--quiet")
    finally:
        resource.setrlimit(limit, before)
    assert result.code in (0, 2) and "Traceback" not in result.err


def test_a_certificate_that_does_not_say_what_it_was_trained_on(command: Command, run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    path = copy / CERTIFICATE

    def without(said: dict[str, Any], _: object) -> None:
        del said["run"]["training samples"], said["run"]["table"]

    forged(path, certificate_files.KEY, without, path)
    result = command("audit", copy, "--budget", "2", "--json", "-", "--quiet")
    assert result.code == 2 and "was trained with another" in sentence(result)

    def nothing(said: dict[str, Any], _: object) -> None:
        del said["run"]

    forged(path, certificate_files.KEY, nothing, path)
    assert "does not say what it rests on" in sentence(command("audit", copy, "--budget", "2", "--quiet"))
