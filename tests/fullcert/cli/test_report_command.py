"""`fullcert report`: the page of a run, byte for byte, from its evaluation alone."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from commands import Command, people, run_main, sentence, write_csv

INCOME = ("--target", "income", "--ignore", "pay", "--ignore", "town")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run with a plane and one of regression."""
    folder = tmp_path_factory.mktemp("runs")
    table = write_csv(folder / "people.csv", people())
    pay = ("--target", "pay", "--ignore", "income", "--regression")
    for name, flags in (("plane", INCOME), ("regression", pay)):
        assert run_main("train", "--data", table, *flags, "--steps", "2", "--quiet", "--out", folder / name) == 0
    return {name: folder / name for name in ("plane", "regression")}


@pytest.mark.parametrize("name", ["plane", "regression"])
def test_the_page_is_written_again_byte_for_byte(command: Command, runs: dict[str, Path], name: str) -> None:
    page = runs[name] / "report.html"
    before = page.read_bytes()
    page.unlink()
    result = command("report", runs[name])
    assert result.code == 0 and result.out == f"report: {page}\n" and page.read_bytes() == before


def test_elsewhere_and_as_json(command: Command, runs: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    result = command("report", runs["plane"], "--out", out, "--json", "-")
    assert result.code == 0 and result.err == "" and out.read_bytes() == (runs["plane"] / "report.html").read_bytes()
    headline = json.loads((runs["plane"] / "evaluation.json").read_text())["headline"]
    assert json.loads(result.out) == {"report": str(out), **headline}
    assert command("report", runs["plane"], "--quiet") == (0, "", "")


def spoilt(value: Any) -> list[Any]:
    return [other for other in (None, 7, "word", [], {}, [7], {"a": 1}) if type(other) is not type(value) or not value]


def test_damaged_evaluations(command: Command, runs: dict[str, Path], tmp_path: Path) -> None:
    """Whatever stands in its place, it is one sentence, and there is no page; or it is a page."""
    other, evaluation = tmp_path / "run", json.loads((runs["plane"] / "evaluation.json").read_text())
    other.mkdir()
    file = other / "evaluation.json"
    for key in evaluation:
        without = {name: value for name, value in evaluation.items() if name != key}
        for content in (without, *({**evaluation, key: value} for value in spoilt(evaluation[key]))):
            file.write_text(json.dumps(content))
            result = command("report", other)
            if result.code:
                assert re.search("is (damaged or of another version|not of this run, or damaged)", sentence(result))
                assert [path.name for path in other.iterdir()] == ["evaluation.json"]
            else:
                (other / "report.html").unlink()
    for content in ("", "[]", "{", '{"format": 1}', "\ufeff{}", json.dumps({**evaluation, "headline": {}})):
        file.write_text(content)
        assert "damaged" in sentence(command("report", other))


def test_another_format(command: Command, tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").write_text('{"format": 2}')
    said = sentence(command("report", tmp_path))
    assert "another version" in said and "format 2" in said and not (tmp_path / "report.html").exists()


def test_no_run(command: Command, tmp_path: Path, runs: dict[str, Path]) -> None:
    assert "there is no run" in sentence(command("report", tmp_path / "absent"))
    assert "not the folder of a finished run" in sentence(command("report", tmp_path))
    assert "no folder" in sentence(command("report", runs["plane"], "--out", tmp_path / "absent" / "page.html"))
    assert "cannot write" in sentence(command("report", runs["plane"], "--out", tmp_path))
    assert "no folder" in sentence(command("report", runs["plane"], "--json", tmp_path / "absent" / "page.json"))
