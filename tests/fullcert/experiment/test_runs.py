"""A file appears whole or not at all."""

import errno
import os
from pathlib import Path

import pytest

from fullcert.experiment import runs
from fullcert.system.mistakes import Mistake


def test_a_file_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.json"
    runs.write(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(Mistake, match="No space left"):
            runs.write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path], "no temporary file is left behind"
    runs.write(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_path_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(Mistake, match="cannot make the folder"):
            runs.make_folder(path)
    for path in (tmp_path, tmp_path / "absent" / "metrics.json", tmp_path / "file" / "metrics.json"):
        with pytest.raises(Mistake, match="cannot write"):
            runs.check_writable(path)
