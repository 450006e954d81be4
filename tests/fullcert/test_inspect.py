"""A table as people send it: what is to be decided is told at once, and the proposed options lead to a report."""

import csv
import json
import tomllib
from pathlib import Path

import pytest
from commands import Command, people, sentence, write_csv
from messy import messy_cells, write_messy

from fullcert.inspecting import inspected
from fullcert.mistakes import Mistake

ROWS = 300


@pytest.fixture(scope="module")
def customers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_messy(tmp_path_factory.mktemp("messy") / "kunden.csv", ROWS)


def test_every_problem_is_found_at_once(customers: Path) -> None:
    found = inspected(customers, target="bezahlt")
    kinds = {(finding.column, finding.kind) for finding in found.findings}
    assert kinds >= {
        *(("", "encoding"), ("", "separator"), ("", "decimal sign"), ("bezahlt", "target"), ("Kundennummer", "id")),
        *(("Kunde seit", "date"), ("Alter", "missing"), ("Ort", "missing"), ("PLZ", "code"), ("Beruf", "missing")),
        *(("Bemerkung", "free text"), ("Mandant", "constant")),
    }
    assert not found.undecided and found.rows == ROWS
    options = found.options
    assert options["encoding"] == "windows-1252" and options["decimal"] == "," and options["id"] == "Kundennummer"
    assert options["ignore"] == ["PLZ", "Bemerkung", "Mandant"] and options["dates"] == ["Kunde seit"]
    assert options["missing_mark"] == ["?"] and options["drop_unlabelled"] and options["flip_labels"] == 1
    assert {"Ort", "Beruf", "Alter=18:89"} <= set(options["missing"])


def test_from_a_file_to_a_report_in_two_commands(
    command: Command, customers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = command("inspect", customers, "--target", "bezahlt", "--json", "-", "--quiet")
    told = json.loads(result.out)
    assert result.code == 0 and told["written"] == "kunden.toml" and told["next"].startswith("fullcert train --config")
    assert tomllib.loads((tmp_path / "kunden.toml").read_text()) == told["options"]
    assert command("train", "--config", "kunden.toml", "--out", "run").code == 0
    evaluation = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    cells = messy_cells(ROWS)
    for sample in evaluation["samples"]:  # every answer can be found again in the file
        assert cells["Kundennummer"][sample["line"] - 2] == sample["id"]
        assert cells["bezahlt"][sample["line"] - 2] == sample["true"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert evaluation["samples"][0]["id"] in page and 'data-key="id"' in page and ">Line<" in page
    assert "Beruf by any category of the training rows" in evaluation["threat"]["training"]
    left_out = dict(evaluation["details"][0][1])["rows left out"]
    assert left_out.startswith(str(cells["bezahlt"].count("")))
    answers_carry_lines_and_ids(command, tmp_path)


def answers_carry_lines_and_ids(command: Command, folder: Path) -> None:
    """Rows of which nobody knows yet whether they paid, one after a cell of two lines."""
    path = write_messy(folder / "new.csv", 6, seed=1)
    text = path.read_text("windows-1252").replace("Vertrag 0", '"Vertrag"\r\n0')
    lines = text.splitlines()
    lines[1:3] = ['"'.join((lines[1].partition("Gespräch")[0], "Gespräch " + "\r\n" + "am Telefon", ";4711;"))]
    path.write_bytes("\r\n".join(lines).encode("windows-1252"))
    result = command("certify", folder / "run", path, "--out", folder / "answers.csv", "--quiet")
    assert result.code == 0, result.err
    with (folder / "answers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["line"] for row in rows] == ["2", *(str(3 + number) for number in range(1, 6))]
    assert all(row["id"].startswith("K0") for row in rows) and rows[0]["true"] == ""


def test_what_the_data_do_not_decide_is_for_a_person(tmp_path: Path) -> None:
    table = people(40)
    table["seen"] = [f"{1 + row % 9:02d}/{1 + row % 7:02d}/2024" for row in range(40)]
    table["weight"] = [60 + row if row % 13 else "about 70" for row in range(40)]
    found = {f.column: f for f in inspected(write_csv(tmp_path / "t.csv", table)).findings if f.decide}
    assert set(found) == {"seen", "weight", "income"}  # the order, a word among numbers, and what is predicted
    assert "either way round" in found["seen"].seen and found["weight"].entry == "about 70"


def test_other_ways_to_write_a_table(tmp_path: Path) -> None:
    text = "a\tb\r\n" + "".join(f"{row}\t{'xyz'[row % 3]}\r\n" for row in range(30))
    for encoding in ("utf-16", "utf-8-sig", "utf-16-le"):
        (tmp_path / "t.csv").write_bytes(text.encode(encoding))
        assert inspected(tmp_path / "t.csv", target="b").columns == ("a", "b"), encoding


def test_stand_ins_codes_and_rare_classes(tmp_path: Path) -> None:
    table = people(60)
    table["hours"][::9] = [-999] * 7
    table["zip"] = [f"0{1067 + row % 5}" for row in range(60)]
    table["income"][0] = "unclear"
    findings = inspected(write_csv(tmp_path / "t.csv", table), target="income").findings
    assert {(f.column, f.kind) for f in findings} >= {("hours", "stand-in"), ("zip", "code"), ("income", "few rows")}


def test_numbers_of_eight_digits_are_dates_where_their_years_are_of_our_time(tmp_path: Path) -> None:
    for year, kind in ((1899, False), (1900, True), (2100, True), (2101, False)):
        table = people(40) | {"when": [f"{year}03{1 + row % 28:02d}" for row in range(40)]}
        found = {f.kind for f in inspected(write_csv(tmp_path / "t.csv", table), target="income").findings if f.column}
        assert ("date" in found) is kind, year


def test_what_can_be_predicted(tmp_path: Path) -> None:
    """Many numbers are predicted as one, a few are classes; many words, or one alone, are no target."""
    targets = {
        "numbers": ([row / 2 for row in range(60)], {"regression"}, False),
        "classes": ([row % 20 for row in range(60)], {None}, False),
        "words": ([f"w{row % 25}" for row in range(60)], {None}, False),
        "names": ([f"w{row}" for row in range(120)], {None}, True),
        "one": (["same"] * 60, {None}, True),
    }
    for name, (column, keys, undecided) in targets.items():
        found = inspected(write_csv(tmp_path / "t.csv", people(len(column)) | {"y": column}), target="y")
        own = [finding for finding in found.findings if finding.column == "y"]
        assert bool([finding for finding in own if finding.decide]) is undecided, (name, own)
        assert ("regression" in found.options) is (name == "numbers"), name
        assert {finding.key for finding in own} <= {*keys, None}, (name, own)


def test_words_for_nothing_in_any_case(tmp_path: Path) -> None:
    table = people(60)
    table["town"][::7] = ["Unknown"] * len(table["town"][::7])
    found = inspected(write_csv(tmp_path / "t.csv", table), target="income")
    assert found.options["missing_mark"] == ["Unknown"] and not found.undecided


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("absent.csv",), "No such file"),
        (("table.xls",), "must end with"),
        (("t.csv", "--target", "wage"), "no column 'wage'"),
        (("t.csv", "--out", "no/where.toml"), "no folder"),
        (("t.csv", "--encoding", "morse"), "no such encoding"),
        (("t.csv", "--separator", "x"), "--separator"),
        (("t.csv", "--decimal", "x"), "--decimal"),
        (("t.csv", "--json", "no/where.json"), "no folder"),
        (("empty.csv",), "empty"),
        (("header.csv",), "no rows"),
        (("uneven.csv",), "line 3 has 1 cells, and the header has 2; so have 1 further lines"),
        ((), "Missing argument"),
    ],
)
def test_a_mistake_is_one_sentence(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "t.csv", people(30))
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("a,b\n")
    (tmp_path / "uneven.csv").write_text("a,b\n1,2\n3\n4\n")
    assert words in sentence(command("inspect", *flags))
    assert not list(tmp_path.glob("*.toml"))


def test_a_file_of_options_is_not_replaced_unasked(command: Command, tmp_path: Path) -> None:
    path, out = write_csv(tmp_path / "t.csv", people(30)), tmp_path / "t.toml"
    out.write_text("mine")
    assert "--overwrite" in sentence(command("inspect", path, "--out", out)) and out.read_text() == "mine"
    result = command("inspect", path, "--out", out, "--overwrite")
    assert result.code == 0 and "decide:" in result.out and str(out) in result.out


def test_help(command: Command) -> None:
    result = command("inspect", "--help")
    assert result.code == 0 and "Example: fullcert inspect" in result.out and "--target" in result.out


def test_names_of_columns_cannot_leave_their_line(command: Command, tmp_path: Path) -> None:
    """What stands in a table is written into the options as words, whatever it holds."""
    table = {
        'a"]\nepochs = 9\n#': list(range(30)),
        "why\n": ["?"] * 10 + ["x\nepochs = 9", "z"] * 10,
        "y": ["n", "m"] * 15,
    }
    path = tmp_path / "t.csv"
    write_csv(path, table)
    assert command("inspect", path, "--target", "y", "--out", tmp_path / "t.toml", "--quiet").code == 0
    assert "epochs" not in tomllib.loads((tmp_path / "t.toml").read_text())


def test_a_table_without_lines_is_inspected_too(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"x": list(range(30)), "y": ["a", "b"] * 15}), tmp_path / "t.parquet")
    assert inspected(tmp_path / "t.parquet", target="y").columns == ("x", "y")
    with pytest.raises(Mistake, match="no column"):
        inspected(tmp_path / "t.parquet", target="z")
