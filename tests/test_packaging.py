"""What a package says of itself: one version, in one place, and types for those who import it."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import boundflow as bf

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_one_version() -> None:
    """Written in boundflow/version.py. The package reads it from there; a citation is a plain file and has to agree."""
    assert PROJECT["project"]["dynamic"] == ["version"] and "version" not in PROJECT["project"]
    assert version("boundflow") == bf.__version__
    (cited,) = re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited == bf.__version__


def test_types_are_shipped() -> None:
    """Without the empty file py.typed, type checkers take every name of a package for Any."""
    shipped = PROJECT["tool"]["setuptools"]["package-data"]
    for package in ("boundflow", "fullcert"):
        assert (ROOT / package / "py.typed").exists() and "py.typed" in shipped[package]
