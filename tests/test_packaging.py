"""What the package says of itself: one version, in one place, types, and the versions it is tested with."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

import boundflow as bf

ROOT = Path(__file__).parents[1]
PACKAGES = ("boundflow", "fullcert")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_one_version() -> None:
    """Written in boundflow/version.py. The package reads it from there; a citation is a plain file and has to agree."""
    assert PROJECT["project"]["dynamic"] == ["version"] and "version" not in PROJECT["project"]
    assert version("fullcert") == bf.__version__
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


CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]
LEFT_OUT = {  # how many imports each contract leaves out: fewer are better, and a new one must go another way
    "a room of boundflow imports only rooms below it": 38,
    "files of one folder of boundflow do not import each other in a circle": 7,
    "a threat imports what all threats share, and no other threat": 3,
    "a room of fullcert imports only rooms below it": 1,
}


def test_every_room_has_a_layer_and_no_circles() -> None:
    """Import-linter then refuses a room without a place. What it cannot see is a package without a contract."""
    layered = {name for contract in CONTRACTS if contract.get("exhaustive") for name in contract["containers"]}
    assert set(PACKAGES) <= layered
    assert not PROJECT["tool"]["importlinter"]["exclude_type_checking_imports"]
    round_about = [contract for contract in CONTRACTS if contract["type"] == "acyclic_siblings"]
    assert {name for contract in round_about for name in contract["ancestors"]} == {f"{name}.*" for name in PACKAGES}
    flat = {name: {path.stem for path in (ROOT / name).glob("*.py")} - {"__init__"} for name in PACKAGES}
    assert flat == {"boundflow": {"errors", "version"}, "fullcert": {"__main__"}}


def test_imports_that_point_up_only_get_fewer() -> None:
    for contract in CONTRACTS:
        assert len(contract.get("ignore_imports", ())) <= LEFT_OUT.get(contract["name"], 0), contract["name"]


# rooms of which the design says what one file is, and not which there are
WITH_A_LIST = {
    "attacks",
    "optimum",
    "threats",
    "baselines",
    "bench",
    "cli",
    "datasets",
    "report",
    "reproduce",
    "sklearn",
}


def test_the_design_names_every_file_and_names_none_that_is_gone() -> None:
    """Section 11 has every file of both packages; every file, and every `file.name` of the library, is there."""
    page = (ROOT / "docs" / "design.md").read_text()
    layout = page.split("\n## 11.")[1].split("\n## 12.")[0]
    for package, listed in zip(PACKAGES, layout.split("    fullcert/\n"), strict=True):
        folders = {path.parent for path in (ROOT / package).rglob("*/__init__.py")} - {ROOT / package}
        rooms = [folder for folder in (ROOT / package, *folders) if folder.name not in WITH_A_LIST]
        files = {path.name for room in rooms for path in room.glob("[a-z]*.py")}
        named = set(re.findall(r"\b\w+(?:\.py\b|/)", listed))
        assert files | {f"{folder.name}/" for folder in folders} <= named, package
    there = {path.name for folder in (*PACKAGES, "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")}
    assert {Path(name).name for name in re.findall(r"[\w/]+\.py\b", page)} <= there
    library = {path.stem: path.read_text() for path in (ROOT / "boundflow").rglob("*.py")}
    for file, name in re.findall(r"`([a-z_]+)\.(\w+)", page):
        assert name == "py" or file not in library or re.search(rf"\b{name}\b", library[file]), f"{file}.{name}"


def test_every_version_of_the_test_environment_is_pinned() -> None:
    """One version each, and no hashes: the build of torch differs by platform.

    The environment is the extra `test`, which takes all others but one: the machines of a cluster have a Ray, and a
    sweep has to have the same. The version that was tried is pinned all the same, and asked about.
    """
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.+]*", line) for line in lines)
    names = [re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower() for line in lines]
    assert len(set(names)) == len(names)
    extras = PROJECT["project"]["optional-dependencies"]
    (own,) = (name for name in extras["test"] if name.startswith("fullcert["))
    assert set(own.removeprefix("fullcert[").rstrip("]").split(",")) == set(extras) - {"test", "files", "sweep"}
    wanted = {re.split(r"[\[<>=]", name)[0] for names in extras.values() for name in names} - {"fullcert"}
    wanted |= {re.split(r"[<>=]", name)[0] for name in PROJECT["project"]["dependencies"]}
    assert {re.sub(r"[-_.]+", "-", name).lower() for name in wanted} <= set(names)


INSTALLS = re.compile(r"\bpip3? install (?:-c constraints\.txt |-e |-U |--\S+ )*['\"]*([^\s'\"`),:]+)")


def test_no_text_sends_anybody_to_a_package_of_somebody_else() -> None:
    """What is to be installed by name is a library that this one needs, never ours: that name is taken on the index."""
    extras = PROJECT["project"]["optional-dependencies"].values()
    known = {re.split(r"[\[<>=]", name)[0] for names in extras for name in names} - {"fullcert", "boundflow"}
    known |= {"pip-audit", "{"}  # {: names of extras, put together where they are missing
    kinds = ("*.md", "*.py", "*.toml", "*.html", "*.j2", "*.yml", "*.cff", "Makefile")
    skipped = {".venv", "build", "dist", "runs", ".git"}
    files = [path for kind in kinds for path in ROOT.rglob(kind) if not skipped & set(path.relative_to(ROOT).parts)]
    asked = [(path, name) for path in files if path != Path(__file__) for name in INSTALLS.findall(path.read_text())]
    foreign = [one for one in asked if not one[1].startswith((".", "$(ls")) and one[1] not in known]
    assert not foreign and len(asked) >= 15 and PROJECT["project"]["name"] == "fullcert"


def imported_beside(folder: Path, package: str) -> str:
    """What importing a package says where ``folder`` is on the path, too."""
    places = f"{folder}{os.pathsep}{ROOT}"
    command = [sys.executable, "-S", "-c", f"import {package}"]  # -S: nothing of this environment, so it ends at once
    return subprocess.run(command, env={"PYTHONPATH": places}, cwd=folder, capture_output=True, text=True).stderr


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("kind", ["dist-info/METADATA", "egg-info/PKG-INFO"])
def test_another_package_of_the_name_is_refused(package: str, kind: str, tmp_path: Path) -> None:
    """An index has an agent SDK called boundflow: what was installed beside ours could be imported in its place."""
    metadata = tmp_path / f"boundflow-9.1.{kind}"
    metadata.parent.mkdir()
    metadata.write_text("Name: boundflow\nVersion: 9.1\nAuthor: Somebody else\n")
    said = imported_beside(tmp_path, package).splitlines()[-1]
    assert (
        said.startswith("ImportError: another package that is called boundflow") and "pip uninstall boundflow" in said
    )
    metadata.write_text("Name: boundflow\nVersion: 0.2.0\nAuthor: The BoundFlow authors\n")  # an earlier version
    assert "called boundflow" not in imported_beside(tmp_path, package)


@pytest.mark.parametrize("package", PACKAGES)
def test_files_of_another_package_are_refused(package: str, tmp_path: Path) -> None:
    """What pip has written over: the foreign file stands among ours, or alone."""
    library = tmp_path / "boundflow"
    library.mkdir()
    (library / "__init__.py").write_text('"""An agent SDK."""\n')
    if package == "fullcert":
        assert "pip uninstall boundflow" in imported_beside(tmp_path, package)
    (library / "same_program").mkdir()
    for name in ("__init__.py", "namesake.py", "former_paths.py"):
        (library / "same_program" / name).write_bytes((ROOT / "boundflow" / "same_program" / name).read_bytes())
    said = imported_beside(
        tmp_path,
        "boundflow.same_program.namesake; boundflow.same_program.namesake.require_ours()"
        if package == "boundflow"
        else package,
    )
    assert said.splitlines()[-1].startswith("ImportError: ") and "pip uninstall boundflow" in said


@pytest.mark.parametrize(
    ("audit", "code", "said"),
    [
        ([{"name": "torch", "version": "1", "vulns": []}, {"name": "a-b", "version": "2", "vulns": []}], 0, "2 of 2"),
        ([{"name": "torch", "version": "1", "vulns": [{"id": "X-1"}]}], 1, "X-1"),
        ([{"name": "torch", "version": "1", "vulns": []}], 3, "did not run for a-b"),
        (
            [{"name": "torch", "version": "1", "vulns": []}, {"name": "a-b", "skip_reason": "no"}],
            3,
            "did not run for a-b",
        ),
        (None, 3, "did not run"),
    ],
)
def test_a_check_that_did_not_run_is_told_as_that(audit: object, code: int, said: str, tmp_path: Path) -> None:
    """Known vulnerabilities are asked about in the hosted tests; silence there must not look like an answer."""
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    steps = yaml.safe_load(workflow)["jobs"]["vulnerabilities"]["steps"]
    assert any("pip-audit" in step.get("run", "") for step in steps) and "audit.py" in steps[-1]["run"]
    (tmp_path / "constraints.txt").write_text("torch==1\nA_b==2\n")
    if audit is not None:
        (tmp_path / "audit.json").write_text(json.dumps({"dependencies": audit}))
    command = [sys.executable, str(ROOT / ".github" / "audit.py"), "audit.json", "constraints.txt"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert told.returncode == code and said in told.stdout
