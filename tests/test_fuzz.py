"""A short cut of `fuzz_readers.py`: some hundred changed files, always the same ones."""

import pytest
from fuzz_readers import fuzz
from readers import NAMES, Readers


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Readers:
    return Readers(tmp_path_factory.mktemp("readers"))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "sweeps"])  # whose runs are processes
def test_changed_files_are_read_or_refused_by_name(readers: Readers, name: str) -> None:
    found = fuzz(readers, name, seed=0, seconds=20.0, most=24)
    assert found.tried and not found.wrong, found
