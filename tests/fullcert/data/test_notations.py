"""Numbers with signs between their thousands: read as said, refused where nobody said, and proposed by inspect."""

import csv
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Columns, Command, people, run_main, sentence, write_csv
from hypothesis import given
from hypothesis import strategies as st

from fullcert.data.dialects import Dialect, Said
from fullcert.data.inspecting import inspected
from fullcert.data.notations import ALL, Notation
from fullcert.data.tables import is_written, plain_word, read, word_of
from fullcert.system.mistakes import Mistake

GERMAN, ENGLISH = Notation(",", "."), Notation(".", ",")
BETWEEN = {",": ",", ".": ".", "'": "'", "space": " ", None: ""}


def written(value: float, way: Notation, digits: int = 2) -> str:
    """A number as a program writes it that knows this notation."""
    text = f"{value:,.{digits}f}"
    return text.replace(",", "#").replace(".", way.decimal).replace("#", BETWEEN[way.thousands])


def pay_in(way: Notation, count: int = 90, digits: int = 2) -> Columns:
    """People whose pay has thousands, and whose age has none."""
    table = people(count)
    table["pay"] = [written(1000 * value, way, digits) for value in table["pay"]]
    return table


def semicolons(path: Path, columns: Columns, encoding: str = "utf-8") -> Path:
    with path.open("w", newline="", encoding=encoding) as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


@given(st.floats(-1e12, 1e12).map(lambda value: round(value, 2)), st.sampled_from(ALL))
def test_a_number_is_read_as_it_was_written(value: float, way: Notation) -> None:
    assert way.number(written(value, way)) == value
    assert way.number(written(round(value), way, 0)) == round(value)


@pytest.mark.parametrize(
    ("cell", "way"),
    [
        *(("1.23", GERMAN), ("12.34.567", GERMAN), ("0.123", GERMAN), ("1234.567", GERMAN), ("1.234.56", GERMAN)),
        *(("1,234,5", ENGLISH), (",123", ENGLISH), ("1,,234", ENGLISH), ("1,234.5,6", ENGLISH), ("1.234,5", ENGLISH)),
        *(("1 23", Notation(".", "space")), ("1'23", Notation(".", "'")), ("1.234,5", Notation(",", "none"))),
    ],
)
def test_what_is_no_group_of_three_is_a_word(cell: str, way: Notation) -> None:
    assert way.value(cell) is None


@pytest.mark.parametrize("way", [way for way in ALL if way.grouped], ids=str)
def test_tables_with_thousands_are_read_as_said(tmp_path: Path, way: Notation) -> None:
    columns = pay_in(way)
    table = read(semicolons(tmp_path / "t.csv", columns), Dialect(decimal=way.decimal, thousands=way.thousands))
    np.testing.assert_allclose(table.columns["pay"], [round(1000 * pay, 2) for pay in people()["pay"]], atol=1e-9)
    assert table.columns["age"].tolist() == people()["age"] and not table.unclear


@pytest.mark.parametrize(
    ("way", "flags", "digits", "said"),
    [
        (GERMAN, (), 2, ("--decimal , --thousands .",)),
        (GERMAN, ("--decimal", ","), 2, ("--decimal , --thousands .",)),
        (GERMAN, ("--decimal", ",", "--thousands", "none"), 2, ()),
        (ENGLISH, (), 2, ("--thousands ,",)),
        (ENGLISH, (), 0, ("--thousands ,", "--decimal ,", "2 ways")),  # 1,234: thousands, or a decimal comma
        (GERMAN, (), 0, ("--decimal , --thousands .", "--thousands none", "2 ways")),  # 1.234 is a number either way
        (GERMAN, ("--decimal", ","), 0, ("--decimal , --thousands .", "--thousands none", "2 ways")),
        (Notation(".", "'"), (), 2, ('--thousands "\'"',)),
        (Notation(".", "space"), (), 0, ("--thousands space",)),
    ],
)
def test_where_nobody_said_a_column_that_could_be_read_so_is_refused(
    command: Command, tmp_path: Path, way: Notation, flags: tuple[str, ...], digits: int, said: tuple[str, ...]
) -> None:
    path = semicolons(tmp_path / "t.csv", pay_in(way, digits=digits))
    result = command("train", "--data", path, "--target", "income", *flags, "--steps", "1", "--quiet")
    if said:
        told = sentence(result)
        assert "'pay'" in told and "--categorical pay" in told and all(words in told for words in said), told
    else:  # there is nothing between thousands, so these are names
        assert result.code == 0, result.err
    ignored = command("train", "--data", path, "--target", "income", "--ignore", "pay", "--steps", "1", "--quiet")
    assert ignored.code == 0, ignored.err


def test_a_column_that_shows_how_it_is_written_is_not_asked_about(command: Command, tmp_path: Path) -> None:
    """One cell that can be read in one way only is enough, and so is a word to say it."""
    for other in ("12.5", "0.234", "1234.567"):
        table = pay_in(GERMAN, digits=0)
        table["pay"][7] = other
        path = semicolons(tmp_path / "t.csv", table)
        assert command("train", "--data", path, "--target", "income", "--steps", "1", "--quiet").code == 0, other
    path = semicolons(tmp_path / "t.csv", pay_in(GERMAN, digits=0))
    for flags in (("--thousands", "none"), ("--decimal", ",", "--thousands", "."), ("--categorical", "pay")):
        assert command("train", "--data", path, "--target", "income", *flags, "--steps", "1", "--quiet").code == 0


def test_cells_that_are_missing_say_nothing_of_how_numbers_are_written(tmp_path: Path) -> None:
    columns = pay_in(GERMAN, digits=0)
    whole = read(write_csv(tmp_path / "whole.csv", columns)).unclear
    holes = read(write_csv(tmp_path / "holes.csv", columns | {"pay": ["", "NA", *columns["pay"][2:]]})).unclear
    assert whole.keys() == holes.keys() == {"pay"}


def test_text_in_parquet_and_npz_is_asked_about_too(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = pay_in(GERMAN, digits=0)
    parquet.write_table(pyarrow.table({name: columns[name] for name in ("pay", "age")}), tmp_path / "t.parquet")
    np.savez(tmp_path / "t.npz", pay=np.array(columns["pay"]), age=np.array(columns["age"]))
    for name in ("t.parquet", "t.npz"):
        table = read(tmp_path / name)
        assert set(table.unclear) == {"pay"}
        with pytest.raises(Mistake, match="2 ways"):
            table.check_clear(["age", "pay"])
        assert read(tmp_path / name, Dialect(decimal=",", thousands=".")).columns["pay"][0] > 1000


# --- inspect ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [way for way in ALL if way.grouped], ids=str)
def test_inspect_finds_the_signs_and_train_takes_them(command: Command, tmp_path: Path, way: Notation) -> None:
    path, out = semicolons(tmp_path / "t.csv", pay_in(way)), tmp_path / "t.toml"
    assert command("inspect", path, "--target", "income", "--out", out, "--quiet").code == 0
    options = tomllib.loads(out.read_text())
    assert options["thousands"] == way.thousands and options.get("decimal", ".") == way.decimal
    assert "id" not in options and "ignore" not in options
    assert command("train", "--config", out, "--steps", "1", "--quiet").code == 0


def test_inspect_asks_where_no_column_shows_it(command: Command, tmp_path: Path) -> None:
    path, out = semicolons(tmp_path / "t.csv", pay_in(GERMAN, digits=0)), tmp_path / "t.toml"
    (decide,) = [f for f in inspected(path, target="income").findings if f.kind == "thousands"]
    assert decide.decide and "2 ways" in decide.seen and "--thousands none" in decide.seen
    assert command("inspect", path, "--target", "income", "--out", out, "--quiet").code == 0
    assert 'thousands = "none"' in out.read_text() and "DECIDE: 'pay' can be read in 2 ways" in out.read_text()
    assert command("train", "--config", out, "--steps", "1", "--quiet").code == 0
    shown = pay_in(GERMAN, digits=0) | {"rate": [f"{row % 7},5" for row in range(90)]}  # commas are the decimal sign
    found = inspected(semicolons(path, shown), target="income")
    assert found.options["thousands"] == "." and not [f for f in found.findings if f.kind == "thousands" and f.decide]


def test_what_is_said_to_inspect_is_in_the_options(tmp_path: Path) -> None:
    """It is how train will read the file, too."""
    path = semicolons(tmp_path / "t.csv", pay_in(GERMAN, digits=0), "windows-1252")
    options = inspected(path, Said("windows-1252", ";", ",", "."), "income").options
    assert {name: options[name] for name in ("encoding", "separator", "decimal", "thousands")} == {
        **{"encoding": "windows-1252", "separator": ";", "decimal": ",", "thousands": "."}
    }
    assert inspected(path, Said(thousands="."), "income").options["decimal"] == ","


# --- a run, and new rows ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def german(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("german")
    path = semicolons(folder / "people.csv", pay_in(GERMAN))
    flags = ("--target", "income", "--decimal", ",", "--thousands", ".", "--flip-labels", "2", "--steps", "3")
    assert run_main("train", "--data", path, *flags, "--out", folder / "run", "--quiet") == 0
    return folder


def answers(command: Command, run: Path, rows: Path, *flags: str) -> list[dict[str, Any]]:
    result = command("certify", run, rows, *flags, "--json", "-", "--quiet")
    assert result.code == 0, result.err
    return json.loads(result.out)["rows"]


def test_new_rows_are_read_as_those_of_the_run_or_as_said(command: Command, german: Path, tmp_path: Path) -> None:
    run, table = german / "run", people(20, seed=1)
    here = {name: cells for name, cells in table.items() if name != "income"}
    here["pay"] = [written(1000 * pay, GERMAN) for pay in table["pay"]]
    there = here | {"pay": [written(1000 * pay, ENGLISH) for pay in table["pay"]]}
    expected = answers(command, run, semicolons(tmp_path / "here.csv", here))
    other = write_csv(tmp_path / "there.csv", there)
    said = sentence(command("certify", run, other))  # what it names is enough, whatever the table of the run says
    assert "'pay'" in said and "give --decimal . --thousands , (" in said and len(expected) == 20
    assert answers(command, run, other, "--decimal", ".", "--thousands", ",") == expected
    pipes = tmp_path / "pipes.csv"
    lines = ["|".join(there), *("|".join(map(str, row)) for row in zip(*there.values(), strict=True))]
    pipes.write_text("\n".join(lines), encoding="utf-16-le")
    said = ("--encoding", "utf-16-le", "--separator", "|", "--decimal", ".", "--thousands", ",")
    assert answers(command, run, pipes, *said) == expected
    audited = command("audit", run, pipes, *said, "--budget", "3", "--json", "-", "--quiet")
    assert audited.code == 0 and json.loads(audited.out)["samples"] == 20, audited.err


def test_checked_rows_of_a_german_table_may_be_typed_in_either_way(command: Command, tmp_path: Path) -> None:
    """1.234 is refused there: it was taken for a number near one, which nobody had checked."""
    table = pay_in(GERMAN)
    table["pay"][::9] = [""] * 10
    path = semicolons(tmp_path / "people.csv", table)
    flags = ("--target", "income", "--decimal", ",", "--thousands", ".", "--missing", "pay=1:9999999", "--steps", "3")
    run = tmp_path / "run"
    assert command("train", "--data", path, *flags, "--out", run, "--quiet").code == 0
    assert command("audit", run, "--every", "--out", tmp_path / "check.csv", "--quiet").code == 0
    rows = list(csv.DictReader((tmp_path / "check.csv").read_text().splitlines()))
    (first, *_) = [row for row in rows if row["missing"] == "pay"]
    found = {}
    for typed, said in {
        "6234.5": (),
        "6.234,5": (),
        "6234": (),
        "6.234": ("--decimal", ",", "--thousands", "."),
        "6.235": ("--decimal", ".", "--thousands", "none"),
    }.items():
        filled = write_csv(tmp_path / "filled.csv", {"line": [first["line"]], "pay": [typed]})
        if said:
            assert "2 ways" in sentence(command("audit", run, "--verified", filled))
        result = command("audit", run, "--verified", filled, *said, "--every", "--json", "-", "--quiet")
        assert result.code == 0, result.err
        found[typed] = json.loads(result.out)["predictions"][0]["margin"]
    assert found["6234.5"] == found["6.234,5"] != found["6234"] == found["6.234"] != found["6.235"]


def test_tune_reads_its_tables_as_they_are_written(command: Command, german: Path) -> None:
    """It counted rows of a plain file."""
    path = german / "people.csv"
    flags = ("--target", "income", "--decimal", ",", "--thousands", ".", "--flip-labels", "2", "--most-steps", "1")
    other = path.read_text().replace("north", "nörth").encode("windows-1252")
    (german / "letters.csv").write_bytes(other)
    both = ("--data", german / "letters.csv", "--trusted", german / "letters.csv", "--encoding", "windows-1252")
    result = command("tune", *both, *flags, "--rate", "1", "--quiet")
    assert result.code == 0, result.err


def test_categories_of_a_run_with_thousands_are_known_again(command: Command, tmp_path: Path) -> None:
    """1,234 among words is written 1.234 as a category, which the dialect of the run would read as 1234."""
    table = people(60)
    table["town"] = ["1,234" if town == "north" else town for town in table["town"]]
    path = semicolons(tmp_path / "t.csv", {name: table[name] for name in ("age", "town", "income")})
    flags = ("--target", "income", "--decimal", ",", "--thousands", ".", "--flip-labels", "1", "--steps", "1")
    assert command("train", "--data", path, *flags, "--out", tmp_path / "run", "--quiet").code == 0
    assert all(row["label"] for row in answers(command, tmp_path / "run", path))


@given(st.sampled_from(ALL), st.floats(-1e9, 1e9).map(lambda value: round(value, 3)))
def test_names_of_categories_are_those_that_cells_give(way: Notation, value: float) -> None:
    dialect = Dialect(decimal=way.decimal, thousands=way.thousands)
    assert is_written(plain_word(written(value, way, 3), dialect), dialect)
    assert is_written(word_of(value), dialect) and not is_written("1.0", Dialect())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", "--data", "people.csv", "--target", "income", "--thousands", "x"), "--thousands must be one of"),
        (("train", "--data", "people.csv", "--target", "income", "--thousands", "."), "add --decimal ,"),
        (("train", "--dataset", "iris", "--thousands", "none"), "goes with --data"),
        (("inspect", "people.csv", "--thousands", "x"), "--thousands must be one of"),
        (("inspect", "people.csv", "--thousands", ",", "--decimal", ","), "add --decimal ."),
        (("certify", "run", "people.csv", "--thousands", "x"), "--thousands must be one of"),
        (("certify", "run", "people.csv", "--encoding", "morse"), "no such encoding"),
        (("certify", "run", "people.csv", "--separator", "x"), "--separator must be"),
        (("certify", "run", "--withstands", "--decimal", "."), "--decimal is about rows of a file"),
        (("audit", "run", "--thousands", "none"), "are about a file"),
        (("audit", "run", "people.csv", "--decimal", "x"), "--decimal must be"),
    ],
)
def test_a_mistake_is_one_sentence(
    command: Command, german: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(german)
    assert words in sentence(command(*arguments))


@pytest.mark.parametrize("name", ["train", "tune", "sweep", "inspect", "certify", "audit"])
def test_every_command_that_reads_a_table_takes_how_it_is_written(command: Command, name: str) -> None:
    told = command(name, "--help").out
    assert all(flag in told for flag in ("--encoding", "--separator", "--decimal", "--thousands"))
