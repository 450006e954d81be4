"""A short cut of `fuzz_readers.py`: some hundred mutated files, always the same ones."""

from pathlib import Path

import pytest
from fuzz_readers import fuzz


@pytest.mark.parametrize("seed", [0, 1])
def test_mutated_files_are_read_or_refused_by_name(tmp_path: Path, seed: int) -> None:
    found = fuzz(tmp_path, seed, seconds=60.0, most=150)
    assert not found.wrong and len(found.tried) > 10, found
