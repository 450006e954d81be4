"""Whatever is wrong with files, disks and permissions: one plain sentence, exit code 2, nothing half-written."""

import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from commands import Command, as_nobody, people, run_main, sentence, write_csv

INCOME = ("--target", "income", "--ignore", "pay", "--flip-labels", "1", "--steps", "3", "--quiet")


def hidden(folder: Path) -> list[str]:
    """Temporary files, which begin with a full stop."""
    return [str(path) for path in folder.rglob(".*")]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that other users can reach, with a table and a finished run; those of pytest are private."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    write_csv(folder / "people.csv", people())
    assert run_main("train", "--data", folder / "people.csv", *INCOME, "--out", folder / "run") == 0
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def people_csv(shared: Path) -> Path:
    return shared / "people.csv"


# --- files that are not what they should be -------------------------------------------------------------------

NETWORKS = {
    "absent.py:make_model": "cannot read",
    "raises.py:make_model": "RuntimeError on line 2",
    "syntax.py:make_model": "not valid Python",
    "other.py:make_model": "nothing called",
    "raises.py": "names no model",
    "rule.py:make_model": "cannot be bounded",
}


@pytest.mark.parametrize("spec", NETWORKS)
@pytest.mark.parametrize("verb", ["train", "validate"])
def test_networks(command: Command, people_csv: Path, tmp_path: Path, verb: str, spec: str) -> None:
    (tmp_path / "raises.py").write_text("def make_model():\n    raise RuntimeError('in\\nvain')\n")
    (tmp_path / "syntax.py").write_text("def make_model(:\n")
    (tmp_path / "other.py").write_text("x = 1\n")
    (tmp_path / "rule.py").write_text(
        "import torch\nfrom torch import nn\n\n\nclass Odd(nn.Module):\n    def forward(self, x):\n"
        "        return torch.special.i0(x)\n\n\ndef make_model(features, outputs):\n"
        "    return nn.Sequential(nn.Linear(features, outputs), Odd())\n"
    )
    out = tmp_path / "out"
    if verb == "train":
        flags = ("--data", people_csv, *INCOME, "--model", tmp_path / spec, "--out", out)
        assert NETWORKS[spec] in sentence(command("train", *flags))
    elif spec == "rule.py:make_model":
        result = command("validate", tmp_path / spec, "--features", "4", "--quiet", "--json", out)
        assert "i0" in sentence(result)
        out.unlink()
    else:
        flags = ("--features", "4", "--quiet", "--json", out)
        assert NETWORKS[spec] in sentence(command("validate", tmp_path / spec, *flags))
    assert not out.exists() and not hidden(tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "--data", "absent.csv", *INCOME),
        ("train", "--dataset", "mnist", "--data-dir", "absent"),
        ("train", "--config", "absent.toml"),
        ("train", "--data", "people.txt", *INCOME),
        ("certify", "absent", "absent.csv"),
        ("report", "absent"),
        ("datasets", "verify", "mnist", "--data-dir", "absent", "--quiet"),
        ("datasets", "verify", "nothing", "--quiet"),
        ("datasets", "list", "--json", "absent/list.json"),
        ("validate", "absent.py:make_model", "--features", "2"),
        ("validate", "mlp"),
        ("validate", "mlp", "--features", "2", "--json", "absent/list.json"),
        ("validate", "mlp", "--shape", "two"),
        ("certify",),
        ("report",),
    ],
    ids=" ".join,
)
def test_what_is_not_there(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    sentence(command(*arguments))
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_too_long(command: Command, people_csv: Path) -> None:
    name = "a" * 300
    for flags in (
        ("--out", name),
        ("--json", name),
        ("--data", f"{name}.csv"),
        ("--config", name),
        ("--out", f"{name}/run"),
    ):
        assert "name too long" in sentence(command("train", "--data", people_csv, *INCOME, *flags))
    for arguments in (
        ("certify", name, people_csv),
        ("report", name),
        ("validate", "mlp", "--features", "2", "--json", name),
    ):
        sentence(command(*arguments))


def test_an_out_that_is_a_file(command: Command, people_csv: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here before")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        assert "cannot make the folder" in sentence(command("train", "--data", people_csv, *INCOME, "--out", out))
    assert (tmp_path / "file").read_text() == "here before"


# --- outputs that are not plain files -------------------------------------------------------------------------


def test_devices_and_links_are_written_into(command: Command, shared: Path, tmp_path: Path) -> None:
    before = os.stat("/dev/null")
    assert command("report", shared / "run", "--out", "/dev/null", "--quiet").code == 0
    assert os.stat("/dev/null").st_ino == before.st_ino and not Path("/dev/null").is_file()
    (tmp_path / "link.html").symlink_to(tmp_path / "page.html")
    assert command("report", shared / "run", "--out", tmp_path / "link.html", "--quiet").code == 0
    assert (tmp_path / "link.html").is_symlink() and (tmp_path / "page.html").stat().st_size > 1000


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_an_output_that_takes_nothing(shared: Path) -> None:
    arguments = ["report", str(shared / "run"), "--out", "/dev/null", "--json", "-"]
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "fullcert", *arguments], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert result.returncode == 2 and result.stderr == "fullcert: cannot write: No space left on device\n"
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        [sys.executable, "-m", "fullcert", *arguments], stdout=writer, stderr=subprocess.PIPE, text=True
    )
    os.close(writer)
    assert result.returncode == 1 and result.stderr == ""


# --- full disks -----------------------------------------------------------------------------------------------

Disk = Callable[[str], Path]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A disk of a given size; called again, it is made larger or smaller."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def sized(size: str) -> Path:
        again = "remount," if os.path.ismount(folder) else ""
        options = ["mount", "-t", "tmpfs", "-o", f"{again}size={size}", "tmpfs", str(folder)]
        if shutil.which("mount") is None or subprocess.run(options, capture_output=True).returncode:
            pytest.skip("only root can mount a small disk")
        return folder

    yield sized
    if os.path.ismount(folder):
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("pages", [1, 2, 3, 4, 6, 8, 12])
def test_a_run_on_a_full_disk_can_go_on_once_there_is_room(
    command: Command, shared: Path, disk: Disk, pages: int
) -> None:
    """Pages of 4096 bytes: it is full at the options, the columns, the steps, the checkpoint, the report."""
    folder = disk(f"{4 * pages}k")
    flags = ("train", "--data", shared / "people.csv", *INCOME, "--out", folder / "run")
    said = sentence(command(*flags))
    assert "cannot write" in said and "No space left on device" in said
    assert not hidden(folder) and not (folder / "run" / "metrics.json").exists()
    disk("4m")
    resume = ("--resume",) if (folder / "run" / "options.toml").exists() else ()
    assert command(*flags, *resume).code == 0
    for name in ("certificate.safetensors", "columns.json"):
        assert (folder / "run" / name).read_bytes() == (shared / "run" / name).read_bytes()


def test_answers_and_reports_on_a_full_disk(command: Command, shared: Path, disk: Disk) -> None:
    folder = disk("4k")
    for ending in (".csv", ".parquet", ".json"):
        flags = ("--quiet", "--out", folder / f"answers{ending}")
        assert "No space left" in sentence(command("certify", shared / "run", shared / "people.csv", *flags))
    assert "No space left" in sentence(command("report", shared / "run", "--out", folder / "page.html"))
    flags = ("--quiet", "--json", folder / "answers.json")
    assert "No space left" in sentence(command("certify", shared / "run", shared / "people.csv", *flags))
    (folder / "answers.csv").write_text("old answers")
    flags = ("--quiet", "--out", folder / "answers.csv")
    assert "No space left" in sentence(command("certify", shared / "run", shared / "people.csv", *flags))
    assert [path.name for path in folder.iterdir()] == ["answers.csv"]
    assert (folder / "answers.csv").read_text() == "old answers"


def test_a_checkpoint_that_cannot_be_written(
    command: Command, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same where no disk can be mounted: the system says that nothing more fits."""

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("boundflow.files.sealed_files.os", SimpleNamespace(fsync=full))
    flags = ("train", "--data", shared / "people.csv", *INCOME, "--out", tmp_path / "run")
    checkpoint = tmp_path / "run" / "checkpoint.safetensors"
    assert sentence(command(*flags)) == f"cannot write {checkpoint}: No space left on device"
    assert not hidden(tmp_path) and not (tmp_path / "run" / "metrics.json").exists()


# --- permissions ----------------------------------------------------------------------------------------------


@pytest.fixture
def closed(shared: Path) -> Iterator[Path]:
    """A folder in which another user can do nothing but read."""
    folder = shared / "closed"
    folder.mkdir()
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_what_may_not_be_read(shared: Path, closed: Path) -> None:
    for name in ("people.csv", "people.parquet", "people.npz", "options.toml", "net.py"):
        (closed / name).write_text("x\n1\n")
        (closed / name).chmod(0)
    for name in ("people.csv", "people.parquet", "people.npz"):
        assert "Permission denied" in sentence(as_nobody("train", "--data", closed / name, *INCOME))
        assert "not readable" in sentence(as_nobody("certify", shared / "run", closed / name))
    assert "not readable" in sentence(as_nobody("train", "--config", closed / "options.toml"))
    network = f"{closed / 'net.py'}:make_model"
    flags = ("--data", shared / "people.csv", *INCOME)
    assert "Permission denied" in sentence(as_nobody("train", *flags, "--model", network))
    assert "Permission denied" in sentence(as_nobody("validate", network, "--features", "2"))


def test_runs_that_may_not_be_read(shared: Path, closed: Path) -> None:
    shutil.copytree(shared / "run", closed / "run")
    rows = shared / "people.csv"
    for name in ("certificate.safetensors", "options.toml", "columns.json"):
        (closed / "run" / name).chmod(0)
        assert name in sentence(as_nobody("certify", closed / "run", rows))
        (closed / "run" / name).chmod(0o644)
    (closed / "run" / "evaluation.json").chmod(0)
    assert "evaluation.json: Permission denied" in sentence(as_nobody("report", closed / "run"))
    (closed / "run").chmod(0)
    for arguments in (
        ("certify", closed / "run", rows),
        ("report", closed / "run"),
        ("train", "--resume", "--out", closed / "run"),
    ):
        said = sentence(as_nobody(*arguments))
        assert "Permission denied" in said or "not readable" in said


def test_what_may_not_be_written(shared: Path, closed: Path) -> None:
    importlib.import_module("torch.utils.tensorboard")  # another user may not be able to read it
    rows = shared / "people.csv"
    train = ("train", "--data", rows, *INCOME)
    for arguments in (
        (*train, "--out", closed / "run"),
        (*train, "--out", closed),
        (*train, "--json", closed / "metrics.json"),
        (*train, "--tensorboard", closed / "board"),
        ("certify", shared / "run", rows, "--out", closed / "answers.csv"),
        ("certify", shared / "run", rows, "--json", closed / "answers.json"),
        ("report", shared / "run"),
        ("report", shared / "run", "--out", closed / "page.html"),
        ("validate", "mlp", "--features", "2", "--json", closed / "list.json"),
        ("datasets", "where", "--json", closed / "list.json"),
    ):
        said = sentence(as_nobody(*arguments))
        assert "cannot write" in said or "cannot make the folder" in said
    assert list(closed.iterdir()) == []
