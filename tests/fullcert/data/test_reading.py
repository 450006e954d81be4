"""What stands in a cell depends on no other cell: somebody may have changed the others.

Every law reads a cell beside many different ones, and from every kind of file.
"""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from fullcert.data import dates, tables
from fullcert.data.dialects import Dialect
from fullcert.data.encoding import SAME, Encoding, Number, Target, Words
from fullcert.data.notations import ALL
from fullcert.data.tables import as_words, from_words, read
from fullcert.experiment import runs, tasks
from fullcert.experiment.options import Options
from fullcert.results import answering
from fullcert.system.mistakes import Mistake

CELLS = (
    *("1", "1.0", "01", "1e0", "+1", "-0", "0", "2.50", "1,5", "1.5", "1e300", "12345678901234567890", "5e-324"),
    *("n/a", "", "NaN", "-nan", "?", "-999", "-999.0", "0.1", "north", "1_000", "\u0663", "true", "2024-03-01", "x1"),
    *("1.234", "1,234", "1.234,5", "1,234.5", "1 234", "1'234.5", "12.34.567", "North", "NORTH", "north  west", "1E3"),
)
DIALECTS = [Dialect(decimal=sign, marks=frozenset(marks)) for sign in ".," for marks in ((), ("?",), ("-999", "x1"))]
GROUPED = [Dialect(decimal=way.decimal, thousands=way.thousands) for way in ALL if way.grouped]
ANY_CASE = [Dialect(decimal=".", thousands=sign, any_case=frozenset([""])) for sign in (None, ",", "none")]


def named(dialect: Dialect) -> str:
    return f"{dialect.decimal} {dialect.thousands} {sorted(dialect.marks)} {sorted(dialect.any_case)}"


@pytest.mark.parametrize("dialect", [*DIALECTS, *GROUPED, *ANY_CASE], ids=named)
def test_a_cell_is_read_alike_whatever_stands_beside_it(dialect: Dialect) -> None:
    for cell in CELLS:
        beside = [[], ["7"], ["word"], [""], ["word", "1"], *([other] for other in CELLS)]
        found = {str(as_words(from_words([cell, *others], dialect))[0]) for others in beside}
        assert len(found) == 1, (cell, found)


def test_what_is_the_same_number_is_the_same_word_and_nothing_else_is() -> None:
    for first, second in itertools.product(CELLS, CELLS):
        words = from_words([first, second, "word"])
        try:
            same = first == second or (first.isascii() and "_" not in first + second and float(first) == float(second))
        except ValueError:
            same = first == second
        if {first.lower(), second.lower()} <= {"n/a", "", "nan", "-nan"}:
            same = True  # neither holds a value
        assert (words[0] == words[1]) == same, (first, second)


def test_marks_that_are_numbers_are_marks_in_every_kind_of_file(tmp_path: Path) -> None:
    """-999 stands for nothing however it is written, in text and in numbers."""
    values, dialect = [1.0, -999.0, 3.5], Dialect(marks=frozenset({"-999", "?"}))
    (tmp_path / "a.csv").write_text("v,w\n1,a\n-999.0,?\n3.5,-999\n")
    parquet.write_table(pyarrow.table({"v": values, "w": ["a", "?", "-999"]}), tmp_path / "a.parquet")
    np.savez(tmp_path / "a.npz", v=np.array(values), w=np.array(["a", "?", "-999"]))
    for name in ("a.csv", "a.parquet", "a.npz"):
        found = read(tmp_path / name, dialect)
        assert np.array_equal(found.column("v"), [1.0, np.nan, 3.5], equal_nan=True), name
        assert found.column("w").tolist() == ["a", "", ""], name
    np.savez(tmp_path / "m.npz", m=np.array([[1, -999], [2, 3]]))
    assert np.array_equal(read(tmp_path / "m.npz", dialect).column("m1"), [np.nan, 3.0], equal_nan=True)
    unmarked = read(tmp_path / "a.parquet")
    assert unmarked.column("v").tolist() == values and unmarked.column("w").tolist() == ["a", "?", "-999"]


def test_numbers_of_every_type_are_the_same_categories(tmp_path: Path) -> None:
    """Whole numbers, floats, decimals and truths of Parquet, and text."""
    from decimal import Decimal

    columns = {"i": [1, 2], "f": [1.0, 2.0], "d": [Decimal("1.00"), Decimal("2.00")], "t": ["1.0", "02"]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    found = read(tmp_path / "t.parquet", Dialect(decimal=","))
    for name in "ifd":
        assert as_words(found.column(name)).tolist() == ["1", "2"], name
    assert as_words(read(tmp_path / "t.parquet").column("t")).tolist() == ["1", "2"]


def test_one_word_in_a_column_of_numbers_moves_no_other_category(tmp_path: Path) -> None:
    """The category of a row is the same one-hot row, and a word that nobody has is a row of zeros."""
    made = Words("zip", ("1", "2", "2.5"), SAME)
    cells = ["1.0", "2", "02.50", "2.0", "1"]
    plain = made.encoded(from_words(cells))
    assert plain.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]
    for row, word in itertools.product(range(5), ("mars", "", "3", "1,5", "inf")):
        changed = made.encoded(from_words([*cells[:row], word, *cells[row + 1 :]]))
        assert changed[row].tolist() == [0, 0, 0]
        assert np.delete(changed, row, 0).tolist() == np.delete(plain, row, 0).tolist(), word
    target = Target("y", ("1", "2", "x"))
    assert target.encoded(from_words(["1.0", "x", "02"])).tolist() == [0, 2, 1]
    assert target.encoded(from_words(["1.0", "1", "02"])).tolist() == [0, 0, 1]


@pytest.mark.parametrize("name", ["01", "1.0", "1,5", "1e3"])
def test_names_that_are_read_otherwise_since_are_refused(tmp_path: Path, name: str) -> None:
    """A run of an earlier version told 01 from 1: its columns cannot encode what is read now."""
    dialect = Dialect(decimal="," if "," in name else ".")
    for target in (Target("y", ("a", name)), Target("y", ("a", "b"))):
        made = Encoding((Words("zip", ("a",) if name in target.classes else ("a", name), SAME),), target)
        (tmp_path / runs.COLUMNS).write_text(runs.as_json(made.as_data()))
        with pytest.raises(Mistake, match="train again"):
            answering.encoding_of(tmp_path / runs.COLUMNS, dialect)
    plain = Encoding(
        (Words("zip", ("1", "1.5", "a", "n,5"), SAME), Number("v", 0.0, 1.0, SAME)), Target("y", ("0", "b"))
    )
    (tmp_path / runs.COLUMNS).write_text(runs.as_json(plain.as_data()))
    assert answering.encoding_of(tmp_path / runs.COLUMNS, dialect) == plain


# --- letters ----------------------------------------------------------------------------------------------------------


def towns(path: Path, cells: list[bytes]) -> Options:
    rows = [b"%s,%d,%s" % (cell, row, b"ab"[row % 2 : row % 2 + 1]) for row, cell in enumerate(cells)]
    path.write_bytes(b"\n".join([b"town,v,y", *rows]))
    return Options(data=str(path), target="y", encoding="windows-1252", any_category=("town",), hidden="none")


def test_the_letters_of_a_training_table_are_those_that_were_named(tmp_path: Path) -> None:
    """One cell that is no UTF-8 turned all others from UTF-8 into something else, and the other way round."""
    plain = [b"north", "M\u00fcnchen".encode("cp1252"), b"K\xc3\xb6ln"] * 10
    observed = tasks.read(towns(tmp_path / "t.csv", plain), tmp_path / "t.csv").column("town").tolist()
    assert observed[:3] == ["north", "M\u00fcnchen", "K\u00c3\u00b6ln"]
    for row, word in itertools.product(range(3), (b"east", b"\xe4", b"\xc3\xa4")):
        chosen = towns(tmp_path / "p.csv", [*plain[:row], word, *plain[row + 1 :]])
        found = tasks.read(chosen, tmp_path / "p.csv").column("town").tolist()
        assert found[:row] + found[row + 1 :] == observed[:row] + observed[row + 1 :]
    for valid in ("M\u00fcnchen".encode(), b"\xc3\xa4"):  # nothing but UTF-8: the same file could be read in two ways
        with pytest.raises(Mistake, match="is UTF-8, and --encoding says windows-1252: leave that out"):
            tasks.load(towns(tmp_path / "u.csv", [b"north", valid] * 15))
    tasks.load(towns(tmp_path / "a.csv", [b"north", b"south"] * 15))
    new = towns(tmp_path / "new.csv", ["M\u00fcnchen".encode()] * 3)
    assert tasks.read(new, tmp_path / "new.csv").column("town").tolist() == ["M\u00fcnchen"] * 3, "rows to be answered"


def test_an_encoding_of_plain_bytes_is_honoured(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("town,v\nM\u00fcnchen,1\n".encode("utf-7"))
    assert read(tmp_path / "t.csv", Dialect(encoding="utf-7")).column("town").tolist() == ["M\u00fcnchen"]
    (tmp_path / "w.csv").write_bytes("town,v\nM\u00fcnchen,1\n".encode("utf-16-le"))
    assert read(tmp_path / "w.csv", Dialect(encoding="utf-16-le")).column("town").tolist() == ["M\u00fcnchen"]


# --- dates ------------------------------------------------------------------------------------------------------------


def test_dates_are_exact_days_since_1970() -> None:
    """Against the calendar of Python in whole microseconds: the nearest float, up to the roundings of two quotients."""
    random = np.random.default_rng(0)
    epoch = datetime(1970, 1, 1)
    for _ in range(500):
        moment = epoch + timedelta(days=int(random.integers(-700_000, 2_900_000)))
        exact = Fraction((moment - epoch).days)
        assert dates.days(moment.strftime("%Y-%m-%d").rjust(10, "0")) == exact
        moment += timedelta(microseconds=int(random.integers(86_400_000_000)))
        day, clock = (moment - epoch).days, moment.time()
        ticks = ((clock.hour * 60 + clock.minute) * 60 + clock.second) * 10**6 + clock.microsecond
        exact = day + Fraction(ticks, 86_400 * 10**6)
        for sign, between in itertools.product(".,", "T "):
            written = f"{moment:%Y-%m-%d}".rjust(10, "0") + between + f"{moment:%H:%M:%S}{sign}{clock.microsecond:06d}Z"
            assert abs(Fraction(dates.days(written)) - exact) <= abs(exact) * Fraction(3, 2**53)


def test_a_part_of_a_second_counts() -> None:
    """Half a second later is half a second later, wherever in its second a moment lies."""
    first, second = dates.days("2024-03-01 12:00:00.9"), dates.days("2024-03-01 12:00:01.4")
    assert abs((second - first) * 86_400 - 0.5) < 1e-5
    assert dates.days("2024-03-01 12:00:00") < first < dates.days("2024-03-01 12:00:01")


def test_the_order_of_a_date_is_that_which_was_said() -> None:
    for order, written in (("dmy", "04/03/2024"), ("mdy", "03/04/2024"), ("dmy", "4-3-2024"), ("mdy", "3/4/2024")):
        assert dates.days(written, order) == dates.days("2024-03-04") == dates.days("4.3.2024")
    assert dates.days("20240304", "ymd") == dates.days("2024-03-04", "dmy") == dates.days("2024/3/4")
    for written, order in (("03/04/2024", None), ("20240304", None), ("20240304", "dmy"), ("31.02.2024", None)):
        assert dates.days(written, order) is None
    for written in ("2024-03/04", "04.03.24", "2024-3", "", "1", "2024-03-04 25:00", "2024-03-04 12", "2024-13-01"):
        assert dates.days(written, "dmy") is None


def test_a_column_of_dates_is_read_cell_by_cell(tmp_path: Path) -> None:
    """Eight digits are a date beside others and alone, and nothing else is rounded to one."""
    for beside in ("20240305", "2024-03-05", ""):
        (tmp_path / "t.csv").write_text(f"d,v\n20240304,1\n20240304.0,1\n{beside},2\n")
        found = read(tmp_path / "t.csv").with_dates({"d": "ymd"}).column("d")
        assert found[0] == found[1] == dates.days("2024-03-04") and (found[2] == found[0] + 1) == bool(beside)
    (tmp_path / "t.csv").write_text("d,v\n20240304.4,1\n")
    with pytest.raises(Mistake, match="is no date"):
        read(tmp_path / "t.csv").with_dates({"d": "ymd"})


def test_a_table_that_is_written_to_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "people.csv"
    path.write_text("age,town\n30,north\n40,south\n")
    rows_of = tables.rows_of

    def changing(*given: str) -> object:
        rows = rows_of(*given)
        path.write_text("age,town\n30,north\n41,south\n")
        return rows

    monkeypatch.setattr(tables, "rows_of", changing)
    with pytest.raises(Mistake, match=r"people\.csv was written to while it was read"):
        read(path)
