"""What the tests of the command share."""

from pathlib import Path

import pytest
from commands import Command, Result, people, run_main, write_csv

from fullcert.data.datasets import sources


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """The command, run in this process."""

    def run(*arguments: object) -> Result:
        return Result(run_main(*arguments), *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small table: two whole numbers, a category, a number and two classes."""
    return write_csv(tmp_path_factory.mktemp("table") / "people.csv", people())


@pytest.fixture
def any_content(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of these tests are small: readers are asked about them as if they were the published ones."""
    monkeypatch.setattr(sources.Copy, "intact", lambda copy, folder: True)
