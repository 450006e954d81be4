"""`fullcert reproduce` and `python -m fullcert.reproduce`: files, mistakes, and what they need to run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Command, sentence

from fullcert.reproduce import page, writing
from fullcert.reproduce.__main__ import main
from fullcert.reproduce.experiments import load
from fullcert.system.mistakes import Mistake

DOCS = Path(__file__).parents[3] / "docs"
EXTRAS = ("typer", "rich", "matplotlib", "sklearn", "scipy", "jinja2", "safetensors")
ROW = {
    "id": "epsilon",
    "setting": {"epsilon": 0.001},
    "domain": "interval",
    "recipe": "paper",
    "paper": 82.2,
    "mean": 82.05,
    "std": 4.6,
    "seeds": 10,
    "values": [82.05] * 10,
    "nominal": None,
    "seconds": 2.0,
    "fixed": {},
    "details": [{}] * 10,
}


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


def test_help_imports_nothing_heavy() -> None:
    result = python("-X", "importtime", "-m", "fullcert", "reproduce", "--help")
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert result.returncode == 0 and "Example: fullcert reproduce" in result.stdout
    assert imported.isdisjoint({"torch", "numpy", "boundflow", "matplotlib"})


def test_without_a_name_it_shows_the_list(command: Command) -> None:
    shown = command("reproduce").out
    assert all(id in shown for id in load())


def test_files_of_a_run(command: Command, tmp_path: Path) -> None:
    files = {name: tmp_path / f"rows.{name}" for name in ("json", "csv", "latex", "svg")}
    flags = [flag for name in ("json", "csv", "latex") for flag in (f"--{name}", files[name])]
    run = ("reproduce", "convergence", "--quick", "--domain", "interval", "--out", tmp_path / "out")
    assert command(*run, *flags, "--figure", files["svg"]).code == 0
    rows = json.loads(files["json"].read_text())
    assert {row["id"] for row in rows} == {"convergence"} and {row["domain"] for row in rows} == {"interval"}
    assert "convergence" in files["csv"].read_text() and "\\begin{tabular}" in files["latex"].read_text()
    assert files["svg"].read_text().lstrip().startswith("<?xml")
    again = command(*run, "--json", "-", "--quiet")
    assert json.loads(again.out) == rows and again.err == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere",), "there is no experiment called 'nowhere'"),
        (("epsilon", "--seeds", "0"), "--seeds must be at least 1"),
        (("epsilon", "--jobs", "0"), "--jobs must be at least 1"),
        (("epsilon", "--domain", "ball"), "there is no domain called 'ball'"),
        (("epsilon", "--all"), "--all"),
        (("epsilon", "--device", "abacus"), "the device 'abacus' is not available"),
        (("epsilon", "--figure", "figure.gif"), "--figure is a file that ends with .svg"),
        (("epsilon", "--json", "/nowhere/rows.json"), "there is no folder"),
        (("epsilon", "--rows", "/nowhere/rows.json"), "cannot read"),
        (("--page", "/nowhere/page.md"), "has no rows"),
    ],
)
def test_mistakes_are_one_sentence(arguments: tuple[str, ...], words: str, command: Command, tmp_path: Path) -> None:
    assert words in sentence(command("reproduce", *arguments, "--quick", "--out", tmp_path / "out", "--quiet"))


def test_a_mistake_of_the_plain_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nowhere"]) == 2 and "no experiment called 'nowhere'" in capsys.readouterr().err


def test_it_runs_with_torch_and_numpy_alone(tmp_path: Path) -> None:
    hide = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r}))"
    program = f"{hide}; from fullcert.reproduce.__main__ import main; sys.exit(main(sys.argv[1:]))"
    flags = ["timing", "--quick", "--domain", "interval", "--out", str(tmp_path), "--json", str(tmp_path / "rows.json")]
    result = python("-c", program, *flags)
    assert result.returncode == 0, result.stderr
    assert "left" in result.stderr and "Two-Moons" in result.stdout
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert {row["recipe"] for row in rows} == {"plain", "paper"} and all(row["mean"] > 0 for row in rows)


SMALLER_IS_BETTER = ("convergence", "timing")


def test_rows_as_text_and_tables() -> None:
    rows = [ROW, {**ROW, "setting": {"epsilon": 0.01}, "paper": None, "seeds": 1}]
    assert "epsilon 0.001  interval  paper    82.2  82.0" in writing.as_text(rows)
    assert "| epsilon 0.01 | interval | paper | - |" in writing.as_markdown(rows)
    assert "& 82.2 & $82.0 \\pm 4.6$ & 10 \\\\" in writing.as_latex(rows)
    assert writing.as_csv(rows).splitlines()[1] == "epsilon,0.001,interval,paper,82.2,82.05,4.6,10,,2.0"


def test_figures_are_drawn_from_rows_alone(command: Command, tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    rows.write_text(writing.as_json([ROW]))
    for name in ("one.svg", "two.svg", "three.pdf"):
        assert command("reproduce", "epsilon", "--rows", rows, "--figure", tmp_path / name, "--quiet").code == 0
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert (tmp_path / "three.pdf").read_bytes().startswith(b"%PDF")


def test_the_page_of_the_docs_is_up_to_date(command: Command, tmp_path: Path) -> None:
    (tmp_path / "reproduce").symlink_to(DOCS / "reproduce")
    assert command("reproduce", "--page", tmp_path / "reproduce.md").code == 0
    assert (tmp_path / "reproduce.md").read_text() == (DOCS / "reproduce.md").read_text(), "fullcert reproduce --page"


def test_a_file_of_rows_is_named_by_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "reproduce").mkdir()
    (tmp_path / "reproduce" / "width.json").write_text(writing.as_json([ROW]))
    with pytest.raises(Mistake, match=r"width\.json has rows of epsilon: a file is named by the experiment it holds"):
        page.write(tmp_path / "reproduce.md")


def test_committed_rows_agree_with_the_paper() -> None:
    """What was run on all seeds with the published recipe is within three points of what was printed."""
    rows = [row for row in writing.read(DOCS / "reproduce" / "epsilon.json") if row["domain"] == "interval"]
    assert len(rows) == 4 and all(row["seeds"] == 10 and abs(row["mean"] - row["paper"]) < 3 for row in rows)


def test_no_row_of_the_published_recipe_has_zonotopes_below_intervals() -> None:
    """The same recipe and the same stopping rule in both domains: one that was cut short could show the cut alone."""
    compared = 0
    for path in (DOCS / "reproduce").glob("*.json"):
        rows = [row for row in writing.read(path) if row["recipe"] == "paper"]
        of_intervals = {str(row["setting"]): row["mean"] for row in rows if row["domain"] == "interval"}
        for row in rows:
            if (
                row["domain"] == "zonotope"
                and str(row["setting"]) in of_intervals
                and path.stem not in SMALLER_IS_BETTER
            ):
                assert row["mean"] >= of_intervals[str(row["setting"])], (path.stem, row["setting"])
                compared += 1
    assert compared >= 40


def test_quick_rows_say_that_they_are_not_to_be_compared_and_no_line_is_cut(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    rows = tmp_path / "rows.json"
    rows.write_text(writing.as_json([{**ROW, "setting": {"threat": "features and labels, " * 5}}]))
    for flags, expected in ((("--quick",), True), ((), False)):
        said = command("reproduce", "epsilon", "--rows", rows, *flags).out
        assert ("not comparable" in said) is expected and said.count("features and labels, " * 5) == 1
