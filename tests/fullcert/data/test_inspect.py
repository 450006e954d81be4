"""A table as people send it: what is to be decided is told at once, and the proposed options lead to a report."""

import csv
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from commands import Command, people, sentence, write_csv
from messy import messy_cells, write_messy

from fullcert.data.column_questions import Finding
from fullcert.data.dialects import Dialect
from fullcert.data.inspecting import inspected, threat
from fullcert.system.mistakes import Mistake

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
    left_out = {finding.column for finding in found.findings if finding.undecided}
    assert left_out == {"Kundennummer", "PLZ", "Bemerkung", "Mandant"} and found.rows == ROWS
    assert found.undecided == 4 and not any(finding.decide for finding in found.findings)
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


@pytest.mark.parametrize("value", [-1, -9, -99, -999, -9999, 99, 999, 9999, 99999])
def test_every_stand_in_is_asked_about(value: int, tmp_path: Path) -> None:
    table = people(60)
    table["hours"] = [value if row % 9 == 0 else 20 + row % 14 for row in range(60)]
    findings = inspected(write_csv(tmp_path / "t.csv", table), target="income").findings
    assert ("hours", "stand-in") in {(f.column, f.kind) for f in findings}


def test_one_label_in_a_thousand_is_proposed_to_be_wrong() -> None:
    for rows, flips in ((10, 1), (1999, 1), (2000, 2), (3000, 3)):
        assert threat(["a"] * rows, Dialect(), regression=False) == {"flip_labels": flips}


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


def decisions(tmp_path: Path, table: dict[str, list[Any]], target: str = "income") -> dict[tuple[str, str], Finding]:
    """What is for a person to decide about a table, by column and kind."""
    found = inspected(write_csv(tmp_path / "t.csv", table), target=target).findings
    return {(finding.column, finding.kind): finding for finding in found if finding.undecided}


def test_every_column_that_is_left_out_is_to_be_confirmed(command: Command, tmp_path: Path) -> None:
    table = people(150)
    table["Kunden-Nr."] = [100_000 + 7 * row for row in range(150)]
    table["zip"] = [f"0{1000 + 7 * row % 150}" for row in range(150)]
    table["note"] = [f"said on the telephone that number {row} is right" for row in range(150)]
    table["empty"], table["same"] = [""] * 150, ["x"] * 150
    table["other"] = [f"T{row:03d}" for row in range(150)]
    out = {
        "Kunden-Nr.": "id",
        "zip": "code",
        "note": "free text",
        "empty": "missing",
        "same": "constant",
        "other": "id",
    }
    found = decisions(tmp_path, table)
    assert set(found) == set(out.items())
    assert found[("other", "id")].proposed == "left out, since 'Kunden-Nr.' is the id"
    assert command("inspect", tmp_path / "t.csv", "--target", "income", "--out", tmp_path / "t.toml").code == 0
    written = (tmp_path / "t.toml").read_text()
    assert all(f"# DECIDE: {name}: " in written for name in out) and written.count("DECIDE") == len(out)
    told = json.loads(
        command("inspect", tmp_path / "t.csv", "--target", "income", "--out", "/dev/null", "--json", "-").out
    )
    assert {one["column"] for one in told["findings"] if one["decide"]} == set(out)
    assert tomllib.loads(written)["ignore"] == ["zip", "note", "empty", "same", "other"]


def test_a_remark_of_one_word_is_a_decision(command: Command, tmp_path: Path) -> None:
    """It was an input whose empty cells could have been that word: nine rows in ten with an unknown."""
    table = people(100)
    table["remark"] = ["checked" if row % 10 == 0 else "" for row in range(100)]
    (finding,) = decisions(tmp_path, table).values()
    assert finding.kind == "one word" and finding.seen == "10 cells hold 'checked', and 90 are empty"
    assert [other.key for other in finding.others] == [None, "missing"]
    assert command("inspect", tmp_path / "t.csv", "--target", "income", "--out", tmp_path / "t.toml").code == 0
    assert tomllib.loads((tmp_path / "t.toml").read_text())["ignore"] == ["remark"]
    for entries in ("", 'missing = ["remark"]\n'):  # each of the ways can be taken
        way = (tmp_path / "t.toml").read_text().replace('ignore = ["remark"]\n', entries)
        (tmp_path / "way.toml").write_text(way)
        result = command("train", "--config", tmp_path / "way.toml", "--steps", "1", "--quiet")
        assert result.code == 0, result.err


def test_categories_that_differ_by_case_or_blanks_are_a_decision(command: Command, tmp_path: Path) -> None:
    table = people(120)
    for row, word in ((0, "North"), (1, "north "), (2, "SOUTH")):
        table["town"][row] = word
    table["income"][3] = table["income"][3].upper()
    table["job"] = ["head  nurse" if row % 3 else "Head nurse" for row in range(120)]
    found = decisions(tmp_path, table)
    assert set(found) == {("town", "spelling"), ("income", "spelling"), ("job", "spelling")}
    assert "differ by case or blanks alone; so do 1 more" in found["town", "spelling"].seen
    flags = ("--target", "income", "--out", tmp_path / "t.toml", "--quiet")
    assert command("inspect", tmp_path / "t.csv", *flags).code == 0
    assert tomllib.loads((tmp_path / "t.toml").read_text())["ignore_case"] == ["income", "town", "job"]
    assert command("train", "--config", tmp_path / "t.toml", "--steps", "1", "--out", tmp_path / "run").code == 0
    columns = json.loads((tmp_path / "run" / "columns.json").read_text())
    town, job = (next(c for c in columns["columns"] if c["name"] == name) for name in ("town", "job"))
    assert set(town["values"]) == {"north", "south", "west"} and job["values"] == ["head nurse"]
    assert columns["target"]["classes"] == ["little", "much"]
    rows = {name: cells[:2] for name, cells in table.items()} | {"town": ["NORTH", "north"], "age": [30, 30]}
    rows |= {"hours": [40, 40], "pay": [5, 5]}
    result = command("certify", tmp_path / "run", write_csv(tmp_path / "new.csv", rows), "--json", "-", "--quiet")
    first, second = json.loads(result.out)["rows"]
    assert first["lower"] == second["lower"]  # a new row may be typed in any way, too


def test_the_fixed_value_of_a_column_may_be_typed_in_any_case(command: Command, tmp_path: Path) -> None:
    table = people(60)
    table["town"] = [("North", "north", "west", "")[row % 4] for row in range(60)]
    path = write_csv(tmp_path / "t.csv", table)
    flags = ("--target", "income", "--steps", "1", "--quiet", "--impute", "town=NORTH")
    assert command("train", "--data", path, *flags, "--ignore-case", "town").code == 0
    assert "none of its categories" in sentence(command("train", "--data", path, *flags))
    assert "no column 'city'" in sentence(command("train", "--data", path, *flags[:-2], "--ignore-case", "city"))


def test_rare_categories_are_a_decision(tmp_path: Path) -> None:
    table = people(600)
    table["town"][0], table["town"][1] = "Nroth", "Nroth"  # named as it is written
    (finding,) = decisions(tmp_path, table).values()
    assert finding.kind == "rare" and finding.seen == "1 category has fewer than 10 rows: 'Nroth (2)'"


def test_missing_cells_are_proposed_in_both_ways(command: Command, tmp_path: Path) -> None:
    """Each with what it costs, and each can be taken as it stands there."""
    table = people(100)
    table["hours"][3] = table["hours"][4] = table["town"][5] = ""
    table["since"] = ["" if row == 7 else f"2024-01-{1 + row % 28:02d}" for row in range(100)]
    write_csv(tmp_path / "t.csv", table)
    out = tmp_path / "t.toml"
    assert command("inspect", tmp_path / "t.csv", "--target", "income", "--out", out, "--quiet").code == 0
    written = out.read_text()
    assert written.count("#   costs: ") == 3 and "these 2 % of the rows" in written
    assert written.count("instead: leaves no answer open for that") == 3
    (line,) = [line for line in written.splitlines() if line.startswith("missing")]
    other = '# impute = ["hours=median", "town=mode", "since=median"]'
    assert other in written
    for text in (written, written.replace(line, other.removeprefix("# "))):
        out.write_text(text)
        result = command("train", "--config", out, "--steps", "1", "--quiet")
        assert result.code == 0, result.err


def test_everything_to_decide_is_marked_in_the_file(command: Command, tmp_path: Path) -> None:
    """Also what has no entry there, such as numbers that may stand for nothing, and a target that was guessed."""
    table = people(60)
    table["hours"][::9] = [-999] * 7
    result = command("inspect", write_csv(tmp_path / "t.csv", table), "--out", tmp_path / "t.toml", "--json", "-")
    told, written = json.loads(result.out), (tmp_path / "t.toml").read_text()
    assert told["to_decide"] == written.count("# DECIDE: ") == 2 == sum(one["decide"] for one in told["findings"])
    assert "DECIDE: hours" in written and "DECIDE: income" in written


def test_a_second_inspect_writes_beside_the_first(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_csv(tmp_path / "t.csv", people(30))
    assert command("inspect", path, "--quiet").code == 0
    Path("t.toml").write_text("mine")
    for name in ("t-2.toml", "t-3.toml"):
        told = json.loads(command("inspect", path, "--quiet", "--json", "-").out)
        assert told["written"] == name and name in told["next"] and Path(name).exists()
    assert Path("t.toml").read_text() == "mine"
    assert json.loads(command("inspect", path, "--overwrite", "--quiet", "--json", "-").out)["written"] == "t.toml"


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
