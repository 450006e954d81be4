"""Figures of README and docs are those of the rows that commands wrote, and prose has none beside them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from commands import run_main

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import figures  # noqa: E402

# whole pages that a command writes from rows
WRITTEN = {"bench.md", "gap.md", "reproduce.md", "programs.md"}

DIGITS, WORDS = r"\d[\d.,]*", r"(?:half an?|one|two|three|four|five|six|seven|eight|nine|ten|twenty|thirty)"
TIME = r"(?:seconds?|minutes?|hours?|milliseconds?|plain steps)"
UNIT = rf"(?:%|per cent|s|ms|GB|MB|{TIME})"
MEASURED = re.compile(rf"{DIGITS}(?: (?:to|and) {DIGITS})? ?{UNIT}(?![\w%])|\b{WORDS} {TIME}\b", re.IGNORECASE)
# what is said and not measured: of a threat, an example, a setting, or a limit of the library
MEANT = re.compile(
    r"R % of|\d+ % of (?:their|its|the|every|a|318|each)\b|for five minutes each|after five minutes|ten minutes\]|"
    r"# Ten minutes|three seconds, or a tenth|1 year and hours per week by 1 hour",
    re.IGNORECASE,
)


def prose(page: Path) -> str:
    """A page without code and without figures that have a row."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", figures.FIGURE.sub("", text))


def test_every_figure_is_what_its_row_says() -> None:
    assert not list(figures.wrong())
    found = [one["where"] for page in figures.pages() for one in figures.FIGURE.finditer(page.read_text())]
    assert len(found) > 60 and found.count(figures.PUBLISHED) < 5


@pytest.mark.parametrize(
    "page", [page for page in figures.pages() if page.name not in WRITTEN], ids=lambda page: page.name
)
def test_prose_has_no_measurement_beside_a_row(page: Path) -> None:
    left = [line for line in prose(page).splitlines() if MEASURED.search(line) and not MEANT.search(line)]
    assert not left


def test_a_figure_that_is_not_its_row_is_found_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    rows = [{"case": "a", "ms": 1500.0, "setting": {"k": 1e-4}}, {"case": "b", "ms": 2500.0, "more": {"left": [1, 7]}}]
    (tmp_path / "docs" / "rows.json").write_text(json.dumps(rows))
    text = "It takes <!-- = rows ms*0.001:.1f case=a -->9<!-- / --> s, <!-- = rows mean(ms)*0.001:.1f -->2.0<!-- / -->."
    (tmp_path / "README.md").write_text(text)
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    monkeypatch.setattr(figures, "DOCS", tmp_path / "docs")
    figures.rows.cache_clear()
    try:
        assert list(figures.wrong()) == ["README.md: 9 is 1.5 by rows ms*0.001:.1f case=a"]
        assert ">1.5<" in figures.written(text) and ">2.0<" in figures.written(text)
        assert figures.value("rows ms:.0f k=0.0001") == "1500" and figures.value("rows more.left.1:.0f case=b") == "7"
        for where in ("rows ms:.1f", "rows ms:.1f case=c", "rows ms case=a"):
            with pytest.raises(figures.NoSuchRow):
                figures.value(where)
    finally:
        figures.rows.cache_clear()


def test_programs_are_counted() -> None:
    sys.path.insert(0, str(ROOT / "tests" / "boundflow"))
    from programs.entries import PROGRAMS

    assert figures.rows("figures/programs") == [{"programs": len(PROGRAMS)}]
    assert f"{len(PROGRAMS)} odd but legal programs" in (ROOT / "docs" / "programs.md").read_text()


def test_the_tutorial_shows_what_its_first_command_says(capsys: pytest.CaptureFixture[str]) -> None:
    """All of the table and the sentence but for the seconds."""
    page = (ROOT / "docs" / "tutorial.md").read_text()
    shown = next(block for block in re.findall(r"^```\n(two-moons.*?)^```", page, re.M | re.S))
    assert run_main("train", "--dataset", "two-moons", "--epsilon", "0.001") == 0
    said = capsys.readouterr().out
    words = " ".join(shown.split("├")[0].split())
    assert words in " ".join(said.split()) and " ".join(shown.split("┘")[1].split()) in " ".join(said.split())


CERTIFIED = [path.stem for path in sorted((ROOT / "docs" / "reproduce").glob("*.json"))]


@pytest.mark.parametrize("name", [name for name in CERTIFIED if name not in ("convergence", "timing")])
def test_with_the_published_recipe_zonotopes_are_not_below_intervals(name: str) -> None:
    """36.5 beside 71.5 only showed a cap. Radii of `convergence` and times of `timing` are better when smaller."""
    found: dict[str, dict[str, float]] = {}
    for row in figures.rows(f"reproduce/{name}"):
        found.setdefault(json.dumps([row["setting"], row["recipe"]]), {})[row["domain"]] = row["mean"]
    pairs = [means for means in found.values() if {"interval", "zonotope"} <= means.keys()]
    assert all(means["zonotope"] >= means["interval"] for means in pairs)


def test_a_row_that_keeps_a_cap_names_it_and_the_hours() -> None:
    """Rows of zonotopes that were trained for fewer epochs than those of intervals beside them."""
    page = (ROOT / "docs" / "reproduce.md").read_text()
    for name in CERTIFIED:
        epochs = {
            domain: [
                row["fixed"]["epochs"]
                for row in figures.rows(f"reproduce/{name}")
                if row["domain"] == domain and "epochs" in row["fixed"]
            ]
            for domain in ("interval", "zonotope")
        }
        if all(epochs.values()) and min(epochs["zonotope"]) < min(epochs["interval"]):
            section = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
            cap = f"at most {min(epochs['zonotope'])} of {min(epochs['interval'])} epochs"
            assert cap in section and re.search(r"about \d+ hours", section), name
