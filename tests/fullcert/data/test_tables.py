"""Tables in files: what stands in a cell is what is read, and what is wrong with a file is one sentence."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from fullcert.data.dialects import Dialect
from fullcert.data.tables import Table, read, written
from fullcert.system.mistakes import Mistake


def csv_of(folder: Path, content: str | bytes) -> Table:
    path = folder / "table.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read(path)


def npz_of(folder: Path, **arrays: Any) -> Table:
    np.savez(folder / "table.npz", **arrays)
    return read(folder / "table.npz")


def parquet_of(folder: Path, table: pyarrow.Table) -> Table:
    parquet.write_table(table, folder / "table.parquet")
    return read(folder / "table.parquet")


def refused(path: Path) -> str:
    """The sentence about a file that cannot be read; it names the file."""
    with pytest.raises(Mistake) as mistake:
        read(path)
    assert str(path) in str(mistake.value) and len(str(mistake.value).splitlines()) == 1
    return str(mistake.value)


# --- CSV ------------------------------------------------------------------------------------------------------


def test_numbers_and_words(tmp_path: Path) -> None:
    table = csv_of(tmp_path, "age,town\n30,north\n4.5e1,?\n-2,2nd\n")
    assert len(table) == 3 and table.columns["age"].tolist() == [30, 45, -2]
    assert table.columns["town"].tolist() == ["north", "?", "2nd"]


def test_quotes_spaces_blank_lines_and_a_byte_order_mark(tmp_path: Path) -> None:
    text = '\ufeff age , town\r\n\r\n 30 , "north, or ""up"""\r\n  \r\n31,"two\nlines"\r\n\r\n'
    table = csv_of(tmp_path, text.encode())
    assert list(table.columns) == ["age", "town"] and table.columns["age"].tolist() == [30, 31]
    assert table.columns["town"].tolist() == ['north, or "up"', "two\nlines"]


def test_a_file_that_ends_inside_a_letter_is_not_utf_8(tmp_path: Path) -> None:
    """The last byte alone tells that a file was written as its options say."""
    path = tmp_path / "table.csv"
    path.write_bytes("n,town\n1,Lyon\n2,Orl\u00e9".encode("windows-1252"))
    assert read(path, Dialect(encoding="windows-1252")).columns["town"].tolist() == ["Lyon", "Orl\u00e9"]
    path.write_bytes("n,town\n1,Lyon\n2,Orl\u00e9".encode())
    assert read(path, Dialect(encoding="windows-1252")).columns["town"].tolist() == ["Lyon", "Orl\u00e9"]


def test_missing_cells(tmp_path: Path) -> None:
    table = csv_of(tmp_path, "age,town\n30,\nNaN,north\n,NULL\nn/a,None\n")
    assert np.array_equal(table.columns["age"], [30, np.nan, np.nan, np.nan], equal_nan=True)
    assert table.columns["town"].tolist() == ["", "north", "", ""]


def test_only_plain_numerals_are_numbers(tmp_path: Path) -> None:
    """Python reads 1_000 and other scripts' digits as numbers; in a table they are words."""
    table = csv_of(tmp_path, "a,b,c\n1_000,\u0663,1e3\n2,2,2\n")
    assert table.columns["a"].tolist() == ["1_000", "2"] and table.columns["b"].tolist() == ["\u0663", "2"]
    assert table.columns["c"].tolist() == [1000, 2]


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("", "empty"),
        ("\n\n", "empty"),
        ("age,town\n", "no rows"),
        ("age,town\n30\n", "line 2 has 1 cells"),
        ("age,town\n30,north\n\n31,north,south\n", "line 4 has 3 cells"),
        ("age,age\n1,2\n", "each name once"),
        ("age,\n1,2\n", "name every column"),
        ("age\n30\ninf\n", "infinite"),
        ("age,pay\n1,2\n3,1e999\n", "infinite"),
        ('age,town\n30,"north\n', "cannot be read"),
        ('age,town\n30,"no"rth\n', "cannot be read"),
        (b"age,town\n30,M\xfcnchen\n", "not UTF-8: name its encoding, such as --encoding windows-1252"),
        (b"age,town\n30,\x00\x00\n31,\x00\n", ""),
        ("age\n" + "9" * 200_000 + "\n", "cannot be read"),
    ],
)
def test_a_wrong_csv_is_one_sentence(tmp_path: Path, content: str | bytes, word: str) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if word:
        assert word in refused(path)
    else:  # a null byte may stand in a word
        assert read(path).columns["age"].tolist() == [30, 31]


# --- Parquet --------------------------------------------------------------------------------------------------


def test_parquet(tmp_path: Path) -> None:
    columns = {"age": [30, None, 32], "pay": [1.5, None, float("nan")], "town": ["north", None, " ?"], "ok": [True] * 3}
    table = parquet_of(tmp_path, pyarrow.table(columns))
    assert np.array_equal(table.columns["age"], [30, np.nan, 32], equal_nan=True)
    assert np.array_equal(table.columns["pay"], [1.5, np.nan, np.nan], equal_nan=True)
    assert table.columns["town"].tolist() == ["north", "", "?"] and table.columns["ok"].tolist() == [1, 1, 1]


def test_a_parquet_file_is_read_as_it_is_wherever_it_lies(tmp_path: Path) -> None:
    """A folder called a=1 is a folder, not a column, and a name that begins with _ is a name."""
    folder = tmp_path / "a=1"
    folder.mkdir()
    path = folder / "_table.parquet"
    parquet.write_table(pyarrow.table({"x": [1.0]}), path)
    assert list(read(path).columns) == ["x"]


def test_a_wrong_parquet_file_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    parquet.write_table(pyarrow.table({"x": list(range(1000))}), path)
    whole = path.read_bytes()
    for content in (whole[:-20], whole[: len(whole) // 2], whole[:3], b"", b"x,y\n1,2\n", whole[:40] + whole[60:]):
        path.write_bytes(content)
        refused(path)
    parquet.write_table(pyarrow.table([[1], [2]], names=["x", "x"]), path)
    assert "each name once" in refused(path)
    parquet.write_table(pyarrow.table({"x": [float("inf")]}), path)
    assert "infinite" in refused(path)


def test_parquet_needs_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "table.parquet").write_bytes(b"PAR1")
    with pytest.raises(Mistake, match=r"pip install pyarrow"):
        read(tmp_path / "table.parquet")
    with pytest.raises(Mistake, match=r"pip install pyarrow"):
        written({"x": [1]}, ".parquet")


# --- NPZ ------------------------------------------------------------------------------------------------------


def test_npz(tmp_path: Path) -> None:
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    table = npz_of(
        tmp_path, x=np.array([[1, 2], [3, 4]]), y=np.array([0, 1]), word=np.array(["a", "?"]), sure=np.array([True] * 2)
    )
    assert {name: column.tolist() for name, column in table.columns.items()} == {
        **{"x0": [1, 3], "x1": [2, 4], "y": [0, 1], "word": ["a", "?"], "sure": [1, 1]}
    }
    pixels = npz_of(tmp_path, x=images, z=images.astype(np.float32)).columns
    assert np.array_equal(pixels["x"], images / 255.0) and np.array_equal(pixels["z"], images)
    assert pixels["z"].dtype == np.float64


@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        ({}, "no rows"),
        ({"x": np.zeros((0, 3))}, "no rows"),
        ({"x": np.zeros(3), "y": np.zeros(2)}, "different lengths"),
        ({"x": np.array([{}, None], dtype=object)}, "cannot be read"),
        ({"x": np.array(3.0)}, "single value"),
        ({"x": np.array([["a", "b"], ["c", "d"]])}, "numbers"),
        ({"x": np.zeros((2, 2), dtype=complex)}, "numbers"),
        ({"x": np.zeros((2, 2)), "x1": np.zeros(2)}, "'x1'"),
        ({"x": np.array([1.0, np.inf])}, "infinite"),
    ],
)
def test_wrong_arrays_are_one_sentence(tmp_path: Path, arrays: dict[str, Any], word: str) -> None:
    np.savez(tmp_path / "table.npz", **arrays)
    assert word in refused(tmp_path / "table.npz")


def test_a_wrong_npz_file_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "table.npz"
    np.savez_compressed(path, x=np.random.RandomState(0).rand(400), y=np.zeros(400))
    whole = path.read_bytes()
    array = io.BytesIO()
    np.save(array, np.zeros(3))
    flipped = [whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :] for at in range(30, 200, 10)]
    for content in (whole[:-30], whole[: len(whole) // 2], whole[:10], b"", b"x,y\n", array.getvalue(), *flipped[:1]):
        path.write_bytes(content)
        refused(path)
    for content in flipped:  # what is damaged is refused, or does not matter
        path.write_bytes(content)
        try:
            read(path)
        except Mistake as mistake:
            assert len(str(mistake).splitlines()) == 1
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "not an array")
    assert "not an array" in refused(path)


# --- any file -------------------------------------------------------------------------------------------------


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    (tmp_path / "table.xlsx").write_bytes(b"PK")
    assert "must end with one of .csv, .parquet, .npz" in refused(tmp_path / "table.xlsx")
    for ending in (".csv", ".parquet", ".npz"):
        assert "No such file" in refused(tmp_path / f"absent{ending}")
        (tmp_path / f"folder{ending}").mkdir()
        refused(tmp_path / f"folder{ending}")


def test_a_column_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    table = csv_of(tmp_path, ",".join(f"c{number}" for number in range(20)) + "\n" + ",".join("1" * 20) + "\n")
    with pytest.raises(Mistake, match=r"no column 'age': it has 'c0', .* and 8 more"):
        table.column("age")


ROWS: dict[str, list[Any]] = {
    "row": [0, 1],
    "label": ['a "b", c', "d\ne"],
    "certified": [True, False],
    "margin": [0.1, None],
    "lower": [-1e-300, 3.0],
}


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_what_is_written_can_be_read(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"answers{ending}"
    path.write_bytes(written(ROWS, ending))
    columns = read(path).columns
    assert columns["row"].tolist() == [0, 1] and columns["label"].tolist() == ROWS["label"]
    assert columns["certified"].tolist() == (["true", "false"] if ending == ".csv" else [1, 0])
    assert np.array_equal(columns["margin"], [0.1, np.nan], equal_nan=True)
    assert columns["lower"].tolist() == ROWS["lower"]


def test_json_is_a_list_of_rows() -> None:
    first, second = json.loads(written(ROWS, ".json"))
    assert first == {"row": 0, "label": 'a "b", c', "certified": True, "margin": 0.1, "lower": -1e-300}
    assert second["margin"] is None


def test_results_are_not_written_in_another_way() -> None:
    with pytest.raises(Mistake, match=r"\.csv, \.parquet, \.json, not '\.txt'"):
        written(ROWS, ".txt")
