"""What the package says of itself: one version, in one place, types, and the versions it is tested with."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import yaml

import boundflow as bf

ROOT = Path(__file__).parents[1]
PACKAGES = ("boundflow", "fullcert")
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
    for package in PACKAGES:
        assert (ROOT / package / "py.typed").exists() and "py.typed" in shipped[package]


def test_hosted_tests_run_what_is_promised() -> None:
    """Every version of Python in the classifiers, the lowest version of torch that is allowed, and a newer one."""
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    matrix = yaml.safe_load(workflow)["jobs"]["test"]["strategy"]["matrix"]
    name = "Programming Language :: Python :: 3."
    promised = [line for line in PROJECT["project"]["classifiers"] if line.startswith(name)]
    assert [f"{name}{version.removeprefix('3.')}" for version in matrix["python"]] == promised
    assert PROJECT["project"]["requires-python"] == f">={matrix['python'][0]}"
    lowest, newest = matrix["torch"]
    assert f"torch>={lowest.removeprefix('==').removesuffix('.*')}" in PROJECT["project"]["dependencies"]
    assert newest.startswith(">=")


def test_a_commit_is_checked_by_what_make_runs() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    recipe = (ROOT / "Makefile").read_text().split("\nlint:")[1].split("\n\n")[0]
    checks = re.findall(r"^\t(.+)$", recipe, re.MULTILINE)
    assert [hook["entry"] for hook in local["hooks"]] == [check.replace("format --check", "format") for check in checks]


def test_every_package_has_layers_that_name_all_its_files() -> None:
    """Import-linter then refuses a file without a place. What it cannot see is a package without a contract."""
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    layered = {name for contract in contracts if contract.get("exhaustive") for name in contract["containers"]}
    folders = [path.parent.relative_to(ROOT) for name in PACKAGES for path in (ROOT / name).rglob("__init__.py")]
    assert layered == {".".join(folder.parts) for folder in folders}
