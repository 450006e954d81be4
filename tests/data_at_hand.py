"""Where datasets are, and tests that run only where they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("BOUNDFLOW_DATA", "data"))


def needs(*paths: str) -> pytest.MarkDecorator:
    """Run a test only where files of a dataset are."""
    there = all((DATA / path).exists() for path in paths)
    return pytest.mark.skipif(not there, reason=f"set BOUNDFLOW_DATA to a folder with {', '.join(paths)}")
