"""A short cut of `fuzz_readers.py`: some hundred changed files, always the same ones."""

from pathlib import Path

import pytest
from fuzz_readers import fuzz
from readers import NAMES


@pytest.mark.parametrize("name", NAMES)
def test_changed_files_are_read_or_refused_by_name(tmp_path: Path, name: str) -> None:
    found = fuzz(name, tmp_path, seed=0, seconds=60.0, most=30)
    assert found.tried and not found.wrong, found
