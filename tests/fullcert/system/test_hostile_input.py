"""Files that were made to break a reader: bombs, lies in headers, nesting without end. One sentence each."""

import csv
import gzip
import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import Command, people, run_main, sentence, write_csv
from forging import rebound

from fullcert.data import npz, tables
from fullcert.data.datasets import adult, cars, cifar, magic, mnist, pneumonia
from fullcert.data.datasets.sources import Copy
from fullcert.experiment.options import read_options
from fullcert.experiment.runs import read_json
from fullcert.results.step_log import read_steps
from fullcert.system import unpacking
from fullcert.system.mistakes import Mistake

INCOME = ("--target", "income", "--ignore", "pay", "--flip-labels", "1", "--steps", "2", "--quiet")


def told(call: Callable[[], object]) -> str:
    """The one sentence of a mistake."""
    with pytest.raises(Mistake) as mistake:
        call()
    assert len(str(mistake.value).splitlines()) == 1 and len(str(mistake.value)) < 1000
    return str(mistake.value)


# --- arrays -----------------------------------------------------------------------------------------------------------


def with_header(text: str, values: bytes = bytes(24), version: bytes = b"\x01\x00") -> bytes:
    """An array whose header says what it is told to."""
    length = struct.pack("<H" if version == b"\x01\x00" else "<I", len(text))
    return b"\x93NUMPY" + version + length + text.encode("latin1") + values


def zipped(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


HEADERS = {
    "nothing": "",
    "an open bracket": "{'descr': '<f8', 'fortran_order': False, 'shape': (3,",
    "an open string": "{'descr': '<f8, 'fortran_order': False, 'shape': (3,), }",
    "brackets without end": "(" * 5000,
    "signs without end": "-" * 9000 + "1",
    "a null byte": "{'descr': '<f8', \0 'fortran_order': False, 'shape': (3,), }",
    "an integer of 5000 digits": f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({'9' * 5000},), }}",
    "a negative length": "{'descr': '<f8', 'fortran_order': False, 'shape': (-3,), }",
    "a length that is a truth": "{'descr': '<f8', 'fortran_order': False, 'shape': (True,), }",
    "an escape": "{'descr': '\\\\x', 'fortran_order': False, 'shape': (3,), }",
    "a type that is none": "{'descr': 'f99999999999999999999', 'fortran_order': False, 'shape': (3,), }",
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
    "fields": "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3,), }",
    "values of no size": "{'descr': '|V0', 'fortran_order': False, 'shape': (3,), }",
    "too many values": "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }",
    "more values than a number can count": "{'descr': '<f8', 'fortran_order': False, 'shape': (2**62, 2**62), }",
    "more values than there are": "{'descr': '<f8', 'fortran_order': False, 'shape': (4,), }",
    "fewer values than there are": "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }",
    "a call": "__import__('os').abort()",
}


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_headers_of_arrays(tmp_path: Path, name: str, version: int) -> None:
    path = zipped(tmp_path / "table.npz", x=with_header(HEADERS[name], version=bytes([version, 0])))
    assert "cannot be read" in told(lambda: tables.read(path))


def test_a_header_that_is_right(tmp_path: Path) -> None:
    right = with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }", np.arange(3.0).tobytes())
    assert tables.read(zipped(tmp_path / "table.npz", x=right)).columns["x"].tolist() == [0, 1, 2]
    for order in "CF":
        np.savez(tmp_path / "table.npz", x=np.arange(6.0).reshape(2, 3).copy(order=order), y=np.array(["a", "b"]))
        columns = tables.read(tmp_path / "table.npz").columns
        assert columns["x1"].tolist() == [1, 4] and columns["y"].tolist() == ["a", "b"]


def test_a_command_given_a_header_that_lies(command: Command, tmp_path: Path) -> None:
    path = zipped(tmp_path / "table.npz", income=with_header(HEADERS["too many values"]))
    assert "1,000,000,000,000 values" in sentence(command("train", "--data", path, *INCOME))


def test_zip_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpacked, each array is small enough, and all together they are not; the limit is made small here."""
    monkeypatch.setattr(npz, "VALUES", 10_000)
    zeros = with_header("{'descr': '|u1', 'fortran_order': False, 'shape': (6000,), }", bytes(6000))
    path = zipped(tmp_path / "table.npz", x=zeros, y=zeros)
    assert path.stat().st_size < 1000 and "at most 10,000" in told(lambda: tables.read(path))


def test_words_that_are_long_or_columns_that_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few values can take much memory: one word of gigabytes, or many arrays of thousands of columns."""
    long = with_header("{'descr': '<U30000', 'fortran_order': False, 'shape': (1,), }", bytes(120_000))
    wide = with_header("{'descr': '|u1', 'fortran_order': False, 'shape': (1, 60), }", bytes(60))
    monkeypatch.setattr(npz, "VALUES", 10_000)
    assert "1 words of 120,000 bytes" in told(lambda: tables.read(zipped(tmp_path / "table.npz", x=long)))
    monkeypatch.setattr(unpacking, "COLUMNS", 100)
    assert "more than 100 columns" in told(lambda: tables.read(zipped(tmp_path / "table.npz", x=wide, y=wide)))


def test_zips_that_are_damaged(tmp_path: Path) -> None:
    path = zipped(tmp_path / "table.npz", x=with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }"))
    whole = path.read_bytes()
    for place in range(0, len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 0xFF
        path.write_bytes(changed)
        try:  # what is damaged is refused, or does not matter
            tables.read(path)
        except Mistake as mistake:
            assert len(str(mistake).splitlines()) == 1


# --- tables -----------------------------------------------------------------------------------------------------------


def test_a_table_of_100_000_columns(command: Command, tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(100_000)]
    (tmp_path / "wide.csv").write_text(",".join(names) + "\n" + ",".join("1" * 100_000) + "\n")
    np.savez(tmp_path / "wide.npz", x=np.zeros((2, 100_000)))
    for name in ("wide.csv", "wide.npz"):
        said = sentence(command("train", "--data", tmp_path / name, *INCOME))
        assert "100,000 columns" in said and "20,000" in said


def test_a_word_that_makes_all_others_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "VALUES", 10_000)
    (tmp_path / "long.csv").write_text("x\n" + "a" * 5000 + "\n" + "b\n" * 5000)
    assert "too long" in told(lambda: tables.read(tmp_path / "long.csv"))


def test_parquet_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "bomb.parquet"
    parquet.write_table(pyarrow.table({"x": np.zeros(3_000_000)}), path)
    monkeypatch.setattr(unpacking, "VALUES", 1_000_000)
    assert path.stat().st_size < 100_000 and "3,000,000 values" in told(lambda: tables.read(path))
    parquet.write_table(pyarrow.table({"x": ["long" * 5000] * 5000}), path)  # a word that is written once
    assert path.stat().st_size < 100_000 and "unpacks to more" in told(lambda: tables.read(path))
    word = pyarrow.array(["long" * 5000])
    same = pyarrow.DictionaryArray.from_arrays(np.zeros(5000, np.int32), word)
    parquet.write_table(pyarrow.table({"x": same}), path)  # as kept by pandas
    assert path.stat().st_size < 100_000 and "unpacks to more" in told(lambda: tables.read(path))


def test_parquet_of_lists_and_categories(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "table.parquet"
    parquet.write_table(pyarrow.table({"x": [[1.0], [2.0]]}), path)
    assert "a cell is a number or a word" in told(lambda: tables.read(path))
    words = pyarrow.array(["b", "a", None, "b"])
    columns = {"plain": words, "kept": words.dictionary_encode(), "n": [1, 2, 3, 4], "a.b": ["x", "y", "x", ""]}
    parquet.write_table(pyarrow.table(columns), path)
    found = tables.read(path).columns
    assert found["plain"].tolist() == found["kept"].tolist() == ["b", "a", "", "b"]
    assert found["n"].tolist() == [1, 2, 3, 4] and found["a.b"].tolist() == ["x", "y", "x", ""]


def test_numbers_of_5000_digits(command: Command, tmp_path: Path) -> None:
    digits = "9" * 5000
    (tmp_path / "long.csv").write_text(f"x,income\n{digits},a\n1,b\n")
    assert "infinite" in told(lambda: tables.read(tmp_path / "long.csv"))
    for flag in ("--seed", "--steps", "--epochs", "--hidden", "--epsilon", "--channels"):
        assert len(sentence(command("train", flag, digits, "--quiet"))) < 6000


# --- formulas ---------------------------------------------------------------------------------------------------------


def test_cells_that_a_spreadsheet_would_compute() -> None:
    words = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "-1", "+2.5", "a=b", "", "-1e3", "-"]
    rows = list(csv.reader(io.StringIO(tables.as_csv({"=label": words, "x": [-1.5] * len(words)}).decode())))
    assert rows[0] == ["'=label", "x"]
    harmless = ["'=1+1", "'+cmd|' /C calc'!A0", "'-2+3", "'@SUM(A1)", "'\t=1", "-1", "+2.5", "a=b", "", "-1e3", "'-"]
    assert [row[0] for row in rows[1:]] == harmless and {row[1] for row in rows[1:]} == {"-1.5"}


def test_answers_hold_no_formulas(command: Command, tmp_path: Path) -> None:
    """A class can have any name, and is written into the answers."""
    table = people()
    table["income"] = ["=HYPERLINK(0)" if income == "much" else income for income in table["income"]]
    path = write_csv(tmp_path / "people.csv", table)
    assert run_main("train", "--data", path, *INCOME, "--out", tmp_path / "run") == 0
    assert command("certify", tmp_path / "run", path, "--out", tmp_path / "answers.csv", "--quiet").code == 0
    text = (tmp_path / "answers.csv").read_text()
    assert "'=HYPERLINK(0)" in text and ",=" not in text


# --- options and records ----------------------------------------------------------------------------------------------

TOML = {
    "lists within lists": "hidden = " + "[" * 100_000,
    "tables within tables": "a" + ".a" * 30_000 + " = 1",
    "tables within tables, named in quotes": "a" + ' . "a"' * 30_000 + " = 1",
    "tables within a table": "a = {a" + ".'a'" * 30_000 + " = 1}",
    "tables within tables by their heading": "[a" + ".a" * 30_000 + "]",
    "an integer of 5000 digits": "seed = " + "9" * 5000,
    "an integer of 4000 digits": "seed = " + "9" * 4000,
    "a float of 4000 digits": "lr = " + "9" * 4000,
    "an infinite number": "lr = inf",
    "a list for a number": "lr = " + str(list(range(5000))),
    "more than a mebibyte": "# " + "x" * 2**20,
    "a null byte": "lr = 0.1 \0",
}


@pytest.mark.parametrize("name", TOML)
def test_options(command: Command, tmp_path: Path, name: str) -> None:
    (tmp_path / "options.toml").write_text(TOML[name])
    said = sentence(command("train", "--config", tmp_path / "options.toml"))
    assert len(said) < 1000
    if name != "an infinite number":
        told(lambda: read_options(tmp_path / "options.toml"))


def test_dots_in_words_are_no_tables(tmp_path: Path) -> None:
    words = [".".join("abcdefgh" * 10), "'.a.b", 'say \\"a.b\\".c', *(f"c{number}=0.5:1.5" for number in range(100))]
    written = ", ".join(f'"{word}"' for word in words)
    (tmp_path / "options.toml").write_bytes(f"scale = [{written}]\r\nlr = 0.5\r\n".encode())
    found = read_options(tmp_path / "options.toml")
    assert len(found["scale"]) == len(words) and found["lr"] == 0.5


JSON = {
    "a list": "[]",
    "lists within lists": "[" * 100_000,
    "tables within tables": '{"a":' * 100_000,
    "an integer of 5000 digits": '{"a": ' + "9" * 5000 + "}",
    "no letters": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("name", JSON)
def test_records(tmp_path: Path, name: str) -> None:
    content = JSON[name]
    (tmp_path / "metrics.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert "is damaged" in told(lambda: read_json(tmp_path / "metrics.json"))
    assert read_steps(tmp_path / "metrics.json") == []


def test_every_file_of_a_run(command: Command, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "people.csv", people())
    run = tmp_path / "run"
    assert run_main("train", "--data", path, *INCOME, "--out", run) == 0
    for name in ("options.toml", "columns.json", "certificate.safetensors", "evaluation.json", "metrics.json"):
        whole = (run / name).read_bytes()
        for content in (b"[]", b"[" * 100_000, b'{"a":' * 100_000, b'{"a": ' + b"9" * 5000 + b"}", b"\0" * 100):
            (run / name).write_bytes(content)
            if name == "evaluation.json":
                sentence(command("report", run, "--quiet"))
            elif name == "metrics.json":
                sentence(command("train", "--data", path, *INCOME, "--out", run, "--resume"))
            else:
                sentence(command("certify", run, path, "--quiet"))
        (run / name).write_bytes(whole)
    columns, certificate = (run / "columns.json").read_bytes(), (run / "certificate.safetensors").read_bytes()
    said = json.loads(columns)
    for number in (10**400, 10**30):
        said["columns"][0]["center"] = number
        (run / "columns.json").write_text(json.dumps(said))
        assert "is not that of the certificate" in sentence(command("certify", run, path, "--quiet"))
        rebound(run)
        assert "is damaged" in sentence(command("certify", run, path, "--quiet"))
    said["columns"][0]["center"], said["target"]["classes"] = 0.5, ["little"]
    (run / "columns.json").write_text(json.dumps(said))
    rebound(run)
    assert "more classes than the 1" in sentence(command("certify", run, path, "--quiet"))
    (run / "columns.json").write_bytes(columns)
    (run / "certificate.safetensors").write_bytes(certificate)
    metrics = json.loads((run / "metrics.json").read_text())
    for value in ([], {}, "x"):
        (run / "metrics.json").write_text(json.dumps({**metrics, "seconds": value}))
        resume = ("train", "--data", path, *INCOME[:-1], "--out", run, "--resume")
        assert "is damaged" in sentence(command(*resume))


def test_a_model_file_of_parentheses(command: Command, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("x = " + "(" * 100_000)
    sentence(command("validate", f"{tmp_path / 'net.py'}:make", "--features", "2"))
    (tmp_path / "net.py").write_text("x = " + "-" * 200_000 + "1")
    sentence(command("validate", f"{tmp_path / 'net.py'}:make", "--features", "2"))


def test_memory_that_runs_out(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ...")):
        monkeypatch.setattr("fullcert.cli.application.run", lambda arguments, error=error: (_ for _ in ()).throw(error))
        assert "not enough memory" in sentence(command("train"))


# --- datasets ---------------------------------------------------------------------------------------------------------


def test_gzip_bombs(tmp_path: Path) -> None:
    """A hundred megabytes of zeros in a hundred kilobytes: no more is unpacked than the dataset has."""
    bomb = gzip.compress(bytes(10**8), 9)
    assert len(bomb) < 200_000
    for read in (
        lambda path: mnist.read_idx(path, "mnist"),
        lambda path: adult.read_table(path, 10),
        lambda path: magic.read_table(path),
    ):
        (tmp_path / "bomb.gz").write_bytes(bomb)
        assert "damaged" in told(lambda read=read: read(tmp_path / "bomb.gz"))
    assert not Copy("bomb.gz", 1000, "sha256:00", gzipped=True).intact(tmp_path)
    (tmp_path / "cars.csv").write_bytes(bytes(2**21))
    assert "damaged" in told(lambda: cars.read_table(tmp_path / "cars.csv"))


def test_an_array_that_is_cut_off(tmp_path: Path) -> None:
    """Fewer bytes than its axes say, more, and no axis at all."""
    for content in (
        b"\0\0\x08\x01" + (3).to_bytes(4) + b"12",
        b"\0\0\x08\x01" + (1).to_bytes(4) + b"12",
        b"\0\0\x08\0a",
    ):
        (tmp_path / "array.gz").write_bytes(gzip.compress(content))
        assert "damaged" in told(lambda: mnist.read_idx(tmp_path / "array.gz", "mnist")), content


def test_a_table_of_cars_with_too_few_cells(tmp_path: Path) -> None:
    (tmp_path / "cars.csv").write_text("mpg,cylinders\n" + "1\n" * cars.ROWS)
    assert "damaged" in told(lambda: cars.read_table(tmp_path / "cars.csv"))


def archive_of(folder: Path, *members: tarfile.TarInfo) -> Path:
    path = folder / "cifar-10" / "cifar-10-binary.tar.gz"
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return path


@pytest.mark.usefixtures("any_content")
def test_archives_with_loops_and_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"cifar-10-batches-bin/{name}" for name in (*cifar.TRAIN, cifar.TEST)]
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        links = [tarfile.TarInfo(name) for name in names]
        for link, target in zip(links, [*names[1:], names[0]], strict=True):
            link.type, link.linkname = kind, target if kind == tarfile.LNKTYPE else Path(target).name
        archive_of(tmp_path, *links)
        assert "damaged" in told(lambda: cifar.read_cifar(tmp_path))
    large = tarfile.TarInfo("cifar-10-batches-bin/large")
    large.size = 10**6
    monkeypatch.setattr(cifar, "MOST", 10**5)
    archive_of(tmp_path, large)
    assert "damaged" in told(lambda: cifar.read_cifar(tmp_path))
    long = tarfile.TarInfo("././@LongLink")
    long.type, long.size = tarfile.GNUTYPE_LONGNAME, 100
    blocks = long.tobuf(tarfile.GNU_FORMAT) + bytes(512)
    monkeypatch.setattr(cifar, "MOST", 10**8)
    (tmp_path / "cifar-10" / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(blocks * 3000))
    assert "damaged" in told(lambda: cifar.read_cifar(tmp_path))


@pytest.mark.usefixtures("any_content")
def test_an_archive_of_x_rays_with_a_header_that_lies(tmp_path: Path) -> None:
    (tmp_path / "pneumoniamnist").mkdir()
    for header in HEADERS.values():
        zipped(tmp_path / "pneumoniamnist" / "pneumoniamnist.npz", train_images=with_header(header))
        assert "damaged" in told(lambda: pneumonia.load_pneumonia_mnist(tmp_path, 0))
