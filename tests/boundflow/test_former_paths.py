"""Modules under the paths of earlier versions: the same objects, and a warning that names the end."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from collections.abc import Iterator

import pytest

import boundflow as bf
from boundflow.same_program import former_paths, written_code
from boundflow.same_program.former_paths import ENDS, MOVED, moved

PATHS = [(package, old, new) for package in MOVED for old, new in moved(package).items()]


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """What these tests import is forgotten again, so that a warning is said each time."""
    before = dict(sys.modules)
    yield
    for name in set(sys.modules) - set(before):
        parent, _, last = name.rpartition(".")
        vars(sys.modules.get(parent, sys)).pop(last if parent else None, None)
        del sys.modules[name]


@pytest.mark.parametrize(("package", "old", "new"), PATHS)
def test_a_former_path_is_the_module(package: str, old: str, new: str) -> None:
    importlib.import_module(package)
    if old in sys.modules:  # a room has its name, or it is public
        held, name = sys.modules[old], next(name for name in vars(importlib.import_module(new)) if name[0].isalpha())
        if hasattr(held, "__path__"):
            with pytest.warns(DeprecationWarning, match=f"until version {ENDS}"):
                assert held.__getattr__(name) is getattr(sys.modules[new], name)
        else:
            assert held is sys.modules[new]
        return
    with pytest.warns(DeprecationWarning, match=f"{old} is {new} now: its former path works until version {ENDS}"):
        assert importlib.import_module(old) is importlib.import_module(new)
    assert sys.modules[new].__spec__ is not None and sys.modules[new].__spec__.name == new


def test_as_users_write_it() -> None:
    with pytest.warns(DeprecationWarning, match="boundflow.bounded is boundflow.tensor.bounded now"):
        from boundflow.bounded import Bounded
    with pytest.warns(DeprecationWarning, match="boundflow.symbols.Symbols is boundflow.symbols.space.Symbols now"):
        from boundflow.symbols import Symbols
    with pytest.warns(DeprecationWarning, match="boundflow.rule_table is"):
        assert bf.rule_table is bf.tensor.rule_table  # type: ignore[attr-defined]
    assert Bounded is bf.Bounded and Symbols is bf.Symbols
    with pytest.warns(DeprecationWarning, match="boundflow.recipe is"):
        assert pickle.loads(b"cboundflow.recipe\nRecipe\n.") is bf.Recipe  # as files of earlier versions name it


def test_public_names_stay_what_they_are() -> None:
    code = "import boundflow.lift, boundflow.losses, boundflow as bf; assert callable(bf.lift) and bf.losses.hinge"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in ("nothing", "__wrapped__"):
        with pytest.raises(AttributeError):
            getattr(bf, name)


def test_what_a_digest_names_is_where_it_was() -> None:
    assert written_code.name(bf.losses.hinge)[0] == "boundflow.losses"
    assert len(former_paths.FORMER) == len(PATHS)


def test_they_end() -> None:
    """With this version the finder goes, and digests, which name the version too, take the paths of then."""
    assert tuple(map(int, bf.__version__.split("."))) < tuple(map(int, ENDS.split(".")))
